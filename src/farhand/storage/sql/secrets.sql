-- name: insert_secret
-- What a report keeps from everybody but its issuer; a later report of the job replaces it.
INSERT INTO secrets (job_seq, org_id, epoch, nonce, ciphertext, expires_at, created_at)
VALUES (:job_seq, :org_id, :epoch, :nonce, :ciphertext, :expires_at, :now)
ON CONFLICT (job_seq) DO UPDATE SET
    epoch = excluded.epoch, nonce = excluded.nonce, ciphertext = excluded.ciphertext,
    expires_at = excluded.expires_at, created_at = excluded.created_at;

-- name: secret_of
-- The secret of one job, expired or not.
SELECT secrets.epoch, secrets.nonce, secrets.ciphertext, secrets.expires_at, secrets.created_at
FROM jobs INNER JOIN secrets ON jobs.seq = secrets.job_seq
WHERE jobs.id = :id AND jobs.org_id = :org_id;

-- name: drop_secret
-- Its issuer needs it no longer.
DELETE FROM secrets WHERE job_seq = :job_seq;

-- name: expired_secret
-- Whether any is past its time.
SELECT 1 FROM secrets WHERE expires_at <= :now LIMIT 1;

-- name: drop_expired_secrets
-- Those past their time, a bounded number at once.
DELETE FROM secrets
WHERE job_seq IN (SELECT job_seq FROM secrets WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: drop_future_secrets
-- The clock was set back: what seems to come from the future would live too long.
DELETE FROM secrets WHERE created_at > :now;

-- name: epoch_in_use
-- Whether any secret still needs an epoch's key.
SELECT 1 FROM secrets WHERE epoch = :epoch LIMIT 1;
