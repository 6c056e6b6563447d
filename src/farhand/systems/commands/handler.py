"""What the agent does with a command: finds its handler, runs it, reports what it came to.

A result with secrets in it, wrapped as such or declared so at the server, is never durable: it
lives in this process until the server has it, and when the process ends before that, the command
simply runs again. A secret that the server was not told of does not leave the process.
"""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec

from farhand.agent.handler import ResultDraft, Setup, Tools, Unfinished
from farhand.protocol.agent import ClaimedJob, PrinterInfo
from farhand.systems.commands.kind import FAMILY, type_of
from farhand.systems.commands.loading import from_section
from farhand.systems.commands.outcome import Done, Failed, Outcome, Stopped, run_async, run_sync
from farhand.systems.commands.sdk import Commands, Context, Registered, Voice

WAITING: Final = "waiting"
EXPLAINED_MAX: Final = 20
log: Final = logging.getLogger(__name__)


def from_setup(setup: Setup) -> "CommandsHandler":
    """The handlers that the `[commands]` table of agent.toml names. Raises ConfigError."""
    return CommandsHandler(from_section(setup.section, setup.folder))


class CommandsHandler:
    """Runs the handlers of a registry.

    `own_lane` is how many commands may be in hand at once: as many as all types together may
    run. Every command type comes here, so that one without a handler is refused with a reason.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        handlers = commands.handlers
        self.kinds: Sequence[str] = (f"{FAMILY}*",) if handlers else ()
        self.own_lane = sum(registered.concurrency for registered in handlers.values())
        self._slots = {
            name: asyncio.Semaphore(registered.concurrency) for name, registered in handlers.items()
        }

    async def describe(self) -> Sequence[PrinterInfo]:
        """Commands need no device."""
        return ()

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        """Runs one command. Cancelled, it lets the handler stop, and takes a last result from it."""
        return _draft(await self.outcome(job, tools), job)

    async def outcome(self, job: ClaimedJob, tools: Tools) -> Outcome:
        """What a command comes to, before it is known what of it may be told."""
        name = type_of(job.kind)
        registered = self._commands.handlers.get(name)
        if registered is None:
            return Failed(error=self._refusal(name), retryable=False)
        slot = self._slots[name]
        if slot.locked():
            await tools.report(WAITING, f"another {name} is at work here")
        # An abandoned run keeps its slot until it has really ended: at no time are there more.
        await slot.acquire()
        try:
            line = _Line(tools)
            ctx = Context(id=job.job_id, type=name, attempt=job.attempt, voice=line.voice())
            work = _begin(registered, job.params, ctx)
        except BaseException:
            slot.release()
            raise
        work.future.add_done_callback(lambda _: slot.release())
        try:
            return await _outcome(work)
        finally:
            await line.close()

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        """Only a damaged journal leads here: what became of the command is not known, so again."""
        return ResultDraft(ok=False, error="the agent stopped while it was at work", retryable=True)

    async def aclose(self) -> None:
        """Frees the providers, each whatever became of the others."""
        for function in self._commands.closing:
            try:
                freed = function()
                if isinstance(freed, Awaitable):
                    await freed
            except Exception as error:
                log.error("provider_not_freed", extra={"error": type(error).__name__})

    def _refusal(self, name: str) -> str:
        known = sorted(self._commands.handlers)
        shown = ", ".join(known[:EXPLAINED_MAX]) + (", …" if len(known) > EXPLAINED_MAX else "")
        return f"this agent has no handler for {name}; it has {shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A handler at work. `interrupt` is for those that can be interrupted."""

    ctx: Context
    future: "asyncio.Future[Outcome]"
    interrupt: Callable[[], object]
    grace_ms: int


def _begin(registered: Registered, params: Any, ctx: Context) -> _Work:
    if registered.is_async:
        task = asyncio.create_task(run_async(registered, params, ctx))
        return _Work(ctx=ctx, future=task, interrupt=task.cancel, grace_ms=registered.grace_ms)
    future = _in_thread(partial(run_sync, registered, params, ctx))
    return _Work(ctx=ctx, future=future, interrupt=lambda: None, grace_ms=registered.grace_ms)


