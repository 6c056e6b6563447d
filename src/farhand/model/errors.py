"""The closed list of error codes, shared by the engine and the wire."""

from dataclasses import dataclass
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One error code: its HTTP status, a short title and whether trying again can help."""

    status: int
    title: str
    retryable: bool = False


CODES: Final[dict[str, Code]] = {
    "bad-request": Code(status=400, title="The request cannot be read"),
    "bad-json": Code(status=400, title="The body is not valid JSON"),
    "bad-field": Code(status=422, title="A field has a value that does not fit"),
    "bad-config": Code(status=422, title="A setting does not fit"),
    "bad-cursor": Code(status=400, title="The cursor is not one of ours"),
    "unauthorized": Code(status=401, title="The key is missing or not known"),
    "signature-required": Code(status=401, title="The agent has to sign its requests"),
    "bad-signature": Code(status=401, title="The signature does not hold"),
    "unknown-signer": Code(status=401, title="No agent is known by this signing key"),
    "clock-skew": Code(status=401, title="The clocks differ too much", retryable=True),
    "replayed": Code(status=401, title="The request was already made", retryable=True),
    "name-taken": Code(status=401, title="The name is bound to another key"),
    "forbidden": Code(status=403, title="The key lacks a grant"),
    "agent-pending": Code(status=403, title="The agent waits for approval", retryable=True),
    "agent-revoked": Code(status=403, title="The agent has been revoked"),
    "wrong-code": Code(status=403, title="The approval code does not match"),
    "inbox-full": Code(status=429, title="Too many agents wait for approval", retryable=True),
    "not-found": Code(status=404, title="There is no such thing, or it is not yours"),
    "method-not-allowed": Code(status=405, title="The route does not know this method"),
    "stale-claim": Code(status=409, title="The attempt is no longer yours"),
    "state-conflict": Code(status=409, title="The job's state does not allow this"),
    "no-return": Code(status=409, title="The work may already have happened"),
    "active-conflict": Code(status=409, title="A job like this is still live"),
    "retry-conflict": Code(status=409, title="The job is already being retried"),
    "idempotency-in-flight": Code(
        status=409, title="The first request with this key is in progress", retryable=True
    ),
    "idempotency-mismatch": Code(status=422, title="The idempotency key was used for another request"),
    "name-conflict": Code(status=409, title="The name is already in use"),
    "payload-too-large": Code(status=413, title="The payload is larger than allowed"),
    "result-too-large": Code(status=413, title="The result is larger than allowed"),
    "payload-gone": Code(status=410, title="The payload is no longer kept"),
    "unsupported-type": Code(status=422, title="The job type is not known"),
    "unknown-printer": Code(status=422, title="There is no such printer"),
    "unknown-farm": Code(status=422, title="There is no such farm"),
    "printer-claimed": Code(status=409, title="The printer belongs to a farm already"),
    "upload-expired": Code(status=403, title="The upload address is not, or no longer, good"),
    "unknown-agent": Code(status=422, title="There is no such agent"),
    "cannot-print": Code(status=422, title="The printer cannot take this kind of document"),
    "payload-fetch-failed": Code(status=422, title="The payload could not be fetched"),
    "upgrade-required": Code(status=426, title="The agent's protocol is too old"),
    "too-many-keys": Code(status=429, title="Too many unknown keys from this address", retryable=True),
    "too-many-waits": Code(status=429, title="Too many held requests", retryable=True),
    "busy": Code(status=503, title="The server is busy", retryable=True),
    "shutting-down": Code(status=503, title="The server is shutting down", retryable=True),
    "internal": Code(status=500, title="Something went wrong on the server", retryable=True),
}


class FarhandError(Exception):
    """Base of every error Farhand raises on purpose.

    `message` says what to do; `extra` holds further members of the problem document.
    """

    code: ClassVar[str] = "bad-request"

    def __init__(self, message: str, **extra: object) -> None:
        super().__init__(message)
        self.message = message
        self.extra = extra


class Problem(FarhandError):
    """An error with a code of the closed list, ready to become a problem document."""

    def __init__(self, code: str, message: str, **extra: object) -> None:
        super().__init__(message, **extra)
        if code not in CODES:
            raise LookupError(f"{code!r} is not in the list of error codes")
        self.problem = code

    @property
    def kind(self) -> Code:
        """The code's entry in the closed list."""
        return CODES[self.problem]
