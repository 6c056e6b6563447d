"""Agents that wait: one whose hand-over is timed, and thousands whose memory and CPU are counted."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench import flows
from bench.flows import NATIVE_HEADERS, Id
from bench.proc import cpu_seconds, resident_kib
from bench.wire import Refused, Session, accepted, connect

BLOCK = 150
AT_ONCE = 32


async def hand_over(
    mode: str, port: int, token: str, count: int, pause_ms: tuple[float, float]
) -> tuple[list[float], list[float]]:
    """Time `count` jobs through one parked agent.

    Returns milliseconds from the submit being sent to the agent holding the job, and those of the submit.
    """
    worker = await connect(port, flows.fresh_key(), "" if mode == "seed" else NATIVE_HEADERS)
    client = await connect(port, token)
    (printer_id,) = await flows.register(worker, f"idle-{os.urandom(4).hex()}")
    lane = flows.Lane(printer_id, 1)
    held: asyncio.Queue[float] = asyncio.Queue()
    agent = asyncio.create_task(_agent(mode, worker, lane, held))
    holds: list[float] = []
    submits: list[float] = []
    try:
        for _ in range(count):
            await asyncio.sleep(random.uniform(*pause_ms) / 1000)
            sent = time.perf_counter()
            reply = await client.post("/jobs", lane.one)
            submits.append((time.perf_counter() - sent) * 1000)
            accepted("POST /jobs", reply)
            got = asyncio.create_task(held.get())
            await asyncio.wait((got, agent), timeout=20, return_when=asyncio.FIRST_COMPLETED)
            if agent.done():
                agent.result()
            if not got.done():
                raise Refused("a parked agent did not get its job within 20 s")
            holds.append((got.result() - sent) * 1000)
    finally:
        agent.cancel()
        worker.close()
        client.close()
    return holds, submits


async def _agent(mode: str, session: Session, lane: flows.Lane, held: asyncio.Queue[float]) -> None:
    tally, polls = flows.Tally(), flows.Polls(1)
    while True:
        if mode == "seed":
            status, body = await session.get("/agent/jobs")
            now = time.perf_counter()
            if status == 204:
                continue
            job_id = flows.read_claimed(accepted("GET /agent/jobs", (status, body))).job_id
            accepted("GET payload", await session.get(f"/agent/jobs/{job_id}/payload"))
            outcome: dict[str, Any] = {"ok": True}
        else:
            offers = await flows.claim_some(session, polls, tally)
            now = time.perf_counter()
            if not offers:
                continue
            job_id = offers[0].job_id
            outcome = {"lease_token": offers[0].lease_token, "ok": True, "evidence": "delivered"}
        held.put_nowait(now)
        reply = await session.post(f"/agent/jobs/{job_id}/result", flows.encode(outcome))
        accepted("POST result", reply)


def key_of(prefix: str, number: int) -> str:
    """The key of the agent `number`; long enough for a server that wants 16 characters."""
    return f"{prefix}-{number:024d}"


async def register_many(port: int, prefix: str, count: int) -> list[Id]:
    """Register `count` agents with one printer each, some at a time; return the printers in order."""
    ids: list[Id] = [0] * count
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            session = await connect(port, key_of(prefix, number), NATIVE_HEADERS)
            (ids[number],) = await flows.register(session, f"{prefix}-{number}")
            session.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
    return ids


Target = tuple[int, str, Id]


async def submit_in_turns(loaded: Target, unloaded: Target, count: int) -> tuple[list[float], list[float]]:
    """Submit `count` jobs one after the other to each server, in alternating blocks; return milliseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    sessions = [await connect(port, token) for port, token, _ in (loaded, unloaded)]
    lanes = [flows.Lane(printer_id, 1) for _, _, printer_id in (loaded, unloaded)]
    while len(times[1]) < count:
        for session, lane, took in zip(sessions, lanes, times, strict=True):
            for _ in range(min(BLOCK, count - len(took))):
                sent = time.perf_counter()
                reply = await session.post("/jobs", lane.one)
                took.append((time.perf_counter() - sent) * 1000)
                accepted("POST /jobs", reply)
    for session in sessions:
        session.close()
    return times


