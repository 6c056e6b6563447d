"""The calls of those who have URLs fetched by an agent, as plans without I/O."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, TypeVar, Unpack, cast

import msgspec

from farhand.client import calls
from farhand.client.errors import FetchFailed
from farhand.client.plan import Call, Plan, Sink, ask, new_idempotency_key, reads
from farhand.client.requests import members, path_of
from farhand.client.waiting import HOLD_S
from farhand.model.clock import Clock, SystemClock
from farhand.protocol.client import JobView, SubmitReply
from farhand.protocol.fetch import (
    KIND,
    FetchCounters,
    FetchError,
    FetchRequest,
    FetchResult,
    FetchSubmit,
    RangeReport,
    RedirectReport,
    TimingReport,
    TlsReport,
)
from farhand.protocol.wire import encode

# A body of 64 MiB on a slow line.
BODY_S: Final = 300
_CHARSET: Final = re.compile(r";\s*charset=\"?([\w.:-]{1,40})", re.IGNORECASE)
_OF_REQUEST: Final = frozenset(
    (
        "timeout_ms",
        "max_response_bytes",
        "follow_redirects",
        "allow_insecure_tls",
        "allow_private_ip",
        "idempotent",
    )
)
_INNER: Final[Mapping[str, type[msgspec.Struct]]] = {
    "tls": TlsReport,
    "timings": TimingReport,
    "range": RangeReport,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a target answered, whatever its status, and the job that brought it.

    `content` is the body. It is None where `load` was False and the body is kept apart:
    `save_result` reads that. `result` holds everything else: headers, TLS, redirects, timings.
    """

    job: JobView
    result: FetchResult
    content: bytes | None

    @property
    def status(self) -> int:
        """The target's status code."""
        return self.result.status

    @property
    def ok(self) -> bool:
        """Whether the status says that it went well."""
        return self.result.status < 400

    @property
    def headers(self) -> Mapping[str, str]:
        """The target's headers, names in lower case, repeated ones joined."""
        return {name.lower(): value for name, value in self.result.headers.items()}

    @property
    def text(self) -> str:
        """The body as text, by the charset that the target named, else UTF-8."""
        found = _CHARSET.search(self.headers.get("content-type", ""))
        body = self.content or b""
        try:
            return body.decode(found.group(1) if found else "utf-8", "replace")
        except LookupError:
            return body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is none."""
        return msgspec.json.decode(self.content or b"")

    def __repr__(self) -> str:
        """Without headers and body, which may hold secrets."""
        return f"Fetched(status={self.status}, job={self.job.id!r})"


class FetchOptions(TypedDict, total=False):
    """What can be said about a request beside its URL; left out are the server's defaults.

    Without `method` it is POST with a body and GET without. `range` is one range such as
    `bytes=0-1023`. `idempotent` says that a POST may be made twice. `agent` (a name or an id) is
    the one that has to do it, `tags` are words that the agent must have. `expires_in` (seconds)
    is how long it may wait for one. The idempotency key is made up when there is none, so that a
    try after a lost reply makes no second request.
    """

    method: str | None
    headers: Mapping[str, str]
    body: bytes | str | None
    range: str | None
    timeout_ms: int
    max_response_bytes: int
    follow_redirects: bool
    allow_insecure_tls: bool
    allow_private_ip: bool
    idempotent: bool
    agent: str | None
    tags: Sequence[str]
    expires_in: int | None
    title: str | None
    source: str | None
    idempotency_key: str | None


def submit_fetch(url: str, **options: Unpack[FetchOptions]) -> Plan[SubmitReply]:
    """Writes a request down for an agent to make; `wait_fetch` gets what came of it."""
    return ask(_post(url, reads(SubmitReply), options))


def fetch(
    url: str,
    *,
    wait_ms: int | None = None,
    load: bool = True,
    clock: Clock | None = None,
    **options: Unpack[FetchOptions],
) -> Plan[Fetched]:
    """Has an agent request a URL, and waits for what the target answers, whatever its status.

    `wait_ms` bounds the waiting, `load` says whether a large body is read, too. Raises
    FetchFailed when there is no answer, with the reason in `reason`, and StillOpen when `wait_ms`
    passed before: the job goes on then.
    """
    clock = clock or SystemClock()
    until = None if wait_ms is None else clock.monotonic_ms() + wait_ms
    hold = HOLD_S if wait_ms is None else min(HOLD_S, wait_ms // 1000)
    found = yield from ask(_post(url, _read_submitted, options, wait_s=hold))
    if isinstance(found, SubmitReply):
        left = None if until is None else max(until - clock.monotonic_ms(), 0)
        found = yield from calls.wait(found.id, timeout_ms=left, clock=clock)
    return (yield from _fetched(found, load=load))


def wait_fetch(
    job_id: str,
    *,
    timeout_ms: int | None = None,
    on_change: Callable[[JobView], None] | None = None,
    load: bool = True,
    hold_s: int = HOLD_S,
    clock: Clock | None = None,
) -> Plan[Fetched]:
    """Waits for what a fetch job comes to. Raises as `fetch` does.

    `on_change` is called with the job as first seen and with every change; with `load` a large
    body is read, too.
    """
    job = yield from calls.wait(
        job_id, timeout_ms=timeout_ms, on_change=on_change, hold_s=hold_s, clock=clock
    )
    return (yield from _fetched(job, load=load))


def result(job_id: str) -> Plan[bytes]:
    """What a job that is done came to, as bytes: a fetch's body, the result of others as JSON."""
    return ask(Call(method="GET", path=_result_path(job_id), parse=bytes, repeatable=True, work_s=BODY_S))


