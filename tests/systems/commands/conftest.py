"""A server with a few declared types, on both databases, and agents that may process commands."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farhand.testing.clock import FakeClock
from tests.server.serving import Reply, Server, serving

TYPES: dict[str, dict[str, object]] = {
    "whatsapp.connect": {
        "start_by_ms": 120_000,
        "secret_fields": ["qr_code"],
        "params_schema": {
            "type": "object",
            "properties": {
                "instance": {"type": "string", "maxLength": 40},
                "options": {
                    "type": "object",
                    "properties": {"retries": {"type": "array", "items": {"type": "integer"}}},
                    "required": ["retries"],
                },
            },
            "additionalProperties": False,
        },
    },
    "whatsapp.status": {},
    "whatsapp.disconnect": {},
    "small.result": {"result_bytes_max": 1_000},
    "once.only": {"on_lost_running": "uncertain", "active_key": "none"},
    "many.at-once": {"active_key": "none"},
}
SECTIONS = {"commands": TYPES}
CLAIM = "/api/agent/v1/commands/claim"
_names = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Worker:
    """An issued agent with the grant, speaking the command queue's dialect."""

    server: Server
    name: str
    id: str
    key: str

    def call(self, method: str, path: str, **more: Any) -> Reply:
        """A request with the agent's key."""
        return self.server.call(method, path, key=self.key, **more)

    def claim(self, wait: int | None = None) -> Reply:
        """Ask for a command."""
        headers = {} if wait is None else {"Prefer": f"wait={wait}"}
        return self.call("POST", CLAIM, headers=headers)

    def collect(self) -> Any:
        """The next command, which must be there, or come back in a sweep that is under way."""
        return self.claim(wait=5).ok()

    def report(self, command: Any, **message: Any) -> Reply:
        """Say how it ended; `command` is a UUID, or a claim's answer, whose lease is then named."""
        if isinstance(command, dict):
            message.setdefault("lease_token", command["lease_token"])
            command = command["uuid"]
        return self.call("POST", f"/api/agent/v1/commands/{command}/result", json_body=message)


def worker(server: Server, *grants: str) -> Worker:
    """A new agent with these grants, by default all there are."""
    name = f"ai-{next(_names)}"
    made = server.call("POST", "/agents", json_body={"name": name}).ok(201)
    grant(server, made["id"], *(grants or ("agent.work", "commands.process")))
    return Worker(server=server, name=name, id=made["id"], key=made["key"])


def grant(server: Server, agent_id: str, *grants: str) -> None:
    """Replace an agent's grants."""
    server.call("PUT", f"/agents/{agent_id}/grants", json_body={"grants": list(grants)}).ok()


def try_issue(server: Server, agent: "Worker | str", type: str = "whatsapp.status", **more: Any) -> Reply:
    """Issue a command."""
    name = agent if isinstance(agent, str) else agent.name
    extra = {k: more.pop(k) for k in ("key", "headers") if k in more}
    return server.call("POST", "/commands", json_body={"type": type, "agent": name, **more}, **extra)


def issue(server: Server, agent: "Worker | str", type: str = "whatsapp.status", **more: Any) -> Any:
    """Issue a command that must be taken."""
    return try_issue(server, agent, type, **more).ok(201)


def command(server: Server, uuid: str) -> Any:
    """A command as its issuer sees it."""
    return server.call("GET", f"/commands/{uuid}").ok()


def trail(server: Server, uuid: str) -> list[Any]:
    """A command's events."""
    return server.call("GET", f"/commands/{uuid}/events?limit=200").ok()["items"]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty database: a file in the data folder, or a real PostgreSQL."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on each database that a module's tests share; each brings agents of its own."""
    data = tmp_path_factory.mktemp("commands") / "data"
    if request.param == "sqlite":
        with serving(data, sections=SECTIONS) as running:
            yield running
        return
    postgres = request.getfixturevalue("postgres_server")
    name = postgres.create()
    with serving(data, database=postgres.url(name), sections=SECTIONS) as running:
        yield running
    postgres.drop(name)


@pytest.fixture
def clock() -> FakeClock:
    """A clock of the test's own."""
    return FakeClock()


@pytest.fixture
def timed(tmp_path: Path, database: str | None, clock: FakeClock) -> Iterator[Server]:
    """A server whose time stands still until the test moves it."""
    with serving(tmp_path / "data", database=database, clock=clock, sections=SECTIONS) as running:
        yield running
