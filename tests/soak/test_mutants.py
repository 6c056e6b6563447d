"""A suite is worth the mistakes it notices: each seeded mistake has to be noticed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "farhand"
# pytest's words for: tests were run, and some failed.
TESTS_FAILED = 1
# Some mistakes show only when two transactions meet in time; one meeting is enough.
RACES = 10


def run(source: Path, tests: tuple[str, ...], keys: str) -> subprocess.CompletedProcess[str]:
    """Run tests against a copy of the source."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *tests, "-x", "-q", "-k", keys, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def copied(folder: Path) -> Path:
    """A copy of the package that may be changed."""
    shutil.copytree(PACKAGE, folder / "farhand", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_place_of_each_mistake_is_still_there(mutant: Mutant) -> None:
    assert (PACKAGE / mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert all((ROOT / test).is_file() for test in mutant.tests)


@pytest.mark.soak
def test_without_a_mistake_the_tests_pass(tmp_path: Path) -> None:
    tests = sorted({test for mutant in MUTANTS for test in mutant.tests})
    done = run(copied(tmp_path), tuple(tests), "not walk")
    assert done.returncode == 0, done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mistake_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    source = copied(tmp_path)
    path = source / "farhand" / mutant.file
    path.write_text(path.read_text("utf-8").replace(mutant.old, mutant.new), "utf-8")
    for _ in range(RACES):
        done = run(source, mutant.tests, mutant.keys)
        if done.returncode != 0:
            break
    assert done.returncode == TESTS_FAILED, f"nobody noticed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
