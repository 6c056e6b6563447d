-- name: insert_farm
-- No row comes back when the name is taken.
INSERT INTO farms (id, org_id, name, paused, upload_key, created_at)
VALUES (:id, :org_id, :name, 0, :upload_key, :now)
ON CONFLICT DO NOTHING
RETURNING 1;

-- name: farm_by_name
-- One farm by its name.
SELECT id, org_id, name, paused, upload_key, created_at FROM farms WHERE org_id = :org_id AND name = :name;

-- name: farm_by_id
-- One farm.
SELECT id, org_id, name, paused, upload_key, created_at FROM farms WHERE id = :id AND org_id = :org_id;

-- name: list_farms
-- Farms by name.
SELECT id, org_id, name, paused, upload_key, created_at FROM farms
WHERE CAST(:org_id AS BIGINT) IS NULL OR org_id = :org_id
ORDER BY name, id;

-- name: pause_farm
-- Dispatching to the whole farm stops or goes on.
UPDATE farms SET paused = :paused WHERE id = :id AND org_id = :org_id;

-- name: insert_farm_printer
-- No row comes back when the printer is claimed already.
INSERT INTO farm_printers (
    device_id, org_id, farm_id, agent_id, gateway_printer_id, self_clearing, paused, created_at
)
VALUES (:device_id, :org_id, :farm_id, :agent_id, :gateway_printer_id, :self_clearing, 0, :now)
ON CONFLICT DO NOTHING
RETURNING 1;

-- name: farm_printers
-- A farm's printers by name, each with what holds it.
SELECT
    p.device_id, p.org_id, p.farm_id, p.agent_id, a.state, p.gateway_printer_id, d.name, d.capabilities,
    p.self_clearing, p.paused, p.view, p.observed_at, p.cleared_key, p.wish, h.reason, h.job_id
FROM farm_printers AS p
INNER JOIN devices AS d ON p.device_id = d.id
INNER JOIN agents AS a ON p.agent_id = a.id
LEFT JOIN holds AS h ON p.device_id = h.device_id
WHERE p.farm_id = :farm_id
ORDER BY d.name, p.device_id;

-- name: farm_printer
-- One claimed printer with what holds it.
SELECT
    p.device_id, p.org_id, p.farm_id, p.agent_id, a.state, p.gateway_printer_id, d.name, d.capabilities,
    p.self_clearing, p.paused, p.view, p.observed_at, p.cleared_key, p.wish, h.reason, h.job_id
FROM farm_printers AS p
INNER JOIN devices AS d ON p.device_id = d.id
INNER JOIN agents AS a ON p.agent_id = a.id
LEFT JOIN holds AS h ON p.device_id = h.device_id
WHERE p.device_id = :device_id AND p.org_id = :org_id;

-- name: gateway_printers
-- The claimed printers behind a gateway, each with what holds it.
SELECT
    p.device_id, p.org_id, p.farm_id, p.agent_id, a.state, p.gateway_printer_id, d.name, d.capabilities,
    p.self_clearing, p.paused, p.view, p.observed_at, p.cleared_key, p.wish, h.reason, h.job_id
FROM farm_printers AS p
INNER JOIN devices AS d ON p.device_id = d.id
INNER JOIN agents AS a ON p.agent_id = a.id
LEFT JOIN holds AS h ON p.device_id = h.device_id
WHERE p.agent_id = :agent_id
ORDER BY d.name, p.device_id;

-- name: observe_printer
-- What a printer was seen to be; an older word never replaces a newer one.
UPDATE farm_printers SET view = :view, observed_at = :observed_at
WHERE device_id = :device_id AND (observed_at IS NULL OR observed_at <= :observed_at);

-- name: declare_printer
-- What a printer says that it is.
UPDATE devices SET capabilities = :declared WHERE id = :device_id;

-- name: clear_printer
-- The print that its machine still shows no longer lies on the bed.
UPDATE farm_printers SET cleared_key = :cleared_key WHERE device_id = :device_id;

