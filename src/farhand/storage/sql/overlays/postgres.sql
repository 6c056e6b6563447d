-- name: insert_job_many
-- `NAME_many` does what `NAME` does, for a whole batch in one statement: a column of values per parameter.
INSERT INTO jobs ({job_columns_but_seq})
SELECT {job_columns_but_seq}
FROM unnest({job_arrays_but_seq}) WITH ORDINALITY AS w ({job_columns_but_seq}, place)
ORDER BY place
ON CONFLICT DO NOTHING
RETURNING seq;

-- name: insert_payload_many
-- The payloads of a batch.
INSERT INTO payloads (job_seq, org_id, size, sha256, body, created_at)
SELECT job_seq, org_id, size, sha256, body, created_at
FROM unnest(
    CAST(:job_seq AS BIGINT[]), CAST(:org_id AS BIGINT[]), CAST(:size AS BIGINT[]),
    CAST(:sha256 AS BYTEA[]), CAST(:body AS BYTEA[]), CAST(:now AS BIGINT[])
) AS w (job_seq, org_id, size, sha256, body, created_at);

-- name: insert_event_many
-- The facts of a batch.
INSERT INTO events (
    job_seq, number, org_id, created_at, actor_kind, actor_id, verb, from_state, to_state, attempt, reason, data
)
SELECT job_seq, number, org_id, created_at, actor_kind, actor_id, verb, from_state, to_state, attempt, reason, data
FROM unnest(
    CAST(:job_seq AS BIGINT[]), CAST(:number AS BIGINT[]), CAST(:org_id AS BIGINT[]), CAST(:at AS BIGINT[]),
    CAST(:actor_kind AS TEXT[]), CAST(:actor_id AS UUID[]), CAST(:verb AS TEXT[]),
    CAST(:from_state AS TEXT[]), CAST(:to_state AS TEXT[]), CAST(:attempt AS BIGINT[]),
    CAST(:reason AS TEXT[]), CAST(:data AS TEXT[])
) AS w (
    job_seq, number, org_id, created_at, actor_kind, actor_id, verb, from_state, to_state, attempt, reason, data
);

-- name: insert_attempt_many
-- The handings-out of a batch.
INSERT INTO attempts ({attempt_columns})
SELECT {attempt_columns} FROM unnest({attempt_arrays}) AS w ({attempt_columns});

-- name: lock_job_many
-- Jobs locked in the order in which they are named, so that two processes never wait in a ring.
SELECT {job_columns_j}
FROM unnest(CAST(:org_id AS BIGINT[]), CAST(:id AS UUID[])) WITH ORDINALITY AS w (org_id, id, place)
INNER JOIN jobs AS j ON w.id = j.id AND w.org_id = j.org_id
ORDER BY w.place
FOR UPDATE OF j;

-- name: job_attempts_many
-- The attempts of many jobs.
SELECT {attempt_columns} FROM attempts
WHERE job_seq = ANY(CAST(:job_seq AS BIGINT[]))
ORDER BY job_seq, number;

-- name: save_job_many
-- Everything a verb may change, guarded by the versions they saw.
UPDATE jobs SET
    state = w.state, device_id = w.device_id, run_at = w.run_at, due_at = w.due_at, hedge_at = w.hedge_at,
    accepted_at = w.accepted_at, finished_at = w.finished_at, prune_at = w.prune_at,
    cancel_requested_at = w.cancel_requested_at, abort_at = w.abort_at, attempt = w.attempt, tries = w.tries,
    version = w.version, phase = w.phase, reason = w.reason, evidence = w.evidence, error = w.error,
    result = w.result, active_key = w.active_key, priority = w.priority,
    payload_size = w.payload_size
