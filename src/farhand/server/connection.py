"""One HTTP connection: bounds on what comes before a request is one, and refusals that can be read."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from farhand.model.errors import Problem
from farhand.protocol.wire import encode, problem_document

HEAD_MAX: Final = 64 * 1024
HEAD_DEADLINE_S: Final = 20


class Connection(HttpToolsProtocol):
    """uvicorn's connection with a limit on the size of a request's head and the time it may take."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_head = True
        self._head_size = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is there; its first request has a time to come in."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_DEADLINE_S, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of one or more requests."""
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_size += len(data)
        if self._head_size > HEAD_MAX:
            self._refuse(f"the head of the request is larger than the limit of {HEAD_MAX} bytes")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_DEADLINE_S, self._head_is_late)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_size = 0

    def on_headers_complete(self) -> None:
        """The head of a request is whole."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as a problem document."""
        self._refuse("this is not a valid HTTP request")

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, message: str) -> None:
        body = encode(problem_document(Problem("bad-request", message)))
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        )
        self.transport.write(head + body)
        self.transport.close()
