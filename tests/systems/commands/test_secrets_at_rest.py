"""What server, database and agent wrote on the way of a secret, before its time is over and after."""

import asyncio
import logging
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand.agent.config import AgentConfig
from farhand.agent.runner import run
from farhand.cli.logs import start_log
from farhand.model.clock import SystemClock
from farhand.model.ids import parse_id
from farhand.storage.database import Database
from farhand.storage.key_folder import KeyFolder
from farhand.storage.postgres import PostgresDatabase
from farhand.storage.secret_rows import SecretRows
from farhand.storage.sqlite import SqliteDatabase
from farhand.storage.vault import Vault
from farhand.systems.commands import Commands, Context
from farhand.systems.commands.handler import CommandsHandler
from farhand.testing.clock import FakeClock
from tests.agent.real import Server
from tests.peers.postgres import PostgresServer
from tests.peers.printers import until
from tests.traces import files_with

TTL_MS = 4_000
DECLARED = f"""
[commands."whatsapp.connect"]
secret_fields = ["qr_code"]
result_ttl_ms = {TTL_MS}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty PostgreSQL database, None for a file in the data folder."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def agent_log(tmp_path: Path) -> Iterator[Path]:
    """A file with everything that is logged in this process, in all detail."""
    path = tmp_path / "agent.log"
    handler = logging.FileHandler(path)
    root = logging.getLogger()
    before = root.level
    start_log("debug")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield path
    root.removeHandler(handler)
    root.setLevel(before)
    handler.close()


def only(folder: Path) -> Path:
    """What lies in a folder, when that is one thing; the folder otherwise."""
    found = list(folder.iterdir())
    return found[0] if len(found) == 1 else folder


async def thief_reads(data: Path, database: str | None, keys: Path, command: str, now: int) -> object:
    """What somebody with a copy of the files reads who sets the clock to when it was still time."""
    clock = FakeClock(now)
    opened: Database = (
        SqliteDatabase(data / "farhand.db") if database is None else PostgresDatabase(database, readers=1)
    )
    await opened.open()
    vault = Vault(KeyFolder(keys), clock)
    await vault.open(only(keys).name, alone=False)
    found = await SecretRows(opened, clock, vault).read(1, parse_id(command) or b"")
    await opened.close()
    return found


async def test_a_secret_is_on_no_disk_in_clear_and_on_none_at_all_after_its_time(
    request: pytest.FixtureRequest, database: str | None, agent_log: Path, tmp_path: Path
) -> None:
    secret, public = (f"2@{secrets.token_urlsafe(48)}/'é+==" for _ in range(2))
    setting = "" if database is None else f'database = "{database}"'
    server = Server(tmp_path / "server", settings=setting + DECLARED)
    folders = [tmp_path]
    if database is not None:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        folders.append(postgres.folder)

    commands = Commands()

    @commands.on("whatsapp.connect")
    async def connect(params: Any, ctx: Context) -> Any:
        ctx.report("linking", "the phone is asked")
        return {"qr_code": secret, "session": public}

    def flush() -> None:
        if database is not None:
            postgres.execute("CHECKPOINT")

    issued = server.call("POST", "/agents", {"name": "lab"})
    grants = {"grants": ["agent.work", "commands.process"]}
    server.call("PUT", f"/agents/{issued['id']}/grants", grants)
    config = AgentConfig(
        server=server.url, name="lab", data=tmp_path / "agent", folder=tmp_path, key=issued["key"],
        describe_every_ms=100, stop_grace_ms=500,
    )  # fmt: skip
    stopping = asyncio.Event()
    agent = asyncio.create_task(run(config, (CommandsHandler(commands),), stopping=stopping))
    try:
        made = server.call("POST", "/commands", {"type": "whatsapp.connect", "agent": "lab"})
        path = f"/commands/{made['uuid']}"
        await until(lambda: server.call("GET", path)["status"] == "completed", "it is done")
        assert server.call("GET", path)["result"] == {"qr_code": secret, "session": public}
        flush()
        stolen = tmp_path.parent / f"{tmp_path.name}-stolen"
        shutil.copytree(tmp_path / "server", stolen)
        now = SystemClock().now_ms()
        # The control: what is public lies there, so that a secret would be found.
        assert files_with(folders, public) != []
        assert files_with(folders, secret) == []
        old_keys = stolen / "keys"
        assert await thief_reads(stolen, database, old_keys, made["uuid"], now) == {"qr_code": secret}

        keys = tmp_path / "server" / "keys"
        await until(lambda: only(only(keys)).name == "digest.key", "its key is destroyed")
        assert server.call("GET", path)["result"] == {"session": public}
        flush()
        if database is None:
            # The rows in the copy are as they were; the keys are those that are left.
            assert await thief_reads(stolen, database, keys, made["uuid"], now) is None
        assert files_with(folders, secret) == []
    finally:
        stopping.set()
        await agent
        server.end()
    assert files_with(folders, secret) == []
