CREATE TABLE secrets (
    job_seq {row_id} PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
    org_id BIGINT NOT NULL,
    epoch TEXT NOT NULL,
    nonce {blob} NOT NULL,
    ciphertext {blob} NOT NULL,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX secrets_expiry ON secrets (expires_at);
CREATE INDEX secrets_epoch ON secrets (epoch);
CREATE TABLE nonces (
    agent_id {uuid} NOT NULL,
    nonce TEXT NOT NULL,
    org_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (agent_id, nonce)
) {without_rowid};
CREATE INDEX nonces_age ON nonces (created_at);
ALTER TABLE agents ADD COLUMN public_key {blob};
ALTER TABLE agents ADD COLUMN signing BIGINT NOT NULL DEFAULT 0;
