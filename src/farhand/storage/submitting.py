"""Writing jobs down: idempotency, the active key, the row, its payload and its first event."""

import msgspec

from farhand.engine.requests import Reserve, Submit, Submitted
from farhand.model.errors import Problem
from farhand.model.ids import id_text, new_id
from farhand.model.job import Event, Job, State, Verb
from farhand.model.policy import Policy
from farhand.storage.database import GuardFailed
from farhand.storage.session import Session, job_row

RESERVED_MS = 600_000


async def insert(
    session: Session, request: Submit, *, requires: int, copy_payload_from: Job | None = None
) -> Submitted | Problem:
    """Write one job with its payload and event."""
    job = new_job(session, request, requires, await policy_row(session, request))
    if copy_payload_from is not None:
        job.payload_size = copy_payload_from.payload_size
    rows = await session.tx.each("insert_job", [job_row(job)])
    if not rows:
        # What stood in the way a moment ago was looked for before: start over and see it.
        raise GuardFailed("insert_job")
    job.seq = rows[0][0]
    if copy_payload_from is not None:
        params = {"to_seq": job.seq, "from_seq": copy_payload_from.seq, "now": session.now}
        await session.tx.run("copy_payload", params)
    else:
        await session.tx.bulk("insert_payload", _payload_rows(session, [(job, request)]))
    _record(session, [(job, request)])
    return Submitted(job_id=job.id, state=job.state, created=True)


async def insert_many(session: Session, requests: list[tuple[Submit, int]]) -> list[Submitted | Problem]:
    """Write many jobs, each with the bit set it requires; answers in order."""
    answers: list[Submitted | Problem | None] = [None] * len(requests)
    fresh: list[tuple[int, Job, Submit]] = []
    leaders: dict[bytes, int] = {}
    repeats: list[tuple[int, int]] = []
    rows: dict[tuple[int, str, int], int] = {}
    for index, (request, requires) in enumerate(requests):
        given = request.submission
        under = (given.org_id, given.policy_name or given.kind, id(request.policy))
        row = rows.get(under)
        if row is None:
            row = rows[under] = await policy_row(session, request)
        job = new_job(session, request, requires, row)
        known = await _known(session, request, job, leaders) if request.idempotency_key is not None else None
        if isinstance(known, int):
            repeats.append((index, known))
        elif known is not None:
            answers[index] = known
        else:
            fresh.append((index, job, request))
            leaders[job.id] = index
    plain = [entry for entry in fresh if not _unique(entry[1])]
    numbers = await session.tx.numbered("insert_job", [job_row(job) for _, job, _ in plain])
    for (index, job, _), number in zip(plain, numbers, strict=True):
        job.seq = number
        answers[index] = Submitted(job_id=job.id, state=job.state, created=True)
    written = [(job, request) for _, job, request in plain]
    for index, job, request in fresh:
        if not _unique(job):
            continue
        found = await session.tx.each("insert_job", [job_row(job)])
        if not found:
            answers[index] = await _conflict(session, job)
            await _forget(session, request)
            continue
        job.seq = found[0][0]
        answers[index] = Submitted(job_id=job.id, state=job.state, created=True)
        written.append((job, request))
    await session.tx.bulk("insert_payload", _payload_rows(session, written))
    _record(session, written)
    for index, leader in repeats:
        first = answers[leader]
        answers[index] = (
            msgspec.structs.replace(first, created=False) if isinstance(first, Submitted) else first
        )
    return [answer for answer in answers if answer is not None]


def _unique(job: Job) -> bool:
    """Whether another live job may stand in the way."""
    return job.active_key is not None or job.retry_of is not None


async def policy_row(session: Session, request: Submit) -> int:
    """The row of the policy a job is submitted under."""
    submission, policy = request.submission, request.policy
    name = submission.policy_name or submission.kind
    row = await session.policies.row_id(session.tx, submission.org_id, name, policy, session.now)
    session.new_policies.append((submission.org_id, name, policy, row))
    return row


def new_job(session: Session, request: Submit, requires: int, policy_id: int) -> Job:
    """The row of a submission: state and limits computed from its policy."""
    given, policy, now = request.submission, request.policy, session.now
    waits = given.run_at is not None and given.run_at > now
    origin = given.run_at if waits and given.run_at is not None else now
    size = len(given.payload) if given.payload is not None else given.payload_size
    job = Job(
        seq=0,
        id=new_id(now),
        org_id=given.org_id,
        kind=given.kind,
        state=State.SCHEDULED if waits else State.QUEUED,
        policy_id=policy_id,
        agent_id=given.agent_id,
        device_id=given.device_id,
        lane=given.lane,
        priority=given.priority,
        requires=requires,
        mode=given.mode,
        title=given.title,
        source=given.source,
        tags="\n".join(given.tags) or None,
        metadata=given.metadata,
        params=given.params,
        payload_size=size,
        submitted_by=given.submitted_by,
        retry_of=request.retry_of,
        active_key=given.active_key,
        created_at=now,
        run_at=given.run_at,
        start_by=_limit(origin, given.expires_in_ms, policy.start_by_ms),
        deadline=_deadline(origin, given.expires_in_ms, policy),
        due_at=None,
        hedge_at=None,
        accepted_at=None,
        finished_at=None,
        prune_at=None,
        cancel_requested_at=None,
        abort_at=None,
        attempt=0,
        tries=0,
        version=1,
        phase=None,
        reason=None,
        evidence=None,
        error=None,
        result=None,
    )
    job.due_at = _first_due(job)
    return job


