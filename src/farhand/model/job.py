"""A job, its attempts and its events, as the engine holds them in memory."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """Where a job is. The last four are terminal."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    UNCERTAIN = "uncertain"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


TERMINAL: Final = frozenset({State.DONE, State.FAILED, State.CANCELLED, State.EXPIRED})
WAITING: Final = frozenset({State.SCHEDULED, State.QUEUED})
HELD: Final = frozenset({State.CLAIMED, State.RUNNING})


UPLOAD_TIMEOUT: Final = "upload-timeout"
"""The reason of a job whose upload to a machine stood still; proof of life takes it back."""


class Verb(StrEnum):
    """What can happen to a job; one word per transition, route and event."""

    SUBMIT = "submit"
    PROMOTE = "promote"
    CLAIM = "claim"
    START = "start"
    HEARTBEAT = "heartbeat"
    REPORT = "report"
    SETTLE = "settle"
    RELEASE = "release"
    REFUSE = "refuse"
    RECLAIM = "reclaim"
    EXPIRE = "expire"
    CANCEL = "cancel"
    RETRY = "retry"
    RESOLVE = "resolve"
    ADOPT = "adopt"
    PRUNE = "prune"
    LATE_RESULT = "late_result"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"
    REFUSED = "refused"
    UNACCEPTED = "unaccepted"
    LOST = "lost"
    SUPERSEDED = "superseded"


class Evidence(StrEnum):
    """How it is known that a job was done, from the strongest to a person's word."""

    PRINTED = "printed"
    DELIVERED = "delivered"
    RESPONSE = "response"
    TELEMETRY = "telemetry"
    REPORTED = "reported"
    PERSON = "person"


class Dialect(StrEnum):
    """Which agent protocol an attempt is spoken in."""

    NATIVE = "native"
    SEED = "seed"


@dataclass(slots=True)
class Job:
    """One job row. Field order is the column order of the `{job_columns}` token.

    Times are milliseconds UTC; `tries` counts accepted attempts that were not given back;
    `attempt` is the number of the newest attempt; `version` numbers the job's events.
    """

    seq: int
    id: bytes
    org_id: int
    kind: str
    state: str
    policy_id: int
    agent_id: bytes | None
    device_id: bytes | None
    lane: bytes
    priority: int
    requires: int
    mode: str | None
    title: str | None
    source: str | None
    tags: str | None
    metadata: str | None
    params: str | None
    payload_size: int | None
    submitted_by: bytes | None
    retry_of: bytes | None
    active_key: str | None
    created_at: int
    run_at: int | None
    start_by: int | None
    deadline: int | None
    due_at: int | None
    hedge_at: int | None
    accepted_at: int | None
    finished_at: int | None
    prune_at: int | None
    cancel_requested_at: int | None
    abort_at: int | None
    attempt: int
    tries: int
    version: int
    phase: str | None
    reason: str | None
    evidence: str | None
    error: str | None
    result: str | None


@dataclass(slots=True)
class Attempt:
    """One handing-out of a job. Field order is that of the `{attempt_columns}` token.

    Open while `ended_at` is None. `no_return` is 1 once the work may have happened in the
    physical world. `settled_to` is the state the settle answered with, for replays.
    """

    job_seq: int
    number: int
    org_id: int
    agent_id: bytes
    dialect: str
    token: bytes = field(repr=False)
    poll_id: str | None
    lease_until: int
    no_return: int
    created_at: int
    accepted_at: int | None
    started_at: int | None
    ended_at: int | None
    outcome: str | None
    retryable: int
    error: str | None
    digest: bytes | None = field(repr=False)
    settled_to: str | None
    session_id: bytes | None = None

    @property
    def open(self) -> bool:
        """Whether the attempt has not ended."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who did something: an agent, an API key, the root token or the server's own sweep."""

    kind: str
    id: bytes | None = None


SWEEP: Final = Actor(kind="sweep")
SERVER: Final = Actor(kind="server")


class Event(NamedTuple):
    """An append-only fact about a job, written with the change it describes."""

    job_seq: int
    number: int
    org_id: int
    at: int
    actor: Actor
    verb: str
    from_state: str | None
    to_state: str
    attempt: int | None = None
    reason: str | None = None
    data: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Everything a system says about one job to be written down.

    `requires` is a set of capability names; `payload` holds a small body itself, `payload_sha256`
    names one that already lies in the payload store. `expires_in_ms` counts from `run_at` if set.
    """

    org_id: int
    kind: str
    lane: bytes
    agent_id: bytes | None = None
    device_id: bytes | None = None
    mode: str | None = None
    title: str | None = None
    source: str | None = None
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    params: str | None = None
    payload: bytes | None = None
    payload_sha256: bytes | None = None
    payload_size: int | None = None
    requires: frozenset[str] = field(default_factory=frozenset[str])
    priority: int = 0
    run_at: int | None = None
    expires_in_ms: int | None = None
    active_key: str | None = None
    submitted_by: bytes | None = None
    actor: Actor = SERVER
    policy_name: str | None = None
