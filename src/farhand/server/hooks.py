"""What systems do at points of the server's own routes, found by the kind of a job."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from farhand.engine.requests import Act
from farhand.model.job import WAITING, Job
from farhand.model.policy import Policy
from farhand.model.system import System

if TYPE_CHECKING:
    from farhand.server.context import Context

REMEMBERED: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A reported result as it is kept, and how many bytes of somebody else's it brought."""

    result: Any
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a job came to, as bytes of a content type.

    The bytes are `body`, or lie in the payload store under `sha256` and are `size` many.
    """

    content_type: str
    body: bytes | None = None
    sha256: bytes | None = None
    size: int = 0


class Results(Protocol):
    """What a system knows about the results of its kinds."""

    def body_limit(self, job: Job) -> int:
        """How many bytes a body of the result may have that comes in a request of its own."""
        ...

    async def check(self, context: "Context", act: Act, result: Any, *, ok: bool) -> Checked:
        """A result as it is kept. Raises Problem naming the field that does not fit."""
        ...

    async def show(self, context: "Context", job: Job) -> Shown:
        """What a job that is done came to. Raises Problem where that is no longer there."""
        ...


PolicyOf = Callable[[Job, Mapping[str, Policy]], Policy]
Explain = Callable[["Context", Job], Awaitable[str | None]]
Tick = Callable[["Context"], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Hooks:
    """The hooks of all systems, by kind; and the kinds of the jobs handed out lately."""

    policies: dict[str, PolicyOf] = field(default_factory=dict[str, PolicyOf])
    results: dict[str, Results] = field(default_factory=dict[str, Results])
    explain: dict[str, Explain] = field(default_factory=dict[str, Explain])
    ticks: list[tuple[int, Tick]] = field(default_factory=list[tuple[int, Tick]])
    _handed: OrderedDict[bytes, str] = field(default_factory=OrderedDict[bytes, str])

    def policy_of(self, job: Job, policies: Mapping[str, Policy]) -> Policy | None:
        """The policy in force for a job made again; None when its kind is no longer known."""
        hook = self.policies.get(job.kind)
        return hook(job, policies) if hook is not None else policies.get(job.kind)

    async def why(self, context: "Context", job: Job) -> str | None:
        """Why a job waits, in words: as its system sees it now, or else as it is written."""
        hook = self.explain.get(job.kind)
        found = await hook(context, job) if hook is not None and job.state in WAITING else None
        return found or job.reason

    def note(self, job: Job) -> None:
        """Remember of what kind a job is that an agent takes: its result will not say."""
        self._handed[job.id] = job.kind
        if len(self._handed) > REMEMBERED:
            self._handed.popitem(last=False)

    def kind(self, job_id: bytes) -> str | None:
        """The kind of a job handed out lately by this process."""
        return self._handed.get(job_id)


def find_hooks(systems: Iterable[System], load: Callable[[str], Any]) -> Hooks:
    """The hooks that the systems' manifests name."""
    hooks = Hooks()
    for system in systems:
        if system.policy_of is not None:
            policy_of: PolicyOf = load(system.policy_of)
            hooks.policies.update({kind: policy_of for kind in system.kinds})
        if system.results is not None:
            results: Results = load(system.results)()
            hooks.results.update({kind: results for kind in system.kinds})
        if system.explain is not None:
            explain: Explain = load(system.explain)
            hooks.explain.update({kind: explain for kind in system.kinds})
        hooks.ticks += [(pause_ms, load(place)) for place, pause_ms in system.ticks.items()]
    return hooks
