"""How each verb runs inside a session: the glue between requests, cases and pure decisions."""

from collections.abc import Callable

from farhand.engine import attempt as attempt_verbs
from farhand.engine import person
from farhand.engine.attempt import Held, Settled
from farhand.engine.case import Case
from farhand.engine.requests import Act, Attach, Order, PutFirst, Release, Retry, Settle, Submit, Submitted
from farhand.engine.sweep import sweep
from farhand.model.errors import Problem
from farhand.model.job import Actor, Attempt, Submission
from farhand.storage.session import Session
from farhand.storage.submitting import insert, refused_active, refused_retry

Answer = Held | Settled | Submitted | str | Problem
NOT_FOUND = "there is no job with this id, or it is not yours"


def _not_found() -> Problem:
    return Problem("not-found", NOT_FOUND)


def _attempt(case: Case, act: Act) -> Attempt | None | Problem:
    """The attempt an agent writes about. A job it never had is not there for it."""
    mine, _ = case.of_agent(act.agent_id)
    if mine is None or (act.family is not None and not case.job.kind.startswith(act.family)):
        return _not_found()
    if act.token is None:
        return mine
    found = case.find(act.token)
    return found if found is not None and found.agent_id == act.agent_id else None


def _agent(act: Act) -> Actor:
    return Actor(kind="agent", id=act.agent_id)


def act_key(request: object) -> tuple[int, bytes]:
    """The tenant and job that a request is about."""
    if isinstance(request, Act | Order):
        return (request.org_id, request.job_id)
    if isinstance(request, Settle | Release):
        return (request.act.org_id, request.act.job_id)
    if isinstance(request, Retry | Attach | PutFirst):
        return (request.order.org_id, request.order.job_id)
    raise TypeError(f"{type(request).__name__} is not about one job")


def start(case: Case, request: Act) -> Answer:
    """The agent begins."""
    attempt = _attempt(case, request)
    if isinstance(attempt, Problem):
        return attempt
    return attempt_verbs.start(case, attempt, _agent(request), request.progress)


def fetch_payload(case: Case, request: Act) -> Answer:
    """A seed agent takes the payload."""
    attempt = _attempt(case, request)
    if isinstance(attempt, Problem):
        return attempt
    return attempt_verbs.fetch_payload(case, attempt, _agent(request))


def heartbeat(case: Case, request: Act) -> Answer:
    """The agent is still at it."""
    attempt = _attempt(case, request)
    if isinstance(attempt, Problem):
        return attempt
    return attempt_verbs.heartbeat(case, attempt, _agent(request), request.progress)


def settle(case: Case, request: Settle) -> Answer:
    """The agent reports the end."""
    attempt = _attempt(case, request.act)
    if isinstance(attempt, Problem):
        return attempt
    named = request.act.token is not None or case.of_agent(request.act.agent_id)[1]
    return attempt_verbs.settle(
        case, attempt, _agent(request.act), request.report, named=named, bytes_out=request.bytes_out
    )


def release(case: Case, request: Release) -> Answer:
    """The agent gives the work back."""
    attempt = _attempt(case, request.act)
    if isinstance(attempt, Problem):
        return attempt
    return attempt_verbs.release(
        case,
        attempt,
        _agent(request.act),
        refuse=request.refuse,
        reason=request.reason,
        untouched=request.untouched,
    )


def cancel(case: Case, request: Order) -> Answer:
    """A person cancels."""
    return person.cancel(case, request.actor, request.note)


def resolve(case: Case, request: Order) -> Answer:
    """A person says what happened."""
    return person.resolve(case, request.actor, done=request.done, note=request.note)


def adopt(case: Case, request: Order) -> Answer:
    """Telemetry proves that the work goes on."""
    return person.adopt(case, request.actor, proof=request.note or "identity seen in telemetry")


def fail_at_gate(case: Case, request: Order) -> Answer:
    """A gate gives its verdict."""
    return person.fail_at_gate(case, request.actor, request.note or "a check before dispatch failed")


def attach(case: Case, request: Attach) -> Answer:
    """The payload has arrived."""
    return person.attach(case, request.order.actor, request.sha256, request.size)


def put_first(case: Case, request: PutFirst) -> Answer:
    """A person lets the job go first."""
    return person.put_first(case, request.order.actor, request.priority)


def look_at(case: Case, _request: Order) -> Answer:
    """Somebody reads the job: what is due on it happens first."""
    sweep(case)
    return case.job.state


ON_CASE: dict[str, Callable[[Case, object], Answer]] = {  # pyright: ignore[reportAssignmentType]  (each verb is called with its own request)
    "start": start,
    "fetch_payload": fetch_payload,
    "heartbeat": heartbeat,
    "settle": settle,
    "release": release,
    "cancel": cancel,
    "resolve": resolve,
    "adopt": adopt,
    "fail_at_gate": fail_at_gate,
    "attach": attach,
    "put_first": put_first,
    "look_at": look_at,
}


def on_case(session: Session, verb: str, request: object) -> Answer:
    """Run one verb on its loaded case."""
    case = session.case(*act_key(request))
    return ON_CASE[verb](case, request) if case is not None else _not_found()


async def retry(
    session: Session, request: Retry, capability_names: Callable[[int], frozenset[str]]
) -> Answer:
    """A new job linked to the old one; nothing changes when one is already on its way."""
    case = session.case(request.order.org_id, request.order.job_id)
    if case is None:
        return _not_found()
    refused = await refused_retry(session, case.job.id)
    if refused is None:
        key = person.retry_key(case, request.policy)
        refused = await refused_active(session, case.job.org_id, key, but=case.job.id)
    if refused is not None:
        return refused
    again = person.retry(case, request.order.actor, request.policy)
    if isinstance(again, Problem):
        return again
    submission: Submission = person.as_retry(again, capability_names(case.job.requires))
    await session.flush()
    return await insert(
        session,
        Submit(submission=submission, policy=request.policy, retry_of=case.job.id),
        requires=case.job.requires,
        copy_payload_from=case.job,
    )
