"""Handing out work: the agent's own offers first, then the heads of its lanes, then hedges due."""

import secrets
from collections.abc import Sequence

from farhand.engine.attempt import accept, start
from farhand.engine.case import Case
from farhand.engine.requests import NO_PROGRESS, Claim, Claimed
from farhand.model.job import Actor, Attempt, Dialect, State, Verb
from farhand.storage.database import Params, Row
from farhand.storage.session import Session

_ALL_BITS = (1 << 62) - 1
TOKEN_BYTES = 16


async def claim(session: Session, request: Claim) -> list[Claimed]:
    """Hand out work to one poll, within this transaction. The session has to be flushed afterwards."""
    if request.agent_id in session.claimed_by or not session.claimed_in.isdisjoint(request.lanes):
        # Picks read the database: what an earlier claim of this batch took must be in it.
        await session.flush()
    session.claimed_by.add(request.agent_id)
    session.claimed_in.update(request.lanes)
    claimed: list[Claimed] = []
    same_poll = False
    if request.dialect == Dialect.NATIVE and request.device_id is None:
        claimed, same_poll = await _repeat(session, request)
    wanted = request.max - len(claimed)
    if wanted <= 0 or same_poll:
        return claimed
    for case in await _ready(session, request, wanted):
        if await _hold(session, request, case):
            claimed.append(_hand_out(case, request))
    return claimed


async def _repeat(session: Session, request: Claim) -> tuple[list[Claimed], bool]:
    """What this agent was offered and never took, or was given in answer to this same poll.

    True says that this poll has been answered before: it gets that answer and nothing more.
    """
    params = {"agent_id": request.agent_id, "poll_id": request.poll_id}
    rows = await session.tx.all("agent_offers", params)
    if not rows:
        return [], False
    await session.load((request.org_id, row[0]) for row in rows)
    repeated: list[Claimed] = []
    same_poll = False
    for job_id, number in rows:
        case = session.case(request.org_id, job_id)
        attempt = _open_attempt(case, number) if case is not None else None
        if case is None or attempt is None or attempt.lease_until <= session.now:
            continue
        mine = request.poll_id is not None and attempt.poll_id == request.poll_id
        if len(repeated) >= request.max or not (mine or case.job.lane in request.lanes):
            continue
        same_poll = same_poll or mine
        if attempt.poll_id != request.poll_id:
            attempt.poll_id = request.poll_id
            case.touch(attempt)
        if attempt.accepted_at is None:
            _grant(case, attempt, request)
        repeated.append(Claimed(job=case.job, attempt=attempt, policy=case.policy))
    return repeated, same_poll


def _open_attempt(case: Case, number: int) -> Attempt | None:
    for attempt in case.open_attempts():
        if attempt.number == number:
            return attempt
    return None


async def _ready(session: Session, request: Claim, wanted: int) -> list[Case]:
    """The best `wanted` of the lanes' heads by priority, then age; hedges only when those run out."""
    per_lane = min(wanted, request.per_lane)
    lanes = tuple(dict.fromkeys(request.lanes))
    picks = [_pick(session, request, lane, per_lane) for lane in lanes]
    rows = await session.tx.each("pick_ready", picks)
    if len(lanes) > 1:
        rows = sorted(rows, key=_order)
    chosen: Sequence[Row] = rows[:wanted]
    if len(chosen) < wanted and request.device_id is None:
        hedges = await session.tx.each("pick_hedge", picks)
        chosen = [*chosen, *hedges[: wanted - len(chosen)]]
    return await session.adopt_rows(chosen) if chosen else []


def _order(row: Row) -> tuple[int, int]:
    return (-row[9], row[0])


def _pick(session: Session, request: Claim, lane: bytes, limit: int) -> Params:
    return {
        "org_id": request.org_id,
        "lane": lane,
        "now": session.now,
        "lacks": _ALL_BITS & ~request.capabilities,
        "agent_id": request.agent_id,
        "limit": limit,
    }


async def _hold(session: Session, request: Claim, case: Case) -> bool:
    """Take the device together with the job; the primary key refuses a second one."""
    if not request.hold:
        return True
    if request.device_id is None:
        raise ValueError("a claim with a hold names its device")
    params = {
        "device_id": request.device_id,
        "org_id": request.org_id,
        "job_id": case.job.id,
        "reason": "job",
        "now": session.now,
    }
    return bool(await session.tx.each("insert_hold", [params]))


def _hand_out(case: Case, request: Claim) -> Claimed:
    job = case.job
    job.attempt += 1
    attempt = Attempt(
        job_seq=job.seq,
        number=job.attempt,
        org_id=job.org_id,
        agent_id=request.agent_id,
        dialect=request.dialect,
        token=secrets.token_bytes(TOKEN_BYTES),
        poll_id=request.poll_id,
        lease_until=case.now + request.accept_ms,
        no_return=0,
        created_at=case.now,
        accepted_at=None,
        started_at=None,
        ended_at=None,
        outcome=None,
        retryable=0,
        error=None,
        digest=None,
        settled_to=None,
    )
    case.attempts.append(attempt)
    case.created.append(attempt)
    if request.device_id is not None:
        job.device_id = request.device_id
    job.reason = None
    _grant(case, attempt, request)
    to = State.CLAIMED if job.state == State.QUEUED else job.state
    actor = Actor(kind="agent", id=request.agent_id)
    case.move(Verb.CLAIM, to, actor, attempt=attempt.number)
    case.plan()
    if request.begin:
        start(case, attempt, actor, NO_PROGRESS)
    return Claimed(job=job, attempt=attempt, policy=case.policy)


def _grant(case: Case, attempt: Attempt, request: Claim) -> None:
    """The lease of a fresh answer: an offer's few seconds, or a whole lease when accepted at once."""
    attempt.lease_until = case.now + request.accept_ms
    if request.dialect == Dialect.SEED:
        accept(case, attempt)
        attempt.lease_until = case.now + case.policy.seed_lease_ms
    elif request.accept:
        accept(case, attempt)
        attempt.lease_until = case.now + case.policy.lease_ms
    case.touch(attempt)
    case.plan()
