"""CPU of each hot request against the floor plus the same operation in the store alone."""

from typing import Any

from bench.measure import Context, Measure, Row, at_most, interleaved, middle
from bench.servers import FLOOR
from bench.steps import NAMES

ORDER = 90
PAIRS = 16


def run(context: Context) -> Measure:
    """Submit, claim, payload, result and state, one kind at a time, 16 callers. SQLite in the store."""
    options = context.options
    jobs = 60 if options.short else 300

    def stored(callers: int) -> dict[str, Any]:
        with context.folder() as folder:
            url = f"sqlite:///{folder / 'store.db'}"
            return context.stored("steps", url=url, callers=callers, jobs=PAIRS * jobs // callers)

    with context.serving(options.ours, FLOOR) as (ours, floor):
        # The store runs with as many callers as a commit of the server carried requests.
        first = context.load(ours, "steps", pairs=PAIRS, jobs=jobs)
        filled = [first["writes_per_commit"][name] for name in NAMES if name != "state"]
        callers = max(1, min(PAIRS, round(sum(filled) / len(filled))))
        rounds = interleaved(
            1 if options.short else 3,
            {
                "ours": lambda: context.load(ours, "steps", pairs=PAIRS, jobs=jobs),
                "floor": lambda: context.load(floor, "steps", pairs=PAIRS, jobs=jobs),
                "store": lambda: stored(callers),
            },
        )
    rows: list[Row] = []
    cpu = {who: {name: middle(results, "cpu_us", name) for name in NAMES} for who, results in rounds.items()}
    for name in (*NAMES, "all five"):
        part = {who: sum(found.values()) if name == "all five" else found[name] for who, found in cpu.items()}
        rows.append(
            Row(
                measure=f"CPU of a request: {name}",
                ours=f"{part['ours']:.0f} µs",
                baseline=f"{part['floor']:.0f} + {part['store']:.0f} µs",
                value=part["ours"] / (part["floor"] + part["store"]),
                to_land=at_most(1.7),
                goal=at_most(1.3),
            )
        )
    return Measure(name="requests", rows=rows, details={"rounds": rounds, "cpu_us": cpu, "callers": callers})
