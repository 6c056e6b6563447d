CREATE UNIQUE INDEX users_name ON users (org_id, name);
CREATE TABLE agent_owners (
    agent_id {uuid} NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    user_id {uuid} NOT NULL REFERENCES users (id),
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (agent_id, user_id)
) {without_rowid};
INSERT INTO agent_owners (agent_id, user_id, org_id, created_at)
SELECT
    a.id,
    COALESCE(
        (SELECT k.user_id FROM api_keys AS k WHERE k.id = a.owner_id),
        (SELECT u.id FROM users AS u WHERE u.org_id = a.org_id ORDER BY u.name <> 'owner', u.created_at LIMIT 1)
    ),
    a.org_id,
    a.created_at
FROM agents AS a
WHERE a.state <> 'pending' AND EXISTS (SELECT 1 FROM users AS u WHERE u.org_id = a.org_id);
UPDATE agents SET owner_id = (
    SELECT o.user_id FROM agent_owners AS o WHERE o.agent_id = agents.id
);
ALTER TABLE agents ADD COLUMN bid TEXT;
CREATE TABLE sessions (
    id {uuid} PRIMARY KEY,
    agent_id {uuid} NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    user_agent TEXT,
    capabilities TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_agent ON sessions (agent_id, created_at);
CREATE INDEX sessions_expiry ON sessions (expires_at);
CREATE TABLE counters (
    org_id BIGINT NOT NULL,
    subject {uuid} NOT NULL,
    name TEXT NOT NULL,
    slot BIGINT NOT NULL,
    value BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, subject, name, slot)
) {without_rowid};
CREATE TABLE result_bodies (
    job_seq BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    sha256 {blob} NOT NULL,
    org_id BIGINT NOT NULL,
    size BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (job_seq, sha256)
) {without_rowid};
CREATE INDEX result_bodies_sha256 ON result_bodies (sha256);
ALTER TABLE attempts ADD COLUMN session_id {uuid};
CREATE INDEX attempts_overtaken ON attempts (agent_id, ended_at) WHERE outcome IN ('superseded', 'lost');
