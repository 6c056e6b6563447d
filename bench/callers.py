"""Callers that take jobs through their whole life in the Store itself, without HTTP."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench import messages
from bench.wire import Refused
from farhand.engine.attempt import Report
from farhand.engine.requests import Act, Claim, Claimed, Settle, Submit, Submitted
from farhand.model.clock import Clock, SystemClock
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.model.job import Actor, Dialect, Submission
from farhand.model.policy import COMMAND, PRINT, Policy
from farhand.storage.database import Database
from farhand.storage.postgres import PostgresDatabase
from farhand.storage.sqlite import SqliteDatabase
from farhand.storage.store import Store
from farhand.systems.commands.kind import FAMILY, kind_of

ORG = 1
COMMAND_KIND = kind_of("whatsapp.status")
CLIENT = Actor(kind="root")
T = TypeVar("T")


def database_of(url: str, writers: int | None = None) -> Database:
    """The database behind an address, opened as the server opens it, or with so many connections."""
    if url.startswith("sqlite:///"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")), exclusive=True)
    return PostgresDatabase(url) if writers is None else PostgresDatabase(url, writers=writers)


@asynccontextmanager
async def opened(
    url: str, *, solo: bool = False, writers: int | None = None, clock: Clock | None = None
) -> AsyncGenerator[Store]:
    """A store on the system's own clock, unless another one is given."""
    store = Store(database_of(url, writers), clock or SystemClock(), solo=solo)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def granted(answer: T | Problem) -> T:
    """The answer itself. Raises Refused when it is a Problem."""
    if isinstance(answer, Problem):
        raise Refused(f"the store answered {answer.problem}: {answer.message}")
    return answer


@dataclass(slots=True, kw_only=True)
class Caller:
    """One submitter and its agent, with a lane of their own; every step is awaited to its commit.

    The steps are those of the five requests of seed 000: submit, claim, payload, result, state.
    """

    store: Store
    policy: Policy = PRINT
    lane: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    agent: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    report: Report = field(default_factory=lambda: Report(ok=True, digest=secrets.token_bytes(32)))

    async def submit(self, payload: bytes = messages.LABEL, **fields: Any) -> bytes:
        """Write down a job with its payload; its id."""
        submission = Submission(
            org_id=ORG,
            kind="print.raw",
            lane=self.lane,
            agent_id=self.agent,
            device_id=self.lane,
            mode="raw",
            payload=payload,
            actor=CLIENT,
            **fields,
        )
        done: Submitted = granted(await self.store.submit(Submit(submission=submission, policy=self.policy)))
        return done.job_id

    async def claim(self) -> Claimed:
        """Take the lane's head as an agent of the seed dialect does. Raises Refused when there is none."""
        request = Claim(org_id=ORG, agent_id=self.agent, lanes=(self.lane,), dialect=Dialect.SEED)
        claimed = await self.store.claim(request)
        if len(claimed) != 1:
            raise Refused(f"a claim of one job got {len(claimed)}")
        return claimed[0]

    def act(self, job_id: bytes) -> Act:
        """A seed agent names no token: it means its open attempt."""
        return Act(org_id=ORG, job_id=job_id, agent_id=self.agent)

    async def start(self, job_id: bytes) -> None:
        """Start the job, as a seed agent does by taking its payload."""
        granted(await self.store.fetch_payload(self.act(job_id)))

    async def fetch(self, job_id: bytes) -> None:
        """Start the job and read its payload."""
        await self.start(job_id)
        job = await self.store.job(ORG, job_id)
        place = await self.store.payload(job.seq) if job is not None else None
        if place is None or place.body is None:
            raise Refused("a job has no payload")

    async def settle(self, job_id: bytes) -> None:
        """Report success."""
        done = granted(await self.store.settle(Settle(act=self.act(job_id), report=self.report)))
        if done.state != "done":
            raise Refused(f"a job was settled as {done.state}")

    async def look(self, job_id: bytes) -> None:
        """Read the state."""
        job = await self.store.job(ORG, job_id)
        if job is None or job.state != "done":
            raise Refused("a settled job is not done")

    async def life(self, payload: bytes = messages.LABEL, **fields: Any) -> None:
        """The four writes of a job: submit, claim, start, settle."""
        await self.submit(payload, **fields)
        job_id = (await self.claim()).job.id
        await self.start(job_id)
        await self.settle(job_id)


@dataclass(slots=True, kw_only=True)
class CommandCaller(Caller):
    """One issuer of commands and its agent, whose lane is the agent's own; a claim is the start.

    With `guarded` the active key is set as the server sets it: one live command per agent and type.
    """

    policy: Policy = COMMAND
    guarded: bool = False
    report: Report = field(
        default_factory=lambda: Report(ok=True, digest=secrets.token_bytes(32), result=messages.RESULT)
    )

    def __post_init__(self) -> None:
        self.lane = self.agent

    async def submit(self, payload: bytes = b"", **fields: Any) -> bytes:
        """Write down a command; its id. It has parameters and no payload."""
        active = self.policy.active_key if self.guarded else None
        submission = Submission(
            org_id=ORG,
            kind=COMMAND_KIND,
            lane=self.lane,
            agent_id=self.agent,
            params=messages.PARAMS,
            active_key=None
            if active is None
            else active.format(agent=id_text(self.agent), kind=COMMAND_KIND),
            actor=CLIENT,
            **fields,
        )
        done: Submitted = granted(await self.store.submit(Submit(submission=submission, policy=self.policy)))
        return done.job_id

    async def claim(self) -> Claimed:
        """Collect the command. Raises Refused when there is none."""
        request = Claim(org_id=ORG, agent_id=self.agent, lanes=(self.lane,), dialect=Dialect.SEED, begin=True)
        claimed = await self.store.claim(request)
        if len(claimed) != 1:
            raise Refused(f"a claim of one command got {len(claimed)}")
        return claimed[0]

    def act(self, job_id: bytes) -> Act:
        """The agent means its open attempt, of a command and nothing else."""
        return Act(org_id=ORG, job_id=job_id, agent_id=self.agent, family=FAMILY)

    async def start(self, job_id: bytes) -> None:
        """Nothing is left to do: the claim was the start."""


async def everyone(callers: list[Caller], step: Callable[[Caller], Awaitable[object]]) -> None:
    """Let all callers take a step at once."""
    await asyncio.gather(*(step(caller) for caller in callers))
