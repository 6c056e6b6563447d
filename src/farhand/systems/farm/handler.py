"""What a gateway does: brings files to printers, starts them once, and tells what they show.

How a print ended is for the server to say, which hears of every state; the gateway reports a
result of its own only where nothing was started.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from farhand.agent.backoff import Backoff
from farhand.agent.errors import NoAnswer, Refused, Stale
from farhand.agent.handler import (
    Decided,
    GoesOn,
    Line,
    NotNow,
    ResultDraft,
    Setup,
    Tools,
    Unfinished,
)
from farhand.model.ids import parse_id
from farhand.protocol.agent import ClaimedJob, PrinterInfo
from farhand.protocol.farm import TelemetryReply, TelemetryRequest
from farhand.systems.farm.drivers import base
from farhand.systems.farm.names import mark, mark_in, remote_name
from farhand.systems.farm.rules import READY, Seen
from farhand.systems.farm.settings import read_settings
from farhand.systems.farm.station import Station, Work

UPLOAD_TRIES: Final = 3
TELEMETRY: Final = "/agent/telemetry"
log = logging.getLogger(__name__)


class _Params(msgspec.Struct, frozen=True):
    filename: str
    sha256: str | None = None


class _Memo(msgspec.Struct, frozen=True):
    """What is noted before a start: enough to follow the print without its file."""

    remote: str


class FarmHandler:
    """A gateway in front of the printers of printers.toml; without a `[farm]` table it does nothing."""

    kinds: Sequence[str] = ("farm.print",)

    def __init__(self, setup: Setup) -> None:
        self._settings = read_settings(setup.section, setup.folder, setup.clock)
        self._boot = secrets.token_hex(8)
        self._seq = 0
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        printers = self._settings.printers if self._settings is not None else ()
        self._stations = {
            one.id: Station(one.id, one.driver, one.declared, self._news.set) for one in printers
        }

    async def describe(self) -> Sequence[PrinterInfo]:
        """None: a printer of a farm is claimed by a person, and not by being there."""
        return ()

    async def aclose(self) -> None:
        """Frees what the drivers hold."""
        for station in self._stations.values():
            await station.driver.aclose()

    async def stand(self, line: Line) -> None:
        """Looks at every printer and tells what it shows, until cancelled. Raises ShutOut."""
        settings = self._settings
        if settings is None:
            return
        self._stopping = line.stopping
        async with asyncio.TaskGroup() as group:
            for station in self._stations.values():
                group.create_task(station.run(settings.look_ms))
            group.create_task(self._tell_all(line, settings.farm, settings.telemetry_ms))

    async def _tell_all(self, line: Line, farm: str, every_ms: int) -> None:
        backoff = Backoff()
        while True:
            self._news.clear()
            wait_ms = every_ms
            try:
                await self._tell(line, farm)
                backoff.reset()
            except NoAnswer as error:
                wait_ms = backoff.next_ms(error.retry_after_ms)
                log.warning("telemetry_missed", extra={"error": str(error), "retry_ms": wait_ms})
            except (Refused, Stale) as error:
                wait_ms = backoff.next_ms()
                log.error("telemetry_refused", extra={"error": error.message, "retry_ms": wait_ms})
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._news.wait()

    async def _tell(self, line: Line, farm: str) -> None:
        self._seq += 1
        stations = list(self._stations.values())
        told = [(station, station.work) for station in stations]
        message = TelemetryRequest(
            farm=farm,
            boot_id=self._boot,
            seq=self._seq,
            printers=[station.report() for station in stations],
        )
        reply = await line.tell(TELEMETRY, message, TelemetryReply)
        orders = {order.id: order for order in reply.printers}
        line.lanes({o.printer_id: o.id for o in reply.printers if o.printer_id is not None})
        for station, work in told:
            order = orders.get(station.name)
            # An answer is about what was told: work that was taken up meanwhile is not meant.
            if order is not None and station.work is work:
                station.obey(order)

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        """Brings one file to its printer and starts it. Raises NotNow, Decided, GoesOn."""
        station = self._stations.get(tools.device or "")
        job_id = parse_id(job.job_id)
        if station is None or job_id is None:
            raise NotNow("the printer is no longer in the gateway's printers.toml")
        params = msgspec.convert(job.params, type=_Params)
        remote = remote_name(mark(job_id, job.attempt), params.filename)
        work = Work(job_id=job.job_id, attempt=job.attempt, remote=remote, tools=tools)
        station.take(work)
        try:
            failed = await _unless_over(work, self._bring(station, work, params, job_id))
            if failed is not None:
                return failed
            await tools.no_return("starting", msgspec.json.encode(_Memo(remote)).decode())
            failed = await self._start(station, work)
            if failed is not None:
                return failed
            await self._follow(station, work)
        finally:
            station.drop(work)
        raise Decided("the server knows how the print ended")

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        """Follows a print that an earlier run started, or was about to. Raises Decided, GoesOn."""
        station = self._stations.get(work.device or "")
        try:
            memo = msgspec.json.decode(work.memo or "", type=_Memo)
        except msgspec.DecodeError as error:
            reason = f"the gateway stopped at a start, and its notes cannot be read: {error}"
            return ResultDraft(ok=False, uncertain=True, error=reason)
        if station is None:
            reason = "the gateway stopped at a start, and the printer is no longer in its printers.toml"
            return ResultDraft(ok=False, uncertain=True, error=reason)
        found = Work(
            job_id=work.job_id,
            attempt=work.attempt,
            remote=memo.remote,
            tools=tools,
            phase="starting",
            started="before",
        )
        station.take(found)
        try:
            await self._follow(station, found)
        finally:
            station.drop(found)
        raise Decided("the server knows how the print ended")

    async def _bring(
        self, station: Station, work: Work, params: _Params, job_id: bytes
    ) -> ResultDraft | None:
        """The file onto the printer; a draft when it cannot be done. Raises NotNow, PayloadError."""
        path = await work.tools.payload()
        wrong = await asyncio.to_thread(_differs, path, params.sha256)
        if wrong is not None:
            return ResultDraft(ok=False, error=wrong)
        for earlier in range(1, work.attempt):
            with suppress(base.DriverError, base.Refused, OSError):
                await station.driver.remove(remote_name(mark(job_id, earlier), params.filename))
        await work.tools.report("uploading", None)
        station.phase(work, "uploading")
        failed = await _upload(station, work, path)
        if failed is not None:
            return failed
        shown = await station.look()
        if shown.state not in READY:
            raise NotNow(f"the printer is {shown.state}; nothing was started")
        return None

    async def _start(self, station: Station, work: Work) -> ResultDraft | None:
        """Sends the start once; a draft when it surely did not begin."""
        shown = await station.look()
        if shown.state not in READY:
            error = f"the printer was taken just before the start ({shown.state}); nothing was started"
            return ResultDraft(ok=False, error=error)
        work.started = "here"
        station.phase(work, "starting")
        try:
            await station.driver.start(work.remote)
        except base.Refused as error:
            work.started = "no"
            return ResultDraft(ok=False, error=f"the printer refused the start: {error.message}")
        except (base.DriverError, OSError) as error:
            log.warning("farm_start_unanswered", extra={"printer": station.name, "error": str(error)})
        await station.look()
        return None

    async def _follow(self, station: Station, work: Work) -> None:
        """Until the server has decided. Raises GoesOn when the gateway stops before."""
        while not work.over.is_set():
            if self._stopping.is_set():
                raise GoesOn("the printer works on without the gateway")
            station.changed.clear()
            await _first(work.over.wait(), self._stopping.wait(), station.changed.wait())
            await _say_phase(station, work)


async def _upload(station: Station, work: Work, path: Path) -> ResultDraft | None:
    def sent(now: int, total: int) -> None:
        work.sent, work.total = now, total

    backoff = Backoff()
    tries = 0
    while True:
        tries += 1
        try:
            await station.driver.upload(path, work.remote, sent)
            return None
        except base.Refused as error:
            return ResultDraft(ok=False, error=f"the printer refused the file: {error.message}")
        except (base.DriverError, OSError) as error:
            if tries >= UPLOAD_TRIES:
                what = f"the file could not be brought to the printer in {tries} tries: {error}"
                return ResultDraft(ok=False, error=what)
            log.warning("farm_upload_failed", extra={"printer": station.name, "error": str(error)})
        await asyncio.sleep(backoff.next_ms() / 1000)


async def _say_phase(station: Station, work: Work) -> None:
    """Heartbeats carry the phase, too: let it be the one that the printer shows."""
    shown = station.shown
    ours = mark_in(shown.identity) == mark_in(work.remote)
    if not ours and (shown.identity or work.started != "here"):
        return
    if shown.state == Seen.PRINTING:
        work.phase = "printing"
        await work.tools.report("printing", shown.reason)
    elif shown.state == Seen.PAUSED:
        work.phase = "paused"
        await work.tools.report("paused", shown.reason or "paused")


async def _unless_over(work: Work, doing: Coroutine[Any, Any, ResultDraft | None]) -> ResultDraft | None:
    """The work before a start; given up as soon as the server says that it is over."""
    task = asyncio.ensure_future(doing)
    over = asyncio.ensure_future(work.over.wait())
    try:
        await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Decided("the server took the job back before anything was started")
    finally:
        over.cancel()
        task.cancel()
        await asyncio.wait((task,))


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _differs(path: Path, sha256: str | None) -> str | None:
    if sha256 is None:
        return None
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return None if found == sha256 else "the file that arrived is not the one that was submitted (SHA-256)"
