"""Servers with the fetch system on both databases, and devices that speak the seed's protocol."""

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from farhand.testing.clock import FakeClock
from tests.server.serving import Reply, Server, serving

SECTIONS: dict[str, dict[str, object]] = {"fetch": {"loopback": True}}
API = "/pulsar/agent/api"
URL = "https://example.com/data.json"
RESULT = {
    "status": 200,
    "statusText": "OK",
    "headers": {"content-type": "application/json"},
    "body": '{"ok":true}',
    "bodyBase64": False,
    "cropped": False,
    "cropOriginalSize": None,
    "elapsedMs": 182,
    "bytesWritten": 12,
}
_names = itertools.count(1)


def new_bid() -> str:
    """The identifier of a browser. Its first characters, which lists show, are no other's."""
    return f"browser-{next(_names):04x}{secrets.token_hex(14)}"


@dataclass(slots=True, kw_only=True)
class Device:
    """A device of the pulsar dialect, known by its bid alone."""

    server: Server
    bid: str = field(default_factory=new_bid, repr=False)
    session_id: str | None = None
    capabilities: dict[str, Any] | None = None

    def post(self, route: str, message: dict[str, Any], **more: Any) -> Reply:
        """A request with the bid, and without any key."""
        more.setdefault("key", None)
        return self.server.call("POST", f"{API}/{route}", json_body={"bid": self.bid, **message}, **more)

    def try_open(self, **message: Any) -> Reply:
        """Ask for a session."""
        if self.capabilities is not None:
            message.setdefault("capabilities", self.capabilities)
        return self.post("session", {"userAgent": "tests", **message})

    def open(self, **message: Any) -> Any:
        """The data of a session that must be opened; it is this device's from now on."""
        data = okay(self.try_open(**message))
        self.session_id = data["sessionId"]
        return data

    def try_claim(self, *, wait: int | None = None, **message: Any) -> Reply:
        """Ask for work."""
        headers = {} if wait is None else {"Prefer": f"wait={wait}"}
        return self.post("claim", {"sessionId": self.session_id, **message}, headers=headers)

    def claim(self, **message: Any) -> Any:
        """The data of a claim."""
        return okay(self.try_claim(**message))

    def take(self) -> Any:
        """The next job, which must be there or come."""
        (job,) = self.claim(wait=20)["jobs"]
        return job

    def try_callback(self, job: Any, **message: Any) -> Reply:
        """Say how a job ended; by default with the seed's own result."""
        job_id = job["jobId"] if isinstance(job, dict) else job
        if "error" not in message:
            message.setdefault("result", RESULT)
        return self.post("callback", {"sessionId": self.session_id, "jobId": job_id, **message})

    def callback(self, job: Any, **message: Any) -> str:
        """What became of a report."""
        return okay(self.try_callback(job, **message))["state"]

    def fail(self, job: Any, code: str = "timeout", message: str = "upstream did not respond") -> str:
        """What became of the report of a failure."""
        return self.callback(job, error={"code": code, "message": message})

    def refuse(self, job: Any) -> str:
        """What became of a refusal before execution."""
        return self.fail(job, "agent-refused-override", "the operator has just changed it")

    def try_stats(self) -> Reply:
        """Ask for the session's row."""
        headers = {"Farhand-Bid": self.bid, "Farhand-Session": self.session_id or ""}
        return self.server.call("GET", f"{API}/stats", key=None, headers=headers)

    def stats(self) -> dict[str, int]:
        """The session's figures."""
        return okay(self.try_stats())["stats"]

    def agent_id(self) -> str:
        """The id under which owners know the device."""
        mask = self.bid[: len("browser-") + 4]
        for path in ("/agents/pending", "/agents?limit=200"):
            found = [e["id"] for e in self.server.call("GET", path).ok()["items"] if mask in (e["bid"] or "")]
            if found:
                return str(found[0])
        raise AssertionError("the device is in no list")


def okay(reply: Reply) -> Any:
    """The data of a reply that must be the seed's `ok`."""
    document = reply.ok()
    assert document["status"] == "ok", document
    assert set(document) == {"status", "data"}
    return document["data"]


def refused(reply: Reply, status: int, code: str) -> dict[str, Any]:
    """The document of a reply that must be an error in the seed's shape."""
    document = reply.ok(status)
    assert reply.headers["content-type"] == "application/json"
    assert document["status"] == "error", document
    assert document["code"] == code, document
    assert document["message"]
    assert set(document) <= {"status", "code", "message", "user_code", "expires_in"}
    return document


def device(server: Server, *, key: str | None = None, **more: Any) -> Device:
    """An approved device with a session; `key` is its owner's."""
    found = Device(server=server, **more)
    pending = refused(found.try_open(), 403, "device-pending")
    approve(server, found, code=pending["user_code"], key=key)
    found.open()
    return found


def approve(server: Server, found: Device, *, code: str, key: str | None = None) -> None:
    """Type the code that the device shows."""
    extra = {} if key is None else {"key": key}
    server.call("POST", f"/agents/{found.agent_id()}/approve", json_body={"code": code}, **extra).ok()


def revoke(server: Server, found: Device) -> None:
    """Throw a device out."""
    server.call("POST", f"/agents/{found.agent_id()}/revoke").ok()


def try_submit(server: Server, url: str = URL, *, key: str | None = None, **request: Any) -> Reply:
    """Submit a fetch; what belongs beside the request is taken out of it."""
    extra = {name: request.pop(name) for name in ("agent", "tags", "expires_in", "title") if name in request}
    headers = request.pop("prefer", {})
    message = {"type": "fetch", "request": {"url": url, **request}, **extra}
    more = {} if key is None else {"key": key}
    return server.call("POST", "/jobs", json_body=message, headers=headers, **more)


def submit(server: Server, url: str = URL, **request: Any) -> str:
    """The id of a fetch that must be taken."""
    return try_submit(server, url, **request).ok(201)["id"]


def user_key(server: Server) -> str:
    """A client key of a user of its own, with every grant that owners need."""
    name = f"user-{next(_names)}"
    grants = ["jobs.submit", "jobs.read", "jobs.manage", "agents.read", "agents.manage"]
    message = {"name": name, "user": name, "grants": grants}
    return server.call("POST", "/keys", json_body=message).ok(201)["key"]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty database: a file in the data folder, or a real PostgreSQL."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on each database that a module's tests share; each brings a user of its own."""
    data = tmp_path_factory.mktemp("fetch") / "data"
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
def small(tmp_path: Path) -> Iterator[Server]:
    """A server of this test alone, on SQLite."""
    with serving(tmp_path / "data", sections=SECTIONS) as running:
        yield running


@pytest.fixture
def owner(server: Server) -> str:
    """The key of a user that owns nothing yet."""
    return user_key(server)


@pytest.fixture
def clock() -> FakeClock:
    """A clock of the test's own."""
    return FakeClock()


@pytest.fixture
def timed(tmp_path: Path, database: str | None, clock: FakeClock) -> Iterator[Server]:
    """A server whose time stands still until the test moves it."""
    with serving(tmp_path / "data", database=database, clock=clock, sections=SECTIONS) as running:
        yield running