-- name: set_farm_printer
-- What a person changes; NULL leaves it, an empty wish takes it back.
UPDATE farm_printers SET
    paused = COALESCE(CAST(:paused AS BIGINT), paused),
    wish = CASE WHEN CAST(:wish AS TEXT) IS NULL THEN wish ELSE NULLIF(CAST(:wish AS TEXT), '') END
WHERE device_id = :device_id;

-- name: turn_hold
-- A print that was not ours has ended: now its bed has to be cleared.
UPDATE holds SET reason = 'bed' WHERE device_id = :device_id AND reason = 'foreign';

-- name: see_gateway
-- A gateway says which farm it serves.
INSERT INTO farm_gateways (agent_id, org_id, farm_id, seen_at, created_at)
VALUES (:agent_id, :org_id, :farm_id, :now, :now)
ON CONFLICT (agent_id) DO UPDATE SET farm_id = excluded.farm_id, seen_at = excluded.seen_at;

-- name: farm_gateways
-- The gateways of a farm by name.
SELECT g.agent_id, g.org_id, g.farm_id, g.seen_at, a.name
FROM farm_gateways AS g INNER JOIN agents AS a ON g.agent_id = a.id
WHERE g.farm_id = :farm_id AND a.state <> 'revoked'
ORDER BY a.name;

-- name: sight_printer
-- A printer that nobody claimed was reported.
INSERT INTO farm_sightings (agent_id, gateway_printer_id, org_id, about, last_seen_at, created_at)
VALUES (:agent_id, :gateway_printer_id, :org_id, :about, :now, :now)
ON CONFLICT (agent_id, gateway_printer_id) DO UPDATE SET
    about = excluded.about, last_seen_at = excluded.last_seen_at;

-- name: unclaimed_printers
-- What the gateways of a farm report and nobody claimed, the newest first.
SELECT s.agent_id, s.gateway_printer_id, s.about, s.created_at, s.last_seen_at
FROM farm_sightings AS s
INNER JOIN farm_gateways AS g ON s.agent_id = g.agent_id
WHERE g.farm_id = :farm_id
    AND NOT EXISTS (
        SELECT 1 FROM farm_printers AS p
        WHERE p.agent_id = s.agent_id AND p.gateway_printer_id = s.gateway_printer_id
    )
ORDER BY s.last_seen_at DESC, s.gateway_printer_id
LIMIT 1000;

-- name: farm_fits
-- The different sets of requirements among a farm's ready jobs, found without reading each job.
WITH RECURSIVE fits (fit) AS (
    SELECT MIN(mode) FROM jobs
    WHERE lane = :lane AND state = 'queued' AND kind = 'farm.print' AND payload_size IS NOT NULL
    UNION ALL
    SELECT (
        SELECT MIN(mode) FROM jobs
        WHERE lane = :lane AND state = 'queued' AND kind = 'farm.print' AND payload_size IS NOT NULL
            AND mode > fits.fit
    )
    FROM fits WHERE fits.fit IS NOT NULL
)

SELECT fit FROM fits WHERE fit IS NOT NULL LIMIT 500;

-- name: farm_heads
-- The first ready jobs with some requirements.
SELECT id, seq, priority, mode FROM jobs
WHERE lane = :lane AND mode = :fit AND state = 'queued' AND kind = 'farm.print' AND payload_size IS NOT NULL
ORDER BY priority DESC, seq
LIMIT :limit;

-- name: farm_top
-- The highest priority in a lane.
SELECT MAX(priority) FROM jobs WHERE lane = :lane AND org_id = :org_id AND state = 'queued';

-- name: pick_named
-- One job of a lane, while this agent may take it.
SELECT {job_columns} FROM jobs
WHERE id = :id AND org_id = :org_id AND lane = :lane AND state = 'queued'
    AND (deadline IS NULL OR deadline > :now)
    AND (accepted_at IS NOT NULL OR start_by IS NULL OR start_by > :now)
    AND (requires & :lacks) = 0
    AND NOT EXISTS (
        SELECT 1 FROM refusals WHERE refusals.job_seq = jobs.seq AND refusals.agent_id = :agent_id
    )
LIMIT :limit {skip_locked};
