"""Hedging: a second attempt when it is due, on another agent."""

import dataclasses

from farhand.model.job import State
from farhand.model.policy import SECOND
from farhand.testing.conformance.spots import HEDGED
from farhand.testing.factories import Scene, granted


async def test_a_hedge_is_handed_out_when_due_and_to_another_agent_only(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    job = await scene.submit(lane, HEDGED)
    first = await scene.take(agent, lane)
    granted(await scene.start(first))
    scene.clock.advance(5 * SECOND - 1)
    assert await scene.claim(scene.id(), lane) == []
    scene.clock.advance(1)
    assert await scene.claim(agent, lane) == []
    second = await scene.take(scene.id(), lane)
    assert (second.job.id, second.attempt.number) == (job, 2)
    assert await scene.state(job) == State.RUNNING
    scene.clock.advance(5 * SECOND)
    assert await scene.claim(scene.id(), lane) == []


async def test_a_due_hedge_wakes_a_parked_claim(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    await scene.submit(lane, HEDGED)
    await scene.take(agent, lane)
    same = scene.store.claim_or_park(scene.asks(agent, lane, poll_id="same"))
    other = scene.store.claim_or_park(scene.asks(scene.id(), lane, poll_id="other"))
    await other.first()
    await same.first()
    due = scene.store.writer.next_due
    assert due is not None
    scene.clock.advance_to(due)
    await scene.store.sweep()
    assert len(await other.result(5000)) == 1
    assert await same.result(0) == []


async def test_no_hedge_for_work_that_must_not_be_done_twice(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, dataclasses.replace(HEDGED, on_lost_running="uncertain"))
    await scene.take(scene.id(), lane)
    scene.clock.advance(5 * SECOND)
    assert await scene.claim(scene.id(), lane) == []


async def test_no_hedge_past_the_deadline(scene: Scene) -> None:
    lane = scene.id()
    policy = dataclasses.replace(HEDGED, deadline_ms=6 * SECOND, hedge_after_ms=5 * SECOND)
    await scene.submit(lane, policy)
    await scene.take(scene.id(), lane)
    scene.store.writer.next_due = None
    scene.clock.advance(6 * SECOND)
    assert await scene.claim(scene.id(), lane) == []


async def test_hedges_never_use_more_tries_than_there_are(scene: Scene) -> None:
    policy = dataclasses.replace(HEDGED, max_open_attempts=5, max_attempts=3, hedge_after_ms=SECOND)
    lane = scene.id()
    job = await scene.submit(lane, policy)
    offers = [*await scene.claim(scene.id(), lane, accept=True)]
    for _ in range(4):
        granted(await scene.heartbeat(offers[0]))
        scene.clock.advance(SECOND)
        offers += await scene.claim(scene.id(), lane)
    assert len(offers) == 3
    for offer in offers:
        granted(await scene.start(offer))
    assert (await scene.job(job)).tries == 3
