"""Two duplicates, two guards: the idempotency key and the active key; and the double click of a retry."""

import asyncio
import dataclasses

import msgspec

from farhand.engine.requests import Reserve, Submit, Submitted
from farhand.model.errors import Problem
from farhand.model.ids import parse_id
from farhand.model.job import State
from farhand.model.policy import COMMAND, DAY, MINUTE, PRINT
from farhand.testing.conformance.spots import reach
from farhand.testing.factories import FINGERPRINT, ORG, Scene, granted, refused, submission

OTHER = b"another request".ljust(32, b"\0")


async def _jobs_in(scene: Scene, lane: bytes) -> int:
    return len(await scene.claim(scene.id(), lane, max=64, capabilities=0))


async def test_the_same_request_gets_the_job_already_made(scene: Scene) -> None:
    lane = scene.id()
    first = granted(await scene.try_submit(lane, key="k"))
    again = granted(await scene.try_submit(lane, key="k"))
    assert (first.created, again.created) == (True, False)
    assert again.job_id == first.job_id
    granted(await scene.cancel(first.job_id))
    assert granted(await scene.try_submit(lane, key="k")).state == State.CANCELLED
    assert await _jobs_in(scene, lane) == 0


async def test_another_request_under_the_same_key_is_refused(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, key="k")
    refused(await scene.try_submit(lane, key="k", fingerprint=OTHER), "idempotency-mismatch")
    assert await _jobs_in(scene, lane) == 1


async def test_the_same_key_of_another_tenant_is_another_key(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, key="k")
    async with scene.store.database.transaction() as tx:
        await tx.run("insert_org", {"id": 2, "uid": scene.id(), "name": "two", "now": 0})
    other = granted(await scene.try_submit(lane, key="k", org_id=2, fingerprint=OTHER))
    assert other.created


async def test_duplicates_within_one_batch_make_one_job(scene: Scene) -> None:
    lane = scene.id()
    answers = await asyncio.gather(*(scene.try_submit(lane, key="k") for _ in range(20)))
    made = [granted(answer) for answer in answers]
    assert len({answer.job_id for answer in made}) == 1
    assert sum(answer.created for answer in made) == 1
    assert await _jobs_in(scene, lane) == 1


async def test_mixed_duplicates_within_one_batch_are_told_apart(scene: Scene) -> None:
    lane = scene.id()
    answers = await asyncio.gather(
        *(scene.try_submit(lane, key="k", fingerprint=OTHER if n % 2 else FINGERPRINT) for n in range(10))
    )
    made = [answer for answer in answers if isinstance(answer, Submitted)]
    assert len(made) == 5
    for answer in answers:
        if isinstance(answer, Problem):
            refused(answer, "idempotency-mismatch")
    assert await _jobs_in(scene, lane) == 1


async def test_a_key_is_in_flight_while_its_request_works(scene: Scene) -> None:
    lane = scene.id()
    mine = Reserve(org_id=ORG, key="k", fingerprint=FINGERPRINT)
    assert await scene.store.reserve(mine) is None
    refused(await scene.store.reserve(mine), "idempotency-in-flight")
    refused(await scene.try_submit(lane, key="k"), "idempotency-in-flight")
    refused(await scene.store.reserve(dataclasses.replace(mine, fingerprint=OTHER)), "idempotency-mismatch")
    request = Submit(
        submission=submission(lane),
        policy=PRINT,
        idempotency_key="k",
        fingerprint=FINGERPRINT,
        reserved=True,
    )
    made = granted(await scene.store.submit(request))
    assert made.created
    assert granted(await scene.store.submit(request)) == msgspec.structs.replace(made, created=False)
    again = await scene.store.reserve(mine)
    assert isinstance(again, Submitted)
    assert again.job_id == made.job_id


async def test_a_dropped_reservation_frees_its_key(scene: Scene) -> None:
    mine = Reserve(org_id=ORG, key="k", fingerprint=FINGERPRINT)
    assert await scene.store.reserve(mine) is None
    await scene.store.reserve(dataclasses.replace(mine, drop=True))
    assert granted(await scene.try_submit(scene.id(), key="k", fingerprint=OTHER)).created


async def test_a_drop_takes_no_key_that_stands_for_a_job_or_another_request(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, key="k")
    drop = Reserve(org_id=ORG, key="k", fingerprint=FINGERPRINT, drop=True)
    await scene.store.reserve(drop)
    assert granted(await scene.try_submit(lane, key="k")).job_id == job
    assert await scene.store.reserve(Reserve(org_id=ORG, key="l", fingerprint=OTHER)) is None
    await scene.store.reserve(dataclasses.replace(drop, key="l"))
    refused(await scene.try_submit(lane, key="l", fingerprint=OTHER), "idempotency-in-flight")


async def test_a_reservation_that_nobody_came_back_for_times_out_for_one_taker(scene: Scene) -> None:
    mine = Reserve(org_id=ORG, key="k", fingerprint=FINGERPRINT)
    assert await scene.store.reserve(mine) is None
    scene.clock.advance(10 * MINUTE - 1)
    refused(await scene.store.reserve(mine), "idempotency-in-flight")
    scene.clock.advance(1)
    answers = [await scene.store.reserve(mine) for _ in range(3)]
    assert answers.count(None) == 1


async def test_old_keys_are_forgotten_and_bound_ones_kept_for_a_day(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, key="bound")
    assert await scene.store.reserve(Reserve(org_id=ORG, key="k", fingerprint=FINGERPRINT)) is None
    scene.clock.advance(10 * MINUTE + 1)
    assert await scene.store.forget_keys() == 1
    assert granted(await scene.try_submit(lane, key="bound")).job_id == job
    scene.clock.advance(DAY)
    assert await scene.store.forget_keys() == 1
    assert granted(await scene.try_submit(lane, key="bound")).created


