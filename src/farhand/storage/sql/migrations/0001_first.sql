CREATE TABLE orgs (
    id {serial} PRIMARY KEY,
    uid {uuid} NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE users (
    id {uuid} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE policies (
    id {serial} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    name TEXT NOT NULL,
    digest {blob} NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, digest)
);
CREATE TABLE agents (
    id {uuid} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    name TEXT NOT NULL,
    live_name TEXT,
    dialect TEXT NOT NULL,
    state TEXT NOT NULL,
    approved_by TEXT,
    version TEXT,
    runtime TEXT,
    address TEXT,
    grants TEXT NOT NULL,
    capabilities BIGINT NOT NULL,
    owner_id {uuid},
    code_digest {blob},
    code_expires_at BIGINT,
    code_tries BIGINT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    last_seen_at BIGINT,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, live_name)
);
CREATE INDEX agents_pending ON agents (created_at) WHERE state = 'pending';
CREATE TABLE agent_keys (
    digest {blob} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    agent_id {uuid} NOT NULL REFERENCES agents (id),
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX agent_keys_agent ON agent_keys (agent_id);
CREATE TABLE api_keys (
    id {uuid} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    user_id {uuid} REFERENCES users (id),
    name TEXT NOT NULL,
    live_name TEXT,
    digest {blob} NOT NULL UNIQUE,
    grants TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT,
    UNIQUE (org_id, live_name)
);
CREATE TABLE devices (
    id {uuid} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    agent_id {uuid} NOT NULL REFERENCES agents (id),
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    gone_at BIGINT,
    created_at BIGINT NOT NULL,
    UNIQUE (agent_id, kind, name),
    UNIQUE (org_id, number)
);
CREATE TABLE capabilities (
    id {serial} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    name TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);
CREATE TABLE jobs (
    seq {serial} PRIMARY KEY,
    id {uuid} NOT NULL UNIQUE,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    policy_id BIGINT NOT NULL REFERENCES policies (id),
    agent_id {uuid},
    device_id {uuid},
    lane {uuid} NOT NULL,
    priority BIGINT NOT NULL,
    requires BIGINT NOT NULL,
    mode TEXT,
    title TEXT,
    source TEXT,
    tags TEXT,
    metadata TEXT,
    params TEXT,
    payload_size BIGINT,
    submitted_by {uuid},
    retry_of {uuid},
    active_key TEXT,
    created_at BIGINT NOT NULL,
    run_at BIGINT,
    start_by BIGINT,
    deadline BIGINT,
    due_at BIGINT,
    hedge_at BIGINT,
    accepted_at BIGINT,
    finished_at BIGINT,
    prune_at BIGINT,
    cancel_requested_at BIGINT,
    abort_at BIGINT,
    attempt BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    version BIGINT NOT NULL,
    phase TEXT,
    reason TEXT,
    evidence TEXT,
    error TEXT,
    result TEXT,
    CHECK (
        state IN (
            'scheduled', 'queued', 'claimed', 'running', 'uncertain', 'done', 'failed', 'cancelled', 'expired'
        )
    ),
    CHECK ((finished_at IS NOT NULL) = (state IN ('done', 'failed', 'cancelled', 'expired'))),
    CHECK (finished_at IS NULL OR active_key IS NULL),
    CHECK (tries >= 0 AND attempt >= 0)
);
CREATE INDEX jobs_ready ON jobs (org_id, lane, priority DESC, seq) WHERE state = 'queued';
CREATE INDEX jobs_hedge ON jobs (org_id, lane, hedge_at) WHERE hedge_at IS NOT NULL;
CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_prune ON jobs (prune_at) WHERE prune_at IS NOT NULL;
CREATE INDEX jobs_device ON jobs (device_id, seq) WHERE device_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_active_key ON jobs (org_id, active_key) WHERE active_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL AND finished_at IS NULL;
CREATE TABLE attempts (
    job_seq BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    org_id BIGINT NOT NULL,
    agent_id {uuid} NOT NULL,
    dialect TEXT NOT NULL,
    token {blob} NOT NULL,
    poll_id TEXT,
    lease_until BIGINT NOT NULL,
    no_return BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    accepted_at BIGINT,
    started_at BIGINT,
    ended_at BIGINT,
    outcome TEXT,
    retryable BIGINT NOT NULL,
    error TEXT,
    digest {blob},
    settled_to TEXT,
    PRIMARY KEY (job_seq, number),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) {without_rowid};
CREATE INDEX attempts_open ON attempts (agent_id, job_seq) WHERE ended_at IS NULL;
CREATE TABLE events (
    job_seq BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    org_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id {uuid},
    verb TEXT NOT NULL,
    from_state TEXT,
    to_state TEXT NOT NULL,
    attempt BIGINT,
    reason TEXT,
    data TEXT,
    PRIMARY KEY (job_seq, number)
) {without_rowid};
CREATE TABLE refusals (
    job_seq BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    agent_id {uuid} NOT NULL,
    org_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (job_seq, agent_id)
) {without_rowid};
CREATE TABLE payloads (
    job_seq {row_id} PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
    org_id BIGINT NOT NULL,
    size BIGINT NOT NULL,
    sha256 {blob},
    body {blob},
    created_at BIGINT NOT NULL
);
CREATE INDEX payloads_stored ON payloads (sha256) WHERE sha256 IS NOT NULL;
CREATE TABLE idempotency (
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    key TEXT NOT NULL,
    fingerprint {blob} NOT NULL,
    job_id {uuid},
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, key)
) {without_rowid};
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE TABLE holds (
    device_id {uuid} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    job_id {uuid},
    reason TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE counts (
    slot BIGINT NOT NULL,
    org_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    n BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (slot, org_id, kind, state)
) {without_rowid};
CREATE TABLE audit (
    seq {serial} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    created_at BIGINT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id {uuid},
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT
);
