"""A claim that parks while a transaction beside it brings work for its lane."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from farhand.engine.wakeups import Ticket
from farhand.model.job import State
from farhand.storage.store import Store
from farhand.testing.clock import FakeClock
from farhand.testing.factories import ORG, Scene


class Gate:
    """Holds the next transaction of a store open, all but committed, until it is let go."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self._begin = store.database.transaction
        self._taken = False
        monkeypatch.setattr(store.database, "transaction", self._transaction)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        mine, self._taken = not self._taken, True
        async with self._begin() as tx:
            yield tx
            if mine:
                self.reached.set()
                await self.open.wait()


@pytest.fixture
async def scene(
    make_store: Callable[[str], Awaitable[Store]], new_database: Callable[[str], str], clock: FakeClock
) -> Scene:
    """A store with several transactions at a time, as only PostgreSQL has them; it knows the policy."""
    found = Scene(await make_store(new_database("postgres")), clock)
    await found.submit(found.id())
    return found


async def test_work_that_came_up_beside_a_claim_is_handed_to_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, gate = scene.id(), Gate(scene.store, monkeypatch)
    submitting = asyncio.create_task(scene.submit(lane))
    await gate.reached.wait()
    ticket = scene.store.claim_or_park(scene.asks(scene.id(), lane))
    assert await ticket.first() == []
    gate.open.set()
    job = await submitting
    (claimed,) = await ticket.result(10_000)
    assert claimed.job.id == job


async def test_a_claim_that_went_away_with_nothing_takes_no_work_that_came_up_beside_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, gate = scene.id(), Gate(scene.store, monkeypatch)
    submitting = asyncio.create_task(scene.submit(lane))
    await gate.reached.wait()
    gone = scene.store.claim_or_park(scene.asks(scene.id(), lane))
    assert await gone.first() == []
    assert await gone.settled() == []
    again: list[Ticket] = []
    monkeypatch.setattr(scene.store.writer, "reclaim_parked", again.append)
    gate.open.set()
    job = await submitting
    # Parked claims are tried again in the moment in which a commit is told of.
    assert again == []
    (claimed,) = await scene.store.claim(scene.asks(scene.id(), lane))
    assert claimed.job.id == job
    found = await scene.store.job(ORG, job)
    assert found is not None
    assert (found.state, found.attempt) == (State.CLAIMED, 1)
