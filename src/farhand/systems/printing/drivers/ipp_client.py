"""IPP over HTTP/1.1 (RFC 8010 section 4): one request, one connection, one reply.

A connection per request costs a local printer little and leaves none of its few sockets
occupied between two looks at a job that takes minutes.
"""

import asyncio
import hashlib
import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from farhand.systems.printing.drivers.ipp_values import Message, WireError
from farhand.systems.printing.drivers.ipp_wire import decode, encode

CHUNK = 64 * 1024
REPLY_MAX = 16 * 1024 * 1024
HEAD_MAX = 64 * 1024
_PORT = 631


class IppError(Exception):
    """A request that got no usable reply; the text says what to do."""

    def __init__(self, message: str, *, sent: bool, complete: bool = False):
        super().__init__(message)
        # Whether a byte of the document may have left: decides between Failed and Unknown.
        self.sent = sent
        # Whether the last one was written, which does not say that it arrived.
        self.complete = complete


class Unreachable(IppError):
    """No connection: refused, no such host, no answer in time, or TLS failed."""

    def __init__(self, message: str):
        super().__init__(message, sent=False)


class Broken(IppError):
    """The connection broke, or a time limit passed, after it had been opened."""


class Refused(IppError):
    """An HTTP status other than 200, or a reply that is no IPP."""

    def __init__(self, message: str, *, sent: bool, complete: bool = False, status: int = 0):
        super().__init__(message, sent=sent, complete=complete)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in milliseconds.

    `stall_ms` holds in place of `read_ms` for a request with a document, and for each piece of
    it: a printer without a spool takes nothing while it is out of paper. `continue_ms` is how
    long a 100 is waited for before sending.
    """

    connect_ms: int = 10_000
    read_ms: int = 30_000
    stall_ms: int = 600_000
    continue_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go. `printer_uri` is what they name; `socket` replaces host and port."""

    host: str
    port: int
    path: str
    printer_uri: str
    secure: bool = False
    socket: str | None = None


def endpoint(uri: str) -> Endpoint:
    """Reads `ipp://`, `ipps://` and `ipp+unix://%2Fpath%2Fcups.sock/printers/name`.

    Raises ValueError for anything else.
    """
    parts = urlsplit(uri)
    if parts.scheme == "ipp+unix" and parts.netloc:
        path = parts.path or "/"
        named = f"ipp://localhost{path}"
        return Endpoint(
            host="localhost", port=_PORT, path=path, printer_uri=named, socket=unquote(parts.netloc)
        )
    if parts.scheme not in ("ipp", "ipps") or not parts.hostname:
        raise ValueError(f"{uri!r} is no printer address; write ipp://host/path or ipps://host/path")
    if parts.username is not None:
        raise ValueError("a printer address carries no user name or password")
    path = parts.path or "/"
    if parts.query:
        path += f"?{parts.query}"
    return Endpoint(
        host=parts.hostname,
        port=parts.port or _PORT,
        path=quote(path, safe="/?&=%:;@+,~!$'()*"),
        printer_uri=uri,
        secure=parts.scheme == "ipps",
    )


