"""One printer of a gateway: looked at by itself, so that a slow one keeps nobody waiting."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from farhand.agent.handler import Tools
from farhand.protocol.farm import DeclaredPrinter, PrinterOrder, PrinterReport, WorkReport
from farhand.systems.farm.drivers.base import Driver, DriverError, Refused, Snapshot
from farhand.systems.farm.rules import ACTIVE, Seen

LOOK_LIMIT_S: Final = 10.0
IDLE_LOOKS: Final = 5
"""A printer that does nothing is looked at so many times less often."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """An attempt in hand. `started` says whether its start may have been sent, and by this run."""

    job_id: str
    attempt: int
    remote: str
    tools: Tools
    phase: str = "downloading"
    started: str = "no"
    sent: int | None = None
    total: int | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Station:
    """A printer with its driver, what it shows, and what is in hand for it.

    `news` is called whenever there is something to tell the server at once.
    """

    def __init__(
        self, name: str, driver: Driver, declared: DeclaredPrinter, news: Callable[[], None]
    ) -> None:
        self.name = name
        self.driver = driver
        self.work: Work | None = None
        self.shown = Snapshot(state=Seen.UNKNOWN)
        self.looked = asyncio.Event()
        self.changed = asyncio.Event()
        self._declared = declared
        self._news = news
        self._full = False
        self._left: set[str] = set()
        self._control: asyncio.Task[None] | None = None

    async def run(self, look_ms: int) -> None:
        """Looks at the printer again and again until cancelled."""
        try:
            while True:
                await self.look()
                await self._clear_away()
                busy = self.work is not None or self.shown.state in ACTIVE
                await asyncio.sleep(look_ms * (1 if busy else IDLE_LOOKS) / 1000)
        finally:
            if self._control is not None:
                self._control.cancel()

    async def look(self) -> Snapshot:
        """What the printer shows now; offline when it does not say."""
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                shown = await self.driver.snapshot()
        except (DriverError, Refused) as error:
            shown = Snapshot(state=Seen.OFFLINE, reason=error.message)
        except (OSError, TimeoutError) as error:
            shown = Snapshot(state=Seen.OFFLINE, reason=f"the printer does not answer: {error or 'too slow'}")
        before, self.shown = self.shown, shown
        if not self._full or (before.state, before.identity) != (shown.state, shown.identity):
            self._full = True
            self._news()
        self.changed.set()
        self.looked.set()
        return shown

    def take(self, work: Work) -> None:
        """An attempt is in hand from now on."""
        self.work = work
        self._news()

    def drop(self, work: Work) -> None:
        """The attempt is over here; its file goes when the printer can be reached."""
        if self.work is work:
            self.work = None
        if work.started != "no" and not work.over.is_set():
            # The print goes on, and so does its file.
            return
        self._left.add(work.remote)
        self._news()

    def phase(self, work: Work, phase: str) -> None:
        """The work has come so far."""
        work.phase = phase
        self._news()

    def report(self) -> PrinterReport:
        """What the server is told."""
        shown, work = self.shown, self.work
        told = None
        if work is not None:
            told = WorkReport(
                job_id=work.job_id,
                attempt=work.attempt,
                phase=work.phase,
                started=work.started,  # pyright: ignore[reportArgumentType]  (one of the three words)
                sent=work.sent,
                total=work.total,
            )
        return PrinterReport(
            id=self.name,
            state=str(shown.state),  # pyright: ignore[reportArgumentType]  (the same words)
            full=self._full,
            identity=shown.identity,
            percent=shown.percent,
            remaining_ms=shown.remaining_ms,
            reason=None if shown.reason is None else shown.reason[:4000],
            temperatures=dict(shown.temperatures),
            declared=self._declared,
            work=told,
            watch_ms=self.driver.watch_ms,
        )

    def obey(self, order: PrinterOrder) -> None:
        """Does what the server answers; it says it again until the printer shows it."""
        work = self.work
        if work is not None and order.over:
            work.over.set()
        if order.directive == "continue":
            return
        if work is not None and work.started == "no":
            # Nothing prints yet: the attempt itself is called off, by its next heartbeat.
            work.tools.beat()
            return
        actions: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "cancel": self.driver.cancel,
            "pause": self.driver.pause,
            "resume": self.driver.resume,
        }
        busy = self._control is not None and not self._control.done()
        if self.shown.state in ACTIVE and not busy:
            self._control = asyncio.create_task(self._do(order.directive, actions[order.directive]))

    async def _do(self, word: str, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await action()
        except (DriverError, Refused, OSError) as error:
            log.warning(
                "farm_control_failed", extra={"printer": self.name, "verb": word, "error": str(error)}
            )
            return
        log.info("farm_control", extra={"printer": self.name, "verb": word})
        await self.look()

    async def _clear_away(self) -> None:
        """Removes what ended attempts left on the printer."""
        for remote in list(self._left):
            try:
                await self.driver.remove(remote)
            except (DriverError, Refused, OSError):
                return
            self._left.discard(remote)
