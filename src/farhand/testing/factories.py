"""Scenes: a store under test, its clock, and short words for what is done to it."""

import dataclasses
import hashlib
import itertools
from dataclasses import dataclass, field
from typing import Any, TypeVar

from farhand.engine.attempt import Held, Progress, Settled
from farhand.engine.report import Report
from farhand.engine.requests import (
    Act,
    Claim,
    Claimed,
    Order,
    Release,
    Retry,
    Settle,
    Submit,
    Submitted,
)
from farhand.model.errors import Problem
from farhand.model.job import Actor, Attempt, Dialect, Event, Job, Submission
from farhand.model.policy import PRINT, Policy
from farhand.storage.store import Store
from farhand.testing.clock import FakeClock

ORG = 1
PERSON = Actor(kind="key", id=b"person".ljust(16, b"\0"))
T = TypeVar("T")
FINGERPRINT = hashlib.sha256(b"one request").digest()


def submission(lane: bytes, **fields: Any) -> Submission:
    """A small print job in a lane; `fields` replace what it says."""
    given: dict[str, Any] = {"org_id": ORG, "kind": "print.raw", "lane": lane, **fields}
    return Submission(**given)


def report(*, ok: bool = True, **fields: Any) -> Report:
    """A report whose digest follows from what it says."""
    said = repr((ok, sorted(fields.items()))).encode()
    given: dict[str, Any] = {"ok": ok, "digest": hashlib.sha256(said).digest(), **fields}
    return Report(**given)


def refused(answer: object, code: str) -> Problem:
    """The answer as a Problem with this code. Raises AssertionError when it is anything else."""
    if not isinstance(answer, Problem) or answer.problem != code:
        raise AssertionError(f"expected the problem {code}, got {answer!r}")
    return answer


