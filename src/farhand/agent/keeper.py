"""Keeps the lease of one attempt and carries word between the work and the server."""

import asyncio
import contextlib
import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET, UnsetType

from farhand.agent.backoff import Backoff
from farhand.agent.errors import LinkError, NoAnswer, Refused, ShutOut, Stale
from farhand.agent.handler import Abandoned, Withdrawn
from farhand.agent.link import Link
from farhand.agent.suspend import Waker, within
from farhand.model.clock import Clock
from farhand.protocol.agent import HeldReply, HeldRequest

START_AFTER_MS: Final = 100
FENCE: Final = 0.8
BEAT_MS: Final = 1_000
REASON_MAX: Final = 4000
_OVER: Final = frozenset({"failed", "cancelled", "expired"})

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What names an attempt to the server. `started`: it was begun by an earlier run."""

    job_id: str
    attempt: int
    lease_token: str
    started: bool = False


class Keeper:
    """One per attempt in hand, with a task of its own.

    The first message is `start`, sent when there is something to tell or soon after; the rest
    are heartbeats, in the rhythm the server asks for. `cancelled` is set when the work is to
    stop; `over` when the attempt is lost or nobody listens to us any more (`shut_out`).
    """

    def __init__(self, link: Link, clock: Clock, waker: Waker, hold: Hold) -> None:
        self.cancelled = asyncio.Event()
        self.over = asyncio.Event()
        self.shut_out: ShutOut | None = None
        self.directive = "continue"
        self._link = link
        self._clock = clock
        self._waker = waker
        self._hold = hold
        self._started = hold.started
        self._phase: str | None = None
        self._reason: str | None | UnsetType = UNSET
        self._news = asyncio.Event()
        self._tickets: list[asyncio.Future[None]] = []
        self._lease_ms = 0
        self._acknowledged_at: int | None = None

    async def run(self) -> None:
        """Beats until the attempt is over; cancel it when the work has ended."""
        due_ms = 0 if self._started else START_AFTER_MS
        backoff = Backoff(first_ms=500, cap_ms=10_000)
        with self._listening():
            while not self.over.is_set():
                await within(self._news, due_ms)
                self._news.clear()
                try:
                    reply = await self._beat()
                except NoAnswer as error:
                    log.warning("heartbeat_missed", extra={"job": self._hold.job_id, "error": str(error)})
                    await self._waker.sleep(backoff.next_ms(error.retry_after_ms))
                    due_ms = 0
                    continue
                except (Stale, Refused, ShutOut) as error:
                    self._lose(error)
                    return
                backoff.reset()
                due_ms = max(reply.heartbeat_ms, 1)

    def say(self, phase: str, reason: str | None) -> None:
        """Tells where the work stands; only the newest word counts."""
        reason = None if reason is None else reason[:REASON_MAX]
        if (phase, reason) != (self._phase, self._reason):
            self._phase, self._reason = phase, reason
            self._news.set()

    def beat(self) -> None:
        """Sends a heartbeat now, unless one has just been answered."""
        last = self._acknowledged_at
        if last is None or self._clock.monotonic_ms() - last >= BEAT_MS:
            self._news.set()

    async def ensure(self, phase: str) -> None:
        """Returns once the server has acknowledged this phase in a message sent from now on.

        Raises Withdrawn when it answers that the work is to stop, Abandoned when the attempt is
        not ours any more.
        """
        if self.over.is_set():
            raise Abandoned("the attempt is no longer ours")
        self._phase = phase
        ticket = asyncio.get_running_loop().create_future()
        self._tickets.append(ticket)
        self._news.set()
        await ticket

    def fresh(self) -> bool:
        """Whether the lease is surely ours for a while: four fifths of it have not passed.

        The age is counted from before the message was sent, on a clock that counts suspend.
        """
        if self._acknowledged_at is None or self.over.is_set():
            return False
        return self._clock.monotonic_ms() - self._acknowledged_at < FENCE * self._lease_ms

    async def _beat(self) -> HeldReply:
        tickets, self._tickets = self._tickets, []
        sent_at = self._clock.monotonic_ms()
        request = HeldRequest(lease_token=self._hold.lease_token, phase=self._phase, reason=self._reason)
        try:
            if self._started:
                reply = await self._link.heartbeat(self._hold.job_id, request)
            else:
                reply = await self._link.start(self._hold.job_id, request)
        except BaseException:
            self._tickets = tickets + self._tickets
            raise
        self._started = True
        self._lease_ms, self._acknowledged_at = reply.lease_ms, sent_at
        self._obey(reply.directive)
        for ticket in tickets:
            self._answer(ticket)
        return reply

    def _obey(self, directive: str) -> None:
        if directive in ("cancel", "abort") and not self.cancelled.is_set():
            log.info("job_stop", extra={"job": self._hold.job_id, "directive": directive})
            self.directive = directive
            self.cancelled.set()

    def _answer(self, ticket: asyncio.Future[None]) -> None:
        if ticket.done():
            return
        if self.cancelled.is_set():
            ticket.set_exception(Withdrawn("the server wants the job stopped"))
        else:
            ticket.set_result(None)

    def _lose(self, error: LinkError) -> None:
        log.warning(
            "lease_lost", extra={"job": self._hold.job_id, "attempt": self._hold.attempt, "error": str(error)}
        )
        if isinstance(error, ShutOut):
            self.shut_out = error
        # A person may have given the job up: then what can be taken back should be.
        if isinstance(error, Stale) and error.job_state in _OVER:
            self.cancelled.set()
        self.over.set()
        tickets, self._tickets = self._tickets, []
        for ticket in tickets:
            if not ticket.done():
                ticket.set_exception(Abandoned(error.message))

    @contextlib.contextmanager
    def _listening(self) -> Generator[None]:
        self._waker.listen(self._news)
        try:
            yield
        finally:
            self._waker.forget(self._news)
