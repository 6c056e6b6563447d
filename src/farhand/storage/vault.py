"""Sealing secrets under keys of short epochs, and destroying the keys.

What is written to a database stays in its log, its backups and its replicas; what is written
there under a key that no longer exists is noise. A key is durable before the first row sealed
with it is committed, and destroyed after the last such row is gone; a crash at any moment
leaves at worst a key that nobody needs, which the next look destroys.
"""

import asyncio
import hmac
import logging
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from farhand.engine.ports import Keys
from farhand.model.clock import Clock

log = logging.getLogger("farhand.storage")
EPOCH_MS: Final = 60_000
EPOCH_SECRETS_MAX: Final = 1_000
GRACE_MS: Final = 60_000
LOOK_MS: Final = 10_000
NONCE_BYTES: Final = 12
KEY_BYTES: Final = 32
DIGEST_KEY: Final = "digest"
_EPOCH: Final = re.compile(r"([0-9]{15})-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """One secret as it is written down."""

    epoch: str
    nonce: bytes
    ciphertext: bytes = field(repr=False)


@dataclass(slots=True, eq=False)
class Epoch:
    """A key in use by this process. `pending` counts rows that are not yet committed or given up."""

    name: str
    cipher: ChaCha20Poly1305 = field(repr=False)
    ends_at: int
    ends_monotonic: int
    used: int = 0
    pending: int = 0


class Vault:
    """The keys of one server process.

    An epoch ends after `epoch_ms`, after `epoch_max` secrets, or with its last secret. Its
    name says when it ends: other processes leave its key alone until a while after that.
    """

    def __init__(
        self, keys: Keys, clock: Clock, *, epoch_ms: int = EPOCH_MS, epoch_max: int = EPOCH_SECRETS_MAX
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._epoch_ms = epoch_ms
        self._epoch_max = epoch_max
        self._current: Epoch | None = None
        self._own: dict[str, Epoch] = {}
        self._others: dict[str, ChaCha20Poly1305] = {}
        self._beginning: set[str] = set()
        self._opening = asyncio.Lock()
        self._digest_key = b""
        self._alone = False
        self._look_at = 0

    async def open(self, space: str, *, alone: bool) -> None:
        """Get ready to use the keys of one database.

        `alone`: no other process uses it, so that all keys can be judged. Raises OSError when
        the keys cannot be kept.
        """
        self._alone = alone
        await asyncio.to_thread(self._keys.open_root, space)
        if alone:
            await asyncio.to_thread(self._keys.clear)
        fresh = secrets.token_bytes(KEY_BYTES)
        known = await asyncio.to_thread(self._keys.get, DIGEST_KEY)
        self._digest_key = known or await asyncio.to_thread(self._keys.put, DIGEST_KEY, fresh)
        self._look_at = self._clock.monotonic_ms()

    def keyed(self, digest: bytes) -> bytes:
        """A digest as only the holder of the key can make it."""
        return hmac.digest(self._digest_key, digest, "sha256")

    async def seal(self, job_id: bytes, text: str, held: list[Epoch]) -> Sealed:
        """Encrypt a job's secret. The epoch goes into `held` until `let_go` after the transaction."""
        epoch = await self._usable()
        epoch.used += 1
        epoch.pending += 1
        held.append(epoch)
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Sealed(
            epoch=epoch.name, nonce=nonce, ciphertext=epoch.cipher.encrypt(nonce, text.encode(), job_id)
        )

    def let_go(self, held: list[Epoch]) -> None:
        """The transaction that sealed is over, whatever became of it."""
        for epoch in held:
            epoch.pending -= 1
        held.clear()

    async def unseal(self, job_id: bytes, sealed: Sealed) -> str | None:
        """Decrypt a job's secret, None when its key is gone or it was sealed for another job."""
        cipher = await self._cipher(sealed.epoch)
        if cipher is None:
            log.error("secret_key_missing", extra={"epoch": sealed.epoch})
            return None
        try:
            return cipher.decrypt(sealed.nonce, sealed.ciphertext, job_id).decode()
        except InvalidTag:
            log.error("secret_unreadable", extra={"epoch": sealed.epoch})
            return None

    async def _usable(self) -> Epoch:
        async with self._opening:
            epoch = self._current
            if epoch is not None and not self._over(epoch):
                return epoch
            self._current = epoch = await self._begin()
            return epoch

    def _over(self, epoch: Epoch) -> bool:
        return (
            epoch.used >= self._epoch_max
            or self._clock.now_ms() >= epoch.ends_at
            or self._clock.monotonic_ms() >= epoch.ends_monotonic
        )

    async def _begin(self) -> Epoch:
        ends_at = self._clock.now_ms() + self._epoch_ms
        name = f"{ends_at:015d}-{secrets.token_hex(16)}"
        ends_monotonic = self._clock.monotonic_ms() + self._epoch_ms
        # Its file is there before it is ours, and is not to be taken for one left behind.
        self._beginning.add(name)
        try:
            key = await asyncio.to_thread(self._keys.put, name, secrets.token_bytes(KEY_BYTES))
            epoch = Epoch(name, ChaCha20Poly1305(key), ends_at, ends_monotonic)
            self._own[name] = epoch
        finally:
            self._beginning.discard(name)
        return epoch

    async def _cipher(self, name: str) -> ChaCha20Poly1305 | None:
        own = self._own.get(name)
        if own is not None:
            return own.cipher
        if name not in self._others:
            key = await asyncio.to_thread(self._keys.get, name) if _EPOCH.fullmatch(name) else None
            if key is None:
                return None
            self._others[name] = ChaCha20Poly1305(key)
        return self._others[name]

    async def doubtful(self) -> list[tuple[str, int]]:
        """Epochs that may have lost their last secret, each with how much it was used so far.

        Whoever finds no secret of one calls `destroy` with just that.
        """
        found = [(epoch.name, epoch.used) for epoch in self._own.values() if epoch.pending == 0]
        now = self._clock.monotonic_ms()
        if now >= self._look_at:
            self._look_at = now + LOOK_MS
            found += await self._left_behind()
        return found

    async def _left_behind(self) -> list[tuple[str, int]]:
        """Epochs of processes that have ended, or should long have gone on to another."""
        names = {name for name in await asyncio.to_thread(self._keys.names) if _EPOCH.fullmatch(name)}
        for name in self._others.keys() - names:
            del self._others[name]
        horizon = self._clock.now_ms() - GRACE_MS
        return [
            (name, 0)
            for name in sorted(names - self._own.keys() - self._beginning)
            if self._alone or int(name.partition("-")[0]) <= horizon
        ]

    async def destroy(self, name: str, used: int) -> bool:
        """Destroy an epoch's key, unless it was used once more in the meantime; whether it is gone."""
        epoch = self._own.get(name)
        if epoch is not None:
            if epoch.pending or epoch.used != used:
                return False
            del self._own[name]
            if self._current is epoch:
                self._current = None
        self._others.pop(name, None)
        await asyncio.to_thread(self._keys.destroy, name)
        return True
