"""The verbs of people and of proof: cancel, resolve, retry, adopt, and the gate's verdict."""

import dataclasses

from farhand.engine.case import Case
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.model.job import (
    HELD,
    TERMINAL,
    UPLOAD_TIMEOUT,
    WAITING,
    Actor,
    Dialect,
    Evidence,
    Outcome,
    State,
    Submission,
    Verb,
)
from farhand.model.policy import Policy


def cancel(case: Case, actor: Actor, reason: str | None = None) -> str | Problem:
    """Cancel what waits; ask for the end of what is in hand. Returns the job's state.

    A request made again changes nothing. A request shortens the leases of attempts that can
    hear it, or have not begun, to the grace period: silence then counts as a lost lease.
    """
    job = case.job
    why = reason or "cancelled on request"
    if job.state in WAITING or (job.state == State.CLAIMED and not _accepted(case)):
        for offer in case.open_attempts():
            case.end(offer, Outcome.UNACCEPTED, error=why)
        job.cancel_requested_at = case.now
        job.reason = why
        case.move(Verb.CANCEL, State.CANCELLED, actor, reason=why)
        case.plan()
        return job.state
    if job.state not in HELD:
        return Problem(
            "state-conflict",
            f"the job is {job.state} and can no longer be cancelled",
            job_state=job.state,
        )
    if job.cancel_requested_at is None:
        job.cancel_requested_at = case.now
        limit = case.now + case.policy.cancel_grace_ms
        for attempt in case.open_attempts():
            if attempt.dialect != Dialect.SEED or attempt.started_at is None:
                attempt.lease_until = min(attempt.lease_until, limit)
                case.touch(attempt)
        case.move(Verb.CANCEL, job.state, actor, reason=why)
        case.plan()
    return job.state


def _accepted(case: Case) -> bool:
    return any(a.accepted_at is not None for a in case.open_attempts())


def resolve(case: Case, actor: Actor, *, done: bool, note: str | None) -> str | Problem:
    """A person says how an uncertain job ended."""
    job = case.job
    if job.state != State.UNCERTAIN:
        return Problem(
            "state-conflict",
            f"only an uncertain job can be resolved; this one is {job.state}",
            job_state=job.state,
        )
    job.evidence = Evidence.PERSON
    job.reason = note
    job.error = None if done else (note or "resolved as failed")
    case.move(Verb.RESOLVE, State.DONE if done else State.FAILED, actor, reason=note)
    case.plan()
    return job.state


def retry(case: Case, actor: Actor, policy: Policy) -> Submission | Problem:
    """What to submit for another go; an uncertain job is resolved as failed on the way."""
    job = case.job
    if job.state not in TERMINAL and job.state != State.UNCERTAIN:
        return Problem(
            "state-conflict",
            f"only a finished or uncertain job can be retried; this one is {job.state}",
            job_state=job.state,
        )
    was_uncertain = job.state == State.UNCERTAIN
    if was_uncertain:
        job.evidence = Evidence.PERSON
        job.error = job.reason or "resolved as failed by a retry"
    case.move(Verb.RETRY, State.FAILED if was_uncertain else job.state, actor, reason="retried as a new job")
    case.plan()
    return Submission(
        org_id=job.org_id,
        kind=job.kind,
        lane=job.lane,
        agent_id=job.agent_id,
        device_id=job.device_id,
        mode=job.mode,
        title=job.title,
        source=job.source,
        tags=tuple(job.tags.split("\n")) if job.tags else (),
        metadata=job.metadata,
        params=job.params,
        priority=job.priority,
        active_key=retry_key(case, policy),
        submitted_by=actor.id if actor.kind == "key" else None,
        actor=actor,
    )


def retry_key(case: Case, policy: Policy) -> str | None:
    """The active key of a job's retry: that of its kind under the policy it is submitted under."""
    job = case.job
    if policy.active_key is None or job.agent_id is None:
        return None
    return policy.active_key.format(agent=id_text(job.agent_id), kind=job.kind)


def adopt(case: Case, actor: Actor, *, proof: str) -> str | Problem:
    """Proof of identity says that the work of the newest attempt is going on after all."""
    job = case.job
    adoptable = job.state == State.UNCERTAIN or (job.state == State.FAILED and job.reason == UPLOAD_TIMEOUT)
    attempt = case.attempts[-1] if case.attempts else None
    if not adoptable or attempt is None:
        return Problem(
            "state-conflict",
            f"a job that is {job.state} cannot be adopted",
            job_state=job.state,
        )
    case.reopen()
    attempt.ended_at = None
    attempt.outcome = None
    attempt.settled_to = None
    attempt.started_at = attempt.started_at or case.now
    attempt.lease_until = case.now + case.policy.lease_ms
    case.touch(attempt)
    job.error = None
    job.reason = None
    case.move(Verb.ADOPT, State.RUNNING, actor, attempt=attempt.number, reason=proof)
    case.plan()
    return job.state


def fail_at_gate(case: Case, actor: Actor, error: str) -> str | Problem:
    """A check before dispatch found that the queued job can never run."""
    job = case.job
    if job.state != State.QUEUED:
        return Problem("state-conflict", f"the job is {job.state}, no longer queued", job_state=job.state)
    job.error = error
    job.reason = error
    case.move(Verb.SETTLE, State.FAILED, actor, reason=error)
    case.plan()
    return job.state


def attach(case: Case, actor: Actor, sha256: bytes, size: int) -> str | Problem:
    """The payload that the job waits for is there. The first one stays; a repeat changes nothing."""
    job = case.job
    if job.payload_size is not None:
        return job.state
    if job.state not in WAITING:
        return Problem("state-conflict", f"the job is {job.state} and waits for no file", job_state=job.state)
    job.payload_size = size
    case.arrived = sha256
    case.append(Verb.REPORT, job.state, actor, reason=f"the file has arrived ({size} bytes)")
    return job.state


def put_first(case: Case, actor: Actor, priority: int) -> str | Problem:
    """Let a waiting job go before all others of its lane."""
    job = case.job
    if job.state not in WAITING:
        return Problem(
            "state-conflict",
            f"only a waiting job can be moved; this one is {job.state}",
            job_state=job.state,
        )
    job.priority = max(job.priority, priority)
    case.append(Verb.REPORT, job.state, actor, reason="moved to the top")
    return job.state


def as_retry(submission: Submission, requires: frozenset[str]) -> Submission:
    """The submission of a retry with the capability names that its job required."""
    return dataclasses.replace(submission, requires=requires)
