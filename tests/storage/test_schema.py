"""Schema, migrations, overlays and the plans of hot statements."""

import asyncio
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from farhand.storage import migrate
from farhand.storage.database import Database, StatementFailed
from farhand.storage.sqlite import SqliteDatabase
from farhand.storage.statements import POSTGRES, SQLITE, fill, load, overlays, sources, split
from farhand.storage.store import Store
from farhand.testing.clock import FakeClock
from farhand.testing.factories import Scene
from tests.storage.conftest import connect, raw

# An overlay says the same thing otherwise for one database. Each one costs a second text to keep right.
BATCHED = (
    "insert_job",
    "insert_payload",
    "insert_event",
    "insert_attempt",
    "lock_job",
    "job_attempts",
    "save_job",
    "save_attempt",
    "pick_ready",
    "pick_hedge",
    "agent_offers",
    "payload_body",
    "add_count",
    "add_counter",
    "result_bodies_of",
    "stored_of",
    "delete_job",
)
OVERLAYS: dict[str, set[str]] = {"sqlite": set(), "postgres": {f"{name}_many" for name in BATCHED}}


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without any table."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/empty.db"


async def objects(database: Database) -> dict[str, list[str]]:
    """Every table with its columns, and every index."""
    if isinstance(database, SqliteDatabase):
        names = await raw(
            database,
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'index') AND name NOT LIKE 'sqlite_%'",
        )
        columns = [
            (row[0], column[1])
            for row in names
            for column in await raw(database, f"PRAGMA table_info({row[0]})")
        ]
    else:
        names = await raw(
            database,
            "SELECT indexname FROM pg_indexes i WHERE schemaname = 'public' AND NOT EXISTS "
            "(SELECT 1 FROM pg_constraint c WHERE c.conname = i.indexname)",
        )
        columns = await raw(
            database,
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'",
        )
    found: dict[str, list[str]] = {str(row[0]): [] for row in names}
    for table, column in columns:
        found.setdefault(str(table), []).append(str(column))
    return {name: sorted(columns) for name, columns in found.items()}


async def opened(url: str) -> dict[str, list[str]]:
    """Open a store over a database, and what is in it then."""
    database = connect(url)
    store = Store(database, FakeClock())
    await store.open()
    found = await objects(database)
    await store.close()
    return found


