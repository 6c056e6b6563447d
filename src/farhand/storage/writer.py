"""Group commit: concurrent requests share a transaction and are answered after its commit."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from farhand.engine.requests import Claim, Claimed
from farhand.engine.wakeups import Hub, Ticket
from farhand.model.clock import Clock
from farhand.storage.batch import Results, Work, run_batch
from farhand.storage.capabilities import Capabilities
from farhand.storage.database import Database, DatabaseGone, GuardFailed, StatementFailed
from farhand.storage.policies import Policies
from farhand.storage.session import Session

BATCH_MAX = 256
TRIES = 6


class Writer:
    """The queue of writes of one process.

    `observe`, None in production, is called with the number of requests of each commit.
    """

    def __init__(
        self, database: Database, clock: Clock, hub: Hub, *, jitter: Callable[[], float], solo: bool = False
    ) -> None:
        self.database = database
        self.clock = clock
        self.hub = hub
        self.policies = Policies()
        self.capabilities = Capabilities()
        self.observe: Callable[[int], None] | None = None
        self.next_due: int | None = 0
        self._jitter = jitter
        self._batch_max = 1 if solo else BATCH_MAX
        self._queue: deque[tuple[Work, asyncio.Future[Any]]] = deque()
        self._filled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    def start(self) -> None:
        """Begin to take requests."""
        self._tasks = [asyncio.create_task(self._loop()) for _ in range(self.database.writers)]

    async def close(self) -> None:
        """Finish what is queued, then stop."""
        self._closing = True
        self._filled.set()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    def put(self, work: Work) -> asyncio.Future[Any]:
        """Queue a request; the future is set after its commit."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._closing:
            future.set_exception(DatabaseGone("the server is shutting down"))
            return future
        self._queue.append((work, future))
        self._filled.set()
        return future

    async def do(self, verb: str, request: object) -> Any:
        """Queue a request and wait for its answer."""
        return await self.put(Work(verb=verb, request=request))

    async def claim(self, request: Claim) -> list[Claimed]:
        """Claim now."""
        return await self.put(Work(verb="claim", request=request))

    def claim_or_park(self, request: Claim) -> Ticket:
        """Claim now or wait parked; the ticket is answered either way."""
        ticket = Ticket(request, self.hub)
        ticket.taken = True
        future = self.put(Work(verb="claim", request=request, ticket=ticket))
        future.add_done_callback(lambda done: _pass_error(ticket, done))
        return ticket

    def reclaim_parked(self, ticket: Ticket) -> None:
        """Try a parked claim again because another process may have brought work for it."""
        self.hub.withdraw(ticket)
        ticket.taken = True
        future = self.put(Work(verb="claim", request=ticket.request, ticket=ticket))
        future.add_done_callback(lambda done: _pass_error(ticket, done))

    async def settle_then(self, verb: str, request: object, then: Claim) -> tuple[Any, Ticket]:
        """Run a verb and make a claim in the same transaction; the claim parks when it finds nothing."""
        ticket = Ticket(then, self.hub)
        ticket.taken = True
        answer = await self.put(Work(verb=verb, request=request, ticket=ticket))
        return answer, ticket

    async def _loop(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._filled.clear()
                await self._filled.wait()
                continue
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_max))]
            try:
                await self._run(batch)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)

    async def _run(self, batch: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        try:
            await self._commit(batch)
        except (StatementFailed, GuardFailed) as error:
            if len(batch) == 1:
                await self._again(batch, error)
                return
            for entry in batch:
                try:
                    await self._run([entry])
                except Exception as alone:
                    entry[1].set_exception(alone)

    async def _again(self, batch: list[tuple[Work, asyncio.Future[Any]]], error: Exception) -> None:
        """A request that failed alone is tried again: the guard then sees what it collided with."""
        for turn in range(TRIES):
            if isinstance(error, StatementFailed) and not error.transient and turn > 0:
                break
            try:
                await self._commit(batch)
                return
            except (StatementFailed, GuardFailed) as again:
                error = again
        raise error

    async def _commit(self, batch: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        works = [work for work, _ in batch]
        now = self.clock.now_ms()
        due = self.next_due is not None and self.next_due <= now and _claims(works)
        handed: list[tuple[Ticket, list[Claimed]]] = []
        try:
            async with self.database.transaction() as tx:
                session = Session(tx, now, self.policies, self._jitter, self.database.slot)
                results = await run_batch(
                    session, works, hub=self.hub, capabilities=self.capabilities, due=due
                )
                handed = results.handed
                if self.database.shared:
                    await _tell_others(session)
                if due or any(work.verb == "sweep" for work in works):
                    row = await tx.one("next_due", {})
                    next_due: int | None = row[0] if row is not None else None
                else:
                    next_due = self.next_due
        except BaseException:
            for ticket, _ in handed:
                self.hub.park(ticket)
            raise
        self.next_due = _earlier(next_due, session.due)
        for org_id, name, policy, row_id in session.new_policies:
            self.policies.remember(org_id, name, policy, row_id)
        self._answer(batch, results)
        self.hub.changed(session.jobs)
        if self.observe is not None:
            self.observe(len(batch))

    def _answer(self, batch: list[tuple[Work, asyncio.Future[Any]]], results: Results) -> None:
        for ticket, jobs in results.handed:
            self._answer_ticket(ticket, jobs)
        for work, future in batch:
            claimed = results.claims.get(id(work), [])
            if work.ticket is not None:
                # Parked here, before any later transaction begins, so that no wake-up is missed.
                self._answer_ticket(work.ticket, claimed)
            if not future.done():
                future.set_result(
                    claimed if isinstance(work.request, Claim) else results.answers.get(id(work))
                )

    def _answer_ticket(self, ticket: Ticket, claimed: list[Claimed]) -> None:
        if claimed:
            ticket.answer(claimed)
        else:
            self.hub.park(ticket)


def _pass_error(ticket: Ticket, done: asyncio.Future[Any]) -> None:
    if done.cancelled():
        ticket.answer([])
    elif (error := done.exception()) is not None:
        ticket.fail(error)


def _claims(works: list[Work]) -> bool:
    return any(isinstance(work.request, Claim) or work.ticket is not None for work in works)


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


async def _tell_others(session: Session) -> None:
    """One hint per transaction: the lanes that have work and the jobs that changed."""
    lanes = [lane.hex() for lane in session.ready]
    jobs = [job.hex() for job in session.jobs]
    if not lanes and not jobs:
        return
    message = ",".join(lanes) + ";" + ",".join(jobs)
    await session.tx.notify(message if len(message) < 7500 else "*")
