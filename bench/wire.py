"""A minimal HTTP/1.1 client: keep-alive, one request at a time per connection.

It checks as little as it can, because the load generator must never be the limit of a measurement.
"""

import asyncio
from typing import Any

TYPE_JSON = b"content-type: application/json\r\n"

Reply = tuple[int, bytes]


class Refused(Exception):
    """A reply that the scenario did not expect; the message carries the request and the reply."""


class BadReply(Exception):
    """Bytes that are not a complete HTTP/1.1 reply of a kind this client reads."""


def parse_reply(data: bytes) -> Reply | None:
    """Return (status, body) of the one reply in `data`, or None while bytes are missing."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    status = int(data[9:12])
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        stop = head.find(b"\r\n", at + 17)
        length = int(head[at + 17 : stop if stop >= 0 else end])
        body = data[end + 4 : end + 4 + length]
        return (status, body) if len(body) == length else None
    if status in (204, 304):
        return status, b""
    if b"\r\ntransfer-encoding: chunked" in head:
        body = join_chunks(data, end + 4)
        return None if body is None else (status, body)
    raise BadReply(f"a reply with neither content-length nor chunks: {data[:200]!r}")


def join_chunks(data: bytes, at: int) -> bytes | None:
    """Return the body whose chunks start at `at`, or None while bytes are missing."""
    parts: list[bytes] = []
    while True:
        stop = data.find(b"\r\n", at)
        if stop < 0:
            return None
        size = int(data[at:stop].partition(b";")[0], 16)
        at = stop + 2
        if len(data) < at + size + 2:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(data[at : at + size])
        at += size + 2


class Session(asyncio.Protocol):
    """One connection that sends the same `Authorization` with every request."""

    __slots__ = ("_buffer", "_head", "_loop", "_transport", "_waiter", "requests")

    def __init__(self, key: str, headers: str = "") -> None:
        self._buffer = b""
        self._head = f" HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n{headers}".encode()
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._waiter: asyncio.Future[Reply] | None = None
        self.requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        waiter = self._waiter
        try:
            reply = parse_reply(data)
        except (BadReply, ValueError) as error:
            if waiter is not None and not waiter.done():
                waiter.set_exception(BadReply(str(error)))
            self._transport.close()
            return
        if reply is None:
            self._buffer = data
            return
        self._buffer = b""
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionError(f"the server closed the connection: {exc}"))

    def _send(self, request: bytes) -> asyncio.Future[Reply]:
        if self._transport.is_closing():
            raise ConnectionError("the server closed the connection between two requests")
        self.requests += 1
        self._waiter = waiter = self._loop.create_future()
        self._transport.write(request)
        return waiter

    def get(self, path: str) -> asyncio.Future[Reply]:
        """Send a GET; the future holds (status, body)."""
        return self._send(b"GET %b%b\r\n" % (path.encode(), self._head))

    def post(self, path: str, body: bytes) -> asyncio.Future[Reply]:
        """Send a POST of JSON; the future holds (status, body)."""
        return self._send(
            b"POST %b%b%bcontent-length: %d\r\n\r\n%b"
            % (path.encode(), self._head, TYPE_JSON, len(body), body)
        )

    def close(self) -> None:
        """Cut the connection at once, with whatever is in flight."""
        if self._transport is not None:
            self._transport.abort()


async def connect(port: int, key: str, headers: str = "") -> Session:
    """Open a session to the server on this machine; `headers` are extra header lines."""
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(lambda: Session(key, headers), "127.0.0.1", port)
    return session


def accepted(what: str, reply: Reply) -> bytes:
    """Return the body of a 2xx reply. Raises Refused for anything else."""
    status, body = reply
    if 200 <= status < 300:
        return body
    raise Refused(f"{what} answered {status}: {body[:300].decode(errors='replace')}")
