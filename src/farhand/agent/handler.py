"""What a system's handler gets from the agent and gives back."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec

from farhand.model.clock import Clock
from farhand.model.errors import FarhandError
from farhand.protocol.agent import ClaimedJob, PrinterInfo

if TYPE_CHECKING:
    from farhand.agent.config import AgentConfig


R = TypeVar("R")


class Abandoned(FarhandError):
    """The attempt is no longer ours: stop, and report nothing."""

    code = "stale-claim"


class Withdrawn(FarhandError):
    """The server wants the job stopped, and nothing irreversible has begun."""

    code = "state-conflict"


class Unwilling(FarhandError):
    """This agent does not do such work, though another may: nothing has been begun."""

    code = "state-conflict"


class NotNow(FarhandError):
    """The device cannot do this just now: the work goes back, uncounted, and nothing has been begun."""

    code = "state-conflict"


class GoesOn(FarhandError):
    """The device works on without the agent; the next start finds out what became of it."""

    code = "state-conflict"


class Decided(FarhandError):
    """The server knows how the attempt ended: there is nothing to report, and nothing left to do."""

    code = "state-conflict"


class PayloadError(FarhandError):
    """The job's bytes cannot be had; `retryable` when another try could help."""

    code = "payload-gone"

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDraft:
    """How an attempt ended, in the words of the wire.

    `result` is a value that JSON knows. A draft that is not `durable` holds secrets: it is
    never put on disk, and a crash before its delivery loses it.
    """

    ok: bool
    error: str | None = field(default=None, repr=False)
    retryable: bool = False
    retry_after_ms: int | None = None
    evidence: str | None = None
    cancelled: bool = False
    uncertain: bool = False
    result: Any = field(default=None, repr=False)
    durable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What the journal knows of an attempt that an earlier run of the agent left behind.

    `memo` is what the handler noted at the point of no return; None when the journal was
    damaged there. `handle` is the device's own name for the work, once it had one.
    """

    job_id: str
    attempt: int
    lease_token: str
    kind: str
    device: str | None
    memo: str | None
    handle: str | None


class Tools(Protocol):
    """The handler's line to the agent during one attempt.

    `device` is the name under which the handler described it; `cancelled` is set when the
    server wants the work stopped.
    """

    device: str | None
    cancelled: asyncio.Event

    async def payload(self) -> Path:
        """The job's bytes as a file that goes away with the attempt.

        Raises PayloadError, Abandoned.
        """
        ...

    async def scratch(self) -> Path:
        """A place for a file that goes away with the attempt. Raises OSError."""
        ...

    async def keep_body(self, path: Path) -> str:
        """The file's bytes become the body of the result; their SHA-256 in hexadecimal.

        Tried again while the attempt is ours. Raises PayloadError, Abandoned.
        """
        ...

    async def report(self, phase: str, reason: str | None) -> None:
        """Where the work is and in words why it waits; sent by and by."""
        ...

    def beat(self) -> None:
        """Sends a heartbeat soon, so that a wish to stop is heard sooner than usual."""
        ...

    async def no_return(self, phase: str, memo: str) -> None:
        """Awaited before the first irreversible step: the server has agreed to it just now and
        the journal knows of it. `memo` comes back in `Unfinished`.

        Raises Withdrawn, Abandoned, OSError when the journal cannot be written.
        """
        ...

    async def handed(self, handle: str) -> None:
        """The device knows the work under this name; on disk when this returns."""
        ...


class Handler(Protocol):
    """What a system does on the agent. A kind that ends in `.*` stands for all that begin so."""

    kinds: Sequence[str]

    async def describe(self) -> Sequence[PrinterInfo]:
        """The devices there are now; names are unique. Called again and again."""
        ...

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        """Does one job. Cancelled as a task only before `no_return` has returned.

        Raises Unwilling to hand it to another agent, NotNow to give it back for now, and where
        the device's own words settle the work Decided when it is over, GoesOn when the agent goes.
        """
        ...

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        """Finds out what became of work past its point of no return; never does it again."""
        ...

    async def aclose(self) -> None:
        """Frees what the handler holds."""
        ...


@runtime_checkable
class OwnLane(Protocol):
    """A handler whose work needs no device and comes through the agent's own lane.

    `own_lane` is how many such jobs it takes at once.
    """

    own_lane: int


@runtime_checkable
class OwnersLane(Protocol):
    """A handler of work that any agent of the same owners may do.

    `owners_lane` is how many such jobs it takes at once. What is lost with the agent the server
    hands out anew, so the journal of such work is not waited for before its point of no return.
    """

    owners_lane: int


@runtime_checkable
class Declares(Protocol):
    """A handler whose work asks for more than a kind. `capabilities` are told to the server."""

    capabilities: Sequence[str]


@runtime_checkable
class Apart(Protocol):
    """A handler that dials out by itself, in words of its own, instead of through the agent."""

    async def serve(self, stopping: asyncio.Event, show: Callable[[str], None]) -> None:
        """Works until `stopping`, and then sees through what has begun.

        `show` gets what a person has to read. Raises ShutOut.
        """
        ...


class Line(Protocol):
    """A handler's line to the server beside its attempts. `stopping` is set when the agent goes."""

    stopping: asyncio.Event

    async def tell(self, path: str, message: msgspec.Struct, kind: type[R]) -> R:
        """Posts a message; the reply. Raises the errors of `farhand.agent.errors`."""
        ...

    def lanes(self, names: Mapping[str, str]) -> None:
        """Devices that the server has given ids outside the registration: id to name."""
        ...


@runtime_checkable
class Standing(Protocol):
    """A handler that has something to tell the server all the time."""

    async def stand(self, line: Line) -> None:
        """Works until cancelled, which comes after the work in the lanes has ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a handler is made with: its table of agent.toml, and where relative paths start.

    `agent` are the settings outside the tables; None where no agent runs.
    """

    clock: Clock
    folder: Path
    section: Mapping[str, object] = field(default_factory=dict[str, object])
    agent: "AgentConfig | None" = None
