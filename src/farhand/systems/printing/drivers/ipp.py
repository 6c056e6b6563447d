"""Printing over IPP: network printers and CUPS queues."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from farhand.systems.printing.drivers.base import (
    Cancelled,
    Document,
    Failed,
    Outcome,
    PrinterStatus,
    Progress,
    Unknown,
    device_name,
)
from farhand.systems.printing.drivers.ipp_attributes import (
    OptionError,
    document_format,
    evidence_of,
    job_attributes,
    status_of,
    takes_whole_documents,
)
from farhand.systems.printing.drivers.ipp_client import (
    IppClient,
    IppError,
    Refused,
    Timeouts,
    Unreachable,
    endpoint,
)
from farhand.systems.printing.drivers.ipp_device import device_of
from farhand.systems.printing.drivers.ipp_follow import Follower
from farhand.systems.printing.drivers.ipp_session import (
    CREATE_JOB,
    SEND_DOCUMENT,
    VALIDATE_JOB,
    IppSession,
    StatusError,
)
from farhand.systems.printing.drivers.ipp_values import Attribute, Group
from farhand.systems.printing.drivers.ipp_words import BUSY, OPERATION_NOT_SUPPORTED

# name(MAX) is 255 octets, but printers are known to cut far earlier; the unique tail must survive.
NAME_MAX = 127
_NO_SUCH_PLACE = frozenset({401, 403, 404, 413, 426})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Milliseconds: looks at a job (the first, then doubling up to `poll_ms`), and how long a
    printer may be out of reach before its job is given up as unknown.
    """

    poll_first_ms: int = 250
    poll_ms: int = 2_000
    lost_ms: int = 300_000
    network: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handle:
    """What is journalled: `42 sending 1048576` before the document leaves, `42` once it was taken.

    The number is missing (`-`) where the printer gives it with its answer only.
    """

    job_id: int | None = None
    size: int | None = None

    @property
    def acknowledged(self) -> bool:
        return self.job_id is not None and self.size is None

    def write(self) -> str:
        number = "-" if self.job_id is None else str(self.job_id)
        return number if self.size is None else f"{number} sending {self.size}"

    @classmethod
    def read(cls, text: str | None) -> "_Handle":
        number, _, size = (text or "").partition(" sending ")
        return cls(
            job_id=int(number) if number.isdecimal() else None,
            size=int(size) if size.isdecimal() else None,
        )


