"""The PostgreSQL peer itself: what other tests build on."""

import os
import subprocess
import sys
import time

import asyncpg
import pytest

from tests.peers import require_peer
from tests.peers.postgres import PostgresServer


async def test_each_test_owns_its_database(postgres_server: PostgresServer, postgres_url: str) -> None:
    other = postgres_server.create()
    mine = await asyncpg.connect(postgres_url)
    try:
        await mine.execute("CREATE TABLE marks (id integer)")
        assert await mine.fetchval("SELECT to_regclass('marks') IS NOT NULL")
        assert postgres_server.execute("SELECT to_regclass('marks') IS NULL", other) == "t"
    finally:
        await mine.close()
        postgres_server.drop(other)


def test_a_copy_of_a_template_holds_what_was_prepared_once(postgres_server: PostgresServer) -> None:
    prepared: list[str] = []

    def prepare(url: str) -> None:
        prepared.append(url)
        postgres_server.execute("CREATE TABLE marks AS SELECT 7 AS id", url.rsplit("/", 1)[1])

    for _ in range(2):
        name = postgres_server.create(postgres_server.template("marks_template", prepare))
        assert postgres_server.execute("SELECT id FROM marks", name) == "7"
        postgres_server.drop(name)
    assert len(prepared) == 1


async def test_what_was_committed_survives_a_kill(postgres_server: PostgresServer, postgres_url: str) -> None:
    name = postgres_url.rsplit("/", 1)[1]
    postgres_server.execute("CREATE TABLE marks AS SELECT 7 AS id", name)
    connection = await asyncpg.connect(postgres_url)
    postgres_server.kill()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("SELECT 1")
    connection.terminate()
    postgres_server.start()
    assert postgres_server.execute("SELECT id FROM marks", name) == "7"


def test_a_failing_statement_raises_with_the_reason(postgres_server: PostgresServer) -> None:
    with pytest.raises(RuntimeError, match="no_such_table"):
        postgres_server.execute("SELECT * FROM no_such_table")


def test_the_server_ends_with_a_killed_test_run(postgres_server: PostgresServer) -> None:
    script = (
        "import sys, time\n"
        "from tests.peers.postgres import PostgresServer, postgres_bin\n"
        "server = PostgresServer(postgres_bin())\n"
        "server.start()\n"
        "print(server.process.pid, server.folder, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        run.kill()
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
    subprocess.run(["rm", "-rf", folder], check=True)


def test_a_missing_peer_skips_and_fails_where_ci_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="a plotter is not here: buy one"):
        require_peer("a plotter", False, "buy one")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="buy one"):
        require_peer("a plotter", False, "buy one")
    require_peer("a plotter", True, "buy one")
