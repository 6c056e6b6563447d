"""Two processes over one database, and a process that is killed under load."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from farhand.engine.requests import Claimed, Settle
from farhand.model.clock import SystemClock
from farhand.model.errors import Problem
from farhand.model.job import Dialect, State
from farhand.storage.store import Store
from farhand.testing.clock import FakeClock
from farhand.testing.conformance.spots import HEDGED
from farhand.testing.factories import ORG, PERSON, Scene, granted, report
from farhand.testing.invariants import violations
from tests.storage.conftest import connect, raw
from tests.storage.load import LANE, RACED

ROOT = Path(__file__).resolve().parents[2]
LINE_S = 30.0
ACKNOWLEDGED = 400


class Other:
    """Another process over the database."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    async def line(self) -> dict[str, Any]:
        """The next thing it says. Raises AssertionError with its errors when it has ended."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LINE_S):
            text = await self.process.stdout.readline()
        if not text:
            assert self.process.stderr is not None
            raise AssertionError((await self.process.stderr.read()).decode())
        said = json.loads(text)
        self.said.append(said)
        return said

    async def until(self, word: str) -> None:
        """Read until it says this."""
        while word not in await self.line():
            pass

    async def go(self) -> None:
        """Give it the word."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()

    def of(self, word: str) -> list[dict[str, Any]]:
        """Everything it said about this."""
        return [said for said in self.said if word in said]


