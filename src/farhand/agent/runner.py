"""An agent from start to stop."""

import asyncio
import dataclasses
import logging
import signal
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from farhand.agent.attempt import Attempt, Parts, give_back
from farhand.agent.config import AgentConfig
from farhand.agent.datadir import DataDir
from farhand.agent.enrol import Registration, find_key
from farhand.agent.errors import ShutOut
from farhand.agent.handler import Apart, Handler, OwnersLane, OwnLane, ResultDraft, Standing
from farhand.agent.journal import Entry, Journal, Key
from farhand.agent.lanes import OWN, OWNERS, OWNERS_WORD, Lanes
from farhand.agent.link import Link
from farhand.agent.loop import Claims, new_poll_id
from farhand.agent.outbox import Outbox
from farhand.agent.recovery import forget_settled, left_behind, quiet, recover
from farhand.agent.signing import find_signer
from farhand.agent.suspend import Waker
from farhand.agent.workfiles import WorkFiles
from farhand.model.clock import Clock, SystemClock
from farhand.protocol.agent import ClaimedJob, ClaimRequest

R = TypeVar("R")
FLUSH_MS: Final = 5_000
log: Final = logging.getLogger(__name__)


async def run(
    config: AgentConfig,
    handlers: Sequence[Handler],
    *,
    clock: Clock | None = None,
    stopping: asyncio.Event | None = None,
    show: Callable[[str], None] | None = None,
) -> None:
    """Runs an agent until SIGTERM or SIGINT, or until `stopping` is set.

    `show` gets what a person has to read, above all the approval code. Raises ConfigError for
    settings that cannot be used, ShutOut when the server does not let the agent in.
    """
    agent = build(config, handlers, clock=clock, show=show)
    with _stop_signals(agent.stop):
        stopper = None if stopping is None else asyncio.create_task(_relay(stopping, agent.stop))
        try:
            await agent.run()
        finally:
            if stopper is not None:
                await quiet((stopper,))
            await agent.aclose()


def build(
    config: AgentConfig,
    handlers: Sequence[Handler],
    *,
    clock: Clock | None = None,
    show: Callable[[str], None] | None = None,
) -> "Agent":
    """Puts an agent together; its folder is held until `aclose`. Raises ConfigError."""
    folder = DataDir(config.data)
    try:
        return Agent(config, handlers, folder, clock or SystemClock(), show or _log_loudly)
    except BaseException:
        folder.release()
        raise