async def test_one_live_job_for_each_active_key(scene: Scene) -> None:
    lane = scene.id()
    first = await scene.submit(lane, COMMAND, active_key="a:x")
    problem = refused(await scene.try_submit(lane, COMMAND, active_key="a:x"), "active-conflict")
    assert parse_id(str(problem.extra["job_id"])) == first
    await scene.submit(lane, COMMAND, active_key="b:x")
    claimed = await scene.take(scene.id(), lane)
    refused(await scene.try_submit(lane, COMMAND, active_key="a:x"), "active-conflict")
    granted(await scene.settle(claimed, ok=False))
    await scene.submit(lane, COMMAND, active_key="a:x")


async def test_an_uncertain_job_still_holds_its_active_key(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, active_key="a:x")
    claimed = await scene.take(scene.id(), lane)
    granted(await scene.start(claimed, "spooling"))
    await scene.lapse(claimed)
    assert await scene.state(job) == State.UNCERTAIN
    refused(await scene.try_submit(lane, active_key="a:x"), "active-conflict")
    granted(await scene.store.resolve(scene.order(job, done=True)))
    await scene.submit(lane, active_key="a:x")


async def test_the_active_key_decides_within_one_batch(scene: Scene) -> None:
    lane = scene.id()
    answers = await asyncio.gather(
        *(scene.try_submit(lane, COMMAND, active_key="a:x") for _ in range(10)),
        *(scene.try_submit(lane, COMMAND) for _ in range(3)),
    )
    made = [answer for answer in answers if isinstance(answer, Submitted)]
    assert len(made) == 4
    assert await _jobs_in(scene, lane) == 4


async def test_a_request_refused_by_the_active_key_leaves_no_idempotency_key(scene: Scene) -> None:
    lane = scene.id()
    first = await scene.submit(lane, COMMAND, active_key="a:x")
    answers = await asyncio.gather(
        *(scene.try_submit(lane, COMMAND, key="k", active_key="a:x") for _ in range(3))
    )
    for answer in answers:
        refused(answer, "active-conflict")
    granted(await scene.cancel(first))
    assert granted(await scene.try_submit(lane, COMMAND, key="k", active_key="a:x")).created


async def test_a_retry_clicked_twice_prints_once(scene: Scene) -> None:
    for name in ("failed", "printed", "cancelled", "expired", "lost_past_no_return"):
        spot = await reach(scene, name)
        answers = await asyncio.gather(*(scene.retry(spot.job_id) for _ in range(5)))
        made = [answer for answer in answers if isinstance(answer, Submitted)]
        assert len(made) == 1, name
        for answer in answers:
            if isinstance(answer, Problem):
                refused(answer, "retry-conflict")
        assert (await scene.job(made[0].job_id)).retry_of == spot.job_id
        assert await _jobs_in(scene, spot.lane) == 1


async def test_a_retry_may_follow_a_retry_that_has_ended(scene: Scene) -> None:
    spot = await reach(scene, "failed")
    again = granted(await scene.retry(spot.job_id))
    granted(await scene.cancel(again.job_id))
    assert granted(await scene.retry(spot.job_id)).created


async def test_a_retry_carries_what_was_to_be_done(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(
        lane, payload=b"^XA^XZ", title="label", tags=("a", "b"), source="shop", mode="raw", params="{}"
    )
    granted(await scene.cancel(job))
    again = granted(await scene.retry(job))
    old, new = await scene.job(job), await scene.job(again.job_id)
    for name in ("kind", "lane", "mode", "title", "source", "tags", "params", "payload_size", "requires"):
        assert getattr(new, name) == getattr(old, name), name
    place = await scene.store.payload(new.seq)
    assert place is not None
    assert place.body == b"^XA^XZ"
    claimed = await scene.take(scene.id(), lane)
    assert claimed.body == b"^XA^XZ"


async def test_a_retry_of_an_uncertain_job_resolves_it(scene: Scene) -> None:
    spot = await reach(scene, "lost_past_no_return")
    granted(await scene.retry(spot.job_id))
    job = await scene.job(spot.job_id)
    assert (job.state, job.evidence) == (State.FAILED, "person")
    refused(await scene.settle(spot.newest), "stale-claim")


async def test_a_retry_of_a_live_job_is_refused(scene: Scene) -> None:
    for name in ("later", "fresh", "accepted", "spooling"):
        spot = await reach(scene, name)
        before = await scene.snapshot(spot.job_id)
        refused(await scene.retry(spot.job_id), "state-conflict")
        assert await scene.snapshot(spot.job_id) == before


async def test_a_retry_obeys_the_active_key_and_changes_nothing_when_refused(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    policy = dataclasses.replace(PRINT, active_key="{agent}:{kind}")
    first = await scene.submit(lane, policy, agent_id=agent, active_key="any")
    claimed = await scene.take(agent, lane)
    granted(await scene.start(claimed, "spooling"))
    await scene.lapse(claimed)
    again = granted(await scene.retry(first, policy))
    made = await scene.job(again.job_id)
    assert made.active_key is not None
    assert made.active_key.endswith(":print.raw")
    other = await scene.submit(scene.id(), policy, agent_id=agent)
    granted(await scene.cancel(other))
    before = await scene.snapshot(other)
    refused(await scene.retry(other, policy), "active-conflict")
    assert await scene.snapshot(other) == before


async def test_overlapping_claims_have_one_winner(scene: Scene) -> None:
    for _ in range(40):
        lane = scene.id()
        job = await scene.submit(lane)
        answers = await asyncio.gather(*(scene.claim(scene.id(), lane) for _ in range(6)))
        winners = [claimed for claimed in answers if claimed]
        assert len(winners) == 1
        assert winners[0][0].job.id == job
