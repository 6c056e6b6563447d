"""Every verb in every state: the store accepts exactly what the transition table accepts."""

import pytest

from farhand.testing.conformance import walk
from farhand.testing.factories import Scene


@pytest.mark.timeout(240)
async def test_the_store_accepts_exactly_what_the_table_accepts(scene: Scene) -> None:
    record = walk.Record()
    for name in walk.WAYS:
        await walk.walk_from(name, record, lambda name=name: walk.reach(scene, name))
    assert walk.missing(record) == {}
    assert len(record.seen) == len(walk.TRANSITIONS)


async def test_prune_takes_finished_jobs_alone(scene: Scene) -> None:
    for name in walk.WAYS:
        await walk.prune_takes_finished_jobs_alone(await walk.reach(scene, name))
