"""Messages about fetch jobs: what is asked for, what came back, why nothing did.

Names are those of seed 002. Durations are milliseconds, sizes are bytes.
"""

from typing import Annotated, Final

from msgspec import Meta

from farhand.protocol.agent import Name
from farhand.protocol.agent import ResultBodyReply as ResultBodyReply
from farhand.protocol.wire import Message, Reply

KIND: Final = "fetch.http"
CAPABILITY: Final = "fetch"
INSECURE_TLS: Final = "insecure-tls"
PRIVATE_IP: Final = "private-ip"
TAG_PREFIX: Final = "tag:"
"""What an agent declares: that it fetches, what it accepts, and the tags that lead work to it."""

TIMEOUT_MS: Final = 10_000
TIMEOUT_MAX_MS: Final = 120_000
RESPONSE_BYTES: Final = 2 * 1024 * 1024
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
INLINE_BYTES_MAX: Final = 256 * 1024
"""A body larger than this does not travel in a native result, but in a request of its own."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SOURCES: Final = ("target", "resolver", "agent", "policy")
EXPIRES_MAX_S: Final = 24 * 3600
SIZE_MAX: Final = (1 << 53) - 1

Size = Annotated[int, Meta(ge=0, le=SIZE_MAX)]
Tag = Annotated[str, Meta(min_length=1, max_length=100)]
Text = Annotated[str, Meta(max_length=8192)]
HeaderName = Annotated[str, Meta(min_length=1, max_length=256)]

_CAMEL = {
    "body_base64": "bodyBase64",
    "timeout_ms": "timeoutMs",
    "max_response_bytes": "maxResponseBytes",
    "allow_insecure_tls": "allowInsecureTLS",
    "allow_private_ip": "allowPrivateIP",
    "range_request": "rangeRequest",
    "follow_redirects": "followRedirects",
    "status_text": "statusText",
    "header_pairs": "headerPairs",
    "body_sha256": "bodySha256",
    "body_size": "bodySize",
    "crop_original_size": "cropOriginalSize",
    "elapsed_ms": "elapsedMs",
    "bytes_written": "bytesWritten",
    "remote_address": "remoteAddress",
    "dns_ms": "dnsMs",
    "connect_ms": "connectMs",
    "tls_ms": "tlsMs",
    "first_byte_ms": "firstByteMs",
    "total_ms": "totalMs",
    "jobs_done": "jobsDone",
    "jobs_failed": "jobsFailed",
    "jobs_refused": "jobsRefused",
    "bytes_out": "bytesOut",
}


class FetchRequest(Message, frozen=True, rename=_CAMEL):
    """What to request. What is left out has the seed's defaults.

    With `bodyBase64` the `body` is base64. `rangeRequest` is one range such as `bytes=0-1023`.
    `idempotent` says that a request of an unsafe method may be made twice.
    """

    url: Annotated[str, Meta(min_length=1, max_length=8192)]
    method: Annotated[str, Meta(min_length=1, max_length=32)] = "GET"
    headers: Annotated[dict[HeaderName, Text], Meta(max_length=64)] = {}
    body: str | None = None
    body_base64: bool = False
    timeout_ms: Annotated[int, Meta(ge=100, le=TIMEOUT_MAX_MS)] = TIMEOUT_MS
    max_response_bytes: Annotated[int, Meta(ge=1, le=RESPONSE_BYTES_MAX)] = RESPONSE_BYTES
    allow_insecure_tls: bool = False
    allow_private_ip: bool = False
    range_request: Annotated[str, Meta(max_length=64)] | None = None
    follow_redirects: bool = True
    idempotent: bool = False

    def __repr__(self) -> str:
        """Without URL, headers and body, which may hold secrets."""
        return f"FetchRequest(method={self.method!r})"


class FetchParams(Reply, frozen=True, rename=_CAMEL):
    """The params of a fetch job, as a native agent is handed them.

    The same as the request, but for its body: that is the job's payload, in bytes. `bodyBase64`
    says how it was written.
    """

    url: str
    method: str
    headers: dict[str, str]
    body_base64: bool
    timeout_ms: int
    max_response_bytes: int
    allow_insecure_tls: bool
    allow_private_ip: bool
    range_request: str | None
    follow_redirects: bool
    idempotent: bool

    def __repr__(self) -> str:
        """Without URL and headers, which may hold secrets."""
        return f"FetchParams(method={self.method!r})"


class FetchSubmit(Message, frozen=True):
    """`POST /jobs` with the type `fetch` or `fetch.http`.

    `agent` (a name or an id) is the one agent that may do it; `tags` are words that the agent
    must have declared. `expires_in` (seconds) is how long the job may wait to be collected.
    """

    type: Annotated[str, Meta(max_length=64)]
    request: FetchRequest
    expires_in: Annotated[int, Meta(ge=1, le=EXPIRES_MAX_S)] | None = None
    agent: Name | None = None
    tags: Annotated[list[Tag], Meta(max_length=20)] = []
    title: Annotated[str, Meta(max_length=500)] | None = None
    source: Annotated[str, Meta(max_length=200)] | None = None


class TlsReport(Message, frozen=True):
    """How the connection was protected; `fingerprint` is the certificate's SHA-256 in hexadecimal."""

    version: Annotated[str, Meta(max_length=40)]
    verified: bool
    reason: Annotated[str, Meta(max_length=1000)] | None = None
    fingerprint: Annotated[str, Meta(max_length=64)] | None = None


