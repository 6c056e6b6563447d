"""The native agent in steady state and in batches of 32, against our own unbatched rate."""

from bench.measure import Context, Measure, Row, at_least, interleaved, middle, ratio
from bench.servers import FLOOR

ORDER = 20
BATCH_WINDOW = 2


def run(context: Context) -> Measure:
    """16 submitters and 16 agents; the settle carries the next claim and the claim the payload."""
    options = context.options
    with context.serving(options.ours, FLOOR) as (ours, floor):
        rounds = interleaved(
            options.rounds,
            {
                "unbatched": lambda: context.flow(ours, "seed"),
                "native": lambda: context.flow(ours, "native"),
                "batch": lambda: context.flow(ours, "batch", window=BATCH_WINDOW),
                "floor native": lambda: context.flow(floor, "native"),
                "floor batch": lambda: context.flow(floor, "batch", window=BATCH_WINDOW),
            },
        )
    rate = {name: middle(results, "jobs_per_s") for name, results in rounds.items()}
    filled = middle(rounds["batch"], "jobs_per_claim")
    return Measure(
        name="native",
        rows=[
            Row(
                measure="native agent against unbatched",
                ours=f"{rate['native']:.0f} jobs/s",
                baseline=f"{rate['unbatched']:.0f} jobs/s",
                value=ratio(rounds, "native", "unbatched", "jobs_per_s"),
                to_land=at_least(1.3),
                goal=at_least(1.6),
            ),
            Row(
                measure="batches of 32 against unbatched",
                ours=f"{rate['batch']:.0f} jobs/s, {filled:.0f} a claim",
                baseline=f"{rate['unbatched']:.0f} jobs/s",
                value=ratio(rounds, "batch", "unbatched", "jobs_per_s"),
                to_land=at_least(8),
                goal=at_least(12),
            ),
        ],
        details={"rounds": rounds, "jobs_per_s": rate},
    )