FROM unnest(
    CAST(:seq AS BIGINT[]), CAST(:guard AS BIGINT[]), CAST(:before AS TEXT[]),
    CAST(:state AS TEXT[]), CAST(:device_id AS UUID[]), CAST(:run_at AS BIGINT[]), CAST(:due_at AS BIGINT[]),
    CAST(:hedge_at AS BIGINT[]), CAST(:accepted_at AS BIGINT[]), CAST(:finished_at AS BIGINT[]),
    CAST(:prune_at AS BIGINT[]), CAST(:cancel_requested_at AS BIGINT[]), CAST(:abort_at AS BIGINT[]),
    CAST(:attempt AS BIGINT[]), CAST(:tries AS BIGINT[]), CAST(:version AS BIGINT[]), CAST(:phase AS TEXT[]),
    CAST(:reason AS TEXT[]), CAST(:evidence AS TEXT[]), CAST(:error AS TEXT[]), CAST(:result AS TEXT[]),
    CAST(:active_key AS TEXT[]), CAST(:priority AS BIGINT[]), CAST(:payload_size AS BIGINT[])
) AS w (
    seq, guard, before, state, device_id, run_at, due_at, hedge_at, accepted_at, finished_at, prune_at,
    cancel_requested_at, abort_at, attempt, tries, version, phase, reason, evidence, error, result,
    active_key, priority, payload_size
)
WHERE jobs.seq = w.seq AND jobs.version = w.guard AND jobs.state = w.before;

-- name: save_attempt_many
-- The lease tokens are part of the guard.
UPDATE attempts SET
    lease_until = w.lease_until, no_return = w.no_return, accepted_at = w.accepted_at,
    started_at = w.started_at, ended_at = w.ended_at, outcome = w.outcome, retryable = w.retryable,
    error = w.error, digest = w.digest, settled_to = w.settled_to, poll_id = w.poll_id
FROM unnest(
    CAST(:job_seq AS BIGINT[]), CAST(:number AS BIGINT[]), CAST(:token AS BYTEA[]),
    CAST(:lease_until AS BIGINT[]), CAST(:no_return AS BIGINT[]), CAST(:accepted_at AS BIGINT[]),
    CAST(:started_at AS BIGINT[]), CAST(:ended_at AS BIGINT[]), CAST(:outcome AS TEXT[]),
    CAST(:retryable AS BIGINT[]), CAST(:error AS TEXT[]), CAST(:digest AS BYTEA[]),
    CAST(:settled_to AS TEXT[]), CAST(:poll_id AS TEXT[])
) AS w (
    job_seq, number, token, lease_until, no_return, accepted_at, started_at, ended_at, outcome, retryable,
    error, digest, settled_to, poll_id
)
WHERE attempts.job_seq = w.job_seq AND attempts.number = w.number AND attempts.token = w.token;

-- name: pick_ready_many
-- The heads of many lanes. No lane may be named twice: a statement does not skip its own locks.
SELECT {job_columns_j}
FROM unnest(
    CAST(:org_id AS BIGINT[]), CAST(:lane AS UUID[]), CAST(:now AS BIGINT[]), CAST(:lacks AS BIGINT[]),
    CAST(:agent_id AS UUID[]), CAST(:limit AS BIGINT[])
) WITH ORDINALITY AS w (org_id, lane, now, lacks, agent_id, most, place)
CROSS JOIN LATERAL (
    SELECT {job_columns} FROM jobs
    WHERE jobs.org_id = w.org_id AND jobs.lane = w.lane AND jobs.state = 'queued'
        AND (jobs.deadline IS NULL OR jobs.deadline > w.now)
        AND (jobs.accepted_at IS NOT NULL OR jobs.start_by IS NULL OR jobs.start_by > w.now)
        AND (jobs.requires & w.lacks) = 0
        AND NOT EXISTS (
            SELECT 1 FROM refusals WHERE refusals.job_seq = jobs.seq AND refusals.agent_id = w.agent_id
        )
    ORDER BY jobs.priority DESC, jobs.seq
    LIMIT w.most
    FOR UPDATE SKIP LOCKED
) AS j
ORDER BY w.place, j.priority DESC, j.seq;

