-- name: insert_org
-- The default tenant.
INSERT INTO orgs (id, uid, name, created_at) VALUES (:id, :uid, :name, :now) ON CONFLICT DO NOTHING;

-- name: org_uid
-- What tells this database's tenant from any other's.
SELECT uid FROM orgs WHERE id = :id;

-- name: insert_user
-- Somebody new, unless the name is known.
INSERT INTO users (id, org_id, name, created_at) VALUES (:id, :org_id, :name, :now) ON CONFLICT DO NOTHING;

-- name: org_user
-- The first person of a tenant: the one it was made with.
SELECT id FROM users WHERE org_id = :org_id ORDER BY name <> 'owner', created_at LIMIT 1;

-- name: user_by_name
-- The person of this name.
SELECT id FROM users WHERE org_id = :org_id AND name = :name;

-- name: key_user
-- The person behind an API key.
SELECT user_id FROM api_keys WHERE id = :id AND org_id = :org_id;

-- name: insert_owner
-- No row comes back when the user owns the agent already.
INSERT INTO agent_owners (agent_id, user_id, org_id, created_at)
VALUES (:agent_id, :user_id, :org_id, :now)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: agent_owners
-- The users that own an agent, the first one first.
SELECT user_id FROM agent_owners WHERE agent_id = :agent_id ORDER BY created_at, user_id;

-- name: owner_names
-- Who owns the agents of a page.
SELECT o.agent_id AS agent_id, u.name AS name
FROM agents AS a
INNER JOIN agent_owners AS o ON a.id = o.agent_id
INNER JOIN users AS u ON o.user_id = u.id
WHERE a.org_id = :org_id AND a.name >= :first AND a.name <= :last
ORDER BY o.agent_id, o.created_at, u.name;

-- name: insert_session
-- A device begins to poll.
INSERT INTO sessions (id, agent_id, org_id, user_agent, capabilities, created_at, expires_at)
VALUES (:id, :agent_id, :org_id, :user_agent, :capabilities, :now, :expires_at);

-- name: session
-- A live session of this agent.
SELECT id, agent_id, org_id, user_agent, capabilities, created_at, expires_at
FROM sessions WHERE id = :id AND agent_id = :agent_id AND expires_at > :now;

-- name: refresh_session
-- It polls on.
UPDATE sessions SET
    expires_at = :expires_at, capabilities = :capabilities, user_agent = COALESCE(:user_agent, user_agent)
WHERE id = :id AND agent_id = :agent_id;

-- name: agent_sessions
-- An agent's sessions, the newest first.
SELECT id FROM sessions WHERE agent_id = :agent_id ORDER BY created_at DESC, id LIMIT 1000;

-- name: expired_sessions
-- Those past their day, some at a time.
SELECT id FROM sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT 50;

-- name: drop_session
-- It is over.
DELETE FROM sessions WHERE id = :id;

-- name: agent_by_key
-- The agent behind a key that is in force.
SELECT {agent_columns} FROM agents
WHERE id = (SELECT agent_id FROM agent_keys WHERE digest = :digest AND revoked_at IS NULL);

-- name: agent_by_name
-- The live agent of this name.
SELECT {agent_columns} FROM agents WHERE org_id = :org_id AND live_name = :name;

-- name: agent_by_id
-- One agent.
SELECT {agent_columns} FROM agents WHERE id = :id AND org_id = :org_id;

-- name: signer
-- One agent of whatever tenant: a signed request says its id and proves it by the agent's key.
SELECT {agent_columns} FROM agents WHERE id = :id;

-- name: lock_agent
-- One agent, locked until the transaction ends: a revocation must not be lost to a registration.
SELECT {agent_columns} FROM agents WHERE id = :id AND org_id = :org_id {for_update};

-- name: list_agents
-- Agents by name; pending ones have a list of their own.
SELECT {agent_columns} FROM agents
WHERE org_id = :org_id AND state <> 'pending'
    AND (CAST(:after AS TEXT) IS NULL OR name > :after OR (name = :after AND id > CAST(:after_id AS {uuid})))
ORDER BY name, id LIMIT :limit;

-- name: pending_agents
-- The inbox, oldest first.
SELECT {agent_columns} FROM agents WHERE state = 'pending' AND org_id = :org_id ORDER BY created_at LIMIT :limit;

