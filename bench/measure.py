"""What a measure is given and what it gives back."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.servers import ROOT, Server, Variant, new_server

LOAD_TIMEOUT_S = 1200
TRIES = 3
UNDISTURBED = 0.15


class LoadFailed(Exception):
    """A trial of the load generator that ended with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit that a value must reach (`at_least`) or stay under (`at most`)."""

    limit: float
    at_least: bool = True
    strict: bool = False

    def met_by(self, value: float) -> bool:
        if self.at_least:
            return value >= self.limit
        return value < self.limit if self.strict else value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "<" if self.strict else "≤"
        return f"{sign} {self.limit:g}"


def at_least(limit: float) -> Bound:
    return Bound(limit=limit)


def at_most(limit: float) -> Bound:
    return Bound(limit=limit, at_least=False)


def below(limit: float) -> Bound:
    return Bound(limit=limit, at_least=False, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: `value` (a ratio unless `unit` says otherwise) is held against the bounds."""

    measure: str
    ours: str
    baseline: str
    value: float
    unit: str = "×"
    to_land: Bound | None
    goal: Bound | None = None

    @property
    def verdict(self) -> str:
        if self.to_land is None:
            return "shown"
        if not self.to_land.met_by(self.value):
            return "missed"
        if self.goal is None or self.goal.met_by(self.value):
            return "goal"
        return "lands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The rows of one measure and the figures behind them, round by round."""

    name: str
    rows: Sequence[Row]
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`short` keeps a measure to a few seconds. `extra_pids`: other processes whose CPU counts as ours."""

    short: bool
    rounds: int
    seconds: float
    ours: Variant
    database: str | None
    extra_pids: tuple[int, ...] = ()

    @property
    def warm(self) -> float:
        return 0.3 if self.short else 1.0


@dataclass(slots=True, kw_only=True)
class Context:
    """What a measure works with. `measured` holds the measures that ran before, by name."""

    options: Options
    work: Path
    say: Callable[[str], None]
    measured: dict[str, Measure] = field(default_factory=dict[str, Measure])

    @contextlib.contextmanager
    def serving(self, *variants: Variant) -> Generator[list[Server]]:
        """Start one server per variant; stop them and remove their data at the end. Raises NotRunning."""
        servers = [new_server(variant, self.work) for variant in variants]
        try:
            for server in servers:
                server.start()
            yield servers
        finally:
            for server in servers:
                server.stop()
                shutil.rmtree(server.data, ignore_errors=True)

    @contextlib.contextmanager
    def folder(self) -> Generator[Path]:
        """A folder on the same disk as the servers' data, removed at the end."""
        with tempfile.TemporaryDirectory(dir=self.work) as name:
            yield Path(name)

    def load(self, server: Server, scenario: str, **fields: Any) -> dict[str, Any]:
        """Run one scenario of `bench.load`. Raises LoadFailed with the generator's message."""
        extra = list(self.options.extra_pids) if server.variant == self.options.ours else []
        wanted = {
            "scenario": scenario,
            "port": server.port,
            "token": server.token,
            "pid": server.pid,
            "extra_pids": extra,
            **fields,
        }
        try:
            return _child("bench.load", wanted)
        except LoadFailed as error:
            raise LoadFailed(f"{server.variant.name}, {error} (server log: {server.log})") from None

    def stored(self, scenario: str, **fields: Any) -> dict[str, Any]:
        """Run one scenario of `bench.stored`. Raises LoadFailed with its message."""
        return _child("bench.stored", {"scenario": scenario, **fields})

    def scenario(self, module: str, **fields: Any) -> dict[str, Any]:
        """Run one scenario of another module in a process of its own. Raises LoadFailed with its message."""
        return _child(module, fields)

    def undisturbed(self, trial: "Trial") -> dict[str, Any]:
        """Repeat a trial that shared its cores with other processes; the least disturbed one counts.

        However fast it was.
        """
        tries: list[dict[str, Any]] = []
        for _ in range(1 if self.options.short else TRIES):
            tries.append(trial())
            if tries[-1]["others_busy"] <= UNDISTURBED:
                break
        return min(tries, key=lambda one: float(one["others_busy"]))

    def flow(self, server: Server, mode: str, **fields: Any) -> dict[str, Any]:
        """One closed-loop trial of the usual length, repeated while it is disturbed."""
        timing = {"warm": self.options.warm, "seconds": self.options.seconds}
        result = self.undisturbed(lambda: self.load(server, "flow", mode=mode, **timing, **fields))
        self.say(
            f"{server.variant.name} {mode}: {result['jobs_per_s']:.0f} jobs/s, server busy"
            f" {result['server_busy']:.0%}, {result['server_cpu_us_per_job']:.0f} µs a job,"
            f" generator busy {result['client_busy']:.0%}, others {result['others_busy']:.0%}"
        )
        return result


def _child(module: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The result of one scenario in a process of its own."""
    scenario = wanted["scenario"]
    command = [sys.executable, "-m", module, json.dumps(wanted)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{scenario}: took over {LOAD_TIMEOUT_S} s") from None
    if done.returncode:
        raise LoadFailed(f"{scenario}: {done.stderr.strip()[-1500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


Trial = Callable[[], dict[str, Any]]


def interleaved(rounds: int, trials: Mapping[str, Trial]) -> dict[str, list[dict[str, Any]]]:
    """Run every trial once a round, in the given order, every second round backwards."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in trials}
    for number in range(rounds):
        names = list(trials) if number % 2 == 0 else list(reversed(list(trials)))
        for name in names:
            results[name].append(trials[name]())
    return results


def middle(rounds: Sequence[Mapping[str, Any]], *path: str) -> float:
    """The median over the rounds of the figure at `path`."""
    return median(_at(result, path) for result in rounds)


def ratio(rounds: Mapping[str, Sequence[Mapping[str, Any]]], above: str, below_it: str, *path: str) -> float:
    """The median over the rounds of one figure divided by the other of the same round."""
    pairs = zip(rounds[above], rounds[below_it], strict=True)
    return median(_at(one, path) / _at(other, path) for one, other in pairs)


def _at(result: Any, path: Sequence[str]) -> float:
    for name in path:
        result = result[name]
    return float(result)
