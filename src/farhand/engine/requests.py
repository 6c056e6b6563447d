"""What the engine's verbs are asked and what they answer.

What is made for every job is a Struct: an object of many fields for a tenth of what a frozen dataclass takes.
"""

from dataclasses import dataclass, field

import msgspec

from farhand.engine.attempt import Progress
from farhand.engine.report import Report
from farhand.model.job import Actor, Attempt, Dialect, Job, Submission
from farhand.model.policy import Policy

NO_PROGRESS = Progress()


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """Write down one job. With an idempotency key the fingerprint (SHA-256) decides repeats.

    `reserved` says that the key was taken beforehand, by a Reserve of this very request.
    """

    submission: Submission
    policy: Policy
    idempotency_key: str | None = None
    fingerprint: bytes | None = None
    reserved: bool = False
    retry_of: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Take an idempotency key before its request's outside work begins, or let it go again."""

    org_id: int
    key: str
    fingerprint: bytes
    drop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonce:
    """Take note that an agent used a nonce; the answer says whether it was the first time."""

    org_id: int
    agent_id: bytes
    nonce: str


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The job that now stands for the request; `created` is False for an idempotent repeat."""

    job_id: bytes
    state: str
    created: bool


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for work in `lanes`, at most `max` jobs and `per_lane` from each.

    `capabilities` is the bit set of what the agent can do. With `hold` the job's device is
    taken in the same transaction, and a device that is held gives nothing. With `begin` the
    claim is the start, as in seed dialects whose work begins with it. `session` is noted on the
    attempts: what they come to is counted for it. With `job_id` that job alone is meant, while it
    waits in one of the lanes.
    """

    org_id: int
    agent_id: bytes
    lanes: tuple[bytes, ...]
    max: int = 1
    per_lane: int = 32
    accept: bool = False
    accept_ms: int = 10_000
    poll_id: str | None = None
    dialect: Dialect = Dialect.NATIVE
    capabilities: int = 0
    device_id: bytes | None = None
    hold: bool = False
    begin: bool = False
    session: bytes | None = None
    job_id: bytes | None = None


@dataclass(slots=True)
class Claimed:
    """One job handed out, with its attempt, its policy and its payload when that is inline."""

    job: Job
    attempt: Attempt
    policy: Policy
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An agent's write about an attempt. Without a token it means the agent's own open attempt.

    With `family`, the beginning of a kind, a job of any other kind is not there.
    """

    org_id: int
    job_id: bytes
    agent_id: bytes
    token: bytes | None = field(default=None, repr=False)
    progress: Progress = NO_PROGRESS
    family: str | None = None


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's report about its attempt; `bytes_out` is counted where it is the one that counts."""

    act: Act
    report: Report
    bytes_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An agent gives an attempt back, or refuses it.

    `untouched` says of a refusal that nothing was done, where the claim was the start.
    """

    act: Act
    refuse: bool = False
    untouched: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A person's verb on a job."""

    org_id: int
    job_id: bytes
    actor: Actor
    note: str | None = None
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """The payload of a job that was submitted without one has arrived in the payload store."""

    order: Order
    sha256: bytes
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFirst:
    """Let a waiting job go before the others of its lane, by a priority above theirs."""

    order: Order
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Submit a finished or uncertain job again under the policy now in force."""

    order: Order
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a list shows; None means any. `before` is the seq of the last one seen.

    `states` are several states of which each will do, `family` is the beginning of a kind.
    """

    org_id: int
    state: str | None = None
    states: tuple[str, ...] = ()
    kind: str | None = None
    family: str | None = None
    device_id: bytes | None = None
    agent_id: bytes | None = None
    tag: str | None = None
    source: str | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadPlace:
    """Where a job's payload lies: inline in `body`, or in the payload store under its SHA-256."""

    size: int
    body: bytes | None
    sha256: bytes | None
