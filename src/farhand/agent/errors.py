"""What a request to the server can end in, sorted by what the agent must do."""

from farhand.model.errors import FarhandError


class LinkError(FarhandError):
    """Base of what a request to the server can end in."""


class NoAnswer(LinkError):
    """Nothing that the server could have meant: ask again.

    `retry_after_ms` is set when it is known when; 0 is at once.
    """

    code = "busy"

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Stale(LinkError):
    """The attempt is no longer ours; `job_state` is where its job is, if the server said so."""

    code = "stale-claim"

    def __init__(self, message: str, *, job_state: str | None = None) -> None:
        super().__init__(message)
        self.job_state = job_state


class Refused(LinkError):
    """The server understood this request and will not do it; `problem` is its code."""

    def __init__(self, message: str, *, problem: str) -> None:
        super().__init__(message)
        self.problem = problem


class ShutOut(LinkError):
    """The key or this version of the agent is not let in: stop, and say so."""

    code = "unauthorized"


class Pending(NoAnswer):
    """Somebody has to approve this agent by the code that it shows; until then, ask again."""

    code = "agent-pending"

    def __init__(self, message: str, *, user_code: str, expires_in_ms: int) -> None:
        super().__init__(message, retry_after_ms=5_000)
        self.user_code = user_code
        self.expires_in_ms = expires_in_ms
