"""The body of an answer, delivered piece by piece within the policy's limits."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from farhand.egress.coding import Decoder
from farhand.egress.errors import EgressError
from farhand.egress.meter import wire_too_large
from farhand.egress.policy import EgressPolicy
from farhand.egress.ranges import Slice

Sink = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What reached the receiver. `ended` says that the target's body was read to its end."""

    size: int
    wire_bytes: int
    cropped: bool
    ended: bool
    sha256: str


class Delivery:
    """Counts and passes on one body; used once."""

    def __init__(
        self, *, policy: EgressPolicy, decoder: Decoder, cut: Slice | None, crop: bool, sink: Sink
    ) -> None:
        self._policy = policy
        self._decoder = decoder
        self._cut = cut
        self._crop = crop
        self._sink = sink
        self._digest = hashlib.sha256()
        self._wire_bytes = 0
        self._decoded_bytes = 0
        self._size = 0

    async def run(self, chunks: AsyncIterator[bytes]) -> Delivered:
        """Read until the end, the crop or the end of the range.

        Raises EgressError `too-large`, `decompression-limit` or `content-coding`; the sink may
        have had a part by then.
        """
        async for chunk in chunks:
            self._wire_bytes += len(chunk)
            over = self._wire_bytes > self._policy.wire_bytes_max
            if over and not self._crop:
                raise wire_too_large(self._policy.wire_bytes_max)
            for piece in self._decoder.feed(chunk):
                if not await self._pass_on(piece):
                    return self._delivered(cropped=True, ended=False)
                if self._cut is not None and self._cut.done:
                    return self._delivered(cropped=False, ended=False)
            if over:
                return self._delivered(cropped=True, ended=False)
        if self._wire_bytes:
            self._decoder.finish()
        fits = self._cut is None or await self._emit(self._cut.finish())
        return self._delivered(cropped=not fits, ended=True)

    async def _pass_on(self, piece: bytes) -> bool:
        self._decoded_bytes += len(piece)
        decoded, policy = self._decoded_bytes, self._policy
        wire = self._wire_bytes - self._decoder.ahead
        if decoded > policy.ratio_after_bytes and decoded > policy.ratio_max * wire:
            raise EgressError(
                "decompression-limit",
                f"the target's answer unpacks to more than {policy.ratio_max} times its size",
                source="target",
            )
        return await self._emit(piece if self._cut is None else self._cut.take(piece))

    async def _emit(self, piece: bytes) -> bool:
        room = self._policy.decoded_bytes_max - self._size
        fits = len(piece) <= room
        if not fits and not self._crop:
            raise too_large(self._policy.decoded_bytes_max)
        piece = piece[:room]
        if piece:
            self._size += len(piece)
            self._digest.update(piece)
            await self._sink(piece)
        return fits

    def _delivered(self, *, cropped: bool, ended: bool) -> Delivered:
        return Delivered(
            size=self._size,
            wire_bytes=self._wire_bytes,
            cropped=cropped,
            ended=ended,
            sha256=self._digest.hexdigest(),
        )


def too_large(limit: int) -> EgressError:
    """The error for a body beyond what may be delivered."""
    return EgressError("too-large", f"the target's answer exceeds the {limit} bytes allowed", source="target")


def utf8_boundary(data: bytes | bytearray) -> int:
    """Where to cut so that a character which the end tears apart is left out entirely.

    The length itself when the end is whole, or when the data is no UTF-8 there anyway.
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if needed > back else len(data)
    return len(data)