-- name: insert_agent
-- No row comes back when the name is taken.
INSERT INTO agents ({agent_columns}) VALUES ({agent_values}) ON CONFLICT DO NOTHING RETURNING 1;

-- name: save_agent
-- What registration, approval and revocation change.
UPDATE agents SET
    name = :name, live_name = :live_name, dialect = :dialect, state = :state, approved_by = :approved_by,
    version = :version, runtime = :runtime, address = :address, grants = :grants, capabilities = :capabilities,
    owner_id = :owner_id, code_digest = :code_digest, code_expires_at = :code_expires_at, code_tries = :code_tries,
    last_seen_at = :last_seen_at, public_key = :public_key, signing = :signing, bid = :bid
WHERE id = :id AND org_id = :org_id;

-- name: see_agent
-- Seen just now; written in batches.
UPDATE agents SET last_seen_at = :at WHERE id = :id AND (last_seen_at IS NULL OR last_seen_at < :at);

-- name: drop_pending
-- An inbox entry that nobody approved in time.
DELETE FROM agents WHERE id = :id AND state = 'pending';

-- name: drop_agent_keys
-- The keys of an inbox entry go with it.
DELETE FROM agent_keys WHERE agent_id = :agent_id;

-- name: insert_agent_key
-- No row comes back when the key is already bound.
INSERT INTO agent_keys (digest, org_id, agent_id, created_at, revoked_at)
VALUES (:digest, :org_id, :agent_id, :now, NULL)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: insert_api_key
-- No row comes back when the name is taken.
INSERT INTO api_keys (id, org_id, user_id, name, live_name, digest, grants, created_at, revoked_at)
VALUES (:id, :org_id, :user_id, :name, :name, :digest, :grants, :now, NULL)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: api_key
-- The key in force behind a digest.
SELECT id, org_id, user_id, name, grants, created_at FROM api_keys WHERE digest = :digest AND revoked_at IS NULL;

-- name: list_api_keys
-- Keys by name, revoked ones last.
SELECT k.id AS id, k.name AS name, k.grants AS grants, k.created_at AS created_at, k.revoked_at AS revoked_at, u.name AS user_name
FROM api_keys AS k LEFT JOIN users AS u ON k.user_id = u.id
WHERE k.org_id = :org_id ORDER BY k.name LIMIT 1000;

-- name: user_keys
-- The keys of a user, revoked ones included.
SELECT id FROM api_keys WHERE org_id = :org_id AND user_id = :user_id LIMIT 10000;

-- name: api_key_by_id
-- One key, revoked or not.
SELECT k.id AS id, k.name AS name, k.grants AS grants, k.created_at AS created_at, k.revoked_at AS revoked_at, u.name AS user_name
FROM api_keys AS k LEFT JOIN users AS u ON k.user_id = u.id
WHERE k.id = :id AND k.org_id = :org_id;

-- name: revoke_api_key
-- A revoked key frees its name.
UPDATE api_keys SET revoked_at = :now, live_name = NULL WHERE id = :id AND org_id = :org_id AND revoked_at IS NULL;

-- name: agent_devices
-- The devices behind an agent, gone ones included.
SELECT {device_columns} FROM devices WHERE agent_id = :agent_id ORDER BY name;

-- name: device_by_id
-- One device.
SELECT {device_columns} FROM devices WHERE id = :id AND org_id = :org_id;

-- name: list_devices
-- Devices by name, with the agent's name and when it was last seen.
SELECT {device_columns_d}, a.name AS agent_name, a.last_seen_at AS last_seen_at, a.state AS agent_state
FROM devices AS d INNER JOIN agents AS a ON d.agent_id = a.id
WHERE d.org_id = :org_id
    AND (CAST(:after AS TEXT) IS NULL OR d.name > :after OR (d.name = :after AND d.id > CAST(:after_id AS {uuid})))
    AND (CAST(:with_gone AS BIGINT) = 1 OR d.gone_at IS NULL)
ORDER BY d.name, d.id LIMIT :limit;

-- name: insert_device
-- No row comes back when the number is taken.
INSERT INTO devices ({device_columns}) VALUES ({device_values}) ON CONFLICT DO NOTHING RETURNING 1;

-- name: save_device
-- What a registration says of it now.
UPDATE devices SET capabilities = :capabilities, state = :state, reason = :reason, gone_at = :gone_at
WHERE id = :id AND org_id = :org_id;
