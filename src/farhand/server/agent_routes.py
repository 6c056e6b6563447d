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
from farhand.server.collecting import await_jobs, working
from farhand.server.context import Context
from farhand.server.lanes import lanes_of, named_lanes
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
    principal = call.principal
    lanes = lanes_of(principal) if wanted.lanes is None else named_lanes(principal, wanted.lanes)
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
    for entry in jobs:
        context.hooks.note(entry.job)
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
    act = act_of(call, lease(call))
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


def lease(call: Call) -> str | None:
    """The lease token of a request without a body. Raises Problem when it is none."""
    raw = call.header(b"farhand-lease")
    if raw is None:
        return None
    token = raw.decode("latin-1")
    if not _TOKEN.fullmatch(token):
        raise Problem("bad-request", "Farhand-Lease holds the 32 hex digits of the claim's lease_token")
    return token


def act_of(call: Call, token: str | None, progress: Progress | None = None) -> Act:
    """An agent's write about the job of the path, under this lease or its own open attempt."""
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
    return act_of(call, message.lease_token, Progress(phase=message.phase, reason=reason, says_reason=said))


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
    request = Release(act=act_of(call, message.lease_token), refuse=refuse, reason=message.reason)
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


async def _settle_of(context: Context, act: Act, message: ResultRequest | BatchResult) -> Settle:
    """What a result asks of the engine, checked by the system whose job it is.

    Raises Problem naming the field that the system does not take.
    """
    checks = context.hooks.results.get(await _kind(context, act, message))
    if checks is None:
        return Settle(act=act, report=report_of(message))
    checked = await checks.check(context, act, message.result, ok=message.ok)
    report = report_of(msgspec.structs.replace(message, result=checked.result))
    return Settle(act=act, report=report, bytes_out=checked.bytes_out)


async def _kind(context: Context, act: Act, message: ResultRequest | BatchResult) -> str:
    known = context.hooks.kind(act.job_id)
    if known is not None or message.result is None:
        return known or ""
    # Handed out by another process, or before this one began.
    job = await context.store.job(act.org_id, act.job_id)
    return job.kind if job is not None else ""


def _next_wait_ms(context: Context, wanted: ClaimRequest) -> int:
    """How long the claim behind a result is held: a full server still answers the result itself."""
    return 0 if context.held.full else wanted.wait_ms


async def result(context: Context, call: Call) -> None:
    """`…/result`: how it ended, and with `next` the next work in the same reply."""
    body = await call.body(BODY_MAX)
    message = decode(_result, body)
    refuse_nul(body, message)
    refuse_deep("result", message.result)
    request = await _settle_of(context, act_of(call, message.lease_token), message)
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
        try:
            pending.append(context.store.settle_soon(await _settle_of(context, act, entry)))
        except Problem as problem:
            pending.append(_at_once(problem))
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


def _at_once(problem: Problem) -> "asyncio.Future[Settled | Problem]":
    answer: asyncio.Future[Settled | Problem] = asyncio.get_running_loop().create_future()
    answer.set_result(problem)
    return answer


def _item(answer: Settled | Problem) -> dict[str, object]:
    return problem_document(answer) if isinstance(answer, Problem) else {"state": answer.state}
