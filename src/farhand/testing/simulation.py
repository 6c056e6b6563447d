"""A deterministic simulation: engine, agents, people and sweeps on one clock, with injected faults.

A seed reproduces a run. What the store says is held against what the virtual printers really did.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from farhand.model.errors import Problem
from farhand.model.job import TERMINAL, State
from farhand.model.policy import PRINT, SECOND
from farhand.storage.database import Database
from farhand.storage.store import Store
from farhand.testing.clock import FakeClock
from farhand.testing.dice import Dice
from farhand.testing.factories import ORG, Scene
from farhand.testing.faults import FaultyDatabase
from farhand.testing.invariants import violations
from farhand.testing.simulated_agents import PrintAgent, SeedAgent, World

POLICY = dataclasses.replace(
    PRINT,
    lease_ms=20 * SECOND,
    seed_lease_ms=60 * SECOND,
    start_by_ms=300 * SECOND,
    deadline_ms=600 * SECOND,
    cancel_grace_ms=10 * SECOND,
    backoff_base_ms=5 * SECOND,
)
STEP_MS = 700
Connect = Callable[[], Database]


@dataclass(slots=True)
class Outcome:
    """What became of a run: broken promises in words, the trace, and how every job ended."""

    broken: list[str] = field(default_factory=list[str])
    trace: list[str] = field(default_factory=list[str])
    ends: dict[int, str] = field(default_factory=dict[int, str])
    sent: int = 0

    @property
    def digest(self) -> str:
        """The same for two runs in which the same happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


class Simulation:
    """One run over a database. `connect` gives a new connection after each restart of the server."""

    def __init__(self, seed: int, connect: Connect) -> None:
        self.dice = Dice(seed)
        self.clock = FakeClock()
        self.world = World(self.dice)
        self.scene: Scene
        self._connect = connect
        self._database: FaultyDatabase
        self._agents: list[PrintAgent] = []
        self._accepted: dict[str, bytes] = {}
        self._asked: list[str] = []
        self._lanes: list[bytes] = []

    async def run(self, steps: int) -> Outcome:
        """Let everything happen for so many steps, then let it come to rest, then look."""
        await self._start()
        self._people_the_world()
        self._database.refuse = self._database.lose = 3
        for _ in range(steps):
            await self._step()
        await self._come_to_rest()
        found = Outcome(trace=self.world.trace, sent=sum(self.world.sent.values()))
        await self._judge(found)
        await self.scene.store.close()
        return found

    async def _start(self) -> None:
        self._database = FaultyDatabase(self._connect(), self.dice)
        store = Store(self._database, self.clock, jitter=lambda: self.dice.below(1000) / 1000)
        await store.open()
        self.scene = Scene(store, self.clock) if not self._agents else self._moved(store)

    def _moved(self, store: Store) -> Scene:
        self.scene.store = store
        return self.scene

    def _people_the_world(self) -> None:
        for number, kind in enumerate((PrintAgent, PrintAgent, SeedAgent)):
            lane = self.scene.id()
            self._lanes.append(lane)
            for half in "ab":
                name = f"agent {number}{half}"
                self._agents.append(kind(name, self.scene, self.world, lane, self.scene.id()))

    async def _step(self) -> None:
        dice = self.dice
        self.clock.advance(dice.pick((1, STEP_MS, STEP_MS, 3 * STEP_MS)))
        if dice.chance(1):
            self.clock.advance(dice.pick((POLICY.lease_ms, POLICY.seed_lease_ms)))
        chosen = dice.below(100)
        if chosen < 15:
            await self._submit()
        elif chosen < 18:
            await self._cancel()
        elif chosen < 28:
            await self.world.ask(self.scene.store.sweep())
        elif chosen < 29:
            await self._restart()
        else:
            await dice.pick(self._agents).act()

    async def _submit(self) -> None:
        """A new job, or one whose answer got lost once more under its key."""
        again = self._asked and self.dice.chance(25)
        key = self.dice.pick(self._asked) if again else f"key {len(self._asked)}"
        if not again:
            self._asked.append(key)
        lane = self._lanes[self._asked.index(key) % len(self._lanes)]
        answer = await self.world.ask(self.scene.try_submit(lane, POLICY, key=key))
        if answer is None or isinstance(answer, Problem):
            self.world.say("client", f"lost {key}")
            return
        known = self._accepted.setdefault(key, answer.job_id)
        self.world.names.setdefault(answer.job_id, self._asked.index(key))
        self.world.say("client", "submitted", answer.job_id, answer.state)
        if known != answer.job_id:
            raise AssertionError(f"{key} stands for two jobs")

    async def _cancel(self) -> None:
        if self._accepted:
            job = self._accepted[self.dice.pick(sorted(self._accepted))]
            self.world.say("person", "cancels", job, await self.world.ask(self.scene.cancel(job)))

    async def _restart(self) -> None:
        self.world.say("server", "restarts")
        await self.scene.store.close()
        await self._start()
        self._database.refuse = self._database.lose = 3

    async def _come_to_rest(self) -> None:
        """No more faults and nothing new: agents finish what they hold, then time ends the rest."""
        self._database.refuse = self._database.lose = self.world.fault = 0
        for agent in self._agents:
            agent.asleep = 0
            for _ in range(40):
                for hand in list(agent.hands):
                    await agent.work_on(hand)
        for _ in range(40):
            self.clock.advance(POLICY.lease_ms)
            while await self.scene.store.sweep():
                pass

    async def _judge(self, found: Outcome) -> None:
        for words in await violations(self.scene.store):
            found.broken.append(words)
        for key in self._asked:
            # Whatever got lost on the way: the key leads to the one job there is, or makes it now.
            lane = self._lanes[self._asked.index(key) % len(self._lanes)]
            answer = await self.scene.try_submit(lane, POLICY, key=key)
            if isinstance(answer, Problem):
                found.broken.append(f"{key}: {answer.problem}")
                continue
            if key in self._accepted and answer.created:
                found.broken.append(f"{key} was accepted and is lost")
            if not answer.created:
                await self._judge_job(found, key, answer.job_id)

    async def _judge_job(self, found: Outcome, key: str, job_id: bytes) -> None:
        job = await self.scene.store.job(ORG, job_id)
        if job is None:
            found.broken.append(f"{key} is gone")
            return
        sent = self.world.sent[job_id]
        found.ends[self._asked.index(key)] = job.state
        if job.state not in TERMINAL and job.state != State.UNCERTAIN:
            found.broken.append(f"{key} hangs in {job.state}")
        if sent > 1:
            found.broken.append(f"{key} was printed {sent} times")
        if job.state == State.DONE and sent == 0:
            found.broken.append(f"{key} is done and was never printed")
        if sent and job.state not in (State.DONE, State.UNCERTAIN):
            found.broken.append(f"{key} was printed and is {job.state}")


async def simulate(seed: int, connect: Connect, steps: int) -> Outcome:
    """Run one seed. Raises nothing for a broken promise: those are in the outcome."""
    return await Simulation(seed, connect).run(steps)
