"""Handing out work: the agent's own offers first, then the heads of its lanes, then hedges due."""

import secrets
from collections.abc import Iterable, Sequence

from farhand.engine.attempt import accept, start
from farhand.engine.case import Case
from farhand.engine.requests import NO_PROGRESS, Claim, Claimed
from farhand.model.job import Actor, Attempt, Dialect, State, Verb
from farhand.storage.database import Params, Row
from farhand.storage.session import JOB_COLUMNS, Session

_ALL_BITS = (1 << 62) - 1
TOKEN_BYTES = 16
_ORG, _LANE, _PRIORITY = (JOB_COLUMNS.index(name) for name in ("org_id", "lane", "priority"))


async def claim_all(session: Session, requests: Sequence[Claim]) -> list[list[Claimed]]:
    """Hand out work to many polls, within this transaction; the answers in order.

    Polls with lanes and agents of their own are looked up together. The session has to be
    flushed afterwards.
    """
    answers: list[list[Claimed]] = []
    start = 0
    while start < len(requests):
        wave = _wave(requests, start)
        if _overlaps(session, wave):
            # Picks read the database: what an earlier claim of this batch took must be in it.
            await session.flush()
        for request in wave:
            session.claimed_by.add(request.agent_id)
            session.claimed_in.update(request.lanes)
        answers += await _claim_wave(session, wave)
        start += len(wave)
    return answers


def _wave(requests: Sequence[Claim], start: int) -> Sequence[Claim]:
    """The next requests of which no two share an agent or a lane."""
    agents: set[bytes] = set()
    lanes: set[bytes] = set()
    for end in range(start, len(requests)):
        request = requests[end]
        if request.agent_id in agents or not lanes.isdisjoint(request.lanes):
            return requests[start:end]
        agents.add(request.agent_id)
        lanes.update(request.lanes)
    return requests[start:]


def _overlaps(session: Session, wave: Sequence[Claim]) -> bool:
    return any(
        request.agent_id in session.claimed_by or not session.claimed_in.isdisjoint(request.lanes)
        for request in wave
    )


async def _claim_wave(session: Session, wave: Sequence[Claim]) -> list[list[Claimed]]:
    answers, answered = await _repeat(session, wave)
    wanted = [
        0 if place in answered else request.max - len(answers[place]) for place, request in enumerate(wave)
    ]
    rows = await _ready(session, wave, wanted)
    found = [row for mine in rows for row in mine]
    cases = iter(await session.adopt_rows(found) if found else [])
    for request, mine, claimed in zip(wave, rows, answers, strict=True):
        for _ in mine:
            case = next(cases)
            if await _hold(session, request, case):
                claimed.append(_hand_out(case, request))
                if request.hold and request.device_id is not None:
                    # Made for the device's agent, whose parked poll is to bring it.
                    session.ready[request.device_id] += 1
    return answers


async def _repeat(session: Session, wave: Sequence[Claim]) -> tuple[list[list[Claimed]], set[int]]:
    """What these agents were offered and never took, or were given in answer to this same poll.

    The places in the set are of polls that have been answered before: they get that answer and
    nothing more.
    """
    answers: list[list[Claimed]] = [[] for _ in wave]
    answered: set[int] = set()
    asking = {
        request.agent_id: place
        for place, request in enumerate(wave)
        if request.dialect == Dialect.NATIVE and request.device_id is None
    }
    asked: list[Params] = [
        {"agent_id": wave[p].agent_id, "poll_id": wave[p].poll_id} for p in asking.values()
    ]
    rows = await session.tx.each("agent_offers", asked)
    if not rows:
        return answers, answered
    await session.load((wave[asking[row[2]]].org_id, row[0]) for row in rows)
    for job_id, number, agent_id in rows:
        place = asking[agent_id]
        request = wave[place]
        case = session.case(request.org_id, job_id)
        attempt = _open_attempt(case, number) if case is not None else None
        if case is None or attempt is None or attempt.lease_until <= session.now:
            continue
        mine = request.poll_id is not None and attempt.poll_id == request.poll_id
        wanted = mine or case.job.lane in request.lanes or case.job.device_id in request.lanes
        if len(answers[place]) >= request.max or not wanted:
            continue
        if mine:
            answered.add(place)
        _offer_again(session, case, attempt, request)
        answers[place].append(Claimed(job=case.job, attempt=attempt, policy=case.policy))
    return answers, answered


def _offer_again(session: Session, case: Case, attempt: Attempt, request: Claim) -> None:
    if attempt.poll_id != request.poll_id:
        attempt.poll_id = request.poll_id
        case.touch(attempt)
    if attempt.accepted_at is None:
        _grant(case, attempt, request)
        case.plan()


def _open_attempt(case: Case, number: int) -> Attempt | None:
    for attempt in case.open_attempts():
        if attempt.number == number:
            return attempt
    return None


async def _ready(session: Session, wave: Sequence[Claim], wanted: Sequence[int]) -> list[list[Row]]:
    """For each poll the best of its lanes' heads by priority, then age; hedges only when those run out."""
    lanes = [tuple(dict.fromkeys(request.lanes)) for request in wave]
    owners = {(wave[place].org_id, lane): place for place, mine in enumerate(lanes) for lane in mine}

    async def pick(name: str, places: Iterable[int]) -> list[list[Row]]:
        picks = [
            _pick(session, wave[place], lane, min(wanted[place], wave[place].per_lane))
            for place in places
            for lane in lanes[place]
        ]
        found: list[list[Row]] = [[] for _ in wave]
        for row in await session.tx.each(name, picks):
            found[owners[(row[_ORG], row[_LANE])]].append(row)
        return found

    some = [place for place in range(len(wave)) if wanted[place] > 0]
    chosen = await pick("pick_ready", [place for place in some if wave[place].job_id is None])
    for place in some:
        if wave[place].job_id is not None:
            chosen[place] = await _pick_named(session, wave[place])
    for place, rows in enumerate(chosen):
        if len(lanes[place]) > 1:
            rows.sort(key=_order)
        del rows[max(0, wanted[place]) :]
    short = [
        place
        for place, request in enumerate(wave)
        if len(chosen[place]) < wanted[place] and request.device_id is None
    ]
    for place, hedges in enumerate(await pick("pick_hedge", short) if short else []):
        chosen[place] += hedges[: max(0, wanted[place] - len(chosen[place]))]
    return chosen


async def _pick_named(session: Session, request: Claim) -> list[Row]:
    """The one job that is meant, if it still waits."""
    found: list[Row] = []
    for lane in dict.fromkeys(request.lanes):
        pick = {**_pick(session, request, lane, 1), "id": request.job_id}
        found += await session.tx.each("pick_named", [pick])
    return found


def _order(row: Row) -> tuple[int, int]:
    return (-row[_PRIORITY], row[0])


def _pick(session: Session, request: Claim, lane: bytes, limit: int) -> dict[str, object]:
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
        session_id=request.session,
    )
    case.count(attempt, "claims")
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
