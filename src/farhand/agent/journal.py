"""The agent's memory of work in hand, on disk before it matters.

An append-only file, one JSON line per fact behind a checksum, flushed to disk before the call
returns where it matters. A torn last line is what a crash leaves; a bad line elsewhere means that the disk
lies, and then everything open counts as possibly begun.
"""

import asyncio
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from farhand.agent.handler import Unfinished

COMPACT_BYTES: Final = 4 * 1024 * 1024

Fact = Literal["taken", "begun", "unsent", "handed", "ended"]
Key = tuple[str, int]


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    fact: Fact
    job_id: str
    attempt: int
    token: str | None = None
    kind: str | None = None
    device: str | None = None
    memo: str | None = None
    handle: str | None = None


@dataclass(slots=True)
class Entry:
    """An attempt in hand. `begun`: its point of no return was about to be crossed.

    What is noted of a `light` one before that is not waited for: a power cut may take it.
    """

    job_id: str
    attempt: int
    lease_token: str
    kind: str
    device: str | None
    begun: bool = False
    memo: str | None = None
    handle: str | None = None
    light: bool = False

    @property
    def key(self) -> Key:
        """What names an attempt."""
        return self.job_id, self.attempt

    def unfinished(self) -> Unfinished:
        """The entry as a handler sees it."""
        return Unfinished(
            job_id=self.job_id,
            attempt=self.attempt,
            lease_token=self.lease_token,
            kind=self.kind,
            device=self.device,
            memo=self.memo,
            handle=self.handle,
        )


class Journal:
    """Opened once per process; `left_behind` is what an earlier run had in hand.

    Every method raises OSError when the disk does not take the line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        lines, self.damaged = _read(path)
        self._open = _replay(lines)
        if self.damaged:
            for entry in self._open.values():
                entry.begun = True
        self.left_behind = tuple(self._open.values())
        self._fd = -1
        self._size = 0
        self._replace(self._whole())

    async def taken(self, entry: Entry) -> None:
        """An attempt is ours to do."""
        self._open[entry.key] = entry
        await self._append(_taken(entry), flush=not entry.light)

    async def begun(self, key: Key, memo: str) -> None:
        """Its point of no return is about to be crossed."""
        entry = self._open[key]
        entry.begun, entry.memo = True, memo
        await self._append(_fact("begun", key, memo=memo))

    async def unsent(self, key: Key) -> None:
        """It was not crossed after all."""
        entry = self._open[key]
        entry.begun = False
        await self._append(_fact("unsent", key))

    async def handed(self, key: Key, handle: str) -> None:
        """The device knows the work under this handle."""
        self._open[key].handle = handle
        await self._append(_fact("handed", key, handle=handle))

    async def ended(self, key: Key) -> None:
        """Nothing is left to do for it; its result, if any, is safe elsewhere."""
        entry = self._open.pop(key, None)
        if entry is not None:
            await self._append(_fact("ended", key), flush=entry.begun or not entry.light)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    async def _append(self, line: _Line, *, flush: bool = True) -> None:
        async with self._lock:
            if self._size > COMPACT_BYTES:
                await asyncio.to_thread(self._replace, self._whole())
            await asyncio.to_thread(self._write, encode_line(line), flush)

    def _write(self, data: bytes, flush: bool) -> None:
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                raise OSError(28, "the disk is full")
            if flush:
                os.fsync(self._fd)
        except OSError:
            # Half a line in the middle would make all that follows doubtful.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _whole(self) -> bytes:
        return b"".join(encode_line(line) for entry in self._open.values() for line in _lines(entry))

    def _replace(self, data: bytes) -> None:
        fresh = self._path.with_suffix(".new")
        write_flushed(fresh, data)
        fresh.replace(self._path)
        flush_folder(self._path.parent)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        self._size = len(data)


def encode_line(line: msgspec.Struct) -> bytes:
    """A fact as a line of the file."""
    data = msgspec.json.encode(line)
    return b"%08x %s\n" % (zlib.crc32(data), data)


def write_flushed(path: Path, data: bytes) -> None:
    """Writes a file that only its owner may read, and waits until it is on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Waits until the names in a folder are on disk, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fact(fact: Fact, key: Key, **more: Any) -> _Line:
    return _Line(fact=fact, job_id=key[0], attempt=key[1], **more)


def _taken(entry: Entry) -> _Line:
    return _fact("taken", entry.key, token=entry.lease_token, kind=entry.kind, device=entry.device)


def _lines(entry: Entry) -> list[_Line]:
    lines = [_taken(entry)]
    if entry.begun:
        lines.append(_fact("begun", entry.key, memo=entry.memo))
    if entry.handle is not None:
        lines.append(_fact("handed", entry.key, handle=entry.handle))
    return lines


def _read(path: Path) -> tuple[list[_Line], bool]:
    if not path.exists():
        return [], False
    rows = path.read_bytes().split(b"\n")
    torn = rows.pop()
    lines = [_decode(row) for row in rows]
    # A crash can also leave a last line whose newline came to disk before its middle.
    if not torn and lines and lines[-1] is None:
        lines.pop()
    return [line for line in lines if line is not None], None in lines


def _decode(row: bytes) -> _Line | None:
    check, _, data = row.partition(b" ")
    if check != b"%08x" % zlib.crc32(data):
        return None
    try:
        return msgspec.json.decode(data, type=_Line)
    except msgspec.DecodeError:
        return None


def _replay(lines: list[_Line]) -> dict[Key, Entry]:
    entries: dict[Key, Entry] = {}
    for line in lines:
        key = (line.job_id, line.attempt)
        if line.fact == "taken":
            entries[key] = Entry(*key, line.token or "", line.kind or "", line.device)
        elif line.fact == "ended":
            entries.pop(key, None)
        elif key in entries:
            _note(entries[key], line)
    return entries


def _note(entry: Entry, line: _Line) -> None:
    if line.fact == "begun":
        entry.begun, entry.memo = True, line.memo
    elif line.fact == "unsent":
        entry.begun = False
    elif line.fact == "handed":
        entry.handle = line.handle
