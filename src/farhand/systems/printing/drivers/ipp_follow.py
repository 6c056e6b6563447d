"""A job at the printer, followed to its real end."""

import asyncio
from contextlib import suppress

from farhand.systems.printing.drivers.base import (
    Cancelled,
    Evidence,
    Failed,
    Outcome,
    Printed,
    Progress,
    Unknown,
)
from farhand.systems.printing.drivers.ipp_client import IppError
from farhand.systems.printing.drivers.ipp_device import Device
from farhand.systems.printing.drivers.ipp_session import (
    ABORTED,
    CANCELED,
    COMPLETED,
    PENDING,
    PROCESSING,
    STOPPED,
    IppSession,
    Job,
    StatusError,
)
from farhand.systems.printing.drivers.ipp_values import Group
from farhand.systems.printing.drivers.ipp_words import blocking_words, ending_words, waiting_words

# cupsd completes a job whose IPP device refused the document; only this message tells.
_CUPS_NOT_ADDED = "Unable to add document to print job."
_CONNECTING = "connecting-to-device"
_WITH_ERRORS = "job-completed-with-errors"


class Follower:
    """Looks at one job until it ends, reports why it waits, and carries a cancel to the printer.

    `size` is the document's, in bytes; `whole` says that a document at the printer is a whole
    one. Printers are known to print, and to call completed, what a cut connection left them.
    """

    def __init__(
        self,
        session: IppSession,
        progress: Progress,
        *,
        name: str,
        evidence: Evidence,
        device: Device | None,
        size: int | None,
        whole: bool,
        poll_ms: tuple[int, int],
        lost_ms: int,
    ):
        self.progress = progress
        self._session, self._name = session, name
        self._evidence: Evidence = evidence
        self._device = device
        self._connecting = self._away = False
        self._size, self._whole = size, whole
        self._poll_first_ms, self._poll_max_ms = poll_ms
        self._interval_ms = self._poll_first_ms
        self._lost_ms = lost_ms
        self._reported: tuple[str, str | None] | None = None
        self._cancel_sent = False
        self._identity: tuple[str | None, str | None] | None = None

    async def report(self, phase: str, reason: str | None) -> None:
        """Reports a change, and nothing twice."""
        if (phase, reason) != self._reported:
            self._reported = (phase, reason)
            await self.progress.report(phase, reason)

    async def pause(self) -> bool:
        """Waits until the next look is due; True when the server wants the job cancelled."""
        interval = self._interval_ms / 1000
        self._interval_ms = min(self._interval_ms * 2, self._poll_max_ms)
        if self.progress.cancelled.is_set():
            await asyncio.sleep(interval)
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(self.progress.cancelled.wait(), interval)
        return self.progress.cancelled.is_set()

    def acknowledge(self) -> None:
        """The printer has confirmed the whole document."""
        self._whole = True

    async def drop_empty(self) -> None:
        """Takes back a job that was perhaps created although its reply never came."""
        with suppress(IppError):
            job = await self.find(None)
            if job is not None and job.lacks_document:
                await self._session.cancel(job.id)

    async def find(self, job_id: int | None) -> Job | None:
        """The job by id, if it is still the same job, else by name.

        A printer that was switched off counts from 1 again: an id alone proves nothing.
        """
        job = await self._session.job(job_id) if job_id is not None else None
        if job is not None and job.name == self._name:
            return job
        return await self._session.find(self._name)

    async def resume(self, job: Job, why: str) -> Outcome:
        """Follows a job found again; one whose document never arrived is taken back first."""
        if job.lacks_document:
            return await self._take_back(job, why)
        return await self.follow(job.id)

    async def after_break(self, job_id: int, error: IppError) -> Outcome:
        """What became of a created job whose document was refused or broke off."""
        deadline = self._deadline()
        while True:
            try:
                job = await self._session.job(job_id)
                break
            except IppError as lost:
                if self._is_past(deadline):
                    return self._lost(error, lost)
            await self.report("paused", "the printer does not answer")
            await self.pause()
        if job is None or (job.name is not None and job.name != self._name):
            if not error.sent:
                return Failed(reason=str(error), retryable=True)
            return Unknown(reason=f"{error}; the printer no longer knows the job")
        if isinstance(error, StatusError) or job.lacks_document or not error.complete:
            return await self._take_back(job, str(error), retryable=_helps(error))
        return await self.follow(job_id)

    async def after_lost_reply(self, error: IppError) -> Outcome:
        """What became of a Print-Job whose reply never came: asks by name."""
        deadline = self._deadline()
        while True:
            try:
                job = await self.find(None)
            except IppError as lost:
                if self._is_past(deadline):
                    return self._lost(error, lost)
                await self.report("paused", "the printer does not answer")
                await self.pause()
                continue
            if job is None:
                return Unknown(reason=f"{error}; the printer knows no job of this name")
            return await self.resume(job, str(error))

    async def watch_sending(self, job_id: int, sending: asyncio.Task[None]) -> None:
        """Reports the printer's reasons while a document goes out; a cancel stops it.

        Returns when the sending is over or was broken off.
        """
        cancel = asyncio.create_task(self.progress.cancelled.wait())
        try:
            while not sending.done():
                await asyncio.wait(
                    (sending, cancel),
                    timeout=self._poll_max_ms / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if sending.done():
                    return
                if cancel.done():
                    await self._cancel(job_id)
                    sending.cancel()
                    with suppress(asyncio.CancelledError):
                        await sending
                    raise IppError("cancelled while the document was sent", sent=True)
                with suppress(IppError):
                    await self._explain(await self._session.job(job_id))
        finally:
            cancel.cancel()

    async def follow(self, job_id: int) -> Outcome:
        """Looks until the job ends or the printer is lost."""
        deadline: float | None = None
        lost: IppError | None = None
        while True:
            if self.progress.cancelled.is_set() and not self._cancel_sent:
                await self._cancel(job_id)
            try:
                job = await self._session.job(job_id)
                if job is None or not self._is_same(job):
                    return await self._vanished()
                outcome = await self._ended(job)
                if outcome is not None:
                    return outcome
                await self._explain(job)
                deadline = lost = None
            except IppError as error:
                lost = lost or error
                deadline = deadline or self._deadline()
                if self._is_past(deadline):
                    return self._lost(lost, error)
                await self.report("paused", "the printer does not answer")
            await self.pause()

    async def _take_back(self, found: Job, why: str, *, retryable: bool = True) -> Outcome:
        """Cancels a job that has no whole document, and says whether anything was printed."""
        asked = self.progress.cancelled.is_set()
        # A printer that streams is at work before the document is whole.
        began = found.state in (PROCESSING, STOPPED) and found.began is not False
        await self._cancel(found.id)
        deadline = self._deadline()
        job: Job | None = found
        while job is not None and not job.is_final:
            try:
                job = await self._session.job(found.id)
            except IppError as error:
                if self._is_past(deadline):
                    return self._lost(error, error)
            if job is not None and not job.is_final:
                if self._is_past(deadline):
                    return Unknown(reason=f"{why}; the printer does not let go of the job")
                await self.pause()
        if job is not None and job.documents != 0:
            if job.state == COMPLETED:
                return Unknown(reason=f"{why}; the printer says the job completed all the same")
            began = began or bool(job.began)
        if began:
            return Unknown(reason=f"{why}; the printer had begun to print")
        return Cancelled() if asked else Failed(reason=why, retryable=retryable)

    async def _cancel(self, job_id: int) -> None:
        self._cancel_sent = True
        try:
            await self._session.cancel(job_id)
        except StatusError:
            # Ended already, or the printer cannot: the job's own end tells what happened.
            return
        except IppError:
            self._cancel_sent = False

    async def _vanished(self) -> Outcome:
        job = await self._session.find(self._name)
        if job is not None and job.is_final:
            return await self._ended(job) or Unknown(reason="the printer lost the job")
        return Unknown(reason="the printer no longer knows the job")

    async def _ended(self, job: Job) -> Outcome | None:
        if job.state == STOPPED and _WITH_ERRORS in job.reasons:
            # cupsd parks a job whose filter failed; nobody would ever take it up again.
            await self._cancel(job.id)
            return Failed(reason=ending_words(job.reasons, job.printer_message, job.message))
        if not job.is_final:
            return None
        device = await self._device.job(self._name) if self._device else None
        if device is not None and not self.progress.cancelled.is_set():
            return await self._end_at_device(device)
        why = ending_words(job.reasons, job.message, job.printer_message)
        if job.state == COMPLETED:
            if job.printer_message == _CUPS_NOT_ADDED or _WITH_ERRORS in job.reasons:
                return Failed(reason=why)
            if not self._is_whole(job):
                return Unknown(
                    reason="the printer completed the job, perhaps with a part of the document only"
                )
            return Printed(evidence=self._evidence)
        if job.state == ABORTED:
            return Failed(reason=why)
        if self.progress.cancelled.is_set():
            return Cancelled()
        return Failed(reason=f"cancelled at the printer: {why}")

    async def _end_at_device(self, device: Job) -> Outcome | None:
        """The end as the device behind the queue tells it; None while it is still at work."""
        why = ending_words(device.reasons, device.message)
        if device.lacks_document:
            return Failed(reason="the device behind the queue did not take the document")
        if not device.is_final:
            await self.report("printing", None)
            return None
        if device.state == COMPLETED:
            return Failed(reason=why) if _WITH_ERRORS in device.reasons else Printed(evidence="printed")
        return Failed(reason=f"cancelled at the printer: {why}" if device.state == CANCELED else why)

    async def _explain(self, job: Job | None) -> None:
        if job is None or job.is_final:
            return
        reasons = waiting_words(job.reasons)
        printer = await self._session.printer()
        reasons += blocking_words(self._lasting(printer.words("printer-state-reasons")))
        if self._device:
            reasons += await self._device_words(self._device)
        if not reasons and job.state in (PENDING, STOPPED) and printer.number("printer-state") == 5:
            reasons = [_stopped_words(printer)]
        if reasons:
            await self.report("paused", "; ".join(dict.fromkeys(reasons)))
        elif job.state == PROCESSING:
            await self.report("printing", None)
        else:
            await self.report("starting", None)

    def _is_whole(self, job: Job) -> bool:
        if self._whole:
            return True
        return self._size is not None and job.kibibytes == -(-self._size // 1024)

    def _lasting(self, keywords: list[str]) -> list[str]:
        # A queue connects before every job; only one that is still at it at the next look waits.
        before, self._connecting = self._connecting, _CONNECTING in keywords
        return [keyword for keyword in keywords if keyword != _CONNECTING or before]

    async def _device_words(self, device: Device) -> list[str]:
        found = await device.printer()
        before, self._away = self._away, found is None
        if found is not None:
            return blocking_words(found.words("printer-state-reasons"))
        return ["the device behind the queue does not answer"] if before else []

    def _is_same(self, job: Job) -> bool:
        identity = (job.uuid, job.name)
        self._identity = self._identity or identity
        return identity == self._identity

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._lost_ms / 1000

    def _is_past(self, deadline: float) -> bool:
        return asyncio.get_running_loop().time() >= deadline

    def _lost(self, first: IppError, last: IppError) -> Unknown:
        reasons = "; ".join(dict.fromkeys((str(first), str(last))))
        return Unknown(reason=f"the printer was lost while it had the job: {reasons}")


def _helps(error: IppError) -> bool:
    return not isinstance(error, StatusError) or error.passing


def _stopped_words(printer: Group) -> str:
    message = printer.first("printer-state-message")
    return f"the printer is stopped{f': {message}' if isinstance(message, str) and message else ''}"
