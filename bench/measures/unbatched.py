"""Jobs a second over the whole life, one request per step, against the seed's design and the floor."""

from bench.measure import Context, Measure, Row, at_least, interleaved, middle, ratio
from bench.servers import FLOOR, SEED

ORDER = 10


def run(context: Context) -> Measure:
    """16 submitters and 16 agents in a closed loop: submit, claim, payload, result, state."""
    options = context.options
    with context.serving(options.ours, FLOOR, SEED) as (ours, floor, seed):
        rounds = interleaved(
            options.rounds,
            {
                "ours": lambda: context.flow(ours, "seed"),
                "floor": lambda: context.flow(floor, "seed"),
                "seed": lambda: context.flow(seed, "seed"),
            },
        )
    rate = {name: middle(results, "jobs_per_s") for name, results in rounds.items()}
    cpu = {name: middle(results, "server_cpu_us_per_job") for name, results in rounds.items()}
    text = {name: f"{rate[name]:.0f} jobs/s, {cpu[name]:.0f} µs" for name in rate}
    return Measure(
        name="unbatched",
        rows=[
            Row(
                measure="unbatched jobs/s against the seed design",
                ours=text["ours"],
                baseline=text["seed"],
                value=ratio(rounds, "ours", "seed", "jobs_per_s"),
                to_land=at_least(3.0),
                goal=at_least(3.5),
            ),
            Row(
                measure="unbatched jobs/s against the floor",
                ours=text["ours"],
                baseline=text["floor"],
                value=ratio(rounds, "ours", "floor", "jobs_per_s"),
                to_land=at_least(0.28),
                goal=at_least(0.45),
            ),
        ],
        details={"rounds": rounds, "jobs_per_s": rate, "server_cpu_us_per_job": cpu},
    )
