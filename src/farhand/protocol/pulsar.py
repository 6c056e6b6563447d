"""Messages of the pulsar dialect (seed 002), on the paths under `/pulsar/agent/api/`.

Readers ignore members that they do not know, in both directions. Every reply is wrapped as
`{"status": "ok", "data": …}`, every error is `{"status": "error", "code", "message"}`.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from farhand.protocol.fetch import FetchCounters, Tag
from farhand.protocol.wire import Reply

PATH: Final = "/pulsar/agent/api"
BID_HEADER: Final = "Farhand-Bid"
SESSION_HEADER: Final = "Farhand-Session"
"""`GET …/stats` has no body: it takes `bid` and `sessionId` in these headers."""

BROWSER_PREFIX: Final = "browser-"
REFUSED_CODE: Final = "agent-refused-override"
STATES: Final = ("done", "failed", "refused", "noop")
BATCH_MIN: Final = 1
BATCH_MAX: Final = 5
RETRY_BUSY_MS: Final = 500
RETRY_IDLE_MS: Final = 3_000
RETRY_SETTLED_MS: Final = 300
BID_MAX: Final = 512

ERRORS: Final[dict[str, int]] = {
    "bid-required": 400,
    "bad-request": 400,
    "device-pending": 403,
    "device-not-approved": 403,
    "session-unknown": 403,
    "too-large": 413,
    "internal-error": 500,
    "busy": 503,
}
"""The codes of errors with their status. Four are the seed's; the others it leaves open."""

Word = Annotated[str, Meta(pattern=r"^(ignore|accept|refuse)$(?!\n)")]
_WORDS: Final = {"insecure_tls": "insecureTLS", "private_ip": "privateIP"}


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what devices send: they may know more than the seed says."""


class PulsarCapabilities(_Request, frozen=True, rename=_WORDS):
    """What a device does with jobs that want more than usual.

    `ignore` does not want to be offered them, `refuse` will not do them whatever happens,
    `accept` does. `tags`, an optional field, are words that lead work to this device.
    """

    insecure_tls: Word = "ignore"
    private_ip: Word = "ignore"
    tags: Annotated[list[Tag], Meta(max_length=20)] | UnsetType = UNSET


class PulsarSessionRequest(_Request, frozen=True, rename="camel"):
    """`POST …/session`: open a session, or find the one that is still open."""

    bid: str | None = None
    session_id: str | None = None
    capabilities: PulsarCapabilities | None = None
    user_agent: str | None = None

    def __repr__(self) -> str:
        """Without the bid, which is a key."""
        return "PulsarSessionRequest()"


class PulsarClaimRequest(_Request, frozen=True, rename="camel"):
    """`POST …/claim`: ask for work. Capabilities left out stay as the session has them.

    `batch` is taken to be from 1 to 5, whatever it is.
    """

    bid: str | None = None
    session_id: str | None = None
    capabilities: PulsarCapabilities | None = None
    batch: Any = None

    def __repr__(self) -> str:
        """Without the bid, which is a key."""
        return "PulsarClaimRequest()"


class PulsarError(_Request, frozen=True):
    """Why there is no result. `source` is an optional field: whose doing it was."""

    code: str
    message: str = ""
    source: Annotated[str, Meta(pattern=r"^(target|resolver|agent|policy)$(?!\n)")] | None = None


class PulsarCallbackRequest(_Request, frozen=True, rename="camel"):
    """`POST …/callback`: how a job ended. `result` has the members of a fetch result."""

    bid: str | None = None
    session_id: str | None = None
    job_id: str | None = None
    result: dict[str, Any] | None = None
    error: PulsarError | None = None

    def __repr__(self) -> str:
        """Without the bid, which is a key, and the result, which may hold secrets."""
        return "PulsarCallbackRequest()"


class PulsarSessionData(Reply, frozen=True, rename="camel"):
    """The session, and the capabilities that it has now."""

    session_id: str
    capabilities: PulsarCapabilities


class PulsarSessionReply(Reply, frozen=True):
    """The answer to `POST …/session`."""

    status: str
    data: PulsarSessionData


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

    def __repr__(self) -> str:
        """Without URL, headers and body, which may hold secrets."""
        return f"PulsarRequest(method={self.method!r})"


class PulsarJob(Reply, frozen=True, rename="camel"):
    """One job handed out."""

    job_id: str
    request: PulsarRequest


class PulsarClaimData(Reply, frozen=True, rename="camel"):
    """Jobs, and when to ask again. `cancel` names jobs of this device that are to be stopped."""

    jobs: list[PulsarJob]
    retry_after_ms: int
    cancel: list[str] | UnsetType = UNSET


class PulsarClaimReply(Reply, frozen=True):
    """The answer to `POST …/claim`."""

    status: str
    data: PulsarClaimData


class PulsarCallbackData(Reply, frozen=True, rename="camel"):
    """What became of the report: done, failed, refused or noop."""

    state: str
    retry_after_ms: int
    cancel: list[str] | UnsetType = UNSET


class PulsarCallbackReply(Reply, frozen=True):
    """The answer to `POST …/callback`."""

    status: str
    data: PulsarCallbackData


class PulsarStatsData(Reply, frozen=True, rename="camel"):
    """The session's own row. Times are RFC 3339 with milliseconds and Z."""

    session_id: str
    capabilities: PulsarCapabilities
    user_agent: str | None
    created_at: str
    expires_at: str
    stats: FetchCounters


class PulsarStatsReply(Reply, frozen=True):
    """The answer to `GET …/stats`."""

    status: str
    data: PulsarStatsData


class PulsarProblem(Reply, frozen=True):
    """Every error of this dialect. The last two come with `device-pending` alone."""

    status: str
    code: str
    message: str
    user_code: str | UnsetType = UNSET
    expires_in: int | UnsetType = UNSET
