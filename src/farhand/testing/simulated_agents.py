"""Virtual agents and the printers behind them, for the simulation: what they do, and what really happened."""

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from farhand.engine.attempt import Held, Settled
from farhand.engine.report import Report
from farhand.engine.requests import Claimed, Release, Settle
from farhand.model.errors import Problem
from farhand.model.job import Dialect
from farhand.storage.database import DatabaseGone, StatementFailed
from farhand.testing.dice import Dice
from farhand.testing.factories import Scene, report

T = TypeVar("T")


@dataclass(slots=True)
class World:
    """The physical truth: how often each job's first byte went to a printer."""

    dice: Dice
    sent: Counter[bytes] = field(default_factory=Counter[bytes])
    trace: list[str] = field(default_factory=list[str])
    names: dict[bytes, int] = field(default_factory=dict[bytes, int])
    fault: int = 8

    def say(self, who: str, what: str, job: bytes | None = None, answer: object = "") -> None:
        """Append to the trace, in words that are the same in every run of a seed."""
        name = "" if job is None else f" job {self.names.get(job, '?')}"
        if isinstance(answer, Problem):
            answer = answer.problem
        elif isinstance(answer, Held | Settled):
            answer = answer.state
        self.trace.append(f"{who} {what}{name} {answer}".strip())

    async def ask(self, work: Awaitable[T]) -> T | None:
        """Ask the server; None when the answer, but not necessarily the deed, was lost."""
        try:
            answer = await work
        except (DatabaseGone, StatementFailed):
            return None
        return None if self.dice.chance(self.fault) else answer


@dataclass(slots=True)
class Hand:
    """One attempt in an agent's hands. `noted` is its journal, which survives a crash."""

    claimed: Claimed
    step: str = "claimed"
    acknowledged_at: int = 0
    noted: bool = False
    sent: bool = False
    told: Report | None = None


