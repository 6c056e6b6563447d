"""The five requests of seed 000, one kind at a time, so that the CPU of each can be told apart."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench import flows
from bench.proc import cpu_seconds
from bench.wire import Refused, Session, accepted, connect

NAMES = ("submit", "claim", "payload", "result", "state")


@dataclass(slots=True, kw_only=True)
class Pair:
    """One client and one agent with its printer, and the jobs they are about."""

    client: Session
    agent: Session
    lane: flows.Lane
    ids: list[flows.Id] = field(default_factory=list[flows.Id])

    async def submit(self, jobs: int) -> None:
        for _ in range(jobs):
            accepted("POST /jobs", await self.client.post("/jobs", self.lane.one))

    async def claim(self, jobs: int) -> None:
        self.ids = []
        for _ in range(jobs):
            status, body = await self.agent.get("/agent/jobs")
            if status == 204:
                raise Refused("a poll of an agent with queued jobs was answered with nothing")
            self.ids.append(flows.read_claimed(accepted("GET /agent/jobs", (status, body))).job_id)

    async def payload(self, _jobs: int) -> None:
        for job_id in self.ids:
            accepted("GET payload", await self.agent.get(f"/agent/jobs/{job_id}/payload"))

    async def result(self, _jobs: int) -> None:
        for job_id in self.ids:
            accepted("POST result", await self.agent.post(f"/agent/jobs/{job_id}/result", b'{"ok":true}'))

    async def state(self, _jobs: int) -> None:
        for job_id in self.ids:
            await flows.require_done(self.client, job_id)


async def step_by_step(port: int, token: str, pairs: int, jobs: int, pids: list[int]) -> dict[str, Any]:
    """Take `pairs` times `jobs` jobs through each request in turn.

    Returns server CPU per request in microseconds, and writes per commit where the server tells them.
    """
    crew = [await _pair(port, token, number) for number in range(pairs)]
    try:
        # The first jobs fill the caches, as those of a server under load are.
        for name in NAMES:
            await _everyone(crew, name, 5)
        cpu: dict[str, float] = {}
        filled: dict[str, float] = {}
        for name in NAMES:
            commits, writes = await _figures(crew[0].client)
            before = cpu_seconds(pids)
            await _everyone(crew, name, jobs)
            cpu[name] = round((cpu_seconds(pids) - before) / (pairs * jobs) * 1e6, 1)
            after = await _figures(crew[0].client)
            filled[name] = round((after[1] - writes) / max(1.0, after[0] - commits), 2)
    finally:
        for pair in crew:
            pair.client.close()
            pair.agent.close()
    return {"cpu_us": cpu, "writes_per_commit": filled}


async def _pair(port: int, token: str, number: int) -> Pair:
    agent = await connect(port, flows.fresh_key())
    (printer_id,) = await flows.register(agent, f"steps-{id(agent):x}-{number}")
    return Pair(client=await connect(port, token), agent=agent, lane=flows.Lane(printer_id, 1))


async def _everyone(crew: list[Pair], name: str, jobs: int) -> None:
    step: list[Callable[[int], Awaitable[None]]] = [getattr(pair, name) for pair in crew]
    await asyncio.gather(*(one(jobs) for one in step))


async def _figures(client: Session) -> tuple[float, float]:
    """Commits and writes so far; (0, 0) where the server has no such figures."""
    status, body = await client.get("/metrics")
    if status != 200:
        return 0.0, 0.0
    found = dict(re.findall(rb"^farhand_(commits|writes)_total ([0-9.e+]+)$", body, re.MULTILINE))
    return float(found.get(b"commits", 0)), float(found.get(b"writes", 0))
