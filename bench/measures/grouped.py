"""The store with 64 callers: transactions that many requests share against one transaction each."""

from collections.abc import Callable
from typing import Any

from bench import postgres
from bench.measure import Context, Measure, Row, at_least, interleaved, middle, ratio
from bench.postgres import Postgres

ORDER = 50
CALLERS = 64
POOL = 32

Trial = Callable[[], dict[str, Any]]


def run(context: Context) -> Measure:
    """Submit, claim, start, settle on the same statements, and every write awaited to its commit."""
    sqlite = interleaved(
        context.options.rounds,
        {name: _on_sqlite(context, solo=name == "solo") for name in ("grouped", "solo")},
    )
    rows = [_row(sqlite, f"{CALLERS} callers: group commit, SQLite", 8)]
    details: dict[str, Any] = {"sqlite": sqlite}
    with postgres.running() as server:
        if server is None:
            rows.append(
                Row(
                    measure=f"{CALLERS} callers: group commit, PostgreSQL",
                    ours="skipped: no PostgreSQL here",
                    baseline="",
                    value=0.0,
                    to_land=None,
                )
            )
        else:
            pg = interleaved(
                context.options.rounds,
                {name: _on_postgres(context, server, solo=name == "solo") for name in ("grouped", "solo")},
            )
            details["postgres"] = pg
            rows.append(_row(pg, f"{CALLERS} callers: batches against {POOL} connections, PostgreSQL", 5))
    return Measure(name="grouped", rows=rows, details=details)


def _on_sqlite(context: Context, *, solo: bool) -> Trial:
    def trial() -> dict[str, Any]:
        # A fresh file for each trial: none inherits what another one left.
        with context.folder() as folder:
            url = f"sqlite:///{folder / 'store.db'}"
            return context.stored("life", url=url, solo=solo, **_timing(context))

    return lambda: _told(context, "SQLite", solo, context.undisturbed(trial))


def _on_postgres(context: Context, server: Postgres, *, solo: bool) -> Trial:
    """The pool has the store's own settings of its connections, and 32 of them at work at once."""

    def trial() -> dict[str, Any]:
        name = server.create()
        fields = {"solo": solo, "writers": POOL if solo else None, "pid": server.pid, **_timing(context)}
        try:
            return context.stored("life", url=server.url(name), **fields)
        finally:
            server.drop(name)

    return lambda: _told(context, "PostgreSQL", solo, context.undisturbed(trial))


def _timing(context: Context) -> dict[str, Any]:
    # Every connection of the pool has to have prepared its statements.
    warm = 3 * context.options.warm
    return {"callers": CALLERS, "warm": warm, "seconds": context.options.seconds}


def _told(context: Context, where: str, solo: bool, result: dict[str, Any]) -> dict[str, Any]:
    context.say(
        f"{where} {'one by one' if solo else 'grouped'}: {result['jobs_per_s']:.0f} jobs/s,"
        f" {result['requests_per_commit']:.0f} requests a commit, {result['cpu_us_per_job']:.0f}"
        f" + {result['database_cpu_us_per_job']:.0f} µs a job, others {result['others_busy']:.0%}"
    )
    return result


def _row(rounds: dict[str, list[dict[str, Any]]], measure: str, to_land: float) -> Row:
    rate = {name: middle(results, "jobs_per_s") for name, results in rounds.items()}
    filled = middle(rounds["grouped"], "requests_per_commit")
    return Row(
        measure=measure,
        ours=f"{rate['grouped']:.0f} jobs/s, {filled:.0f} a commit",
        baseline=f"{rate['solo']:.0f} jobs/s",
        value=ratio(rounds, "grouped", "solo", "jobs_per_s"),
        to_land=at_least(to_land),
    )
