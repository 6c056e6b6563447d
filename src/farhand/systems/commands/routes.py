"""The issuers' routes about commands."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from farhand.engine.registry import Agent
from farhand.engine.requests import JobFilter, Order, Retry, Submitted
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import TERMINAL, Event, Job, State
from farhand.protocol.commands import (
    STATUSES,
    CommandCancel,
    CommandEvent,
    CommandRequest,
    CommandView,
)
from farhand.protocol.wire import bad_field, decode
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.job_routes import decode_cursor, encode_cursor, page_limit, submit_prepared
from farhand.server.principal import Principal
from farhand.server.routes import Route
from farhand.server.text import refuse_nul
from farhand.server.waiting import WAIT_MAX_MS, applied, wait_for_change
from farhand.systems.commands import submit
from farhand.systems.commands.dialects import agent as agent_dialect
from farhand.systems.commands.dialects.agent import NOBODY, not_found
from farhand.systems.commands.kind import FAMILY, kind_of
from farhand.systems.commands.status import states_of, status_of
from farhand.systems.commands.views import command_event, command_view

BODY_MAX: Final = 256 * 1024
LIST_QUERY: Final = ("status", "type", "agent", "limit", "cursor")
SECRETS: Final = "results.secret"
_NO_STORE: Final = (b"cache-control", b"no-store")
_cancel = msgspec.json.Decoder(CommandCancel)


def routes() -> list[Route]:
    """The issuers' routes, and those of the agents' dialect."""
    one, shown = "/commands/{uuid}", {200: CommandView}
    return [
        Route(method="POST", path="/commands", handler=issue, grant="jobs.submit", tag="commands",
              keyed=True, summary="Issue a command", request=CommandRequest,
              replies={201: CommandView, 200: CommandView}),
        Route(method="GET", path="/commands", handler=listing, grant="jobs.read", tag="commands",
              summary="List commands, newest first", query=LIST_QUERY, replies={200: [CommandView]}),
        Route(method="GET", path=one, handler=show, grant="jobs.read", tag="commands", held=True,
              summary="Show a command, or wait until its status changes", replies=shown),
        Route(method="GET", path=f"{one}/events", handler=events, grant="jobs.read", tag="commands",
              summary="A command's trail in words", query=("limit", "cursor"),
              replies={200: [CommandEvent]}),
        Route(method="POST", path=f"{one}/cancel", handler=cancel, grant="jobs.manage", tag="commands",
              summary="Cancel a command", request=CommandCancel, request_optional=True, replies=shown),
        Route(method="POST", path=f"{one}/ack", handler=ack, grant="jobs.read", tag="commands",
              summary="Say that the result has served its purpose: its secrets go", replies=shown),
        Route(method="POST", path=f"{one}/retry", handler=retry, grant="jobs.manage", tag="commands",
              summary="Issue a finished or uncertain command again", replies={201: CommandView}),
        *agent_dialect.routes(),
    ]  # fmt: skip


async def issue(context: Context, call: Call) -> None:
    """`POST /commands`: write down a command, or find the one made for the idempotency key."""
    call.query(frozenset())
    message = submit.read(await call.body(BODY_MAX))
    prepared = await submit.prepare(message, message.type, call.principal, context.desk)
    done = await submit_prepared(context, call, prepared, route=b"POST /commands")
    await _reply_made(context, call, done)


async def _reply_made(context: Context, call: Call, done: Submitted | Problem) -> None:
    if isinstance(done, Problem):
        raise _named(done)
    job = await _find(context, call, done.job_id)
    location = (b"location", b"/commands/" + id_text(done.job_id).encode())
    view = await _view(context, job)
    await call.json(view, 201 if done.created else 200, headers=(location,))


def _named(problem: Problem) -> Problem:
    """A conflict in this system's words, with the UUID of the command in the way."""
    live = problem.extra.get("job_id")
    if problem.problem == "active-conflict":
        message = f"command {live} of this type is still live for this agent; wait for its end or cancel it"
    elif problem.problem == "retry-conflict":
        message = f"command {live} already retries this one"
    else:
        return problem
    return Problem(problem.problem, message, uuid=live, **problem.extra)


def _uuid(call: Call) -> bytes:
    # What is no id is looked for like any other, so that its answer takes as long.
    return parse_id(call.params[0]) or NOBODY


async def _find(context: Context, call: Call, job_id: bytes) -> Job:
    job = await context.store.job(call.principal.org_id, job_id)
    if job is None or not job.kind.startswith(FAMILY):
        raise not_found()
    return job


async def _view(context: Context, job: Job, secrets: Mapping[str, Any] | None = None) -> CommandView:
    agent = await context.desk.agent(job.org_id, job.lane)
    return command_view(job, agent, _last_seen(context, agent), context.clock.now_ms(), secrets)


def _sees_secrets(principal: Principal, job: Job) -> bool:
    """Whether the secrets of a result may be shown: to the key that issued it, or by a grant."""
    issued = principal.kind == "key" and job.submitted_by == principal.id
    return issued or SECRETS in principal.grants


async def _whole_view(context: Context, call: Call, job: Job) -> CommandView:
    """The view of the one route that shows secrets, while there are some."""
    secrets = None
    if job.state in TERMINAL and _sees_secrets(call.principal, job):
        secrets = await context.store.secret(job.org_id, job.id)
    return await _view(context, job, secrets)


def _last_seen(context: Context, agent: Agent | None) -> int | None:
    if agent is None:
        return None
    moments = [at for at in (agent.last_seen_at, context.seen.get(agent.id)) if at is not None]
    return max(moments, default=None)


