"""Signed requests: the headers, and the text that the signature covers."""

import base64
import hashlib
import re
from typing import Final

AGENT_HEADER: Final = "Farhand-Agent"
TIMESTAMP_HEADER: Final = "Farhand-Timestamp"
NONCE_HEADER: Final = "Farhand-Nonce"
DIGEST_HEADER: Final = "Content-Digest"
SIGNATURE_HEADER: Final = "Farhand-Signature"
SCHEME: Final = b"farhand-request-v1"
NEW_AGENT: Final = "new"
"""What stands for the agent's id in a registration, whose reply tells it."""
PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_NONCE: Final = re.compile(rb"[A-Za-z0-9_-]{16,64}")
_SHA256: Final = re.compile(rb"(?:^|,)[ \t]*sha-256=:([A-Za-z0-9+/]{43}=):")


def content_digest(body: bytes) -> str:
    """The value of Content-Digest (RFC 9530) for a body; an empty one has a digest too."""
    return digest_text(hashlib.sha256(body).digest())


def digest_text(sha256: bytes) -> str:
    """The value of Content-Digest for a body with this SHA-256."""
    return f"sha-256=:{base64.b64encode(sha256).decode()}:"


def digest_of(header: bytes) -> bytes | None:
    """The SHA-256 in a Content-Digest header, None when there is none."""
    found = _SHA256.search(header)
    return None if found is None else base64.b64decode(found.group(1))


def is_nonce(value: bytes) -> bool:
    """Whether it can be a nonce: 16 to 64 characters of the URL-safe base64 alphabet."""
    return _NONCE.fullmatch(value) is not None


def signed_text(
    *, agent: bytes, method: bytes, target: bytes, timestamp: bytes, nonce: bytes, digest: bytes
) -> bytes:
    """What is signed: seven lines, none of which can hold a line break.

    `target` is path and query as the server sees them, byte for byte; `timestamp` Unix time in
    ms as decimal digits; `digest` the whole Content-Digest header.
    """
    return b"\n".join((SCHEME, agent, method, target, timestamp, nonce, digest))


def key_text(public_key: bytes) -> str:
    """A raw Ed25519 public key as it is written everywhere: base64, 44 characters."""
    return base64.b64encode(public_key).decode()


def parse_key(text: str) -> bytes | None:
    """The 32 bytes of a public key's text form, None when it is none."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if len(raw) == PUBLIC_KEY_BYTES and key_text(raw) == text else None