def _in_thread(work: Callable[[], Outcome]) -> "asyncio.Future[Outcome]":
    """Runs work in a thread of its own, which does not keep the process from ending.

    The loop's pool would: one handler that hangs, and the agent never stops.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()

    def tell(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    def run() -> None:
        outcome = context.run(work)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, outcome)

    context = contextvars.copy_context()
    threading.Thread(target=run, name="farhand-command", daemon=True).start()
    return future


async def _outcome(work: _Work) -> Outcome:
    """How it ended. When this is cancelled: told to stop, a success or a final failure within
    the grace still counts, anything else may be due to the stop.
    """
    try:
        await asyncio.wait((work.future,))
    except asyncio.CancelledError:
        work.ctx.cancelled.set()
        work.interrupt()
        await asyncio.wait((work.future,), timeout=work.grace_ms / 1000)
        outcome = _ended(work.future)
        if isinstance(outcome, Done) or (isinstance(outcome, Failed) and not outcome.retryable):
            return outcome
        raise
    finally:
        work.ctx.cancelled.set()
    outcome = _ended(work.future)
    if outcome is None or isinstance(outcome, Stopped):
        return Failed(error="the handler stopped without being told to", retryable=True)
    return outcome


def _ended(future: "asyncio.Future[Outcome]") -> Outcome | None:
    return future.result() if future.done() and not future.cancelled() else None


def _draft(outcome: Outcome, job: ClaimedJob) -> ResultDraft:
    match outcome:
        case Done():
            return _reported(outcome, job)
        case Failed(error=error, retryable=retryable, after_ms=after_ms):
            return ResultDraft(ok=False, error=error, retryable=retryable, retry_after_ms=after_ms)
        case Stopped():
            return ResultDraft(ok=False, cancelled=True)


def _reported(done: Done, job: ClaimedJob) -> ResultDraft:
    """A result; one with a secret that the server would keep in clear is not told at all."""
    declared = frozenset(job.secret_fields or ())
    undeclared = done.secret_fields - declared
    if undeclared and not (done.whole and declared):
        names = ", ".join(sorted(undeclared))
        error = f"the result holds a secret that the server would keep in clear: {names}; add it to "
        error += f'secret_fields of [commands."{type_of(job.kind)}"] in farhand.toml'
        return ResultDraft(ok=False, error=error, retryable=False)
    result: Any = msgspec.json.decode(done.body)
    members: Iterable[str] = cast("dict[str, Any]", result) if isinstance(result, dict) else declared
    if done.secret_fields or not declared.isdisjoint(members):
        # Raw has no repr of what is in it, and goes out as it is.
        return ResultDraft(ok=True, result=msgspec.Raw(done.body), durable=False)
    return ResultDraft(ok=True, result=result)


class _Line:
    """From a handler, in whichever thread, to the attempt's tools; silent once it is closed."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._loop = asyncio.get_running_loop()
        self._reports: asyncio.Queue[tuple[str, str | None] | None] = asyncio.Queue()
        self._sending = asyncio.create_task(self._send())

    def voice(self) -> Voice:
        """The handler's end."""
        return Voice(report=self._report, beat=self._beat)

    async def close(self) -> None:
        """What was reported until now is handed on; what comes later is not."""
        self._reports.put_nowait(None)
        await self._sending

    def _report(self, phase: str, reason: str | None) -> None:
        self._call(self._reports.put_nowait, (phase, reason))

    def _beat(self) -> None:
        self._call(self._tools.beat)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        # The loop may end while a thread that nobody waits for still talks.
        if not self._loop.is_closed() and not self._sending.done():
            self._loop.call_soon_threadsafe(function, *args)

    async def _send(self) -> None:
        while (report := await self._reports.get()) is not None:
            await self._tools.report(*report)
