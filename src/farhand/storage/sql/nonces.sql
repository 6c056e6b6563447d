-- name: insert_nonce
-- No row comes back when the agent used it before: the database decides what a replay is.
INSERT INTO nonces (agent_id, nonce, org_id, created_at)
VALUES (:agent_id, :nonce, :org_id, :now)
ON CONFLICT DO NOTHING
RETURNING agent_id, nonce;

-- name: old_nonce
-- Whether any is past its memory.
SELECT 1 FROM nonces WHERE created_at < :horizon LIMIT 1;

-- name: drop_nonces
-- Those past their memory.
DELETE FROM nonces WHERE created_at < :horizon;

-- name: drop_agent_nonces
-- Those of an inbox entry go with it.
DELETE FROM nonces WHERE agent_id = :agent_id;
