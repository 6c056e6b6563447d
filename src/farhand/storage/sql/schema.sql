-- name: create_migrations
-- Which migrations this database has had.
CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL);

-- name: applied_migrations
-- Their numbers.
SELECT number FROM migrations;

-- name: record_migration
-- Run as text with the migration itself, so its values are filled in, not bound.
INSERT INTO migrations (number, name) VALUES ({number}, '{name}');
