"""Fetch scenarios, each in one process on core 1; prints its result as one line of JSON.

    python -m bench.fetching '{"scenario":"guard","target_port":8000,"count":300,"rounds":5}'

It exits 1 with a message on stderr for the first reply that was not the expected one.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpcore2
import httpx2
import msgspec
import uvloop

from bench.load import spread
from bench.proc import cpu_seconds, family, pin
from bench.wire import BadReply, Refused, Session, accepted, connect
from farhand.egress import EgressPolicy, request

INBOX = 10
"""The server lets so many devices of one address wait for approval at once."""
WORKERS = 8
PATH = "/health"
ANSWER = {"status": 200, "statusText": "OK", "headers": {"content-type": "text/plain"}, "body": "hello",
          "bodyBase64": False, "cropped": False, "cropOriginalSize": None, "elapsedMs": 1,
          "bytesWritten": 5}  # fmt: skip
encode = msgspec.json.encode
decode = msgspec.json.decode


class Latency(msgspec.Struct, kw_only=True, tag_field="scenario", tag="latency"):
    """By turns: the target asked directly, and through server and agent. New connections to the target."""

    port: int
    token: str
    target_port: int
    count: int


class Guard(msgspec.Struct, kw_only=True, tag_field="scenario", tag="guard"):
    """By turns: `count` requests through the guard, by an HTTP client, and by the bare core under both."""

    target_port: int
    count: int
    rounds: int


class Devices(msgspec.Struct, kw_only=True, tag_field="scenario", tag="devices"):
    """`count` pulsar devices against `few` of them: empty claims, then work, each for `seconds`."""

    port: int
    token: str
    pid: int
    count: int
    few: int
    seconds: float
    rounds: int


async def latency(wanted: Latency) -> dict[str, Any]:
    """How long from the request until its result is there, in milliseconds."""
    url = f"http://127.0.0.1:{wanted.target_port}{PATH}"
    body = encode({"type": "fetch", "request": {"url": url}})
    session = await connect(wanted.port, wanted.token, "prefer: wait=50\r\n")

    async def through() -> None:
        job = decode(accepted("POST /jobs", await session.post("/jobs", body)))
        if job["state"] != "done" or job["result"]["status"] != 200:
            raise Refused(f"the fetch ended as {job}")

    async def direct() -> None:
        target = await connect(wanted.target_port, wanted.token)
        accepted("GET of the target", await target.get(PATH))
        target.close()

    # The first one waits for the agent to come; the next ones load what it loads late.
    for _ in range(5):
        await through()
        await direct()
    taken: dict[str, list[float]] = {"direct": [], "through": []}
    for number in range(wanted.count):
        for name, ask in _turns(number, direct=direct, through=through):
            began = time.perf_counter()
            await ask()
            taken[name].append((time.perf_counter() - began) * 1000)
    return {name: spread(values) for name, values in taken.items()}


async def guard(wanted: Guard) -> dict[str, Any]:
    """CPU and time of one request each way, in microseconds, round by round."""
    url = f"http://127.0.0.1:{wanted.target_port}{PATH}"
    policy = EgressPolicy(loopback=True, ports=None)
    limits = httpx2.Limits(max_keepalive_connections=0)
    pool = httpcore2.AsyncConnectionPool(max_keepalive_connections=0)
    async with httpx2.AsyncClient(limits=limits, trust_env=False) as client, pool:

        async def guarded() -> None:
            answer = await request("GET", url, policy=policy)
            if answer.status != 200:
                raise Refused(f"the target answered {answer.status}")

        async def plain() -> None:
            reply = await client.get(url)
            if reply.status_code != 200:
                raise Refused(f"the target answered {reply.status_code}")

        async def bare() -> None:
            reply = await pool.request("GET", url)
            if reply.status != 200:
                raise Refused(f"the target answered {reply.status}")

        rounds: list[dict[str, Any]] = []
        for number in range(wanted.rounds + 1):
            found: dict[str, Any] = {}
            for name, ask in _turns(number, guarded=guarded, plain=plain, bare=bare):
                found[name] = await _cost(ask, wanted.count if number else 20)
            rounds.append(found)
    return {"rounds": rounds[1:]}


Ask = Callable[[], Awaitable[None]]


async def _cost(ask: Ask, count: int) -> dict[str, float]:
    cpu, clock = time.process_time(), time.perf_counter()
    for _ in range(count):
        await ask()
    return {
        "cpu_us": (time.process_time() - cpu) * 1e6 / count,
        "clock_us": (time.perf_counter() - clock) * 1e6 / count,
    }


def _turns(number: int, **asks: Ask) -> list[tuple[str, Ask]]:
    order = list(asks.items())
    return order if number % 2 == 0 else order[::-1]


async def devices(wanted: Devices) -> dict[str, Any]:
    """Claims and jobs a second with all devices calling, and with a few."""
    async with _sessions(wanted.port, wanted.token, WORKERS) as connections:
        began = time.perf_counter()
        everybody = await _enrol(connections[0], wanted.count)
        enrolled_s = time.perf_counter() - began
        some = everybody[: wanted.few]
        rounds: list[dict[str, Any]] = []
        for number in range(wanted.rounds):
            found: dict[str, Any] = {}
            for name, who in (("many", everybody), ("few", some))[:: 1 if number % 2 == 0 else -1]:
                found[name] = {
                    "idle": await _idle(wanted, connections, who),
                    "work": await _work(wanted, connections, who),
                }
            rounds.append(found)
    return {"enrolled_s": round(enrolled_s, 1), "rounds": rounds}


@asynccontextmanager
async def _sessions(port: int, token: str, count: int) -> AsyncGenerator[list[Session]]:
    sessions = [await connect(port, token) for _ in range(count)]
    try:
        yield sessions
    finally:
        for session in sessions:
            session.close()


async def _enrol(session: Session, count: int) -> list[dict[str, Any]]:
    """Devices with a session each: what they send with every request."""
    bids = [f"browser-{number:032x}" for number in range(count)]
    found: list[dict[str, Any]] = []
    for group in (bids[at : at + INBOX] for at in range(0, count, INBOX)):
        for bid in group:
            await session.post("/pulsar/agent/api/session", encode({"bid": bid}))
        waiting = decode(accepted("GET /agents/pending", await session.get("/agents/pending")))["items"]
        for entry in waiting:
            accepted(
                "approve",
                await session.post(f"/agents/{entry['id']}/approve", encode({"without_code": True})),
            )
        for bid in group:
            opened = await session.post("/pulsar/agent/api/session", encode({"bid": bid}))
            data = decode(accepted("POST session", opened))["data"]
            found.append({"bid": bid, "sessionId": data["sessionId"]})
    return found


async def _idle(wanted: Devices, connections: list[Session], who: list[dict[str, Any]]) -> dict[str, float]:
    """One claim after the other, each by the next device; there is no work."""
    calls = itertools.cycle([encode(one) for one in who])
    claims, cpu, began = 0, cpu_seconds(family(wanted.pid)), time.perf_counter()
    until = began + wanted.seconds

    async def one(session: Session) -> None:
        nonlocal claims
        while time.perf_counter() < until:
            reply = accepted("claim", await session.post("/pulsar/agent/api/claim", next(calls)))
            claims += 1
            if b'"jobs":[]' not in reply:
                raise Refused(f"a claim without work answered {reply[:200]!r}")

    await asyncio.gather(*(one(session) for session in connections))
    spent = time.perf_counter() - began
    return {
        "claims_per_s": claims / spent,
        "cpu_us": (cpu_seconds(family(wanted.pid)) - cpu) * 1e6 / claims,
    }


async def _work(wanted: Devices, connections: list[Session], who: list[dict[str, Any]]) -> dict[str, float]:
    """Submit, claim, callback by turns on each connection, each claim by the next device."""
    everyone = itertools.cycle(who)
    body = encode({"type": "fetch", "request": {"url": "https://example.com/"}})
    cpu, began = cpu_seconds(family(wanted.pid)), time.perf_counter()
    until, ended = began + wanted.seconds, 0

    async def one(session: Session) -> None:
        nonlocal ended
        while time.perf_counter() < until:
            accepted("POST /jobs", await session.post("/jobs", body))
            # As many are queued as there are connections that claim.
            while not await _claim_and_report(session, next(everyone)):
                pass
            ended += 1

    await asyncio.gather(*(one(session) for session in connections))
    spent = time.perf_counter() - began
    return {"jobs_per_s": ended / spent, "cpu_us": (cpu_seconds(family(wanted.pid)) - cpu) * 1e6 / ended}


async def _claim_and_report(session: Session, device: dict[str, Any]) -> bool:
    """Whether there was a job; it is done then."""
    reply = await session.post("/pulsar/agent/api/claim", encode(device))
    jobs = decode(accepted("claim", reply))["data"]["jobs"]
    for job in jobs:
        report = {**device, "jobId": job["jobId"], "result": ANSWER}
        reply = await session.post("/pulsar/agent/api/callback", encode(report))
        state = decode(accepted("callback", reply))["data"]["state"]
        if state != "done":
            raise Refused(f"a callback was answered {state}")
    return bool(jobs)


def main() -> int:
    """Carry out the scenario of the command line."""
    pin(1)
    wanted = decode(sys.argv[1].encode(), type=Latency | Guard | Devices)
    work = {Latency: latency, Guard: guard, Devices: devices}[type(wanted)]
    try:
        result = uvloop.run(work(wanted))  # type: ignore[arg-type]  (the tag has chosen both)
    except (Refused, BadReply, OSError) as error:
        print(error or type(error).__name__, file=sys.stderr)
        return 1
    print(encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
