"""Requests and retries without I/O: plans that either transport carries out.

A plan is a generator. It yields a Call and is sent what the call's reply says, or yields a
Pause; what it returns is the answer. `steps` turns it into single exchanges with retries.
"""

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from farhand.client.errors import ApiError, ProblemDocument, Unreachable, UnreadableReply, read_problem
from farhand.model.clock import Clock
from farhand.model.errors import FarhandError

BACKOFF_BASE_MS: Final = 200
BACKOFF_CAP_MS: Final = 5_000
RETRY_AFTER_CAP_MS: Final = 60_000
SHOWN: Final = 120

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Sink(Protocol):
    """Takes a body piece by piece."""

    def begin(self) -> None:
        """The bytes that follow are the body from its start; those before are to be forgotten."""
        ...

    def write(self, piece: bytes) -> object:
        """The next bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """One request of the API and how its reply is read.

    `repeatable` says that sending it twice is harmless: a read, or a write that the server
    recognises. `wait_s` is how long the server is asked to hold it, `work_s` how much longer
    than usual it may take, `patience_ms` overrides how long failures are tried again. With a
    `sink` the body of a good reply goes there, and `parse` is given none.
    """

    method: str
    path: str
    parse: Callable[[bytes], T_co]
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    repeatable: bool = False
    wait_s: int = 0
    work_s: int = 0
    patience_ms: int | None = None
    sink: Sink | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Do nothing for a while."""

    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply of the transport; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """No reply came. `sent` is False when the request surely never left."""

    why: str
    sent: bool


Plan: TypeAlias = Generator[Call[Any] | Pause, Any, T]
Steps: TypeAlias = Generator[Call[Any] | Pause, Answer | Lost | None, T]


def new_idempotency_key() -> str:
    """A key that no other request has."""
    return secrets.token_urlsafe(18)


def ask(call: Call[T]) -> Plan[T]:
    """The plan of a single call."""
    return (yield call)


def reads(kind: type[T]) -> Callable[[bytes], T]:
    """A parser of a JSON body into a message."""
    return msgspec.json.Decoder(kind).decode


def steps(plan: Plan[T], clock: Clock, patience_ms: int) -> Steps[T]:
    """A plan as single exchanges: each call is tried again while that can help.

    Raises what `exchange` raises, unless the plan handles it.
    """
    try:
        step = next(plan)
        while True:
            if isinstance(step, Pause):
                yield step
                step = plan.send(None)
                continue
            try:
                value = yield from exchange(step, clock, patience_ms)
            except FarhandError as error:
                step = plan.throw(error)
            else:
                step = plan.send(value)
    except StopIteration as stop:
        return stop.value
    finally:
        plan.close()


def exchange(call: Call[T], clock: Clock, patience_ms: int) -> Steps[T]:
    """One call, sent again after a lost connection, 429, 503 and the like.

    Raises ApiError, Unreachable or UnreadableReply.
    """
    until = clock.monotonic_ms() + (patience_ms if call.patience_ms is None else call.patience_ms)
    tries = 0
    maybe_taken = False
    while True:
        outcome = yield call
        if outcome is None:
            raise TypeError("a call is answered with an Answer or a Lost")
        if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
            return _read(call, outcome)
        maybe_taken |= isinstance(outcome, Lost) and outcome.sent
        error = _error(outcome, maybe_taken=maybe_taken)
        wait_ms = _next_try_ms(call, outcome, error, tries)
        if wait_ms is None or clock.monotonic_ms() + wait_ms > until:
            raise error
        tries += 1
        yield Pause(ms=wait_ms)


def _next_try_ms(call: Call[Any], outcome: Answer | Lost, error: FarhandError, tries: int) -> int | None:
    backoff = min(BACKOFF_CAP_MS, BACKOFF_BASE_MS << min(tries, 10))
    backoff += secrets.randbelow(backoff // 10 + 1)
    if isinstance(outcome, Lost):
        return backoff if call.repeatable or not outcome.sent else None
    if not _may_repeat(call, outcome, error):
        return None
    return max(backoff, _retry_after_ms(outcome))


def _may_repeat(call: Call[Any], answer: Answer, error: FarhandError) -> bool:
    if isinstance(error, ApiError):
        if answer.status in (429, 503):
            return True
        return call.repeatable and error.problem.retryable and answer.status != 403
    return call.repeatable and answer.status in (429, 502, 503, 504)


def _retry_after_ms(answer: Answer) -> int:
    text = answer.headers.get("retry-after", "")
    return min(int(text) * 1000, RETRY_AFTER_CAP_MS) if text.isascii() and text.isdigit() else 0


def _read(call: Call[T], answer: Answer) -> T:
    try:
        return call.parse(answer.body)
    except msgspec.DecodeError as error:
        raise _unreadable(answer, str(error)) from error


def _error(outcome: Answer | Lost, *, maybe_taken: bool) -> FarhandError:
    if isinstance(outcome, Lost):
        return Unreachable(outcome.why, maybe_taken=maybe_taken)
    problem = read_problem(outcome.body)
    if problem is not None:
        return ApiError(problem)
    if 300 <= outcome.status < 400 and (target := outcome.headers.get("location")):
        return UnreadableReply(f"the server sends on to {target}; use the address that it really has")
    return _unreadable(outcome, "no problem document")


def _unreadable(answer: Answer, why: str) -> UnreadableReply:
    kind = answer.headers.get("content-type", "no type")
    start = answer.body[:SHOWN].decode("utf-8", "replace").strip()
    return UnreadableReply(
        f"no Farhand server answered ({answer.status}, {kind}, {why}): {start!r}; is the address right?",
        status=answer.status,
    )


def problem_of(members: Mapping[str, Any]) -> ProblemDocument | None:
    """An entry of a batch reply as a problem; None when it is something else."""
    return read_problem(msgspec.json.encode(members))
