"""Cancelling: at once, by request, and after a grace of silence."""

from farhand.model.job import State
from farhand.model.policy import PRINT
from farhand.testing.conformance.spots import reach
from farhand.testing.factories import Scene, granted, refused


async def test_a_cancel_of_what_waits_is_the_end(scene: Scene) -> None:
    for name in ("later", "backing_off", "fresh", "lost_once", "offered"):
        spot = await reach(scene, name)
        assert granted(await scene.cancel(spot.job_id)) == State.CANCELLED
        assert all(not a.open for a in await scene.attempts(spot.job_id))
        refused(await scene.cancel(spot.job_id), "state-conflict")


async def test_a_cancel_of_what_is_in_hand_is_noted_once_and_travels(scene: Scene) -> None:
    for name in ("accepted", "started", "spooling"):
        spot = await reach(scene, name)
        state = await scene.state(spot.job_id)
        assert granted(await scene.cancel(spot.job_id)) == state
        before = await scene.snapshot(spot.job_id)
        assert granted(await scene.cancel(spot.job_id)) == state
        assert await scene.snapshot(spot.job_id) == before
        assert granted(await scene.heartbeat(spot.newest)).directive == "cancel"
        granted(await scene.settle(spot.newest, ok=False, cancelled=True))
        assert await scene.state(spot.job_id) == State.CANCELLED


async def test_under_a_cancel_request_what_really_happened_wins(scene: Scene) -> None:
    for name in ("accepted_and_cancelled", "started_and_cancelled", "spooling_and_cancelled"):
        spot = await reach(scene, name)
        granted(await scene.settle(spot.newest, evidence="printed"))
        assert await scene.state(spot.job_id) == State.DONE


async def test_under_a_cancel_request_a_failure_is_never_tried_again(scene: Scene) -> None:
    spot = await reach(scene, "started_and_cancelled")
    granted(await scene.settle(spot.newest, ok=False, retryable=True))
    assert await scene.state(spot.job_id) == State.CANCELLED


async def test_silence_after_a_cancel_request_counts_after_the_grace(scene: Scene) -> None:
    ends = {
        "accepted_and_cancelled": State.CANCELLED,
        "started_and_cancelled": State.CANCELLED,
        "spooling_and_cancelled": State.UNCERTAIN,
    }
    for name, end in ends.items():
        spot = await reach(scene, name)
        scene.clock.advance(PRINT.cancel_grace_ms - 1)
        assert await scene.store.sweep() == 0
        scene.clock.advance(1)
        assert await scene.store.sweep() == 1
        assert await scene.state(spot.job_id) == end


async def test_a_seed_agent_at_work_cannot_hear_a_cancel_and_keeps_its_lease(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    claimed = await scene.take_seed(scene.id(), lane)
    granted(await scene.store.fetch_payload(scene.unnamed(claimed)))
    granted(await scene.cancel(job))
    scene.clock.advance(PRINT.seed_lease_ms - 1)
    assert await scene.store.sweep() == 0
    granted(await scene.settle(claimed))
    assert await scene.state(job) == State.DONE


async def test_a_release_under_a_cancel_request_is_the_end(scene: Scene) -> None:
    spot = await reach(scene, "started_and_cancelled")
    assert granted(await scene.release(spot.newest)).state == State.CANCELLED
