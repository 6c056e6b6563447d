"""One attempt from being taken to its result being safe."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from farhand.agent.errors import LinkError, NoAnswer, Refused, ShutOut, Stale
from farhand.agent.handler import (
    Abandoned,
    Decided,
    GoesOn,
    NotNow,
    PayloadError,
    ResultDraft,
    Unwilling,
    Withdrawn,
)
from farhand.agent.journal import Entry, Journal
from farhand.agent.keeper import Hold, Keeper
from farhand.agent.link import Link
from farhand.agent.outbox import REASON_MAX, Outbox
from farhand.agent.suspend import Waker
from farhand.agent.workfiles import WorkFiles
from farhand.model.clock import Clock
from farhand.protocol.agent import ClaimReply, ClaimRequest, PayloadRef, ReleaseRequest

STOPPED: Final = "the agent stopped"
NOT_SENT: Final = "the agent stopped before anything was sent"
log: Final = logging.getLogger(__name__)

Work = Callable[["Attempt"], Coroutine[Any, Any, ResultDraft]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What attempts share. `stopping` is set when the agent is to stop; `shut_out` is called
    when the server no longer lets it in.
    """

    clock: Clock
    link: Link
    waker: Waker
    journal: Journal
    outbox: Outbox
    workfiles: WorkFiles
    stopping: asyncio.Event
    shut_out: Callable[[ShutOut], None]


