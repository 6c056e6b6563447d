"""One HTTP connection: bounds on what comes before a request is one, and refusals that can be read."""

import asyncio
from collections import deque
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from farhand.model.errors import Problem
from farhand.protocol.wire import encode, problem_document
from farhand.server.call import Scope
from farhand.server.exchange import Exchange

HEAD_MAX: Final = 64 * 1024
HEAD_DEADLINE_S: Final = 20


IDLE_S: Final = 75


def _parts(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request target."""
    if url[:1] == b"/" and url[1:2] != b"/" and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path, parsed.query or b""


class Connection(HttpToolsProtocol):
    """uvicorn's connection with a limit on the size of a request's head and the time it may take.

    What happens for every request is done here in fewer steps: one write for a small reply, no
    timer for each pause between two requests.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._application: Any = self.config.loaded_app  # pyright: ignore[reportUnknownMemberType]  (uvicorn says little of it)
        self.exchange: Exchange | None = None
        self.waiting: deque[Exchange] = deque()
        self.idle_since: float | None = None
        self._reading: Exchange
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
        for exchange in (self.exchange, *self.waiting):
            if exchange is not None:
                exchange.disconnected = not exchange.response_complete
                exchange.wake()
        self.waiting.clear()
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
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.idle_since = None
        self._in_head = True
        self._head_size = 0

    def on_headers_complete(self) -> None:
        """The head of a request is whole: the application begins, or waits for the one before it."""
        self._in_head = False
        self._stop_timer()
        parser: Any = self.parser
        raw_path, query = _parts(self.url)
        path = raw_path.decode("ascii")
        version = parser.get_http_version()
        scope: Scope = {
            "type": "http",
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "client": self.client,
        }
        exchange = Exchange(
            scope,
            self,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            continues=self.expect_100_continue,
        )
        if self.exchange is None or (self.exchange.response_complete and not self.waiting):
            self._start(exchange)
        else:
            self.flow.pause_reading()
            self.waiting.append(exchange)
        self._reading = exchange

    def _start(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.begin(self._application)

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        exchange = self._reading
        if exchange.response_complete:
            return
        exchange.body += body
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.wake()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._reading.more_body = False
        self._reading.wake()

    def on_response_complete(self) -> None:
        """A reply is out: the next request's turn, or a pause."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.waiting:
            self._start(self.waiting.popleft())
        else:
            self.idle_since = self.loop.time()

    def shutdown(self) -> None:
        """The server is going: no further request on this connection."""
        if self.exchange is None or (self.exchange.response_complete and not self.waiting):
            self.transport.close()
            return
        for exchange in (self.exchange, *self.waiting):
            exchange.keep_alive = False

    def close_if_idle(self, now: float) -> None:
        """End a connection that has not been used for a while; `now` is the loop's time."""
        if self.idle_since is not None and now - self.idle_since > IDLE_S:
            self.transport.close()

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
