"""A whole server in a thread of the test, and callers that speak plain HTTP to it."""

import asyncio
import base64
import concurrent.futures
import dataclasses
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farhand.cli.compose import running
from farhand.model.clock import Clock, SystemClock
from farhand.model.system import System
from farhand.server import api
from farhand.server.config import ServerConfig
from farhand.server.context import Context
from farhand.server.routes import Route
from farhand.server.serve import HttpServer, uvicorn_config
from farhand.systems import find_systems, load
from farhand.systems.printing import SYSTEM as PRINTING

ROOT = "root-token-of-the-tests-000000"
DEADLINE_S = 15.0
PDF = b"%PDF-1.4\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF\n"


class FakeClock:
    """Wall and monotonic time that move only when told to."""

    def __init__(self) -> None:
        self._started = SystemClock().now_ms()
        self._passed = 0

    def now_ms(self) -> int:
        return self._started + self._passed

    def monotonic_ms(self) -> int:
        return self._passed

    def advance(self, ms: int) -> None:
        self._passed += ms


def until(what: str, condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """The condition's first true value. Fails the test when the deadline passes."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {deadline_s} s in vain until {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP reply; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)

    def ok(self, status: int = 200) -> Any:
        """The decoded body of a reply that must have this status."""
        assert self.status == status, f"{self.status}: {self.body[:2000]!r}"
        return json.loads(self.body) if self.body else None

    def problem(self, status: int, code: str) -> dict[str, Any]:
        """The problem document that this reply must be."""
        assert self.status == status, f"{self.status}: {self.body[:2000]!r}"
        assert self.headers["content-type"] == "application/problem+json"
        document = self.json()
        assert document["code"] == code, document
        assert document["status"] == status
        assert document["type"] == f"/problems/{code}"
        assert document["title"]
        assert document["detail"]
        assert isinstance(document["retryable"], bool)
        if status in (429, 503):
            assert int(self.headers["retry-after"]) >= 1
        return document


def call(
    port: int,
    method: str,
    path: str,
    *,
    key: str | None = ROOT,
    json_body: Any = None,
    body: bytes | Iterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 40,
) -> Reply:
    """One request on a connection of its own."""
    lines = dict(headers or {})
    if key is not None:
        lines.setdefault("Authorization", f"Bearer {key}")
    if json_body is not None:
        body = json.dumps(json_body).encode()
        lines.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=lines)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(status=answer.status, headers=found, body=answer.read())
    finally:
        connection.close()


_names = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Machine:
    """A registered agent with its printers."""

    server: "Server"
    name: str
    key: str
    id: str
    printers: list[str]

    def call(self, method: str, path: str, **more: Any) -> Reply:
        """A request with the agent's key."""
        return self.server.call(method, path, key=self.key, **more)

    def native(self, method: str, path: str, **more: Any) -> Reply:
        """A request in the native dialect."""
        return self.call(method, path, headers={"Farhand-Protocol": "1", **more.pop("headers", {})}, **more)

    def poll(self, wait: int = 0) -> Reply:
        """The seed's poll."""
        return self.call("GET", "/agent/jobs", headers={"Prefer": f"wait={wait}"})

    def claim(self, poll_id: str | None = None, **wanted: Any) -> Any:
        """A native claim's decoded answer."""
        poll_id = poll_id or f"poll-{next(_names)}"
        return self.native("POST", "/agent/claim", json_body={"poll_id": poll_id, **wanted}).ok()

    def take(self) -> Any:
        """Claim and accept the next job, which must be there."""
        jobs = self.claim(accept=True)["jobs"]
        assert len(jobs) == 1, jobs
        return jobs[0]

    def act(self, job: Any, verb: str, **message: Any) -> Reply:
        """A verb on a claimed job, under its lease."""
        message.setdefault("lease_token", job["lease_token"])
        return self.native("POST", f"/agent/jobs/{job['job_id']}/{verb}", json_body=message)

    def payload(self, job_id: str, **more: Any) -> Reply:
        """The bytes of a job."""
        return self.call("GET", f"/agent/jobs/{job_id}/payload", **more)

    def result(self, job_id: str, **message: Any) -> Reply:
        """The seed's result, without a lease."""
        return self.call("POST", f"/agent/jobs/{job_id}/result", json_body=message)


@dataclass(slots=True, kw_only=True)
class Server:
    """A listening server; `do` runs a coroutine on its loop."""

    port: int
    context: Context
    loop: asyncio.AbstractEventLoop
    http: HttpServer
    token: str = ROOT
    threads: concurrent.futures.ThreadPoolExecutor = field(
        default_factory=lambda: concurrent.futures.ThreadPoolExecutor(max_workers=64)
    )

    def call(self, method: str, path: str, *, key: str | None = ROOT, **more: Any) -> Reply:
        """One request, by default with the root token."""
        return call(self.port, method, path, key=key, **more)

    def later(
        self, action: Callable[..., Any], *arguments: Any, **more: Any
    ) -> "concurrent.futures.Future[Any]":
        """Run a blocking action beside the test."""
        return self.threads.submit(action, *arguments, **more)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=DEADLINE_S)

    def execute(self, statement: str, params: Mapping[str, object]) -> None:
        """Run one of the store's named statements."""

        async def work() -> None:
            async with self.context.store.database.transaction() as tx:
                await tx.bulk(statement, [params])

        self.do(work())

    def register(self, name: str | None = None, *, key: str | None = None, **more: Any) -> Reply:
        """Present an agent."""
        name = name or f"agent-{next(_names)}"
        printers = more.pop("printers", [{"name": "p", "can_pdf": True}])
        headers = more.pop("headers", None)
        message = {"name": name, "printers": printers, **more}
        return self.call("POST", "/agent/register", key=key, json_body=message, headers=headers)

    def machine(self, name: str | None = None, *, key: str | None = None, **more: Any) -> Machine:
        """A registered agent, by default with one printer."""
        name = name or f"agent-{next(_names)}"
        key = key or f"key-of-{name}-0123456789abcdef"
        made = self.register(name, key=key, **more).ok()
        return Machine(server=self, name=name, key=key, id=made["computer_id"], printers=made["printer_ids"])

    def submit(self, printer: str, content: bytes = b"^XA^XZ", **more: Any) -> Any:
        """The decoded reply to a new job."""
        return self.try_submit(printer, content, **more).ok(201)

    def try_submit(
        self, printer: str, content: bytes = b"^XA^XZ", *, key: str = ROOT, headers: Any = None, **more: Any
    ) -> Reply:
        """Submit raw bytes."""
        message = {"printer_id": printer, "type": "raw_base64", **more}
        if message["type"].endswith("_base64"):
            message.setdefault("content", base64.b64encode(content).decode())
        return self.call("POST", "/jobs", key=key, json_body=message, headers=headers)

    def job(self, job_id: str) -> Any:
        """A job as clients see it."""
        return self.call("GET", f"/jobs/{job_id}").ok()

    def await_state(self, job_id: str, *states: str) -> Any:
        """The job once it is in one of the states."""
        return until(
            f"the job is {' or '.join(states)}",
            lambda: job if (job := self.job(job_id))["state"] in states else None,
        )

    def await_held(self, count: int) -> None:
        """Return when this many polls are held."""
        until(f"{count} polls are held", lambda: self.context.held.count == count)

    def new_key(self, *grants: str, name: str | None = None) -> str:
        """A client key with these grants."""
        message = {"name": name or f"key-{next(_names)}", "grants": list(grants)}
        return self.call("POST", "/keys", json_body=message).ok(201)["key"]


