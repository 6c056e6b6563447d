"""What deleting old jobs does to a submit meanwhile."""

from bench.measure import Context, Measure, Row, at_most
from bench.servers import Server, product

ORDER = 80
SINK = "sink"


def run(context: Context) -> Measure:
    """Two servers with as many finished jobs: one deletes them, the other keeps them. SQLite."""
    short = context.options.short
    finished = 4_000 if short else 100_000
    ours_variant = product()

    def aged(server: Server, *, prunable: bool) -> None:
        server.stop()
        url = f"sqlite:///{server.data / 'farhand.db'}"
        context.stored("aged", url=url, finished=finished, prunable=prunable)
        server.start()

    with context.serving(ours_variant, ours_variant) as (ours, twin):
        (sink,) = context.load(ours, "register", prefix=SINK, count=1)["printer_ids"]
        (twin_sink,) = context.load(twin, "register", prefix=SINK, count=1)["printer_ids"]
        aged(twin, prunable=False)
        aged(ours, prunable=True)
        result = context.load(
            ours,
            "pruned",
            sink=sink,
            twin_port=twin.port,
            twin_token=twin.token,
            twin_sink=twin_sink,
            seconds=60 if short else 600,
        )
    disturbed, undisturbed = result["disturbed_ms"], result["undisturbed_ms"]
    context.say(f"{result['pruned']:,} jobs went in {result['seconds']} s")
    return Measure(
        name="pruned",
        rows=[
            Row(
                measure=f"submit p99 while {finished:,} finished jobs are pruned (n = {disturbed['n']:,})",
                ours=f"{disturbed['p99']:.2f} ms",
                baseline=f"{undisturbed['p99']:.2f} ms",
                value=disturbed["p99"] / undisturbed["p99"],
                to_land=at_most(4),
                goal=at_most(2),
            )
        ],
        details=result,
    )
