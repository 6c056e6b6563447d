"""Who waits in this process: parked claims by lane, and watchers of single jobs."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable

from farhand.engine.requests import Claim, Claimed


class Ticket:
    """A claim that waits for work. `taken` while a transaction is about to answer it."""

    __slots__ = ("_hub", "_tried", "future", "request", "taken", "withdrawn")

    def __init__(self, request: Claim, hub: "Hub") -> None:
        self.request = request
        self.taken = False
        self.withdrawn = False
        self.future: asyncio.Future[list[Claimed]] = asyncio.get_running_loop().create_future()
        self._tried: asyncio.Future[None] | None = None
        self._hub = hub

    async def first(self) -> list[Claimed]:
        """What the claim's first look found; after that it is answered or parked."""
        if self.taken and not self.future.done():
            self._tried = asyncio.get_running_loop().create_future()
            await self._tried
            self._tried = None
        return self.future.result() if self.future.done() else []

    def looked(self) -> None:
        """The first look is over."""
        if self._tried is not None and not self._tried.done():
            self._tried.set_result(None)

    async def result(self, timeout_ms: int) -> list[Claimed]:
        """The jobs handed over; empty when the time ran out or the server is closing."""
        if not self.future.done():
            await asyncio.wait((self.future,), timeout=timeout_ms / 1000)
        return await self.settled()

    async def settled(self) -> list[Claimed]:
        """Stop waiting, and hand out what a transaction already gave to this claim."""
        self.withdrawn = True
        self._hub.withdraw(self)
        if self.taken and not self.future.done():
            await asyncio.wait((self.future,))
        return self.future.result() if self.future.done() else []

    def dismiss(self) -> None:
        """Stop waiting, with nothing; what a transaction is just handing to this claim still arrives."""
        self.withdrawn = True
        self._hub.withdraw(self)
        if not self.taken:
            self.answer([])

    def answer(self, jobs: list[Claimed]) -> None:
        """Hand the jobs to whoever waits."""
        if not self.future.done():
            self.future.set_result(jobs)
        self.looked()

    def fail(self, error: BaseException) -> None:
        """Pass an error to whoever waits."""
        if not self.future.done():
            self.future.set_exception(error)
        self.looked()


class Hub:
    """Parked claims and job watchers of one server process."""

    def __init__(self) -> None:
        self._lanes: dict[bytes, dict[int, Ticket]] = {}
        self._polls: dict[tuple[bytes, str], Ticket] = {}
        self._watchers: dict[bytes, set[asyncio.Future[None]]] = {}
        self._closed = False

    @property
    def parked_lanes(self) -> list[bytes]:
        """The lanes that somebody waits for."""
        return list(self._lanes)

    def park(self, ticket: Ticket) -> None:
        """Keep a claim until one of its lanes has work; after closing it is answered at once."""
        ticket.taken = False
        ticket.looked()
        if self._closed or ticket.withdrawn:
            ticket.answer([])
        if ticket.future.done():
            return
        self._replace(ticket)
        for lane in ticket.request.lanes:
            self._lanes.setdefault(lane, {})[id(ticket)] = ticket

    def _replace(self, ticket: Ticket) -> None:
        """An agent that polls again under the same id has given up its first connection."""
        poll_id = ticket.request.poll_id
        if poll_id is None:
            return
        key = (ticket.request.agent_id, poll_id)
        earlier = self._polls.get(key)
        if earlier is not None and earlier is not ticket:
            self.withdraw(earlier)
            earlier.answer([])
        self._polls[key] = ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a parked claim; nothing happens when it is not parked."""
        key = (ticket.request.agent_id, ticket.request.poll_id or "")
        if self._polls.get(key) is ticket:
            del self._polls[key]
        for lane in ticket.request.lanes:
            waiting = self._lanes.get(lane)
            if waiting is None:
                continue
            waiting.pop(id(ticket), None)
            if not waiting:
                del self._lanes[lane]

    def take(self, ready: Counter[bytes]) -> list[Ticket]:
        """Remove and return, oldest first, a claim for each job that became ready in a lane."""
        taken: list[Ticket] = []
        for lane, count in ready.items():
            for ticket in list(self._lanes.get(lane, {}).values())[:count]:
                self.withdraw(ticket)
                ticket.taken = True
                taken.append(ticket)
        return taken

    def tickets(self, lane: bytes) -> list[Ticket]:
        """The claims parked in a lane, oldest first."""
        return list(self._lanes.get(lane, {}).values())

    def changed(self, jobs: Iterable[bytes]) -> None:
        """Wake whoever watches these jobs."""
        for job in jobs:
            for future in self._watchers.pop(job, ()):
                if not future.done():
                    future.set_result(None)

    def changed_somewhere(self) -> None:
        """Wake every watcher: nobody knows what changed."""
        self.changed(list(self._watchers))

    def watch(self, job: bytes) -> asyncio.Future[None]:
        """A future that is set at the job's next change; hand it back with `unwatch`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(None)
        else:
            self._watchers.setdefault(job, set()).add(future)
        return future

    def unwatch(self, job: bytes, future: asyncio.Future[None]) -> None:
        """Stop watching."""
        with contextlib.suppress(KeyError):
            self._watchers[job].discard(future)
            if not self._watchers[job]:
                del self._watchers[job]

    def close(self) -> None:
        """Answer every parked claim with nothing and wake every watcher."""
        self._closed = True
        for waiting in list(self._lanes.values()):
            for ticket in list(waiting.values()):
                self.withdraw(ticket)
                ticket.answer([])
        self.changed_somewhere()