@asynccontextmanager
async def other(url: str, role: str, name: str) -> AsyncIterator[Other]:
    """Start a process that has opened the database and waits for the word."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.storage.load", url, role, name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    found = Other(process)
    try:
        await found.until("ready")
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """A database that two processes may use: not the file that a server keeps for itself."""
    return new_database(request.param)


Pair = tuple[Scene, Scene]


@pytest.fixture
async def pair(make_store: Callable[[str], Awaitable[Store]], shared_url: str, clock: FakeClock) -> Pair:
    """Two stores over one database that may be shared."""
    return Scene(await make_store(shared_url), clock), Scene(await make_store(shared_url), clock)


@pytest.fixture
async def hearing(
    make_store: Callable[[str], Awaitable[Store]], new_database: Callable[[str], str], clock: FakeClock
) -> Pair:
    """Two stores that hear of one another, as only servers over PostgreSQL do."""
    url = new_database("postgres")
    return Scene(await make_store(url), clock), Scene(await make_store(url), clock)


async def test_two_processes_race_and_every_guard_holds(shared_url: str) -> None:
    store = Store(connect(shared_url), SystemClock())
    await store.open()
    scene = Scene(store, FakeClock())
    finished = [await scene.submit(b"finished".ljust(16)) for _ in range(100)]
    for job in finished:
        granted(await scene.cancel(job))
    async with other(shared_url, "race", "a") as one, other(shared_url, "race", "b") as two:
        await asyncio.gather(one.go(), two.go())
        await asyncio.gather(one.until("submitted"), two.until("submitted"))
        await asyncio.gather(one.go(), two.go())
        await asyncio.gather(one.until("claimed_all"), two.until("claimed_all"))
        both = [*one.said, *two.said]
    keyed: dict[int, set[str]] = {}
    for said in both:
        if "keyed" in said:
            keyed.setdefault(said["keyed"], set()).add(said["job"])
    assert sorted(keyed) == list(range(RACED))
    assert all(len(jobs) == 1 for jobs in keyed.values())
    assert sum(said.get("created", False) for said in both) == RACED
    active = Counter(said["active"] for said in both if said.get("won") and "active" in said)
    assert active == dict.fromkeys(range(RACED), 1)
    retried = Counter(said["retry"] for said in both if said.get("won") and "retry" in said)
    assert retried == dict.fromkeys((job.hex() for job in finished), 1)
    claimed = [job for said in both for job in said.get("claimed", [])]
    assert all(len(said["claimed"]) <= 3 for said in both if "claimed" in said)
    assert len(claimed) == len(set(claimed)) == RACED
    assert await violations(store) == []
    await store.close()


async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(database_url: str) -> None:
    async with other(database_url, "work", "victim") as victim:
        await victim.go()
        while len(victim.said) < ACKNOWLEDGED:
            await victim.line()
        victim.process.send_signal(signal.SIGKILL)
        await victim.process.wait()
        assert victim.process.stdout is not None
        for text in (await victim.process.stdout.read()).splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                victim.said.append(json.loads(text))
    store = Store(connect(database_url), SystemClock())
    await store.open()
    scene = Scene(store, FakeClock())
    submitted = [bytes.fromhex(said["submitted"]) for said in victim.of("submitted")]
    done = [bytes.fromhex(said["done"]) for said in victim.of("done")]
    assert len(submitted) > 50
    assert len(done) > 50
    assert len(set(submitted)) == len(submitted)
    for job in submitted:
        found = await scene.job(job)
        place = await store.payload(found.seq)
        assert place is not None
        assert place.body == b"^XA^XZ"
    for job in done:
        assert await scene.state(job) == State.DONE
    assert await violations(store) == []
    again = await scene.try_submit(LANE, key="victim 0 1")
    assert not isinstance(again, Problem)
    await store.close()


async def test_work_submitted_elsewhere_wakes_a_parked_claim(hearing: Pair) -> None:
    here, there = hearing
    lane = here.id()
    ticket = there.store.claim_or_park(there.asks(there.id(), lane))
    await ticket.first()
    job = await here.submit(lane)
    (claimed,) = await ticket.result(10_000)
    assert claimed.job.id == job


async def test_a_periodic_look_finds_what_no_hint_told(pair: Pair) -> None:
    here, there = pair
    lane, idle = here.id(), here.id()
    there.store.writer.heard = lambda lane: None  # type: ignore[method-assign]  (hints are lost)
    ticket = there.store.claim_or_park(there.asks(there.id(), lane, idle))
    await ticket.first()
    await here.submit(lane)
    del there.store.writer.heard
    await there.store.look()
    assert len(await ticket.result(10_000)) == 1


async def test_a_periodic_look_finds_a_hedge_that_is_due(pair: Pair) -> None:
    here, there = pair
    lane = here.id()
    await here.submit(lane, HEDGED)
    await here.take(here.id(), lane)
    ticket = there.store.claim_or_park(there.asks(here.id(), lane))
    await ticket.first()
    here.clock.advance(HEDGED.hedge_after_ms or 0)
    await there.store.look()
    assert len(await ticket.result(10_000)) == 1


@pytest.mark.parametrize("jobs", [1, 400])
async def test_a_watcher_hears_of_changes_made_elsewhere(hearing: Pair, jobs: int) -> None:
    here, there = hearing
    lane = here.id()
    ids = await asyncio.gather(*(here.submit(lane) for _ in range(jobs)))
    watch = there.store.hub.watch(ids[0])
    await asyncio.gather(*(here.cancel(job) for job in ids))
    await asyncio.wait_for(watch, 10)


async def test_what_one_process_changes_in_the_registry_the_other_hears(hearing: Pair) -> None:
    here, there = hearing
    heard = asyncio.Event()
    there.store.registry.changed.append(heard.set)
    await here.store.registry.issue(ORG, "a", b"d" * 32, PERSON)
    await asyncio.wait_for(heard.wait(), 10)


async def test_after_a_lost_connection_everything_may_have_changed(hearing: Pair) -> None:
    here, there = hearing
    lane = here.id()
    ticket = there.store.claim_or_park(there.asks(there.id(), lane))
    await ticket.first()
    watch = there.store.hub.watch(here.id())
    await raw(
        here.store.database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND query LIKE 'LISTEN%'",
    )
    await here.submit(lane)
    assert len(await ticket.result(15_000)) == 1
    await asyncio.wait_for(watch, 10)


async def test_two_servers_that_settle_one_hedged_job_at_once_make_one_winner(pair: Pair) -> None:
    rounds, policy = 500, dataclasses.replace(HEDGED, lane="owner")
    here, there = pair
    lanes = [hashlib.sha256(b"lane %d" % n).digest()[:16] for n in range(rounds)]
    one, other, key = b"one".ljust(16), b"other".ljust(16), b"key".ljust(16)
    for lane in lanes:
        await here.submit(lane, policy, submitted_by=key)
    asks: dict[str, Any] = {"dialect": Dialect.SEED, "begin": True}
    firsts = [await here.take(one, lane, accept=False, session=one, **asks) for lane in lanes]
    here.clock.advance(policy.hedge_after_ms or 0)
    seconds = [await there.take(other, lane, accept=False, session=other, **asks) for lane in lanes]
    won: Counter[bytes] = Counter()

    async def settle(scene: Scene, claimed: Claimed) -> None:
        answer = await scene.store.settle(Settle(act=scene.unnamed(claimed), report=report(), bytes_out=1))
        won[claimed.attempt.agent_id] += not isinstance(answer, Problem) and answer.counted

    for first, second in zip(firsts, seconds, strict=True):
        await asyncio.gather(settle(here, first), settle(there, second))
    assert won.total() == rounds
    for agent in (one, other):
        figures = await there.store.counters(ORG, agent)
        assert figures.get("jobs_done", 0) == figures.get("bytes_out", 0) == won[agent]
    assert await here.store.counters(ORG, key) == {
        "claims": 2 * rounds, "jobs_done": rounds, "bytes_out": rounds,
    }  # fmt: skip
