"""Header fields in both directions: what is sent on, what is refused, what is handed back."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farhand.egress.errors import EgressError
from farhand.egress.meter import HEAD_BYTES_MAX, head_too_large
from farhand.egress.policy import EgressPolicy
from farhand.egress.url import Url

Pairs = tuple[tuple[str, str], ...]

OUT_FIELDS_MAX = 64
OUT_VALUE_BYTES_MAX = 8 * 1024
OUT_BYTES_MAX = 32 * 1024
IN_FIELDS_MAX = 100

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE_REFUSED = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_VISIBLE = re.compile("[\x20-\x7e\t]*")

# RFC 9110 section 7.6.1: these speak about one connection, and ours is not the caller's.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS = frozenset({"content-length", "expect", "range"})
_FORWARDED = frozenset({"forwarded", "x-real-ip"})
# What cloud metadata services ask for as proof that a request was meant for them.
_METADATA = frozenset({"metadata", "metadata-flavor", "metadata-token", "x-google-metadata-request"})
_METADATA_PREFIX = "x-aws-ec2-metadata-token"
_METHODS_REFUSED = frozenset({"CONNECT", "TRACE", "TRACK"})


def check_method(method: str) -> str:
    """The method as it is sent. Raises EgressError `bad-method`."""
    if len(method) > 32 or not _TOKEN.fullmatch(method) or method.upper() in _METHODS_REFUSED:
        raise EgressError(
            "bad-method", "use a method like GET, HEAD, POST, PUT, PATCH or DELETE", source="policy"
        )
    return method.upper()


def check_outgoing(headers: Iterable[tuple[str, str]], url: Url, policy: EgressPolicy) -> Pairs:
    """The caller's fields as they may leave, without Host and hop-by-hop ones.

    Raises EgressError `refused-header` for malformed, oversized and forbidden fields.
    """
    pairs = tuple(headers)
    if len(pairs) > OUT_FIELDS_MAX:
        raise _refused(f"more than {OUT_FIELDS_MAX} header fields; send fewer")
    allowed = {name.lower() for name in policy.allowed_headers}
    total = 0
    for name, value in pairs:
        total += _check_form(name, value)
        _check_meaning(name.lower(), value, url, allowed)
    if total > OUT_BYTES_MAX:
        raise _refused(f"the header fields exceed {OUT_BYTES_MAX} bytes together")
    dropped = _HOP_BY_HOP | connection_names(pairs) | {"host"}
    return tuple((name, value) for name, value in pairs if name.lower() not in dropped)


def connection_names(pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Field names that a Connection field declares to be about the connection only."""
    return {
        token.strip().lower()
        for name, value in pairs
        if name.lower() == "connection"
        for token in value.split(",")
    }


def wire_headers(
    pairs: Pairs, url: Url, *, method: str, body: bytes | None, byte_range: str | None, agent: str
) -> list[tuple[bytes, bytes]]:
    """The caller's checked fields together with those that are ours to send."""
    names = {name.lower() for name, _ in pairs}
    identity = byte_range is not None or any(
        name.lower() == "accept-encoding" and value.strip().lower() == "identity" for name, value in pairs
    )
    sent = [("Host", url.authority)]
    if "user-agent" not in names:
        sent.append(("User-Agent", agent))
    if "accept" not in names:
        sent.append(("Accept", "*/*"))
    sent += [(name, value) for name, value in pairs if name.lower() != "accept-encoding"]
    # Only codings that can be undone within bounds are asked for, whatever the caller wishes.
    sent.append(("Accept-Encoding", "identity" if identity else "gzip"))
    if byte_range is not None:
        sent.append(("Range", byte_range))
    if body is not None or method in ("POST", "PUT", "PATCH"):
        sent.append(("Content-Length", str(len(body or b""))))
    sent.append(("Connection", "close"))
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in sent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and header fields of an answer.

    Hop-by-hop fields are gone, repeated fields stay apart, bytes that are not plain ASCII are
    escaped as \\xNN. `content_length` is the target's claim; `locations` are as they came.
    """

    status: int
    reason: str
    http_version: str
    headers: Pairs
    content_length: int | None
    locations: tuple[bytes, ...]

    def all(self, name: str) -> list[str]:
        """Every value of the field, in order; the name in lower case."""
        return [value for key, value in self.headers if key.lower() == name]

    def first(self, name: str) -> str | None:
        """The field's first value; the name in lower case."""
        return next(iter(self.all(name)), None)


def read_head(status: int, reason: bytes, http_version: bytes, raw: Sequence[tuple[bytes, bytes]]) -> Head:
    """Check and clean an answer's head.

    Raises EgressError `too-large` past 100 fields or 64 KiB, `protocol` when the length of the
    body can be read in two ways or the target wants another protocol.
    """
    size = len(reason) + sum(len(name) + len(value) + 4 for name, value in raw)
    if len(raw) > IN_FIELDS_MAX or size > HEAD_BYTES_MAX:
        raise head_too_large()
    pairs = tuple((escape(name), escape(value)) for name, value in raw)
    names = [name.lower() for name, _ in pairs]
    if http_version not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise _protocol("the target speaks another version of HTTP than it was asked in")
    if status < 200:
        raise _protocol("the target wants to switch protocols, which was not asked for")
    if "transfer-encoding" in names and ("content-length" in names or http_version != b"HTTP/1.1"):
        raise _protocol("the target states the length of its answer in two ways")
    lengths = [value for name, value in pairs if name.lower() == "content-length"]
    dropped = _HOP_BY_HOP | connection_names(pairs)
    return Head(
        status=status,
        reason=escape(reason),
        http_version=escape(http_version),
        headers=tuple((name, value) for name, value in pairs if name.lower() not in dropped),
        content_length=int(lengths[0]) if lengths else None,
        locations=tuple(value for name, value in raw if name.lower() == b"location"),
    )


def escape(data: bytes) -> str:
    """Bytes as printable ASCII; all others as \\xNN."""
    text = data.decode("ascii", "backslashreplace")
    if _VISIBLE.fullmatch(text):
        return text
    return "".join(c if _VISIBLE.fullmatch(c) else f"\\x{ord(c):02x}" for c in text)


def _check_form(name: str, value: str) -> int:
    if not _TOKEN.fullmatch(name):
        raise _refused("a header field's name holds characters that are not allowed in it")
    if _VALUE_REFUSED.search(value) or value != value.strip(" \t"):
        raise _refused(f"the value of {name} holds control characters or outer spaces")
    try:
        size = len(value.encode("latin-1"))
    except UnicodeEncodeError:
        raise _refused(f"the value of {name} holds characters that HTTP cannot carry") from None
    if size > OUT_VALUE_BYTES_MAX:
        raise _refused(f"the value of {name} exceeds {OUT_VALUE_BYTES_MAX} bytes")
    return len(name) + size


def _check_meaning(name: str, value: str, url: Url, allowed: set[str]) -> None:
    if name == "host" and value.lower() not in (url.authority, f"{url.host}:{url.port}"):
        raise _refused("Host differs from the URL; leave it out")
    if name in _OURS:
        raise _refused(f"{name} is set by the sender; leave it out")
    if name in _METADATA or name.startswith(_METADATA_PREFIX):
        raise _refused(f"{name} unlocks cloud metadata and is never sent")
    forwarded = name in _FORWARDED or name.startswith("x-forwarded-")
    if forwarded and name not in allowed:
        raise _refused(f"{name} may not be sent; ask the operator to allow it")


def _refused(message: str) -> EgressError:
    return EgressError("refused-header", message, source="policy")


def _protocol(message: str) -> EgressError:
    return EgressError("protocol", message, source="target")
