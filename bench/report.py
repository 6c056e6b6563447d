"""The results as a file and as a table."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import Bound, Measure, Options, Row
from bench.servers import ROOT

PACKAGES = ("uvicorn", "uvloop", "httptools", "starlette", "msgspec", "apsw", "asyncpg")
COLOURS = {"goal": "green", "lands": "green", "missed": "red", "shown": "dim"}


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions,
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def commit() -> str:
    """The commit that was measured, marked when the tree differs from it; empty outside a repository."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write_results(
    path: Path,
    options: Options,
    measures: Sequence[Measure],
    errors: Mapping[str, str],
    before: Mapping[str, Any],
) -> None:
    """Write every row and every figure behind it as JSON."""
    value = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "ours": options.ours.name,
        "database": (options.database or "sqlite").partition(":")[0],
        "short": options.short,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": before,
        "load_average_after": [round(one, 2) for one in os.getloadavg()],
        "errors": dict(errors),
        "measures": [
            {
                "name": measure.name,
                "rows": [row_value(row) for row in measure.rows],
                "details": measure.details,
            }
            for measure in measures
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def row_value(row: Row) -> dict[str, Any]:
    """One row of the table as JSON."""
    value = asdict(row)
    value["value"] = round(row.value, 4)
    value["to_land"], value["goal"] = text_of(row.to_land), text_of(row.goal)
    return {**value, "verdict": row.verdict}


def text_of(bound: Bound | None) -> str:
    return "" if bound is None else str(bound)


def show(console: Console, options: Options, measures: Sequence[Measure]) -> None:
    """Print the table; in a short run the verdicts are only a hint, and it says so."""
    title = f"{options.ours.name}, {options.rounds} rounds of {options.seconds:g} s"
    table = Table(title=title + (", short: the ratios prove nothing" if options.short else ""))
    for name in ("measure", "ours", "baseline"):
        table.add_column(name)
    for name in ("ratio", "to land", "goal"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for measure in measures:
        for row in measure.rows:
            table.add_row(
                row.measure,
                row.ours,
                row.baseline,
                f"{row.value:.3g} {row.unit}" if row.value < 100 else f"{row.value:.0f} {row.unit}",
                text_of(row.to_land),
                text_of(row.goal),
                f"[{COLOURS[row.verdict]}]{row.verdict}[/]",
            )
        table.add_section()
    console.print(table)
