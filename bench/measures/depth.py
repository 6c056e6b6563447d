"""The cost of a claim with very many jobs queued, and with very many finished."""

from typing import Any

from bench import postgres
from bench.measure import Context, Measure, Row, at_most

ORDER = 60
NAMES = ("small", "queued", "finished")


def run(context: Context) -> Measure:
    """16 lanes; alone in its transaction and in a batch, with statistics and without; the worst counts."""
    short = context.options.short
    count = 50_000 if short else 1_000_000
    rows: list[Row] = []
    details: dict[str, Any] = {}
    with context.folder() as folder:
        urls = [f"sqlite:///{folder / name}.db" for name in NAMES]
        details["sqlite"] = result = _measured(context, urls, count)
    rows += _rows("SQLite", result, count)
    with postgres.running() as server:
        if server is None:
            skipped = "skipped: no PostgreSQL here"
            rows.append(
                Row(measure="claim cost, PostgreSQL", ours=skipped, baseline="", value=0.0, to_land=None)
            )
        else:
            # What the database would clean up by itself must not fall into one of the rounds.
            server.execute("ALTER SYSTEM SET autovacuum = off")
            server.execute("SELECT pg_reload_conf()")
            urls = [server.url(server.create()) for _ in NAMES]
            details["postgres"] = result = _measured(context, urls, count)
            rows += _rows("PostgreSQL", result, count)
    return Measure(name="depth", rows=rows, details=details)


def _measured(context: Context, urls: list[str], count: int) -> dict[str, Any]:
    places: list[dict[str, Any]] = [
        {"name": name, "url": url, name: count} if name != "small" else {"name": name, "url": url}
        for name, url in zip(NAMES, urls, strict=True)
    ]
    short = context.options.short
    result = context.stored("depth", places=places, claims=15 if short else 200)
    context.say(f"filled in {result['fill_s']} s")
    return result


def _rows(database: str, result: dict[str, Any], count: int) -> list[Row]:
    rows: list[Row] = []
    for name in NAMES[1:]:
        trials = [trial for found in result["claim_us"].values() for trial in found.values()]
        worst = max(trials, key=lambda trial: trial[name] / trial["small"])
        rows.append(
            Row(
                measure=f"claim with {count:,} {name} against 1,000, {database}",
                ours=f"{worst[name]:.0f} µs",
                baseline=f"{worst['small']:.0f} µs",
                value=worst[name] / worst["small"],
                to_land=at_most(2.0),
                goal=at_most(1.3),
            )
        )
    return rows
