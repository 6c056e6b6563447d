"""How much was fetched: per session, per agent, and by the keys of a user."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from farhand.protocol.fetch import FetchCounters
from farhand.server.context import Context

NAMES: Final = ("claims", "jobs_done", "jobs_failed", "jobs_refused", "bytes_out")


async def counters(context: Context, org_id: int, subjects: Iterable[bytes]) -> FetchCounters:
    """The figures of these subjects together."""
    total: Counter[str] = Counter()
    for subject in subjects:
        total.update(await context.store.counters(org_id, subject))
    return FetchCounters(**{name: total[name] for name in NAMES})