class RedirectReport(Message, frozen=True):
    """One step of a chain: the URL that answered with this status."""

    status: Annotated[int, Meta(ge=300, le=399)]
    url: Annotated[str, Meta(max_length=16_384)]


class TimingReport(Message, frozen=True, rename=_CAMEL):
    """Where the time went, in milliseconds; what is not known is null."""

    dns_ms: Size | None = None
    connect_ms: Size | None = None
    tls_ms: Size | None = None
    first_byte_ms: Size | None = None
    total_ms: Size | None = None


class RangeReport(Message, frozen=True):
    """What became of a range: whether the target honoured it, and which bytes were delivered."""

    honoured: bool
    first: Size | None = None
    last: Size | None = None
    total: Size | None = None


class FetchResult(Message, frozen=True, rename=_CAMEL):
    """`result` of a fetch job that got an answer, whatever its status.

    `headers` has one entry per name, repeated fields joined; `headerPairs` holds all of them in
    order where a name is repeated. `body` is text, or with `bodyBase64` base64. A body that was
    put apart has `body` null and its `bodySha256` (hexadecimal). `bytesWritten` counts the body
    as delivered. `remoteAddress`, `tls` and `timings` are null where the agent cannot see them.
    """

    status: Annotated[int, Meta(ge=100, le=999)]
    status_text: Annotated[str, Meta(max_length=2000)] = ""
    headers: Annotated[dict[str, str], Meta(max_length=1000)] = {}
    body: str | None = None
    body_base64: bool = False
    cropped: bool = False
    crop_original_size: Size | None = None
    elapsed_ms: Size = 0
    bytes_written: Size | None = None
    url: Annotated[str, Meta(max_length=16_384)] | None = None
    header_pairs: Annotated[list[tuple[str, str]], Meta(max_length=1000)] | None = None
    body_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")] | None = None
    remote_address: Annotated[str, Meta(max_length=100)] | None = None
    tls: TlsReport | None = None
    redirects: Annotated[list[RedirectReport], Meta(max_length=50)] = []
    timings: TimingReport | None = None
    range: RangeReport | None = None

    def __repr__(self) -> str:
        """Without headers and body, which may hold secrets."""
        return f"FetchResult(status={self.status})"


class FetchError(Message, frozen=True, rename=_CAMEL):
    """`result` of a fetch job that failed: a code, words, and whose doing it was."""

    code: Annotated[str, Meta(min_length=1, max_length=100)]
    message: Annotated[str, Meta(max_length=4000)] = ""
    source: Annotated[str, Meta(pattern=r"^(target|resolver|agent|policy)$(?!\n)")] = "agent"
    elapsed_ms: Size | None = None
    remote_address: Annotated[str, Meta(max_length=100)] | None = None
    redirects: Annotated[list[RedirectReport], Meta(max_length=50)] = []


class FetchCounters(Reply, frozen=True, rename=_CAMEL):
    """What an agent, a session or a user's keys have done: the names of the seed."""

    claims: int = 0
    jobs_done: int = 0
    jobs_failed: int = 0
    jobs_refused: int = 0
    bytes_out: int = 0
