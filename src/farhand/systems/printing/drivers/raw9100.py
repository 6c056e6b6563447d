"""Raw TCP printing, usually port 9100: bytes go in, little comes back.

All that can be known is that the printer took every byte (`delivered`). Closing early cuts
pages off at some printers, so the write side is closed first and the printer's own close is
waited for, a bounded time.
"""

import asyncio
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urlsplit

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
)

CHUNK = 32 * 1024
_CAPABILITIES = Capabilities(raw=True, pdf=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTiming:
    """Milliseconds. `stall_ms`: how long the printer may take nothing (out of paper) before the
    print is given up; `quiet_ms`: when that is reported; `close_ms`: wait for the printer's close.
    """

    connect_ms: int = 10_000
    quiet_ms: int = 3_000
    stall_ms: int = 600_000
    close_ms: int = 10_000


class _GivenUp(Exception):
    """The print ends here, for the reason in the text."""


class RawDriver:
    """`socket://host:9100`."""

    def __init__(self, uri: str, *, timing: RawTiming | None = None):
        parts = urlsplit(uri)
        if parts.scheme != "socket" or not parts.hostname:
            raise ValueError(f"{uri!r} is no raw printer address; write socket://host:9100")
        self.uri = uri
        self._host, self._port = parts.hostname, parts.port or 9100
        self._timing = timing or RawTiming()
        self._printing = False

    async def status(self) -> PrinterStatus:
        """Whether it takes connections; `printing` while this driver prints."""
        if self._printing:
            # Most of these printers take one connection: a second one would call them offline.
            return PrinterStatus(state="printing", capabilities=_CAPABILITIES)
        try:
            _, writer = await self._connect()
        except OSError as error:
            return PrinterStatus(
                state="offline", reasons=(self._words(error),), accepting=False, capabilities=_CAPABILITIES
            )
        await _close(writer)
        return PrinterStatus(state="idle", capabilities=_CAPABILITIES)

    async def print(self, document: Document, progress: Progress) -> Outcome:
        """Sends the bytes, `copies` times over; a break after the first one is Unknown."""
        if document.mode != "raw":
            return Failed(reason="a raw printer takes no PDF; send the job to another printer")
        try:
            file = await asyncio.to_thread(document.path.open, "rb")
        except OSError as error:
            return Failed(reason=f"the document cannot be read: {error.strerror}", retryable=True)
        with file:
            try:
                reader, writer = await self._connect()
            except OSError as error:
                return Failed(reason=self._words(error), retryable=True)
            self._printing = True
            try:
                if progress.cancelled.is_set():
                    return Cancelled()
                await progress.spooling()
                sending = _Sending(reader, writer, progress, self._timing)
                return await sending.run(file, document.copies)
            finally:
                self._printing = False
                await _close(writer)

    async def fate(self, name: str, handle: str | None, progress: Progress) -> Outcome:
        """The device cannot be asked; a handle says that every byte had been taken."""
        if handle is not None:
            return Printed(evidence="delivered")
        return Unknown(reason="the agent stopped while it sent, and a raw printer cannot be asked")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(self._timing.connect_ms / 1000):
            return await asyncio.open_connection(self._host, self._port)

    def _words(self, error: OSError) -> str:
        where = f"{self._host}:{self._port}"
        if isinstance(error, TimeoutError):
            return f"{where} does not answer"
        return f"{where} cannot be reached: {error.strerror or error}"


class _Sending:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        progress: Progress,
        timing: RawTiming,
    ):
        self._reader, self._writer, self._progress, self._timing = reader, writer, progress, timing
        self._sent = 0
        # With no buffer of our own, a drained write is one the kernel has taken.
        writer.transport.set_write_buffer_limits(high=0)

    async def run(self, file: BinaryIO, copies: int) -> Outcome:
        # What the printer says back is thrown away, but read: a full window would stop it.
        answers = asyncio.create_task(self._listen())
        try:
            await self._progress.report("printing", None)
            for _ in range(copies):
                await asyncio.to_thread(file.seek, 0)
                while chunk := await asyncio.to_thread(file.read, CHUNK):
                    await self._write(chunk)
            self._writer.write_eof()
            await self._wait_for_close(answers)
        except _GivenUp as error:
            return Unknown(reason=f"{error} after {self._sent} bytes")
        except OSError as error:
            return Unknown(reason=f"the connection broke after {self._sent} bytes: {error}")
        finally:
            answers.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await answers
        # A journal that fails now changes nothing about the delivery.
        with suppress(OSError):
            await self._progress.handed(f"{self._sent} bytes")
        return Printed(evidence="delivered")

    async def _listen(self) -> None:
        while await self._reader.read(4096):
            pass

    async def _write(self, chunk: bytes) -> None:
        self._writer.write(chunk)
        await self._patiently(asyncio.ensure_future(self._writer.drain()))
        self._sent += len(chunk)

    async def _patiently(self, step: asyncio.Future[None]) -> None:
        """Waits for a step of the device; a cancel or too long a silence gives up."""
        cancel = asyncio.ensure_future(self._progress.cancelled.wait())
        quiet, stall = self._timing.quiet_ms / 1000, self._timing.stall_ms / 1000
        begun = asyncio.get_running_loop().time()
        told = False
        try:
            while True:
                left = begun + stall - asyncio.get_running_loop().time()
                await asyncio.wait(
                    (step, cancel), timeout=min(quiet, left), return_when=asyncio.FIRST_COMPLETED
                )
                if step.done():
                    break
                if cancel.done():
                    raise _GivenUp("cancelled")
                if left <= quiet:
                    raise _GivenUp("the printer stopped taking data")
                if not told:
                    told = True
                    await self._progress.report("paused", "the printer takes no data; look at its paper")
            await step
            if told:
                await self._progress.report("printing", None)
        finally:
            step.cancel()
            cancel.cancel()

    async def _wait_for_close(self, answers: asyncio.Task[None]) -> None:
        # The half-close still lies behind our last bytes in the kernel; so does the answer to it.
        done, _ = await asyncio.wait((answers,), timeout=self._timing.close_ms / 1000)
        if done:
            await answers
        await self._patiently(asyncio.ensure_future(self._acknowledged()))

    async def _acknowledged(self) -> None:
        # Some printers close their side at once and read on, so that their close proves nothing.
        connection: socket.socket = self._writer.get_extra_info("socket")
        while True:
            error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            if _unacknowledged(connection) == 0:
                return
            await asyncio.sleep(0.05)


def _unacknowledged(connection: socket.socket) -> int:
    """Bytes the peer's TCP has not confirmed; 0 where the system does not tell (all but Linux)."""
    if not sys.platform.startswith("linux"):
        return 0
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
    return count[0]


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    writer.transport.abort()
