-- name: reserve_key
-- No row comes back when the key is known.
INSERT INTO idempotency (org_id, key, fingerprint, job_id, created_at)
VALUES (:org_id, :key, :fingerprint, :job_id, :now)
ON CONFLICT DO NOTHING
RETURNING 1;

-- name: known_key
-- What a key stands for.
SELECT fingerprint, job_id, created_at FROM idempotency WHERE org_id = :org_id AND key = :key;

-- name: bind_key
-- The reserved key now stands for a job.
UPDATE idempotency SET job_id = :job_id
WHERE org_id = :org_id AND key = :key AND fingerprint = :fingerprint AND job_id IS NULL;

-- name: drop_key
-- The request behind a reserved key came to nothing.
DELETE FROM idempotency
WHERE org_id = :org_id AND key = :key AND fingerprint = :fingerprint AND job_id IS NULL;

-- name: take_over_key
-- A reservation whose request never came back passes to the one that asks now; no row when another was quicker.
UPDATE idempotency SET created_at = :now
WHERE org_id = :org_id AND key = :key AND job_id IS NULL AND created_at <= :stale
RETURNING 1;

-- name: old_keys
-- Keys past their memory, and reservations whose request never came back.
DELETE FROM idempotency
WHERE created_at < :horizon OR (job_id IS NULL AND created_at < :reserved_horizon);

-- name: policy_by_digest
-- The row of a policy as it is now.
SELECT id FROM policies WHERE org_id = :org_id AND digest = :digest;

-- name: insert_policy
-- Policies are immutable rows.
INSERT INTO policies (org_id, name, digest, body, created_at)
VALUES (:org_id, :name, :digest, :body, :now)
ON CONFLICT DO NOTHING;

-- name: policy_by_id
-- The policy a job was submitted under.
SELECT name, body FROM policies WHERE id = :id;

-- name: add_count
-- Counts per state are kept, not counted; a slot per process keeps the row uncontended.
INSERT INTO counts (slot, org_id, kind, state, n, created_at)
VALUES (:slot, :org_id, :kind, :state, :delta, :now)
ON CONFLICT (slot, org_id, kind, state) DO UPDATE SET n = counts.n + excluded.n;

-- name: counts
-- Jobs per kind and state.
SELECT kind, state, CAST(SUM(n) AS BIGINT) FROM counts WHERE org_id = :org_id GROUP BY kind, state;

-- name: insert_hold
-- No row comes back when the device is taken.
INSERT INTO holds (device_id, org_id, job_id, reason, created_at)
VALUES (:device_id, :org_id, :job_id, :reason, :now)
ON CONFLICT DO NOTHING
RETURNING 1;

-- name: hold_of
-- What occupies a device.
SELECT job_id, reason, created_at FROM holds WHERE device_id = :device_id;

-- name: drop_hold
-- The job never began, so the device is free again.
DELETE FROM holds WHERE device_id = :device_id AND job_id = :job_id;

-- name: raise_bed
-- The print ended somehow: now the bed has to be cleared. Another job's hold stays.
INSERT INTO holds (device_id, org_id, job_id, reason, created_at)
VALUES (:device_id, :org_id, NULL, 'bed', :now)
ON CONFLICT (device_id) DO UPDATE SET reason = 'bed', job_id = NULL WHERE holds.job_id = :job_id;

-- name: take_hold
-- A print goes on after all: the device is its own again, unless another job has it.
INSERT INTO holds (device_id, org_id, job_id, reason, created_at)
VALUES (:device_id, :org_id, :job_id, 'job', :now)
ON CONFLICT (device_id) DO UPDATE SET reason = 'job', job_id = excluded.job_id WHERE holds.job_id IS NULL;

-- name: clear_hold
-- A person or a self-clearing printer freed the device.
DELETE FROM holds WHERE device_id = :device_id AND reason = :reason;

-- name: capability_ids
-- The bit of each capability name.
SELECT id, name FROM capabilities;

-- name: insert_capability
-- A name gets its bit at its first use.
INSERT INTO capabilities (id, org_id, name, created_at)
SELECT COALESCE(MAX(id), 0) + 1, CAST(:org_id AS BIGINT), CAST(:name AS TEXT), CAST(:now AS BIGINT)
FROM capabilities WHERE id > 0
ON CONFLICT DO NOTHING;

-- name: insert_audit
-- Who changed what.
INSERT INTO audit (org_id, created_at, actor_kind, actor_id, action, subject, data)
VALUES (:org_id, :now, :actor_kind, :actor_id, :action, :subject, :data);

-- name: list_audit
-- The newest entries first.
SELECT seq, created_at, actor_kind, actor_id, action, subject, data
FROM audit WHERE org_id = :org_id AND (CAST(:before AS BIGINT) IS NULL OR seq < :before)
ORDER BY seq DESC LIMIT :limit;

-- name: free_key
-- The request was refused after its key had been reserved in this very transaction.
DELETE FROM idempotency WHERE org_id = :org_id AND key = :key AND fingerprint = :fingerprint;

-- name: add_counter
-- What was done for a session, an agent, a key; a slot per process keeps the row uncontended.
INSERT INTO counters (slot, org_id, subject, name, value, created_at)
VALUES (:slot, :org_id, :subject, :name, :amount, :now)
ON CONFLICT (org_id, subject, name, slot) DO UPDATE SET value = counters.value + excluded.value;

-- name: counters
-- The figures of one subject.
SELECT name, CAST(SUM(value) AS BIGINT) FROM counters
WHERE org_id = :org_id AND subject = :subject GROUP BY name;

-- name: drop_counters
-- The session is over.
DELETE FROM counters WHERE org_id = :org_id AND subject = :subject;
