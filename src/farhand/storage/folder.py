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
YOUNG_NS = 3_600 * 1_000_000_000


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
        """Remove stored bytes; nothing happens when they are not there.

        What was put within the last hour stays: the job it was put for may not be written down yet.
        """
        await asyncio.to_thread(self._delete, self._path(sha256))

    def _delete(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._age_ns(path) < YOUNG_NS:
                return
            away = self._root / "incoming" / secrets.token_hex(16)
            path.replace(away)
            # It may have been put again since its age was asked.
            if self._age_ns(away) < YOUNG_NS:
                away.replace(path)
            else:
                away.unlink()

    def _age_ns(self, path: Path) -> int:
        """How long ago a file was written, by the clock of the file system that says so."""
        written = path.stat().st_mtime_ns
        probe = self._root / "incoming" / secrets.token_hex(16)
        probe.touch()
        try:
            return probe.stat().st_mtime_ns - written
        finally:
            probe.unlink()

    async def aged(self, part: int) -> list[bytes]:
        """Addresses in one of the 256 parts of the store that are old enough to be deleted.

        A crash between the deletion of a job and that of its payload leaves bytes behind; whoever
        goes through the parts and asks the store which of them are unneeded finds those.
        """
        return await asyncio.to_thread(self._aged, self._root / f"{part:02x}")

    def _aged(self, folder: Path) -> list[bytes]:
        if not folder.is_dir():
            return []
        return [bytes.fromhex(p.name) for p in folder.iterdir() if self._age_ns(p) >= YOUNG_NS]


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
