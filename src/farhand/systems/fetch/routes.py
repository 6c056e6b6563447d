"""The routes of the fetch system: what was counted, and the devices' dialect."""

from farhand.engine.case import ROOT_SUBJECT
from farhand.model.errors import Problem
from farhand.model.ids import parse_id
from farhand.protocol.fetch import FetchCounters
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.routes import Route
from farhand.systems.fetch import pages
from farhand.systems.fetch.counts import counters
from farhand.systems.fetch.dialects.pulsar import Pulsar


def routes() -> list[Route]:
    """Figures for those who submit and who own agents; and the pulsar dialect."""
    return [
        Route(method="GET", path="/stats", handler=own_stats, grant="jobs.read", tag="fetch",
              summary="What was fetched for the caller's user", replies={200: FetchCounters}),
        Route(method="GET", path="/agents/{id}/stats", handler=agent_stats, grant="agents.read", tag="fetch",
              summary="What an agent has fetched", replies={200: FetchCounters}),
        *Pulsar().routes(),
        *pages.routes(),
    ]  # fmt: skip


async def own_stats(context: Context, call: Call) -> None:
    """`GET /stats`: everything that the keys of the caller's user have had fetched."""
    call.query(frozenset())
    principal = call.principal
    subjects = await context.store.keys.of_user(principal.org_id, principal.user_id)
    if principal.user_id == await context.store.registry.first_user(principal.org_id):
        # Whoever holds the root token stands for the first user.
        subjects.append(ROOT_SUBJECT)
    await call.json(await counters(context, principal.org_id, subjects))


async def agent_stats(context: Context, call: Call) -> None:
    """`GET /agents/{id}/stats`: what an agent has fetched, whoever wanted it."""
    call.query(frozenset())
    agent_id = parse_id(call.params[0])
    agent = await context.desk.agent(call.principal.org_id, agent_id) if agent_id is not None else None
    if agent is None or agent.state == "pending":
        raise Problem("not-found", "there is no agent with this id, or it is not yours")
    await call.json(await counters(context, agent.org_id, (agent.id,)))