class Attempt:
    """The tools of a handler, and what holds them together for one attempt."""

    def __init__(self, parts: Parts, entry: Entry, payload: PayloadRef | None) -> None:
        self.device = entry.device
        self._parts = parts
        self._entry = entry
        self._payload = payload
        self._recovering = entry.begun
        self._past = entry.begun
        self._unwilling: str | None = None
        self._not_now: str | None = None
        self._decided = False
        self._goes_on = False
        hold = Hold(
            job_id=entry.job_id,
            attempt=entry.attempt,
            lease_token=entry.lease_token,
            started=entry.begun,
        )
        self._keeper = Keeper(parts.link, parts.clock, parts.waker, hold)
        self.cancelled = self._keeper.cancelled

    async def payload(self) -> Path:
        """The job's bytes as a file. Raises PayloadError, Abandoned."""
        if self._payload is None:
            raise PayloadError("the job has no payload", retryable=False)
        if self._payload.base64 is None:
            self._keeper.say("downloading", None)
        return await self._parts.workfiles.payload(self._entry.key, self._entry.lease_token, self._payload)

    async def scratch(self) -> Path:
        """A place for a file that goes away with the attempt. Raises OSError."""
        return await self._parts.workfiles.scratch(self._entry.key)

    async def keep_body(self, path: Path) -> str:
        """A file becomes the body of the result. Raises PayloadError, Abandoned."""
        return await self._parts.workfiles.keep_body(self._entry.key, self._entry.lease_token, path)

    async def report(self, phase: str, reason: str | None) -> None:
        """Where the work is and why it waits; sent by and by."""
        self._keeper.say(phase, reason)

    def beat(self) -> None:
        """Sends a heartbeat soon."""
        self._keeper.beat()

    async def no_return(self, phase: str, memo: str) -> None:
        """The server's leave, then the journal; both young enough when this returns."""
        await self._keeper.ensure(phase)
        await self._parts.journal.begun(self._entry.key, memo)
        while not self._keeper.fresh():
            await self._keeper.ensure(phase)
        self._past = True

    async def handed(self, handle: str) -> None:
        """The device knows the work. Raises OSError when the journal cannot keep that.

        A driver that calls this before the first byte must not send it then.
        """
        await self._parts.journal.handed(self._entry.key, handle)

    async def run(self, work: Work, following: Callable[[], ClaimRequest | None]) -> ClaimReply | None:
        """Does the work, makes its result safe and sends it with the next claim.

        Cancelled from outside it leaves everything to the journal and the next start.
        """
        beating = asyncio.create_task(self._keeper.run())
        try:
            draft = await self._watched(work)
            if draft is None and self._decided:
                await self._ended()
                return None
            if draft is None:
                await self._leave()
                return None
            return await self._report(draft, following())
        except ShutOut as error:
            self._parts.shut_out(error)
            return None
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating
            await self._parts.workfiles.remove(self._entry.key)

    async def _report(self, draft: ResultDraft, following: ClaimRequest | None) -> ClaimReply | None:
        """The journal lets go of an attempt once its result is on disk or delivered."""
        key, outbox = self._entry.key, self._parts.outbox
        parcel = await outbox.put(key, self._entry.lease_token, draft)
        if parcel.path is not None:
            await self._ended()
            return await outbox.deliver(parcel, following)
        reply = await outbox.deliver(parcel, following)
        if key not in outbox.waiting():
            await self._ended()
        return reply

    async def _ended(self) -> None:
        with suppress(OSError):
            await self._parts.journal.ended(self._entry.key)

    async def _watched(self, work: Work) -> ResultDraft | None:
        """The result; None when there is none to report."""
        working = asyncio.create_task(self._guarded(work))
        watching = asyncio.create_task(self._call_off(working))
        try:
            await asyncio.wait((working,))
        finally:
            watching.cancel()
            working.cancel()
        if not working.cancelled():
            return working.result()
        if self._keeper.over.is_set() or not self.cancelled.is_set():
            return None
        return self._stopped()

    async def _call_off(self, working: asyncio.Task[Any]) -> None:
        signals = [
            asyncio.create_task(event.wait())
            for event in (self._keeper.over, self._parts.stopping, self.cancelled)
        ]
        try:
            await asyncio.wait(signals, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for signal in signals:
                signal.cancel()
        if self._keeper.shut_out is not None:
            self._parts.shut_out(self._keeper.shut_out)
        if not self._past:
            working.cancel()

    async def _guarded(self, work: Work) -> ResultDraft | None:
        try:
            return await work(self)
        except Abandoned:
            return None
        except ShutOut as error:
            self._parts.shut_out(error)
            return None
        except Withdrawn:
            return self._stopped()
        except Unwilling as error:
            self._unwilling = error.message
            return None
        except NotNow as error:
            self._not_now = error.message
            return None
        except (Decided, GoesOn) as error:
            self._decided = isinstance(error, Decided)
            self._goes_on = not self._decided
            return None
        except PayloadError as error:
            return ResultDraft(ok=False, error=error.message, retryable=error.retryable)
        except Exception as error:
            log.exception("handler_failed", extra={"job": self._entry.job_id})
            what = f"the agent failed: {type(error).__name__}: {error}"
            if self._past:
                return ResultDraft(ok=False, error=what, uncertain=True)
            return ResultDraft(ok=False, error=what, retryable=isinstance(error, OSError))

    def _stopped(self) -> ResultDraft:
        abort = self._keeper.directive == "abort"
        return ResultDraft(ok=False, cancelled=True, error="the job's time is over" if abort else None)

    async def _leave(self) -> None:
        """Nothing irreversible was done: the work goes back, unless it is not ours anyway."""
        if self._recovering or self._goes_on:
            return
        entry, journal = self._entry, self._parts.journal
        with suppress(OSError):
            if entry.begun:
                await journal.unsent(entry.key)
            if self._keeper.shut_out is not None:
                return
            over = self._keeper.over.is_set()
            if over or await give_back(self._parts, entry, self._unwilling, self._not_now):
                await journal.ended(entry.key)


async def give_back(
    parts: Parts, entry: Entry, unwilling: str | None = None, not_now: str | None = None
) -> bool:
    """Releases an attempt that has not begun, or refuses it; whether nothing is left to do about it.

    Raises ShutOut.
    """
    reason = unwilling or not_now or STOPPED
    request = ReleaseRequest(lease_token=entry.lease_token, reason=reason[:REASON_MAX])
    try:
        await (parts.link.release if unwilling is None else parts.link.refuse)(entry.job_id, request)
    except NoAnswer:
        return False
    except Stale:
        return True
    except Refused:
        # The server was told that it might begin; it did not.
        draft = ResultDraft(ok=False, error=NOT_SENT, retryable=True)
        parcel = await parts.outbox.put(entry.key, entry.lease_token, draft)
        await parts.outbox.deliver(parcel, None)
    except LinkError:
        return False
    about = {"job": entry.job_id, "attempt": entry.attempt}
    if unwilling is None:
        log.info("job_released", extra=about)
    else:
        log.warning("job_refused", extra={**about, "reason": unwilling})
    return True
