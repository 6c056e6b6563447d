"""Servers for the tests here: on SQLite, and for the core flows on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import FakeClock, Server, serving


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty database: a file in the data folder, or a real PostgreSQL."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on each database that a module's tests share; each brings agents of its own."""
    data = tmp_path_factory.mktemp("server") / "data"
    if request.param == "sqlite":
        with serving(data) as running:
            yield running
        return
    postgres = request.getfixturevalue("postgres_server")
    name = postgres.create()
    with serving(data, database=postgres.url(name)) as running:
        yield running
    postgres.drop(name)


@pytest.fixture
def fresh(tmp_path: Path, database: str | None) -> Iterator[Server]:
    """A server of this test alone, once on each database."""
    with serving(tmp_path / "data", database=database) as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    """A clock of the test's own."""
    return FakeClock()


@pytest.fixture
def timed(tmp_path: Path, database: str | None, clock: FakeClock) -> Iterator[Server]:
    """A server whose time stands still until the test moves it."""
    with serving(tmp_path / "data", database=database, clock=clock) as running:
        yield running


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    """A server of this test alone, on SQLite."""
    with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on SQLite that the tests of a module share; each brings agents of its own."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running
