CREATE TABLE farms (
    id {uuid} PRIMARY KEY,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    name TEXT NOT NULL,
    paused BIGINT NOT NULL,
    upload_key {blob} NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE TABLE farm_printers (
    device_id {uuid} PRIMARY KEY REFERENCES devices (id),
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    farm_id {uuid} NOT NULL REFERENCES farms (id),
    agent_id {uuid} NOT NULL REFERENCES agents (id),
    gateway_printer_id TEXT NOT NULL,
    self_clearing BIGINT NOT NULL,
    paused BIGINT NOT NULL,
    view TEXT,
    observed_at BIGINT,
    cleared_key TEXT,
    wish TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (agent_id, gateway_printer_id)
);
CREATE INDEX farm_printers_farm ON farm_printers (farm_id);
CREATE TABLE farm_gateways (
    agent_id {uuid} PRIMARY KEY REFERENCES agents (id),
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    farm_id {uuid} NOT NULL REFERENCES farms (id),
    seen_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX farm_gateways_farm ON farm_gateways (farm_id);
CREATE TABLE farm_sightings (
    agent_id {uuid} NOT NULL REFERENCES agents (id),
    gateway_printer_id TEXT NOT NULL,
    org_id BIGINT NOT NULL REFERENCES orgs (id),
    about TEXT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (agent_id, gateway_printer_id)
) {without_rowid};
CREATE INDEX jobs_fit ON jobs (lane, mode, priority DESC, seq)
WHERE state = 'queued' AND kind = 'farm.print' AND payload_size IS NOT NULL;
