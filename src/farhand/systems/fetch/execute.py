"""One request on somebody's behalf: through the guard, and into the words of the wire."""

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from farhand.egress import (
    EgressError,
    EgressPolicy,
    Resolver,
    Response,
    SystemResolver,
    parse_url,
    tls_context,
    utf8_boundary,
)
from farhand.egress import request as send
from farhand.model.clock import Clock
from farhand.protocol.fetch import (
    INLINE_BYTES_MAX,
    SAFE_METHODS,
    FetchError,
    FetchParams,
    FetchResult,
    RangeReport,
    RedirectReport,
    TimingReport,
    TlsReport,
)
from farhand.systems.fetch.pace import Crowded, Pace
from farhand.systems.fetch.settings import FetchSettings

# Fields whose names say that they are meant for one origin alone.
_SECRET: Final = re.compile("auth|cookie|credential|csrf|key|passw|secret|session|signature|token", re.I)
_TEXT: Final = re.compile(r"text/.*|.*\+(json|xml)|application/(json|xml|javascript|x-www-form-urlencoded)")

Place = Callable[[], Awaitable[Path]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The target answered. A body too large for the result lies in `path`."""

    result: FetchResult
    path: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The target did not answer; `retryable` when the reason lies with this agent alone."""

    error: FetchError
    retryable: bool


class Executor:
    """Carries requests out within the settings; keeps what is costly to make."""

    def __init__(self, settings: FetchSettings, clock: Clock, resolver: Resolver | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._resolver = resolver or SystemResolver()
        self._pace = Pace(settings.per_host_per_second, clock)
        self._context: ssl.SSLContext | None = None

    async def turn(self, request: FetchParams) -> Failure | None:
        """Waits until the request's host may be asked; a Failure when that would take too long."""
        try:
            await self._pace.turn(parse_url(request.url).host)
        except EgressError as error:
            return _refused(error, 0)
        except Crowded as error:
            message = f"too many requests to {error} wait on this agent; try later"
            return agent_failure("rate-limited", message)
        return None

    async def run(
        self,
        request: FetchParams,
        body: bytes | None,
        place: Place,
        on_send: Callable[[], None] | None = None,
    ) -> Answer | Failure:
        """Sends the request and takes the answer in; a large body goes to `place`.

        `on_send` is called when its first byte is about to leave. Cancelling it closes the connection.
        """
        began_ms = self._clock.monotonic_ms()
        spill = Spill(place)
        try:
            policy = self._settings.policy(request)
            response = await send(
                request.method,
                request.url,
                policy=policy,
                headers=request.headers.items(),
                body=body,
                range=request.range_request,
                crop=True,
                sink=spill,
                resolver=self._resolver,
                clock=self._clock,
                secret_headers=[name for name in request.headers if _SECRET.search(name)],
                insecure_tls=request.allow_insecure_tls,
                context=await self._trust(request, policy),
                on_send=on_send,
            )
            return await _answer(response, spill)
        except EgressError as error:
            return _refused(error, self._clock.monotonic_ms() - began_ms)
        except OSError as error:
            return agent_failure("agent-disk", f"this agent cannot keep the answer: {error.strerror}")
        finally:
            spill.close()

    async def _trust(self, request: FetchParams, policy: EgressPolicy) -> ssl.SSLContext | None:
        # Reading the trust store takes some 20 ms: not for each request, nor where http is asked.
        if self._context is None and request.url[:6].lower() == "https:":
            self._context = await asyncio.to_thread(tls_context, policy)
        return self._context


def is_safe(request: FetchParams) -> bool:
    """Whether the request may be made twice."""
    return request.idempotent or request.method.upper() in SAFE_METHODS


def agent_failure(code: str, message: str) -> Failure:
    """A failure of this agent's own, which another one need not have."""
    return Failure(error=FetchError(code=code, message=message, source="agent"), retryable=True)


def _refused(error: EgressError, elapsed_ms: int) -> Failure:
    found = FetchError(code=error.code, message=error.message, source=error.source, elapsed_ms=elapsed_ms)
    return Failure(error=found, retryable=error.source == "agent")


class Spill:
    """Keeps a body: in memory while it is small, in a file after that."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self._size = 0
        self.path: Path | None = None

    async def __call__(self, piece: bytes) -> None:
        """The next bytes. Raises OSError."""
        if self._file is None and len(self._memory) + len(piece) <= INLINE_BYTES_MAX:
            self._memory += piece
            self._size += len(piece)
            return
        if self._file is None:
            self.path = await self._place()
            self._file = await asyncio.to_thread(self.path.open, "w+b")
            await asyncio.to_thread(self._file.write, bytes(self._memory))
            self._memory.clear()
        await asyncio.to_thread(self._file.write, piece)
        self._size += len(piece)

    async def whole_characters(self) -> int:
        """Cuts off a character that the end tears apart; the size then. Raises OSError."""
        if self._file is None:
            del self._memory[utf8_boundary(self._memory) :]
            self._size = len(self._memory)
            return self._size
        return await asyncio.to_thread(self._cut, self._file)

    def text(self) -> str | None:
        """The body as text, where it is in memory and is some."""
        try:
            text = self._memory.decode()
        except UnicodeDecodeError:
            return None
        return None if "\x00" in text else text

    def base64(self) -> str:
        """The body in memory as base64."""
        return b64encode(self._memory).decode()

    def close(self) -> None:
        """Everything is in the file that has one."""
        if self._file is not None:
            self._file.close()

    def _cut(self, file: BinaryIO) -> int:
        file.seek(max(self._size - 4, 0))
        tail = file.read()
        self._size -= len(tail) - utf8_boundary(tail)
        file.truncate(self._size)
        return self._size


async def _answer(response: Response, spill: Spill) -> Answer:
    size = response.bytes_written
    textual = _is_text(response.header("content-type"))
    if response.cropped and textual:
        size = await spill.whole_characters()
    await asyncio.to_thread(spill.close)
    text = spill.text() if (textual or not size) and spill.path is None else None
    inline = None if spill.path is not None else text if text is not None else spill.base64()
    return Answer(
        path=spill.path,
        result=FetchResult(
            status=response.status,
            status_text=response.reason,
            headers=_joined(response.headers),
            header_pairs=_repeated(response.headers),
            body=inline,
            body_base64=inline is not None and text is None,
            cropped=response.cropped,
            crop_original_size=response.crop_original_size,
            elapsed_ms=response.timings.total,
            bytes_written=size,
            url=response.url,
            remote_address=response.remote_address,
            tls=_tls(response),
            redirects=[RedirectReport(status=step.status, url=step.url) for step in response.redirects],
            timings=_timings(response),
            range=_range(response),
        ),
    )


def _is_text(content_type: str | None) -> bool:
    if content_type is None:
        return True
    return _TEXT.fullmatch(content_type.partition(";")[0].strip().lower()) is not None


def _joined(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _repeated(pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]] | None:
    return list(pairs) if len(_joined(pairs)) < len(pairs) else None


def _tls(response: Response) -> TlsReport | None:
    tls = response.tls
    if tls is None:
        return None
    return TlsReport(
        version=tls.version, verified=tls.verified, reason=tls.reason, fingerprint=tls.fingerprint
    )


def _timings(response: Response) -> TimingReport:
    times = response.timings
    return TimingReport(
        dns_ms=times.dns,
        connect_ms=times.connect,
        tls_ms=times.tls,
        first_byte_ms=times.first_byte,
        total_ms=times.total,
    )


def _range(response: Response) -> RangeReport | None:
    part = response.range
    if part is None:
        return None
    return RangeReport(honoured=part.honoured, first=part.first, last=part.last, total=part.total)
