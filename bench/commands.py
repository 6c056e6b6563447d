"""Commands in the Store itself: their life against that of print jobs, and the reading of their trails."""

import asyncio
import contextlib
import dataclasses
import gc
import secrets
import time
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import msgspec

from bench.callers import COMMAND_KIND, ORG, Caller, CommandCaller, opened
from bench.depth import execute
from bench.wire import Refused
from farhand.engine.attempt import Report
from farhand.model.policy import COMMAND
from farhand.storage.store import Store

WARM_TURNS = 5
FAILURES = 3


class Against(msgspec.Struct, kw_only=True, tag_field="scenario", tag="against"):
    """Print jobs and commands by turns, `callers` at once, each kind in a database of its own.

    A round is `turns` lives of every caller of one kind, then of the other; every second round backwards.
    """

    prints: str
    commands: str
    callers: int
    turns: int
    rounds: int


class Trail(msgspec.Struct, kw_only=True, tag_field="scenario", tag="trail"):
    """Read the trails of `reads` commands from all over a filled database, each one once."""

    url: str
    reads: int


@dataclass(slots=True)
class Crew:
    """Callers of one kind that take each step together, and what the steps have cost so far."""

    callers: list[Caller]
    cpu: dict[str, float] = field(default_factory=dict[str, float])
    took: dict[str, float] = field(default_factory=dict[str, float])

    async def turn(self) -> None:
        """One life of every caller: submit, claim, start, settle. For commands the claim is the start."""
        await self._step("submit", [caller.submit() for caller in self.callers])
        claimed = await self._step("claim", [caller.claim() for caller in self.callers])
        held = list(zip(self.callers, [one.job.id for one in claimed], strict=True))
        await self._step("start", [caller.start(job_id) for caller, job_id in held])
        await self._step("settle", [caller.settle(job_id) for caller, job_id in held])

    async def _step(self, name: str, works: list[Any]) -> list[Any]:
        cpu, clock = time.process_time(), time.perf_counter()
        answers = await asyncio.gather(*works)
        self.took[name] = self.took.get(name, 0.0) + time.perf_counter() - clock
        self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu
        return answers

    async def round(self, turns: int) -> dict[str, Any]:
        """Microseconds a job, of the process and of the clock, by step."""
        self.cpu, self.took = {}, {}
        for _ in range(turns):
            await self.turn()
        jobs = turns * len(self.callers)
        return {
            "cpu_us": {name: used / jobs * 1e6 for name, used in self.cpu.items()},
            "clock_us": {name: used / jobs * 1e6 for name, used in self.took.items()},
        }


async def measure_against(wanted: Against) -> dict[str, Any]:
    """Every round of both kinds, to be compared with its neighbour."""
    rounds: list[dict[str, Any]] = []
    async with opened(wanted.prints) as prints, opened(wanted.commands) as commands:
        crews = {
            "print": Crew([Caller(store=prints) for _ in range(wanted.callers)]),
            "command": Crew([CommandCaller(store=commands, guarded=True) for _ in range(wanted.callers)]),
        }
        for crew in crews.values():
            await crew.round(WARM_TURNS)
        gc.freeze()
        for number in range(wanted.rounds):
            names = list(crews) if number % 2 == 0 else list(reversed(crews))
            found = {name: await crews[name].round(wanted.turns) for name in names}
            rounds.append(found)
    return {"rounds": rounds}


async def measure_trail(wanted: Trail) -> dict[str, Any]:
    """Milliseconds of reading a whole trail through the Store, and how many events there are."""
    async with opened(wanted.url) as store:
        troubled = await _troubled(store)
        await execute(store, "ANALYZE")
        ((events,),) = await execute(store, "SELECT COUNT(*) FROM events")
        chosen = await _spread(store, wanted.reads)
        took: list[float] = []
        lengths: list[int] = []
        for job_id in [*chosen, troubled]:
            started = time.perf_counter()
            trail = await store.events(ORG, job_id)
            took.append((time.perf_counter() - started) * 1000)
            if not trail:
                raise Refused("a command has no trail")
            lengths.append(len(trail))
    return {
        "events": events,
        "reads": len(took),
        "ms": {"p50": median(took), "p95": quantiles(took, n=20)[-1], "max": max(took)},
        "troubled": {"ms": took[-1], "events": lengths[-1]},
    }


async def _troubled(store: Store) -> bytes:
    """A command that failed until its tries were used up: the one whose trail people ask for."""
    policy = dataclasses.replace(COMMAND, backoff_base_ms=0, max_attempts=FAILURES)
    caller = CommandCaller(store=store, policy=policy)
    job_id = await caller.submit()
    for _ in range(FAILURES):
        await caller.claim()
        caller.report = Report(
            ok=False, digest=secrets.token_bytes(32), error="the provider did not answer", retryable=True
        )
        with contextlib.suppress(Refused):
            await caller.settle(job_id)
    job = await store.job(ORG, job_id)
    if job is None or job.state != "failed":
        raise Refused("a command that failed in every try is not failed")
    return job_id


async def _spread(store: Store, count: int) -> list[bytes]:
    """Finished commands, evenly over the table."""
    ((low, high),) = await execute(store, "SELECT MIN(seq), MAX(seq) FROM jobs")
    places = sorted({low + (high - low) * number // count for number in range(count)})
    listed = ", ".join(str(place) for place in places)
    rows = await execute(
        store, f"SELECT id FROM jobs WHERE kind = '{COMMAND_KIND}' AND state = 'done' AND seq IN ({listed})"
    )
    if len(rows) < count * 0.8:
        raise Refused(f"only {len(rows)} of {count} commands were found")
    return [bytes(row[0]) for row in rows]
