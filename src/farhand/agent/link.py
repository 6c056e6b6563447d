"""Requests to the server, every one of them with a limit on how long it may take."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, cast

import httpx2
import msgspec

from farhand import __version__
from farhand.agent.config import ConfigError
from farhand.agent.errors import NoAnswer, Pending, Refused, ShutOut, Stale
from farhand.agent.signing import Signer
from farhand.protocol import PROTOCOL, PROTOCOL_HEADER
from farhand.protocol.agent import (
    ClaimReply,
    ClaimRequest,
    HeldReply,
    HeldRequest,
    RegisterReply,
    RegisterRequest,
    ReleaseRequest,
    ResultBodyReply,
    ResultReply,
    ResultRequest,
    StateReply,
)
from farhand.protocol.signing import NEW_AGENT, digest_text
from farhand.protocol.wire import encode

CONNECT_MS: Final = 10_000
ANSWER_MS: Final = 15_000
STALL_MS: Final = 30_000
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 256 * 1024
RETRY_AFTER_MAX_MS: Final = 600_000
REGISTER: Final = "/agent/register"

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Line:
    client: httpx2.AsyncClient
    limits: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])
    retired: bool = False


class Link:
    """The agent's side of the wire.

    Raises the errors of `farhand.agent.errors`. What cannot be read (a proxy's page, with
    whatever status) is NoAnswer, so that only the server itself can stop an agent. A reply is
    given up `answer_ms` after the server should have sent it, a download after `stall_ms`
    without a byte. With a `signer` every request is signed in the agent's name, so that before
    the registration, whose reply tells it, the others are NoAnswer; the key registers alone.
    """

    def __init__(
        self,
        server: str,
        key: str,
        *,
        signer: Signer | None = None,
        ca_file: Path | None = None,
        answer_ms: int = ANSWER_MS,
        stall_ms: int = STALL_MS,
    ) -> None:
        self._server = server
        self._answer_ms = answer_ms
        self._stall_ms = stall_ms
        self._key = key
        self._signer = signer
        self._agent: str | None = None
        self._context = server_context(ca_file)
        self._line = _Line(self._open())
        self._closing: set[asyncio.Task[None]] = set()

    async def register(self, request: RegisterRequest) -> RegisterReply:
        """Tells who we are and what is behind us. Raises Pending, too."""
        if self._signer is not None:
            request = msgspec.structs.replace(request, public_key=self._signer.public_key)
        reply = await self._post(REGISTER, request, RegisterReply)
        self._agent = reply.computer_id
        return reply

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Asks for work; the server holds the request up to its `wait_ms`."""
        return await self._post("/agent/claim", request, ClaimReply, wait_ms=request.wait_ms)

    async def start(self, job_id: str, request: HeldRequest) -> HeldReply:
        """Accepts an offer and begins."""
        return await self._post(f"/agent/jobs/{job_id}/start", request, HeldReply)

    async def heartbeat(self, job_id: str, request: HeldRequest) -> HeldReply:
        """Keeps the lease and tells where the work is."""
        return await self._post(f"/agent/jobs/{job_id}/heartbeat", request, HeldReply)

    async def release(self, job_id: str, request: ReleaseRequest) -> StateReply:
        """Gives work back that has not begun in earnest. Raises Refused `no-return`, too."""
        return await self._post(f"/agent/jobs/{job_id}/release", request, StateReply)

    async def refuse(self, job_id: str, request: ReleaseRequest) -> StateReply:
        """Leaves work to other agents."""
        return await self._post(f"/agent/jobs/{job_id}/refuse", request, StateReply)

    async def result(self, job_id: str, request: ResultRequest) -> ResultReply:
        """Reports how an attempt ended."""
        return await self._post(f"/agent/jobs/{job_id}/result", request, ResultReply)

    async def download(
        self, path: str, lease_token: str, write: Callable[[bytes], object], size_max: int
    ) -> int:
        """Streams a job's bytes into `write`; how many there were.

        Raises Refused `payload-too-large` when there are more than `size_max`.
        """
        if not path.startswith("/") or path.startswith("//"):
            raise Refused(f"the payload lies at {path!r}; upgrade the agent", problem="unsupported-type")
        headers = {"Farhand-Lease": lease_token, **self._credentials("GET", path, b"")}
        async with (
            self._limit(self._stall_ms) as (client, limit),
            client.stream("GET", path, headers=headers) as reply,
        ):
            if reply.status_code != 200:
                raise _failure(reply, await whole_body(reply))
            if not reply.headers.get("content-type", "").startswith("application/octet-stream"):
                raise NoAnswer("the payload came as a page, not as bytes; is there a proxy in between?")
            count = 0
            async for chunk in reply.aiter_bytes():
                _push_back(limit, self._stall_ms)
                count += len(chunk)
                if count > size_max:
                    raise Refused(f"the payload exceeds {size_max} bytes", problem="payload-too-large")
                await asyncio.to_thread(write, chunk)
            return count

    async def upload(self, job_id: str, lease_token: str, path: Path) -> ResultBodyReply:
        """Streams a file up as the body of a job's result."""
        target = f"/agent/jobs/{job_id}/result/body"
        with await asyncio.to_thread(path.open, "rb") as file:
            found = await asyncio.to_thread(hashlib.file_digest, file, "sha256")
            size = file.tell()
            headers = {
                "Farhand-Lease": lease_token,
                "Content-Type": "application/octet-stream",
                "Content-Length": str(size),
                **self._credentials("PUT", target, b"", digest=digest_text(found.digest())),
            }
            async with self._limit(self._stall_ms) as (client, limit):
                content = _chunks(file, partial(_push_back, limit, self._stall_ms))
                async with client.stream("PUT", target, content=content, headers=headers) as reply:
                    body = await whole_body(reply)
                    if reply.status_code not in (200, 201):
                        raise _failure(reply, body)
        return _decoded(target, body, ResultBodyReply)

    async def tell(self, path: str, request: msgspec.Struct, kind: type[R]) -> R:
        """Posts a message of a system's own; the reply."""
        return await self._post(path, request, kind)

    def reconnect(self) -> None:
        """Ends what is under way (as NoAnswer) and drops all connections.

        After a suspend they look alive and are not.
        """
        old, self._line = self._line, _Line(self._open())
        old.retired = True
        now = asyncio.get_running_loop().time()
        for limit in old.limits:
            if not limit.expired():
                limit.reschedule(now)
        if not old.limits:
            self._close_later(old)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._line.client.aclose()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _open(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self._server,
            verify=self._context,
            timeout=httpx2.Timeout(None, connect=CONNECT_MS / 1000, pool=CONNECT_MS / 1000),
            limits=httpx2.Limits(max_connections=200, max_keepalive_connections=20, keepalive_expiry=30),
            headers={
                "User-Agent": f"farhand-agent/{__version__}",
                PROTOCOL_HEADER: str(PROTOCOL),
            },
        )

    async def _post(self, path: str, request: msgspec.Struct, kind: type[R], *, wait_ms: int = 0) -> R:
        content = encode(request)
        headers = {"Content-Type": "application/json", **self._credentials("POST", path, content)}
        async with (
            self._limit(wait_ms + self._answer_ms) as (client, _),
            client.stream("POST", path, content=content, headers=headers) as reply,
        ):
            body = await whole_body(reply)
            if reply.status_code != 200:
                raise _failure(reply, body)
        return _decoded(path, body, kind)

    def _credentials(
        self, method: str, path: str, body: bytes, *, digest: str | None = None
    ) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self._key}"}
        if self._signer is None:
            return bearer
        if path == REGISTER:
            return {**bearer, **self._signer.headers(NEW_AGENT, method, path, body)}
        if self._agent is None:
            raise NoAnswer("the agent is not registered yet")
        return self._signer.headers(self._agent, method, path, body, digest=digest)

    @asynccontextmanager
    async def _limit(self, ms: int) -> AsyncGenerator[tuple[httpx2.AsyncClient, asyncio.Timeout]]:
        line = self._line
        limit = asyncio.timeout(ms / 1000)
        line.limits.add(limit)
        try:
            async with limit:
                yield line.client, limit
        except (TimeoutError, httpx2.TimeoutException) as error:
            if line.retired:
                raise NoAnswer("the connection was given up after a pause", retry_after_ms=0) from error
            raise NoAnswer(f"{self._server} does not answer in time") from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise NoAnswer(f"{self._server} cannot be reached: {_words(error)}") from error
        finally:
            line.limits.discard(limit)
            if line.retired and not line.limits:
                self._close_later(line)

    def _close_later(self, line: _Line) -> None:
        # The loop itself keeps only weak references to tasks.
        closing = asyncio.create_task(line.client.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def server_context(ca_file: Path | None) -> ssl.SSLContext:
    """What the server's certificate is held against. Raises ConfigError."""
    context = httpx2.create_ssl_context()
    if ca_file is None:
        return context
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ca_file {ca_file} cannot be read as PEM certificates: {error}") from error
    return context


def _push_back(limit: asyncio.Timeout, ms: int) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + ms / 1000)


