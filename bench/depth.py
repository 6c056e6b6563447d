"""The cost of a claim in databases of very different size.

Rows are made by copying rows that the Store itself wrote, so they are what a million jobs would have left
behind. What is timed is the transaction without its commit: the disk would hide the difference.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from statistics import quantiles
from typing import Any

import msgspec

from bench.callers import ORG, Caller, CommandCaller, everyone, opened
from bench.wire import Refused
from farhand.model.job import Attempt, Job
from farhand.storage.statements import columns
from farhand.storage.store import Store

LANES = 16
READY = 1_000
WARM = 5


class Place(msgspec.Struct, kw_only=True):
    """A database and what it is filled with, beside the 1,000 jobs that are queued in each."""

    name: str
    url: str
    queued: int = 0
    finished: int = 0


class Depth(msgspec.Struct, kw_only=True, tag_field="scenario", tag="depth"):
    """Claims in turn from each place, before and after the database gathered statistics.

    Of print jobs, or of commands.
    """

    places: list[Place]
    claims: int
    commands: bool = False


class Aged(msgspec.Struct, kw_only=True, tag_field="scenario", tag="aged"):
    """Fill a database with finished jobs that are to be pruned now, or in a day."""

    url: str
    finished: int
    prunable: bool


class Timed:
    """Times what the store does inside the next transactions, up to their commit."""

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._transaction = store.database.transaction
        self.took = 0.0
        store.writer.database.transaction = self._timed  # type: ignore[method-assign]  (the bench looks inside)

    @contextlib.asynccontextmanager
    async def _timed(self) -> AsyncGenerator[Any]:
        async with self._transaction() as tx:
            started = time.perf_counter()
            yield tx
            self.took += time.perf_counter() - started


async def measure_depth(wanted: Depth) -> dict[str, Any]:
    """Fill the places, then claim from each in turn."""
    async with contextlib.AsyncExitStack() as stack:
        scenes: dict[str, Scene] = {}
        stores: list[Store] = []
        filled: dict[str, float] = {}
        for place in wanted.places:
            store = await stack.enter_async_context(opened(place.url))
            kind = CommandCaller if wanted.commands else Caller
            callers: list[Caller] = [kind(store=store) for _ in range(LANES)]
            started = time.perf_counter()
            await _fill(store, place, callers)
            filled[place.name] = round(time.perf_counter() - started, 1)
            stores.append(store)
            scenes[place.name] = (Timed(store), callers)
        bare = await _rounds(wanted, scenes)
        for store in stores:
            await execute(store, "ANALYZE")
        analysed = await _rounds(wanted, scenes)
    return {"fill_s": filled, "claim_us": {"bare": bare, "analysed": analysed}}


async def make_aged(wanted: Aged) -> dict[str, Any]:
    """Finished jobs and their counters, as if the server had worked for a month."""
    async with opened(wanted.url) as store:
        callers = [Caller(store=store) for _ in range(LANES)]
        await everyone(callers, lambda caller: caller.life())
        await _copy(store, wanted.finished, with_history=True)
        now = store.clock.now_ms()
        prune_at = now - 1 if wanted.prunable else now + 86_400_000
        await execute(store, f"UPDATE jobs SET prune_at = {prune_at} WHERE prune_at IS NOT NULL")
        async with store.database.transaction() as tx:
            counted = {"slot": store.database.slot, "org_id": ORG, "kind": "print.raw", "state": "done"}
            await tx.run("add_count", {**counted, "delta": wanted.finished, "now": now})
    return {"finished": wanted.finished + LANES}


Scene = tuple[Timed, list[Caller]]


async def _rounds(wanted: Depth, scenes: dict[str, Scene]) -> dict[str, dict[str, float]]:
    """Microseconds of a claim alone in its transaction, and of one in a batch over all lanes.

    The places take turns claim by claim, so that a slow moment of the machine meets all of them. What counts
    is the lower quartile: a statement that was held up by another process says nothing about its own cost.
    """
    alone: dict[str, list[float]] = {name: [] for name in scenes}
    together: dict[str, list[float]] = {name: [] for name in scenes}
    for number in range(-WARM, wanted.claims):
        for name, (timed, callers) in scenes.items():
            one = await _claim_of(timed, callers[number % LANES :][:1])
            batch = await _claim_of(timed, callers)
            # The first ones fill caches and plan statements.
            if number >= 0:
                alone[name].append(one)
                together[name].append(batch)
    return {
        kind: {name: round(quantiles(values)[0], 1) for name, values in found.items()}
        for kind, found in (("alone", alone), ("batch", together))
    }


async def _claim_of(timed: Timed, callers: list[Caller]) -> float:
    """What is claimed is replaced and carried to its end, so that every claim finds the same depth."""
    await everyone(callers, lambda caller: caller.submit())
    timed.took = 0.0
    claimed = await asyncio.gather(*(caller.claim() for caller in callers))
    took = timed.took
    await asyncio.gather(*(_end(caller, mine.job.id) for caller, mine in zip(callers, claimed, strict=True)))
    return took * 1e6 / len(callers)


async def _end(caller: Caller, job_id: bytes) -> None:
    await caller.start(job_id)
    await caller.settle(job_id)


async def _fill(store: Store, place: Place, callers: list[Caller]) -> None:
    """One real job in every lane as the pattern, copied as often as is asked; then the ready ones."""
    if place.finished:
        await everyone(callers, lambda caller: caller.life())
        await _copy(store, place.finished, with_history=True)
    await everyone(callers, lambda caller: caller.submit())
    await _copy(store, max(place.queued, READY), with_history=False)
    (counted,) = await execute(store, "SELECT COUNT(*) FROM jobs WHERE state = 'queued'")
    if counted[0] != max(place.queued, READY) + LANES:
        raise Refused(f"{counted[0]} jobs are queued in {place.name}")


_EVENTS = (
    "number, org_id, created_at, actor_kind, actor_id, verb, from_state, to_state, attempt, reason, data"
)
_PAYLOADS = "org_id, size, sha256, body, created_at"
_JOBS = ", ".join(name for name in columns(Job) if name not in ("seq", "id"))
_ATTEMPTS = ", ".join(name for name in columns(Attempt) if name != "job_seq")


async def _copy(store: Store, count: int, *, with_history: bool) -> None:
    """Copy the last LANES jobs until there are `count` more; ids grow with time as real ones do."""
    shared = store.database.shared
    clock = "1767225600000 + c.n / 5"
    if shared:
        numbers = f"SELECT n FROM generate_series(0, {count - 1}) AS g (n)"
        new_id = (
            f"CAST(lpad(to_hex({clock}), 12, '0') || '7000' || substr(md5(random()::text), 1, 16) AS UUID)"
        )
    else:
        counted = f"SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < {count - 1}"
        numbers = f"WITH RECURSIVE g (n) AS ({counted}) SELECT n FROM g"
        new_id = f"CAST(unhex(printf('%012x7000', {clock})) || randomblob(8) AS BLOB)"
    # Copies refer to what their pattern refers to: that need not be proved seven million times.
    statements = ["SET LOCAL session_replication_role = replica"] if shared else []
    statements += [
        "CREATE TEMPORARY TABLE pattern AS SELECT seq - (SELECT MAX(seq) FROM jobs)"
        f" + {LANES - 1} AS place, seq FROM jobs ORDER BY seq DESC LIMIT {LANES}",
        f"CREATE TEMPORARY TABLE copied AS SELECT n + (SELECT MAX(seq) + 1 FROM jobs) AS new, p.seq AS old, n"
        f" FROM ({numbers}) AS g INNER JOIN pattern AS p ON p.place = g.n % {LANES}",
        _copying("jobs", f"seq, id, {_JOBS}", f"c.new, {new_id}, {_JOBS}", "seq"),
        _copying("payloads", f"job_seq, {_PAYLOADS}", f"c.new, {_PAYLOADS}", "job_seq"),
        _copying("events", f"job_seq, {_EVENTS}", f"c.new, {_EVENTS}", "job_seq"),
    ]
    if with_history:
        statements.append(_copying("attempts", f"job_seq, {_ATTEMPTS}", f"c.new, {_ATTEMPTS}", "job_seq"))
    if shared:
        statements.append("SELECT setval(pg_get_serial_sequence('jobs', 'seq'), MAX(seq)) FROM jobs")
    await execute(store, *statements, "DROP TABLE copied", "DROP TABLE pattern")


def _copying(table: str, into: str, values: str, key: str) -> str:
    return (
        f"INSERT INTO {table} ({into}) SELECT {values}"
        f" FROM copied AS c INNER JOIN {table} AS t ON t.{key} = c.old ORDER BY c.new"
    )


async def execute(store: Store, *statements: str) -> Sequence[Sequence[Any]]:
    """Run statements that are not the product's on its own writing connection; the rows of the last."""
    rows: Sequence[Sequence[Any]] = []
    async with store.database.transaction() as tx:
        connection: Any = tx._connection  # type: ignore[attr-defined]  (the bench looks inside)
        for statement in statements:
            if store.database.shared:
                rows = await connection.fetch(statement, timeout=900)
            else:
                rows = connection.execute(statement).fetchall()
    return rows
