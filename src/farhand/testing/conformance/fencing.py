"""Fencing: who may still write about an attempt, and what a late word is worth."""

import dataclasses

from farhand.engine.requests import Settle
from farhand.model.job import Outcome, State, Verb
from farhand.model.policy import PRINT
from farhand.testing.conformance.spots import HEDGED, reach
from farhand.testing.factories import Scene, granted, refused, report


async def test_a_stale_token_changes_nothing_after_a_reclaim(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    old = await scene.take(scene.id(), lane)
    await scene.lapse(old)
    new = await scene.take(scene.id(), lane)
    before = await scene.snapshot(job)
    assert old.attempt.token != new.attempt.token
    refused(await scene.start(old), "stale-claim")
    refused(await scene.heartbeat(old, phase="spooling"), "stale-claim")
    refused(await scene.release(old), "stale-claim")
    refused(await scene.release(old, refuse=True), "stale-claim")
    assert await scene.snapshot(job) == before
    problem = refused(await scene.settle(old), "stale-claim")
    assert problem.extra["job_state"] == State.CLAIMED
    assert (await scene.snapshot(job)).but_events() == before.but_events()


async def test_the_result_of_an_older_attempt_is_only_recorded(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    old = await scene.take(scene.id(), lane)
    await scene.lapse(old)
    await scene.take(scene.id(), lane)
    before = await scene.snapshot(job)
    refused(await scene.settle(old, result='{"secret": 1}'), "stale-claim")
    after = await scene.snapshot(job)
    assert after.but_events() == before.but_events()
    (late,) = after.events[len(before.events) :]
    assert late.verb == Verb.LATE_RESULT
    assert late.attempt == 1
    assert late.from_state == late.to_state == State.CLAIMED
    assert late.data is not None
    assert report(result='{"secret": 1}').digest.hex() in late.data
    assert "secret" not in late.data


async def test_only_the_newest_attempt_may_still_say_how_it_ended(scene: Scene) -> None:
    for name in ("lost_once", "lost_past_no_return"):
        lane = scene.id()
        job = await scene.submit(lane)
        first = await scene.take(scene.id(), lane)
        await scene.lapse(first)
        second = await scene.take(scene.id(), lane)
        granted(await scene.start(second, "spooling" if name == "lost_past_no_return" else None))
        await scene.lapse(second)
        before = await scene.snapshot(job)
        refused(await scene.settle(first), "stale-claim")
        refused(await scene.settle(first, ok=False), "stale-claim")
        assert (await scene.snapshot(job)).but_events() == before.but_events()
        granted(await scene.settle(second))
        assert await scene.state(job) == State.DONE


async def test_a_late_success_of_the_newest_attempt_ends_a_queued_job(scene: Scene) -> None:
    spot = await reach(scene, "lost_once")
    answer = granted(await scene.settle(spot.newest, evidence="printed", result="{}"))
    job = await scene.job(spot.job_id)
    assert answer.state == job.state == State.DONE
    assert (job.evidence, job.result, job.error, job.reason) == ("printed", "{}", None, None)
    assert await scene.claim(scene.id(), spot.lane) == []
    assert [a.outcome for a in await scene.attempts(spot.job_id)] == [Outcome.SUCCEEDED]


async def test_a_late_success_of_the_newest_attempt_ends_a_scheduled_job(scene: Scene) -> None:
    spot = await reach(scene, "backing_off_after_a_loss")
    granted(await scene.settle(spot.newest))
    assert await scene.state(spot.job_id) == State.DONE


async def test_a_late_success_of_the_newest_attempt_ends_an_uncertain_job(scene: Scene) -> None:
    spot = await reach(scene, "lost_past_no_return")
    granted(await scene.settle(spot.newest))
    job = await scene.job(spot.job_id)
    assert job.state == State.DONE
    assert job.finished_at == scene.clock.now_ms()


async def test_a_late_success_of_an_offer_never_taken_counts_too(scene: Scene) -> None:
    spot = await reach(scene, "offered")
    await scene.lapse(spot.newest)
    granted(await scene.settle(spot.newest))
    assert await scene.state(spot.job_id) == State.DONE


async def test_a_late_failure_ends_an_uncertain_job(scene: Scene) -> None:
    spot = await reach(scene, "lost_past_no_return")
    answer = granted(await scene.settle(spot.newest, ok=False, error="no paper", retryable=True))
    job = await scene.job(spot.job_id)
    assert answer.state == job.state == State.FAILED
    assert job.error == "no paper"


async def test_a_late_failure_does_not_touch_a_queued_job(scene: Scene) -> None:
    spot = await reach(scene, "lost_once")
    before = await scene.snapshot(spot.job_id)
    refused(await scene.settle(spot.newest, ok=False), "stale-claim")
    assert (await scene.snapshot(spot.job_id)).but_events() == before.but_events()


async def test_a_late_word_does_not_wake_a_finished_job(scene: Scene) -> None:
    spot = await reach(scene, "lost_once")
    granted(await scene.cancel(spot.job_id))
    before = await scene.snapshot(spot.job_id)
    refused(await scene.settle(spot.newest), "stale-claim")
    after = await scene.snapshot(spot.job_id)
    assert after.but_events() == before.but_events()


async def test_an_identical_replay_answers_as_the_first_time(scene: Scene) -> None:
    for name in ("spooling", "lost_past_no_return"):
        spot = await reach(scene, name)
        first = granted(await scene.settle(spot.newest, evidence="printed"))
        before = await scene.snapshot(spot.job_id)
        again = granted(await scene.settle(spot.newest, evidence="printed"))
        assert (again.state, again.replay) == (first.state, True)
        assert await scene.snapshot(spot.job_id) == before


async def test_a_replay_answers_as_the_first_time_when_the_job_has_moved_on(scene: Scene) -> None:
    spot = await reach(scene, "started")
    first = granted(await scene.settle(spot.newest, ok=False, retryable=True))
    assert first.state == State.SCHEDULED
    job = await scene.job(spot.job_id)
    scene.clock.advance_to(job.run_at or 0)
    await scene.store.sweep()
    await spot.claim()
    before = await scene.snapshot(spot.job_id)
    again = granted(await scene.settle(spot.claims[0], ok=False, retryable=True))
    assert again.state == State.SCHEDULED
    assert await scene.snapshot(spot.job_id) == before
    refused(await scene.settle(spot.claims[0], ok=True), "stale-claim")


async def test_a_release_made_again_answers_as_the_first_time(scene: Scene) -> None:
    spot = await reach(scene, "accepted")
    first = granted(await scene.release(spot.newest))
    before = await scene.snapshot(spot.job_id)
    again = granted(await scene.release(spot.newest))
    assert (again.state, again.replay) == (first.state, True)
    assert await scene.snapshot(spot.job_id) == before


async def test_a_passed_deadline_alone_revokes_nothing(scene: Scene) -> None:
    spot = await reach(scene, "spooling")
    scene.clock.advance(10 * PRINT.lease_ms)
    granted(await scene.settle(spot.newest))
    assert await scene.state(spot.job_id) == State.DONE


async def test_a_heartbeat_after_the_lease_but_before_the_sweep_renews_it(scene: Scene) -> None:
    spot = await reach(scene, "spooling")
    scene.clock.advance(PRINT.lease_ms + 1)
    assert granted(await scene.heartbeat(spot.newest)).lease_ms == PRINT.lease_ms
    assert await scene.store.sweep() == 0
    assert await scene.state(spot.job_id) == State.RUNNING


async def test_another_agent_cannot_use_a_token(scene: Scene) -> None:
    spot = await reach(scene, "accepted")
    before = await scene.snapshot(spot.job_id)
    act = dataclasses.replace(scene.act(spot.newest), agent_id=scene.id())
    refused(await scene.store.start(act), "not-found")
    refused(await scene.store.heartbeat(act), "not-found")
    refused(await scene.store.settle(Settle(act=act, report=report())), "not-found")
    assert await scene.snapshot(spot.job_id) == before


async def test_a_hedge_s_failure_is_held_back_and_then_forgotten_by_a_success(scene: Scene) -> None:
    spot = await reach(scene, "hedged_and_running")
    first, second = spot.claims
    held = granted(await scene.settle(first, ok=False, error="refused"))
    assert held.state == State.CLAIMED
    granted(await scene.settle(second, evidence="response"))
    job = await scene.job(spot.job_id)
    assert (job.state, job.error, job.evidence) == (State.DONE, None, "response")
    assert [a.outcome for a in await scene.attempts(spot.job_id)] == [Outcome.FAILED, Outcome.SUCCEEDED]


async def test_a_hedge_s_failure_is_held_back_and_settles_with_the_sibling_s_loss(scene: Scene) -> None:
    spot = await reach(scene, "held_last_failure_running")
    await scene.lapse(spot.newest)
    job = await scene.job(spot.job_id)
    assert job.state == State.FAILED
    assert job.error == "cannot resolve the name"


async def test_a_hedge_s_failure_for_now_is_tried_again_after_the_sibling_s_loss(scene: Scene) -> None:
    spot = await reach(scene, "held_failure_running")
    await scene.lapse(spot.newest)
    job = await scene.job(spot.job_id)
    assert job.state == State.SCHEDULED
    assert job.run_at is not None
    assert job.run_at >= scene.clock.now_ms() + HEDGED.backoff_base_ms


async def test_a_hedge_s_failure_settles_when_the_sibling_is_given_back(scene: Scene) -> None:
    spot = await reach(scene, "held_last_failure_claimed")
    granted(await scene.release(spot.newest))
    assert await scene.state(spot.job_id) == State.FAILED


async def test_the_first_success_closes_the_sibling(scene: Scene) -> None:
    spot = await reach(scene, "hedged_and_running")
    granted(await scene.settle(spot.newest))
    assert await scene.state(spot.job_id) == State.DONE
    outcomes = [a.outcome for a in await scene.attempts(spot.job_id)]
    assert outcomes == [Outcome.SUPERSEDED, Outcome.SUCCEEDED]
    before = await scene.snapshot(spot.job_id)
    refused(await scene.settle(spot.claims[0]), "stale-claim")
    assert (await scene.snapshot(spot.job_id)).but_events() == before.but_events()


async def test_the_loss_of_one_hedge_leaves_the_other_at_work(scene: Scene) -> None:
    spot = await reach(scene, "hedged_and_running")
    await scene.lapse(spot.claims[0])
    job = await scene.job(spot.job_id)
    assert job.state == State.CLAIMED
    assert job.phase is None
    refused(await scene.settle(spot.claims[0], ok=True), "stale-claim")
    granted(await scene.settle(spot.claims[1]))
    assert await scene.state(spot.job_id) == State.DONE


async def test_an_agent_that_cannot_say_leaves_the_job_uncertain(scene: Scene) -> None:
    for name in ("accepted", "started", "spooling", "spooling_and_cancelled"):
        spot = await reach(scene, name)
        answer = granted(await scene.settle(spot.newest, ok=False, uncertain=True, error="power cut"))
        job = await scene.job(spot.job_id)
        assert answer.state == job.state == State.UNCERTAIN, name
        assert job.reason == "power cut"
        assert await scene.claim(scene.id(), spot.lane) == []


async def test_a_phase_reported_before_the_start_is_the_start(scene: Scene) -> None:
    spot = await reach(scene, "accepted")
    held = granted(await scene.heartbeat(spot.newest, phase="spooling"))
    assert held.state == State.RUNNING
    await scene.lapse(spot.newest)
    assert await scene.state(spot.job_id) == State.UNCERTAIN


async def test_nothing_starts_under_a_cancel_request(scene: Scene) -> None:
    spot = await reach(scene, "accepted_and_cancelled")
    for act in (scene.start, scene.heartbeat):
        held = granted(await act(spot.newest, phase="spooling"))
        assert (held.state, held.directive) == (State.CLAIMED, "cancel")
    assert (await scene.attempts(spot.job_id))[0].no_return == 0
    await scene.lapse(spot.newest)
    assert await scene.state(spot.job_id) == State.CANCELLED


async def test_a_token_of_one_job_says_nothing_about_another(scene: Scene) -> None:
    agent, lane = scene.id(), scene.id()
    await scene.submit(lane)
    other = await scene.submit(lane)
    one, two = await scene.claim(agent, lane, max=2, accept=True)
    assert two.job.id == other
    before = await scene.snapshot(other)
    act = dataclasses.replace(scene.act(two), token=one.attempt.token)
    refused(await scene.store.settle(Settle(act=act, report=report())), "stale-claim")
    assert await scene.snapshot(other) == before
