"""Documents by URL, fetched on behalf of whoever submitted the job."""

import json
import ssl
from dataclasses import dataclass, replace
from typing import Any

from farhand.egress.body import Sink
from farhand.egress.client import request
from farhand.egress.errors import EgressError
from farhand.egress.headers import Head
from farhand.egress.policy import EgressPolicy
from farhand.egress.receive import Timings
from farhand.egress.resolve import Resolver
from farhand.model.clock import Clock

# Sites that hand documents to people refuse programs they do not know.
BROWSER_USER_AGENT = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36"
    " (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36"
)
_FRAMING_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPayload:
    """A document that went to the sink: size in bytes, its claimed media type, where it came from."""

    size: int
    content_type: str | None
    sha256: str
    url: str
    status: int
    timings: Timings


async def fetch_payload(
    url: str,
    *,
    json_body: Any = None,
    policy: EgressPolicy,
    limit_bytes: int,
    sink: Sink,
    resolver: Resolver | None = None,
    clock: Clock | None = None,
    context: ssl.SSLContext | None = None,
) -> FetchedPayload:
    """GET a document, or POST `json_body` for it, and stream it to the sink.

    Raises EgressError: `target-status` unless the answer is 2xx (nothing reached the sink then),
    `empty-body`, `too-large` beyond `limit_bytes`, and all that `request` raises. The sink may
    have had a part; ValueError when `json_body` is no JSON.
    """
    posted = json_body is not None
    response = await request(
        "POST" if posted else "GET",
        url,
        policy=replace(
            policy,
            decoded_bytes_max=limit_bytes,
            wire_bytes_max=limit_bytes + _FRAMING_BYTES,
            user_agent=BROWSER_USER_AGENT,
        ),
        headers=(("Content-Type", "application/json"),) if posted else (),
        body=_encoded(json_body) if posted else None,
        sink=sink,
        resolver=resolver,
        clock=clock,
        context=context,
        on_head=_require_success,
    )
    if response.bytes_written == 0:
        raise EgressError(
            "empty-body",
            "the target answered without a document; check the URL",
            source="target",
            status=response.status,
        )
    return FetchedPayload(
        size=response.bytes_written,
        content_type=response.header("content-type"),
        sha256=response.sha256,
        url=response.url,
        status=response.status,
        timings=response.timings,
    )


def _encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _require_success(head: Head) -> None:
    if 200 <= head.status < 300:
        return
    raise EgressError(
        "target-status",
        f"the target answered {head.status} instead of a document; check the URL and its access",
        source="target",
        status=head.status,
    )
