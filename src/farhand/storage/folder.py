"""Payloads in a folder: content-addressed, fsynced, renamed into place."""

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from farhand.model.clock import Clock
from farhand.model.errors import Problem

CHUNK = 256 * 1024
INCOMING = "incoming"
LEAVING = "leaving"
LEFTOVER_MS = 24 * 3_600_000


class FolderPayloads:
    """A payload store in a folder, which several servers may share.

    A file's time is when its bytes were last put, so that bytes just put again are told from
    bytes that nobody needs any more.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock

    def open_root(self) -> None:
        """Make the folder; clear away what a crash left half-written, put back what it left half-removed."""
        for name in (INCOMING, LEAVING):
            (self._root / name).mkdir(parents=True, exist_ok=True)
        limit = self._clock.now_ms() - LEFTOVER_MS
        for leftover in (self._root / INCOMING).iterdir():
            with contextlib.suppress(FileNotFoundError):
                if _put_at(leftover) < limit:
                    leftover.unlink()
        for leftover in (self._root / LEAVING).iterdir():
            with contextlib.suppress(FileNotFoundError):
                leftover.replace(self._path(bytes.fromhex(leftover.name.partition("-")[0])))

    def beside(self, name: str) -> Path:
        """A folder next to this one: whoever shares the payloads shares it too."""
        return self._root.parent / name

    def _path(self, sha256: bytes) -> Path:
        name = sha256.hex()
        return self._root / name[:2] / name

    async def put(self, chunks: AsyncIterator[bytes], limit: int) -> tuple[bytes, int]:
        """Store a stream durably; its SHA-256 and size. Raises Problem `payload-too-large`."""
        part = self._root / INCOMING / secrets.token_hex(16)
        digest = hashlib.sha256()
        size = 0
        file = await asyncio.to_thread(_begin, part, self._clock.now_ms())
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise too_large(limit)
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
            now = self._clock.now_ms()
            await asyncio.to_thread(_land, file, part, self._path(digest.digest()), now)
        except BaseException:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
            raise
        return digest.digest(), size

    async def open(self, sha256: bytes) -> AsyncIterator[bytes]:
        """Stream stored bytes. Raises FileNotFoundError when they are not there."""
        file = await asyncio.to_thread(self._path(sha256).open, "rb")
        try:
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                yield chunk
        finally:
            file.close()

    async def head(self, sha256: bytes) -> int | None:
        """The size of stored bytes, None when they are not there."""
        try:
            found = await asyncio.to_thread(self._path(sha256).stat)
        except FileNotFoundError:
            return None
        return found.st_size

    async def discard(self, sha256: bytes, before_ms: int) -> bool:
        """Remove bytes unless they were put at or after a moment; whether they are gone."""
        return await asyncio.to_thread(self._discard, sha256, before_ms)

    def _discard(self, sha256: bytes, before_ms: int) -> bool:
        target = self._path(sha256)
        leaving = self._root / LEAVING / f"{sha256.hex()}-{secrets.token_hex(8)}"
        try:
            # Out of the way first: what is put meanwhile is a file of its own.
            target.rename(leaving)
        except FileNotFoundError:
            return True
        if _put_at(leaving) < before_ms:
            leaving.unlink()
            return True
        leaving.replace(target)
        return False

    async def stored(self, before_ms: int) -> list[bytes]:
        """The addresses of all bytes that were last put before a moment."""
        return await asyncio.to_thread(self._stored, before_ms)

    def _stored(self, before_ms: int) -> list[bytes]:
        found: list[bytes] = []
        for file in self._root.glob("[0-9a-f][0-9a-f]/*"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                if _put_at(file) < before_ms:
                    found.append(bytes.fromhex(file.name))
        return found


def too_large(limit: int) -> Problem:
    """The answer to a payload over the limit, which it names."""
    return Problem(
        "payload-too-large", f"the payload is larger than the limit of {limit} bytes", limit_bytes=limit
    )


def _begin(part: Path, now: int) -> BinaryIO:
    file = part.open("xb")
    os.utime(part, ns=(now * 1_000_000, now * 1_000_000))
    return file


def _put_at(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def _land(file: BinaryIO, part: Path, target: Path, now: int) -> None:
    """Make bytes durable before the name that promises them: file, rename, folder."""
    file.flush()
    os.utime(file.fileno(), ns=(now * 1_000_000, now * 1_000_000))
    os.fsync(file.fileno())
    file.close()
    target.parent.mkdir(exist_ok=True)
    part.replace(target)
    for folder in (target.parent, target.parent.parent):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
