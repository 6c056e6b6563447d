"""A process of its own over a database: the other side of races, and the victim of kill drills.

usage: python -m tests.storage.load URL ROLE NAME
Says `ready`, waits for a line on standard input, then does what its role says and prints what it
was promised as lines of JSON.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable

from farhand.engine.requests import Claim, JobFilter, Settle
from farhand.model.clock import SystemClock
from farhand.model.errors import Problem
from farhand.model.policy import COMMAND
from farhand.storage.store import Store
from farhand.testing.factories import ORG, Scene, report
from tests.storage.conftest import connect

LANE = b"lane of the race"
RACED = 300
AT_ONCE = 16


def say(**fields: object) -> None:
    """One promise that was kept, at once on its way out."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def in_parallel(work: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run with as many tasks as a busy server has requests."""
    rest = iter(list(work))

    async def loop() -> None:
        for task in rest:
            await task()

    await asyncio.gather(*(loop() for _ in range(AT_ONCE)))


async def race(scene: Scene, name: str) -> None:
    """Submit what the other process submits too, under the same keys; then claim against it."""

    async def keyed(n: int) -> None:
        answer = await scene.try_submit(LANE, key=f"key {n}")
        assert not isinstance(answer, Problem), answer.message
        say(keyed=n, job=answer.job_id.hex(), created=answer.created)

    async def active(n: int) -> None:
        answer = await scene.try_submit(b"elsewhere".ljust(16), COMMAND, active_key=f"active {n}")
        say(active=n, won=not isinstance(answer, Problem))

    async def retry(job: str) -> None:
        answer = await scene.retry(bytes.fromhex(job))
        say(retry=job, won=not isinstance(answer, Problem))

    async def claim(n: int) -> None:
        agent = f"{name} {n}".encode().ljust(16)
        while claimed := await scene.claim(agent, LANE, max=3, accept=True, poll_id=None):
            say(claimed=[c.job.id.hex() for c in claimed])

    await in_parallel([lambda n=n: keyed(n) for n in range(RACED)])
    await in_parallel([lambda n=n: active(n) for n in range(RACED)])
    finished = [
        job.id.hex() for job in await scene.store.jobs(JobFilter(org_id=ORG, state="cancelled", limit=1000))
    ]
    await in_parallel([lambda job=job: retry(job) for job in sorted(finished)])
    say(submitted=name)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*(claim(n) for n in range(8)))
    say(claimed_all=name)


async def work(scene: Scene, name: str) -> None:
    """Submit, claim, start and settle without end, until somebody pulls the plug."""

    async def submit(n: int) -> None:
        count = 0
        while True:
            count += 1
            answer = await scene.try_submit(LANE, key=f"{name} {n} {count}", payload=b"^XA^XZ")
            assert not isinstance(answer, Problem)
            say(submitted=answer.job_id.hex())

    async def agent(n: int) -> None:
        me = f"agent {n}".encode().ljust(16)
        turn = 0
        while True:
            turn += 1
            request = Claim(org_id=ORG, agent_id=me, lanes=(LANE,), max=4, accept=True, poll_id=f"{n} {turn}")
            ticket = scene.store.claim_or_park(request)
            for claimed in await ticket.result(1000):
                await scene.start(claimed, "spooling")
                done = Settle(act=scene.act(claimed), report=report(evidence="printed"))
                answer = await scene.store.settle(done)
                if not isinstance(answer, Problem):
                    say(done=claimed.job.id.hex())

    await asyncio.gather(*(submit(n) for n in range(4)), *(agent(n) for n in range(4)))


async def main(url: str, role: str, name: str) -> None:
    """Open the store, wait for the word, play the role."""
    store = Store(connect(url), SystemClock())
    await store.open()
    scene = Scene(store, SystemClock())  # type: ignore[arg-type]  (no time is moved by hand here)
    say(ready=name)
    await asyncio.to_thread(sys.stdin.readline)
    await {"race": race, "work": work}[role](scene, name)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
