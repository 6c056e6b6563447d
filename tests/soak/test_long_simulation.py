"""The simulation and the random walk for as long as there is time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farhand.testing.simulation import simulate
from tests.storage.conftest import connect

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
async def test_no_seed_breaks_a_promise(tmp_path: Path, soak_length: str) -> None:
    seeds, steps = (40, 600) if soak_length == "short" else (1500, 1200)
    broken: dict[int, list[str]] = {}
    for seed in range(1000, 1000 + seeds):
        path = tmp_path / f"{seed}.db"
        outcome = await simulate(seed, lambda path=path: connect(f"sqlite-alone:///{path}"), steps)
        if outcome.broken:
            broken[seed] = outcome.broken
        path.unlink()
    assert broken == {}


@pytest.mark.soak
def test_no_order_of_events_breaks_a_rule_in_a_night(soak_length: str) -> None:
    profile = "dev" if soak_length == "short" else "nightly"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/storage/test_machine.py", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "HYPOTHESIS_PROFILE": profile},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
