"""What a handler's run comes to, without I/O: the same for the agent and for tests."""

import logging
import secrets
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from farhand.model.secret import Secret
from farhand.systems.commands.sdk import Cancelled, Context, Fatal, Registered, Retryable

WHOLE: Final = "result"
log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It worked. `body` is the result as JSON in clear.

    `secret_fields` are the members of it that hold secrets; `whole` says that it is no object
    and has no members.
    """

    body: bytes = field(repr=False)
    secret_fields: frozenset[str]
    whole: bool


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
    drawer: dict[str, Any] = {}

    def put_away(value: Any) -> str:
        if not isinstance(value, Secret):
            raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} cannot be written as JSON")
        # A text that occurs nowhere else stands for the secret until it is known where it lies.
        place = secrets.token_hex(16)
        drawer[place] = msgspec.to_builtins(cast("Secret[Any]", value).reveal(), enc_hook=put_away)
        return place

    try:
        tree = msgspec.to_builtins(result, enc_hook=put_away, str_keys=True)
        members = cast("dict[str, Any]", tree) if isinstance(tree, dict) else {WHOLE: tree}
        fields = frozenset(name for name, value in members.items() if _holds(value, drawer))
        body = msgspec.json.encode(_revealed(tree, drawer))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        # Their texts name types and limits; a UnicodeEncodeError would quote the value.
        why = "text that is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        return Failed(error=f"the handler's result cannot be reported: {why}", retryable=False)
    return Done(body=body, secret_fields=fields, whole=not isinstance(tree, dict))


def _holds(value: Any, drawer: Mapping[str, Any]) -> bool:
    if isinstance(value, str):
        return value in drawer
    if isinstance(value, dict):
        return any(_holds(inner, drawer) for inner in cast("dict[str, Any]", value).values())
    return isinstance(value, list) and any(_holds(inner, drawer) for inner in cast("list[Any]", value))


def _revealed(value: Any, drawer: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return _revealed(drawer[value], drawer) if value in drawer else value
    if isinstance(value, dict):
        return {name: _revealed(inner, drawer) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_revealed(inner, drawer) for inner in cast("list[Any]", value)]
    return value


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
