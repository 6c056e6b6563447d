"""Printing through the Windows spooler: raw by itself, PDF by SumatraPDF.

The spooler knows when the last byte has left for the printer, and rarely more: a finished job
just leaves the queue. The evidence is therefore `delivered`.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from farhand.systems.printing.drivers import winspool
from farhand.systems.printing.drivers.base import (
    Cancelled,
    Capabilities,
    Document,
    Failed,
    Outcome,
    Printed,
    PrinterStatus,
    PrintOptions,
    Progress,
    Unknown,
    device_name,
)
from farhand.systems.printing.drivers.folder import file_name
from farhand.systems.printing.drivers.winspool import Spooler, SpoolError, SpoolJob, SpoolPrinter

NAME_MAX = 180
CHUNK = 256 * 1024
_ENDED = winspool.JOB_PRINTED | winspool.JOB_COMPLETE
_DROPPED = winspool.JOB_DELETING | winspool.JOB_DELETED
_SIDES = {"one-sided": "simplex", "long-edge": "duplexlong", "short-edge": "duplexshort"}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsTiming:
    """Milliseconds. `call_ms`: one spooler call, which a dead network printer can block;
    `pdf_ms`: after this SumatraPDF is killed.
    """

    poll_ms: int = 500
    call_ms: int = 30_000
    pdf_ms: int = 180_000


def windows_uri(printer: str) -> str:
    """`winspool://local/Name` of a Windows printer."""
    return f"winspool://local/{quote(printer, safe='')}"


def find_sumatra() -> Path | None:
    """SumatraPDF where it installs itself or on the PATH."""
    places = [os.environ.get(name) for name in ("LOCALAPPDATA", "PROGRAMFILES", "PROGRAMFILES(X86)")]
    for place in places:
        path = Path(place, "SumatraPDF", "SumatraPDF.exe") if place else None
        if path and path.is_file():
            return path
    found = shutil.which("SumatraPDF")
    return Path(found) if found else None


class WindowsDriver:
    """One Windows printer."""

    def __init__(
        self,
        uri: str,
        *,
        spooler: Spooler | None = None,
        sumatra: Path | None = None,
        timing: WindowsTiming | None = None,
    ):
        parts = urlsplit(uri)
        if parts.scheme != "winspool" or len(parts.path) < 2:
            raise ValueError(f"{uri!r} is no Windows printer; write winspool://local/Name")
        self.uri = uri
        self._printer = unquote(parts.path[1:])
        self._spooler = spooler or Spooler(winspool.load())
        self._sumatra = sumatra or find_sumatra()
        self._timing = timing or WindowsTiming()

    async def status(self) -> PrinterStatus:
        """What the spooler says; it may not notice a printer that was switched off."""
        try:
            found = await self._call(self._spooler.printers)
        except OSError as error:
            return PrinterStatus(state="unknown", reasons=(_words(error),), accepting=False)
        for printer in found:
            if printer.name == self._printer:
                return status_of(printer, pdf=self._sumatra is not None)
        reason = f"Windows has no printer {self._printer!r} for the account of the agent"
        return PrinterStatus(state="offline", reasons=(reason,), accepting=False)

    async def print(self, document: Document, progress: Progress) -> Outcome:
        """Spools the document and follows its job until it leaves the queue."""
        if document.mode == "pdf" and self._sumatra is None:
            return Failed(reason="PDF needs SumatraPDF on the agent's machine; install it")
        try:
            settings = print_settings(document.options, document.copies) if document.mode == "pdf" else ""
        except ValueError as error:
            return Failed(reason=str(error))
        try:
            handle = await self._call(self._spooler.open, self._printer)
        except OSError as error:
            return Failed(reason=_words(error), retryable=True)
        job = _QueueJob(self, handle, progress)
        try:
            if progress.cancelled.is_set():
                return Cancelled()
            await progress.spooling()
            if document.mode == "raw":
                return await self._print_raw(document, job)
            return await self._print_pdf(document, settings, job)
        finally:
            with suppress(OSError):
                await self._call(self._spooler.close, handle)

    async def fate(self, name: str, handle: str | None, progress: Progress) -> Outcome:
        """Follows the job while it is still queued; once gone, the queue does not tell how."""
        try:
            opened = await self._call(self._spooler.open, self._printer)
        except OSError as error:
            return Unknown(reason=_words(error))
        job = _QueueJob(self, opened, progress)
        try:
            found = await job.find(name)
            if found is None:
                return Unknown(reason="the job has left the Windows queue, which keeps no record of it")
            with suppress(OSError):
                await progress.handed(str(found.id))
            return await job.follow(found.id)
        except OSError as error:
            return Unknown(reason=_words(error))
        finally:
            with suppress(OSError):
                await self._call(self._spooler.close, opened)

    async def _print_raw(self, document: Document, job: "_QueueJob") -> Outcome:
        try:
            job_id = await self._call(self._spooler.start, job.handle, device_name(document.name, NAME_MAX))
        except OSError as error:
            return Failed(reason=_words(error), retryable=True)
        # The queue is asked by name after a crash, so that a failing journal costs nothing.
        with suppress(OSError):
            await job.progress.handed(str(job_id))
        try:
            with await asyncio.to_thread(document.path.open, "rb") as file:
                for _ in range(document.copies):
                    await asyncio.to_thread(file.seek, 0)
                    while chunk := await asyncio.to_thread(file.read, CHUNK):
                        if job.progress.cancelled.is_set():
                            return await job.follow(job_id)
                        await self._call(self._spooler.write, job.handle, chunk)
            await self._call(self._spooler.end, job.handle)
            return await job.follow(job_id)
        except OSError as error:
            with suppress(OSError):
                await self._call(self._spooler.delete, job.handle, job_id)
            return Unknown(reason=f"the spooler stopped taking data: {_words(error)}")

    async def _print_pdf(self, document: Document, settings: str, job: "_QueueJob") -> Outcome:
        # SumatraPDF names the job after the file, which is how the job is found again.
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="farhand-"))
        try:
            copy = folder / (file_name(document.name) + ".pdf")
            await asyncio.to_thread(shutil.copyfile, document.path, copy)
            trouble = await self._run_sumatra(copy, settings, job)
            return await self._after_sumatra(document.name, trouble, job)
        except OSError as error:
            return Unknown(reason=_words(error))
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _run_sumatra(self, path: Path, settings: str, job: "_QueueJob") -> Outcome | None:
        """None when it ended well, else what is known if the queue has no job of it."""
        command = [str(self._sumatra), "-print-to", self._printer, "-silent", "-exit-when-done"]
        if settings:
            command += ["-print-settings", settings]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(path),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            return Failed(reason=f"SumatraPDF cannot be started: {_words(error)}", retryable=True)
        ending = asyncio.ensure_future(process.wait())
        cancel = asyncio.ensure_future(job.progress.cancelled.wait())
        try:
            await asyncio.wait(
                (ending, cancel), timeout=self._timing.pdf_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            if not ending.done():
                word = "on a cancel" if cancel.done() else f"after {self._timing.pdf_ms} ms"
                return Unknown(reason=f"SumatraPDF was killed {word} while it printed")
            if ending.result() == 0:
                return None
            return Failed(reason=f"SumatraPDF cannot print the document (exit code {ending.result()})")
        finally:
            cancel.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _after_sumatra(self, name: str, trouble: Outcome | None, job: "_QueueJob") -> Outcome:
        found = await job.find(name)
        if found is not None:
            with suppress(OSError):
                await job.progress.handed(str(found.id))
            return await job.follow(found.id)
        # A fast printer has emptied its queue before SumatraPDF returned.
        return trouble or Printed(evidence="delivered")

    async def _call(self, function: Callable[..., _T], *arguments: object) -> _T:
        # A call that hangs keeps its thread; the print goes on without it.
        async with asyncio.timeout(self._timing.call_ms / 1000):
            return await asyncio.to_thread(function, *arguments)

    async def look(self, handle: object, job_id: int) -> SpoolJob | None:
        """A job, None when it has left the queue."""
        return await self._call(self._spooler.job, handle, job_id)

    async def queue(self, handle: object) -> list[SpoolJob]:
        """Every job in the queue."""
        return await self._call(self._spooler.jobs, handle)

    async def drop(self, handle: object, job_id: int) -> None:
        """Deletes a job; one that is gone already is no error."""
        with suppress(SpoolError):
            await self._call(self._spooler.delete, handle, job_id)

    async def rest(self) -> None:
        """Until the next look."""
        await asyncio.sleep(self._timing.poll_ms / 1000)


class _QueueJob:
    def __init__(self, driver: WindowsDriver, handle: object, progress: Progress):
        self.handle, self.progress = handle, progress
        self._driver = driver

    async def find(self, name: str) -> SpoolJob | None:
        wanted = (device_name(name, NAME_MAX), file_name(name))
        for job in await self._driver.queue(self.handle):
            if any(text in job.document for text in wanted):
                return job
        return None

    async def follow(self, job_id: int) -> Outcome:
        """Until the job has left the queue; its last status tells how."""
        last = 0
        dropped = False
        reported: tuple[str, str | None] | None = None
        while (job := await self._driver.look(self.handle, job_id)) is not None:
            last |= job.status & (_DROPPED | _ENDED)
            if job.status & _ENDED and not job.status & _DROPPED:
                return Printed(evidence="delivered")
            if self.progress.cancelled.is_set() and not dropped:
                dropped = True
                await self._driver.drop(self.handle, job_id)
            report = _report(job)
            if report != reported:
                reported = report
                await self.progress.report(*report)
            await self._driver.rest()
        if not (last & _DROPPED or dropped):
            return Printed(evidence="delivered")
        if self.progress.cancelled.is_set():
            return Cancelled()
        return Failed(reason="cancelled in the Windows queue")


def status_of(printer: SpoolPrinter, *, pdf: bool) -> PrinterStatus:
    """A printer's state from the spooler's bits."""
    reasons = [words for bit, words in winspool.PRINTER_WORDS.items() if printer.status & bit]
    state = "idle"
    if printer.status & winspool.PRINTER_PRINTING:
        state = "printing"
    if printer.status & (winspool.PRINTER_PAUSED | winspool.PRINTER_ERROR):
        state = "stopped"
    if printer.status & winspool.PRINTER_OFFLINE or printer.attributes & winspool.ATTRIBUTE_WORK_OFFLINE:
        state = "offline"
        reasons = reasons or ["Windows has set the printer offline"]
    return PrinterStatus(state=state, reasons=tuple(reasons), capabilities=Capabilities(raw=True, pdf=pdf))


def print_settings(options: PrintOptions, copies: int) -> str:
    """Options as SumatraPDF's -print-settings; ValueError for what it cannot do."""
    _refuse_unknown(options)
    words: list[str] = []
    if options.pages and options.pages.strip() != "-":
        words.append(options.pages.replace(" ", ""))
    if options.fit_to_page is not None:
        words.append("fit" if options.fit_to_page else "noscale")
    if options.color is not None:
        words.append("color" if options.color else "monochrome")
    if options.duplex:
        words.append(_SIDES[options.duplex])
    for key, value in (("paper", options.paper), ("bin", options.bin)):
        if value and "," in value:
            raise ValueError(f"{key} {value!r} has a comma, which SumatraPDF does not take")
        if value:
            words.append(f"{key}={value}")
    if copies != 1:
        words.append(f"{copies}x")
    return ",".join(words)


def _refuse_unknown(options: PrintOptions) -> None:
    asked = {
        "dpi": options.dpi is not None,
        "media": options.media is not None,
        "nup": options.nup not in (None, 1),
        "rotate": options.rotate not in (None, 0),
    }
    names = ", ".join(name for name, wanted in asked.items() if wanted)
    if names:
        raise ValueError(f"{names}: SumatraPDF cannot set this; set it in the Windows printer's preferences")


def _report(job: SpoolJob) -> tuple[str, str | None]:
    reasons = [words for bit, words in winspool.JOB_WORDS.items() if job.status & bit]
    if reasons:
        return "paused", "; ".join([*reasons, *([job.status_text] if job.status_text else [])])
    return ("printing" if job.status & winspool.JOB_PRINTING else "starting"), None


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "the Windows spooler does not answer"
    return error.strerror or str(error)