def agent_stats(agent_id: str) -> Plan[FetchCounters]:
    """How much an agent has fetched, whoever wanted it."""
    return ask(
        Call(
            method="GET",
            path=path_of("/agents", agent_id, "stats"),
            parse=reads(FetchCounters),
            repeatable=True,
        )
    )


def save_result(job_id: str, sink: Sink) -> Plan[None]:
    """The same, piece by piece into a sink, which begins anew when the connection was lost."""
    return ask(
        Call(
            method="GET",
            path=_result_path(job_id),
            parse=_read_nothing,
            repeatable=True,
            work_s=BODY_S,
            sink=sink,
        )
    )


def _post(url: str, parse: Callable[[bytes], T], options: FetchOptions, *, wait_s: int = 0) -> Call[T]:
    unknown = options.keys() - FetchOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"fetch has no option {', '.join(sorted(unknown))}")
    body = options.get("body")
    text, in_base64 = _body(body)
    given = {name: value for name, value in options.items() if name in _OF_REQUEST}
    request = FetchRequest(
        url=url,
        method=options.get("method") or ("GET" if body is None else "POST"),
        headers=dict(options.get("headers") or {}),
        body=text,
        body_base64=in_base64,
        range_request=options.get("range"),
        **cast("dict[str, Any]", given),
    )
    message = FetchSubmit(
        type=KIND,
        request=request,
        expires_in=options.get("expires_in"),
        agent=options.get("agent"),
        tags=list(options.get("tags") or ()),
        title=options.get("title"),
        source=options.get("source"),
    )
    return Call(
        method="POST",
        path="/jobs",
        parse=parse,
        headers={"Idempotency-Key": options.get("idempotency_key") or new_idempotency_key()},
        body=encode(members(message)),
        repeatable=True,
        wait_s=wait_s,
    )


def _body(body: bytes | str | None) -> tuple[str | None, bool]:
    if body is None or isinstance(body, str):
        return body, False
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    # A NUL is refused in text, and so are halves of surrogate pairs.
    return (b64encode(body).decode("ascii"), True) if "\0" in text else (text, False)


def _read_submitted(reply: bytes) -> SubmitReply | JobView:
    found: dict[str, Any] = msgspec.json.decode(reply, type=dict[str, Any])
    return msgspec.convert(found, JobView if "final" in found else SubmitReply)


def _fetched(job: JobView, *, load: bool) -> Plan[Fetched]:
    """What a job that ended came to. Raises FetchFailed."""
    found = _outcome(job)
    if isinstance(found, FetchFailed):
        raise found
    content: bytes | None = None
    if found.body_sha256 is None:
        content = _inline(found)
    elif load:
        content = yield from result(job.id)
    return Fetched(job=job, result=found, content=content)


def _outcome(job: JobView) -> FetchResult | FetchFailed:
    kept: Any = job.result
    said = cast("dict[str, Any]", kept) if isinstance(kept, dict) else {}
    if job.state != "done":
        return FetchFailed(job, _convert(said, FetchError) if "code" in said else None)
    return _convert(said, FetchResult) if said else FetchFailed(job, None)


def _convert(said: Mapping[str, Any], kind: type[T]) -> T:
    known = _known(said, kind)
    for name, inner in _INNER.items():
        if known.get(name) is not None:
            known[name] = _known(known[name], inner)
    steps: list[Any] = known.get("redirects") or []
    known["redirects"] = [_known(step, RedirectReport) for step in steps]
    return msgspec.convert(known, kind)


def _known(said: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """What this version knows of an object; a newer server may say more."""
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    return {name: value for name, value in said.items() if name in names}


def _inline(found: FetchResult) -> bytes:
    body = found.body or ""
    return b64decode(body) if found.body_base64 else body.encode("utf-8", "replace")


def _result_path(job_id: str) -> str:
    return path_of("/jobs", job_id, "result")


def _read_nothing(body: bytes) -> None:
    """What is left to read when the body went elsewhere."""
