"""A fetch through server and agent against the direct request; the guard; 1,000 devices that claim."""

import dataclasses
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Bound, Context, LoadFailed, Measure, Row, at_least, at_most
from bench.proc import pin
from bench.servers import FLOOR, Server, Variant

ORDER = 67
SCENARIOS = "bench.fetching"
POLL_S = 3
SERVER = "[fetch]\nloopback = true\n"
AGENT = """
server = "http://127.0.0.1:{port}"
name = "bench"
data = "state"
[fetch]
loopback = true
ports = []
per_host_per_second = 0
"""


def run(context: Context) -> Measure:
    """SQLite, one native agent with a held poll for the latency; devices without agents behind them."""
    short = context.options.short
    if context.options.ours.name != "farhand":
        raise LoadFailed("the stand-ins do not fetch")
    with context.folder() as folder, context.serving(_fetching(context, folder), FLOOR) as (ours, target):
        guard = context.scenario(
            SCENARIOS,
            scenario="guard",
            target_port=target.port,
            count=100 if short else 500,
            rounds=max(3, context.options.rounds),
        )
        with _agent(ours, folder):
            latency = context.scenario(
                SCENARIOS,
                scenario="latency",
                port=ours.port,
                token=ours.token,
                target_port=target.port,
                count=50 if short else 500,
            )
        count = 100 if short else 1_000
        devices = context.scenario(
            SCENARIOS,
            scenario="devices",
            port=ours.port,
            token=ours.token,
            pid=ours.pid,
            count=count,
            few=10,
            seconds=context.options.seconds,
            rounds=context.options.rounds,
        )
    return Measure(
        name="fetch",
        rows=[_latency_row(latency), *_guard_rows(guard["rounds"]), *_device_rows(devices["rounds"], count)],
        details={"latency": latency, "guard": guard, "devices": devices},
    )


def _fetching(context: Context, folder: Path) -> Variant:
    settings = folder / "farhand.toml"
    settings.write_text(SERVER)
    ours = context.options.ours
    return dataclasses.replace(ours, command=(*ours.command, "--config", str(settings)))


@contextmanager
def _agent(server: Server, folder: Path) -> Generator[None]:
    """A native agent on the core of the load generator, which sleeps while the agent works."""
    place = folder / "agent"
    place.mkdir()
    (place / "agent.toml").write_text(AGENT.format(port=server.port))
    farhand = Path(sys.executable).parent / "farhand"
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [farhand, "agent", "run", "--config", place / "agent.toml", "--log", "warning"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: pin(1),
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(place)


def _latency_row(found: dict[str, Any]) -> Row:
    through, direct = found["through"], found["direct"]
    return Row(
        measure=f"fetch: result beyond the direct request, p50 of {through['n']}",
        ours=f"{through['p50']:.2f} ms (p95 {through['p95']:.2f})",
        baseline=f"{direct['p50']:.2f} ms (p95 {direct['p95']:.2f})",
        value=through["p50"] - direct["p50"],
        unit="ms",
        to_land=at_most(15),
        goal=at_most(8),
    )


def _guard_rows(rounds: list[dict[str, Any]]) -> list[Row]:
    def against(baseline: str, words: str, figure: str, bound: Bound | None) -> Row:
        return Row(
            measure=f"fetch: a guarded request against {words}",
            ours=f"{median(one['guarded'][figure] for one in rounds):.0f} µs",
            baseline=f"{median(one[baseline][figure] for one in rounds):.0f} µs",
            value=median(one["guarded"][figure] / one[baseline][figure] for one in rounds),
            to_land=bound,
        )

    return [
        against("plain", "an HTTP client without it (httpx2), CPU", "cpu_us", at_most(1.5)),
        against("plain", "an HTTP client without it (httpx2), clock", "clock_us", None),
        against("bare", "the bare core under it (httpcore2), CPU", "cpu_us", None),
    ]


def _device_rows(rounds: list[dict[str, Any]], count: int) -> list[Row]:
    def figure(who: str, what: str, name: str) -> float:
        return median(float(one[who][what][name]) for one in rounds)

    def many_to_few(what: str, name: str) -> float:
        return median(one["many"][what][name] / one["few"][what][name] for one in rounds)

    cpu_us = figure("many", "idle", "cpu_us")
    return [
        Row(
            measure=f"fetch: claims without work, {count:,} devices against 10",
            ours=f"{figure('many', 'idle', 'claims_per_s'):.0f}/s, {cpu_us:.0f} µs CPU each",
            baseline=f"{figure('few', 'idle', 'claims_per_s'):.0f}/s",
            value=many_to_few("idle", "claims_per_s"),
            to_land=at_least(0.7),
        ),
        Row(
            measure=f"fetch: submit, claim, callback, {count:,} devices against 10",
            ours=f"{figure('many', 'work', 'jobs_per_s'):.0f} jobs/s",
            baseline=f"{figure('few', 'work', 'jobs_per_s'):.0f} jobs/s",
            value=many_to_few("work", "jobs_per_s"),
            to_land=at_least(0.7),
        ),
        Row(
            measure=f"fetch: 1,000 idle devices, a claim every {POLL_S} s, of one core",
            ours="",
            baseline="",
            value=cpu_us * 1_000 / POLL_S / 1e4,
            unit="%",
            to_land=None,
        ),
    ]