async def show(context: Context, call: Call) -> None:
    """`GET /commands/{uuid}`: a command; with `Prefer: wait=N` held until its status changes."""
    call.query(frozenset())
    wait_ms = call.prefer_wait_ms(WAIT_MAX_MS)
    job = await _find(context, call, _uuid(call))
    if wait_ms <= 0 or job.state in TERMINAL:
        await call.json(await _whole_view(context, call, job), headers=(_NO_STORE,))
        return
    before = status_of(job.state)
    changed = await wait_for_change(
        context,
        call,
        job,
        wait_ms,
        lambda now: status_of(now.state) != before or now.state == State.UNCERTAIN,
    )
    if changed is not None:
        await call.json(await _whole_view(context, call, changed), headers=(_NO_STORE, applied(wait_ms)))


async def listing(context: Context, call: Call) -> None:
    """`GET /commands`: commands, newest first."""
    query = call.query(frozenset(LIST_QUERY))
    limit = page_limit(query)
    status, type_name, agent_text = query.get("status"), query.get("type"), query.get("agent")
    if status is not None and status not in STATUSES:
        raise bad_field("status", f"must be one of {', '.join(STATUSES)}")
    agent_id: bytes | None = None
    if agent_text is not None:
        found = await context.desk.find_agent(call.principal.org_id, agent_text)
        if found is None:
            raise Problem(
                "unknown-agent",
                f"agent: there is no agent {agent_text[:200]!r}; GET /agents lists them",
                field="agent",
            )
        agent_id = found.id
    wanted = JobFilter(
        org_id=call.principal.org_id,
        states=states_of(status) if status is not None else (),
        kind=kind_of(type_name) if type_name is not None else None,
        family=FAMILY,
        agent_id=agent_id,
        before=decode_cursor(query["cursor"]) if "cursor" in query else None,
        limit=limit + 1,
    )
    jobs = await context.store.jobs(wanted)
    following = encode_cursor(jobs[limit - 1].seq) if len(jobs) > limit else None
    await call.json({"items": [await _view(context, job) for job in jobs[:limit]], "next": following})


async def events(context: Context, call: Call) -> None:
    """`GET /commands/{uuid}/events`: what happened, when and why, in words."""
    query = call.query(frozenset({"limit", "cursor"}))
    limit = page_limit(query)
    after = decode_cursor(query["cursor"]) if "cursor" in query else 0
    job = await _find(context, call, _uuid(call))
    found = await context.store.events(job.org_id, job.id, after, limit + 1)
    if found is None:
        raise not_found()
    following = encode_cursor(found[limit - 1].number) if len(found) > limit else None
    names = await _names(context, job.org_id, found[:limit])
    await call.json({"items": [command_event(event, names) for event in found[:limit]], "next": following})


async def _names(context: Context, org_id: int, found: list[Event]) -> dict[bytes, str]:
    """What the agents and keys of a trail are called."""
    names: dict[bytes, str] = {}
    actors = {event.actor for event in found}
    for actor in actors:
        agent = await context.desk.agent(org_id, actor.id) if actor.kind == "agent" and actor.id else None
        if agent is not None:
            names[agent.id] = agent.name
    if any(actor.kind == "key" for actor in actors):
        names.update({key.id: key.name for key in await context.store.keys.list(org_id)})
    return names


def _order(call: Call, job: Job, note: str | None = None) -> Order:
    return Order(org_id=job.org_id, job_id=job.id, actor=call.principal.actor, note=note)


async def cancel(context: Context, call: Call) -> None:
    """`POST /commands/{uuid}/cancel`: cancel, or ask for it when the agent is at work."""
    call.query(frozenset())
    body = await call.body(BODY_MAX)
    message = decode(_cancel, body or b"{}")
    refuse_nul(body, message)
    job = await _find(context, call, _uuid(call))
    # Asked again after a lost reply, the answer is the same.
    if job.state != State.CANCELLED:
        answer = await context.store.cancel(_order(call, job, message.reason))
        if isinstance(answer, Problem):
            raise _in_words(answer, "{} and can no longer be cancelled")
        job = await _find(context, call, job.id)
    await call.json(await _view(context, job))


def _in_words(problem: Problem, words: str) -> Problem:
    """A conflict with the command's state, in this system's words."""
    if problem.problem != "state-conflict":
        return problem
    status = status_of(str(problem.extra["job_state"]))
    return Problem("state-conflict", f"the command is {words.format(status)}", **problem.extra)


async def ack(context: Context, call: Call) -> None:
    """`POST /commands/{uuid}/ack`: the secrets of the result are gone with this reply."""
    call.query(frozenset())
    await call.body(BODY_MAX)
    job = await _find(context, call, _uuid(call))
    if not _sees_secrets(call.principal, job):
        call.principal.require(SECRETS)
    answer = await context.store.ack(_order(call, job))
    if isinstance(answer, Problem):
        raise _in_words(answer, "{}; there is nothing to acknowledge before it is over")
    await call.json(await _view(context, job), headers=(_NO_STORE,))


async def retry(context: Context, call: Call) -> None:
    """`POST /commands/{uuid}/retry`: the same command again, as a new one linked to it."""
    call.query(frozenset())
    await call.body(BODY_MAX)
    job = await _find(context, call, _uuid(call))
    policy = context.desk.policies.get(job.kind)
    if policy is None:
        raise Problem("unsupported-type", f"the type {job.kind.removeprefix(FAMILY)!r} is no longer declared")
    agent = await context.desk.agent(job.org_id, job.lane)
    if agent is None or agent.state == "revoked":
        raise Problem("unknown-agent", "the command's agent has been revoked; issue a new one to another")
    done = await context.store.retry(Retry(order=_order(call, job), policy=policy))
    if isinstance(done, Problem):
        done = _in_words(done, "{}; only one that is over, or uncertain, can be retried")
    await _reply_made(context, call, done)
