"""The random walk of `machine`, on both databases."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from farhand.storage.store import Store
from farhand.testing.clock import FakeClock
from farhand.testing.factories import Scene
from tests.storage.conftest import DATABASES, connect
from tests.storage.machine import StoreMachine

# How many examples of how many steps; the slower database gets a third of the examples.
PROFILES = {"dev": (30, 30), "ci": (30, 30), "nightly": (600, 60)}
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def profile(kind: str) -> settings:
    """The settings of this run: HYPOTHESIS_PROFILE, else `ci` where CI is set, which repeats itself."""
    name = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
    examples, steps = PROFILES[name]
    return settings(
        max_examples=max(10, examples // 3) if kind == "postgres" else examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=name == "ci",
        database=None,
        suppress_health_check=_QUIET,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        print_blob=False,
    )


@pytest.mark.timeout(0 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 120)
@pytest.mark.parametrize("kind", DATABASES)
def test_no_order_of_events_breaks_a_rule(
    kind: str, request: pytest.FixtureRequest, new_database: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_database(kind)
    count = iter(range(1_000_000))

    async def open_scene(clock: FakeClock) -> Scene:
        address = url
        if kind == "postgres":
            request.getfixturevalue("postgres_reused")()
        else:
            path = tmp_path / f"{next(count)}.db"
            shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
            address = f"{kind}:///{path}"
        store = Store(connect(address), clock, jitter=lambda: 0.0)
        await store.open()
        return Scene(store, clock)

    async def close_scene(scene: Scene) -> None:
        await scene.store.close()

    machine = type(
        "Machine",
        (StoreMachine,),
        {"open_scene": staticmethod(open_scene), "close_scene": staticmethod(close_scene)},
    )
    run_state_machine_as_test(machine, settings=profile(kind))
