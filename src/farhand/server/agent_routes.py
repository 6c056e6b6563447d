"""The agents' routes: seed 000's dialect and the native one."""

import asyncio
import hashlib
import re
from typing import Final

import msgspec

from farhand.engine.attempt import Held, Progress, Settled
from farhand.engine.report import Report
from farhand.engine.requests import Act, Claim, Claimed, Release, Settle
from farhand.engine.wakeups import Ticket
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import Dialect
from farhand.protocol.agent import (
    BatchResult,
    ClaimReply,
    ClaimRequest,
    HeldReply,
    HeldRequest,
    ReleaseRequest,
    ResultReply,
    ResultRequest,
    ResultsReply,
    ResultsRequest,
    SeedClaimReply,
    StateReply,
)
from farhand.protocol.wire import decode, encode, problem_document
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.principal import COMMANDS
from farhand.server.text import refuse_deep, refuse_nul
from farhand.server.views import claimed_job

BODY_MAX: Final = 4 * 1024 * 1024
WAIT_MAX_MS: Final = 55_000

_TOKEN = re.compile("[0-9a-f]{32}")
_claim = msgspec.json.Decoder(ClaimRequest)
_held = msgspec.json.Decoder(HeldRequest)
_release = msgspec.json.Decoder(ReleaseRequest)
_result = msgspec.json.Decoder(ResultRequest)
_results = msgspec.json.Decoder(ResultsRequest)


def _job_id(call: Call) -> bytes:
    found = parse_id(call.params[0])
    if found is None:
        raise Problem("not-found", "there is no job with this id, or it is not yours")
    return found


def working(call: Call) -> bool:
    """Whether the agent may take new work."""
    return call.principal.must_be_agent().state == "active"


async def await_jobs(
    context: Context, call: Call, ticket: Ticket, wait_ms: int, grant: str = "agent.work"
) -> list[Claimed] | None:
    """The jobs of a claim, held while there are none; None when the client hung up.

    Raises Problem when the caller lost the grant, or its place as an agent, while it waited.
    """
    try:
        jobs = await ticket.first()
        hung_up = False
        if not jobs and wait_ms > 0:
            hung_up = await _hold(context, call, ticket, wait_ms)
        elif jobs and ticket.request.dialect == Dialect.SEED:
            hung_up = await call.is_gone()
        jobs = await ticket.settled()
    except BaseException:
        ticket.dismiss()
        raise
    if hung_up:
        # A native poll repeats itself and gets the same answer.
        seeds = [claimed for claimed in jobs if claimed.attempt.dialect == Dialect.SEED]
        await _give_back(context, seeds, "the agent hung up before the reply was written")
        return None
    if context.auth.epoch == call.epoch:
        return jobs
    return await _if_still_working(context, call, jobs, grant)


