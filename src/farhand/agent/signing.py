"""Signing what the agent sends, where it is configured to."""

import base64
import binascii
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from farhand.agent.config import AgentConfig, ConfigError, check_private
from farhand.model.clock import Clock
from farhand.protocol import signing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES: Final = 32


class Signer:
    """Holds the agent's private key. `public_key` is what the server knows it by, in base64."""

    def __init__(self, key: "Ed25519PrivateKey", clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self.public_key = signing.key_text(key.public_key().public_bytes_raw())

    def headers(
        self, agent: str, method: str, target: str, body: bytes, *, digest: str | None = None
    ) -> dict[str, str]:
        """The headers that prove one request; each call makes a request of its own, with a new nonce.

        `target` is path and query as the server sees them. A body that is not at hand as a whole
        comes as its `digest`.
        """
        timestamp, nonce = str(self._clock.now_ms()), secrets.token_urlsafe(18)
        digest = digest or signing.content_digest(body)
        text = signing.signed_text(
            agent=agent.encode(),
            method=method.encode(),
            target=target.encode(),
            timestamp=timestamp.encode(),
            nonce=nonce.encode(),
            digest=digest.encode(),
        )
        return {
            signing.AGENT_HEADER: agent,
            signing.TIMESTAMP_HEADER: timestamp,
            signing.NONCE_HEADER: nonce,
            signing.DIGEST_HEADER: digest,
            signing.SIGNATURE_HEADER: base64.b64encode(self._key.sign(text)).decode(),
        }


def find_signer(config: AgentConfig, clock: Clock) -> Signer | None:
    """The agent's signer, None where it is not to sign. Raises ConfigError."""
    if config.signing_key is not None:
        return Signer(_parse(config.signing_key, "signing_key"), clock)
    path = config.signing_key_file
    if path is None:
        return None
    try:
        check_private(path, "it is the agent's signing key")
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"signing_key_file {path} cannot be read: {error}") from error
    return Signer(_parse(text, f"signing_key_file {path}"), clock)


def make_key(path: Path) -> str:
    """Make a private key in a file that only its owner can read; the public key.

    Raises ConfigError when the file is there already or cannot be written.
    """
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already; an agent's key is not made anew over it") from error
    except OSError as error:
        raise ConfigError(f"the key cannot be written to {path}: {error}") from error
    return signing.key_text(key.public_key().public_bytes_raw())


def _parse(text: str, where: str) -> "Ed25519PrivateKey":
    """A private key from PEM (PKCS#8, as openssl writes it) or from the base64 of its 32 bytes."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if "-----BEGIN" in text:
        try:
            key = load_pem_private_key(text.encode(), password=None)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where} is no usable private key in PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{where} is not an Ed25519 key; make one with: farhand agent keygen")
        return key
    try:
        seed = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise ConfigError(
            f"{where} must hold an Ed25519 private key in PEM or its 32 bytes in base64; "
            "make one with: farhand agent keygen"
        )
    return Ed25519PrivateKey.from_private_bytes(seed)


def _need_cryptography() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise ConfigError("signing needs a package more: pip install 'farhand[signing]'")
