"""Every clock: start_by, deadline, exec_timeout, backoff, tries, reads past a limit."""

import dataclasses

from farhand.engine.loss import backoff_ms
from farhand.model.job import Outcome, State, Verb
from farhand.model.policy import COMMAND, DAY, FETCH_SAFE, MINUTE, PRINT, SECOND
from farhand.testing.conformance.spots import BOUNDED, reach
from farhand.testing.factories import ORG, Scene, granted

HOUR_MS = 60 * MINUTE
TIMED = dataclasses.replace(PRINT, start_by_ms=MINUTE, deadline_ms=10 * MINUTE)


async def test_a_job_that_nobody_takes_in_time_expires(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, TIMED)
    scene.clock.advance(MINUTE - 1)
    assert await scene.store.sweep() == 0
    scene.clock.advance(1)
    assert await scene.store.sweep() == 1
    found = await scene.job(job)
    assert (found.state, found.reason) == (State.EXPIRED, "nobody took the job in time")
    assert found.due_at is None


async def test_a_claim_does_not_hand_out_what_has_expired_but_was_not_swept(scene: Scene) -> None:
    for policy in (TIMED, dataclasses.replace(TIMED, start_by_ms=None, deadline_ms=MINUTE)):
        lane = scene.id()
        await scene.submit(lane, policy)
        scene.store.writer.next_due = None
        scene.clock.advance(MINUTE)
        assert await scene.claim(scene.id(), lane) == []


async def test_a_claim_sweeps_first_what_is_due(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, TIMED)
    claimed = await scene.take(scene.id(), lane)
    scene.clock.advance_to(claimed.attempt.lease_until)
    other = await scene.take(scene.id(), lane)
    assert other.job.id == job
    assert other.attempt.number == 2


async def test_start_by_is_satisfied_by_the_first_accepted_hand_out(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, TIMED)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.release(claimed))
    scene.clock.advance(MINUTE)
    await scene.store.sweep()
    assert await scene.state(job) == State.QUEUED
    await scene.take(scene.id(), lane)


async def test_an_offer_that_nobody_took_does_not_satisfy_start_by(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, TIMED)
    scene.clock.advance(MINUTE - 1)
    (offer,) = await scene.claim(scene.id(), lane)
    scene.clock.advance(1)
    await scene.store.sweep()
    assert await scene.state(job) == State.CLAIMED
    await scene.lapse(offer)
    assert await scene.state(job) == State.EXPIRED


async def test_the_deadline_of_an_offer_that_nobody_took_is_an_expiry(scene: Scene) -> None:
    lane = scene.id()
    policy = dataclasses.replace(TIMED, start_by_ms=None, deadline_ms=5 * SECOND, deadline_aborts=True)
    job = await scene.submit(lane, policy)
    (offer,) = await scene.claim(scene.id(), lane)
    scene.clock.advance(5 * SECOND)
    await scene.store.sweep()
    assert granted(await scene.store.heartbeat(scene.act(offer))).directive == "abort"
    job = await scene.submit(lane, policy)
    (offer,) = await scene.claim(scene.id(), lane)
    await scene.lapse(offer)
    assert await scene.state(job) == State.EXPIRED


async def test_the_deadline_ends_what_waits_after_a_try_with_its_last_error(scene: Scene) -> None:
    lane = scene.id()
    policy = dataclasses.replace(TIMED, backoff_base_ms=30 * MINUTE, backoff_cap_ms=60 * MINUTE)
    job = await scene.submit(lane, policy)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.settle(claimed, ok=False, error="busy", retryable=True))
    scene.clock.advance(10 * MINUTE)
    await scene.store.sweep()
    found = await scene.job(job)
    assert (found.state, found.error, found.reason) == (State.FAILED, "busy", "the deadline passed")


async def test_a_deadline_that_does_not_abort_leaves_work_in_hand_alone(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, dataclasses.replace(TIMED, deadline_ms=30 * SECOND))
    claimed = await scene.take(scene.id(), lane)
    scene.clock.advance(31 * SECOND)
    await scene.store.sweep()
    assert granted(await scene.heartbeat(claimed)).directive == "continue"
    granted(await scene.settle(claimed))
    assert await scene.state(job) == State.DONE


