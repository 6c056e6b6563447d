"""One request and its reply on a connection, written out in as few pieces as it can be."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from farhand.server.call import Receive, Scope, Send

log = logging.getLogger("farhand.server")
_DISCONNECT: Final = {"type": "http.disconnect"}
Application = Callable[[Scope, Receive, Send], Any]
Header = tuple[bytes, bytes]


class Line(Protocol):
    """The connection that an exchange is written to."""

    transport: Any
    flow: FlowControl
    loop: Any
    tasks: set[Any]
    server_state: ServerState

    def on_response_complete(self) -> None:
        """The reply is out."""
        ...


_plain: tuple[list[Header], bytes] = ([], b"")


def _joined(headers: list[Header]) -> bytes:
    """The headers of every reply as they are written; the server makes a new list every second."""
    global _plain
    if _plain[0] is not headers:
        _plain = (headers, b"".join([b"%b: %b\r\n" % header for header in headers]))
    return _plain[1]


class Exchange:
    """The application's side of one request: what it reads and what it answers.

    The head of a reply waits for the first piece of its body, so that a small reply is one
    write. Headers are our own and are not checked again.
    """

    __slots__ = (
        "_ended",
        "_flow",
        "_head",
        "_left",
        "_line",
        "_task",
        "_transport",
        "_waiter",
        "body",
        "continues",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(self, scope: Scope, line: Line, *, keep_alive: bool, continues: bool) -> None:
        self.scope = scope
        scope["exchange"] = self
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.keep_alive = keep_alive
        self.continues = continues
        self.response_started = False
        self.response_complete = False
        self._line = line
        self._transport = line.transport
        self._flow = line.flow
        self._ended = False
        self._head: bytes | None = None
        self._left = 0
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, app: Application) -> None:
        """Let the application answer. Until it has, the server that ends waits for this exchange."""
        self._line.tasks.add(self)
        self._task = self._line.loop.create_task(self.run(app))

    def cancel(self, msg: Any = None) -> None:
        """The server ends and waits no longer."""
        if self._task is not None:
            self._task.cancel(msg)

    async def run(self, app: Application) -> None:
        """Let the application answer; whatever it leaves undone ends the connection."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException:
            log.exception("request_broke_off")
            self._transport.close()
            return
        finally:
            # They would keep each other alive until the collector comes by.
            self.scope.pop("exchange", None)
            self._task = None
            self._line.tasks.discard(self)
        if not self.response_complete and not self.disconnected:
            self._transport.close()

    def wake(self) -> None:
        """Something arrived, or the client is gone."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Any:
        """The next piece of the body; later that the client is gone."""
        if self.continues and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.continues = False
        while not self.disconnected and not self.response_complete:
            if self.body or not (self.more_body or self._ended):
                piece = bytes(self.body)
                self.body.clear()
                self._ended = not self.more_body
                self._flow.resume_reading()
                return {"type": "http.request", "body": piece, "more_body": self.more_body}
            self._flow.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return _DISCONNECT

    async def send(self, message: Any) -> None:
        """The head of the reply, or a piece of its body."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._write(message.get("body", b""), more=message.get("more_body", False))

    def answer(self, status: int, content: bytes, more: Sequence[Header], body: bytes) -> bool:
        """Write a whole reply at once; False when it has to go the slow way.

        `content` is the line of its type with its end, empty for a reply without one.
        """
        if self._flow.write_paused or self.disconnected or self.response_started:
            return False
        lines = [
            STATUS_LINE[status],
            _joined(self._line.server_state.default_headers),
            content,
            b"content-length: %d\r\n" % len(body),
        ]
        for name, value in more:
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            lines.append(body)
        self.response_started = True
        self.continues = False
        self._transport.write(b"".join(lines))
        self._complete()
        return True

    def _begin(self, status: int, headers: list[Header]) -> None:
        if self.response_started:
            raise RuntimeError("a reply begins once")
        self.response_started = True
        self.continues = False
        lines = [STATUS_LINE[status]]
        for name, value in (*self._line.server_state.default_headers, *headers):
            if name == b"content-length":
                self._left = int(value)
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _write(self, piece: bytes, *, more: bool) -> None:
        if self.response_complete or not self.response_started:
            raise RuntimeError("a piece of a body comes between the head of its reply and the end")
        self._left -= len(piece)
        if self._left < 0 or (self._left and not more):
            raise RuntimeError("the body is not as long as its Content-Length")
        if self.scope["method"] == "HEAD":
            piece = b""
        if self._head is not None:
            piece = self._head + piece
            self._head = None
        self._transport.write(piece)
        if not more:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.wake()
        if not self.keep_alive:
            self._transport.close()
        self._line.on_response_complete()
