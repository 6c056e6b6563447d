"""A folder as a printer: `file:///dir`, one file per print.

The file's name is the document's, which is unique per attempt, so that its presence is proof.
A folder is often emptied by another program; the marks beside the file keep that apart from a
file that was never written: a `.part` file is one not yet in place, a `.taken` mark without
one says that it had been put there.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from farhand.systems.printing.drivers.base import (
    Cancelled,
    Capabilities,
    Document,
    Failed,
    Outcome,
    Printed,
    PrinterStatus,
    Progress,
    Unknown,
    device_name,
)

NAME_MAX = 200
CHUNK = 1024 * 1024
_SUFFIXES = {"pdf": ".pdf", "raw": ".prn"}
_CAPABILITIES = Capabilities(raw=True, pdf=True)


def folder_of(uri: str) -> Path:
    """The folder a `file:///dir` address names; ValueError when it names another machine's."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or len(parts.path) < 2:
        raise ValueError(f"{uri!r} is no folder of this machine; write file:///path/to/folder")
    return Path(url2pathname(parts.path))


def file_name(name: str) -> str:
    """A document's name as a file name, without suffix, valid on every system."""
    clean = "".join("_" if letter in '/\\:*?"<>|' else letter for letter in device_name(name, NAME_MAX))
    return clean.strip(". ") or "document"


class FolderDriver:
    """Writes `<name>.pdf` or `<name>.prn`, whole or not at all.

    Raw data is repeated for `copies`, as a printer would see it; a PDF is one file.
    """

    def __init__(self, uri: str):
        self.uri = uri
        self._folder = folder_of(uri)

    async def status(self) -> PrinterStatus:
        """`offline` when the folder is missing or read-only."""
        usable = await asyncio.to_thread(
            lambda: self._folder.is_dir() and os.access(self._folder, os.W_OK | os.X_OK)
        )
        if usable:
            return PrinterStatus(state="idle", capabilities=_CAPABILITIES)
        reason = f"{self._folder} is no folder the agent may write to"
        return PrinterStatus(state="offline", reasons=(reason,), accepting=False, capabilities=_CAPABILITIES)

    async def print(self, document: Document, progress: Progress) -> Outcome:
        """Writes the file, flushes it to disk and puts it in place."""
        target = self._folder / (file_name(document.name) + _SUFFIXES[document.mode])
        if not await asyncio.to_thread(self._folder.is_dir):
            return Failed(reason=f"{self._folder} is missing; create it", retryable=True)
        if await asyncio.to_thread(target.exists):
            return Failed(reason=f"{target.name} is there already; nothing was overwritten")
        if progress.cancelled.is_set():
            return Cancelled()
        await progress.spooling()
        copies = document.copies if document.mode == "raw" else 1
        try:
            await asyncio.to_thread(_write, document.path, target, copies)
        except OSError as error:
            await asyncio.to_thread(_forget, target)
            return Failed(reason=f"{target}: {error.strerror or error}", retryable=True)
        # Without a note of it in the journal the mark stays, to tell a crashed agent the same.
        with suppress(OSError):
            await progress.handed(str(target))
            await asyncio.to_thread(_mark(target).unlink, missing_ok=True)
        return Printed(evidence="delivered")

    async def fate(self, name: str, handle: str | None, progress: Progress) -> Outcome:
        """Exact, as long as the folder is there: the file or its marks tell."""
        if handle is not None:
            await asyncio.to_thread(_mark(Path(handle)).unlink, missing_ok=True)
            return Printed(evidence="delivered")
        return await asyncio.to_thread(self._look, file_name(name))

    def _look(self, stem: str) -> Outcome:
        if not self._folder.is_dir():
            return Unknown(reason=f"{self._folder} is missing, so that nobody can look into it")
        targets = [self._folder / (stem + suffix) for suffix in _SUFFIXES.values()]
        written = any(
            target.exists() or (_mark(target).exists() and not _part(target).exists()) for target in targets
        )
        for target in targets:
            _forget(target)
        if written:
            return Printed(evidence="delivered")
        return Failed(reason="the agent stopped before the file was in place", retryable=True)


def _part(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _mark(target: Path) -> Path:
    return target.with_name(f".{target.name}.taken")


def _forget(target: Path) -> None:
    _part(target).unlink(missing_ok=True)
    _mark(target).unlink(missing_ok=True)


def _write(source: Path, target: Path, copies: int) -> None:
    part = _part(target)
    with source.open("rb") as read, part.open("wb") as write:
        for _ in range(copies):
            read.seek(0)
            shutil.copyfileobj(read, write, CHUNK)
        write.flush()
        os.fsync(write.fileno())
    _mark(target).touch()
    _flush_folder(target.parent)
    part.rename(target)
    _flush_folder(target.parent)


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
