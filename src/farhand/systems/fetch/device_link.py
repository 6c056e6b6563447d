"""A pulsar device's requests to the server (seed 002), every one with a limit on how long it may take."""

import asyncio
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import httpx2
import msgspec

from farhand import __version__
from farhand.agent.errors import LinkError, NoAnswer, Pending, Refused, ShutOut, Stale
from farhand.agent.link import retry_after_ms, server_context, whole_body
from farhand.protocol.fetch import RESPONSE_BYTES, TIMEOUT_MS, FetchError, FetchParams, FetchResult
from farhand.protocol.pulsar import PATH, RETRY_IDLE_MS, RETRY_SETTLED_MS

ANSWER_MS: Final = 15_000
CONNECT_MS: Final = 10_000
STALL_MS: Final = 30_000
# A multiple of three, so that pieces of base64 join without padding.
PIECE_BYTES: Final = 192 * 1024

T = TypeVar("T")


class SessionLost(LinkError):
    """The server does not know the session (any more): open one again."""

    code = "stale-claim"


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a server of this dialect says; it may say more."""


class SessionReply(_Reply, frozen=True, rename="camel"):
    """The session that is open now."""

    session_id: str


class Job(_Reply, frozen=True, rename="camel"):
    """One job handed out; its request is read apart, so that an odd one spoils no other."""

    job_id: str
    request: msgspec.Raw


class ClaimReply(_Reply, frozen=True, rename="camel"):
    """Jobs, when to ask again, and which jobs to stop."""

    jobs: list[Job] = []
    retry_after_ms: int = RETRY_IDLE_MS
    cancel: list[str] = []


class CallbackReply(_Reply, frozen=True, rename="camel"):
    """What became of a report."""

    state: str
    retry_after_ms: int = RETRY_SETTLED_MS
    cancel: list[str] = []


class Asked(
    _Reply,
    frozen=True,
    rename={
        "body_base64": "bodyBase64",
        "timeout_ms": "timeoutMs",
        "max_response_bytes": "maxResponseBytes",
        "allow_insecure_tls": "allowInsecureTLS",
        "allow_private_ip": "allowPrivateIP",
        "range_request": "rangeRequest",
        "follow_redirects": "followRedirects",
    },
):
    """A job's request, with the seed's defaults for what is left out."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    body_base64: bool = False
    timeout_ms: int = TIMEOUT_MS
    max_response_bytes: int = RESPONSE_BYTES
    allow_insecure_tls: bool = False
    allow_private_ip: bool = False
    range_request: str | None = None
    follow_redirects: bool = True

    def params(self) -> FetchParams:
        """The request in the words that both dialects share."""
        return FetchParams(
            url=self.url,
            method=self.method,
            headers=self.headers,
            body_base64=self.body_base64,
            timeout_ms=max(self.timeout_ms, 1),
            max_response_bytes=max(self.max_response_bytes, 1),
            allow_insecure_tls=self.allow_insecure_tls,
            allow_private_ip=self.allow_private_ip,
            range_request=self.range_request,
            follow_redirects=self.follow_redirects,
            idempotent=False,
        )

    def bytes(self) -> bytes | None:
        """The body to send. Raises ValueError when it is no base64."""
        if self.body is None:
            return None
        return b64decode(self.body, validate=True) if self.body_base64 else self.body.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a job ended: a result, whose body lies in `path` when it is large, or an error."""

    job_id: str
    result: FetchResult | None = None
    error: FetchError | None = None
    path: Path | None = None


class _Ok(msgspec.Struct, frozen=True):
    status: str
    data: msgspec.Raw


class _Error(msgspec.Struct, frozen=True):
    status: str
    code: str
    message: str = ""
    user_code: str = ""
    expires_in: int = 600


class DeviceLink:
    """Raises the errors of `farhand.agent.errors`, and SessionLost.

    The environment's proxies are used for the server. What cannot be read is NoAnswer, so that
    only the server itself can stop a device.
    """

    def __init__(
        self,
        server: str,
        bid: str,
        *,
        ca_file: Path | None = None,
        answer_ms: int = ANSWER_MS,
        stall_ms: int = STALL_MS,
    ) -> None:
        self._server = server
        self._bid = bid
        self._answer_ms = answer_ms
        self._stall_ms = stall_ms
        self._client = httpx2.AsyncClient(
            base_url=server,
            verify=server_context(ca_file),
            timeout=httpx2.Timeout(None, connect=CONNECT_MS / 1000, pool=CONNECT_MS / 1000),
            headers={"User-Agent": f"farhand-agent/{__version__}"},
        )

    async def session(self, session_id: str | None, capabilities: dict[str, Any]) -> SessionReply:
        """Opens a session, or finds the one that is open. Raises Pending, too."""
        agent = f"farhand-agent/{__version__}"
        message = {"sessionId": session_id or "", "capabilities": capabilities, "userAgent": agent}
        return await self._post("session", message, SessionReply)

    async def claim(
        self, session_id: str, capabilities: dict[str, Any], batch: int, *, wait_s: int = 0
    ) -> ClaimReply:
        """Asks for work. A server that can holds the request for `wait_s`; others answer at once."""
        message = {"sessionId": session_id, "capabilities": capabilities, "batch": batch}
        return await self._post("claim", message, ClaimReply, wait_s=wait_s)

    async def callback(self, session_id: str, report: Report) -> CallbackReply:
        """Reports how a job ended."""
        message: dict[str, Any] = {"sessionId": session_id, "jobId": report.job_id}
        if report.error is not None:
            found = report.error
            message["error"] = {"code": found.code, "message": found.message, "source": found.source}
            return await self._post("callback", message, CallbackReply)
        message["result"] = report.result
        if report.path is None or report.result is None:
            return await self._post("callback", message, CallbackReply)
        mark = secrets.token_hex(16)
        message["result"] = msgspec.structs.replace(report.result, body=mark, body_base64=True)
        with await asyncio.to_thread(report.path.open, "rb") as file:
            return await self._post("callback", message, CallbackReply, file=file, mark=mark)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _post(
        self,
        verb: str,
        message: dict[str, Any],
        kind: type[T],
        *,
        wait_s: int = 0,
        file: BinaryIO | None = None,
        mark: str = "",
    ) -> T:
        content = msgspec.json.encode({"bid": self._bid, **message})
        headers = {"Content-Type": "application/json"}
        if wait_s:
            headers["Prefer"] = f"wait={wait_s}"
        limit_ms = self._answer_ms + wait_s * 1000 if file is None else self._stall_ms
        async with self._limit(limit_ms) as limit:
            body: bytes | AsyncIterator[bytes] = content
            if file is not None:
                size = await asyncio.to_thread(file.seek, 0, 2)
                before, _, after = content.partition(mark.encode())
                headers["Content-Length"] = str(len(before) + (size + 2) // 3 * 4 + len(after))
                body = self._pieces(before, file, after, limit)
            async with self._client.stream("POST", f"{PATH}/{verb}", content=body, headers=headers) as reply:
                answer = await whole_body(reply)
        if reply.status_code != 200:
            raise _failure(reply, answer)
        try:
            return msgspec.json.decode(msgspec.json.decode(answer, type=_Ok).data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NoAnswer(f"the reply to {verb} is not the server's: {error}") from error

    async def _pieces(
        self, before: bytes, file: BinaryIO, after: bytes, limit: asyncio.Timeout
    ) -> AsyncIterator[bytes]:
        yield before
        await asyncio.to_thread(file.seek, 0)
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield b64encode(piece)
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + self._stall_ms / 1000)
        yield after

    @asynccontextmanager
    async def _limit(self, ms: int) -> AsyncGenerator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(ms / 1000) as limit:
                yield limit
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise NoAnswer(f"{self._server} does not answer in time") from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            words = str(error) or type(error).__name__
            raise NoAnswer(f"{self._server} cannot be reached: {words}") from error


def _failure(reply: httpx2.Response, body: bytes) -> LinkError:
    status, wait_ms = reply.status_code, retry_after_ms(reply)
    try:
        found = msgspec.json.decode(body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NoAnswer(f"answered {status}, but not by the server", retry_after_ms=wait_ms)
    words = f"{found.code}: {found.message}"
    match found.code:
        case "device-pending":
            return Pending(words, user_code=found.user_code, expires_in_ms=found.expires_in * 1000)
        case "session-unknown":
            return SessionLost(words)
        case "job-unknown":
            return Stale(words)
        case _ if status in (401, 403, 426) or found.code == "bid-required":
            return ShutOut(words)
        case _ if status >= 500 or status == 429:
            return NoAnswer(words, retry_after_ms=wait_ms)
        case _:
            return Refused(words, problem=found.code)


def unreadable(job: Job, error: Exception) -> Report:
    """The report on a job whose request this device does not understand."""
    said = FetchError(code="bad-request", message=f"the request cannot be read: {error}", source="agent")
    return Report(job_id=job.job_id, error=said)


def joined_tags(capabilities: dict[str, Any], tags: Sequence[str]) -> dict[str, Any]:
    """The capabilities with the tags, where there are any."""
    return {**capabilities, "tags": list(tags)} if tags else capabilities
