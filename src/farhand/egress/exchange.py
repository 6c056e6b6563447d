"""One request and the head of its answer, over one connection that serves nothing else."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import cast

import httpcore2

from farhand.egress.connect import Dial, GuardedBackend, tls_context, unverified_context
from farhand.egress.errors import CertificateRefused, EgressError
from farhand.egress.headers import Head, read_head, wire_headers
from farhand.egress.meter import HEAD_BYTES_MAX, Meter, head_too_large
from farhand.egress.policy import EgressPolicy
from farhand.egress.redirects import Step
from farhand.egress.resolve import Resolver, resolve_target
from farhand.egress.url import Address
from farhand.model.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all steps of one request share."""

    policy: EgressPolicy
    resolver: Resolver
    clock: Clock
    byte_range: str | None
    insecure_tls: bool
    context: ssl.SSLContext | None
    on_send: Callable[[], None] | None = None


class Exchange:
    """An answer whose head has been read and whose body waits. Must be closed."""

    def __init__(
        self,
        *,
        connection: httpcore2.AsyncHTTPConnection,
        response: httpcore2.Response,
        head: Head,
        dial: Dial,
        dns_ms: int,
        first_byte_ms: int,
    ) -> None:
        self._connection = connection
        self._response = response
        self.head = head
        self.dial = dial
        self.dns_ms = dns_ms
        self.first_byte_ms = first_byte_ms

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it arrives, without chunked framing. Raises EgressError."""
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except _FAILURES as error:
            raise failure(error, self.dial.meter) from error

    async def aclose(self) -> None:
        """Close the connection, whatever is left on it."""
        await self._response.aclose()
        await self._connection.aclose()


async def open_exchange(step: Step, session: Session) -> Exchange:
    """Resolve, connect, send, and read the head of the answer.

    With `insecure_tls` a certificate that does not verify leads to a second connection that
    accepts it; nothing has been sent by then. Raises EgressError.
    """
    began_ms = session.clock.monotonic_ms()
    addresses = await resolve_target(step.url, session.policy, session.resolver)
    dns_ms = session.clock.monotonic_ms() - began_ms
    context = None
    if step.url.scheme == "https":
        # Reading the trust store takes some 20 ms, too long for an event loop.
        context = session.context or await asyncio.to_thread(tls_context, session.policy)
    try:
        return await _attempt(step, session, addresses, context, dns_ms, None)
    except CertificateRefused as error:
        if not session.insecure_tls:
            raise
        reason = error.reason
    return await _attempt(step, session, addresses, unverified_context(), dns_ms, reason)


async def _attempt(
    step: Step,
    session: Session,
    addresses: tuple[Address, ...],
    context: ssl.SSLContext | None,
    dns_ms: int,
    unverified_reason: str | None,
) -> Exchange:
    policy, meter = session.policy, Meter(session.policy, session.clock)
    dial = Dial(
        url=step.url,
        addresses=addresses,
        policy=policy,
        meter=meter,
        unverified_reason=unverified_reason,
        on_send=session.on_send,
    )
    connection = httpcore2.AsyncHTTPConnection(
        httpcore2.Origin(step.url.scheme.encode(), step.url.host.encode(), step.url.port),
        ssl_context=context,
        network_backend=GuardedBackend(dial),
    )
    began_ms = meter.now_ms()
    try:
        response = await connection.handle_async_request(_request(step, session))
        meter.head_done = True
        extensions = cast("dict[str, object]", response.extensions)  # pyright: ignore[reportUnknownMemberType]  (the library types it as any dict)
        head = read_head(
            response.status,
            cast("bytes", extensions["reason_phrase"]),
            cast("bytes", extensions["http_version"]),
            response.headers,
        )
    except _FAILURES as error:
        await connection.aclose()
        raise failure(error, meter) from error
    except BaseException:
        await connection.aclose()
        raise
    first_at_ms = meter.now_ms() if meter.first_byte_at_ms is None else meter.first_byte_at_ms
    return Exchange(
        connection=connection,
        response=response,
        head=head,
        dial=dial,
        dns_ms=dns_ms,
        first_byte_ms=first_at_ms - began_ms - dial.connect_ms - (dial.tls_ms or 0),
    )


def _request(step: Step, session: Session) -> httpcore2.Request:
    url = step.url
    return httpcore2.Request(
        step.method,
        httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
        headers=wire_headers(
            step.headers,
            url,
            method=step.method,
            body=step.body,
            byte_range=session.byte_range,
            agent=session.policy.user_agent,
        ),
        content=step.body or b"",
        extensions={"timeout": {"connect": session.policy.connect_timeout_ms / 1000}},
    )


_FAILURES = (httpcore2.ProtocolError, httpcore2.NetworkError, httpcore2.TimeoutException)


def failure(error: Exception, meter: Meter) -> EgressError:
    """A failure of the HTTP library in the words of this package."""
    if isinstance(error, httpcore2.TimeoutException):
        return EgressError("timeout", "the target did not answer in time", source="target")
    if not meter.head_done and meter.raw_bytes > HEAD_BYTES_MAX:
        return head_too_large()
    if meter.ended or isinstance(error, httpcore2.NetworkError):
        return EgressError(
            "protocol",
            "the target closed the connection before the whole answer had arrived",
            source="target",
        )
    return EgressError("protocol", "the target's answer is not valid HTTP/1.1", source="target")