class Agent:
    """The parts and the tasks of one agent."""

    def __init__(
        self,
        config: AgentConfig,
        handlers: Sequence[Handler],
        folder: DataDir,
        clock: Clock,
        show: Callable[[str], None],
    ) -> None:
        self._config = config
        self._folder = folder
        self._handlers = handlers
        self._by_kind = {kind: handler for handler in handlers for kind in handler.kinds}
        self._waker = Waker(clock)
        signer = find_signer(config, clock)
        self._link = Link(config.server, find_key(config), signer=signer, ca_file=config.ca_file)
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None
        data = folder.path
        self._parts = Parts(
            clock=clock,
            link=self._link,
            waker=self._waker,
            journal=Journal(data / "journal"),
            outbox=Outbox(data / "outbox", self._link, self._waker),
            workfiles=WorkFiles(data / "payloads", self._link, self._waker),
            stopping=self._stopping,
            shut_out=self._end,
        )
        self._apart = [handler for handler in handlers if isinstance(handler, Apart)]
        self._standing = [handler for handler in handlers if isinstance(handler, Standing)]
        self._given: dict[str, str] = {}
        self._show = show
        self._widths = _widths(handlers)
        self._lanes = Lanes(self._widths)
        self._in_hand: set[Key] = set()
        self._returning: set[asyncio.Task[Any]] = set()
        self._registration = Registration(self._link, self._waker, config.name, handlers, show)
        self._claims = Claims(
            self._link, self._lanes, self._waker, wait_ms=lambda: self._registration.wait_ms, take=self._take
        )

    def stop(self) -> None:
        """Take no more work, give back what has not begun, see the rest through for a while."""
        self._stopping.set()

    async def run(self) -> None:
        """Works until stopped. Raises ShutOut, and whatever else ended it."""
        asking = [self._start(self._watch)]
        if len(self._apart) < len(self._handlers) or not self._handlers:
            asking.append(self._start(self._serve))
        delivering = self._start(self._parts.outbox.run)
        apart = [self._start(partial(handler.serve, self._stopping, self._show)) for handler in self._apart]
        standing = [self._start(partial(self._stand, handler)) for handler in self._standing]
        try:
            await forget_settled(self._parts)
            self._recover()
            await self._stopping.wait()
            await quiet(asking)
            await asyncio.gather(
                self._lanes.finish(self._config.stop_grace_ms), *(self._finish_apart(task) for task in apart)
            )
            await quiet((delivering, *standing))
            await self._last_words()
        finally:
            await quiet([*asking, delivering, *apart, *standing, *self._returning])
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        """Frees what the agent holds."""
        for handler in self._handlers:
            await handler.aclose()
        await self._link.aclose()
        self._parts.journal.close()
        self._folder.release()

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        return asyncio.create_task(self._guarded(work))

    async def _finish_apart(self, task: "asyncio.Task[None]") -> None:
        await asyncio.wait((task,), timeout=self._config.stop_grace_ms / 1000)
        await quiet((task,))

    async def _stand(self, handler: Standing) -> None:
        await handler.stand(_Line(self._link, self._stopping, self._take_lanes))

    def _take_lanes(self, names: Mapping[str, str]) -> None:
        if names != self._given:
            self._given = dict(names)
            self._assign()

    async def _serve(self) -> None:
        await self._registration.refresh()
        self._assign()
        claiming = asyncio.create_task(self._guarded(self._claims.run))
        try:
            while True:
                await self._waker.sleep(self._config.describe_every_ms)
                if await self._registration.refresh():
                    self._assign()
        finally:
            await quiet((claiming,))

    def _assign(self) -> None:
        """The lanes that there are now: the devices', our owners', and our own under our own id."""
        ids = {**self._registration.ids, **self._given}
        if any(self._widths.values()) and self._registration.agent_id is not None:
            ids[self._registration.agent_id] = OWN
        if self._widths[OWNERS]:
            ids[OWNERS_WORD] = OWNERS
        self._lanes.assign(ids)

    def _handler(self, kind: str) -> Handler | None:
        return self._by_kind.get(kind) or self._by_kind.get(f"{kind.partition('.')[0]}.*")

    async def _watch(self) -> None:
        while True:
            missing = await self._waker.next_jump()
            log.warning("clock_jump", extra={"ms": missing})
            self._link.reconnect()
            self._waker.wake()

    def _recover(self) -> None:
        for entry in left_behind(self._parts):
            self._in_hand.add(entry.key)
            work = recover(self._parts, entry, self._handler(entry.kind))
            self._lanes.occupy(entry.device or entry.kind, self._holding(entry.key, work))

    async def _holding(self, key: Key, work: Any) -> None:
        try:
            await work
        finally:
            self._in_hand.discard(key)

    def _take(self, job: ClaimedJob) -> bool:
        """A job that was handed to us goes into its lane; whether it is new."""
        key = (job.job_id, job.attempt)
        if key in self._in_hand:
            return False
        name, handler = self._lane(job), self._handler(job.kind)
        if handler is None:
            # Given back it would come again at once.
            self._return(job, f"this agent does not handle {job.kind}")
            return True
        if name is None or not self._lanes.is_free(name) or self._stopping.is_set():
            log.warning("job_returned", extra={"job": job.job_id, "kind": job.kind})
            self._return(job)
            return True
        self._in_hand.add(key)
        self._lanes.occupy(name, self._work(job, name, handler))
        return True

    def _lane(self, job: ClaimedJob) -> str | None:
        if job.printer_id is not None:
            return self._lanes.name(job.printer_id)
        handler = self._handler(job.kind)
        return OWNERS if isinstance(handler, OwnersLane) and handler.owners_lane else OWN

    def _return(self, job: ClaimedJob, unwilling: str | None = None) -> None:
        task = self._start(partial(_give_back, self._parts, _entry(job, OWN), unwilling))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _work(self, first: ClaimedJob, name: str, handler: Handler) -> None:
        """Jobs in one lane, for as long as each result brings the next one."""
        job: ClaimedJob | None = first
        while job is not None:
            key = (job.job_id, job.attempt)
            try:
                job = await self._do(job, name, handler)
            finally:
                self._in_hand.discard(key)

    async def _do(self, job: ClaimedJob, name: str, handler: Handler) -> ClaimedJob | None:
        """Does one job; the next one of this lane, if there is one at once."""
        log.info(
            "job_taken",
            extra={"job": job.job_id, "attempt": job.attempt, "kind": job.kind, "device": _device(name)},
        )
        entry = _entry(job, name)
        try:
            await self._parts.journal.taken(entry)
        except OSError as error:
            log.error("journal_disk", extra={"job": job.job_id, "error": str(error)})
            self._return(job)
            return None

        async def work(attempt: Attempt) -> ResultDraft:
            return _fit_for_disk(job, await handler.run(job, attempt))

        attempt = Attempt(self._parts, entry, job.payload)
        reply = await attempt.run(work, lambda: self._following(job, name))
        return None if reply is None else self._pick(reply.jobs, name)

    def _following(self, job: ClaimedJob, name: str) -> ClaimRequest | None:
        """The claim that goes with a result: more for the same lane."""
        lane = OWNERS_WORD if name == OWNERS else job.printer_id
        if lane is None or self._stopping.is_set() or self._lanes.name(lane) is None:
            return None
        return ClaimRequest(poll_id=new_poll_id(), lanes=[lane])

    def _pick(self, jobs: Sequence[ClaimedJob], name: str) -> ClaimedJob | None:
        """This lane's next job; offers for other lanes that came with it are taken there."""
        mine: ClaimedJob | None = None
        for job in jobs:
            key = (job.job_id, job.attempt)
            fits = self._lane(job) == name and self._handler(job.kind) is not None
            if mine is None and fits and key not in self._in_hand and not self._stopping.is_set():
                mine = job
                self._in_hand.add(key)
            else:
                self._take(job)
        return mine

    async def _last_words(self) -> None:
        with suppress(TimeoutError, ShutOut):
            async with asyncio.timeout(FLUSH_MS / 1000):
                await asyncio.gather(*self._returning, return_exceptions=True)
                if not await self._parts.outbox.flush():
                    log.warning("outbox_waiting", extra={"results": len(self._parts.outbox.waiting())})

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A task of the agent: what ends it ends the agent, loudly."""
        try:
            await work()
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        if self._failure is None:
            log.error("agent_ended", extra={"error": str(error)})
            self._failure = error
        self.stop()


class _Line:
    """A handler's line to the server beside its attempts."""

    def __init__(
        self, link: Link, stopping: asyncio.Event, lanes: Callable[[Mapping[str, str]], None]
    ) -> None:
        self.stopping = stopping
        self._link = link
        self._lanes = lanes

    async def tell(self, path: str, message: msgspec.Struct, kind: type[R]) -> R:
        """Posts a message; the reply."""
        return await self._link.tell(path, message, kind)

    def lanes(self, names: Mapping[str, str]) -> None:
        """Devices that the server has given ids outside the registration."""
        self._lanes(names)


