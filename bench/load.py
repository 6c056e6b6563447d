"""The load generator: one scenario in one process, pinned to core 1; prints its result as one line of JSON.

    python -m bench.load '{"scenario":"flow","mode":"seed","port":8000,"token":"…","pid":123,"seconds":3}'

Scenarios and their fields are the structs below. It exits 1 with a message on stderr for the first reply that
was not the expected one.
"""

import gc
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import uvloop

from bench import flows, parked
from bench.proc import cpu_seconds, family, machine_seconds, pin
from bench.pruned import submit_beside
from bench.steps import step_by_step
from bench.wire import BadReply, Refused


class Scenario(msgspec.Struct, kw_only=True, tag_field="scenario"):
    """What every scenario is told. CPU is read from `pid`, `extra_pids` and their children."""

    port: int
    token: str
    pid: int
    extra_pids: list[int] = []


class Flow(Scenario, tag="flow"):
    """Closed loop. `mode`: seed (5 requests a job), native (3) or batch, where `window` counts batches."""

    mode: str
    pairs: int = 16
    window: int = 8
    batch: int = 32
    warm: float = 1.0
    seconds: float = 3.0
    drain: float = 40.0


class Idle(Scenario, tag="idle"):
    """One parked agent: how long from a submit until it holds the job. The pause before each is random."""

    mode: str
    count: int = 100
    pause_ms: tuple[float, float] = (20, 40)


class Register(Scenario, tag="register"):
    """Register `count` agents whose keys are `prefix` and a number."""

    prefix: str
    count: int


class Held(Scenario, tag="held"):
    """Park `count` polls of the agents registered under `prefix`; `twin` is the unloaded server beside it."""

    prefix: str
    count: int
    printer_ids: list[flows.Id]
    sink: flows.Id
    twin_port: int
    twin_token: str
    twin_sink: flows.Id
    wait_s: int = 55
    quiet_s: float = 20.0
    submits: int = 3000


class Pruned(Scenario, tag="pruned"):
    """Submit to a server that deletes old jobs and to `twin`, which keeps as many."""

    sink: flows.Id
    twin_port: int
    twin_token: str
    twin_sink: flows.Id
    seconds: float