@dataclass(slots=True, kw_only=True)
class Park:
    """Held polls of many agents against one server. Times are seconds of `time.perf_counter`."""

    port: int
    pids: list[int]
    wait_s: int
    sessions: list[Session] = field(default_factory=list[Session])
    ended: int = 0
    _first_poll: float = 0.0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _jobs: asyncio.Queue[tuple[float, Session, Id]] = field(
        default_factory=asyncio.Queue[tuple[float, Session, Id]]
    )
    _failure: BaseException | None = None

    async def fill(self, prefix: str, count: int) -> dict[str, Any]:
        """Connect every agent and park its poll; return what that took."""
        before = resident_kib(self.pids)
        self._first_poll = started = time.perf_counter()
        numbers = iter(range(count))
        header = f"prefer: wait={self.wait_s}\r\n"

        async def some() -> None:
            for number in numbers:
                session = await connect(self.port, key_of(prefix, number), header)
                self.sessions.append(session)
                self._tasks.append(asyncio.create_task(self._poll(session)))

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(some())
        await self._calm(15)
        took = time.perf_counter() - started
        after = resident_kib(self.pids)
        return {
            "polls": count,
            "park_s": round(took, 2),
            "rss_before_mib": round(before / 1024, 1),
            "rss_after_mib": round(after / 1024, 1),
            "kib_per_poll": round((after - before) / count, 2),
        }

    async def _poll(self, session: Session) -> None:
        try:
            while True:
                status, body = await session.get("/agent/jobs")
                if status == 204:
                    self.ended += 1
                    continue
                now = time.perf_counter()
                claimed = flows.read_claimed(accepted("GET /agent/jobs", (status, body)))
                self._jobs.put_nowait((now, session, claimed.job_id))
                return
        except (Refused, OSError) as error:
            self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise Refused(f"a held poll failed: {self._failure}")

    async def _calm(self, most_s: float) -> None:
        """Wait until the server has used next to no CPU for half a second."""
        await _until(lambda: self._quiet_for(0.5), most_s)
        self._check()

    async def _quiet_for(self, seconds: float) -> bool:
        before = cpu_seconds(self.pids)
        await asyncio.sleep(seconds)
        return cpu_seconds(self.pids) - before <= 0.02 * seconds + 0.01

    async def rest(self, seconds: float) -> dict[str, Any]:
        """Leave the parked polls alone; return the CPU that they cost."""
        ended, before, started = self.ended, cpu_seconds(self.pids), time.perf_counter()
        await asyncio.sleep(seconds)
        took = time.perf_counter() - started
        self._check()
        used = cpu_seconds(self.pids) - before
        return {
            "rest_s": round(took, 2),
            "rest_cpu_percent": round(used / took * 100, 2),
            "ended_in_rest": self.ended - ended,
        }

    async def hand_over(self, token: str, printer_ids: list[Id]) -> list[float]:
        """Give a job to each of these parked agents; return milliseconds until each held it."""
        client = await connect(self.port, token)
        holds: list[float] = []
        for printer_id in printer_ids:
            sent = time.perf_counter()
            accepted("POST /jobs", await client.post("/jobs", flows.Lane(printer_id, 1).one))
            try:
                now, session, job_id = await asyncio.wait_for(self._jobs.get(), 10)
            except TimeoutError:
                self._check()
                raise Refused("a job for a parked agent did not reach it within 10 s") from None
            holds.append((now - sent) * 1000)
            accepted("GET payload", await session.get(f"/agent/jobs/{job_id}/payload"))
            result = await session.post(f"/agent/jobs/{job_id}/result", b'{"ok":true}')
            accepted("POST result", result)
            self._tasks.append(asyncio.create_task(self._poll(session)))
        client.close()
        return holds

    async def renew(self) -> dict[str, Any]:
        """Wait until every poll has ended once and was sent again; return the CPU of one such renewal.

        Polls that were handed a job have begun anew and are not waited for.
        """
        ends_at = self._first_poll + self.wait_s - 0.5
        await asyncio.sleep(max(0.0, ends_at - time.perf_counter()))
        ended, before = self.ended, cpu_seconds(self.pids)

        async def all_renewed() -> bool:
            await asyncio.sleep(0.2)
            return self.ended - ended >= 0.9 * len(self.sessions)

        renewed_in_time = await _until(all_renewed, 30)
        await self._calm(15)
        count = self.ended - ended
        used = cpu_seconds(self.pids) - before
        return {
            "renewed": count,
            "renewed_in_time": renewed_in_time,
            "renew_cpu_us": round(used / max(1, count) * 1e6, 1),
        }

    def close(self) -> None:
        """Cut every connection."""
        for task in self._tasks:
            task.cancel()
        for session in self.sessions:
            session.close()


async def _until(condition: Callable[[], Awaitable[bool]], most_s: float) -> bool:
    deadline = time.perf_counter() + most_s
    while time.perf_counter() < deadline:
        if await condition():
            return True
    return False