async def test_a_deadline_that_aborts_tells_the_agent_and_never_offers_again(scene: Scene) -> None:
    for name in ("accepted_and_aborted", "started_and_aborted"):
        spot = await reach(scene, name)
        assert granted(await scene.heartbeat(spot.newest)).directive == "abort"
        held = granted(await scene.heartbeat(spot.newest))
        assert held.lease_ms == BOUNDED.lease_ms
        await scene.lapse(spot.newest)
        job = await scene.job(spot.job_id)
        assert (job.state, job.error) == (State.FAILED, "the deadline passed")
        assert await scene.claim(scene.id(), spot.lane) == []


async def test_under_abort_what_really_happened_wins(scene: Scene) -> None:
    spot = await reach(scene, "started_and_aborted")
    granted(await scene.settle(spot.newest))
    assert await scene.state(spot.job_id) == State.DONE
    spot = await reach(scene, "started_and_aborted")
    granted(await scene.settle(spot.newest, ok=False, error="stopped", retryable=True))
    job = await scene.job(spot.job_id)
    assert (job.state, job.error) == (State.FAILED, "stopped")


async def test_an_abort_shortens_a_silent_lease_to_the_grace(scene: Scene) -> None:
    policy = dataclasses.replace(BOUNDED, lease_ms=10 * MINUTE)
    lane = scene.id()
    job = await scene.submit(lane, policy)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.start(claimed))
    scene.clock.advance(30 * SECOND)
    await scene.store.sweep()
    scene.clock.advance(policy.cancel_grace_ms)
    await scene.store.sweep()
    assert await scene.state(job) == State.FAILED


async def test_an_attempt_that_takes_too_long_is_aborted(scene: Scene) -> None:
    policy = dataclasses.replace(PRINT, exec_timeout_ms=90 * SECOND)
    lane = scene.id()
    job = await scene.submit(lane, policy)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.start(claimed))
    scene.clock.advance(50 * SECOND)
    assert granted(await scene.heartbeat(claimed)).directive == "continue"
    scene.clock.advance(40 * SECOND)
    assert await scene.store.sweep() == 1
    assert granted(await scene.heartbeat(claimed)).directive == "abort"
    events = [e.verb for e in await scene.events(job)]
    assert events.count(Verb.EXPIRE) == 1
    assert await scene.store.sweep() == 0


async def test_expires_in_counts_from_run_at(scene: Scene) -> None:
    now = scene.clock.now_ms()
    waiting = await scene.job(
        await scene.submit(scene.id(), TIMED, run_at=now + MINUTE, expires_in_ms=5 * SECOND)
    )
    assert waiting.start_by == now + MINUTE + 5 * SECOND
    at_once = await scene.job(await scene.submit(scene.id(), TIMED, expires_in_ms=5 * SECOND))
    assert at_once.start_by == now + 5 * SECOND
    never = await scene.job(await scene.submit(scene.id(), TIMED, run_at=now + MINUTE))
    assert never.start_by == now + 2 * MINUTE
    assert never.deadline == now + 11 * MINUTE
    passed = await scene.job(await scene.submit(scene.id(), TIMED, run_at=now - 1))
    assert (passed.state, passed.start_by) == (State.QUEUED, now + MINUTE)


async def test_expires_in_also_bounds_a_deadline_that_only_ends_what_waits(scene: Scene) -> None:
    now = scene.clock.now_ms()
    printing = await scene.job(await scene.submit(scene.id(), PRINT, expires_in_ms=SECOND))
    assert (printing.start_by, printing.deadline) == (now + SECOND, now + SECOND)
    fetching = await scene.job(await scene.submit(scene.id(), FETCH_SAFE, expires_in_ms=SECOND))
    assert (fetching.start_by, fetching.deadline) == (now + SECOND, now + 5 * MINUTE)


async def test_a_scheduled_job_is_promoted_when_its_time_comes(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, run_at=scene.clock.now_ms() + MINUTE)
    assert await scene.state(job) == State.SCHEDULED
    assert await scene.claim(scene.id(), lane) == []
    assert scene.store.writer.next_due == scene.clock.now_ms() + MINUTE
    scene.clock.advance(MINUTE)
    await scene.take(scene.id(), lane)


