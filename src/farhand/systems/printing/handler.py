"""What the agent does with a print job."""

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from farhand.agent.handler import ResultDraft, Setup, Tools, Unfinished
from farhand.protocol.agent import ClaimedJob, PrinterInfo
from farhand.systems.printing.discover import ListedPrinter, default_name, discover, driver_for
from farhand.systems.printing.drivers.base import (
    Cancelled,
    Capabilities,
    Document,
    Driver,
    Failed,
    FoundPrinter,
    Mode,
    Outcome,
    Printed,
    PrinterStatus,
    PrintOptions,
)
from farhand.systems.printing.settings import read_settings

TITLE: Final = "Farhand job"
_REASON_MAX: Final = 4000
_KINDS: Final[dict[str, Mode]] = {"print.raw": "raw", "print.pdf": "pdf"}


class _Params(msgspec.Struct, frozen=True):
    copies: int = 1
    options: PrintOptions | None = None


class _Memo(msgspec.Struct, frozen=True):
    """What is noted before the first byte: enough to ask the device without knowing it yet."""

    name: str
    uri: str
    fingerprint: str | None = None


@dataclass(slots=True, eq=False)
class _Progress:
    """A driver's line to the agent, over the attempt's tools."""

    tools: Tools
    memo: str
    cancelled: asyncio.Event

    async def spooling(self) -> None:
        """The point of no return."""
        await self.tools.no_return("spooling", self.memo)

    async def handed(self, handle: str) -> None:
        """The device has it."""
        await self.tools.handed(handle)

    async def report(self, phase: str, reason: str | None) -> None:
        """Where it is and why it waits."""
        await self.tools.report(phase, reason)


class PrintingHandler:
    """Prints on the machine's printers and on those that agent.toml lists."""

    kinds: Sequence[str] = tuple(_KINDS)

    def __init__(self, setup: Setup) -> None:
        self._settings = read_settings(setup.section, setup.folder)
        self._printers: dict[str, FoundPrinter] = {}
        self._known: dict[str, Capabilities] = {}
        self._busy: Counter[str] = Counter()

    async def describe(self) -> Sequence[PrinterInfo]:
        """The printers as they are now.

        One at work is asked through its own driver: many raw printers take one connection only,
        and the driver knows that it is printing.
        """
        settings = self._settings
        listed = {_name(entry): entry for entry in settings.printers}
        at_work = [self._printers[name] for name in listed if name in self._printers and self._busy[name]]
        found = await discover(
            listed=[entry for name, entry in listed.items() if not self._busy[name]],
            cups=settings.cups,
            include=settings.include if settings.discover else (),
            exclude=settings.exclude,
            sumatra=settings.sumatra,
        )
        found += [replace(printer, status=await printer.driver.status()) for printer in at_work]
        self._printers = {printer.name: self._remembered(printer) for printer in found}
        return [_info(printer) for printer in self._printers.values()]

    def _remembered(self, printer: FoundPrinter) -> FoundPrinter:
        """A printer that is out of reach can still do what it could."""
        status = printer.status
        if status.capabilities is not None:
            self._known[printer.uri] = status.capabilities
            return printer
        return replace(printer, status=replace(status, capabilities=self._known.get(printer.uri)))

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        """Prints one job and says what really happened."""
        mode = _KINDS[job.kind]
        printer = self._printers.get(tools.device or "")
        if printer is None:
            return ResultDraft(ok=False, error="the printer is gone from this agent", retryable=True)
        with self._at_work(printer.name):
            refusal = await _refusal(printer, mode)
            if refusal is not None:
                return ResultDraft(ok=False, error=refusal)
            params = msgspec.convert(job.params or {}, type=_Params)
            path = await tools.payload()
            document = _document(job, path, mode, params)
            memo = msgspec.json.encode(
                _Memo(document.name, printer.uri, self._fingerprint(printer.uri))
            ).decode()
            progress = _Progress(tools, memo, tools.cancelled)
            return _draft(await printer.driver.print(document, progress))

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        """Asks the printer what became of a job that an earlier run had begun to send."""
        try:
            memo = msgspec.json.decode(work.memo or "", type=_Memo)
            driver = self._driver(memo)
        except (msgspec.DecodeError, ValueError) as error:
            reason = f"the agent stopped while it printed, and its notes cannot be read: {error}"
            return ResultDraft(ok=False, error=reason[:_REASON_MAX], uncertain=True)
        with self._at_work(work.device or ""):
            progress = _Progress(tools, work.memo or "", tools.cancelled)
            return _draft(await driver.fate(memo.name, work.handle, progress))

    async def aclose(self) -> None:
        """Nothing is held between jobs."""

    def _driver(self, memo: _Memo) -> Driver:
        return driver_for(memo.uri, fingerprint=memo.fingerprint, sumatra=self._settings.sumatra)

    def _fingerprint(self, uri: str) -> str | None:
        return next((entry.fingerprint for entry in self._settings.printers if entry.uri == uri), None)

    @contextmanager
    def _at_work(self, name: str) -> Generator[None]:
        self._busy[name] += 1
        try:
            yield
        finally:
            self._busy[name] -= 1