class IppDriver:
    """One IPP printer or CUPS queue.

    The handle is journalled before a byte of the document leaves (with the job's id where the
    printer knows Create-Job), and again once the printer has confirmed the document: a print
    without any handle provably did not happen. `user` must stay the same over restarts, since CUPS shows
    job names to their owner only.
    """

    def __init__(
        self,
        uri: str,
        *,
        user: str = "farhand",
        fingerprint: str | None = None,
        timing: Timing | None = None,
    ):
        self.uri = uri
        self._timing = timing or Timing()
        self._user = user
        client = IppClient(endpoint(uri), timeouts=self._timing.network, fingerprint=fingerprint)
        self._session = IppSession(client, user)

    async def status(self) -> PrinterStatus:
        """State, reasons and capabilities; `offline` when it cannot be reached."""
        try:
            return status_of(await self._session.printer())
        except Unreachable as error:
            return PrinterStatus(state="offline", reasons=(str(error),), accepting=False)
        except IppError as error:
            return PrinterStatus(state="unknown", reasons=(str(error),), accepting=False)

    async def print(self, document: Document, progress: Progress) -> Outcome:
        """Prints and follows the job to its end at the printer."""
        name = device_name(document.name, NAME_MAX)
        if not document.path.is_file():
            return Failed(reason="the document is gone from the agent's disk", retryable=True)
        try:
            printer = await self._session.printer()
            form, job = _plan(printer, document)
            await self._validate(printer, name, form, job)
        except OptionError as error:
            return Failed(reason=str(error))
        except IppError as error:
            return _failed(error)
        if printer.first("printer-is-accepting-jobs") is False:
            return Failed(reason="the printer accepts no jobs; enable it there", retryable=True)
        if progress.cancelled.is_set():
            return Cancelled()
        await progress.spooling()
        follower = self._follower(printer, name, progress, document.size)
        if _can_create(printer):
            return await self._create_and_send(document, name, form, job, follower)
        return await self._print_job(document, name, form, job, follower)

    async def fate(self, name: str, handle: str | None, progress: Progress) -> Outcome:
        """Finds the job by its id or its name and follows it to its end."""
        name = device_name(name, NAME_MAX)
        noted = _Handle.read(handle)
        deadline = asyncio.get_running_loop().time() + self._timing.lost_ms / 1000
        while True:
            try:
                printer = await self._session.printer()
                follower = self._follower(printer, name, progress, noted.size)
                if noted.acknowledged:
                    follower.acknowledge()
                job = await follower.find(noted.job_id)
                break
            except IppError as error:
                if asyncio.get_running_loop().time() >= deadline:
                    return Unknown(reason=f"the printer cannot be asked about the job: {error}")
            await progress.report("paused", "the printer does not answer")
            await asyncio.sleep(self._timing.poll_ms / 1000)
        if job is not None:
            return await follower.resume(job, "the agent stopped before the document was sent")
        if handle is None:
            return Failed(reason="the agent stopped before the document was sent", retryable=True)
        return Unknown(reason="the printer no longer knows the job")

    def _follower(self, printer: Group, name: str, progress: Progress, size: int | None) -> Follower:
        timing = self._timing
        return Follower(
            self._session,
            progress,
            name=name,
            evidence=evidence_of(printer),
            device=device_of(printer, self._user, timing.network),
            size=size,
            whole=takes_whole_documents(printer),
            poll_ms=(timing.poll_first_ms, timing.poll_ms),
            lost_ms=timing.lost_ms,
        )

    async def _validate(self, printer: Group, name: str, form: str, job: Sequence[Attribute]) -> None:
        # Without options there is nothing to refuse that the job itself would not be refused for.
        if not job or VALIDATE_JOB not in printer.all("operations-supported"):
            return
        try:
            await self._session.validate(name, form, job)
        except StatusError as error:
            if error.status != OPERATION_NOT_SUPPORTED:
                raise

    async def _create_and_send(
        self, document: Document, name: str, form: str, job: Sequence[Attribute], follower: Follower
    ) -> Outcome:
        created = await self._create(name, job, follower)
        if not isinstance(created, int):
            return created
        try:
            await follower.progress.handed(_Handle(job_id=created, size=document.size).write())
        except BaseException as error:
            # Nobody will know the id: an empty job left behind would block some printers.
            with suppress(IppError):
                await self._session.cancel(created)
            if isinstance(error, OSError):
                return _not_noted(error)
            raise
        sending = asyncio.create_task(self._session.send_document(created, name, form, document.path))
        try:
            await follower.watch_sending(created, sending)
            await sending
        except IppError as error:
            return await follower.after_break(created, error)
        finally:
            sending.cancel()
        return await self._follow_acknowledged(created, follower)

    async def _create(self, name: str, job: Sequence[Attribute], follower: Follower) -> int | Outcome:
        """The id of an empty job; waits while a printer that takes one job at a time is busy."""
        while True:
            try:
                return await self._session.create(name, job)
            except StatusError as error:
                if error.status != BUSY:
                    return _failed(error)
            except IppError as error:
                await follower.drop_empty()
                return _failed(error)
            await follower.report("starting", "the printer is busy with another job")
            if await follower.pause():
                return Cancelled()

    async def _print_job(
        self, document: Document, name: str, form: str, job: Sequence[Attribute], follower: Follower
    ) -> Outcome:
        try:
            await follower.progress.handed(_Handle(size=document.size).write())
        except OSError as error:
            return _not_noted(error)
        try:
            job_id = await self._session.print_job(name, form, document.path, job)
        except StatusError as error:
            return _failed(error)
        except IppError as error:
            if not error.sent:
                return _failed(error)
            return await follower.after_lost_reply(error)
        return await self._follow_acknowledged(job_id, follower)

    async def _follow_acknowledged(self, job_id: int, follower: Follower) -> Outcome:
        follower.acknowledge()
        # The earlier note holds as well; it only says less.
        with suppress(OSError):
            await follower.progress.handed(_Handle(job_id=job_id).write())
        return await follower.follow(job_id)


def _plan(printer: Group, document: Document) -> tuple[str, tuple[Attribute, ...]]:
    form = document_format(printer, document.mode)
    if form is None:
        kind = "raw data" if document.mode == "raw" else "PDF"
        raise OptionError(f"the printer takes no {kind}; send the job to another printer")
    return form, job_attributes(printer, document.mode, document.copies, document.options)


def _can_create(printer: Group) -> bool:
    operations = printer.all("operations-supported")
    return CREATE_JOB in operations and SEND_DOCUMENT in operations


def _not_noted(error: OSError) -> Failed:
    return Failed(reason=f"the agent cannot write its journal: {error.strerror or error}", retryable=True)


def _failed(error: IppError) -> Failed:
    if isinstance(error, StatusError):
        return Failed(reason=str(error), retryable=error.passing)
    if isinstance(error, Refused):
        return Failed(reason=str(error), retryable=error.status not in _NO_SUCH_PLACE and error.status > 0)
    return Failed(reason=str(error), retryable=True)
