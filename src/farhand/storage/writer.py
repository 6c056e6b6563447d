"""Group commit: concurrent requests share a transaction and are answered after its commit."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from farhand.engine.requests import Claim, Claimed
from farhand.engine.wakeups import Hub, Ticket
from farhand.model.clock import Clock
from farhand.storage.batch import Results, Work, run_batch
from farhand.storage.capabilities import Capabilities
from farhand.storage.database import Database, DatabaseGone, GuardFailed, StatementFailed
from farhand.storage.memory import Memory
from farhand.storage.policies import Policies
from farhand.storage.session import Session
from farhand.storage.vault import Epoch, Vault

BATCH_MAX = 256
TRIES = 6
GATHER_TURNS = 8


@dataclass(slots=True, eq=False)
class Flight:
    """What others committed while one transaction was under way, and it may not have seen.

    `place` tells the transactions under way at one time apart, so that none waits for another's counters.
    """

    place: int
    due: int | None = None
    ready: set[bytes] = field(default_factory=set[bytes])
    parked: list[Ticket] = field(default_factory=list[Ticket])


class Writer:
    """The queue of writes of one process.

    `observe`, None in production, is called with the number of requests of each commit.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        hub: Hub,
        *,
        vault: Vault,
        jitter: Callable[[], float],
        solo: bool = False,
    ) -> None:
        self.database = database
        self.clock = clock
        self.hub = hub
        self.policies = Policies()
        self.capabilities = Capabilities()
        self.memory = Memory() if database.exclusive else None
        self.observe: Callable[[int], None] | None = None
        self.next_due: int | None = 0
        self.commits = 0
        self.requests = 0
        self._vault = vault
        self._jitter = jitter
        self._batch_max = 1 if solo else BATCH_MAX
        self._queue: deque[tuple[Work, asyncio.Future[Any]]] = deque()
        self._filled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._flights: list[Flight] = []
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

    def heard(self, lane: bytes) -> None:
        """Another process says that a lane has work: also tell the transactions under way."""
        for flight in self._flights:
            flight.ready.add(lane)
        for ticket in self.hub.tickets(lane):
            self.reclaim_parked(ticket)

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
        try:
            answer = await self.put(Work(verb=verb, request=request, ticket=ticket))
        except asyncio.CancelledError:
            # Nobody will ever collect what this claim gets: it must not stay parked.
            ticket.withdrawn = True
            self.hub.withdraw(ticket)
            raise
        return answer, ticket

    async def _loop(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._filled.clear()
                await self._filled.wait()
                continue
            await self._gather()
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_max))]
            if not batch:
                # Another writing connection took it all while this one gathered.
                continue
            try:
                await self._run(batch)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)

    async def _gather(self) -> None:
        """Let requests that have already arrived join the transaction; a commit costs more than a turn."""
        size = len(self._queue)
        for _ in range(GATHER_TURNS):
            await asyncio.sleep(0)
            if len(self._queue) <= size:
                return
            size = len(self._queue)

    async def _run(self, batch: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        """Commit a batch. When it fails its halves are tried, so that a bad request fails alone."""
        try:
            if len(batch) > 1:
                await self._commit(batch)
            else:
                await self._alone(batch)
            return
        except DatabaseGone:
            raise
        except Exception:
            if len(batch) == 1:
                raise
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            try:
                await self._run(half)
            except Exception as error:
                for _, future in half:
                    if not future.done():
                        future.set_exception(error)

    async def _alone(self, batch: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        """A single request that fails is tried again: the guard then sees what it collided with."""
        failed = 0
        while True:
            try:
                await self._commit(batch)
                return
            except (StatementFailed, GuardFailed) as error:
                failed += 1
                transient = isinstance(error, GuardFailed) or error.transient
                if failed >= (TRIES if transient else 2):
                    raise

    async def _commit(self, batch: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        works = [work for work, _ in batch]
        due = self.next_due is not None and self.next_due <= self.clock.now_ms() and _claims(works)
        results = Results()
        next_due: int | None = None
        sealed_in: list[Epoch] = []
        flight = Flight(self._free_place())
        self._flights.append(flight)
        try:
            async with self.database.transaction() as tx:
                now = self.clock.now_ms()
                slot = self.database.slot + flight.place
                session = Session(
                    tx, now, self.policies, self._jitter, slot, self._vault, sealed_in, self.memory
                )
                await run_batch(
                    session, works, results, hub=self.hub, capabilities=self.capabilities, due=due
                )
                if self.database.shared:
                    await _tell_others(session)
                swept = due or any(work.verb == "sweep" for work in works)
                if swept:
                    row = await tx.one("next_due", {})
                    next_due = row[0] if row is not None else None
        except BaseException:
            self._flights.remove(flight)
            for ticket, _ in results.handed:
                self._park(ticket, flight)
            raise
        finally:
            self._vault.let_go(sealed_in)
        self._flights.remove(flight)
        self.next_due = _earlier(_earlier(next_due, flight.due) if swept else self.next_due, session.due)
        session.keep()
        self._learn(session)
        self._answer(batch, results, flight)
        self._tell_flights(session, flight)
        self.hub.changed(session.jobs)
        self.commits += 1
        self.requests += len(batch)
        if self.observe is not None:
            self.observe(len(batch))

    def _free_place(self) -> int:
        taken = {flight.place for flight in self._flights}
        return next(place for place in range(len(taken) + 1) if place not in taken)

    def _learn(self, session: Session) -> None:
        for org_id, name, policy, row_id in session.new_policies:
            self.policies.remember(org_id, name, policy, row_id)
        self.policies.keep(session.read_policies)
        self.capabilities.keep(session.learned)

    def _answer(
        self, batch: list[tuple[Work, asyncio.Future[Any]]], results: Results, flight: Flight
    ) -> None:
        for ticket, jobs in results.handed:
            self._answer_ticket(ticket, jobs, flight)
        for work, future in batch:
            claimed = results.claims.get(id(work), [])
            if work.ticket is not None:
                self._answer_ticket(work.ticket, claimed, flight)
            if not future.done():
                future.set_result(
                    claimed if isinstance(work.request, Claim) else results.answers.get(id(work))
                )

    def _answer_ticket(self, ticket: Ticket, claimed: list[Claimed], flight: Flight) -> None:
        if claimed:
            ticket.answer(claimed)
        else:
            self._park(ticket, flight)

    def _park(self, ticket: Ticket, flight: Flight) -> None:
        """Park a claim that found nothing, unless work came up beside its own transaction."""
        missed = not flight.ready.isdisjoint(ticket.request.lanes)
        if missed and not ticket.withdrawn and not self._closing:
            self.reclaim_parked(ticket)
            return
        self.hub.park(ticket)
        for other in self._flights:
            other.parked.append(ticket)

    def _tell_flights(self, session: Session, flight: Flight) -> None:
        """Let transactions under way know of this one, and wake who parked beside it."""
        for other in self._flights:
            other.due = _earlier(other.due, session.due)
            other.ready |= session.ready.keys()
        for ticket in flight.parked:
            # Whoever asked has gone with nothing: what this claim found now would reach nobody.
            waits = not (ticket.taken or ticket.withdrawn or ticket.future.done())
            if waits and not session.ready.keys().isdisjoint(ticket.request.lanes):
                self.reclaim_parked(ticket)


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
