"""Requests to addresses that somebody else chose."""

import asyncio
import ssl
from collections.abc import Callable, Collection, Iterable

from farhand.egress.body import Sink
from farhand.egress.errors import EgressError
from farhand.egress.exchange import Session, open_exchange
from farhand.egress.headers import Head, check_method, check_outgoing
from farhand.egress.policy import EgressPolicy
from farhand.egress.ranges import parse_range
from farhand.egress.receive import Receiver, Response, receive
from farhand.egress.redirects import Redirect, Step, location_of, next_step
from farhand.egress.resolve import Resolver, SystemResolver, check_target
from farhand.egress.url import Url, parse_url
from farhand.model.clock import Clock, SystemClock


def check_url(url: str, policy: EgressPolicy) -> Url:
    """Everything that can be refused about a URL without the network, for early answers.

    Raises EgressError `bad-url`, `blocked-port`, `blocked-name` or `blocked-address`.
    """
    parsed = parse_url(url)
    check_target(parsed, policy)
    return parsed


async def request(
    method: str,
    url: str,
    *,
    policy: EgressPolicy,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    range: str | None = None,
    crop: bool = False,
    sink: Sink | None = None,
    resolver: Resolver | None = None,
    clock: Clock | None = None,
    secret_headers: Collection[str] = (),
    insecure_tls: bool = False,
    context: ssl.SSLContext | None = None,
    on_head: Callable[[Head], None] | None = None,
    on_send: Callable[[], None] | None = None,
) -> Response:
    """Send one request within the policy and deliver the answer.

    The body goes to `sink` piece by piece, or into the response; with `crop` it is cut at
    `decoded_bytes_max` (text without a sink: before a torn character) instead of refused. `range`
    is `bytes=a-b`, `bytes=a-` or `bytes=-n`. `secret_headers` names fields that do not follow a
    redirect to another origin. `on_head` sees the final head before the body and may raise.
    `on_send` is called before bytes of a request leave; until then the target knows of nothing.
    `context` is a kept `tls_context`.

    Raises EgressError, and whatever `sink` or `on_head` raise; the sink may have had a part.
    """
    if insecure_tls and not policy.allow_insecure_tls:
        raise EgressError("tls", "unverified TLS is not allowed here; ask the operator", source="policy")
    wanted = None if range is None else parse_range(range, bytes_max=policy.decoded_bytes_max)
    target = check_url(url, policy)
    step = Step(
        method=check_method(method),
        url=target,
        headers=check_outgoing(headers, target, policy),
        body=body,
    )
    session = Session(
        policy=policy,
        resolver=resolver or SystemResolver(),
        clock=clock or SystemClock(),
        byte_range=None if wanted is None else str(wanted),
        insecure_tls=insecure_tls,
        context=context,
        on_send=on_send,
    )
    receiver = Receiver(wanted=wanted, crop=crop, sink=sink, on_head=on_head, secret_headers=secret_headers)
    return await _in_time(step, session, receiver)


async def _in_time(step: Step, session: Session, receiver: Receiver) -> Response:
    total_ms = session.policy.total_timeout_ms
    limit = asyncio.timeout(total_ms / 1000)
    try:
        async with limit:
            return await _follow(step, session, receiver)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise EgressError(
            "timeout", f"the target did not finish within {total_ms} ms; try later", source="target"
        ) from error


async def _follow(step: Step, session: Session, receiver: Receiver) -> Response:
    began_ms = session.clock.monotonic_ms()
    redirects: list[Redirect] = []
    while True:
        exchange = await open_exchange(step, session)
        try:
            location = location_of(exchange.head) if session.policy.follow_redirects else None
            if location is None:
                return await receive(exchange, step, receiver, tuple(redirects), began_ms)
            redirects.append(Redirect(status=exchange.head.status, url=str(step.url)))
            if len(redirects) > session.policy.max_redirects:
                raise EgressError(
                    "too-many-redirects",
                    f"the target redirects more than {session.policy.max_redirects} times",
                    source="target",
                )
            step = next_step(step, exchange.head, location, secret_headers=receiver.secret_headers)
        finally:
            await exchange.aclose()
