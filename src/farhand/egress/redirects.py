"""Redirects, followed by hand so that every step is checked like the first."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from farhand.egress.errors import EgressError
from farhand.egress.headers import Head, Pairs
from farhand.egress.url import Url, join_url

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """One step of a chain: the URL that answered with this status, not the one it named."""

    status: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to send to one URL of the chain."""

    method: str
    url: Url
    headers: Pairs
    body: bytes | None


def location_of(head: Head) -> str | None:
    """Where the answer redirects to; None when it is no redirect.

    Raises EgressError `protocol` when it names two places.
    """
    if head.status not in _REDIRECTS or not head.locations:
        return None
    first, *others = head.locations
    if others:
        raise EgressError("protocol", "the target redirects to two places", source="target")
    try:
        return first.decode("utf-8")
    except UnicodeDecodeError:
        return first.decode("latin-1")


def next_step(step: Step, head: Head, location: str, *, secret_headers: Collection[str]) -> Step:
    """The request that follows a redirect.

    301 and 302 turn POST into GET, 303 everything but HEAD; credentials and the caller's own
    secret fields stay behind when scheme, host or port change. Raises EgressError `bad-url`, or
    `refused-redirect` from https to http.
    """
    try:
        url = join_url(step.url, location)
    except EgressError as error:
        raise EgressError(
            "bad-url", f"the target redirects to a bad URL: {error.message}", source="target"
        ) from error
    if step.url.scheme == "https" and url.scheme == "http":
        raise EgressError(
            "refused-redirect",
            "the target redirects from https to http, which would send everything in clear",
            source="policy",
        )
    step = _rewritten(step, head.status)
    if url.origin != step.url.origin:
        secret = _CREDENTIALS | {name.lower() for name in secret_headers}
        step = replace(step, headers=_without(step.headers, secret))
    return replace(step, url=url)


def _rewritten(step: Step, status: int) -> Step:
    to_get = (status in (301, 302) and step.method == "POST") or (
        status == 303 and step.method not in ("GET", "HEAD")
    )
    if not to_get:
        return step
    kept = tuple((n, v) for n, v in step.headers if not n.lower().startswith("content-"))
    return replace(step, method="GET", body=None, headers=kept)


def _without(headers: Pairs, names: Collection[str]) -> Pairs:
    return tuple((name, value) for name, value in headers if name.lower() not in names)
