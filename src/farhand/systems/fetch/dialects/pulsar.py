"""The pulsar dialect (seed 002): devices open a session, claim requests, and call back.

A device is known by its `bid`, which is a key and comes in the body of each request. Every
error has the seed's own shape. Facts of the protocol: seed 002.
"""

import base64
from typing import Any, Final, TypeVar

import msgspec

from farhand.engine.attempt import Settled
from farhand.engine.registry import AgentSession
from farhand.engine.requests import Act, Claim, Claimed, Release, Settle
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import TERMINAL, Dialect, Evidence, Job
from farhand.protocol.agent import ResultRequest
from farhand.protocol.fetch import (
    INLINE_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    FetchError,
    FetchResult,
)
from farhand.protocol.pulsar import (
    BATCH_MAX,
    BATCH_MIN,
    BID_HEADER,
    PATH,
    REFUSED_CODE,
    RETRY_BUSY_MS,
    RETRY_IDLE_MS,
    RETRY_SETTLED_MS,
    SESSION_HEADER,
    PulsarCallbackData,
    PulsarCallbackReply,
    PulsarCallbackRequest,
    PulsarClaimData,
    PulsarClaimReply,
    PulsarClaimRequest,
    PulsarError,
    PulsarJob,
    PulsarProblem,
    PulsarRequest,
    PulsarSessionData,
    PulsarSessionReply,
    PulsarSessionRequest,
    PulsarStatsData,
    PulsarStatsReply,
)
from farhand.protocol.wire import bad_field, decode
from farhand.server.agent_routes import WAIT_MAX_MS, report_of
from farhand.server.call import Call
from farhand.server.collecting import await_jobs, working
from farhand.server.context import Context
from farhand.server.lanes import lanes_of
from farhand.server.routes import Route
from farhand.server.views import moment
from farhand.systems.fetch.counts import counters
from farhand.systems.fetch.dialects.devices import Devices, names_of, shown_capabilities
from farhand.systems.fetch.dialects.words import Refused, Room, answered
from farhand.systems.fetch.kind import FAMILY, params_of
from farhand.systems.fetch.results import (
    TEXT_ROOM,
    apart,
    body_of,
    of_device,
    of_device_error,
    too_large,
    with_body,
)

BODY_MAX: Final = 64 * 1024
CALLBACK_ROOM: Final = 1024 * 1024
CALLBACK_MAX: Final = RESPONSE_BYTES_MAX * 4 // 3 + CALLBACK_ROOM
SMALL: Final = 1024 * 1024
"""A callback as small as this is read at once; larger ones share the room there is for them."""

T = TypeVar("T")
_session = msgspec.json.Decoder(PulsarSessionRequest)
_claim = msgspec.json.Decoder(PulsarClaimRequest)
_callback = msgspec.json.Decoder(PulsarCallbackRequest)