async def _chunks(file: BinaryIO, passed: Callable[[], object]) -> AsyncGenerator[bytes]:
    await asyncio.to_thread(file.seek, 0)
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk
        passed()


def _decoded(path: str, body: bytes, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoAnswer(f"the reply to {path} is not the server's: {error}") from error


async def whole_body(reply: httpx2.Response) -> bytes:
    """The body of a reply of bearable size. Raises NoAnswer for a larger one."""
    body = bytearray()
    async for chunk in reply.aiter_bytes():
        body += chunk
        if len(body) > REPLY_BYTES_MAX:
            raise NoAnswer(f"the reply is larger than {REPLY_BYTES_MAX} bytes")
    return bytes(body)


def _failure(reply: httpx2.Response, body: bytes) -> Exception:
    problem = _problem(reply, body)
    status = reply.status_code
    wait_ms = retry_after_ms(reply)
    if problem is None:
        where = f", which points to {reply.headers['location']}" if "location" in reply.headers else ""
        return NoAnswer(f"answered {status}{where}, but not by the server", retry_after_ms=wait_ms)
    code, detail = str(problem["code"]), str(problem.get("detail") or problem.get("title") or "")
    if code == "agent-pending":
        seconds = problem.get("expires_in")
        expires_in_ms = int(seconds * 1000) if isinstance(seconds, int | float) else 600_000
        return Pending(detail, user_code=str(problem.get("user_code") or ""), expires_in_ms=expires_in_ms)
    if code in ("replayed", "clock-skew"):
        return NoAnswer(f"{code}: {detail}", retry_after_ms=wait_ms)
    if status in (401, 403, 426):
        return ShutOut(f"{code}: {detail}")
    if code in ("stale-claim", "not-found"):
        state = problem.get("job_state")
        return Stale(detail, job_state=state if isinstance(state, str) else None)
    if status >= 500 or status == 429 or problem.get("retryable") is True:
        return NoAnswer(f"{code}: {detail}", retry_after_ms=wait_ms)
    return Refused(f"{code}: {detail}", problem=code)


def _problem(reply: httpx2.Response, body: bytes) -> dict[str, Any] | None:
    if not reply.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(found, dict):
        return None
    problem = cast("dict[str, Any]", found)
    return problem if isinstance(problem.get("code"), str) else None


def retry_after_ms(reply: httpx2.Response) -> int | None:
    """How long a reply asks to wait, within reason; None when it does not."""
    text = reply.headers.get("retry-after", "")
    if not text.isascii() or not text.isdigit():
        return None
    return min(int(text) * 1000, RETRY_AFTER_MAX_MS) or None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
