"""One store for each test, on a database of its own: SQLite and PostgreSQL, nothing left out."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from farhand.storage.database import Database
from farhand.storage.postgres import PostgresDatabase
from farhand.storage.sqlite import SqliteDatabase
from farhand.storage.store import Store
from farhand.testing.clock import FakeClock
from farhand.testing.factories import Scene
from tests.peers.postgres import PostgresServer

pytest.register_assert_rewrite("farhand.testing.conformance")

# `sqlite-alone` is the file as the server holds it: no second process, committed jobs in memory.
DATABASES = ("sqlite", "sqlite-alone", "postgres")


def _prepare(database: Callable[[], Database]) -> None:
    """Make the schema; in a thread of its own, since a test's event loop may be running here."""

    async def prepare() -> None:
        store = Store(database(), FakeClock())
        await store.open()
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(prepare()))
    thread.start()
    thread.join()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema in it."""
    path = tmp_path_factory.mktemp("template") / "farhand.db"
    _prepare(lambda: SqliteDatabase(path))
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """A PostgreSQL database with the schema in it, to copy from."""
    return postgres_server.template("farhand", lambda url: _prepare(lambda: PostgresDatabase(url)))


@pytest.fixture(scope="session")
def postgres_reused(postgres_server: PostgresServer, postgres_template: str) -> Callable[[], str]:
    """The address of an emptied database: emptying one takes a tenth of the time of making one."""
    name = postgres_server.create(postgres_template)
    tables = postgres_server.execute(
        "SELECT string_agg(relname, ',') FROM pg_stat_user_tables WHERE relname <> 'migrations'", name
    )
    emptying = ";".join(f"DELETE FROM {table}" for table in sorted(tables.split(","), key=_children_first))

    def emptied() -> str:
        postgres_server.execute(emptying, name)
        return postgres_server.url(name)

    return emptied


def _children_first(table: str) -> tuple[int, str]:
    order = ("jobs", "policies", "agent_keys", "devices", "agents", "api_keys", "users", "orgs")
    return (order.index(table) + 1 if table in order else 0, table)


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Make the database of this test: the schema and nothing else in it; its address."""

    def make(kind: str) -> str:
        if kind == "postgres":
            return request.getfixturevalue("postgres_reused")()
        path = tmp_path / "farhand.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        return f"{kind}:///{path}"

    return make


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """The address of this test's own database."""
    return new_database(request.param)


def connect(url: str) -> Database:
    """A database behind an address."""
    kind, _, path = url.partition(":///")
    if kind.startswith("sqlite"):
        return SqliteDatabase(Path(path), exclusive=kind == "sqlite-alone")
    return PostgresDatabase(url, readers=2)


@pytest.fixture
def clock() -> FakeClock:
    """The time of this test."""
    return FakeClock()


@pytest.fixture
async def make_store(clock: FakeClock) -> AsyncIterator[Callable[[str], Awaitable[Store]]]:
    """Open a store over a database; a second one as another process would."""
    stores: list[Store] = []

    async def make(url: str) -> Store:
        store = Store(connect(url), clock, jitter=lambda: 0.0)
        stores.append(store)
        await store.open()
        return store

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
async def store(make_store: Callable[[str], Awaitable[Store]], database_url: str) -> Store:
    """An open store without any jitter in its backoff."""
    return await make_store(database_url)


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> Scene:
    """The store with its clock and the words of the conformance suites."""
    return Scene(store, clock)


async def raw(database: Database, statement: str) -> list[tuple[object, ...]]:
    """Run a statement that the store does not have; its rows."""
    async with database.transaction() as tx:
        connection = tx._connection  # type: ignore[attr-defined]  (the test looks behind the port)
        if isinstance(database, SqliteDatabase):
            return connection.execute(statement).fetchall()
        return [tuple(row) for row in await connection.fetch(statement)]
