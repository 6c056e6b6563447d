"""Commands against print jobs; a claim and a trail with very many commands finished."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from bench.measure import Context, Measure, Row, at_most, below

ORDER = 65
LIFE = ("submit", "claim", "start", "settle")
WORK = ("claim", "start", "settle")
"""A print job is started by taking its payload, a command by its claim: this far both have come as far."""
BARE = ("claim", "settle")


def run(context: Context) -> Measure:
    """SQLite, the Store alone: 64 callers of each kind by turns, then a database filled with commands."""
    short = context.options.short
    count = 50_000 if short else 1_000_000
    with context.folder() as folder:
        against = context.stored(
            "against",
            prints=f"sqlite:///{folder / 'prints'}.db",
            commands=f"sqlite:///{folder / 'commands'}.db",
            callers=64,
            turns=10 if short else 30,
            rounds=max(6, 2 * context.options.rounds),
        )
        filled = f"sqlite:///{folder / 'finished'}.db"
        places = [
            {"name": "small", "url": f"sqlite:///{folder / 'small'}.db"},
            {"name": "finished", "url": filled, "finished": count},
        ]
        depth = context.stored("depth", places=places, claims=15 if short else 100, commands=True)
        context.say(f"filled in {depth['fill_s']} s")
        trail = context.stored("trail", url=filled, reads=200 if short else 1000)
    return Measure(
        name="commands",
        rows=[*_against_rows(against["rounds"]), _depth_row(depth, count), _trail_row(trail)],
        details={"against": against, "depth": depth, "trail": trail},
    )


def _against_rows(rounds: list[dict[str, Any]]) -> list[Row]:
    bound = at_most(1.1)
    return [
        _against("claim to settle of a command against a print job, CPU", rounds, "cpu_us", WORK, bound),
        _against("whole life of a command against a print job, CPU", rounds, "cpu_us", LIFE, bound),
        _against("whole life of a command against a print job, clock", rounds, "clock_us", LIFE, bound),
        # The command's claim does two steps here and the print job's one: no bound, but nothing hidden.
        _against("claim and settle alone, without the print job's start, CPU", rounds, "cpu_us", BARE, None),
    ]


def _against(
    measure: str, rounds: list[dict[str, Any]], figure: str, steps: tuple[str, ...], bound: Any
) -> Row:
    def cost(found: Mapping[str, Any], kind: str) -> float:
        return sum(float(found[kind][figure][name]) for name in steps)

    ours, theirs = (median(cost(found, kind) for found in rounds) for kind in ("command", "print"))
    rate = figure == "clock_us"
    return Row(
        measure=measure,
        ours=f"{1e6 / ours:.0f} jobs/s" if rate else f"{ours:.0f} µs",
        baseline=f"{1e6 / theirs:.0f} jobs/s" if rate else f"{theirs:.0f} µs",
        value=median(cost(found, "command") / cost(found, "print") for found in rounds),
        to_land=bound,
    )


def _depth_row(depth: dict[str, Any], count: int) -> Row:
    trials = [trial for found in depth["claim_us"].values() for trial in found.values()]
    worst = max(trials, key=lambda trial: trial["finished"] / trial["small"])
    return Row(
        measure=f"claim of a command with {count:,} finished",
        ours=f"{worst['finished']:.0f} µs",
        baseline=f"{worst['small']:.0f} µs",
        value=worst["finished"] / worst["small"],
        to_land=at_most(2.0),
        goal=at_most(1.3),
    )


def _trail_row(trail: dict[str, Any]) -> Row:
    spent, troubled = trail["ms"], trail["troubled"]
    return Row(
        measure=f"trail of a command among {trail['events']:,} events, p95 of {trail['reads']:,}",
        ours=f"{spent['p95']:.2f} ms",
        baseline=f"{troubled['ms']:.2f} ms for {troubled['events']} events",
        value=spent["p95"],
        unit="ms",
        to_land=below(50),
    )
