"""Content codings, undone in bounded pieces."""

import zlib
from collections.abc import Iterator
from typing import Protocol

from farhand.egress.errors import EgressError
from farhand.egress.headers import Head

PIECE_BYTES = 64 * 1024
_GZIP_BITS = 31
_ZLIB_BITS = 15
_RAW_BITS = -15


class Decoder(Protocol):
    """Turns bytes as they arrive into bytes as they are delivered.

    `ahead` is how many bytes it was fed and has not looked at yet.
    """

    ahead: int

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces of at most `PIECE_BYTES` each."""
        ...

    def finish(self) -> None:
        """Check that the end is an end. Raises EgressError `content-coding`."""
        ...


class Identity:
    """No coding."""

    ahead = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bytes themselves."""
        for at in range(0, len(data), PIECE_BYTES):
            yield data[at : at + PIECE_BYTES]

    def finish(self) -> None:
        """Nothing to check: framing is the protocol's affair."""


class Inflate:
    """gzip (also several members in a row) and deflate (zlib, or raw as some servers send it)."""

    def __init__(self, coding: str) -> None:
        self._gzip = coding != "deflate"
        self._pending = b""
        self.ahead = 0
        self._stream = zlib.decompressobj(_GZIP_BITS) if self._gzip else None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces, made one at a time as they are asked for.

        Raises EgressError `content-coding` when the bytes are damaged.
        """
        data = self._pending + data
        self._pending = b""
        if self._stream is None:
            if len(data) < 2:
                self._pending = data
                return
            self._stream = zlib.decompressobj(_deflate_bits(data))
        try:
            yield from self._inflate(data)
        except zlib.error as error:
            raise _damaged() from error

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        while data or len(piece) == PIECE_BYTES:
            assert self._stream is not None
            if self._stream.eof:
                if not data:
                    return
                if not self._gzip:
                    raise _damaged()
                self._stream = zlib.decompressobj(_GZIP_BITS)
            piece = self._stream.decompress(data, PIECE_BYTES)
            data = self._stream.unconsumed_tail or self._stream.unused_data
            self.ahead = len(data)
            if piece:
                yield piece

    def finish(self) -> None:
        """Raises EgressError `content-coding` when the compressed data stops in the middle."""
        if self._pending or self._stream is None or not self._stream.eof:
            raise _damaged()


def decoder_for(head: Head) -> Decoder:
    """What undoes the answer's coding.

    Raises EgressError `content-coding` for codings that were not asked for and for chains,
    whose cost multiplies.
    """
    codings = [
        token.strip().lower()
        for value in head.all("content-encoding")
        for token in value.split(",")
        if token.strip().lower() not in ("", "identity")
    ]
    if not codings:
        return Identity()
    if len(codings) > 1:
        raise EgressError(
            "content-coding", "the target compresses its answer more than once", source="target"
        )
    if codings[0] not in ("gzip", "x-gzip", "deflate"):
        raise EgressError(
            "content-coding", "the target compresses its answer in an unknown way", source="target"
        )
    return Inflate(codings[0])


def _deflate_bits(data: bytes) -> int:
    zlib_header = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return _ZLIB_BITS if zlib_header else _RAW_BITS


def _damaged() -> EgressError:
    return EgressError(
        "content-coding", "the target's compressed answer is damaged or cut short", source="target"
    )
