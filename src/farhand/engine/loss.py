"""What becomes of a job when one of its attempts ended without success."""

from dataclasses import dataclass

from farhand.engine.case import Case
from farhand.model.job import Attempt, Outcome, State
from farhand.model.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The state that follows, why, for a retry when, and whose failure it is that ends the job."""

    state: State
    reason: str | None = None
    error: str | None = None
    run_at: int | None = None
    by: Attempt | None = None


def backoff_ms(policy: Policy, tries: int, jitter: float, retry_after_ms: int | None = None) -> int:
    """Wait before the next try: base · 2ⁿ, capped; jitter in [0, 1) only adds, at most a tenth."""
    wait = min(policy.backoff_cap_ms, policy.backoff_base_ms * 2 ** max(0, tries - 1))
    wait += int(wait * 0.1 * jitter)
    return max(wait, retry_after_ms or 0)


def past_no_return(policy: Policy, attempt: Attempt) -> bool:
    """Whether the work of this attempt may already have happened in the physical world."""
    if attempt.no_return == 1:
        return True
    return policy.no_return_phase is None and attempt.started_at is not None


def after(case: Case, attempt: Attempt, *, lost_reason: str, retry_after_ms: int | None = None) -> Next:
    """Decide, with the attempt already closed, where the job goes. Changes nothing."""
    job, policy = case.job, case.policy
    if case.open_attempts():
        return Next(state=State(case.derived()), reason=job.reason)
    if attempt.outcome == Outcome.LOST and past_no_return(policy, attempt):
        verdict = _after_no_return(case, lost_reason)
        if verdict is not None:
            return verdict
    if job.cancel_requested_at is not None:
        return Next(state=State.CANCELLED, reason="cancelled on request")
    failure = attempt if attempt.outcome == Outcome.FAILED else _held_failure(case, attempt)
    if failure is not None:
        return _after_failure(case, failure, retry_after_ms)
    if job.abort_at is not None and job.accepted_at is not None:
        return Next(state=State.FAILED, reason=job.reason, error=job.error or job.reason)
    if attempt.outcome != Outcome.LOST:
        return Next(state=State.QUEUED)
    if job.tries >= policy.max_attempts:
        return Next(state=State.FAILED, reason="no tries left", error=lost_reason)
    return Next(state=State.QUEUED, reason=lost_reason)


def _after_no_return(case: Case, lost_reason: str) -> Next | None:
    choice = case.policy.on_lost_running
    if choice == "uncertain":
        return Next(state=State.UNCERTAIN, reason=lost_reason)
    if choice == "failed" and case.job.cancel_requested_at is None:
        return Next(state=State.FAILED, reason=lost_reason, error=lost_reason)
    return None


def _held_failure(case: Case, attempt: Attempt) -> Attempt | None:
    """A sibling's failure that was held back because this attempt was still open."""
    for sibling in reversed(case.attempts):
        if (
            sibling.number != attempt.number
            and sibling.outcome == Outcome.FAILED
            and sibling.settled_to in (State.CLAIMED, State.RUNNING)
            and sibling.ended_at is not None
            and sibling.ended_at >= attempt.created_at
        ):
            return sibling
    return None


def _after_failure(case: Case, failure: Attempt, retry_after_ms: int | None) -> Next:
    job, policy = case.job, case.policy
    error = failure.error or "the agent reported a failure without saying why"
    if job.abort_at is not None or not failure.retryable:
        reason = job.reason if job.abort_at else None
        return Next(state=State.FAILED, reason=reason, error=error, by=failure)
    if job.tries >= policy.max_attempts:
        return Next(state=State.FAILED, reason="no tries left", error=error, by=failure)
    wait = backoff_ms(policy, job.tries, case.jitter(), retry_after_ms)
    return Next(
        state=State.SCHEDULED, reason=f"will be tried again: {error}", error=error, run_at=case.now + wait
    )
