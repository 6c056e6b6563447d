"""What is measured in the Store itself, in a process of its own: `python -m bench.stored '{"scenario": …}'`.

The scenarios and their fields are the structs below; the result is one line of JSON. It exits 1 with a
message on stderr when the store answers something that was not expected.
"""

import asyncio
import gc
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench import messages
from bench.callers import Caller, everyone, opened
from bench.commands import Against, Trail, measure_against, measure_trail
from bench.depth import Aged, Depth, make_aged, measure_depth
from bench.proc import cpu_seconds, family, machine_seconds
from bench.steps import NAMES
from bench.wire import Refused
from farhand.engine.ports import StoreFault, StoreGone

WRITES_PER_JOB = 4


class Life(msgspec.Struct, kw_only=True, tag_field="scenario", tag="life"):
    """Closed loop of `callers`; `writers` None opens as many connections as the server would.

    The CPU of the database's own process `pid` and its children is shown apart.
    """

    url: str
    solo: bool = False
    writers: int | None = None
    callers: int = 64
    warm: float = 1.0
    seconds: float = 3.0
    pid: int | None = None


class Steps(msgspec.Struct, kw_only=True, tag_field="scenario", tag="steps"):
    """The steps of the five requests, one kind at a time, `callers` at once and `jobs` each."""

    url: str
    callers: int
    jobs: int


class Size(msgspec.Struct, kw_only=True, tag_field="scenario", tag="size"):
    """Bytes of the file for `jobs` finished jobs with payloads of `payload` bytes (SQLite)."""

    url: str
    jobs: int
    payload: int


async def life(wanted: Life) -> dict[str, Any]:
    """Take jobs through their life for a while and report the steady part.

    Callers that move in step end their jobs in bursts, so what is counted is their writes.
    """
    async with opened(wanted.url, solo=wanted.solo, writers=wanted.writers) as store:
        stopping = False

        async def work(caller: Caller) -> None:
            while not stopping:
                await caller.life()

        tasks = [asyncio.create_task(work(Caller(store=store))) for _ in range(wanted.callers)]
        gc.freeze()
        await _watch(tasks, wanted.warm)
        pids = family(wanted.pid) if wanted.pid is not None else []
        commits, writes = store.figures
        clock, own, theirs = time.perf_counter(), time.process_time(), cpu_seconds(pids)
        machine = machine_seconds()
        await _watch(tasks, wanted.seconds)
        took = time.perf_counter() - clock
        own, theirs = time.process_time() - own, cpu_seconds(pids) - theirs
        others = max(0.0, machine_seconds() - machine - own - theirs)
        commits, writes = store.figures[0] - commits, store.figures[1] - writes
        stopping = True
        await asyncio.gather(*tasks)
    if not writes:
        raise Refused(f"nothing was committed in {took:.1f} s")
    jobs = writes / WRITES_PER_JOB
    return {
        "jobs_per_s": round(jobs / took, 1),
        "requests_per_commit": round(writes / commits, 2),
        "commits_per_s": round(commits / took, 1),
        "cpu_us_per_job": round(own / jobs * 1e6, 1),
        "database_cpu_us_per_job": round(theirs / jobs * 1e6, 1),
        "others_busy": round(others / took, 3),
    }


async def _watch(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


@dataclass(slots=True)
class Worker:
    """A caller and the jobs it is about."""

    caller: Caller
    ids: list[bytes] = field(default_factory=list[bytes])

    async def submit(self, jobs: int) -> None:
        for _ in range(jobs):
            await self.caller.submit()

    async def claim(self, jobs: int) -> None:
        self.ids = [(await self.caller.claim()).job.id for _ in range(jobs)]

    async def payload(self, _jobs: int) -> None:
        for job_id in self.ids:
            await self.caller.fetch(job_id)

    async def result(self, _jobs: int) -> None:
        for job_id in self.ids:
            await self.caller.settle(job_id)

    async def state(self, _jobs: int) -> None:
        for job_id in self.ids:
            await self.caller.look(job_id)


async def steps(wanted: Steps) -> dict[str, Any]:
    """Process CPU of each kind of step, in microseconds."""
    cpu: dict[str, float] = {}
    async with opened(wanted.url) as store:
        workers = [Worker(Caller(store=store)) for _ in range(wanted.callers)]

        async def together(name: str, jobs: int) -> None:
            await asyncio.gather(*(getattr(worker, name)(jobs) for worker in workers))

        # The first jobs fill the caches, as those of a server under load are.
        for name in NAMES:
            await together(name, 5)
        gc.freeze()
        for name in NAMES:
            before = time.process_time()
            await together(name, wanted.jobs)
            used = time.process_time() - before
            cpu[name] = round(used / (wanted.callers * wanted.jobs) * 1e6, 1)
    return {"cpu_us": cpu}


async def size(wanted: Size) -> dict[str, Any]:
    """Grow the file by finished jobs and count its bytes, those of indexes and of empty pages included."""
    path = Path(wanted.url.removeprefix("sqlite:///"))
    payload = (messages.LABEL * (wanted.payload // len(messages.LABEL) + 1))[: wanted.payload]
    callers = 64
    # Closing the store folds the log into the file.
    async with opened(wanted.url) as store:
        await Caller(store=store).life(payload)
    empty = _bytes_of(path)
    async with opened(wanted.url) as store:
        crew = [Caller(store=store) for _ in range(callers)]
        for _ in range(wanted.jobs // callers):
            await everyone(crew, lambda caller: caller.life(payload, title="label.zpl", source="bench"))
    jobs = wanted.jobs // callers * callers
    grown = _bytes_of(path) - empty
    return {
        "jobs": jobs,
        "bytes": grown,
        "bytes_per_job": round(grown / jobs, 1),
        "tables": _tables(path, jobs),
    }


def _bytes_of(path: Path) -> int:
    """The file and what may still lie beside it in the log."""
    return sum(found.stat().st_size for found in path.parent.glob(f"{path.name}*"))


def _tables(path: Path, jobs: int) -> dict[str, float]:
    """Bytes per job of each table and index."""
    import apsw

    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC")
        return {str(name): round(float(total) / jobs, 1) for name, total in rows if total / jobs >= 1}
    finally:
        connection.close()


Scenario = Life | Steps | Size | Depth | Aged | Against | Trail


async def perform(wanted: Scenario) -> dict[str, Any]:
    """Run the scenario that was asked for."""
    match wanted:
        case Life():
            return await life(wanted)
        case Steps():
            return await steps(wanted)
        case Size():
            return await size(wanted)
        case Depth():
            return await measure_depth(wanted)
        case Aged():
            return await make_aged(wanted)
        case Against():
            return await measure_against(wanted)
        case Trail():
            return await measure_trail(wanted)


def main() -> int:
    """Read the scenario from the first argument, run it, print its result."""
    # The parent keeps to one core; here the thread that commits, or the database, needs the other.
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    wanted = msgspec.json.decode(sys.argv[1], type=Scenario)
    try:
        result = uvloop.run(perform(wanted))
    except (Refused, StoreFault, StoreGone) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
