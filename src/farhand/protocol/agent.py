"""Messages between agents and the server: the dialect of seed 000 and the native one.

Durations are milliseconds and end in `_ms`; `lease_token` is 32 hex digits.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from farhand.protocol.wire import Message, Reply

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Token = Annotated[str, Meta(min_length=32, max_length=32, pattern=r"^[0-9a-f]*$(?!\n)")]
Reason = Annotated[str, Meta(max_length=4000)]
Phase = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[a-z][a-z0-9_-]*$(?!\n)")]
PollId = Annotated[str, Meta(min_length=1, max_length=64)]
CLAIM_MAX = 64


class PrinterInfo(Message, frozen=True):
    """One printer as its agent sees it. `can_pdf` is all that seed 000 knows.

    `capabilities` may hold raw, pdf, color, duplex, copies_max, papers, bins, media_types,
    resolutions and formats; what is missing is unknown.
    """

    name: Name
    can_pdf: bool = False
    capabilities: dict[str, Any] | None = None
    state: Annotated[str, Meta(max_length=40)] = "unknown"
    reason: Reason | None = None


class RegisterRequest(Message, frozen=True):
    """`POST /agent/register`: who the agent is and what is behind it.

    `public_key` is the Ed25519 key (raw, base64) that a signing agent signs this very request with.
    """

    name: Name
    printers: Annotated[list[PrinterInfo], Meta(max_length=1000)] = []
    version: Annotated[str, Meta(max_length=100)] | None = None
    runtime: Annotated[str, Meta(max_length=200)] | None = None
    capabilities: Annotated[list[Name], Meta(max_length=60)] | None = None
    public_key: Annotated[str, Meta(max_length=100)] | None = None


class RegisterReply(Reply, frozen=True):
    """The agent's id and its printers' ids in the order of the request.

    `wait_ms` is how long the server would like polls to be held.
    """

    computer_id: str
    printer_ids: list[str]
    name: str
    state: str
    wait_ms: int


class SeedClaimReply(Reply, frozen=True):
    """`GET /agent/jobs`: one job for an agent that fetches the payload apart."""

    job_id: str
    printer_id: str
    mode: str
    attempt: int
    lease_token: str


class ClaimRequest(Message, frozen=True):
    """`POST /agent/claim`: ask for work. The same `poll_id` gets the same answer.

    `lanes` are ids of devices that are free; None means all of this agent's lanes. `per_lane`
    bounds the jobs from one lane. `accept` takes the jobs at once; otherwise `start` is due
    within the server's accept time. `wait_ms` holds the request until there is work.
    """

    poll_id: PollId
    lanes: Annotated[list[Annotated[str, Meta(max_length=36)]], Meta(max_length=1000)] | None = None
    max: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    per_lane: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] | None = None
    accept: bool = False
    wait_ms: Annotated[int, Meta(ge=0, le=55_000)] = 0


class PayloadRef(Reply, frozen=True, omit_defaults=True):
    """A job's bytes: inline as base64 when small, else a path to fetch them from."""

    size: int
    base64: str | None = None
    url: str | None = None


class ClaimedJob(Reply, frozen=True):
    """One job handed out. `params` is the system's own, `lease_ms` counts from the reply.

    `secret_fields` names members of the result that are secrets, where there are such.
    """

    job_id: str
    kind: str
    printer_id: str | None
    mode: str | None
    title: str | None
    attempt: int
    lease_token: str
    lease_ms: int
    accepted: bool
    params: Any
    payload: PayloadRef | None
    directive: str = "continue"
    secret_fields: list[str] | UnsetType = UNSET


class ClaimReply(Reply, frozen=True):
    """What `POST /agent/claim` hands out; `directive` is for the agent as a whole."""

    jobs: list[ClaimedJob]
    directive: str | None = None


class HeldRequest(Message, frozen=True):
    """`…/start` and `…/heartbeat`: the lease and, if it changed, where the work stands.

    `reason` in words why it waits; null clears it, leaving it out leaves it.
    """

    lease_token: Token | None = None
    phase: Phase | None = None
    reason: Reason | None | UnsetType = UNSET


class HeldReply(Reply, frozen=True):
    """The job's state, what to do, how long the lease is and when the next heartbeat is due."""

    state: str
    directive: str
    lease_ms: int
    heartbeat_ms: int


class ReleaseRequest(Message, frozen=True):
    """`…/release` and `…/refuse`: the work goes back, with the reason in words."""

    lease_token: Token | None = None
    reason: Reason | None = None


class ResultRequest(Message, frozen=True):
    """`POST /agent/jobs/{id}/result`: how the attempt ended.

    `retryable` says whether another try could help. `cancelled` says the work was stopped on
    request. `uncertain` says that it may have happened and nobody can tell. `next` is the
    claim to make in the same step.
    """

    ok: bool
    error: Reason | None = None
    lease_token: Token | None = None
    retryable: bool = False
    retry_after_ms: Annotated[int, Meta(ge=0, le=86_400_000)] | None = None
    evidence: Annotated[str, Meta(pattern=r"^(printed|delivered|response|reported)$(?!\n)")] | None = None
    cancelled: bool = False
    uncertain: bool = False
    result: Any = None
    next: ClaimRequest | None = None

    def __repr__(self) -> str:
        """Without error and result, which may hold secrets."""
        return f"ResultRequest(ok={self.ok})"


class ResultBodyReply(Reply, frozen=True):
    """`PUT /agent/jobs/{id}/result/body`: the address and size of what is now kept."""

    sha256: str
    size: int


class BatchResult(Message, frozen=True):
    """One entry of `POST /agent/results`."""

    job_id: Annotated[str, Meta(max_length=36)]
    ok: bool
    error: Reason | None = None
    lease_token: Token | None = None
    retryable: bool = False
    retry_after_ms: Annotated[int, Meta(ge=0, le=86_400_000)] | None = None
    evidence: Annotated[str, Meta(pattern=r"^(printed|delivered|response|reported)$(?!\n)")] | None = None
    cancelled: bool = False
    uncertain: bool = False
    result: Any = None

    def __repr__(self) -> str:
        """Without error and result, which may hold secrets."""
        return f"BatchResult(job_id={self.job_id!r}, ok={self.ok})"


class ResultsRequest(Message, frozen=True):
    """`POST /agent/results`: many results and the next claim in one request."""

    results: Annotated[list[BatchResult], Meta(max_length=CLAIM_MAX)]
    next: ClaimRequest | None = None


class ResultReply(Reply, frozen=True):
    """The state the job went to, and the jobs of the claim that came with the result."""

    state: str
    next: ClaimReply | None = None


class ResultsReply(Reply, frozen=True):
    """One entry per result, `{state}` or a problem, and the jobs of the claim that came with them."""

    items: list[dict[str, Any]]
    next: ClaimReply | None = None


class StateReply(Reply, frozen=True):
    """The state a job is in after a verb."""

    state: str
