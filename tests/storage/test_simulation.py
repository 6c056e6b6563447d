"""The simulation, short: seeds that ran once run the same again, and no promise is broken."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from farhand.model.job import State
from farhand.storage.database import Database
from farhand.testing.simulation import Outcome, simulate
from tests.storage.conftest import DATABASES, connect

SEEDS = range(8)
STEPS = 400


@pytest.fixture
def new_file(sqlite_template: Path, tmp_path: Path) -> Callable[[str], Callable[[], Database]]:
    """A way to connect to a new file with the schema in it."""

    def make(name: str) -> Callable[[], Database]:
        path = tmp_path / f"{name}.db"
        shutil.copyfile(sqlite_template, path)
        return lambda: connect(f"sqlite-alone:///{path}")

    return make


def together(outcomes: list[Outcome]) -> Counter[str]:
    """How all the jobs of many runs ended."""
    return Counter(state for outcome in outcomes for state in outcome.ends.values())


async def test_no_seed_breaks_a_promise(new_file: Callable[[str], Callable[[], Database]]) -> None:
    outcomes = [await simulate(seed, new_file(f"seed{seed}"), STEPS) for seed in SEEDS]
    broken = {seed: outcome.broken for seed, outcome in zip(SEEDS, outcomes, strict=True) if outcome.broken}
    assert broken == {}
    ends = together(outcomes)
    assert {State.DONE, State.UNCERTAIN, State.CANCELLED} <= set(ends)
    assert ends[State.DONE] > 60
    assert sum(outcome.sent for outcome in outcomes) >= ends[State.DONE]


async def test_a_seed_reproduces_its_run(new_file: Callable[[str], Callable[[], Database]]) -> None:
    first = await simulate(7, new_file("first"), STEPS)
    again = await simulate(7, new_file("again"), STEPS)
    other = await simulate(8, new_file("other"), STEPS)
    assert first.trace == again.trace
    assert first.ends == again.ends
    assert first.digest != other.digest


@pytest.mark.parametrize("kind", DATABASES)
async def test_every_database_tells_the_same_story(
    kind: str, new_database: Callable[[str], str], new_file: Callable[[str], Callable[[], Database]]
) -> None:
    url = new_database(kind)
    here = await simulate(3, lambda: connect(url), STEPS)
    assert here.broken == []
    assert here.trace == (await simulate(3, new_file("reference"), STEPS)).trace