class Pulsar:
    """The dialect on one server."""

    def __init__(self) -> None:
        self._devices = Devices()
        # Whoever has not said who calls shares a room of their own: they cannot fill that of others.
        self._known = Room(2 * CALLBACK_MAX)
        self._strangers = Room(CALLBACK_MAX)

    def routes(self) -> list[Route]:
        """The four routes that devices call: no key, and errors of their own shape."""
        said: dict[str, Any] = {"grant": None, "tag": "pulsar", "failure": PulsarProblem}
        return [
            Route(method="POST", path=f"{PATH}/session", handler=answered(self.open), **said,
                  summary="Open a session", request=PulsarSessionRequest,
                  replies={200: PulsarSessionReply}),
            Route(method="POST", path=f"{PATH}/claim", handler=answered(self.claim), held=True, **said,
                  summary="Ask for requests to carry out", request=PulsarClaimRequest,
                  replies={200: PulsarClaimReply}),
            Route(method="POST", path=f"{PATH}/callback", handler=answered(self.callback), **said,
                  summary="Report how a request ended", request=PulsarCallbackRequest,
                  replies={200: PulsarCallbackReply}),
            Route(method="GET", path=f"{PATH}/stats", handler=answered(self.stats), **said,
                  summary="A session's own figures", replies={200: PulsarStatsReply}),
        ]  # fmt: skip

    async def open(self, context: Context, call: Call) -> None:
        """`POST …/session`: the session of this id, or a new one."""
        message = _read(_session, await call.body(BODY_MAX))
        await self._devices.admit(context, call, message.bid, message.user_agent)
        session = await self._devices.open(
            context, call, message.session_id, message.capabilities, message.user_agent
        )
        capabilities = shown_capabilities(session.capabilities)
        data = PulsarSessionData(session_id=session.id.hex(), capabilities=capabilities)
        await call.json(PulsarSessionReply(status="ok", data=data))

    async def claim(self, context: Context, call: Call) -> None:
        """`POST …/claim`: jobs, which have begun with this reply."""
        message = _read(_claim, await call.body(BODY_MAX))
        wait_ms = call.prefer_wait_ms(WAIT_MAX_MS)
        bid = message.bid
        await self._devices.admit(context, call, bid, None)
        session = await self._devices.session(context, call, message.session_id)
        session = await self._devices.refreshed(context, session, message.capabilities)

        async def admit(context: Context, call: Call) -> None:
            await self._devices.admit(context, call, bid, None)

        request = await _claim_of(context, call, session, _batch(message.batch))
        ticket = context.store.claim_or_park(request)
        jobs = await await_jobs(context, call, ticket, wait_ms, admit=admit)
        if jobs is None:
            return
        data = PulsarClaimData(
            jobs=await _jobs(context, jobs),
            # Who was held has waited already.
            retry_after_ms=RETRY_BUSY_MS if jobs or wait_ms > 0 else RETRY_IDLE_MS,
            cancel=await _over(context, call),
        )
        await call.json(PulsarClaimReply(status="ok", data=data))

    async def callback(self, context: Context, call: Call) -> None:
        """`POST …/callback`: how a job ended, and what became of the report."""
        message = await self._read_callback(context, call)
        await self._devices.admit(context, call, message.bid, None)
        session = await self._devices.session(context, call, message.session_id)
        if message.job_id is None:
            raise bad_field("jobId", "is required")
        if (message.result is None) is (message.error is None):
            raise bad_field("result", "send either result or error")
        state = await _ended(context, session, message)
        data = PulsarCallbackData(
            state=state, retry_after_ms=RETRY_SETTLED_MS, cancel=await _over(context, call)
        )
        await call.json(PulsarCallbackReply(status="ok", data=data))

    async def stats(self, context: Context, call: Call) -> None:
        """`GET …/stats`: the row of the session in the headers."""
        call.query(frozenset())
        session = await self._by_headers(context, call)
        data = PulsarStatsData(
            session_id=session.id.hex(),
            capabilities=shown_capabilities(session.capabilities),
            user_agent=session.user_agent,
            created_at=moment(session.created_at) or "",
            expires_at=moment(session.expires_at) or "",
            stats=await counters(context, session.org_id, (session.id,)),
        )
        await call.json(PulsarStatsReply(status="ok", data=data))

    async def _by_headers(self, context: Context, call: Call) -> AgentSession:
        await self._devices.admit(context, call, _header(call, BID_HEADER), None)
        return await self._devices.session(context, call, _header(call, SESSION_HEADER))

    async def _read_callback(self, context: Context, call: Call) -> PulsarCallbackRequest:
        length = call.header(b"content-length")
        size = int(length) if length is not None and length.isdigit() else CALLBACK_MAX
        if size <= SMALL:
            return _read(_callback, await call.body(SMALL))
        room = self._strangers
        if call.header(BID_HEADER.lower().encode()) is not None:
            await self._by_headers(context, call)
            room = self._known
        async with room.taken(min(size, CALLBACK_MAX)):
            return _read(_callback, await call.body(CALLBACK_MAX))


