"""The two faces of the SDK: the same calls, carried by a sync or by an async transport."""

import asyncio
import ipaddress
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar, overload
from urllib.parse import urlsplit

import httpx2

from farhand import __version__
from farhand.client import calls
from farhand.client import commands as command_calls
from farhand.client import farm as farm_calls
from farhand.client import fetch as fetch_calls
from farhand.client.plan import Answer, Call, Lost, Pause, Plan, steps
from farhand.model.clock import Clock, SystemClock
from farhand.model.errors import FarhandError
from farhand.protocol import PROTOCOL, PROTOCOL_HEADER

DEFAULT_SERVER: Final = "http://127.0.0.1:8631"
TIMEOUT_MS: Final = 30_000
PATIENCE_MS: Final = 30_000

P = ParamSpec("P")
T = TypeVar("T")


class Method(Generic[P, T]):
    """A call as a method: it answers on Client, and is awaited on AsyncClient."""

    def __init__(self, build: Callable[P, Plan[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Callable[P, Plan[T]]: ...
    @overload
    def __get__(self, face: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, face: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, face: "Client | AsyncClient | None", owner: type) -> Callable[P, Any]:
        if face is None:
            return self.build
        send = face.send

        @wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return send(self.build(*args, **kwargs))

        return method


class Api:
    """Every call there is, once."""

    health = Method(calls.health)
    submit = Method(calls.submit)
    submit_batch = Method(calls.submit_batch)
    submit_print = Method(calls.submit_print)
    job = Method(calls.job)
    wait = Method(calls.wait)
    jobs = Method(calls.jobs)
    events = Method(calls.events)
    cancel = Method(calls.cancel)
    retry = Method(calls.retry)
    resolve = Method(calls.resolve)
    issue_command = Method(command_calls.issue_command)
    command = Method(command_calls.command)
    commands = Method(command_calls.commands)
    wait_command = Method(command_calls.wait_command)
    command_events = Method(command_calls.command_events)
    cancel_command = Method(command_calls.cancel_command)
    retry_command = Method(command_calls.retry_command)
    ack_command = Method(command_calls.ack_command)
    fetch = Method(fetch_calls.fetch)
    submit_fetch = Method(fetch_calls.submit_fetch)
    wait_fetch = Method(fetch_calls.wait_fetch)
    result = Method(fetch_calls.result)
    save_result = Method(fetch_calls.save_result)
    agent_stats = Method(fetch_calls.agent_stats)
    farms = Method(farm_calls.farms)
    create_farm = Method(farm_calls.create_farm)
    farm_status = Method(farm_calls.farm_status)
    pause_farm = Method(farm_calls.pause_farm)
    resume_farm = Method(farm_calls.resume_farm)
    unclaimed_printers = Method(farm_calls.unclaimed_printers)
    claim_printer = Method(farm_calls.claim_printer)
    bed_cleared = Method(farm_calls.bed_cleared)
    pause_printer = Method(farm_calls.pause_printer)
    resume_printer = Method(farm_calls.resume_printer)
    submit_farm_print = Method(farm_calls.submit_farm_print)
    upload_address = Method(farm_calls.upload_address)
    pause_job = Method(farm_calls.pause_job)
    resume_job = Method(farm_calls.resume_job)
    job_to_top = Method(farm_calls.job_to_top)
    printers = Method(calls.printers)
    printer = Method(calls.printer)
    agents = Method(calls.agents)
    agent = Method(calls.agent)
    pending = Method(calls.pending)
    issue_agent = Method(calls.issue_agent)
    approve = Method(calls.approve)
    revoke = Method(calls.revoke)
    pause = Method(calls.pause)
    drain = Method(calls.drain)
    resume = Method(calls.resume)
    grants = Method(calls.grants)
    sign = Method(calls.sign)
    keys = Method(calls.keys)
    create_key = Method(calls.create_key)
    revoke_key = Method(calls.revoke_key)


def _wait_in_thread(seconds: float) -> None:
    threading.Event().wait(seconds)


class Client(Api):
    """A server's API for ordinary code.

    >>> with Client("http://127.0.0.1:8631", key) as server:
    ...     made = server.submit_print(printer_id, pdf, title="Invoice 12")
    ...     job = server.wait(made.id)

    Every method raises ApiError, Unreachable or UnreadableReply (all FarhandError). Lost
    connections and busy servers are tried again for `patience_ms`, where that is safe.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        key: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        patience_ms: int = PATIENCE_MS,
        transport: httpx2.BaseTransport | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], None] = _wait_in_thread,
    ) -> None:
        self._http = httpx2.Client(**_settings(server, key), transport=transport)
        self._timeout_ms, self._patience_ms = timeout_ms, patience_ms
        self._clock = clock or SystemClock()
        self._pause = pause

    def send(self, plan: Plan[T]) -> T:
        """Carries out a plan of `farhand.client.calls`."""
        running = steps(plan, self._clock, self._patience_ms)
        outcome: Answer | Lost | None = None
        while True:
            try:
                step = running.send(outcome)
            except StopIteration as stop:
                return stop.value
            outcome = self._pause(step.ms / 1000) if isinstance(step, Pause) else self._exchange(step)

    def _exchange(self, call: Call[Any]) -> Answer | Lost:
        try:
            with self._http.stream(**_request(call, self._timeout_ms)) as reply:
                if call.sink is None or not reply.is_success:
                    reply.read()
                    return _answer(reply)
                call.sink.begin()
                for piece in reply.iter_bytes():
                    call.sink.write(piece)
                return _answer(reply, poured=True)
        except httpx2.RequestError as error:
            return _lost(error, self._http.base_url)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Api):
    """The same API for asyncio: `await server.submit_print(…)`."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        key: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        patience_ms: int = PATIENCE_MS,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._http = httpx2.AsyncClient(**_settings(server, key), transport=transport)
        self._timeout_ms, self._patience_ms = timeout_ms, patience_ms
        self._clock = clock or SystemClock()
        self._pause = pause

    async def send(self, plan: Plan[T]) -> T:
        """Carries out a plan of `farhand.client.calls`."""
        running = steps(plan, self._clock, self._patience_ms)
        outcome: Answer | Lost | None = None
        while True:
            try:
                step = running.send(outcome)
            except StopIteration as stop:
                return stop.value
            if isinstance(step, Pause):
                outcome = await self._pause(step.ms / 1000)
            else:
                outcome = await self._exchange(step)

    async def _exchange(self, call: Call[Any]) -> Answer | Lost:
        try:
            async with self._http.stream(**_request(call, self._timeout_ms)) as reply:
                if call.sink is None or not reply.is_success:
                    await reply.aread()
                    return _answer(reply)
                call.sink.begin()
                async for piece in reply.aiter_bytes():
                    call.sink.write(piece)
                return _answer(reply, poured=True)
        except httpx2.RequestError as error:
            return _lost(error, self._http.base_url)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _settings(server: str, key: str | None) -> dict[str, Any]:
    headers = {"User-Agent": f"farhand/{__version__}", PROTOCOL_HEADER: str(PROTOCOL)}
    if key is not None:
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise FarhandError("the key holds characters that no key has; copy it again, without spaces")
        headers["Authorization"] = f"Bearer {key}"
    return {"base_url": server_url(server), "headers": headers, "trust_env": not _is_loopback(server)}


def server_url(text: str) -> str:
    """A server's address, checked and without a slash at its end.

    Raises FarhandError when it is no http or https address.
    """
    try:
        parts = urlsplit(text)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        plain = False
    if not plain or urlsplit(text).username is not None:
        raise FarhandError(f"{text!r} is no server address; write it like {DEFAULT_SERVER}")
    return text.rstrip("/")


def _is_loopback(server: str) -> bool:
    """A proxy of the environment cannot reach what listens on this machine alone."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _request(call: Call[Any], timeout_ms: int) -> dict[str, Any]:
    headers: Mapping[str, str] = call.headers
    if call.body is not None:
        headers = {"Content-Type": "application/json", **headers}
    if call.wait_s:
        headers = {"Prefer": f"wait={call.wait_s}", **headers}
    seconds = timeout_ms / 1000
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query) or None,
        "headers": headers,
        "content": call.body,
        "timeout": httpx2.Timeout(seconds, read=seconds + call.wait_s + call.work_s),
    }


def _answer(reply: httpx2.Response, *, poured: bool = False) -> Answer:
    body = b"" if poured else reply.content
    return Answer(status=reply.status_code, headers=dict(reply.headers), body=body)


def _lost(error: httpx2.RequestError, server: httpx2.URL) -> Lost:
    unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    why = str(error) or type(error).__name__
    return Lost(why=f"{str(server).rstrip('/')} does not answer: {why}", sent=not unsent)
