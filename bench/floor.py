"""The floor: a raw ASGI application that answers the same requests with no engine.

Jobs live in dictionaries and lists in memory: no database, no fsync, no authentication, no leases, no router.
What it costs is what HTTP, JSON and the event loop cost here; a real server can only be slower.
An agent is whoever shows a key, and a printer id is `KEY/NAME`, so that the floor needs no registry.
"""

import argparse
import asyncio
import base64
import gc
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvicorn

from bench import messages

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

encode = msgspec.json.encode
read_submit = msgspec.json.Decoder(messages.Submit).decode
read_submit_many = msgspec.json.Decoder(messages.SubmitMany).decode
read_claim = msgspec.json.Decoder(messages.Claim).decode
read_outcome = msgspec.json.Decoder(messages.Outcome).decode
read_outcome_many = msgspec.json.Decoder(messages.OutcomeMany).decode
read_register = msgspec.json.Decoder(messages.Register).decode

SEED_WAIT_MS = 25_000


class Job:
    __slots__ = ("content", "id", "printer_id", "state")

    def __init__(self, id: str, printer_id: str, content: str) -> None:
        self.id = id
        self.printer_id = printer_id
        self.content = content
        self.state = "queued"


class Lane:
    """What waits for one agent, and the polls of that agent that wait for work."""

    __slots__ = ("polls", "queued")

    def __init__(self) -> None:
        self.queued: deque[Job] = deque()
        self.polls: deque[asyncio.Future[bool]] = deque()

    def put(self, job: Job) -> None:
        self.queued.append(job)
        while self.polls:
            poll = self.polls.popleft()
            if not poll.done():
                poll.set_result(True)
                return

    async def take(self, most: int, wait_ms: int) -> list[Job]:
        if not self.queued and wait_ms:
            loop = asyncio.get_running_loop()
            poll: asyncio.Future[bool] = loop.create_future()
            timer = loop.call_later(wait_ms / 1000, _wake, poll)
            self.polls.append(poll)
            await poll
            timer.cancel()
        taken = [self.queued.popleft() for _ in range(min(most, len(self.queued)))]
        for job in taken:
            job.state = "claimed"
        return taken


def _wake(poll: asyncio.Future[bool]) -> None:
    if not poll.done():
        poll.set_result(False)


class Floor:
    """The application; `jobs` and `lanes` are all of its state."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.lanes: dict[str, Lane] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        if scope["method"] == "POST":
            body = await _read(receive)
            status, reply, kind = await self._post(path, body, scope)
        else:
            status, reply, kind = await self._get(path, scope)
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(reply))]
        if status == 204:
            headers = []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    async def _post(self, path: str, body: bytes, scope: Scope) -> tuple[int, bytes, bytes]:
        if path == "/jobs":
            return 201, encode(self._submit(read_submit(body))), b"application/json"
        if path.startswith("/agent/jobs/"):
            return 200, encode(await self._settle(path, body, scope)), b"application/json"
        if path == "/agent/claim":
            offers = await self._claim(read_claim(body), scope)
            return 200, encode(offers), b"application/json"
        if path == "/jobs/batch":
            items = [self._submit(one) for one in read_submit_many(body).jobs]
            return 200, encode({"items": items}), b"application/json"
        if path == "/agent/results":
            return 200, encode(await self._settle_many(body, scope)), b"application/json"
        if path == "/agent/register":
            key, wanted = _key(scope), read_register(body)
            ids = [f"{key}/{printer.name}" for printer in wanted.printers]
            return 200, encode({"computer_id": key, "printer_ids": ids}), b"application/json"
        return 404, b"{}", b"application/json"

    async def _get(self, path: str, scope: Scope) -> tuple[int, bytes, bytes]:
        if path == "/agent/jobs":
            taken = await self._lane(_key(scope)).take(1, _wait_ms(scope))
            if not taken:
                return 204, b"", b""
            return 200, encode(_claimed(taken[0])), b"application/json"
        if path.startswith("/agent/jobs/"):
            job = self.jobs[path[12:-8]]
            job.state = "running"
            return 200, base64.b64decode(job.content), b"application/octet-stream"
        if path.startswith("/jobs/"):
            return 200, encode(_status(self.jobs[path[6:]])), b"application/json"
        if path == "/health":
            return 200, b'{"ok":true}', b"application/json"
        return 404, b"{}", b"application/json"

    def _lane(self, key: str) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane()
        return lane

    def _submit(self, wanted: messages.Submit) -> dict[str, Any]:
        job_id = f"0198f0a0-0000-7000-8000-{len(self.jobs):012x}"
        printer_id = str(wanted.printer_id)
        job = self.jobs[job_id] = Job(job_id, printer_id, wanted.content or "")
        self._lane(printer_id.partition("/")[0]).put(job)
        return {"id": job_id, "job_id": job_id, **_status(job)}

    async def _claim(self, claim: messages.Claim, scope: Scope) -> dict[str, Any]:
        taken = await self._lane(_key(scope)).take(claim.max, claim.wait_ms)
        for job in taken:
            job.state = "running"
        return {"jobs": [_offer(job) for job in taken], "directive": None}

    async def _settle(self, path: str, body: bytes, scope: Scope) -> dict[str, Any]:
        outcome = read_outcome(body)
        state = self.jobs[path[12:-7]].state = "done" if outcome.ok else "failed"
        if outcome.next is None:
            return {"state": state}
        return {"state": state, "next": await self._claim(outcome.next, scope)}

    async def _settle_many(self, body: bytes, scope: Scope) -> dict[str, Any]:
        outcomes = read_outcome_many(body)
        items: list[dict[str, Any]] = []
        for one in outcomes.results:
            state = self.jobs[str(one.job_id)].state = "done" if one.ok else "failed"
            items.append({"job_id": one.job_id, "state": state})
        if outcomes.next is None:
            return {"items": items}
        return {"items": items, "next": await self._claim(outcomes.next, scope)}


async def _read(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return body


def _key(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return value[7:].decode()
    return ""


def _wait_ms(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"prefer":
            return int(value.partition(b"wait=")[2]) * 1000
    return SEED_WAIT_MS


def _status(job: Job) -> dict[str, Any]:
    return {
        "state": job.state,
        "final": job.state == "done",
        "error": None,
        "reason": None,
        "phase": None,
        "evidence": None,
        "printer_id": job.printer_id,
        "created_at": "2026-01-01T00:00:00.000Z",
        "finished_at": None,
    }


def _claimed(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "printer_id": job.printer_id,
        "mode": "raw",
        "attempt": 1,
        "lease_token": "AAAAAAAAAAAAAAAAAAAAAA",
    }


def _offer(job: Job) -> dict[str, Any]:
    size = len(job.content) * 3 // 4
    return {**_claimed(job), "lease_ms": 60_000, "payload": {"size": size, "base64": job.content}}


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    gc.freeze()
    uvicorn.run(
        Floor(),
        host=options.host,
        port=options.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
        backlog=4096,
    )


if __name__ == "__main__":
    main()
