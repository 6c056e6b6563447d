"""Results on their way to the server, on disk until it has taken them."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from farhand.agent.backoff import Backoff
from farhand.agent.errors import NoAnswer, Refused, Stale
from farhand.agent.handler import ResultDraft
from farhand.agent.journal import Key, flush_folder, write_flushed
from farhand.agent.link import Link
from farhand.agent.suspend import Waker
from farhand.protocol.agent import ClaimReply, ClaimRequest, ResultRequest

REASON_MAX: Final = 4000
log: Final = logging.getLogger(__name__)


class _Letter(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    attempt: int
    request: ResultRequest


@dataclass(slots=True, eq=False)
class Parcel:
    """One result. `path` is None when it is, or could be, only in memory."""

    letter: _Letter
    path: Path | None

    @property
    def key(self) -> Key:
        """The attempt that it is about."""
        return self.letter.job_id, self.letter.attempt


class Outbox:
    """Delivers results until the server takes them or says that it never will.

    A result that an earlier run could not deliver is delivered by this one. Sending one twice
    does no harm: the server answers an identical report as it did the first time.
    """

    def __init__(self, folder: Path, link: Link, waker: Waker) -> None:
        self._folder = folder
        self._link = link
        self._waker = waker
        self._waiting: list[Parcel] = []
        self._more = asyncio.Event()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._load()

    def waiting(self) -> Sequence[Key]:
        """The attempts whose results wait here."""
        return [parcel.key for parcel in self._waiting]

    async def put(self, key: Key, lease_token: str, draft: ResultDraft) -> Parcel:
        """A result becomes a parcel, on disk when this returns unless the disk fails or the
        draft is not durable.
        """
        letter = _Letter(job_id=key[0], attempt=key[1], request=_request(lease_token, draft))
        parcel = Parcel(letter, None)
        if draft.durable:
            try:
                parcel.path = await asyncio.to_thread(self._write, letter)
            except OSError as error:
                log.error("outbox_disk", extra={"job": key[0], "error": str(error)})
        return parcel

    async def deliver(self, parcel: Parcel, following: ClaimRequest | None) -> ClaimReply | None:
        """Sends a parcel once, with the next claim; what fails is tried again by `run`.

        Raises ShutOut.
        """
        try:
            return await self._send(parcel, following)
        except NoAnswer as error:
            log.warning("result_kept", extra={"job": parcel.letter.job_id, "error": str(error)})
        self._waiting.append(parcel)
        self._more.set()
        return None

    async def run(self) -> None:
        """Delivers what waits, again and again. Never ends; raises ShutOut."""
        backoff = Backoff()
        while True:
            self._more.clear()
            wait_ms = await self._round(backoff)
            if wait_ms is None:
                await self._more.wait()
            else:
                await self._waker.sleep(wait_ms)

    async def flush(self) -> bool:
        """One try for everything that waits; whether nothing is left. Raises ShutOut."""
        return await self._round(Backoff()) is None

    async def _round(self, backoff: Backoff) -> int | None:
        """How long to wait before the next round; None when nothing waits."""
        while self._waiting:
            parcel = self._waiting[0]
            try:
                await self._send(parcel, None)
            except NoAnswer as error:
                return backoff.next_ms(error.retry_after_ms)
            backoff.reset()
            if parcel in self._waiting:
                self._waiting.remove(parcel)
        return None

    async def _send(self, parcel: Parcel, following: ClaimRequest | None) -> ClaimReply | None:
        letter = parcel.letter
        request = msgspec.structs.replace(letter.request, next=following)
        try:
            reply = await self._link.result(letter.job_id, request)
        except Stale as error:
            log.warning("result_stale", extra={"job": letter.job_id, "state": error.job_state})
            await self._drop(parcel)
            return None
        except Refused as error:
            await self._refused(parcel, error)
            return None
        log.info("job_settled", extra={"job": letter.job_id, "attempt": letter.attempt, "state": reply.state})
        await self._drop(parcel)
        return reply.next

    async def _refused(self, parcel: Parcel, error: Refused) -> None:
        """The server will never take it as it is; the attempt must end all the same."""
        request = parcel.letter.request
        log.error("result_refused", extra={"job": parcel.letter.job_id, "error": str(error)})
        if request.result is None:
            if parcel.path is not None:
                parcel.path.replace(parcel.path.with_suffix(".refused"))
            return
        without = msgspec.structs.replace(
            request, ok=False, result=None, evidence=None, error=f"the result was not taken: {error}"
        )
        parcel.letter = msgspec.structs.replace(parcel.letter, request=without)
        if parcel.path is not None:
            await asyncio.to_thread(self._write, parcel.letter)
        await self._send(parcel, None)

    async def _drop(self, parcel: Parcel) -> None:
        if parcel.path is not None:
            await asyncio.to_thread(parcel.path.unlink, missing_ok=True)

    def _write(self, letter: _Letter) -> Path:
        path = self._folder / f"{letter.job_id}-{letter.attempt}.json"
        fresh = path.with_suffix(".new")
        write_flushed(fresh, msgspec.json.encode(letter))
        fresh.replace(path)
        flush_folder(self._folder)
        return path

    def _load(self) -> None:
        for path in sorted(self._folder.glob("*.new")):
            path.unlink()
        for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
            try:
                letter = msgspec.json.decode(path.read_bytes(), type=_Letter)
                self._waiting.append(Parcel(letter, path))
            except msgspec.DecodeError as error:
                log.error("outbox_unreadable", extra={"file": path, "error": str(error)})
                path.replace(path.with_suffix(".unreadable"))


def _request(lease_token: str, draft: ResultDraft) -> ResultRequest:
    return ResultRequest(
        ok=draft.ok,
        error=None if draft.error is None else draft.error[:REASON_MAX],
        lease_token=lease_token,
        retryable=draft.retryable,
        retry_after_ms=draft.retry_after_ms,
        evidence=draft.evidence,
        cancelled=draft.cancelled,
        uncertain=draft.uncertain,
        result=draft.result,
    )
