"""10,000 held polls: memory, CPU while nothing happens, and what they do to a submit."""

from bench.measure import Context, Measure, Row, at_most, below

ORDER = 40
PREFIX = "held"
SINK = "sink"


def run(context: Context) -> Measure:
    """Register the agents, restart the server so that its memory begins anew, park, rest, submit, renew.

    An unloaded twin of the server takes the other half of the submits in alternating blocks, so that a slow
    moment of the disk meets both.
    """
    options = context.options
    count = 200 if options.short else 10_000
    submits = 300 if options.short else 3000
    wait_s = 8 if options.short else 55
    quiet_s = 2 if options.short else 20
    with context.serving(options.ours, options.ours) as (ours, twin):
        printer_ids = context.load(ours, "register", prefix=PREFIX, count=count)["printer_ids"]
        (sink,) = context.load(ours, "register", prefix=SINK, count=1)["printer_ids"]
        (twin_sink,) = context.load(twin, "register", prefix=SINK, count=1)["printer_ids"]
        ours.restart()
        twin.restart()
        result = context.load(
            ours,
            "held",
            prefix=PREFIX,
            count=count,
            printer_ids=printer_ids[: 20 if options.short else 100],
            sink=sink,
            twin_port=twin.port,
            twin_token=twin.token,
            twin_sink=twin_sink,
            wait_s=wait_s,
            quiet_s=quiet_s,
            submits=submits,
        )
    loaded, unloaded = result["submit_loaded_ms"], result["submit_unloaded_ms"]
    memory = f"{result['rss_before_mib']} → {result['rss_after_mib']} MiB"
    return Measure(
        name="held",
        rows=[
            Row(
                measure=f"{count:,} held polls, resident each",
                ours=memory,
                baseline="",
                value=result["kib_per_poll"],
                unit="KiB",
                to_land=at_most(20),
                goal=at_most(13),
            ),
            Row(
                measure=f"CPU in the {quiet_s} s after parking",
                ours=f"{result['ended_in_rest']} polls ended meanwhile",
                baseline="",
                value=result["rest_cpu_percent"],
                unit="%",
                to_land=below(2),
            ),
            Row(
                measure="re-polling, CPU each",
                ours=f"{result['renewed']:,} renewed",
                baseline="",
                value=result["renew_cpu_us"],
                unit="µs",
                to_land=None,
            ),
            Row(
                measure=f"submit p95 with the polls parked (n = {loaded['n']:,})",
                ours=f"{loaded['p95']:.2f} ms",
                baseline=f"{unloaded['p95']:.2f} ms",
                value=loaded["p95"] / unloaded["p95"],
                to_land=at_most(1.5),
            ),
        ],
        details=result,
    )
