"""From the submit until the agent holds the job, on a server with nothing else to do."""

from typing import Any

from bench.measure import Context, Measure, Row, at_least, at_most, interleaved, middle, ratio
from bench.servers import FLOOR, SEED, Server

ORDER = 30


def run(context: Context) -> Measure:
    """One parked agent, one submit at a time after a random pause."""
    short = context.options.short
    count = 30 if short else 100
    seed_count = 3 if short else 10

    def trial(server: Server, mode: str) -> dict[str, Any]:
        # The seed design looks once a second from the moment of the poll, so a pause of a fixed
        # length would always meet the same part of that second.
        slow = server.variant == SEED
        pause = (0, 1000) if slow else (20, 40)
        fields = {"mode": mode, "count": seed_count if slow else count, "pause_ms": pause}
        result = context.load(server, "idle", **fields)
        context.say(f"{server.variant.name} {mode}: held after {result['hold_ms']['p50']:.2f} ms")
        return result

    with context.serving(context.options.ours, FLOOR, SEED) as (ours, floor, seed):
        rounds = interleaved(
            1 if short else 3,
            {
                "ours": lambda: trial(ours, "seed"),
                "ours native": lambda: trial(ours, "native"),
                "floor": lambda: trial(floor, "seed"),
                "seed": lambda: trial(seed, "seed"),
            },
        )
    hold = {name: middle(results, "hold_ms", "p50") for name, results in rounds.items()}
    submit = {name: middle(results, "submit_ms", "p50") for name, results in rounds.items()}
    return Measure(
        name="idle",
        rows=[
            Row(
                measure="submit → agent holds the job, beyond the submit's own p50",
                ours=f"{hold['ours']:.2f} ms",
                baseline=f"{submit['ours']:.2f} ms",
                value=hold["ours"] - submit["ours"],
                unit="ms",
                to_land=at_most(1.0),
            ),
            Row(
                measure="the same with a native claim",
                ours=f"{hold['ours native']:.2f} ms",
                baseline=f"{submit['ours native']:.2f} ms",
                value=hold["ours native"] - submit["ours native"],
                unit="ms",
                to_land=at_most(1.0),
            ),
            Row(
                measure="submit → agent holds the job, faster than the seed design",
                ours=f"{hold['ours']:.2f} ms",
                baseline=f"{hold['seed']:.0f} ms",
                value=ratio(rounds, "seed", "ours", "hold_ms", "p50"),
                to_land=at_least(100),
            ),
        ],
        details={"rounds": rounds, "hold_p50_ms": hold, "submit_p50_ms": submit},
    )
