-- name: insert_event
-- One fact, in the transaction of the change.
INSERT INTO events (
    job_seq, number, org_id, created_at, actor_kind, actor_id, verb, from_state, to_state, attempt, reason, data
) VALUES (
    :job_seq, :number, :org_id, :at, :actor_kind, :actor_id, :verb, :from_state, :to_state, :attempt, :reason, :data
);

-- name: job_events
-- A job's trail in order.
SELECT job_seq, number, org_id, created_at, actor_kind, actor_id, verb, from_state, to_state, attempt, reason, data
FROM events WHERE job_seq = :job_seq AND number > :after ORDER BY number LIMIT :limit;
