"""What a package of command handlers is written with.

    commands = Commands()

    @commands.on("whatsapp.connect")
    async def connect(params, ctx):
        ...

A handler must be safe to run twice: a command whose result never arrived comes back.
"""

import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from farhand.model.errors import FarhandError
from farhand.systems.commands.kind import is_type_name

PHASE_MAX: Final = 40
GRACE_MS: Final = 10_000
_PHASE: Final = re.compile(r"[a-z][a-z0-9_-]*")

Function = Callable[[Any, "Context"], Any]
F = TypeVar("F", bound=Function)
C = TypeVar("C", bound=Callable[[], object])


class RegistryError(FarhandError):
    """A handler that cannot be registered, or a registry that cannot be found or joined."""

    code = "bad-config"


class Retryable(Exception):
    """It did not work this time, and another try could help.

    The text is for people and leaves the machine. `after_ms` is the least time to wait; the
    server's own backoff holds when it is longer.
    """

    def __init__(self, message: str, *, after_ms: int | None = None) -> None:
        if after_ms is not None and after_ms < 0:
            raise ValueError(f"after_ms must not be negative, got {after_ms}")
        super().__init__(message)
        self.message = message
        self.after_ms = after_ms


class Fatal(Exception):
    """It will never work, and trying again would only delay saying so. The text is for people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Cancelled(Exception):
    """The work is to stop; a handler may raise it itself once `ctx.cancelled` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """Where a handler's words go; both may be called from any thread."""

    report: Callable[[str, str | None], None]
    beat: Callable[[], None]


class Context:
    """One run of a handler, for sync and async ones alike. `id` is the command's UUID.

    `cancelled` is set when the work is to stop: it was cancelled, its time is over, it is not
    ours any more, or the agent stops. An async handler is also cancelled as a task.
    """

    def __init__(self, *, id: str, type: str, attempt: int, voice: Voice) -> None:
        self.id = id
        self.type = type
        self.attempt = attempt
        self.cancelled = threading.Event()
        self._voice = voice

    def report(self, phase: str, reason: str | None = None) -> None:
        """Says where the work stands and, in words, what it waits for; never put a secret there.

        Returns at once. Raises ValueError for a phase that is no word of a-z, 0-9, _ and -.
        """
        if len(phase) > PHASE_MAX or not _PHASE.fullmatch(phase):
            raise ValueError(f"a phase is a word of a-z, 0-9, _ and - with up to {PHASE_MAX} letters")
        self._voice.report(phase, reason)

    def heartbeat(self) -> None:
        """Says that the work goes on, and looks for a wish to stop. Returns at once.

        The lease is kept without it; call it between the steps of something long, above all in
        a sync handler, which nobody can interrupt. Raises Cancelled when the work is to stop.
        """
        if self.cancelled.is_set():
            raise Cancelled
        self._voice.beat()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A handler and how it is run. `grace_ms` is how long it may take to stop when told to."""

    type: str
    function: Function
    concurrency: int
    grace_ms: int

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function; the others run in a thread."""
        called = getattr(self.function, "__call__", None)  # noqa: B004  (an object may be called, too)
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)


class Commands:
    """Handlers by type. What they act upon is bound when they are registered, never taken from
    a command: a closure over the provider, or a method of an object that holds it.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Registered] = {}
        self._closing: list[Callable[[], object]] = []

    @property
    def handlers(self) -> Mapping[str, Registered]:
        """The handlers by type."""
        return MappingProxyType(self._handlers)

    @property
    def closing(self) -> Sequence[Callable[[], object]]:
        """What is to be called when the agent ends, last registered first."""
        return tuple(reversed(self._closing))

    def on(self, type: str, *, concurrency: int = 1, grace_ms: int = GRACE_MS) -> Callable[[F], F]:
        """Registers `(params, ctx)` for a type and returns it as it is.

        `concurrency` is how many of the type may run at once. Raises RegistryError.
        """
        if not is_type_name(type):
            raise RegistryError(f"{type!r} is no command type; write it like 'whatsapp.connect'")
        if concurrency < 1 or grace_ms < 0:
            raise RegistryError(f"{type}: concurrency must be at least 1 and grace_ms at least 0")

        def register(function: F) -> F:
            _check_signature(type, function)
            self._add(Registered(type=type, function=function, concurrency=concurrency, grace_ms=grace_ms))
            return function

        return register

    def on_close(self, function: C) -> C:
        """Registers what frees the provider when the agent ends, sync or async."""
        self._closing.append(function)
        return function

    def include(self, other: "Commands") -> None:
        """Takes over another registry's handlers. Raises RegistryError for a type they share."""
        for registered in other._handlers.values():
            self._add(registered)
        self._closing += other._closing

    def _add(self, registered: Registered) -> None:
        if registered.type in self._handlers:
            raise RegistryError(f"{registered.type} has a handler already; register each type once")
        self._handlers[registered.type] = registered


def _check_signature(type: str, function: Function) -> None:
    try:
        inspect.signature(function).bind({}, None)
    except (TypeError, ValueError) as error:
        raise RegistryError(f"{type}: a handler takes (params, ctx): {error}") from error
