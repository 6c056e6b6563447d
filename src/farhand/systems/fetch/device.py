"""An agent that speaks as a pulsar device: session, claim, callback (seed 002)."""

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from farhand.agent.backoff import Backoff
from farhand.agent.config import AgentConfig, ConfigError, check_private
from farhand.agent.errors import LinkError, NoAnswer, Pending, Refused, ShutOut, Stale
from farhand.agent.handler import ResultDraft, Tools, Unfinished
from farhand.agent.suspend import within
from farhand.egress import Resolver
from farhand.model.clock import Clock
from farhand.protocol.agent import ClaimedJob, PrinterInfo
from farhand.protocol.fetch import FetchError, FetchParams
from farhand.protocol.pulsar import BATCH_MAX, REFUSED_CODE
from farhand.systems.fetch.device_link import (
    Asked,
    ClaimReply,
    DeviceLink,
    Job,
    Report,
    SessionLost,
    joined_tags,
    unreadable,
)
from farhand.systems.fetch.execute import Executor, Failure
from farhand.systems.fetch.settings import FetchSettings

BID_NAME: Final = "pulsar.bid"
FOLDER: Final = "fetch"
REOPEN_MS: Final = 23 * 3_600_000
PENDING_MS: Final = 3_000
WAIT_MAX_MS: Final = 60_000
HELD_S: Final = 25
log: Final = logging.getLogger(__name__)