@dataclass(slots=True)
class PrintAgent:
    """A native agent: polls, starts, asks before its first byte, reports, and crashes now and then."""

    name: str
    scene: Scene
    world: World
    lane: bytes
    id: bytes
    hands: list[Hand] = field(default_factory=list[Hand])
    polls: int = 0
    repeat: bool = False
    asleep: int = 0

    async def act(self) -> None:
        """One thing that an agent does."""
        dice = self.world.dice
        if self.asleep > 0:
            self.asleep -= 1
            return
        if dice.chance(2):
            self.asleep = dice.below(12)
            return
        if dice.chance(3):
            self.crash()
            return
        if self.hands and dice.chance(85):
            await self.work_on(dice.pick(self.hands))
        elif len(self.hands) < 2:
            await self.poll()

    def crash(self) -> None:
        """Forget everything that is not in the journal; ask the printer about what is."""
        self.world.say(self.name, "crashes")
        self.hands = [hand for hand in self.hands if hand.noted or hand.told is not None]
        self.repeat = False
        for hand in self.hands:
            if hand.told is None:
                knows = self.world.dice.chance(60)
                hand.told = report(ok=hand.sent) if knows else report(ok=False, uncertain=True)

    async def poll(self) -> None:
        """Ask for work, under the same poll id again when the answer got lost."""
        if not self.repeat:
            self.polls += 1
        poll_id = f"{self.name} {self.polls}"
        accept = self.polls % 2 == 0
        claimed = await self.world.ask(
            self.scene.claim(self.id, self.lane, poll_id=poll_id, accept=accept, max=1 + self.polls % 2)
        )
        self.repeat = claimed is None
        known = {hand.claimed.attempt.token for hand in self.hands}
        for entry in claimed or []:
            if entry.attempt.token not in known:
                self.world.say(self.name, f"got attempt {entry.attempt.number} of", entry.job.id)
                self.hands.append(Hand(claimed=entry))

    async def work_on(self, hand: Hand) -> None:
        """The next step of one attempt."""
        if hand.told is not None:
            await self.tell(hand)
        elif hand.step == "claimed":
            await self.begin(hand)
        elif hand.step == "started":
            await self.ask_before_the_first_byte(hand)
        elif hand.step == "spooling":
            self.send(hand)
        else:
            hand.told = self.verdict(hand)

    async def begin(self, hand: Hand) -> None:
        """Start, or give it back."""
        if self.world.dice.chance(10):
            refuse = self.world.dice.chance(30)
            request = Release(act=self.scene.act(hand.claimed), refuse=refuse)
            answer = await self.world.ask(self.scene.store.release(request))
            self.world.say(self.name, "gives back", hand.claimed.job.id, answer)
            self.hands.remove(hand)
            return
        await self.hear(hand, self.scene.start(hand.claimed, "downloading"), "started")

    async def ask_before_the_first_byte(self, hand: Hand) -> None:
        """The phase from which there is no return has to be acknowledged first."""
        hand.noted = True
        if self.world.dice.chance(10):
            hand.told = report(ok=False, retryable=self.world.dice.chance(70), error="no paper")
            return
        await self.hear(hand, self.scene.heartbeat(hand.claimed, phase="spooling"), "spooling")

    async def hear(self, hand: Hand, work: Awaitable[Held | Problem], step: str) -> None:
        """Go on when the server says so; stop when it says stop or that the attempt is not ours."""
        asked_at = self.scene.clock.now_ms()
        answer = await self.world.ask(work)
        self.world.say(self.name, step, hand.claimed.job.id, answer)
        if isinstance(answer, Problem):
            self.hands.remove(hand)
        elif answer is not None and answer.directive != "continue":
            hand.told = report(ok=False, cancelled=True)
        elif answer is not None:
            hand.step, hand.acknowledged_at = step, asked_at

    def send(self, hand: Hand) -> None:
        """The first byte leaves, unless the last word from the server is too old to trust."""
        lease = hand.claimed.policy.lease_ms
        if self.scene.clock.now_ms() - hand.acknowledged_at > 0.8 * lease:
            hand.step = "started"
            return
        self.world.sent[hand.claimed.job.id] += 1
        self.world.say(self.name, "SENDS", hand.claimed.job.id)
        hand.sent, hand.step = True, "sent"

    def verdict(self, hand: Hand) -> Report:
        """What the printer says."""
        return report(ok=True, evidence="printed") if hand.sent else report(ok=False, uncertain=True)

    async def tell(self, hand: Hand) -> None:
        """Report until there is an answer, whatever it is."""
        assert hand.told is not None
        settle = Settle(act=self.scene.act(hand.claimed), report=hand.told)
        answer = await self.world.ask(self.scene.store.settle(settle))
        self.world.say(self.name, "tells of", hand.claimed.job.id, answer)
        if answer is not None:
            self.hands.remove(hand)


@dataclass(slots=True)
class SeedAgent(PrintAgent):
    """An agent of the seed: no tokens, no heartbeats, no journal; what it fetches it prints.

    It does one thing after the other. One that held the same job twice at once, from before and
    after a lost lease, could print it twice, and without a token nobody can tell its requests apart.
    """

    async def poll(self) -> None:
        """Ask for work when there is none in hand; what gets lost on the way stays lost."""
        if self.hands:
            return
        claimed = await self.world.ask(self.scene.claim(self.id, self.lane, dialect=Dialect.SEED))
        for entry in claimed or []:
            self.world.say(self.name, f"got attempt {entry.attempt.number} of", entry.job.id)
            self.hands.append(Hand(claimed=entry))

    def crash(self) -> None:
        """Forget everything."""
        self.world.say(self.name, "crashes")
        self.hands = []

    async def work_on(self, hand: Hand) -> None:
        """Fetch, print, report."""
        act = self.scene.unnamed(hand.claimed)
        if hand.step == "claimed":
            answer = await self.world.ask(self.scene.store.fetch_payload(act))
            self.world.say(self.name, "fetches", hand.claimed.job.id, answer)
            if not isinstance(answer, Held):
                self.hands.remove(hand)
                return
            hand.step = "fetched"
        elif hand.step == "fetched":
            self.world.sent[hand.claimed.job.id] += 1
            self.world.say(self.name, "SENDS", hand.claimed.job.id)
            hand.step, hand.sent = "sent", True
        else:
            done = Settle(act=act, report=report(ok=True))
            answer = await self.world.ask(self.scene.store.settle(done))
            self.world.say(self.name, "tells of", hand.claimed.job.id, answer)
            if answer is not None:
                self.hands.remove(hand)
