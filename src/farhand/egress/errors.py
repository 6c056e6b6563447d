"""Why a request to somebody else's address did not happen, as a closed set of codes."""

from typing import Literal, get_args

Code = Literal[
    "bad-url",
    "bad-method",
    "bad-range",
    "blocked-name",
    "blocked-port",
    "blocked-address",
    "refused-header",
    "refused-redirect",
    "too-many-redirects",
    "dns",
    "connect",
    "certificate",
    "tls",
    "timeout",
    "protocol",
    "content-coding",
    "decompression-limit",
    "too-large",
    "target-status",
    "empty-body",
]
Source = Literal["target", "resolver", "agent", "policy"]
CODES: frozenset[str] = frozenset(get_args(Code))


class EgressError(Exception):
    """A request that was refused or that failed; the message says what to do.

    The message names a host at most: never an address that a name resolved to and never a path
    or query, which may hold secrets. `source` says whose doing it is; `status` is set for
    `target-status` only.
    """

    def __init__(self, code: Code, message: str, *, source: Source, status: int | None = None) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.source: Source = source
        self.status = status


class CertificateRefused(EgressError):
    """The target's certificate did not verify; `reason` is the TLS library's own."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__("certificate", message, source="target")
        self.reason = reason