def declared() -> set[str]:
    """The names of tables and indexes that the migrations make, in sum."""
    texts = [text for _, _, text in migrate.numbers()]
    made = {m for text in texts for m in re.findall(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", text)}
    dropped = {m for text in texts for m in re.findall(r"DROP (?:TABLE|INDEX) (\w+)", text)}
    return made - dropped


async def test_the_schema_is_the_sum_of_the_migrations(empty_url: str) -> None:
    assert set(await opened(empty_url)) == declared() | {"migrations"}


async def test_both_databases_have_the_same_columns(tmp_path: Path, postgres_url: str) -> None:
    assert await opened(f"sqlite:///{tmp_path}/x.db") == {
        name: columns for name, columns in (await opened(postgres_url)).items()
    }


async def test_every_table_knows_its_tenant_and_its_age(tmp_path: Path) -> None:
    for name, columns in (await opened(f"sqlite:///{tmp_path}/x.db")).items():
        if columns and name not in ("migrations", "orgs"):
            assert {"org_id", "created_at"} <= set(columns), name


async def test_a_second_open_does_nothing(empty_url: str) -> None:
    first = await opened(empty_url)
    assert await opened(empty_url) == first
    database = connect(empty_url)
    await database.open()
    async with database.read() as reader:
        applied = [row[0] for row in await reader.all("applied_migrations", {})]
        assert applied == [number for number, _, _ in migrate.numbers()]
        assert len(await reader.all("list_api_keys", {"org_id": 1})) == 0
    await database.close()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(empty_url: str) -> None:
    before = await opened(empty_url)
    database = connect(empty_url)
    await database.open()
    await raw(database, "INSERT INTO migrations (number, name) VALUES (9999, 'of tomorrow')")
    await database.close()
    newer = connect(empty_url)
    with pytest.raises(StatementFailed, match="9999.*newer Farhand"):
        await newer.open()
    await newer.close()
    with pytest.raises(StatementFailed):
        await opened(empty_url)
    assert "jobs" in before


async def test_two_servers_that_start_at_once_make_one_schema_and_one_owner(empty_url: str) -> None:
    stores = [Store(connect(empty_url), FakeClock()) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    async with stores[0].database.read() as reader:
        assert len(await reader.all("applied_migrations", {})) == len(migrate.numbers())
        assert await reader.one("org_user", {"org_id": 1}) is not None
    assert await raw(stores[0].database, "SELECT COUNT(*) FROM users") == [(1,)]
    for store in stores:
        await store.close()


async def test_a_second_server_on_one_file_is_refused(tmp_path: Path) -> None:
    first = SqliteDatabase(tmp_path / "x.db", exclusive=True)
    await first.open()
    second = SqliteDatabase(tmp_path / "x.db", exclusive=True)
    with pytest.raises(Exception, match="another server already uses"):
        await second.open()
    await second.close()
    await first.close()
    third = SqliteDatabase(tmp_path / "x.db", exclusive=True)
    await third.open()
    await third.close()


async def test_a_file_that_is_no_database_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one " * 40)
    database = SqliteDatabase(path)
    with pytest.raises(Exception, match=r"notes\.txt"):
        await database.open()
    await database.close()
    assert path.read_text().startswith("not a database")


async def test_a_copy_of_the_file_opens(tmp_path: Path) -> None:
    await opened(f"sqlite:///{tmp_path}/x.db")
    shutil.copyfile(tmp_path / "x.db", tmp_path / "y.db")
    assert await opened(f"sqlite:///{tmp_path}/x.db") == await opened(f"sqlite:///{tmp_path}/y.db")


def test_overlays_are_few_and_each_has_a_reason() -> None:
    common = {name for text in sources().values() for name in split(text)}
    folder = resources.files("farhand.storage") / "sql" / "overlays"
    files = {f.name.removesuffix(".sql") for f in folder.iterdir()} if folder.is_dir() else set[str]()
    assert files <= set(OVERLAYS)
    for database, expected in OVERLAYS.items():
        text = overlays(database)
        assert set(split(text)) == expected
        assert {name.removesuffix("_many") for name in split(text)} <= common
        assert without_reason(text) == []


def test_a_statement_for_a_batch_takes_what_the_single_one_takes() -> None:
    statements = load("postgres")
    for name in OVERLAYS["postgres"]:
        assert set(statements[name].params) == set(statements[name.removesuffix("_many")].params), name


def test_every_statement_says_why_it_is_there() -> None:
    for name, text in sources().items():
        assert without_reason(text) == [], name


def without_reason(text: str) -> list[str]:
    """Statements whose name is not followed by a comment."""
    return re.findall(r"^-- name: (\w+)\n(?!-- \S)", text, re.MULTILINE)


def test_no_statement_is_named_twice() -> None:
    names = re.findall(r"^-- name: (\w+)", "\n".join(sources().values()), re.MULTILINE)
    assert sorted(names) == sorted(set(names))


def test_every_token_is_known() -> None:
    for dialect in (SQLITE, POSTGRES):
        for statement in (*sources().values(), *(text for _, _, text in migrate.numbers())):
            left = set(re.findall(r"\{(\w+)\}", fill(statement, dialect))) - {"number", "name"}
            assert left == set()
    assert set(SQLITE) == set(POSTGRES)


# What a hot statement reads, and by which index it has to.
HOT = {
    "pick_ready": "jobs_ready",
    "pick_hedge": "jobs_hedge",
    "lane_ready": "jobs_ready",
    "queued_before": "jobs_ready",
    "lock_due": "jobs_due",
    "next_due": "jobs_due",
    "prunable": "jobs_prune",
    "job_by_id": "jobs",
    "lock_job": "jobs",
    "save_job": "jobs",
    "save_step": "jobs",
    "save_end": "jobs",
    "insert_job_last": "jobs",
    "delete_job": "jobs",
    "list_device_jobs": "jobs_device",
    "active_job": "jobs_active_key",
    "live_retry": "jobs_retry_of",
    "job_attempts": "attempts",
    "save_attempt": "attempts",
    "agent_offers": "attempts_open",
    "job_events": "events",
    "payload_place": "payloads",
    "stored_uses": "payloads_stored",
    "known_key": "idempotency",
    "bind_key": "idempotency",
    "hold_of": "holds",
    "policy_by_id": "policies",
    "agent_by_key": "agent_keys",
    "api_key": "api_keys",
    "signer": "agents",
    "old_nonce": "nonces_age",
    "drop_nonces": "nonces_age",
    "secret_of": "secrets",
    "expired_secret": "secrets_expiry",
    "epoch_in_use": "secrets_epoch",
}
# Read in the order of the index: never sorted, whatever lies in the table.
ORDERED = {"pick_ready", "pick_hedge", "agent_offers", "lock_due", "prunable", "job_attempts", "job_events"}


async def plan(store: Store, name: str) -> str:
    """The plan of a statement as the database words it."""
    kind = "sqlite" if isinstance(store.database, SqliteDatabase) else "postgres"
    statement = load(kind)[name]
    async with store.database.transaction() as tx:
        connection: Any = tx._connection  # type: ignore[attr-defined]  (the test looks behind the port)
        if kind == "sqlite":
            rows = connection.execute("EXPLAIN QUERY PLAN " + statement.text, [None] * len(statement.params))
            return "\n".join(row[3] for row in rows)
        await connection.execute(f"PREPARE plan_{name} AS {statement.text}")
        arguments = f"({', '.join(['NULL'] * len(statement.params))})" if statement.params else ""
        rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE plan_{name}{arguments}")
        await connection.execute(f"DEALLOCATE plan_{name}")
        return "\n".join(row[0] for row in rows)


async def test_hot_statements_use_their_index(store: Store) -> None:
    await check_plans(store)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_statistics_of_small_and_emptied_tables_change_no_plan(scene: Scene) -> None:
    lane, agent, database = scene.id(), scene.id(), scene.store.database
    for _ in range(100):
        await scene.submit(lane)
        await scene.settle(await scene.take(agent, lane))
    for statement in ("ANALYZE", "DELETE FROM jobs", "ANALYZE"):
        await raw(database, statement)
        await check_plans(scene.store)
        await check_batch_plans(scene.store)


async def check_plans(store: Store) -> None:
    """Every hot statement goes by its index, and in its order where that matters."""
    for name, index in HOT.items():
        found = await plan(store, name)
        assert index in found, f"{name}: {found}"
        scans = [line for line in found.splitlines() if re.search(r"SCAN (?!ahead|.*INDEX)|Seq Scan", line)]
        assert scans == [], f"{name}: {found}"
        if name in ORDERED:
            assert "TEMP B-TREE" not in found, f"{name}: {found}"
            assert not re.search(r"^\s*(->\s*)?Sort", found, re.MULTILINE), f"{name}: {found}"


# The same for a batch of entries: each of them by the index, and no table read from end to end.
HOT_MANY = {
    "lock_job_many": "jobs_id_key",
    "job_attempts_many": "attempts_pkey",
    "save_job_many": "jobs_pkey",
    "save_attempt_many": "attempts_pkey",
    "pick_ready_many": "jobs_ready",
    "pick_hedge_many": "jobs_hedge",
    "agent_offers_many": "attempts_open",
    "payload_body_many": "payloads_pkey",
    "stored_of_many": "payloads_pkey",
    "delete_job_many": "jobs_pkey",
}


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_statements_for_a_batch_use_their_index(store: Store) -> None:
    await check_batch_plans(store)


async def check_batch_plans(store: Store) -> None:
    """The statements for a batch go by their indexes."""
    for name, index in HOT_MANY.items():
        found = await plan(store, name)
        assert index in found, f"{name}: {found}"
        assert not re.search(r"Seq Scan|Hash Join|Merge Join", found), f"{name}: {found}"


async def test_the_guard_of_plans_sees_a_missing_index(empty_url: str) -> None:
    store = Store(connect(empty_url), FakeClock())
    await store.open()
    await raw(store.database, "DROP INDEX jobs_ready")
    assert "jobs_ready" not in await plan(store, "pick_ready")
    await store.close()
