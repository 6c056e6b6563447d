"""A small server of the native dialect over real sockets, which goes wrong when it is told to.

It keeps the promises that an agent builds on: a poll id is answered the same way twice, an
identical result is taken twice, a lease token opens its own attempt only.
"""

import asyncio
import hashlib
import json
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

PRINTERS = ["lane-1", "lane-2", "lane-3"]


@dataclass(slots=True, kw_only=True)
class Request:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body."""
        return json.loads(self.body or b"{}")


@dataclass(slots=True, kw_only=True)
class Reply:
    """What goes out."""

    status: int = 200
    body: bytes = b"{}"
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Awaitable[Reply | None]]
Fault = Callable[[Request, Answer], Awaitable[Reply | None]]


def page(status: int) -> Fault:
    """A proxy's page instead of the server's answer."""

    async def fault(request: Request, answer: Answer) -> Reply | None:
        return Reply(status=status, body=b"<html><h1>Welcome</h1></html>", kind="text/html")

    return fault


def problem(status: int, code: str, *, retry_after: int | None = None, **extra: object) -> Fault:
    """A problem document."""

    async def fault(request: Request, answer: Answer) -> Reply | None:
        return problem_reply(status, code, retry_after=retry_after, **extra)

    return fault


def problem_reply(status: int, code: str, *, retry_after: int | None = None, **extra: object) -> Reply:
    """A problem document as a reply."""
    document = {"type": f"/problems/{code}", "status": status, "code": code, "detail": f"so it is: {code}"}
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = json.dumps(document | extra).encode()
    return Reply(status=status, body=body, kind="application/problem+json", headers=headers)


async def lost_reply(request: Request, answer: Answer) -> Reply | None:
    """The request is obeyed, and the connection breaks before the reply."""
    await answer(request)
    return None


async def lost_request(request: Request, answer: Answer) -> Reply | None:
    """The connection breaks before the server has understood."""
    return None


async def hang(request: Request, answer: Answer) -> Reply | None:
    """Neither a reply nor an end."""
    await asyncio.Event().wait()
    return None


class FakeServer:
    """Started by `fake_server`; tests add jobs and faults and read what happened."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.proxied = 0
        self.results: list[tuple[str, dict[str, Any]]] = []
        self.released: list[str] = []
        self.refused: dict[str, str] = {}
        self.kept: dict[str, bytes] = {}
        self.states: dict[str, str] = {}
        self.phases: dict[str, list[str | None]] = {}
        self.directives: dict[str, str] = {}
        self.payloads: dict[str, bytes] = {}
        self.directive: str | None = None
        self.lease_ms = 60_000
        self.wait_ms = 25_000
        self.handed_out: list[str] = []
        self._queue: list[dict[str, Any]] = []
        self._via: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._answers: dict[str, list[dict[str, Any]]] = {}
        self._faults: list[tuple[str, Fault]] = []
        self._more = asyncio.Event()

    def add(
        self, lane: str | None = "lane-1", content: bytes | None = b"x", via: str = "agent-1", **fields: Any
    ) -> str:
        """A queued job; its id. One without a device comes `via` the agent's own lane or its owners'."""
        job_id = f"00000000-0000-7000-8000-{len(self._tokens):012x}"
        token = secrets.token_hex(16)
        payload: dict[str, Any] | None = None
        if content is not None:
            payload = {"size": len(content), "base64": b64encode(content).decode()}
        if content is not None and fields.pop("by_url", False):
            self.payloads[job_id] = content
            payload = {"size": len(content), "url": f"/agent/jobs/{job_id}/payload"}
        self._tokens[job_id] = token
        self._via[job_id] = via
        self.states[job_id] = "queued"
        job = {
            "job_id": job_id,
            "kind": "test.work",
            "printer_id": lane,
            "mode": None,
            "title": None,
            "attempt": 1,
            "lease_token": token,
            "lease_ms": 10_000,
            "accepted": False,
            "params": None,
            "payload": payload,
        }
        self._queue.append(job | fields)
        self._more.set()
        return job_id

    def fault(self, path: str, *faults: Fault) -> None:
        """The next requests whose path ends like this meet these faults, one each."""
        self._faults += [(path, fault) for fault in faults]

    def lose(self, job_id: str, state: str = "queued") -> None:
        """The attempt is no longer the agent's."""
        self._tokens[job_id] = "gone"
        self.states[job_id] = state

    def count(self, path: str) -> int:
        """How many requests had a path ending like this."""
        return sum(request.path.endswith(path) for request in self.requests)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests whose path ended like this."""
        return [request.json for request in self.requests if request.path.endswith(path)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        lines = [line.split(": ", 1) for line in head[1:] if line]
        headers = {name.lower(): value for name, value in lines}
        # As a proxy is asked: then it stands in for the server of that name.
        absolute = urlsplit(target)
        path = target.removeprefix(f"{absolute.scheme}://{absolute.netloc}") if absolute.netloc else target
        self.proxied += bool(absolute.netloc)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method=method, path=path, headers=headers, body=body)
        self.requests.append(request)
        answering = asyncio.ensure_future(self._meet(request))
        hung_up = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((answering, hung_up), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            return False
        hung_up.cancel()
        with suppress(asyncio.CancelledError):
            await hung_up
        reply = answering.result()
        if reply is None:
            return False
        lines_out = [f"HTTP/1.1 {reply.status} X", f"Content-Type: {reply.kind}"]
        lines_out += [f"Content-Length: {len(reply.body)}"]
        lines_out += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*lines_out, "", ""]).encode() + reply.body)
        await writer.drain()
        return True

    async def _meet(self, request: Request) -> Reply | None:
        for entry in self._faults:
            if request.path.endswith(entry[0]):
                self._faults.remove(entry)
                return await entry[1](request, self._answer)
        return await self._answer(request)

    async def _answer(self, request: Request) -> Reply | None:
        assert request.headers["farhand-protocol"] == "1"
        if request.path == "/agent/register":
            return self._register(request)
        if request.path == "/agent/claim":
            return await self._claim(request.json)
        _, _, _, job_id, verb, *more = request.path.split("/")
        token = request.headers.get("farhand-lease") or request.json.get("lease_token")
        if verb == "result" and not more:
            return await self._result(job_id, token, request.json)
        if token != self._tokens.get(job_id):
            return problem_reply(409, "stale-claim", job_state=self.states.get(job_id))
        if verb == "payload":
            return Reply(body=self.payloads[job_id], kind="application/octet-stream")
        if more == ["body"]:
            self.kept[job_id] = request.body
            return _json({"sha256": hashlib.sha256(request.body).hexdigest(), "size": len(request.body)})
        if verb in ("release", "refuse"):
            if verb == "release":
                self.released.append(job_id)
            else:
                self.refused[job_id] = request.json["reason"]
            return _json({"state": "queued"})
        return self._held(job_id, request.json)

    def _register(self, request: Request) -> Reply:
        count = len(request.json["printers"])
        names = {"computer_id": "agent-1", "printer_ids": PRINTERS[:count], "name": request.json["name"]}
        return _json(names | {"state": "active", "wait_ms": self.wait_ms})

    async def _claim(self, wanted: dict[str, Any]) -> Reply:
        jobs = self._answers.get(wanted["poll_id"])
        with suppress(TimeoutError):
            async with asyncio.timeout(wanted.get("wait_ms", 0) / 1000):
                while not jobs:
                    self._more.clear()
                    jobs = self._pick(wanted)
                    if not jobs:
                        await self._more.wait()
        return _json({"jobs": jobs or [], "directive": self.directive})

    def _pick(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        picked: list[dict[str, Any]] = []
        for job in list(self._queue):
            taken = {other["printer_id"] for other in picked}
            lane = job["printer_id"] or self._via[job["job_id"]]
            if lane in wanted["lanes"] and job["printer_id"] not in taken:
                self._queue.remove(job)
                picked.append(job)
                self.handed_out.append(job["job_id"])
        if picked:
            self._answers[wanted["poll_id"]] = picked
        return picked

    def _held(self, job_id: str, said: dict[str, Any]) -> Reply:
        self.states[job_id] = "running"
        self.phases.setdefault(job_id, []).append(said.get("phase"))
        directive = self.directives.get(job_id, "continue")
        times = {"lease_ms": self.lease_ms, "heartbeat_ms": self.lease_ms // 4}
        return _json({"state": "running", "directive": directive} | times)

    async def _result(self, job_id: str, token: str | None, said: dict[str, Any]) -> Reply:
        following = said.pop("next", None)
        if token != self._tokens.get(job_id):
            return problem_reply(409, "stale-claim", job_state=self.states.get(job_id))
        self.results.append((job_id, said))
        self.states[job_id] = "done" if said["ok"] else "failed"
        reply: dict[str, Any] = {"state": self.states[job_id], "next": None}
        if following is not None:
            reply["next"] = json.loads((await self._claim(following)).body)
        return _json(reply)


S = TypeVar("S", bound=FakeServer)


def _json(value: object) -> Reply:
    return Reply(body=json.dumps(value).encode())


@asynccontextmanager
async def fake_server(port: int = 0) -> AsyncIterator[FakeServer]:
    """A server on a free port."""
    async with listening(FakeServer(), port) as server:
        yield server


@asynccontextmanager
async def listening(server: S, port: int = 0) -> AsyncIterator[S]:
    """The server, reachable until the block ends."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        task.add_done_callback(connections.discard)
        with suppress(asyncio.CancelledError):
            await server.serve(reader, writer)
        writer.transport.abort()

    listener = await asyncio.start_server(connected, "127.0.0.1", port)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await listener.wait_closed()
