-- name: insert_payload
-- Where a job's payload lies.
INSERT INTO payloads (job_seq, org_id, size, sha256, body, created_at)
VALUES (:job_seq, :org_id, :size, :sha256, :body, :now);

-- name: copy_payload
-- A retry prints the same bytes.
INSERT INTO payloads (job_seq, org_id, size, sha256, body, created_at)
SELECT CAST(:to_seq AS BIGINT), org_id, size, sha256, body, CAST(:now AS BIGINT)
FROM payloads WHERE job_seq = :from_seq;

-- name: payload_place
-- The bytes themselves when small, else the address in the payload store.
SELECT size, body, sha256 FROM payloads WHERE job_seq = :job_seq;

-- name: payload_body
-- The inline bytes of a job that is handed out.
SELECT job_seq, body FROM payloads WHERE job_seq = :job_seq;

-- name: stored_of
-- The address of a job's stored payload; NULL for one that lies inline. Asking for the others alone would
-- invite the planner to read their whole index.
SELECT sha256 FROM payloads WHERE job_seq = :job_seq;

-- name: stored_uses
-- Whether any job still needs a stored payload.
SELECT 1 FROM payloads WHERE sha256 = :sha256
UNION ALL
SELECT 1 FROM result_bodies WHERE sha256 = :sha256
LIMIT 1;

-- name: insert_result_body
-- Bytes that a result names.
INSERT INTO result_bodies (job_seq, sha256, org_id, size, created_at)
VALUES (:job_seq, :sha256, :org_id, :size, :now)
ON CONFLICT DO NOTHING;

-- name: result_body
-- How large such bytes are.
SELECT size FROM result_bodies WHERE job_seq = :job_seq AND sha256 = :sha256;

-- name: result_bodies_of
-- The addresses of all that were put for a job.
SELECT sha256 FROM result_bodies WHERE job_seq = :job_seq;