async def test_a_read_past_a_limit_expires_the_job_first(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, TIMED)
    for _ in range(220):
        await scene.submit(lane, dataclasses.replace(TIMED, start_by_ms=MINUTE - 1))
    scene.clock.advance(MINUTE)
    found = await scene.store.job(ORG, job)
    assert found is not None
    assert found.state == State.EXPIRED


async def test_a_read_of_a_lost_lease_reclaims_it_first(scene: Scene) -> None:
    spot = await reach(scene, "spooling")
    scene.clock.advance(PRINT.lease_ms)
    found = await scene.store.job(ORG, spot.job_id)
    assert found is not None
    assert found.state == State.UNCERTAIN


async def test_backoff_doubles_and_is_used_up_with_the_tries(scene: Scene) -> None:
    policy = dataclasses.replace(PRINT, max_attempts=4, backoff_cap_ms=100 * SECOND)
    lane = scene.id()
    job = await scene.submit(lane, policy)
    for wait in (30 * SECOND, 60 * SECOND, 100 * SECOND):
        claimed = await scene.take(scene.id(), lane)
        granted(await scene.settle(claimed, ok=False, retryable=True, error="busy"))
        found = await scene.job(job)
        assert (found.state, found.run_at) == (State.SCHEDULED, scene.clock.now_ms() + wait)
        scene.clock.advance(wait - 1)
        assert await scene.claim(scene.id(), lane) == []
        scene.clock.advance(1)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.settle(claimed, ok=False, retryable=True, error="busy"))
    found = await scene.job(job)
    assert (found.state, found.error, found.tries) == (State.FAILED, "busy", 4)


def test_backoff_jitter_only_adds_and_at_most_a_tenth() -> None:
    policy = dataclasses.replace(PRINT, backoff_base_ms=30 * SECOND, backoff_cap_ms=10 * MINUTE)
    for tries, base in ((1, 30), (2, 60), (3, 120), (5, 480), (6, 600), (40, 600)):
        waits = [backoff_ms(policy, tries, jitter) for jitter in (0.0, 0.5, 0.999)]
        assert waits[0] == base * SECOND
        assert waits == sorted(waits)
        assert waits[-1] <= base * SECOND * 1.1
    assert backoff_ms(policy, 1, 0.5, retry_after_ms=HOUR_MS) == HOUR_MS
    assert backoff_ms(policy, 1, 0.0, retry_after_ms=1) == 30 * SECOND


async def test_a_target_s_retry_after_is_honoured(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.settle(claimed, ok=False, retryable=True, retry_after_ms=HOUR_MS))
    assert (await scene.job(job)).run_at == scene.clock.now_ms() + HOUR_MS


async def test_lost_leases_use_up_the_tries(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    for turn in range(1, PRINT.max_attempts + 1):
        claimed = await scene.take(scene.id(), lane)
        await scene.lapse(claimed)
        found = await scene.job(job)
        assert found.tries == turn
        assert found.state == (State.QUEUED if turn < PRINT.max_attempts else State.FAILED)
    assert (await scene.job(job)).error == "the agent stopped sending heartbeats"


async def test_a_failure_that_is_not_retryable_is_not_tried_again(scene: Scene) -> None:
    spot = await reach(scene, "failed")
    job = await scene.job(spot.job_id)
    assert (job.error, job.tries) == ("no such font", 1)


async def test_a_lost_farm_upload_is_uncounted(scene: Scene) -> None:
    policy = dataclasses.replace(
        PRINT, max_attempts=1, settled_by="telemetry", no_return_phase="starting", deadline_ms=DAY
    )
    lane = scene.id()
    job = await scene.submit(lane, policy)
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.start(claimed, "uploading"))
    await scene.lapse(claimed)
    found = await scene.job(job)
    assert (found.state, found.tries) == (State.QUEUED, 0)
    assert [a.outcome for a in await scene.attempts(job)] == [Outcome.LOST]


def test_commands_back_off_as_their_table_says() -> None:
    assert [backoff_ms(COMMAND, n, 0.0) for n in (1, 2, 3)] == [30 * SECOND, 60 * SECOND, 120 * SECOND]
