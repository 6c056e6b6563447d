-- name: insert_attempt
-- One handing-out.
INSERT INTO attempts ({attempt_columns}) VALUES ({attempt_values});

-- name: job_attempts
-- A job's attempts in order.
SELECT {attempt_columns} FROM attempts WHERE job_seq = :job_seq ORDER BY number;

-- name: save_attempt
-- The lease token is part of the guard; only `adopt` and late outcomes write to a closed attempt.
UPDATE attempts SET
    lease_until = :lease_until, no_return = :no_return, accepted_at = :accepted_at, started_at = :started_at,
    ended_at = :ended_at, outcome = :outcome, retryable = :retryable, error = :error, digest = :digest,
    settled_to = :settled_to, poll_id = :poll_id
WHERE job_seq = :job_seq AND number = :number AND token = :token;

-- name: agent_offers
-- The open attempts of an agent that a poll must repeat: not yet accepted, or made for this very poll.
SELECT j.id AS id, a.number AS number, a.agent_id AS agent_id
FROM attempts AS a
INNER JOIN jobs AS j ON a.job_seq = j.seq
WHERE a.agent_id = :agent_id AND a.ended_at IS NULL AND a.dialect = 'native'
    AND (a.accepted_at IS NULL OR a.poll_id = :poll_id)
ORDER BY a.job_seq
LIMIT 64;

-- name: insert_refusal
-- An agent that refused a job is not offered it again until its capabilities change.
INSERT INTO refusals (job_seq, agent_id, org_id, created_at)
VALUES (:job_seq, :agent_id, :org_id, :now)
ON CONFLICT DO NOTHING;

-- name: forget_refusals
-- The agent's capabilities changed.
DELETE FROM refusals WHERE agent_id = :agent_id;

-- name: over_overtaken
-- What an agent may stop working on: another was first, or the job ended after this attempt was given up.
SELECT j.id AS id, a.ended_at AS ended_at
FROM attempts AS a
INNER JOIN jobs AS j ON a.job_seq = j.seq
WHERE a.agent_id = :agent_id AND a.outcome IN ('superseded', 'lost') AND a.ended_at > :since
    AND j.finished_at IS NOT NULL
ORDER BY a.ended_at DESC
LIMIT 20;

-- name: over_asked
-- What an agent is to stop working on: its job is to be cancelled, or its time is up.
SELECT j.id AS id
FROM attempts AS a
INNER JOIN jobs AS j ON a.job_seq = j.seq
WHERE a.agent_id = :agent_id AND a.ended_at IS NULL AND a.dialect = 'seed'
    AND (j.cancel_requested_at IS NOT NULL OR j.abort_at IS NOT NULL)
ORDER BY a.job_seq
LIMIT 20;
