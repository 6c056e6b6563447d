"""Work on its way to an agent: held until there is some, and taken back when nobody will get it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from farhand.engine.requests import Act, Claimed, Release
from farhand.engine.wakeups import Ticket
from farhand.model.errors import Problem
from farhand.model.job import Dialect
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.lanes import lanes_of

Admit = Callable[[Context, Call], Awaitable[None]]


def working(call: Call) -> bool:
    """Whether the agent may take new work."""
    return call.principal.must_be_agent().state == "active"


async def await_jobs(
    context: Context,
    call: Call,
    ticket: Ticket,
    wait_ms: int,
    grant: str = "agent.work",
    admit: Admit | None = None,
) -> list[Claimed] | None:
    """The jobs of a claim, held while there are none; None when the client hung up.

    `admit` notes on the call who calls, where that is not said by a key. Raises Problem when the
    caller lost the grant, or its place as an agent, while it waited.
    """
    try:
        jobs = await ticket.first()
        hung_up = False
        if not jobs and wait_ms > 0:
            hung_up = await _hold(context, call, ticket, wait_ms)
        elif jobs and ticket.request.dialect == Dialect.SEED:
            hung_up = await call.is_gone()
        jobs = await ticket.settled()
    except BaseException:
        ticket.dismiss()
        raise
    if hung_up:
        # A native poll repeats itself and gets the same answer.
        seeds = [claimed for claimed in jobs if claimed.attempt.dialect == Dialect.SEED]
        await _give_back(context, seeds, "the agent hung up before the reply was written")
        return None
    if context.auth.epoch == call.epoch:
        return jobs
    return await _if_still_working(context, call, jobs, admit or partial(_by_key, grant=grant))


async def _by_key(context: Context, call: Call, *, grant: str) -> None:
    await context.auth.admit(call, grant)


async def _hold(context: Context, call: Call, ticket: Ticket, wait_ms: int) -> bool:
    """Wait until the claim is answered or the time is up; whether the client hung up meanwhile."""
    agent_id = call.principal.must_be_agent().id
    context.held.enter(agent_id, ticket)
    gone = asyncio.ensure_future(call.disconnected())
    try:
        await asyncio.wait((ticket.future, gone), timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        return gone.done()
    finally:
        gone.cancel()
        context.held.leave(agent_id, ticket)
        context.saw(agent_id)


async def _if_still_working(context: Context, call: Call, jobs: list[Claimed], admit: Admit) -> list[Claimed]:
    """The registry changed while the claim waited: an agent that was revoked or paused gets nothing."""
    try:
        await admit(context, call)
    except Problem:
        await _give_back(context, jobs, "the agent was revoked before the reply was written")
        raise
    if not jobs or working(call):
        return await _without_lost_lane(context, call, jobs)
    await _give_back(context, jobs, "the agent was paused before the reply was written")
    return []


async def _without_lost_lane(context: Context, call: Call, jobs: list[Claimed]) -> list[Claimed]:
    """An agent that lost a grant or an owner gets nothing of what it could claim by that."""
    mine = lanes_of(call.principal)
    kept = [entry for entry in jobs if entry.job.device_id is not None or entry.job.lane in mine]
    lost = [entry for entry in jobs if entry.job.device_id is None and entry.job.lane not in mine]
    await _give_back(context, lost, "the agent lost its right to this before the reply was written")
    return kept


async def _give_back(context: Context, jobs: list[Claimed], reason: str) -> None:
    """Jobs that nobody has heard of go back uncounted."""
    for claimed in jobs:
        act = Act(
            org_id=claimed.job.org_id,
            job_id=claimed.job.id,
            agent_id=claimed.attempt.agent_id,
            token=claimed.attempt.token,
        )
        await context.store.release(Release(act=act, reason=reason))
