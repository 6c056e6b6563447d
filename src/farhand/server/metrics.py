"""Figures for Prometheus, gathered when they are asked for."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from farhand.engine.registry import online
from farhand.server.context import Context

AGENTS_COUNTED = 10_000


class _Snapshot:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The gathered families."""
        return self._families


async def exposition(context: Context, org_id: int) -> bytes:
    """All figures in the Prometheus text format: a tenant's jobs and agents, and the server's own."""
    jobs = GaugeMetricFamily("farhand_jobs", "Jobs by kind and state", labels=["kind", "state"])
    for kind, state, n in await context.store.counts(org_id):
        jobs.add_metric([kind, state], n)
    agents = GaugeMetricFamily(
        "farhand_agents", "Agents by state and whether seen", labels=["state", "online"]
    )
    now = context.clock.now_ms()
    tally: dict[tuple[str, str], int] = {}
    for agent in await context.store.registry.agents(org_id, None, AGENTS_COUNTED):
        last = max(agent.last_seen_at or 0, context.seen.get(agent.id, 0))
        key = (agent.state, str(online(last, now)).lower())
        tally[key] = tally.get(key, 0) + 1
    for (state, seen), n in sorted(tally.items()):
        agents.add_metric([state, seen], n)
    polls = GaugeMetricFamily(
        "farhand_held_polls", "Agents' polls that are being held", value=context.held.count
    )
    requests = CounterMetricFamily(
        "farhand_http_requests", "Answered requests", labels=["method", "route", "status"]
    )
    for (method, route, status), n in sorted(context.requests.items()):
        requests.add_metric([method, route, str(status)], n)
    commits_made, requests_carried = context.store.figures
    commits = CounterMetricFamily("farhand_commits", "Write transactions", value=commits_made)
    writes = CounterMetricFamily("farhand_writes", "Requests they carried", value=requests_carried)
    registry = CollectorRegistry()
    registry.register(_Snapshot([jobs, agents, polls, requests, commits, writes]))  # pyright: ignore[reportArgumentType]  (a collector by shape)
    return generate_latest(registry)
