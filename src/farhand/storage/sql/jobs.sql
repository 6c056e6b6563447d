-- name: insert_job
-- No row comes back when a live job already has the active key, or already retries the same one.
INSERT INTO jobs ({job_columns_but_seq})
VALUES ({job_values_but_seq})
ON CONFLICT DO NOTHING
RETURNING seq;

-- name: insert_job_last
-- The last number given out.
SELECT MAX(seq) FROM jobs;

-- name: insert_job_at
-- For a transaction that nobody can write beside: it knows the next number itself.
INSERT INTO jobs ({job_columns}) VALUES ({job_values});

-- name: active_job
-- The live job that holds an active key.
SELECT id FROM jobs WHERE org_id = :org_id AND active_key = :active_key;

-- name: live_retry
-- The live job that already retries another.
SELECT id FROM jobs WHERE retry_of = :retry_of AND finished_at IS NULL;

-- name: job_by_id
-- One job, unlocked.
SELECT {job_columns} FROM jobs WHERE id = :id AND org_id = :org_id;

-- name: lock_job
-- One job, locked until the transaction ends.
SELECT {job_columns} FROM jobs WHERE id = :id AND org_id = :org_id {for_update};

-- name: lock_due
-- Jobs on which something is due, the longest overdue first; rows somebody else decides on are left to them.
SELECT {job_columns} FROM jobs WHERE due_at <= :now ORDER BY due_at LIMIT :limit {skip_locked};

-- name: next_due
-- The moment at which the next job becomes due.
SELECT MIN(due_at) FROM jobs WHERE due_at IS NOT NULL;

-- name: pick_ready
-- The head of a lane that this agent may take. The guarded save repeats the state.
SELECT {job_columns} FROM jobs
WHERE org_id = :org_id AND lane = :lane AND state = 'queued'
    AND (deadline IS NULL OR deadline > :now)
    AND (accepted_at IS NOT NULL OR start_by IS NULL OR start_by > :now)
    AND (requires & :lacks) = 0
    AND NOT EXISTS (
        SELECT 1 FROM refusals WHERE refusals.job_seq = jobs.seq AND refusals.agent_id = :agent_id
    )
ORDER BY priority DESC, seq
LIMIT :limit {skip_locked};

-- name: pick_hedge
-- Jobs of a lane whose second attempt is due, for an agent that never had them.
SELECT {job_columns} FROM jobs
WHERE org_id = :org_id AND lane = :lane AND hedge_at <= :now
    AND (deadline IS NULL OR deadline > :now)
    AND (requires & :lacks) = 0
    AND NOT EXISTS (
        SELECT 1 FROM attempts WHERE attempts.job_seq = jobs.seq AND attempts.agent_id = :agent_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM refusals WHERE refusals.job_seq = jobs.seq AND refusals.agent_id = :agent_id
    )
ORDER BY hedge_at
LIMIT :limit {skip_locked};

-- name: lane_ready
-- Whether a lane holds anything to hand out, a hedge included.
SELECT 1 FROM jobs WHERE org_id = :org_id AND lane = :lane AND state = 'queued'
UNION ALL
SELECT 1 FROM jobs WHERE org_id = :org_id AND lane = :lane AND hedge_at <= :now
LIMIT 1;

-- name: save_job
-- Everything a verb may change, guarded by the version it saw.
UPDATE jobs SET
    state = :state, device_id = :device_id, run_at = :run_at, due_at = :due_at, hedge_at = :hedge_at, accepted_at = :accepted_at,
    finished_at = :finished_at, prune_at = :prune_at, cancel_requested_at = :cancel_requested_at,
    abort_at = :abort_at, attempt = :attempt, tries = :tries, version = :version, phase = :phase,
    reason = :reason, evidence = :evidence, error = :error, result = :result, active_key = :active_key,
    priority = :priority, payload_size = :payload_size
WHERE seq = :seq AND version = :guard AND state = :before;

-- name: save_step
-- What a claim, a start or a heartbeat changes: a column that is not written costs no work in its indexes.
UPDATE jobs SET
    state = :state, due_at = :due_at, accepted_at = :accepted_at, attempt = :attempt, tries = :tries,
    version = :version, phase = :phase, reason = :reason
WHERE seq = :seq AND version = :guard AND state = :before;

-- name: save_end
-- What a report of the end changes besides.
UPDATE jobs SET
    state = :state, due_at = :due_at, accepted_at = :accepted_at, attempt = :attempt, tries = :tries,
    version = :version, phase = :phase, reason = :reason, finished_at = :finished_at, prune_at = :prune_at,
    evidence = :evidence, error = :error, result = :result
WHERE seq = :seq AND version = :guard AND state = :before;

-- name: list_jobs
-- A page of jobs, newest first; a filter that is NULL does not filter.
SELECT {job_columns} FROM jobs
WHERE org_id = :org_id
    AND (CAST(:state AS TEXT) IS NULL OR state = :state)
    AND (CAST(:states AS TEXT) IS NULL OR :states LIKE '%,' || state || ',%')
    AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
    AND (CAST(:family AS TEXT) IS NULL OR SUBSTR(kind, 1, LENGTH(:family)) = :family)
    AND (CAST(:device_id AS {uuid}) IS NULL OR device_id = :device_id)
    AND (CAST(:agent_id AS {uuid}) IS NULL OR agent_id = :agent_id)
    AND (CAST(:source AS TEXT) IS NULL OR source = :source)
    AND (CAST(:tag AS TEXT) IS NULL OR (CAST(:newline AS TEXT) || tags || :newline) LIKE :tag ESCAPE '!')
    AND (CAST(:before AS BIGINT) IS NULL OR seq < :before)
ORDER BY seq DESC
LIMIT :limit;

-- name: list_device_jobs
-- A page of one device's jobs, newest first, by the device's own index.
SELECT {job_columns} FROM jobs
WHERE device_id = :device_id AND org_id = :org_id
    AND (CAST(:state AS TEXT) IS NULL OR state = :state)
    AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
    AND (CAST(:before AS BIGINT) IS NULL OR seq < :before)
ORDER BY seq DESC
LIMIT :limit;

-- name: prunable
-- Finished jobs whose retention is over.
SELECT seq, state, kind, org_id FROM jobs WHERE prune_at <= :now ORDER BY prune_at LIMIT :limit {skip_locked};

-- name: delete_job
-- Attempts, events, refusals and the payload row go with it.
DELETE FROM jobs WHERE seq = :seq AND prune_at IS NOT NULL;

-- name: queued_before
-- How many jobs of the lane come first.
SELECT COUNT(*) FROM (
    SELECT 1 FROM jobs
    WHERE org_id = :org_id AND lane = :lane AND state = 'queued'
        AND (priority > :priority OR (priority = :priority AND seq < :seq))
    LIMIT 1000
) AS ahead;