class IppClient:
    """Sends messages to one endpoint.

    `fingerprint` (SHA-256 of the certificate, hex) is how a printer with a self-signed
    certificate is trusted; without it the certificate must be valid for the host.
    """

    def __init__(
        self,
        where: Endpoint,
        *,
        timeouts: Timeouts | None = None,
        fingerprint: str | None = None,
        reply_max: int = REPLY_MAX,
    ):
        self.where = where
        self._limits = timeouts or Timeouts()
        self._fingerprint = fingerprint.lower().replace(":", "") if fingerprint else None
        self._reply_max = reply_max

    async def send(self, message: Message, document: Path | None = None) -> Message:
        """The reply to a message, with the document streamed behind it.

        Raises Unreachable, Broken or Refused; WireError when the message cannot be encoded.
        """
        body = encode(message)
        if document is None:
            return await self._exchange(body, None, 0)
        try:
            file = await asyncio.to_thread(document.open, "rb")
            size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise IppError(f"the document cannot be read: {error.strerror}", sent=False) from error
        with file:
            return await self._exchange(body, file, size)

    async def _exchange(self, body: bytes, file: BinaryIO | None, size: int) -> Message:
        async with self._connection() as (reader, writer):
            stream = _Exchange(reader, writer, self._limits, self._reply_max)
            head = self._head(len(body) + size, wait=file is not None)
            return await stream.run(head, body, file)

    def _head(self, length: int, *, wait: bool) -> bytes:
        where = self.where
        host = f"[{where.host}]" if ":" in where.host else where.host
        lines = [
            f"POST {where.path} HTTP/1.1",
            f"Host: {host}:{where.port}",
            "Content-Type: application/ipp",
            f"Content-Length: {length}",
            "Accept: application/ipp",
            "User-Agent: farhand IPP/2.0",
            "Connection: close",
        ]
        if wait:
            lines.append("Expect: 100-continue")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await self._connect()
        try:
            yield reader, writer
        finally:
            # A polite close of TLS waits for the peer, who may be gone.
            writer.transport.abort()
            with suppress(OSError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = self.where
        name = where.socket or f"{where.host}:{where.port}"
        try:
            async with asyncio.timeout(self._limits.connect_ms / 1000):
                if where.socket:
                    return await asyncio.open_unix_connection(where.socket, limit=HEAD_MAX)
                context = self._context() if where.secure else None
                reader, writer = await asyncio.open_connection(
                    where.host, where.port, ssl=context, limit=HEAD_MAX
                )
        except TimeoutError as error:
            raise Unreachable(f"{name} does not answer") from error
        except ssl.SSLError as error:
            raise Unreachable(
                f"{name}: TLS failed ({error.reason or error}); for a self-signed certificate "
                "put its SHA-256 fingerprint into the printer's entry"
            ) from error
        except OSError as error:
            raise Unreachable(f"{name} cannot be reached: {error.strerror or error}") from error
        self._check_certificate(writer)
        return reader, writer

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._fingerprint:
            # The fingerprint names the very certificate, which says more than any chain.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _check_certificate(self, writer: asyncio.StreamWriter) -> None:
        session = writer.get_extra_info("ssl_object")
        if not self._fingerprint or not isinstance(session, ssl.SSLObject):
            return
        found = hashlib.sha256(session.getpeercert(binary_form=True) or b"").hexdigest()
        if found == self._fingerprint:
            return
        writer.transport.abort()
        raise Unreachable(
            f"{self.where.host}: the certificate has fingerprint {found}, not the one in the printer's "
            "entry; compare it at the printer before you change the entry"
        )


class _Exchange:
    """One request and its reply; the reply is read while the document still goes out."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Timeouts, reply_max: int
    ):
        self._reader, self._writer, self._limits, self._reply_max = reader, writer, limits, reply_max
        self._sent = self._complete = False

    async def run(self, head: bytes, body: bytes, file: BinaryIO | None) -> Message:
        self._go_ahead = asyncio.Event()
        reply = asyncio.create_task(self._read_reply())
        try:
            await self._send(reply, head, body, file)
            limit = self._limits.stall_ms if file else self._limits.read_ms
            async with asyncio.timeout(limit / 1000):
                status, content = await reply
        except TimeoutError as error:
            raise self._broken("the printer sent no reply in time") from error
        except (OSError, EOFError, asyncio.LimitOverrunError, ssl.SSLError) as error:
            raise self._broken(f"the connection broke: {error}") from error
        finally:
            reply.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reply
        return self._decode(status, content)

    async def _send(
        self, reply: asyncio.Task[tuple[int, bytes]], head: bytes, body: bytes, file: BinaryIO | None
    ) -> None:
        if file is None:
            await self._write(head + body)
            return
        # The attributes stay behind the 100 too: CUPS answers 401 or 413 before either.
        await self._write(head)
        go_ahead = asyncio.create_task(self._go_ahead.wait())
        await asyncio.wait(
            (reply, go_ahead), timeout=self._limits.continue_ms / 1000, return_when=asyncio.FIRST_COMPLETED
        )
        go_ahead.cancel()
        if reply.done():
            return
        # A printer that hangs up on a document has often said why: the reply tells, or breaks too.
        with suppress(OSError):
            await self._write(body)
            # Read one ahead: a connection that breaks after the last piece has had all of them.
            chunk = await self._read(file)
            # After an early reply, what is left of the document has no taker.
            while chunk and not reply.done():
                following = await self._read(file)
                self._sent = True
                await self._write(chunk)
                chunk = following
            self._complete = not chunk

    async def _read(self, file: BinaryIO) -> bytes:
        try:
            return await asyncio.to_thread(file.read, CHUNK)
        except OSError as error:
            raise Broken(f"the document cannot be read: {error.strerror}", sent=self._sent) from error

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            async with asyncio.timeout(self._limits.stall_ms / 1000):
                await self._writer.drain()
        except TimeoutError as error:
            raise Broken("the printer stopped taking data", sent=self._sent) from error

    async def _read_reply(self) -> tuple[int, bytes]:
        while True:
            status, headers = await self._read_head()
            if status >= 200:
                return status, await self._read_body(headers)
            if status == 100:
                self._go_ahead.set()

    async def _read_head(self) -> tuple[int, dict[str, str]]:
        raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise self._garbage(f"the reply begins with {first[:40]!r}")
        pairs = (line.partition(":") for line in lines if line)
        return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self._read_chunks()
        length = headers.get("content-length")
        if length is None:
            return await self._read_to_end()
        if not length.isdigit():
            raise self._garbage(f"its length is {length[:20]!r}")
        self._check_size(int(length))
        return await self._reader.readexactly(int(length))

    async def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            line = (await self._reader.readuntil(b"\r\n")).partition(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                raise self._garbage(f"a chunk has the length {line[:20]!r}") from None
            if size < 0:
                raise self._garbage("a chunk has a negative length")
            if size == 0:
                return b"".join(parts)
            total += size
            self._check_size(total)
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)

    async def _read_to_end(self) -> bytes:
        parts: list[bytes] = []
        total = 0
        while part := await self._reader.read(CHUNK):
            total += len(part)
            self._check_size(total)
            parts.append(part)
        return b"".join(parts)

    def _check_size(self, size: int) -> None:
        if size > self._reply_max:
            raise self._garbage(f"it is longer than {self._reply_max} bytes")

    def _broken(self, why: str) -> Broken:
        return Broken(why, sent=self._sent, complete=self._complete)

    def _garbage(self, why: str) -> Refused:
        words = f"this is no IPP printer's reply: {why}"
        return Refused(words, sent=self._sent, complete=self._complete)

    def _decode(self, status: int, content: bytes) -> Message:
        if status != 200:
            raise Refused(_http_words(status), sent=self._sent, status=status)
        try:
            return decode(content)
        except WireError as error:
            raise self._garbage(str(error)) from error


def _http_words(status: int) -> str:
    words = {
        401: "the printer wants a user name and password, which no driver here sends",
        403: "the printer does not let this machine print; allow its address there",
        404: "there is no printer under this path; look at the printer's own list of addresses",
        413: "the document is too large for the printer",
        426: "the printer wants TLS; write ipps:// instead of ipp://",
    }
    return words.get(status, "the printer's web server refused the request") + f" (HTTP {status})"