def granted(answer: T | Problem) -> T:
    """The answer itself. Raises AssertionError when it is a Problem."""
    if isinstance(answer, Problem):
        raise AssertionError(f"unexpected problem {answer.problem}: {answer.message}")
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that is written about one job."""

    job: dict[str, object]
    attempts: list[Attempt]
    events: list[Event]

    def but_events(self) -> tuple[dict[str, object], list[Attempt]]:
        """What a refused verb must not change even where it leaves an event."""
        return {name: value for name, value in self.job.items() if name != "version"}, self.attempts


@dataclass(slots=True)
class Scene:
    """A store and its clock. Verbs return the store's answer as it is; the nouns are never missing."""

    store: Store
    clock: FakeClock
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    def id(self) -> bytes:
        """A new id for an agent, a lane or a device; the n-th is the same in every run."""
        return hashlib.sha256(b"%d" % next(self._ids)).digest()[:16]

    async def submit(self, lane: bytes, policy: Policy = PRINT, **fields: Any) -> bytes:
        """Write down a job; its id."""
        return granted(await self.try_submit(lane, policy, **fields)).job_id

    async def try_submit(
        self, lane: bytes, policy: Policy = PRINT, *, key: str | None = None, **fields: Any
    ) -> Submitted | Problem:
        """Write down a job, with an idempotency key when one is given."""
        fingerprint = fields.pop("fingerprint", FINGERPRINT if key is not None else None)
        request = Submit(
            submission=submission(lane, **fields), policy=policy, idempotency_key=key, fingerprint=fingerprint
        )
        return await self.store.submit(request)

    def asks(self, agent: bytes, *lanes: bytes, **fields: Any) -> Claim:
        """A claim request; without a dialect a native one."""
        return Claim(org_id=ORG, agent_id=agent, lanes=lanes, **fields)

    async def claim(self, agent: bytes, *lanes: bytes, **fields: Any) -> list[Claimed]:
        """Ask for work now."""
        return await self.store.claim(self.asks(agent, *lanes, **fields))

    async def take(self, agent: bytes, lane: bytes, **fields: Any) -> Claimed:
        """Claim and accept exactly one job."""
        claimed = await self.claim(agent, lane, **{"accept": True, **fields})
        if len(claimed) != 1:
            raise AssertionError(f"expected one job, got {len(claimed)}")
        return claimed[0]

    async def take_seed(self, agent: bytes, lane: bytes, **fields: Any) -> Claimed:
        """Claim exactly one job as an agent of the seed dialect does."""
        return await self.take(agent, lane, dialect=Dialect.SEED, accept=False, **fields)

    def act(self, claimed: Claimed, **progress: Any) -> Act:
        """A write about an attempt, under its token."""
        return Act(
            org_id=ORG,
            job_id=claimed.job.id,
            agent_id=claimed.attempt.agent_id,
            token=claimed.attempt.token,
            progress=Progress(**progress),
        )

    def unnamed(self, claimed: Claimed) -> Act:
        """The same without the token."""
        return dataclasses.replace(self.act(claimed), token=None)

    async def start(self, claimed: Claimed, phase: str | None = None) -> Held | Problem:
        """Begin an attempt."""
        return await self.store.start(self.act(claimed, phase=phase))

    async def heartbeat(self, claimed: Claimed, **progress: Any) -> Held | Problem:
        """Renew a lease."""
        return await self.store.heartbeat(self.act(claimed, **progress))

    async def settle(self, claimed: Claimed, *, ok: bool = True, **fields: Any) -> Settled | Problem:
        """Report how an attempt ended."""
        return await self.store.settle(Settle(act=self.act(claimed), report=report(ok=ok, **fields)))

    async def release(self, claimed: Claimed, *, refuse: bool = False) -> Settled | Problem:
        """Give an attempt back, or refuse it."""
        return await self.store.release(Release(act=self.act(claimed), refuse=refuse, reason="given back"))

    def order(self, job_id: bytes, **fields: Any) -> Order:
        """A person's request about a job."""
        return Order(org_id=ORG, job_id=job_id, actor=PERSON, **fields)

    async def cancel(self, job_id: bytes) -> str | Problem:
        """A person cancels."""
        return await self.store.cancel(self.order(job_id))

    async def retry(self, job_id: bytes, policy: Policy = PRINT) -> Submitted | Problem:
        """A person asks for another go."""
        return await self.store.retry(Retry(order=self.order(job_id), policy=policy))

    async def lapse(self, claimed: Claimed) -> None:
        """Let the attempt's lease run out and sweep."""
        attempt = (await self.attempts(claimed.job.id))[claimed.attempt.number - 1]
        self.clock.advance_to(attempt.lease_until)
        await self.store.sweep()

    async def job(self, job_id: bytes) -> Job:
        """The job's row as it is, without what a read through the store would carry out."""
        async with self.store.database.read() as reader:
            row = await reader.one("job_by_id", {"org_id": ORG, "id": job_id})
        if row is None:
            raise AssertionError("the job is gone")
        return Job(*row)

    async def state(self, job_id: bytes) -> str:
        """The job's state."""
        return (await self.job(job_id)).state

    async def attempts(self, job_id: bytes) -> list[Attempt]:
        """The job's attempts in order."""
        job = await self.job(job_id)
        async with self.store.database.read() as reader:
            return [Attempt(*row) for row in await reader.all("job_attempts", {"job_seq": job.seq})]

    async def events(self, job_id: bytes) -> list[Event]:
        """The job's whole trail."""
        trail = await self.store.events(ORG, job_id, limit=10_000)
        if trail is None:
            raise AssertionError("the job is gone")
        return trail

    async def snapshot(self, job_id: bytes) -> Snapshot:
        """Everything that is written about the job."""
        job = await self.job(job_id)
        return Snapshot(
            job={f.name: getattr(job, f.name) for f in dataclasses.fields(job)},
            attempts=await self.attempts(job_id),
            events=await self.events(job_id),
        )