def _widths(handlers: Sequence[Handler]) -> dict[str, int]:
    """How many jobs the lanes without a device take at once."""
    return {
        OWN: sum(handler.own_lane for handler in handlers if isinstance(handler, OwnLane)),
        OWNERS: sum(handler.owners_lane for handler in handlers if isinstance(handler, OwnersLane)),
    }


def _device(name: str) -> str | None:
    return None if name in (OWN, OWNERS) else name


def _entry(job: ClaimedJob, name: str) -> Entry:
    return Entry(job.job_id, job.attempt, job.lease_token, job.kind, _device(name), light=name == OWNERS)


async def _give_back(parts: Parts, entry: Entry, unwilling: str | None) -> None:
    await give_back(parts, entry, unwilling)


def _log_loudly(text: str) -> None:
    log.warning("agent_notice", extra={"text": text})


async def _relay(event: asyncio.Event, stop: Callable[[], None]) -> None:
    await event.wait()
    stop()


@contextmanager
def _stop_signals(stop: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    added: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # Windows has no such thing, and only the main thread may ask for it.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop)
            added.append(number)
    try:
        yield
    finally:
        for number in added:
            loop.remove_signal_handler(number)


def _fit_for_disk(job: ClaimedJob, draft: ResultDraft) -> ResultDraft:
    """The result of a kind with secret fields stays in memory, whatever its handler says."""
    if not job.secret_fields or draft.result is None:
        return draft
    return dataclasses.replace(draft, durable=False)
