"""Where the body of a fetch goes: a file, a pipe, or a terminal that is not to be messed up."""

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from farhand.cli.words import clean
from farhand.model.errors import FarhandError
from farhand.protocol.fetch import FetchResult

if TYPE_CHECKING:
    from farhand.client import Client, Fetched

# What moves the cursor or recolours a terminal; tabs and line ends do no harm.
_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r") | {127}


class Unwelcome(FarhandError):
    """Bytes that are not for a terminal."""


class Damaged(FarhandError):
    """A body that is not the one that the agent put down."""


class Writer:
    """A sink for a body, with the head of the answer before it when `include` says so."""

    def __init__(self, output: str | None, result: FetchResult, *, include: bool) -> None:
        self._path = None if output in (None, "-") else Path(str(output))
        self._head = _head(result) if include else b""
        self._guarded = output is None and sys.stdout.isatty()
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._begun = False

    def take(self, client: "Client", found: "Fetched") -> None:
        """Writes the whole body. Raises OSError, Unwelcome and Damaged."""
        try:
            if found.content is not None:
                self.begin()
                self.write(found.content)
            else:
                client.save_result(found.job.id, self)
                self._check(found.result)
            if self._file is not None:
                self._file.flush()
        finally:
            if self._file is not None and self._path is not None:
                self._file.close()

    def begin(self) -> None:
        """The body from its start. Raises OSError, and Damaged where a pipe has had a part already."""
        if self._begun and self._path is None:
            raise Damaged("the connection broke in the middle of the body; fetch it into a file with -o")
        file = self._file or (sys.stdout.buffer if self._path is None else _opened(self._path))
        if self._begun:
            file.seek(0)
            file.truncate()
        self._file = file
        self._digest = hashlib.sha256()
        self._begun = True
        file.write(self._head)

    def write(self, piece: bytes) -> None:
        """The next bytes. Raises OSError, and Unwelcome for what could upset a terminal."""
        if self._guarded and not _CONTROLS.isdisjoint(piece):
            raise Unwelcome(
                'the body is binary and could upset the terminal; "-o -" writes it there all the same, '
                '"-o FILE" into a file'
            )
        self._digest.update(piece)
        if self._file is not None:
            self._file.write(piece)

    def _check(self, result: FetchResult) -> None:
        if result.body_sha256 not in (None, self._digest.hexdigest()):
            raise Damaged("the body that arrived is not the one that the agent put down; fetch it again")


def _opened(path: Path) -> BinaryIO:
    return path.open("wb")


def _head(result: FetchResult) -> bytes:
    """Status and headers, as a message of HTTP/1.1 whatever was spoken."""
    pairs = result.header_pairs or list(result.headers.items())
    lines = [f"HTTP/1.1 {result.status} {result.status_text}".rstrip(), *(f"{n}: {v}" for n, v in pairs)]
    return "".join(f"{clean(line)}\r\n" for line in (*lines, "")).encode()
