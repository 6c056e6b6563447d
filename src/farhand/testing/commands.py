"""Runs a command handler as the agent would, without agent and server.

ran = run_handler(connect, {"instance": "shop"})
assert ran.status == "completed" and ran.secret_fields == ("qr",)
"""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from farhand.agent.handler import PayloadError
from farhand.model.ids import id_text, new_id
from farhand.protocol.agent import ClaimedJob
from farhand.systems.commands.handler import CommandsHandler
from farhand.systems.commands.kind import kind_of
from farhand.systems.commands.outcome import Done, Failed, Outcome
from farhand.systems.commands.sdk import GRACE_MS, Commands, Function

TIMEOUT_MS: Final = 10_000
LEASE_MS: Final = 60_000

Status = Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to.

    `result` is what the issuer would get, secrets in clear; `secret_fields` are the members that
    hold some, which the server has to be told of.
    `reports` are the phases with their reasons, `heartbeats` counts calls of `ctx.heartbeat()`.
    """

    status: Status
    result: Any = field(default=None, repr=False)
    secret_fields: tuple[str, ...] = ()
    error: str | None = None
    retryable: bool = False
    after_ms: int | None = None
    reports: tuple[tuple[str, str | None], ...] = ()
    heartbeats: int = 0


def run_handler(
    handler: Function | Commands,
    params: Any = None,
    *,
    type: str = "test.command",
    attempt: int = 1,
    cancel_on: str | int | None = None,
    grace_ms: int = GRACE_MS,
    timeout_ms: int = TIMEOUT_MS,
) -> Ran:
    """Runs a handler once, or with a registry the one of `type`.

    `cancel_on` asks for cancellation when that phase is reported, or at that many heartbeats.
    Raises TimeoutError when the handler has not ended by then. In a test that is itself async,
    await `run_handler_async` with the same arguments.
    """
    return asyncio.run(
        run_handler_async(
            handler,
            params,
            type=type,
            attempt=attempt,
            cancel_on=cancel_on,
            grace_ms=grace_ms,
            timeout_ms=timeout_ms,
        )
    )


async def run_handler_async(
    handler: Function | Commands,
    params: Any = None,
    *,
    type: str = "test.command",
    attempt: int = 1,
    cancel_on: str | int | None = None,
    grace_ms: int = GRACE_MS,
    timeout_ms: int = TIMEOUT_MS,
) -> Ran:
    """`run_handler` for tests that are async themselves."""
    commands = handler if isinstance(handler, Commands) else Commands()
    if not isinstance(handler, Commands):
        commands.on(type, grace_ms=grace_ms)(handler)
    tools = _Tools(cancel_on)
    async with asyncio.timeout(timeout_ms / 1000):
        outcome = await _run(CommandsHandler(commands), _job(type, params, attempt), tools)
    return replace(_ran(outcome), reports=tuple(tools.reports), heartbeats=tools.heartbeats)


def _ran(outcome: Outcome | None) -> Ran:
    match outcome:
        case Done(body=body, secret_fields=secret_fields):
            result = msgspec.json.decode(body)
            return Ran(status="completed", result=result, secret_fields=tuple(sorted(secret_fields)))
        case Failed(error=error, retryable=retryable, after_ms=after_ms):
            return Ran(status="failed", error=error, retryable=retryable, after_ms=after_ms)
        case _:
            return Ran(status="cancelled")


async def _run(handler: CommandsHandler, job: ClaimedJob, tools: "_Tools") -> Outcome | None:
    """What it came to; None when the run was cancelled and the handler stopped."""
    running = asyncio.create_task(handler.outcome(job, tools))
    cancelling = asyncio.create_task(tools.cancelled.wait())
    try:
        await asyncio.wait((running, cancelling), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))
        return None if running.cancelled() else running.result()
    finally:
        cancelling.cancel()
        running.cancel()


def _job(type: str, params: Any, attempt: int) -> ClaimedJob:
    return ClaimedJob(
        job_id=id_text(new_id(0)),
        kind=kind_of(type),
        printer_id=None,
        mode=None,
        title=None,
        attempt=attempt,
        lease_token="0" * 32,
        lease_ms=LEASE_MS,
        accepted=True,
        # A handler gets what JSON made of it, not the caller's own object.
        params=msgspec.json.decode(msgspec.json.encode(params)),
        payload=None,
    )


class _Tools:
    """An attempt that nobody but the test is at the other end of."""

    device: str | None = None

    def __init__(self, cancel_on: str | int | None) -> None:
        self.cancelled = asyncio.Event()
        self.reports: list[tuple[str, str | None]] = []
        self.heartbeats = 0
        self._cancel_on = cancel_on

    async def payload(self) -> Path:
        raise PayloadError("a command has no payload", retryable=False)

    async def scratch(self) -> Path:
        raise NotImplementedError("a command leaves no files")

    async def keep_body(self, path: Path) -> str:
        raise NotImplementedError("a command's result has no body apart from it")

    async def report(self, phase: str, reason: str | None) -> None:
        self.reports.append((phase, reason))
        if phase == self._cancel_on:
            self.cancelled.set()

    def beat(self) -> None:
        self.heartbeats += 1
        if self.heartbeats == self._cancel_on:
            self.cancelled.set()

    async def no_return(self, phase: str, memo: str) -> None:
        raise NotImplementedError("a command has no point of no return")

    async def handed(self, handle: str) -> None:
        raise NotImplementedError("a command has no device")
