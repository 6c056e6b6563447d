"""Payloads in a folder: content-addressed, fsynced, renamed into place."""

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from farhand.model.errors import Problem

CHUNK = 256 * 1024


class FolderPayloads:
    """A payload store in a folder of the server's own."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open_root(self) -> None:
        """Make the folder and clear away what a crash left half-written."""
        incoming = self._root / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        for leftover in incoming.iterdir():
            leftover.unlink()

    def _path(self, sha256: bytes) -> Path:
        name = sha256.hex()
        return self._root / name[:2] / name

    async def put(self, chunks: AsyncIterator[bytes], limit: int) -> tuple[bytes, int]:
        """Store a stream durably; its SHA-256 and size. Raises Problem `payload-too-large`."""
        part = self._root / "incoming" / secrets.token_hex(16)
        digest = hashlib.sha256()
        size = 0
        file = await asyncio.to_thread(part.open, "xb")
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise too_large(limit)
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(_land, file, part, self._path(digest.digest()))
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

    async def delete(self, sha256: bytes) -> None:
        """Remove stored bytes; nothing happens when they are not there."""
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(self._path(sha256).unlink)


def too_large(limit: int) -> Problem:
    """The answer to a payload over the limit, which it names."""
    return Problem(
        "payload-too-large", f"the payload is larger than the limit of {limit} bytes", limit_bytes=limit
    )


def _land(file: BinaryIO, part: Path, target: Path) -> None:
    """Make bytes durable before the name that promises them: file, rename, folder."""
    file.flush()
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
