"""The verbs of an agent that holds an attempt: start, heartbeat, settle, release, refuse."""

from dataclasses import dataclass

from farhand.engine.case import EVENTS_PER_JOB_MAX, Case
from farhand.engine.loss import Next, after, past_no_return
from farhand.engine.report import Report, conceal
from farhand.model.errors import Problem
from farhand.model.job import (
    HELD,
    UPLOAD_TIMEOUT,
    WAITING,
    Actor,
    Attempt,
    Dialect,
    Evidence,
    Job,
    Outcome,
    State,
    Verb,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where an agent says it is. `reason` counts only when `says_reason`; None then clears it."""

    phase: str | None = None
    reason: str | None = None
    says_reason: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Answer to start and heartbeat: go on or not, and how long the lease now is."""

    state: str
    directive: str
    lease_ms: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Answer to settle, release and refuse: the state the job went to.

    `counted` says that this report is the one by which the job ended, done or failed.
    """

    state: str
    replay: bool = False
    counted: bool = False


def accept(case: Case, attempt: Attempt) -> None:
    """Turn an offer into an accepted attempt; from now on it counts as a try."""
    if attempt.accepted_at is not None:
        return
    attempt.accepted_at = case.now
    case.job.tries += 1
    if case.job.accepted_at is None:
        case.job.accepted_at = case.now
    case.touch(attempt)


def start(case: Case, attempt: Attempt | None, actor: Actor, progress: Progress) -> Held | Problem:
    """The agent begins. Under a cancel or abort nothing starts and the directive says so."""
    if attempt is None or not attempt.open:
        return stale(case.job)
    accept(case, attempt)
    _renew(case, attempt)
    if attempt.started_at is not None:
        _report(case, attempt, actor, progress)
    elif case.directive() == "continue":
        _begin(case, attempt, actor, progress)
    if attempt.no_return:
        _renew(case, attempt)
    case.plan()
    return _held(case, attempt)


def _begin(case: Case, attempt: Attempt, actor: Actor, progress: Progress) -> None:
    attempt.started_at = case.now
    case.touch(attempt)
    _note(case, attempt, progress)
    case.move(Verb.START, State.RUNNING, actor, attempt=attempt.number, reason=progress.phase)


def fetch_payload(case: Case, attempt: Attempt | None, actor: Actor) -> Held | Problem:
    """A seed agent takes the payload: its start and its point of no return.

    Under a cancel request nothing has happened yet, so the job is cancelled here.
    """
    if attempt is None or not attempt.open:
        return stale(case.job)
    if attempt.dialect == Dialect.SEED and attempt.started_at is None and case.directive() != "continue":
        case.end(attempt, Outcome.CANCELLED)
        step = after(case, attempt, lost_reason="")
        _apply(case, attempt, actor, Verb.SETTLE if step.state == State.CANCELLED else Verb.RELEASE, step)
        return Problem("payload-gone", "the job was cancelled before it was fetched; ask for the next one")
    if attempt.dialect != Dialect.SEED or attempt.started_at is not None:
        return _held(case, attempt)
    held = start(case, attempt, actor, Progress())
    attempt.no_return = int(case.policy.no_return_phase is not None)
    return held


def heartbeat(case: Case, attempt: Attempt | None, actor: Actor, progress: Progress) -> Held | Problem:
    """Renew the lease, take note of phase and reason, and pass on the directive.

    A phase is progress inside `running`, so that reporting one before the start is the start.
    """
    if attempt is None or not attempt.open:
        return stale(case.job)
    if progress.phase is not None:
        return start(case, attempt, actor, progress)
    accept(case, attempt)
    _renew(case, attempt)
    _report(case, attempt, actor, progress)
    case.plan()
    return _held(case, attempt)


def settle(
    case: Case,
    attempt: Attempt | None,
    actor: Actor,
    report: Report,
    *,
    named: bool = True,
    bytes_out: int = 0,
) -> Settled | Problem:
    """Take the agent's word for how its attempt ended; what really happened wins.

    `named` False says that the report may be about another attempt than this closed one.
    Secret fields are parted from the report before anything of it can be written anywhere.
    """
    if attempt is None:
        return stale(case.job)
    size = 0 if report.result is None else len(report.result)
    report = conceal(report, case.policy, case.keyed)
    if not attempt.open:
        return _settle_closed(case, attempt, actor, report, named=named, bytes_out=bytes_out)
    limit = case.policy.result_bytes_max
    if size > limit:
        return Problem(
            "result-too-large", f"the result is larger than the limit of {limit} bytes", limit_bytes=limit
        )
    accept(case, attempt)
    attempt.digest = report.digest
    attempt.retryable = int(report.retryable)
    if report.ok:
        case.end(attempt, Outcome.SUCCEEDED)
        _succeed(case, attempt, actor, report, bytes_out)
    elif report.uncertain:
        if attempt.started_at is None:
            _begin(case, attempt, actor, Progress())
        attempt.no_return = 1
        case.end(attempt, Outcome.LOST, error=report.error)
        reason = report.error or "the agent cannot say what happened"
        _apply(case, attempt, actor, Verb.RECLAIM, after(case, attempt, lost_reason=reason))
    else:
        _fail(case, attempt, actor, report)
        decided = case.job.state == State.FAILED and (size or attempt.outcome == Outcome.FAILED)
        if decided:
            case.job.result, case.secret = report.result, report.secret
        elif size and case.open_attempts():
            # Held back: it is what is known of the end, should no sibling succeed.
            case.job.result = report.result
    attempt.settled_to = case.job.state
    return Settled(state=case.job.state, counted=_decided(attempt))


def release(
    case: Case,
    attempt: Attempt | None,
    actor: Actor,
    *,
    refuse: bool,
    reason: str | None,
    untouched: bool = False,
) -> Settled | Problem:
    """Give the work back uncounted (drain) or say that this agent will not do it (refuse)."""
    if attempt is None or not attempt.open:
        if attempt is not None and attempt.outcome in (Outcome.RELEASED, Outcome.REFUSED):
            return Settled(state=attempt.settled_to or case.job.state, replay=True)
        return stale(case.job)
    risky = case.policy.on_lost_running != "queued" and not (refuse and untouched)
    if past_no_return(case.policy, attempt) and risky:
        return Problem(
            "no-return",
            "the work may already have happened, so it cannot be given back; report a result instead",
            job_state=case.job.state,
        )
    if attempt.accepted_at is not None:
        case.job.tries -= 1
    case.end(attempt, Outcome.REFUSED if refuse else Outcome.RELEASED, error=reason)
    if refuse:
        case.refused_by.append(attempt.agent_id)
        case.count(attempt, "jobs_refused")
    step = after(case, attempt, lost_reason="")
    verb = Verb.REFUSE if refuse else Verb.RELEASE
    if step.state == State.QUEUED:
        step = Next(state=State.QUEUED, reason=reason)
    _apply(case, attempt, actor, verb, step)
    attempt.settled_to = case.job.state
    return Settled(state=case.job.state)


def reclaim(case: Case, attempt: Attempt, actor: Actor, reason: str) -> None:
    """Take an attempt back whose lease is lost."""
    outcome = Outcome.UNACCEPTED if attempt.accepted_at is None else Outcome.LOST
    untouched = case.policy.settled_by == "telemetry" and not past_no_return(case.policy, attempt)
    if outcome == Outcome.LOST and untouched:
        case.job.tries -= 1
    case.end(attempt, outcome, error=reason)
    _apply(case, attempt, actor, Verb.RECLAIM, after(case, attempt, lost_reason=reason))


def stale(job: Job) -> Problem:
    """The answer to a write whose lease is not, or no longer, the caller's."""
    state = job.state
    return Problem(
        "stale-claim",
        f"this attempt is no longer yours; the job is {state}. Stop working on it and ask for the next job",
        job_state=state,
    )


def _fail(case: Case, attempt: Attempt, actor: Actor, report: Report) -> None:
    seen = _seen_end(case, report)
    cancelled = report.cancelled and (seen is not None or case.job.cancel_requested_at is not None)
    outcome = Outcome.CANCELLED if cancelled else Outcome.FAILED
    error = report.error or ("cancelled at the device" if report.cancelled else None)
    case.end(attempt, outcome, error=error)
    step = seen or after(case, attempt, lost_reason="", retry_after_ms=report.retry_after_ms)
    _apply(case, attempt, actor, Verb.SETTLE, step)


def _seen_end(case: Case, report: Report) -> Next | None:
    """The ends that telemetry alone knows: stopped at the machine, or an upload that stood still."""
    if case.policy.settled_by != "telemetry":
        return None
    if report.cancelled:
        asked = case.job.cancel_requested_at is not None
        where = "cancelled on request" if asked else "cancelled at the device"
        return Next(state=State.CANCELLED, reason=report.error or where)
    if report.error == UPLOAD_TIMEOUT:
        error = "the upload to the machine stood still; it may have the file"
        return Next(state=State.FAILED, reason=UPLOAD_TIMEOUT, error=error)
    return None


def _settle_closed(
    case: Case, attempt: Attempt, actor: Actor, report: Report, *, named: bool, bytes_out: int
) -> Settled | Problem:
    job = case.job
    if attempt.digest == report.digest and attempt.settled_to is not None:
        return Settled(state=attempt.settled_to, replay=True, counted=_decided(attempt))
    newest = named and attempt.number == job.attempt
    lost = attempt.outcome in (Outcome.LOST, Outcome.UNACCEPTED)
    if newest and lost and report.ok and (job.state in WAITING or job.state == State.UNCERTAIN):
        attempt.outcome = Outcome.SUCCEEDED
        _succeed(case, attempt, actor, report, bytes_out)
        return _settled_late(case, attempt, report)
    if newest and lost and job.state == State.UNCERTAIN and not report.ok and not report.uncertain:
        attempt.outcome = Outcome.FAILED
        attempt.error = report.error
        job.error = report.error or "the agent reported a failure without saying why"
        job.reason = "reported after the lease was lost"
        case.move(Verb.SETTLE, State.FAILED, actor, attempt=attempt.number, reason=job.error)
        case.count(attempt, "jobs_failed")
        case.plan()
        return _settled_late(case, attempt, report)
    if job.version < EVENTS_PER_JOB_MAX:
        said = "success" if report.ok else "failure"
        data = '{"digest":"' + report.digest.hex() + '","said":"' + said + '"}'
        case.append(Verb.LATE_RESULT, job.state, actor, attempt=attempt.number, data=data)
    return stale(case.job)


def _decided(attempt: Attempt) -> bool:
    """Whether the job ended by this attempt's own report; who cannot say decides nothing."""
    own = attempt.outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    return own and attempt.settled_to in (State.DONE, State.FAILED)


def _settled_late(case: Case, attempt: Attempt, report: Report) -> Settled:
    attempt.digest = report.digest
    attempt.settled_to = case.job.state
    case.touch(attempt)
    return Settled(state=case.job.state, counted=True)


def _succeed(case: Case, attempt: Attempt, actor: Actor, report: Report, bytes_out: int) -> None:
    job = case.job
    job.evidence = report.evidence or Evidence.REPORTED
    job.error = None
    job.reason = None
    job.result, case.secret = report.result, report.secret
    for sibling in case.open_attempts():
        case.end(sibling, Outcome.SUPERSEDED)
    case.move(Verb.SETTLE, State.DONE, actor, attempt=attempt.number, reason=job.evidence)
    case.count(attempt, "jobs_done")
    case.count(attempt, "bytes_out", bytes_out)
    case.plan()


def _apply(case: Case, attempt: Attempt, actor: Actor, verb: Verb, step: Next) -> None:
    job = case.job
    if step.state not in HELD:
        job.reason = step.reason
    if step.state != State.RUNNING:
        job.phase = None
        if step.state != State.FAILED:
            # A failure that was held back has not become the end.
            job.result = None
    if step.error is not None:
        job.error = step.error
    if step.run_at is not None:
        job.run_at = step.run_at
    note = step.error or step.reason or attempt.error
    data = None if step.run_at is None else '{"run_at":' + str(step.run_at) + "}"
    case.move(verb, step.state, actor, attempt=attempt.number, reason=note, data=data)
    if step.by is not None:
        case.count(step.by, "jobs_failed")
    case.plan()


def _renew(case: Case, attempt: Attempt) -> None:
    policy = case.policy
    watched = policy.settled_by == "telemetry" and past_no_return(policy, attempt)
    silent = watched or attempt.dialect == Dialect.SEED
    lease = policy.seed_lease_ms if silent else policy.lease_ms
    attempt.lease_until = case.now + lease
    case.touch(attempt)


def _note(case: Case, attempt: Attempt, progress: Progress) -> None:
    if progress.phase is not None:
        case.job.phase = progress.phase
        if progress.phase == case.policy.no_return_phase:
            attempt.no_return = 1
    if progress.says_reason:
        case.job.reason = progress.reason


def _report(case: Case, attempt: Attempt, actor: Actor, progress: Progress) -> None:
    job = case.job
    before = (job.phase, job.reason)
    _note(case, attempt, progress)
    if (job.phase, job.reason) == before or job.version >= EVENTS_PER_JOB_MAX:
        return
    note = ": ".join(part for part in (job.phase, job.reason) if part)
    case.move(Verb.REPORT, job.state, actor, attempt=attempt.number, reason=note or None)


def _held(case: Case, attempt: Attempt) -> Held:
    return Held(
        state=case.job.state,
        directive=case.directive(),
        lease_ms=max(0, attempt.lease_until - case.now),
        attempt=attempt.number,
    )
