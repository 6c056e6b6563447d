"""Who may become an agent: codes, the inbox and its bounds."""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from farhand.engine.registry import Agent, Device
from farhand.model.errors import Problem

CODE_ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
CODE_LENGTH: Final = 8
CODE_MS: Final = 600_000
CODE_TRIES: Final = 5
PENDING_MS: Final = 24 * 3_600_000
PENDING_TOTAL: Final = 200
PENDING_PER_ADDRESS: Final = 10
SESSION_MS: Final = 24 * 3_600_000
SESSIONS_PER_AGENT: Final = 16
BID_SHOWN: Final = 4
BID_PREFIX_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A device as its agent describes it; `capabilities` is JSON text."""

    name: str
    kind: str
    capabilities: str
    state: str = "unknown"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An agent presents itself. `devices` None leaves its devices alone.

    `open_enrolment` says that an unknown agent may come in without approval. `public_key` is
    the one that signed this registration, under `nonce`; both None when it was not signed.
    `bid` is the mask of a device's identifier.
    """

    org_id: int
    key_digest: bytes
    name: str
    dialect: str
    version: str | None = None
    runtime: str | None = None
    address: str | None = None
    capabilities: tuple[str, ...] | None = None
    devices: tuple[DeviceSpec, ...] | None = None
    open_enrolment: bool = False
    public_key: bytes | None = None
    nonce: str | None = None
    bid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The agent is in; `devices` follow the order of the request."""

    agent: Agent
    devices: list[Device] = field(default_factory=list[Device])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The agent waits; only it is shown the code."""

    agent: Agent
    user_code: str
    expires_in_ms: int


def signing_refused(agent: Agent, request: Registration) -> Problem | None:
    """Why a registration's signature, or the lack of one, does not fit the agent; None when it does."""
    if request.public_key is None:
        return signature_required() if agent.signing else None
    if agent.public_key is None or agent.public_key == request.public_key:
        return None
    return Problem(
        "unknown-signer",
        "the agent is bound to another signing key; whoever runs the server changes that with: "
        "farhand agents sign",
    )


def signature_required() -> Problem:
    """The answer to an agent that has to sign and did not."""
    return Problem(
        "signature-required",
        "this agent has to sign its requests; set signing_key_file in its settings "
        "(farhand agent keygen makes a key)",
    )


def replayed() -> Problem:
    """The answer to a signed request that was already made."""
    return Problem("replayed", "this very request was already made; sign it anew with a fresh nonce")


def bid_mask(bid: str) -> str:
    """What lists show of a device's identifier: its prefix and four characters."""
    prefix, dash, rest = bid.partition("-")
    if dash and prefix.isalpha() and len(prefix) <= BID_PREFIX_MAX and len(rest) > BID_SHOWN:
        return f"{prefix}-{rest[:BID_SHOWN]}…"
    return f"{bid[:BID_SHOWN]}…"


def bid_name(runtime: str, key_digest: bytes) -> str:
    """The name of a device that comes with an identifier only; it says nothing of it."""
    return f"{runtime}-{hashlib.sha256(key_digest).hexdigest()[:8]}"


def user_code(key_digest: bytes, expires_at: int) -> str:
    """The short code of a pending agent: no vowels, so that it spells nothing."""
    raw = hmac.new(key_digest, b"farhand-code:%d" % expires_at, hashlib.sha256).digest()
    letters = [CODE_ALPHABET[byte % len(CODE_ALPHABET)] for byte in raw[:CODE_LENGTH]]
    return "".join(letters[:4]) + "-" + "".join(letters[4:])


def code_digest(code: str) -> bytes:
    """What is stored of a code; case, spaces and the dash do not matter."""
    plain = "".join(ch for ch in code.upper() if ch.isalnum())
    return hashlib.sha256(plain.encode()).digest()


def check_code(agent: Agent, code: str, now: int) -> Problem | None:
    """Whether the typed code is the one the device shows; None when it is."""
    if agent.code_digest is None or agent.code_expires_at is None or agent.code_expires_at <= now:
        return Problem("wrong-code", "the code has run out; read the new one from the device and type that")
    if agent.code_tries >= CODE_TRIES:
        return Problem("wrong-code", "too many wrong codes; wait for the device to show a new one")
    if not hmac.compare_digest(agent.code_digest, code_digest(code)):
        left = CODE_TRIES - agent.code_tries - 1
        return Problem("wrong-code", f"this is not the code the device shows; {left} tries left")
    return None


def inbox_bounds(waiting: list[Agent], address: str | None) -> Problem | None:
    """Whether one more may wait for approval; None when it may."""
    if len(waiting) >= PENDING_TOTAL:
        return Problem("inbox-full", "too many agents wait for approval; approve or revoke some first")
    from_here = sum(1 for agent in waiting if agent.address == address)
    if from_here >= PENDING_PER_ADDRESS:
        return Problem(
            "inbox-full", "too many agents from this address wait for approval; approve or revoke some"
        )
    return None


def name_taken(name: str) -> Problem:
    """The answer to a registration under a name that another key holds."""
    return Problem("name-taken", f"the name {name!r} is bound to another key; use that key or another name")


def revoked() -> Problem:
    """The answer to an agent that was thrown out."""
    return Problem("agent-revoked", "this agent has been revoked; ask the owner to issue a new one")
