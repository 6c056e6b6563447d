"""The sweeps: promote, reclaim, expire. One function decides all that is due on a job."""

from farhand.engine.attempt import reclaim
from farhand.engine.case import Case
from farhand.model.job import HELD, SWEEP, WAITING, Dialect, State, Verb


def sweep(case: Case) -> None:
    """Do everything that is due on this job now; nothing when nothing is."""
    job = case.job
    if job.state not in WAITING and job.state not in HELD:
        return
    if job.state in HELD:
        _sweep_held(case)
    if job.state in WAITING:
        _sweep_waiting(case)
    before = (job.due_at, job.hedge_at)
    case.plan()
    if (job.due_at, job.hedge_at) != before:
        case.changed = True


def _sweep_waiting(case: Case) -> None:
    job, now = case.job, case.now
    if job.accepted_at is None and job.start_by is not None and job.start_by <= now:
        _expire(case, "nobody took the job in time")
    elif job.deadline is not None and job.deadline <= now:
        _expire(case, "the deadline passed")
    elif job.state == State.SCHEDULED and (job.run_at is None or job.run_at <= now):
        case.move(Verb.PROMOTE, State.QUEUED, SWEEP)


def _expire(case: Case, reason: str) -> None:
    job = case.job
    job.reason = reason
    if job.accepted_at is None:
        case.move(Verb.EXPIRE, State.EXPIRED, SWEEP, reason=reason)
        return
    job.error = job.error or reason
    case.move(Verb.EXPIRE, State.FAILED, SWEEP, reason=reason)


def _sweep_held(case: Case) -> None:
    _abort_when_over(case)
    for attempt in case.open_attempts():
        if attempt.lease_until <= case.now:
            reclaim(case, attempt, SWEEP, _lost_words(case, attempt.accepted_at, attempt.dialect))


def _lost_words(case: Case, accepted_at: int | None, dialect: str) -> str:
    if accepted_at is None:
        return "the agent did not take the offer in time"
    if case.job.abort_at is not None:
        return "the agent did not answer the order to stop"
    if case.job.cancel_requested_at is not None:
        return "the agent did not answer the cancel request"
    if dialect == Dialect.SEED:
        return "the agent did not report in time"
    return "the agent stopped sending heartbeats"


def _abort_when_over(case: Case) -> None:
    job, policy, now = case.job, case.policy, case.now
    if job.abort_at is not None:
        return
    reason: str | None = None
    if policy.deadline_aborts and job.deadline is not None and job.deadline <= now:
        reason = "the deadline passed"
    elif policy.exec_timeout_ms is not None:
        limit = policy.exec_timeout_ms
        if any(a.accepted_at is not None and a.accepted_at + limit <= now for a in case.open_attempts()):
            reason = "the attempt took too long"
    if reason is None:
        return
    job.abort_at = now
    job.reason = reason
    for attempt in case.open_attempts():
        attempt.lease_until = min(attempt.lease_until, now + policy.cancel_grace_ms)
        case.touch(attempt)
    case.move(Verb.EXPIRE, job.state, SWEEP, reason=reason)
