"""What can go wrong between a client and its server."""

from typing import Any

import msgspec

from farhand.model.errors import FarhandError
from farhand.protocol.client import JobView
from farhand.protocol.commands import CommandView
from farhand.protocol.fetch import FetchError
from farhand.protocol.wire import Reply


class ProblemDocument(Reply, frozen=True):
    """An RFC 9457 problem as the server sent it; `extra` holds the members beyond the usual ones."""

    code: str
    status: int
    detail: str
    title: str = ""
    type: str = "about:blank"
    retryable: bool = False
    extra: dict[str, Any] = {}


class ApiError(FarhandError):
    """The server refused; `problem` says why and what to do."""

    def __init__(self, problem: ProblemDocument) -> None:
        super().__init__(problem.detail or problem.title or problem.code, **problem.extra)
        self.problem = problem


class Unreachable(FarhandError):
    """No answer came, also after trying again.

    `maybe_taken` says that the request may have reached the server all the same.
    """

    def __init__(self, message: str, *, maybe_taken: bool = False) -> None:
        super().__init__(message)
        self.maybe_taken = maybe_taken


class UnreadableReply(FarhandError):
    """Something answered that is no Farhand server: a proxy's page, say."""


class StillOpen(FarhandError):
    """`wait` ran out of time; `job` is what was last seen, and the job goes on."""

    def __init__(self, job: JobView) -> None:
        super().__init__(f"job {job.id} is still {job.state}; it goes on, ask for it later")
        self.job = job


class CommandOpen(FarhandError):
    """`wait_command` ran out of time; `command` is what was last seen, and it goes on."""

    def __init__(self, command: CommandView) -> None:
        super().__init__(f"command {command.uuid} is still {command.status}; it goes on, ask for it later")
        self.command = command


class FetchFailed(FarhandError):
    """A fetch that brought no answer of the target; `job` is how it ended.

    `why` is what an agent reported, where one did. `reason` is its code; without one it is
    `expired`, `cancelled`, `uncertain` (nobody knows whether the target was asked) or `failed`.
    """

    def __init__(self, job: JobView, why: FetchError | None) -> None:
        self.job, self.why = job, why
        self.reason = why.code if why is not None and job.state == "failed" else job.state
        if self.reason == "done":
            self.reason = "no-result"
        super().__init__(f"{self.reason}: {_why(job, why)}")


def _why(job: JobView, why: FetchError | None) -> str:
    if why is not None and why.message:
        return why.message
    said = {
        "expired": "no agent took it in time",
        "cancelled": "it was taken back",
        "uncertain": "nobody knows whether the target was asked",
        "done": "the agent reported no result",
    }
    return job.error or job.reason or said.get(job.state, f"the job is {job.state}")


def read_problem(body: bytes) -> ProblemDocument | None:
    """The problem document in a reply's body; None when it is none."""
    try:
        members = msgspec.json.decode(body, type=dict[str, Any])
        known = msgspec.convert(members, ProblemDocument)
    except msgspec.DecodeError:
        return None
    extra = {name: value for name, value in members.items() if name not in ProblemDocument.__struct_fields__}
    return msgspec.structs.replace(known, extra=extra)