class Device:
    """Dials out by itself; what it holds lasts as long as `serve`.

    Results are tried again until the server has taken them, and keep their place among the
    `concurrency` until then, so that an absent server does not make them pile up.
    """

    kinds: Sequence[str] = ()

    def __init__(
        self, settings: FetchSettings, agent: AgentConfig, clock: Clock, resolver: Resolver | None = None
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._clock = clock
        self._executor = Executor(settings, clock, resolver)
        words = {"insecureTLS": settings.insecure_tls, "privateIP": settings.private_ip}
        self._capabilities = joined_tags(words, settings.tags)

    async def describe(self) -> Sequence[PrinterInfo]:
        """Fetching needs no device of the native kind."""
        return ()

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        """Never asked: this agent takes its work by itself."""
        return ResultDraft(ok=False, error="this agent fetches in the pulsar dialect only")

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        """What an agent of the native dialect left behind in this folder."""
        return ResultDraft(ok=False, uncertain=True, error="the agent stopped in mid-request")

    async def aclose(self) -> None:
        """Everything ends with `serve`."""

    async def serve(self, stopping: asyncio.Event, show: Callable[[str], None]) -> None:
        """Claims and works until `stopping`, then finishes what it has. Raises ShutOut, ConfigError."""
        bid = await asyncio.to_thread(find_bid, self._settings, self._agent.data)
        folder = await asyncio.to_thread(_empty, self._agent.data / FOLDER)
        link = DeviceLink(self._agent.server, bid, ca_file=self._agent.ca_file)
        shift = Shift(link, self._executor, self._settings, self._clock, folder, self._capabilities, show)
        try:
            await shift.run(stopping)
        finally:
            await shift.end()
            await link.aclose()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


class Shift:
    """One run of a device: its session and the jobs in hand."""

    def __init__(
        self,
        link: DeviceLink,
        executor: Executor,
        settings: FetchSettings,
        clock: Clock,
        folder: Path,
        capabilities: dict[str, Any],
        show: Callable[[str], None],
    ) -> None:
        self._link = link
        self._executor = executor
        self._settings = settings
        self._clock = clock
        self._folder = folder
        self._capabilities = capabilities
        self._show = show
        self._code: str | None = None
        self._session_id: str | None = None
        self._opened_ms = 0
        self._opening = asyncio.Lock()
        self._backoff = Backoff()
        self._failure: ShutOut | None = None
        self._news = asyncio.Event()
        self._soon_ms: int | None = None
        self._requests: dict[str, asyncio.Task[Report]] = {}
        self._works: set[asyncio.Task[None]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Raises ShutOut when the server does not let the device in (any more)."""
        listening = asyncio.create_task(self._listen(stopping))
        try:
            while not stopping.is_set():
                self._news.clear()
                wait_ms = await self._round()
                await self._pause(wait_ms, stopping)
            if self._works:
                await asyncio.wait(self._works)
            self._raise_failure()
        finally:
            listening.cancel()

    async def end(self) -> None:
        """Stops what is still at work; says nothing more."""
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)

    async def _listen(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self._news.set()

    async def _pause(self, wait_ms: int, stopping: asyncio.Event) -> None:
        """The server's wait, cut short by a stop or a job that has been reported."""
        self._soon_ms = None
        await within(self._news, wait_ms)
        self._raise_failure()
        if self._soon_ms is not None and not stopping.is_set():
            await asyncio.sleep(min(self._soon_ms, wait_ms) / 1000)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _round(self) -> int:
        """One claim; how long to wait before the next one, in milliseconds."""
        room = self._settings.concurrency - len(self._works)
        if room <= 0:
            return WAIT_MAX_MS
        try:
            began_ms = self._clock.monotonic_ms()
            reply = await self._claim(min(room, BATCH_MAX))
        except ShutOut:
            raise
        except SessionLost:
            self._session_id = None
            return self._backoff.next_ms()
        except NoAnswer as error:
            return self._wait_after(error)
        except LinkError as error:
            log.error("claim_refused", extra={"error": str(error)})
            return self._backoff.next_ms()
        if reply is None:
            return 0
        self._backoff.reset()
        self._obey(reply.cancel)
        for job in reply.jobs:
            self._take(job)
        # A claim that was held has done its waiting.
        return _with_jitter(reply.retry_after_ms - (self._clock.monotonic_ms() - began_ms))

    async def _claim(self, batch: int) -> ClaimReply | None:
        """The reply; None when there is something else to do before it came.

        With work in hand the claim is not held: a wish to stop some of it comes with the reply.
        """
        wait_s = 0 if self._works else HELD_S
        claiming = asyncio.create_task(
            self._link.claim(await self._session(), self._capabilities, batch, wait_s=wait_s)
        )
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((claiming, news), return_when=asyncio.FIRST_COMPLETED)
            if not claiming.done() and not wait_s:
                await asyncio.wait((claiming,))
        finally:
            news.cancel()
            if not claiming.done():
                claiming.cancel()
                await asyncio.wait((claiming,))
        return None if claiming.cancelled() else claiming.result()

    def _wait_after(self, error: NoAnswer) -> int:
        if isinstance(error, Pending):
            self._tell(error)
            return PENDING_MS
        wait_ms = self._backoff.next_ms(error.retry_after_ms)
        log.warning("claim_failed", extra={"retry_ms": wait_ms, "error": str(error)})
        return wait_ms

    def _tell(self, pending: Pending) -> None:
        if pending.user_code == self._code:
            return
        self._code = pending.user_code
        minutes = max(1, pending.expires_in_ms // 60_000)
        code = f" with the code {pending.user_code} (valid for {minutes} minutes)" if self._code else ""
        self._show(f"This device waits for approval. Whoever runs the server approves it{code}.")

    async def _session(self) -> str:
        """The session, opened where there is none or it is about to end."""
        async with self._opening:
            found = self._session_id
            if found is not None and self._clock.monotonic_ms() - self._opened_ms < REOPEN_MS:
                return found
            reply = await self._link.session(found, self._capabilities)
            self._session_id, self._opened_ms = reply.session_id, self._clock.monotonic_ms()
            if self._code is not None:
                self._show("This device is approved.")
                self._code = None
            log.info("session_open")
            return reply.session_id

    def _obey(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            request = self._requests.get(job_id)
            if request is not None:
                log.info("job_stop", extra={"job": job_id})
                request.cancel()

    def _take(self, job: Job) -> None:
        if job.job_id in self._requests:
            return
        log.info("job_taken", extra={"job": job.job_id})
        self._requests[job.job_id] = asyncio.create_task(self._carry_out(job))
        work = asyncio.create_task(self._guarded(self._work(job)))
        self._works.add(work)
        work.add_done_callback(self._leave)

    def _leave(self, work: "asyncio.Task[None]") -> None:
        self._works.discard(work)
        self._news.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ShutOut as error:
            self._failure = error
            for request in self._requests.values():
                request.cancel()

    async def _work(self, job: Job) -> None:
        request = self._requests[job.job_id]
        try:
            await asyncio.wait((request,))
            await self._deliver(
                _error(job, "cancelled", "stopped on request") if request.cancelled() else request.result()
            )
        finally:
            if not request.done():
                request.cancel()
                await asyncio.wait((request,))
            left = self._file(job)
            del self._requests[job.job_id]
            with suppress(OSError):
                await asyncio.to_thread(left.unlink, missing_ok=True)

    def _file(self, job: Job) -> Path:
        # The server chose the id; what it is called here is ours.
        return self._folder / f"{id(self._requests[job.job_id]):x}"

    async def _carry_out(self, job: Job) -> Report:
        try:
            asked = msgspec.json.decode(job.request, type=Asked)
            request, body = asked.params(), asked.bytes()
        except ValueError as error:
            return unreadable(job, error)
        try:
            return await self._fetch(job, request, body)
        except Exception as error:
            log.exception("fetch_failed", extra={"job": job.job_id})
            return _error(job, "agent-error", f"this agent failed: {type(error).__name__}")

    async def _fetch(self, job: Job, request: FetchParams, body: bytes | None) -> Report:
        refusal = self._settings.unwilling(request)
        if refusal is not None:
            return _error(job, REFUSED_CODE, refusal, source="policy")

        async def place() -> Path:
            return self._file(job)

        outcome = await self._executor.turn(request) or await self._executor.run(request, body, place)
        if isinstance(outcome, Failure):
            return Report(job_id=job.job_id, error=outcome.error)
        return Report(job_id=job.job_id, result=outcome.result, path=outcome.path)

    async def _deliver(self, report: Report) -> None:
        """Reports until the server has answered. Raises ShutOut."""
        backoff = Backoff()
        while True:
            try:
                reply = await self._link.callback(await self._session(), report)
            except ShutOut:
                raise
            except NoAnswer as error:
                log.warning("result_kept", extra={"job": report.job_id, "error": str(error)})
                await asyncio.sleep(backoff.next_ms(error.retry_after_ms) / 1000)
            except SessionLost:
                self._session_id = None
                await asyncio.sleep(backoff.next_ms() / 1000)
            except Stale as error:
                log.warning("result_stale", extra={"job": report.job_id, "error": str(error)})
                return
            except LinkError as error:
                log.error("result_refused", extra={"job": report.job_id, "error": str(error)})
                if report.error is not None:
                    return
                report = _not_taken(report, error)
            else:
                log.info("job_settled", extra={"job": report.job_id, "state": reply.state})
                self._obey(reply.cancel)
                self._soon_ms = reply.retry_after_ms
                return


def find_bid(settings: FetchSettings, data: Path) -> str:
    """The device's identifier, which is also its key: from its file, made on the first run.

    Raises ConfigError.
    """
    path = settings.bid or data / BID_NAME
    try:
        if not path.exists():
            _make_bid(path)
        check_private(path, "it is the device's key")
        bid = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the bid in {path} cannot be read or made: {error}") from error
    if not 16 <= len(bid) <= 512 or not bid.isprintable():
        raise ConfigError(f"{path} must hold a bid of 16 to 512 plain characters")
    return bid


def _make_bid(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"native-{secrets.token_urlsafe(48)}\n")
            file.flush()
            os.fsync(file.fileno())


def _empty(folder: Path) -> Path:
    """A folder for bodies in hand, without those of a run that was killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def _with_jitter(ms: int) -> int:
    ms = min(max(ms, 0), WAIT_MAX_MS)
    return ms + secrets.randbelow(ms // 10 + 1)


def _error(job: Job | Report, code: str, message: str, *, source: str = "agent") -> Report:
    return Report(job_id=job.job_id, error=FetchError(code=code, message=message, source=source))


def _not_taken(report: Report, error: LinkError) -> Report:
    code = "too-large" if isinstance(error, Refused) and error.problem == "too-large" else "result-refused"
    return _error(report, code, f"the server does not take the result: {error}")