-- name: pick_hedge_many
-- The hedges due of many lanes.
SELECT {job_columns_j}
FROM unnest(
    CAST(:org_id AS BIGINT[]), CAST(:lane AS UUID[]), CAST(:now AS BIGINT[]), CAST(:lacks AS BIGINT[]),
    CAST(:agent_id AS UUID[]), CAST(:limit AS BIGINT[])
) WITH ORDINALITY AS w (org_id, lane, now, lacks, agent_id, most, place)
CROSS JOIN LATERAL (
    SELECT {job_columns} FROM jobs
    WHERE jobs.org_id = w.org_id AND jobs.lane = w.lane AND jobs.hedge_at <= w.now
        AND (jobs.deadline IS NULL OR jobs.deadline > w.now)
        AND (jobs.requires & w.lacks) = 0
        AND NOT EXISTS (
            SELECT 1 FROM attempts WHERE attempts.job_seq = jobs.seq AND attempts.agent_id = w.agent_id
        )
        AND NOT EXISTS (
            SELECT 1 FROM refusals WHERE refusals.job_seq = jobs.seq AND refusals.agent_id = w.agent_id
        )
    ORDER BY jobs.hedge_at
    LIMIT w.most
    FOR UPDATE SKIP LOCKED
) AS j
ORDER BY w.place, j.hedge_at;

-- name: agent_offers_many
-- The offers that the polls of many agents repeat.
SELECT o.id AS id, o.number AS number, w.agent_id AS agent_id
FROM unnest(CAST(:agent_id AS UUID[]), CAST(:poll_id AS TEXT[])) WITH ORDINALITY AS w (agent_id, poll_id, place)
CROSS JOIN LATERAL (
    SELECT j.id, a.number, a.job_seq
    FROM attempts AS a
    INNER JOIN jobs AS j ON a.job_seq = j.seq
    WHERE a.agent_id = w.agent_id AND a.ended_at IS NULL AND a.dialect = 'native'
        AND (a.accepted_at IS NULL OR a.poll_id = w.poll_id)
    ORDER BY a.job_seq
    LIMIT 64
) AS o
ORDER BY w.place, o.job_seq;

-- name: payload_body_many
-- The inline bytes of many jobs.
SELECT job_seq, body FROM payloads WHERE job_seq = ANY(CAST(:job_seq AS BIGINT[]));

-- name: add_count_many
-- The counts a transaction changed, in one order everywhere.
INSERT INTO counts (slot, org_id, kind, state, n, created_at)
SELECT slot, org_id, kind, state, n, created_at
FROM unnest(
    CAST(:slot AS BIGINT[]), CAST(:org_id AS BIGINT[]), CAST(:kind AS TEXT[]), CAST(:state AS TEXT[]),
    CAST(:delta AS BIGINT[]), CAST(:now AS BIGINT[])
) AS w (slot, org_id, kind, state, n, created_at)
ON CONFLICT (slot, org_id, kind, state) DO UPDATE SET n = counts.n + excluded.n;

-- name: stored_of_many
-- The addresses of the stored payloads of many jobs.
SELECT sha256 FROM payloads WHERE job_seq = ANY(CAST(:job_seq AS BIGINT[]));

-- name: result_bodies_of_many
-- The addresses of all bodies that were put for many jobs.
SELECT sha256 FROM result_bodies WHERE job_seq = ANY(CAST(:job_seq AS BIGINT[]));

-- name: delete_job_many
-- Attempts, events, refusals and payload rows go with them. The rows are locked since they were picked.
DELETE FROM jobs WHERE seq = ANY(CAST(:seq AS BIGINT[]));

-- name: add_counter_many
-- The figures a transaction changed, in one order everywhere.
INSERT INTO counters (slot, org_id, subject, name, value, created_at)
SELECT slot, org_id, subject, name, value, created_at
FROM unnest(
    CAST(:slot AS BIGINT[]), CAST(:org_id AS BIGINT[]), CAST(:subject AS UUID[]), CAST(:name AS TEXT[]),
    CAST(:amount AS BIGINT[]), CAST(:now AS BIGINT[])
) AS w (slot, org_id, subject, name, value, created_at)
ON CONFLICT (org_id, subject, name, slot) DO UPDATE SET value = counters.value + excluded.value;
