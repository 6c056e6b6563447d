"""From an open answer to what the caller gets."""

import hashlib
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace

from farhand.egress.body import Delivered, Delivery, Sink, too_large, utf8_boundary
from farhand.egress.coding import Decoder, Identity, decoder_for
from farhand.egress.connect import TlsInfo
from farhand.egress.errors import EgressError
from farhand.egress.exchange import Exchange
from farhand.egress.headers import Head, Pairs
from farhand.egress.ranges import ByteRange, RangeResult, Slice, check_partial
from farhand.egress.redirects import Redirect, Step

_TEXT_TYPES = ("application/json", "application/xml", "application/javascript")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Milliseconds. All but `total` are of the last step; `tls` is None without TLS.

    `first_byte` counts from the finished handshake; `total` is everything, redirects included.
    """

    dns: int
    connect: int
    tls: int | None
    first_byte: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer, its body in `body` or, where a sink was given, already delivered there.

    `headers` are pairs in order, repeated fields apart, hop-by-hop fields gone. Sizes are bytes:
    `bytes_written` as delivered (and hashed in `sha256`, hexadecimal), `wire_bytes` as they came.
    `crop_original_size` is known only for uncoded bodies that state their length.
    """

    url: str
    status: int
    reason: str
    http_version: str
    headers: Pairs
    body: bytes
    bytes_written: int
    wire_bytes: int
    sha256: str
    cropped: bool
    crop_original_size: int | None
    range: RangeResult | None
    remote_address: str
    tls: TlsInfo | None
    redirects: tuple[Redirect, ...]
    timings: Timings

    def header(self, name: str) -> str | None:
        """The first value of a field, whatever its case."""
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """What the caller wants of the answer, and of redirects on the way."""

    wanted: ByteRange | None
    crop: bool
    sink: Sink | None
    on_head: Callable[[Head], None] | None
    secret_headers: Collection[str]


async def receive(
    exchange: Exchange,
    step: Step,
    receiver: Receiver,
    redirects: tuple[Redirect, ...],
    began_ms: int,
) -> Response:
    """Read the body to where the caller wants it and say how it went. Raises EgressError."""
    head, dial = exchange.head, exchange.dial
    if receiver.on_head is not None:
        receiver.on_head(head)
    decoder = _decoder(head, step.method)
    delivered, part, body = await _deliver(exchange, decoder, receiver, method=step.method)
    sized = delivered.cropped and part is None and isinstance(decoder, Identity)
    return Response(
        url=str(step.url),
        status=head.status,
        reason=head.reason,
        http_version=head.http_version,
        headers=head.headers,
        body=body,
        bytes_written=delivered.size,
        wire_bytes=delivered.wire_bytes,
        sha256=delivered.sha256,
        cropped=delivered.cropped,
        crop_original_size=head.content_length if sized else None,
        range=part,
        remote_address=dial.remote_address or "",
        tls=dial.tls,
        redirects=redirects,
        timings=Timings(
            dns=exchange.dns_ms,
            connect=dial.connect_ms,
            tls=dial.tls_ms,
            first_byte=exchange.first_byte_ms,
            total=dial.meter.now_ms() - began_ms,
        ),
    )


async def _deliver(
    exchange: Exchange, decoder: Decoder, receiver: Receiver, *, method: str
) -> tuple[Delivered, RangeResult | None, bytes]:
    head, policy = exchange.head, exchange.dial.policy
    part = check_partial(head, receiver.wanted)
    if head.status == 206 and not isinstance(decoder, Identity):
        raise EgressError("protocol", "the target compresses a part of a file", source="target")
    cut = Slice(receiver.wanted) if receiver.wanted and head.status == 200 else None
    collected = bytearray()

    async def collect(piece: bytes) -> None:
        collected.extend(piece)

    delivery = Delivery(
        policy=policy,
        decoder=decoder,
        cut=cut,
        crop=receiver.crop,
        sink=receiver.sink or collect,
    )
    whole = cut is None and isinstance(decoder, Identity) and method != "HEAD"
    if whole and not receiver.crop and (head.content_length or 0) > policy.decoded_bytes_max:
        raise too_large(policy.decoded_bytes_max)
    async with aclosing(exchange.chunks()) as chunks:
        delivered = await delivery.run(chunks)
    if cut is not None:
        part = cut.result(size=delivered.size, ended=delivered.ended)
    elif head.status == 206 and method != "HEAD":
        _check_part_size(part, delivered)
    body = bytes(collected)
    if delivered.cropped and receiver.sink is None and _is_text(head):
        body = body[: utf8_boundary(body)]
        delivered = replace(delivered, size=len(body), sha256=hashlib.sha256(body).hexdigest())
    return delivered, part, body


def _decoder(head: Head, method: str) -> Decoder:
    # Fields of an answer without a body describe one that would have come elsewhere.
    if method == "HEAD" or head.status in (204, 304):
        return Identity()
    return decoder_for(head)


def _check_part_size(part: RangeResult | None, delivered: Delivered) -> None:
    if part is None or part.first is None or part.last is None or delivered.cropped:
        return
    if delivered.size != part.last - part.first + 1:
        raise EgressError("protocol", "the target's part is not as long as it says", source="target")


def _is_text(head: Head) -> bool:
    media_type = (head.first("content-type") or "").partition(";")[0].strip().lower()
    return (
        media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(("+json", "+xml"))
    )
