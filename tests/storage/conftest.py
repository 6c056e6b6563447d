"""One store for each test, on a database of its own: SQLite and PostgreSQL, nothing left out."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
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

DATABASES = ("sqlite", "postgres")


async def _prepare(database: Database) -> None:
    store = Store(database, FakeClock())
    await store.open()
    await store.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema in it."""
    path = tmp_path_factory.mktemp("template") / "farhand.db"
    asyncio.run(_prepare(SqliteDatabase(path)))
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """A PostgreSQL database with the schema in it, to copy from."""
    return postgres_server.template("farhand", lambda url: asyncio.run(_prepare(PostgresDatabase(url))))


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with the schema in it, this test's own."""
    if request.param == "sqlite":
        path = tmp_path / "farhand.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create(request.getfixturevalue("postgres_template"))
    yield server.url(name)
    server.drop(name)


def connect(url: str) -> Database:
    """A database behind an address."""
    if url.startswith("sqlite:///"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")))
    return PostgresDatabase(url, readers=2)


@pytest.fixture
def clock() -> FakeClock:
    """The time of this test."""
    return FakeClock()


@pytest.fixture
async def make_store(database_url: str, clock: FakeClock) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """Open another store over the same database, as another process would."""
    stores: list[Store] = []

    async def make() -> Store:
        store = Store(connect(database_url), clock, jitter=lambda: 0.0)
        stores.append(store)
        await store.open()
        return store

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
async def store(make_store: Callable[[], Awaitable[Store]]) -> Store:
    """An open store without any jitter in its backoff."""
    return await make_store()


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> Scene:
    """The store with its clock and the words of the conformance suites."""
    return Scene(store, clock)