def _read(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decode(decoder, body)
    except Problem as problem:
        if problem.extra.get("field") == "bid":
            raise Refused("bid-required", problem.message) from problem
        raise


def _header(call: Call, name: str) -> str | None:
    raw = call.header(name.lower().encode())
    return None if raw is None else raw.decode("latin-1")


def _batch(said: Any) -> int:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return BATCH_MIN
    return int(min(max(said, BATCH_MIN), BATCH_MAX))


async def _claim_of(context: Context, call: Call, session: AgentSession, batch: int) -> Claim:
    agent = call.principal.must_be_agent()
    return Claim(
        org_id=agent.org_id,
        agent_id=agent.id,
        lanes=lanes_of(call.principal) if working(call) else (),
        max=batch,
        per_lane=batch,
        dialect=Dialect.SEED,
        capabilities=await context.store.capability_bits(names_of(session.capabilities)),
        begin=True,
        session=session.id,
    )


async def _jobs(context: Context, claimed: list[Claimed]) -> list[PulsarJob]:
    jobs: list[PulsarJob] = []
    for entry in claimed:
        request = await _request(context, entry)
        if request is None:
            error = FetchError(code="payload-gone", message="the request's body is no longer kept")
            await _fail(context, _act(entry.job, entry.attempt.agent_id), error)
            continue
        jobs.append(PulsarJob(job_id=id_text(entry.job.id), request=request))
    return jobs


async def _request(context: Context, claimed: Claimed) -> PulsarRequest | None:
    """The request of a job in the seed's words; None when its body is gone."""
    params = params_of(claimed.job)
    body: bytes | None = claimed.body
    if body is None and claimed.job.payload_size is not None:
        body = await _payload(context, claimed.job)
        if body is None:
            return None
    text = None
    if body is not None:
        text = base64.b64encode(body).decode("ascii") if params.body_base64 else body.decode()
    return PulsarRequest(
        url=params.url,
        method=params.method,
        headers=params.headers,
        body=text,
        body_base64=params.body_base64,
        timeout_ms=params.timeout_ms,
        max_response_bytes=params.max_response_bytes,
        allow_insecure_tls=params.allow_insecure_tls,
        allow_private_ip=params.allow_private_ip,
        range_request=params.range_request,
        follow_redirects=params.follow_redirects,
    )


async def _payload(context: Context, job: Job) -> bytes | None:
    place = await context.store.payload(job.seq)
    if place is None or place.body is not None:
        return place.body if place is not None else None
    if place.sha256 is None or await context.payloads.head(place.sha256) is None:
        return None
    return b"".join([chunk async for chunk in context.payloads.open(place.sha256)])


async def _over(context: Context, call: Call) -> Any:
    """The jobs that the device may stop working on; nothing where there are none."""
    jobs = await context.store.over(call.principal.must_be_agent().id)
    return [id_text(job_id) for job_id in jobs] or msgspec.UNSET


def _act(job: Job, agent_id: bytes) -> Act:
    """A device's write about its own open attempt: the dialect has no lease tokens."""
    return Act(org_id=job.org_id, job_id=job.id, agent_id=agent_id, family=FAMILY)


async def _ended(context: Context, session: AgentSession, message: PulsarCallbackRequest) -> str:
    job_id = parse_id(message.job_id or "")
    job = await context.store.job(session.org_id, job_id) if job_id is not None else None
    if job is None or not job.kind.startswith(FAMILY):
        return "noop"
    act = _act(job, session.agent_id)
    error = message.error
    if error is not None and error.code == REFUSED_CODE:
        return await _given_back(context, act, error)
    if error is not None:
        return await _fail(context, act, of_device_error(error.code, error.message, error.source))
    return await _succeed(context, act, job, message)


async def _given_back(context: Context, act: Act, error: PulsarError) -> str:
    reason = f"refused: {error.message}"[:4000].replace("\0", "�")
    answer = await context.store.release(Release(act=act, refuse=True, untouched=True, reason=reason))
    return "noop" if isinstance(answer, Problem) or answer.replay else "refused"


async def _succeed(context: Context, act: Act, job: Job, message: PulsarCallbackRequest) -> str:
    result = of_device(message.result or {})
    body = body_of(result)
    limit = params_of(job).max_response_bytes
    # Text that was not UTF-8 grows when it is made so.
    most = limit if result.body_base64 else limit * 4 // 3 + TEXT_ROOM
    if len(body) > most:
        return await _fail(context, act, too_large(limit))
    kept = await _with_body(context, act, job, result, body)
    report = report_of(ResultRequest(ok=True, evidence=Evidence.RESPONSE, result=kept))
    answer = await context.store.settle(Settle(act=act, report=report, bytes_out=len(body)))
    if isinstance(answer, Problem) and answer.problem == "result-too-large":
        return await _fail(context, act, FetchError(code="result-too-large", message=answer.message))
    return _state(answer)


async def _with_body(context: Context, act: Act, job: Job, result: FetchResult, body: bytes) -> FetchResult:
    """The result as it is kept: a large body lies in the payload store, if anybody will want it."""
    if len(body) <= INLINE_BYTES_MAX:
        return with_body(result, body)
    if job.state in TERMINAL:
        return apart(result, bytes(32), len(body))
    sha256, size = await context.desk.keep(body, len(body))
    # A refusal means that the attempt is over, which the settle that follows will say.
    await context.store.keep_result_body(act, sha256, size)
    return apart(result, sha256, size)


async def _fail(context: Context, act: Act, error: FetchError) -> str:
    words = f"{error.code}: {error.message}"[:4000]
    report = report_of(ResultRequest(ok=False, error=words, result=error))
    return _state(await context.store.settle(Settle(act=act, report=report)))


def _state(answer: Settled | Problem) -> str:
    """What became of a report. One that decided nothing, or came too late, is none."""
    if isinstance(answer, Problem):
        if answer.problem in ("stale-claim", "not-found"):
            return "noop"
        raise answer
    return str(answer.state) if answer.counted and answer.state in ("done", "failed") else "noop"
