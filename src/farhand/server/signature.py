"""Checking the signature of a request."""

import base64
import binascii
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from farhand.model.errors import Problem
from farhand.protocol import signing
from farhand.server.call import Call

HEADER: Final = signing.SIGNATURE_HEADER.lower().encode()
AGENT_NAME: Final = signing.AGENT_HEADER
_AGENT: Final = signing.AGENT_HEADER.lower().encode()
_TIMESTAMP: Final = signing.TIMESTAMP_HEADER.lower().encode()
_NONCE: Final = signing.NONCE_HEADER.lower().encode()
_DIGEST: Final = signing.DIGEST_HEADER.lower().encode()
_EMPTY: Final = signing.content_digest(b"")
_EMPTY_DIGEST: Final = signing.digest_of(_EMPTY.encode())
KEYS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What a signed request says of itself; nothing of it is proven yet. `at` is in ms."""

    agent: str
    at: int
    nonce: str
    body_digest: bytes
    text: bytes
    signature: bytes


def read(call: Call) -> Signed:
    """The parts of a request's signature.

    Raises Problem `bad-signature` naming the header that is missing or malformed.
    """
    agent, timestamp = _header(call, _AGENT), _header(call, _TIMESTAMP)
    nonce, digest = _header(call, _NONCE), _header(call, _DIGEST)
    if not timestamp.isdigit() or len(timestamp) > 15:
        raise bad(f"{signing.TIMESTAMP_HEADER} is Unix time in whole milliseconds")
    if not signing.is_nonce(nonce):
        raise bad(f"{signing.NONCE_HEADER} has 16 to 64 characters of A-Z, a-z, 0-9, - and _")
    body_digest = signing.digest_of(digest)
    if body_digest is None:
        raise bad(f"{signing.DIGEST_HEADER} holds the body's SHA-256, for no body {_EMPTY}")
    if call.scope["method"] in ("GET", "HEAD") and body_digest != _EMPTY_DIGEST:
        raise bad(f"{signing.DIGEST_HEADER}: a {call.scope['method']} has no body, whose digest is {_EMPTY}")
    try:
        signature = base64.b64decode(_header(call, HEADER), validate=True)
    except binascii.Error:
        signature = b""
    if len(signature) != signing.SIGNATURE_BYTES:
        raise bad(f"{signing.SIGNATURE_HEADER} is an Ed25519 signature in base64")
    text = signing.signed_text(
        agent=agent,
        method=call.scope["method"].encode(),
        target=_target(call),
        timestamp=timestamp,
        nonce=nonce,
        digest=digest,
    )
    return Signed(
        agent=agent.decode("latin-1"),
        at=int(timestamp),
        nonce=nonce.decode(),
        body_digest=body_digest,
        text=text,
        signature=signature,
    )


def _header(call: Call, name: bytes) -> bytes:
    value = call.header(name)
    if value is None:
        raise bad(f"a signed request also carries {name.decode().title()}")
    return value


def _target(call: Call) -> bytes:
    query: bytes = call.scope["query_string"]
    path: bytes = call.scope["raw_path"]
    return path + b"?" + query if query else path


def check_time(signed: Signed, now: int, skew_ms: int) -> None:
    """Raise Problem `clock-skew` for a request of too long ago, or of too far ahead."""
    off = signed.at - now
    if abs(off) > skew_ms:
        way = "ahead of" if off > 0 else "behind"
        raise Problem(
            "clock-skew",
            f"the request was signed {abs(off) // 1000} s {way} the server's time, more than the "
            f"{skew_ms // 1000} s that are allowed; set the agent's clock",
            server_time_ms=now,
        )


def check(signed: Signed, public_key: bytes) -> None:
    """Raise Problem `bad-signature` unless the holder of the key signed just this request."""
    try:
        _key(public_key).verify(signed.signature, signed.text)
    except (InvalidSignature, ValueError) as error:
        raise bad(
            "the signature does not fit the request: another key, or method, path, query or a header "
            "was changed on the way"
        ) from error


@lru_cache(maxsize=KEYS_MAX)
def _key(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)


def bad(message: str) -> Problem:
    """The answer to a signature that cannot be taken, with the reason."""
    return Problem("bad-signature", message)
