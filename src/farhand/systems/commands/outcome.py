"""What a handler's run comes to, without I/O: the same for the agent and for tests."""

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from farhand.model.secret import Secret
from farhand.systems.commands.sdk import Cancelled, Context, Fatal, Registered, Retryable

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It worked. `body` is the result as JSON in clear; `secret` says whether it holds secrets."""

    body: bytes = field(repr=False)
    secret: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It did not work; `error` is for people, `retryable` says whether another try could help."""

    error: str
    retryable: bool
    after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """It was told to stop and did."""


Outcome = Done | Failed | Stopped


def run_sync(registered: Registered, params: Any, ctx: Context) -> Outcome:
    """Runs a sync handler here. Never raises: not even SystemExit ends an agent."""
    try:
        return succeeded(registered.function(params, ctx))
    except BaseException as error:
        return failed(ctx, error)


async def run_async(registered: Registered, params: Any, ctx: Context) -> Outcome:
    """Runs an async handler; cancelled as a task, the handler is, and may still return a result."""
    try:
        return succeeded(await registered.function(params, ctx))
    except Exception as error:
        return failed(ctx, error)


def succeeded(result: Any) -> Outcome:
    """What a handler returned; something that JSON does not know can never be reported."""
    found: list[object] = []

    def reveal(value: Any) -> Any:
        if isinstance(value, Secret):
            found.append(value)  # pyright: ignore[reportUnknownArgumentType]  (whatever it holds)
            return cast("Secret[Any]", value).reveal()
        raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} cannot be written as JSON")

    try:
        body = msgspec.json.encode(result, enc_hook=reveal)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        # Their texts name types and limits; a UnicodeEncodeError would quote the value.
        why = "text that is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        return Failed(error=f"the handler's result cannot be reported: {why}", retryable=False)
    return Done(body=body, secret=bool(found))


def failed(ctx: Context, error: BaseException) -> Outcome:
    """What a handler raised. Only `Retryable` and `Fatal` speak for themselves: the text of any
    other exception may quote params or a secret, so that neither log nor server gets it.
    """
    match error:
        case Retryable():
            return Failed(error=str(error.message), retryable=True, after_ms=error.after_ms)
        case Fatal():
            return Failed(error=str(error.message), retryable=False)
        case Cancelled():
            return Stopped()
        case _:
            name = type(error).__name__
            log.error(
                "handler_failed",
                extra={
                    "command": ctx.id,
                    "type": ctx.type,
                    "attempt": ctx.attempt,
                    "error": " < ".join(_names(error)),
                    "trace": " < ".join(_places(error)),
                },
            )
            return Failed(error=f"the handler failed: {name}; the agent's log says where", retryable=True)


def _chain(error: BaseException) -> Sequence[BaseException]:
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in chain:
        chain.append(step)
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
    return chain


def _names(error: BaseException) -> Sequence[str]:
    return [f"{type(step).__module__}.{type(step).__qualname__}" for step in _chain(error)]


def _places(error: BaseException) -> Sequence[str]:
    """Where it went wrong, innermost first: file, line and function, and nothing of their data."""
    frames = [frame for step in _chain(error) for frame in reversed(traceback.extract_tb(step.__traceback__))]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
