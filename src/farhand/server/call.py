"""One HTTP request and its reply, as thin as the hot routes need it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from farhand.model.errors import Problem
from farhand.protocol.wire import encode, problem_document
from farhand.server.principal import Principal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_DEADLINE_S: Final = 60
NOBODY: Final = Principal(kind="nobody")
_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", b"application/problem+json")
_BYTES: Final = (b"content-type", b"application/octet-stream")


def _line(header: tuple[bytes, bytes]) -> bytes:
    return b"%b: %b\r\n" % header


_LINES: Final[dict[tuple[bytes, bytes], bytes]] = {
    header: _line(header) for header in (_JSON, _PROBLEM, _BYTES)
}


class Gone(Exception):
    """The client hung up before its request was read or answered."""


class Call:
    """A request on a route: its parameters, its principal, its body, and the way back.

    Of a signed request `signer` is the agent that signed it and `body_digest` the SHA-256 that
    its body must have.
    """

    __slots__ = (
        "_headers", "body_digest", "epoch", "params", "principal", "receive", "scope", "send", "signer",
        "status",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, params: tuple[str, ...]) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.params = params
        self.principal = NOBODY
        self._headers: dict[bytes, bytes] | None = None
        self.status = 0
        self.epoch = 0
        self.signer: bytes | None = None
        self.body_digest: bytes | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        if self._headers is None:
            self._headers = dict(reversed(self.scope["headers"]))
        return self._headers.get(name)

    @property
    def address(self) -> str | None:
        """The peer's address as the socket knows it."""
        client = self.scope.get("client")
        return client[0] if client else None

    def query(self, known: frozenset[str]) -> dict[str, str]:
        """The query parameters. Raises Problem for one that the route does not know, or a NUL."""
        found: dict[str, str] = {}
        if not self.scope["query_string"]:
            return found
        raw = self.scope["query_string"].decode("ascii", "replace")
        for key, value in parse_qsl(raw, keep_blank_values=True):
            if key not in known:
                names = ", ".join(sorted(known)) or "none"
                raise Problem("bad-field", f"{key}: this route knows only the parameters {names}", field=key)
            if "\0" in value:
                raise Problem("bad-field", f"{key}: must not contain NUL", field=key)
            found[key] = value
        return found

    def prefer_wait_ms(self, ceiling_ms: int, default_ms: int = 0) -> int:
        """How long the caller would like to be held (RFC 7240 `wait`), bounded."""
        raw = self.header(b"prefer")
        if raw is None:
            return default_ms
        for part in raw.decode("latin-1").replace(";", ",").split(","):
            name, _, value = part.strip().partition("=")
            if name.strip().lower() == "wait":
                value = value.strip().strip('"')
                if not value.isascii() or not value.isdigit():
                    raise Problem("bad-request", "Prefer: wait takes a whole number of seconds")
                return min(int(value[:9]) * 1000, ceiling_ms)
        return default_ms

    async def body(self, limit: int) -> bytes:
        """The whole body.

        Raises Problem when it is larger than `limit`, too slow, or not the one that was signed,
        Gone on hang-up.
        """
        whole = await self._whole(limit)
        if self.body_digest is not None and hashlib.sha256(whole).digest() != self.body_digest:
            raise Problem("bad-signature", "the body is not the one that was signed")
        return whole

    async def _whole(self, limit: int) -> bytes:
        length = self.header(b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise body_too_large(limit)
        # A body that is already here, as most are, needs no timer.
        reading: Any = self.receive()
        try:
            waits_for = reading.send(None)
        except StopIteration as arrived:
            message: MutableMapping[str, Any] = arrived.value
            if message["type"] == "http.request" and not message.get("more_body", False):
                return _within(message.get("body", b""), limit)
            return await self._slowly(_given(message), limit)
        return await self._slowly(_Begun(reading, waits_for), limit)

    async def _slowly(self, first: Awaitable[MutableMapping[str, Any]], limit: int) -> bytes:
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                return await self._rest(await first, limit)
        except TimeoutError as error:
            raise Problem("bad-request", f"the body did not arrive within {BODY_DEADLINE_S} s") from error

    async def _rest(self, message: MutableMapping[str, Any], limit: int) -> bytes:
        whole = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise Gone
            whole += message.get("body", b"")
            _within(whole, limit)
            if not message.get("more_body", False):
                return bytes(whole)
            message = await self.receive()

    async def disconnected(self) -> None:
        """Return when the client hangs up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def is_gone(self) -> bool:
        """Whether the client is known to have hung up by now."""
        exchange = self.scope.get("exchange")
        if exchange is not None:
            return bool(exchange.disconnected)
        gone = asyncio.ensure_future(self.disconnected())
        await asyncio.sleep(0)
        gone.cancel()
        return gone.done()

    async def reply(
        self,
        status: int,
        body: bytes = b"",
        *,
        content: tuple[bytes, bytes] = _JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        """Send a whole reply."""
        self.status = status
        exchange = self.scope.get("exchange")
        if exchange is not None:
            kind = b"" if status == HTTPStatus.NO_CONTENT else _LINES.get(content) or _line(content)
            if exchange.answer(status, kind, headers, body):
                return
        length = (b"content-length", b"%d" % len(body))
        lines = [length, *headers] if status == HTTPStatus.NO_CONTENT else [content, length, *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": lines})
        await self.send({"type": "http.response.body", "body": body})

    async def json(
        self, value: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Send a JSON reply."""
        await self.reply(status, encode(value), headers=headers)

    async def problem(self, problem: Problem) -> None:
        """Send a problem document, with Retry-After where trying again later helps."""
        status = problem.kind.status
        headers: list[tuple[bytes, bytes]] = []
        if status in (429, 503):
            headers.append((b"retry-after", b"%d" % problem.extra.get("retry_after", 1)))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if status == 405:
            headers.append((b"allow", str(problem.extra.get("allow", "")).encode()))
        body = encode(problem_document(problem))
        await self.reply(status, body, content=_PROBLEM, headers=tuple(headers))

    async def stream(self, chunks: AsyncIterator[bytes], size: int) -> None:
        """Send stored bytes; a hole found half-way ends the connection, never the lie."""
        self.status = 200
        lines = [_BYTES, (b"content-length", b"%d" % size)]
        await self.send({"type": "http.response.start", "status": 200, "headers": lines})
        async for chunk in chunks:
            await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self.send({"type": "http.response.body", "body": b""})


class _Begun:
    """Awaits the rest of a coroutine that was already started once."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Any, waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            try:
                got = yield waits_for
            except BaseException as error:
                step, value = self._coroutine.throw, error
            else:
                step, value = self._coroutine.send, got
            try:
                waits_for = step(value)
            except StopIteration as done:
                return done.value


async def _given(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return message


def _within(body: Any, limit: int) -> Any:
    if len(body) > limit:
        raise body_too_large(limit)
    return body


def body_too_large(limit: int) -> Problem:
    """The answer to a request over the size limit, which it names."""
    return Problem(
        "payload-too-large", f"the request is larger than the limit of {limit} bytes", limit_bytes=limit
    )