async def _hold(context: Context, call: Call, ticket: Ticket, wait_ms: int) -> bool:
    """Wait until the claim is answered or the time is up; whether the client hung up meanwhile."""
    agent_id = call.principal.must_be_agent().id
    context.held.enter(agent_id, ticket)
    gone = asyncio.ensure_future(call.disconnected())
    try:
        await asyncio.wait((ticket.future, gone), timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        return gone.done()
    finally:
        gone.cancel()
        context.held.leave(agent_id, ticket)
        context.saw(agent_id)


async def _if_still_working(context: Context, call: Call, jobs: list[Claimed], grant: str) -> list[Claimed]:
    """The registry changed while the claim waited: an agent that was revoked or paused gets nothing."""
    try:
        await context.auth.admit(call, grant)
    except Problem:
        await _give_back(context, jobs, "the agent was revoked before the reply was written")
        raise
    if not jobs or working(call):
        return await _without_lost_lane(context, call, jobs)
    await _give_back(context, jobs, "the agent was paused before the reply was written")
    return []


async def _without_lost_lane(context: Context, call: Call, jobs: list[Claimed]) -> list[Claimed]:
    """An agent that no longer holds the grant for commands gets none."""
    agent = call.principal.must_be_agent()
    if COMMANDS in call.principal.grants:
        return jobs
    lost = [claimed for claimed in jobs if claimed.job.lane == agent.id]
    await _give_back(context, lost, "the agent lost its grant before the reply was written")
    return [claimed for claimed in jobs if claimed.job.lane != agent.id]


async def _give_back(context: Context, jobs: list[Claimed], reason: str) -> None:
    """Jobs that nobody has heard of go back uncounted."""
    for claimed in jobs:
        act = Act(
            org_id=claimed.job.org_id,
            job_id=claimed.job.id,
            agent_id=claimed.attempt.agent_id,
            token=claimed.attempt.token,
        )
        await context.store.release(Release(act=act, reason=reason))


async def poll(context: Context, call: Call) -> None:
    """`GET /agent/jobs`: hold until there is one job, else 204."""
    agent = call.principal.must_be_agent()
    call.query(frozenset())
    wait_ms = call.prefer_wait_ms(WAIT_MAX_MS, context.config.poll_wait_ms)
    request = Claim(
        org_id=agent.org_id,
        agent_id=agent.id,
        lanes=call.principal.lanes if working(call) else (),
        dialect=Dialect.SEED,
        capabilities=agent.capabilities,
    )
    jobs = await await_jobs(context, call, context.store.claim_or_park(request), wait_ms)
    if jobs is None:
        return
    if not jobs:
        await call.reply(204)
        return
    job, attempt = jobs[0].job, jobs[0].attempt
    reply = SeedClaimReply(
        job_id=id_text(job.id),
        printer_id=id_text(job.device_id) if job.device_id is not None else "",
        mode=job.mode or "raw",
        attempt=attempt.number,
        lease_token=attempt.token.hex(),
    )
    await call.json(reply)


def _claim_of(context: Context, call: Call, wanted: ClaimRequest) -> Claim:
    agent = call.principal.must_be_agent()
    lanes = call.principal.own_lanes
    if wanted.lanes is not None:
        mine = set(lanes)
        named = [parse_id(lane) for lane in wanted.lanes]
        lanes = tuple(lane for lane in named if lane is not None and lane in mine)
    return Claim(
        org_id=agent.org_id,
        agent_id=agent.id,
        lanes=lanes if working(call) else (),
        max=wanted.max,
        per_lane=wanted.per_lane or wanted.max,
        accept=wanted.accept,
        accept_ms=context.config.accept_ms,
        poll_id=wanted.poll_id,
        capabilities=agent.capabilities,
    )


def _directive(call: Call) -> str | None:
    return None if working(call) else "drain"


def _claim_reply(context: Context, call: Call, jobs: list[Claimed]) -> ClaimReply:
    now = context.clock.now_ms()
    return ClaimReply(jobs=[claimed_job(entry, now) for entry in jobs], directive=_directive(call))


async def claim(context: Context, call: Call) -> None:
    """`POST /agent/claim`: work for the free lanes, held as long as the agent asks."""
    body = await call.body(BODY_MAX)
    wanted = decode(_claim, body)
    refuse_nul(body, wanted)
    ticket = context.store.claim_or_park(_claim_of(context, call, wanted))
    jobs = await await_jobs(context, call, ticket, wanted.wait_ms)
    if jobs is not None:
        await call.json(_claim_reply(context, call, jobs))


async def payload(context: Context, call: Call) -> None:
    """`GET /agent/jobs/{id}/payload`: the bytes; for a seed claim this is the start."""
    act = _act(call, _lease(call))
    held = await context.store.fetch_payload(act)
    if isinstance(held, Problem):
        raise held
    job = await context.store.job(act.org_id, act.job_id)
    place = await context.store.payload(job.seq) if job is not None else None
    if place is None:
        raise Problem("payload-gone", "this job has no payload, or it is no longer kept")
    if place.body is not None:
        await call.reply(200, place.body, content=(b"content-type", b"application/octet-stream"))
        return
    if place.sha256 is None or await context.payloads.head(place.sha256) is None:
        raise Problem("payload-gone", "the payload is not in the payload store; submit the job again")
    await call.stream(context.payloads.open(place.sha256), place.size)


def _lease(call: Call) -> str | None:
    """The lease token of a request without a body. Raises Problem when it is none."""
    raw = call.header(b"farhand-lease")
    if raw is None:
        return None
    token = raw.decode("latin-1")
    if not _TOKEN.fullmatch(token):
        raise Problem("bad-request", "Farhand-Lease holds the 32 hex digits of the claim's lease_token")
    return token


def _act(call: Call, token: str | None, progress: Progress | None = None) -> Act:
    agent = call.principal.must_be_agent()
    return Act(
        org_id=agent.org_id,
        job_id=_job_id(call),
        agent_id=agent.id,
        token=bytes.fromhex(token) if token is not None else None,
        progress=progress or Progress(),
    )


async def _read_held(call: Call) -> Act:
    body = await call.body(BODY_MAX)
    message = decode(_held, body or b"{}")
    refuse_nul(body, message)
    said = message.reason is not msgspec.UNSET
    reason = message.reason if isinstance(message.reason, str) else None
    return _act(call, message.lease_token, Progress(phase=message.phase, reason=reason, says_reason=said))


async def _reply_held(call: Call, held: Held | Problem) -> None:
    if isinstance(held, Problem):
        raise held
    directive = held.directive if held.directive != "continue" or working(call) else "drain"
    reply = HeldReply(
        state=held.state, directive=directive, lease_ms=held.lease_ms, heartbeat_ms=max(1, held.lease_ms // 4)
    )
    await call.json(reply)


async def start(context: Context, call: Call) -> None:
    """`…/start`: the work begins."""
    await _reply_held(call, await context.store.start(await _read_held(call)))


async def heartbeat(context: Context, call: Call) -> None:
    """`…/heartbeat`: the work goes on."""
    await _reply_held(call, await context.store.heartbeat(await _read_held(call)))


async def release(context: Context, call: Call) -> None:
    """`…/release`: the work goes back uncounted."""
    await _give(context, call, refuse=False)


async def refuse(context: Context, call: Call) -> None:
    """`…/refuse`: this agent will not do it."""
    await _give(context, call, refuse=True)


async def _give(context: Context, call: Call, *, refuse: bool) -> None:
    body = await call.body(BODY_MAX)
    message = decode(_release, body or b"{}")
    refuse_nul(body, message)
    request = Release(act=_act(call, message.lease_token), refuse=refuse, reason=message.reason)
    answer = await context.store.release(request)
    if isinstance(answer, Problem):
        raise answer
    await call.json(StateReply(state=answer.state))


def report_of(message: ResultRequest | BatchResult) -> Report:
    """A result message as the engine's report; the digest leaves out lease and next claim."""
    result = encode(message.result).decode() if message.result is not None else None
    said = encode(
        (
            message.ok,
            message.error,
            message.retryable,
            message.evidence,
            message.cancelled,
            message.uncertain,
            result,
        )
    )
    return Report(
        ok=message.ok,
        digest=hashlib.sha256(said).digest(),
        cancelled=message.cancelled,
        uncertain=message.uncertain,
        error=message.error,
        retryable=message.retryable,
        retry_after_ms=message.retry_after_ms,
        evidence=message.evidence,
        result=result,
    )


def _next_wait_ms(context: Context, wanted: ClaimRequest) -> int:
    """How long the claim behind a result is held: a full server still answers the result itself."""
    return 0 if context.held.full else wanted.wait_ms


async def result(context: Context, call: Call) -> None:
    """`…/result`: how it ended, and with `next` the next work in the same reply."""
    body = await call.body(BODY_MAX)
    message = decode(_result, body)
    refuse_nul(body, message)
    refuse_deep("result", message.result)
    request = Settle(act=_act(call, message.lease_token), report=report_of(message))
    if message.next is None:
        answer = await context.store.settle(request)
        if isinstance(answer, Problem):
            raise answer
        await call.json(ResultReply(state=answer.state))
        return
    answer, ticket = await context.store.settle_then_claim(request, _claim_of(context, call, message.next))
    jobs = await await_jobs(context, call, ticket, _next_wait_ms(context, message.next))
    if jobs is None:
        return
    following = _claim_reply(context, call, jobs)
    if isinstance(answer, Problem):
        answer.extra["next"] = following
        raise answer
    await call.json(ResultReply(state=answer.state, next=following))


async def results(context: Context, call: Call) -> None:
    """`POST /agent/results`: many results, each answered by itself, and the next work."""
    body = await call.body(BODY_MAX)
    message = decode(_results, body)
    refuse_nul(body, message)
    agent = call.principal.must_be_agent()
    pending: list[asyncio.Future[Settled | Problem]] = []
    for index, entry in enumerate(message.results):
        refuse_deep(f"results[{index}].result", entry.result)
    for entry in message.results:
        job_id = parse_id(entry.job_id)
        act = Act(
            org_id=agent.org_id,
            job_id=job_id or bytes(16),
            agent_id=agent.id,
            token=bytes.fromhex(entry.lease_token) if entry.lease_token is not None else None,
        )
        pending.append(context.store.settle_soon(Settle(act=act, report=report_of(entry))))
    ticket: Ticket | None = None
    if message.next is not None:
        ticket = context.store.claim_or_park(_claim_of(context, call, message.next))
    items = [_item(await answer) for answer in pending]
    following: ClaimReply | None = None
    if ticket is not None and message.next is not None:
        jobs = await await_jobs(context, call, ticket, _next_wait_ms(context, message.next))
        if jobs is None:
            return
        following = _claim_reply(context, call, jobs)
    await call.json(ResultsReply(items=items, next=following))


def _item(answer: Settled | Problem) -> dict[str, object]:
    return problem_document(answer) if isinstance(answer, Problem) else {"state": answer.state}
