"""Messages of the pulsar dialect (seed 002), on the paths under `/pulsar/agent/api/`.

Readers ignore members that they do not know, in both directions. Every reply is wrapped as
`{"status": "ok", "data": …}`, every error is `{"status": "error", "code", "message"}`.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from farhand.protocol.wire import Reply

PATH: Final = "/pulsar/agent/api"
BID_HEADER: Final = "Farhand-Bid"
SESSION_HEADER: Final = "Farhand-Session"
"""`GET …/stats` has no body: it takes `bid` and `sessionId` in these headers."""

BROWSER_PREFIX: Final = "browser-"
REFUSED_CODE: Final = "agent-refused-override"
BATCH_MIN: Final = 1
BATCH_MAX: Final = 5
RETRY_BUSY_MS: Final = 500
RETRY_IDLE_MS: Final = 3_000
RETRY_SETTLED_MS: Final = 300
SESSION_LIFE_MS: Final = 24 * 3_600_000

ERRORS: Final[dict[str, int]] = {
    "bid-required": 400,
    "bad-request": 400,
    "device-pending": 403,
    "device-not-approved": 403,
    "session-unknown": 403,
    "job-unknown": 404,
    "too-large": 413,
    "too-many-devices": 429,
    "internal-error": 500,
    "busy": 503,
}
"""The codes of errors with their status. The seed has four of them; the others it leaves open."""

Word = Literal["ignore", "accept", "refuse"]
Bid = Annotated[str, Meta(max_length=512)]
_WORDS: Final = {"insecure_tls": "insecureTLS", "private_ip": "privateIP"}


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what agents of this dialect send: they may know more than the seed says."""


class PulsarCapabilities(_Request, frozen=True, rename=_WORDS):
    """What an agent does with jobs that want more than usual; left out means `ignore`.

    `tags` is an optional field: words that lead work to this agent.
    """

    insecure_tls: Word = "ignore"
    private_ip: Word = "ignore"
    tags: Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=20)] = []


class SessionRequest(_Request, frozen=True, rename="camel"):
    """`POST …/session`: open a session, or find the one that is still open."""

    bid: str | None = None
    session_id: str | None = None
    capabilities: PulsarCapabilities | None = None
    user_agent: str | None = None

    def __repr__(self) -> str:
        """Without the bid, which is a key."""
        return "SessionRequest()"


class ClaimRequest(_Request, frozen=True, rename="camel"):
    """`POST …/claim`: ask for work. Capabilities left out stay as the session has them."""

    bid: str | None = None
    session_id: str | None = None
    capabilities: PulsarCapabilities | None = None
    batch: int | float | None = None

    def __repr__(self) -> str:
        """Without the bid, which is a key."""
        return "ClaimRequest()"


class CallbackError(_Request, frozen=True):
    """Why there is no result. `source` is an optional field; the code says it where it is missing."""

    code: str = ""
    message: str = ""
    source: Literal["target", "resolver", "agent", "policy"] | None = None


class CallbackRequest(_Request, frozen=True, rename="camel"):
    """`POST …/callback`: how a job ended. `result` holds the fields of `protocol.fetch.FetchResult`."""

    bid: str | None = None
    session_id: str | None = None
    job_id: str | None = None
    result: msgspec.Raw | None = None
    error: CallbackError | None = None

    def __repr__(self) -> str:
        """Without the bid, which is a key, and the result, which may hold secrets."""
        return "CallbackRequest()"


class SessionReply(Reply, frozen=True, rename="camel"):
    """The session, and the capabilities that it has now."""

    session_id: str
    capabilities: dict[str, str]


class PulsarRequest(Reply, frozen=True):
    """The request of a job, exactly the members of the seed."""

    url: str
    method: str
    headers: dict[str, str]
    body: str | None
    body_base64: bool = msgspec.field(name="bodyBase64")
    timeout_ms: int = msgspec.field(name="timeoutMs")
    max_response_bytes: int = msgspec.field(name="maxResponseBytes")
    allow_insecure_tls: bool = msgspec.field(name="allowInsecureTLS")
    allow_private_ip: bool = msgspec.field(name="allowPrivateIP")
    range_request: str | None = msgspec.field(name="rangeRequest")
    follow_redirects: bool = msgspec.field(name="followRedirects")


class PulsarJob(Reply, frozen=True, rename="camel"):
    """One job handed out."""

    job_id: str
    request: PulsarRequest


class ClaimReply(Reply, frozen=True, rename="camel"):
    """Jobs, and when to ask again. `cancel` names jobs of this session that are to be stopped."""

    jobs: list[PulsarJob]
    retry_after_ms: int
    cancel: list[str] | UnsetType = UNSET


class CallbackReply(Reply, frozen=True, rename="camel"):
    """What became of the report: done, failed, refused or noop."""

    state: str
    retry_after_ms: int
    cancel: list[str] | UnsetType = UNSET


class StatsReply(Reply, frozen=True, rename="camel"):
    """`GET …/stats`: the session's own row. Times are RFC 3339 with milliseconds and Z."""

    session_id: str
    capabilities: dict[str, str]
    user_agent: str | None
    created_at: str
    expires_at: str
    stats: Any


class ErrorReply(Reply, frozen=True):
    """Every error of this dialect. The last two come with `device-pending` alone."""

    status: str
    code: str
    message: str
    user_code: str | UnsetType = UNSET
    expires_in: int | UnsetType = UNSET