class Steps(Scenario, tag="steps"):
    """The five requests of seed 000, one kind at a time: `pairs` at once, `jobs` each."""

    pairs: int = 16
    jobs: int = 200


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and tail of the values, rounded to 3 digits."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)

    def at(part: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3)

    return {
        "n": len(ordered),
        "p50": round(median(ordered), 3),
        "p95": at(0.95),
        "p99": at(0.99),
        "max": at(1),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Clock, CPU seconds and counts at one moment, or the differences of two."""

    clock: float
    server: float
    own: float
    machine: float
    jobs: int
    requests: int

    @classmethod
    def now(cls, crew: flows.Crew, tally: flows.Tally, pids: list[int]) -> "Reading":
        return cls(
            clock=time.perf_counter(),
            server=cpu_seconds(pids),
            own=time.process_time(),
            machine=machine_seconds(),
            jobs=tally.finished,
            requests=sum(session.requests for session in crew.sessions),
        )

    def since(self, before: "Reading") -> "Reading":
        return Reading(
            clock=self.clock - before.clock,
            server=self.server - before.server,
            own=self.own - before.own,
            machine=self.machine - before.machine,
            jobs=self.jobs - before.jobs,
            requests=self.requests - before.requests,
        )

    def rates(self) -> dict[str, float]:
        """Per second, per job, and as parts of a core. Raises Refused when nothing was finished."""
        if not self.jobs:
            raise Refused(f"no job was finished in {self.clock:.1f} s")
        others = max(0.0, self.machine - self.server - self.own)
        return {
            "jobs_per_s": round(self.jobs / self.clock, 1),
            "requests_per_job": round(self.requests / self.jobs, 2),
            "server_cpu_us_per_job": round(self.server / self.jobs * 1e6, 1),
            "server_cpu_us_per_request": round(self.server / self.requests * 1e6, 1),
            "server_busy": round(self.server / self.clock, 3),
            "client_cpu_us_per_job": round(self.own / self.jobs * 1e6, 1),
            "client_busy": round(self.own / self.clock, 3),
            "others_busy": round(others / self.clock, 3),
        }


async def flow(wanted: Flow) -> dict[str, Any]:
    """Run the closed loop and report the steady part of it."""
    tally = flows.Tally()
    crew = await flows.assemble(
        wanted.mode,
        wanted.port,
        wanted.token,
        tally,
        pairs=wanted.pairs,
        window=wanted.window,
        batch=wanted.batch,
    )
    gc.freeze()
    try:
        await crew.watch(wanted.warm)
        pids = pids_of(wanted)
        tally.measuring = True
        before = Reading.now(crew, tally, pids)
        await crew.watch(wanted.seconds)
        tally.measuring = False
        steady = Reading.now(crew, tally, pids).since(before)
        await crew.finish(tally, wanted.drain)
    finally:
        crew.close()
    return {
        **steady.rates(),
        "submit_ms": spread(tally.submit_ms),
        "claims": tally.claims,
        "empty_claims": tally.empty_claims,
        "jobs_per_claim": round(tally.claimed / max(1, tally.claims - tally.empty_claims), 2),
    }


def pids_of(wanted: Scenario) -> list[int]:
    """The processes whose CPU and memory count as the server's."""
    return [pid for root in (wanted.pid, *wanted.extra_pids) for pid in family(root)]


async def idle(wanted: Idle) -> dict[str, Any]:
    """Submit to a server with nothing to do, one job at a time."""
    holds, submits = await parked.hand_over(
        wanted.mode, wanted.port, wanted.token, wanted.count, wanted.pause_ms
    )
    return {"hold_ms": spread(holds), "submit_ms": spread(submits)}


async def register(wanted: Register) -> dict[str, Any]:
    """Register the agents and name their printers in order."""
    ids = await parked.register_many(wanted.port, wanted.prefix, wanted.count)
    return {"printer_ids": ids}


async def held(wanted: Held) -> dict[str, Any]:
    """Park the polls and report what they cost and what they slow down."""
    park = parked.Park(port=wanted.port, pids=pids_of(wanted), wait_s=wanted.wait_s)
    try:
        result = await park.fill(wanted.prefix, wanted.count)
        result |= await park.rest(wanted.quiet_s)
        loaded, unloaded = await parked.submit_in_turns(
            (wanted.port, wanted.token, wanted.sink),
            (wanted.twin_port, wanted.twin_token, wanted.twin_sink),
            wanted.submits,
        )
        result |= {"submit_loaded_ms": spread(loaded), "submit_unloaded_ms": spread(unloaded)}
        result["ended_early"] = park.ended
        holds = await park.hand_over(wanted.token, wanted.printer_ids)
        result["hold_ms"] = spread(holds)
        result |= await park.renew()
    finally:
        park.close()
    return result


async def pruned(wanted: Pruned) -> dict[str, Any]:
    """Submit while the server deletes and report both servers' submits."""
    disturbed, undisturbed, result = await submit_beside(
        (wanted.port, wanted.token, wanted.sink),
        (wanted.twin_port, wanted.twin_token, wanted.twin_sink),
        wanted.seconds,
    )
    return {**result, "disturbed_ms": spread(disturbed), "undisturbed_ms": spread(undisturbed)}


async def steps(wanted: Steps) -> dict[str, Any]:
    """Server CPU of each kind of request, in microseconds, and how many writes a commit carried."""
    pids = pids_of(wanted)
    return await step_by_step(wanted.port, wanted.token, wanted.pairs, wanted.jobs, pids)


async def perform(wanted: Flow | Idle | Register | Held | Pruned | Steps) -> dict[str, Any]:
    """Run the scenario that was asked for."""
    match wanted:
        case Flow():
            return await flow(wanted)
        case Idle():
            return await idle(wanted)
        case Register():
            return await register(wanted)
        case Held():
            return await held(wanted)
        case Pruned():
            return await pruned(wanted)
        case Steps():
            return await steps(wanted)


def main() -> int:
    """Read the scenario from the first argument, run it, print its result."""
    pin(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = msgspec.json.decode(sys.argv[1], type=Flow | Idle | Register | Held | Pruned | Steps)
    try:
        result = uvloop.run(perform(wanted))
    except (Refused, BadReply, OSError, msgspec.MsgspecError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