def _name(entry: ListedPrinter) -> str:
    return entry.name or default_name(entry.uri)


async def _refusal(printer: FoundPrinter, mode: Mode) -> str | None:
    """Why this printer cannot take this kind of document; None when it can or does not say.

    What was known a while ago is enough to let a job pass, not to fail it.
    """
    if _takes(printer.status.capabilities, mode) is not False:
        return None
    status = await printer.driver.status()
    if _takes(status.capabilities, mode) is not False:
        return None
    kind = "PDF" if mode == "pdf" else "raw data"
    return f"{printer.name} takes no {kind}; send the job to another printer"


def _takes(capabilities: Capabilities | None, mode: Mode) -> bool | None:
    if capabilities is None:
        return None
    return capabilities.pdf if mode == "pdf" else capabilities.raw


def _document(job: ClaimedJob, path: Path, mode: Mode, params: _Params) -> Document:
    # The tail of a UUIDv7 is its random part; its head is the same for jobs of one minute.
    mark = job.job_id.replace("-", "")[-8:]
    return Document(
        path=path,
        mode=mode,
        size=job.payload.size if job.payload is not None else 0,
        name=f"{job.title or TITLE} [{mark}-{job.attempt}]",
        copies=params.copies,
        options=(params.options if mode == "pdf" else None) or PrintOptions(),
    )


def _draft(outcome: Outcome) -> ResultDraft:
    match outcome:
        case Printed(evidence=evidence):
            return ResultDraft(ok=True, evidence=evidence)
        case Failed(reason=reason, retryable=retryable):
            return ResultDraft(ok=False, error=reason, retryable=retryable)
        case Cancelled():
            return ResultDraft(ok=False, cancelled=True)
        case unknown:
            return ResultDraft(ok=False, error=unknown.reason, uncertain=True)


def _info(printer: FoundPrinter) -> PrinterInfo:
    status = printer.status
    reason = "; ".join(status.reasons)[:_REASON_MAX] or None
    capabilities = _declared(status)
    return PrinterInfo(
        name=printer.name,
        can_pdf=capabilities.get("pdf") is True,
        capabilities=capabilities,
        state=status.state,
        reason=reason,
    )


def _declared(status: PrinterStatus) -> dict[str, Any]:
    """What the printer says it can do. None says "unknown", so that nobody reads it as "no"."""
    known = status.capabilities
    if known is None:
        return {"raw": None, "pdf": None}
    fields: dict[str, Any] = {
        "raw": known.raw,
        "pdf": known.pdf,
        "color": known.color,
        "duplex": known.duplex,
        "copies_max": known.copies_max,
    }
    lists = ("papers", "bins", "media_types", "resolutions", "formats")
    fields |= {name: list(cast("tuple[str, ...]", getattr(known, name))) or None for name in lists}
    return {key: value for key, value in fields.items() if value is not None}