ALL: dict[str, dict[str, object]] = {
    "commands": {"demo.say": {"active_key": "none"}},
    "fetch": {"loopback": True},
}
"""Tables with which a server has all systems, and a type of command."""


def all_routes() -> list[Route]:
    """The server's own routes and those of all systems."""
    found = api.routes()
    for system in find_systems(()):
        if system.routes is not None:
            found += load(system.routes)()
    return found


def settings(data: Path, **more: Any) -> ServerConfig:
    """Settings that suit tests: a free port, quick sweeps, payloads from this machine."""
    plain = ServerConfig(
        data=data, port=0, sweep_ms=50, payload_loopback=True, payload_ports=(), payload_fetch_ms=5_000
    )
    return dataclasses.replace(plain, **more)


@contextmanager
def serving(data: Path, *, clock: Clock | None = None, token: str = ROOT, **more: Any) -> Iterator[Server]:
    """A server that listens, in a thread of this process, until the block ends."""
    config = settings(data, **more)
    started: concurrent.futures.Future[Server] = concurrent.futures.Future()
    thread = threading.Thread(
        target=_run, args=(_serve(config, clock, token, started), started), name="server"
    )
    thread.start()
    server = started.result(timeout=DEADLINE_S)
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(server.http.stop)
        thread.join(timeout=DEADLINE_S)
        server.threads.shutdown(wait=True)
    assert not thread.is_alive(), "the server did not stop"


def _run(work: Coroutine[Any, Any, None], started: "concurrent.futures.Future[Server]") -> None:
    import uvloop

    try:
        uvloop.run(work)
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


def _systems(config: ServerConfig) -> tuple[System, ...]:
    """Printing alone, or with tables of their own all systems there are."""
    return find_systems() if config.sections else (PRINTING,)


async def _serve(
    config: ServerConfig, clock: Clock | None, token: str, started: "concurrent.futures.Future[Server]"
) -> None:
    async with AsyncExitStack() as stack:
        app, context = await stack.enter_async_context(
            running(config, systems=_systems(config), load=load, token=token, clock=clock)
        )
        loop = asyncio.get_running_loop()
        servers: list[HttpServer] = []

        def listening(port: int) -> None:
            started.set_result(Server(port=port, context=context, loop=loop, http=servers[0], token=token))

        servers.append(HttpServer(uvicorn_config(app, config), context.close, listening))
        await servers[0].serve()