def _first_due(job: Job) -> int | None:
    promoted = job.run_at if job.state == State.SCHEDULED else None
    limits = (job.start_by, job.deadline, promoted)
    return min((moment for moment in limits if moment is not None), default=None)


def _limit(origin: int, asked_ms: int | None, default_ms: int | None) -> int | None:
    chosen = asked_ms if asked_ms is not None else default_ms
    return None if chosen is None else origin + chosen


def _deadline(origin: int, asked_ms: int | None, policy: Policy) -> int | None:
    """Where the deadline only ends what waits it follows the asked-for expiry, otherwise the policy."""
    if policy.deadline_ms is None:
        return None
    if not policy.deadline_aborts:
        return _limit(origin, asked_ms, policy.deadline_ms)
    return origin + policy.deadline_ms


async def _known(
    session: Session, request: Submit, job: Job, leaders: dict[bytes, int]
) -> Submitted | Problem | int | None:
    """Take the key for this job; or what the key already stands for.

    A number is the place in this batch of the request that stands for it: whether that one's
    job can be written is not known yet.
    """
    key = {"org_id": job.org_id, "key": request.idempotency_key}
    new = {**key, "fingerprint": request.fingerprint, "job_id": job.id, "now": session.now}
    if await session.tx.each("reserve_key", [new]):
        return None
    row = await session.tx.one("known_key", key)
    if row is None or row[0] != request.fingerprint:
        return mismatch()
    if row[1] is None:
        bound = await session.tx.run("bind_key", new) if request.reserved else 0
        return None if bound else in_flight()
    if row[1] in leaders:
        return leaders[row[1]]
    state = await _state(session, job.org_id, row[1])
    return Submitted(job_id=row[1], state=state, created=False)


async def reserve(session: Session, request: Reserve) -> Submitted | Problem | None:
    """Take a key before its work begins; None when the work may begin."""
    key = {"org_id": request.org_id, "key": request.key}
    new = {**key, "fingerprint": request.fingerprint, "job_id": None, "now": session.now}
    if await session.tx.each("reserve_key", [new]):
        return None
    row = await session.tx.one("known_key", key)
    if row is None or row[0] != request.fingerprint:
        return mismatch()
    if row[1] is not None:
        state = await _state(session, request.org_id, row[1])
        return Submitted(job_id=row[1], state=state, created=False)
    stale = {**key, "now": session.now, "stale": session.now - RESERVED_MS}
    return None if await session.tx.each("take_over_key", [stale]) else in_flight()


async def _forget(session: Session, request: Submit) -> None:
    """A refused request must not leave its key behind: the next try with it starts afresh."""
    if request.idempotency_key is not None:
        key = {"org_id": request.submission.org_id, "key": request.idempotency_key}
        await session.tx.run("free_key", {**key, "fingerprint": request.fingerprint})


def mismatch() -> Problem:
    """The key stands for another request."""
    return Problem(
        "idempotency-mismatch",
        "this Idempotency-Key was used for a different request; use a new key for a new request",
    )


def in_flight() -> Problem:
    """The key's first request has not ended."""
    return Problem(
        "idempotency-in-flight",
        "the first request with this Idempotency-Key is still being worked on; ask again in a moment",
    )


async def _state(session: Session, org_id: int, job_id: bytes) -> str:
    row = await session.tx.one("job_by_id", {"org_id": org_id, "id": job_id})
    return Job(*row).state if row is not None else State.DONE


async def _conflict(session: Session, job: Job) -> Problem:
    found = await refused_active(session, job.org_id, job.active_key)
    if found is None and job.retry_of is not None:
        found = await refused_retry(session, job.retry_of)
    if found is None:
        # What the job collided with has ended since: start over.
        raise GuardFailed("insert_job")
    return found


async def refused_active(
    session: Session, org_id: int, active_key: str | None, *, but: bytes | None = None
) -> Problem | None:
    """The answer to a second live job with an active key; the job `but` does not count."""
    if active_key is None:
        return None
    row = await session.tx.one("active_job", {"org_id": org_id, "active_key": active_key})
    if row is None or row[0] == but:
        return None
    live = id_text(row[0])
    return Problem("active-conflict", f"job {live} for the same target is still live", job_id=live)


async def refused_retry(session: Session, job_id: bytes) -> Problem | None:
    """The answer to a second retry while the first is live."""
    row = await session.tx.one("live_retry", {"retry_of": job_id})
    if row is None:
        return None
    live = id_text(row[0])
    return Problem("retry-conflict", f"job {live} already retries this one", job_id=live)


def _payload_rows(session: Session, written: list[tuple[Job, Submit]]) -> list[dict[str, object]]:
    return [
        {
            "job_seq": job.seq,
            "org_id": job.org_id,
            "size": job.payload_size,
            "sha256": request.submission.payload_sha256,
            "body": request.submission.payload,
            "now": session.now,
        }
        for job, request in written
        if request.submission.payload is not None or request.submission.payload_sha256 is not None
    ]


def _record(session: Session, written: list[tuple[Job, Submit]]) -> None:
    for job, request in written:
        event = Event(
            job_seq=job.seq,
            number=1,
            org_id=job.org_id,
            at=session.now,
            actor=request.submission.actor,
            verb=Verb.SUBMIT,
            from_state=None,
            to_state=job.state,
            reason=None if job.retry_of is None else f"retry of {id_text(job.retry_of)}",
        )
        session.events.append(event)
        session.count(job.org_id, job.kind, job.state, 1)
        session.note_job(job, became_ready=job.state == State.QUEUED)
        session.written.append(job)
        if request.submission.payload is not None:
            session.bodies[job.seq] = request.submission.payload
