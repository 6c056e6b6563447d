"""Handing out: offers, lost replies, giving back, refusing, and the seed dialect."""

import asyncio
import dataclasses

from farhand.engine.enrolment import Registered, Registration
from farhand.engine.requests import Claim, Claimed, Release, Settle
from farhand.model.job import Dialect, Outcome, State
from farhand.model.policy import COMMAND, FETCH_UNSAFE, PRINT, SECOND
from farhand.testing.conformance.spots import reach
from farhand.testing.factories import ORG, Scene, granted, refused, report

ACCEPT_MS = 10 * SECOND


def tokens(claimed: list[Claimed]) -> list[bytes]:
    """The lease tokens of an answer."""
    return [entry.attempt.token for entry in claimed]


async def _fill(scene: Scene, count: int) -> bytes:
    lane = scene.id()
    for _ in range(count):
        await scene.submit(lane)
    return lane


async def test_a_poll_asked_again_gets_the_same_answer(scene: Scene) -> None:
    lane, agent = await _fill(scene, 5), scene.id()
    for accept in (False, True):
        poll = f"poll-{accept}"
        first = await scene.claim(agent, lane, max=2, poll_id=poll, accept=accept)
        again = await scene.claim(agent, lane, max=2, poll_id=poll, accept=accept)
        assert len(first) == 2
        assert tokens(again) == tokens(first)
        for entry in first:
            assert (await scene.job(entry.job.id)).attempt == 1
            granted(await scene.start(entry))


async def test_a_poll_asked_again_after_the_start_gets_the_same_answer(scene: Scene) -> None:
    lane, agent = await _fill(scene, 2), scene.id()
    (first,) = await scene.claim(agent, lane, poll_id="p", accept=True)
    granted(await scene.start(first))
    before = await scene.snapshot(first.job.id)
    (again,) = await scene.claim(agent, lane, poll_id="p", accept=True)
    assert again.attempt.token == first.attempt.token
    assert await scene.snapshot(first.job.id) == before


async def test_a_new_poll_gets_the_offers_back_that_were_never_taken(scene: Scene) -> None:
    lane, agent = await _fill(scene, 3), scene.id()
    offers = await scene.claim(agent, lane, max=2, poll_id="lost")
    scene.clock.advance(ACCEPT_MS - 1)
    again = await scene.claim(agent, lane, max=3, poll_id="next")
    assert tokens(again)[:2] == tokens(offers)
    assert len(again) == 3
    for entry in again:
        assert entry.attempt.lease_until == scene.clock.now_ms() + ACCEPT_MS
    repeated = await scene.claim(agent, lane, max=3, poll_id="next")
    assert tokens(repeated) == tokens(again)
    assert [(await scene.job(e.job.id)).tries for e in again] == [0, 0, 0]


async def test_offers_of_lanes_that_are_busy_now_are_not_pressed_on_the_agent(scene: Scene) -> None:
    agent, one, two = scene.id(), await _fill(scene, 1), await _fill(scene, 1)
    await scene.claim(agent, one, poll_id="first")
    (other,) = await scene.claim(agent, two, poll_id="second")
    assert other.job.lane == two


async def test_an_offer_not_taken_returns_uncounted(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    (offer,) = await scene.claim(scene.id(), lane)
    await scene.lapse(offer)
    job = await scene.job(offer.job.id)
    assert (job.state, job.tries, job.accepted_at) == (State.QUEUED, 0, None)
    assert [a.outcome for a in await scene.attempts(job.id)] == [Outcome.UNACCEPTED]
    other = await scene.take(scene.id(), lane)
    assert other.attempt.number == 2
    refused(await scene.start(offer), "stale-claim")


async def test_an_offer_is_taken_by_its_start(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    (offer,) = await scene.claim(scene.id(), lane)
    scene.clock.advance(ACCEPT_MS - 1)
    held = granted(await scene.start(offer, "downloading"))
    job = await scene.job(offer.job.id)
    assert (held.state, held.lease_ms, job.tries) == (State.RUNNING, PRINT.lease_ms, 1)
    scene.clock.advance(ACCEPT_MS)
    assert await scene.store.sweep() == 0


async def test_accepting_at_the_claim_needs_no_start_in_time(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    claimed = await scene.take(scene.id(), lane)
    assert (await scene.job(claimed.job.id)).tries == 1
    assert claimed.attempt.lease_until == scene.clock.now_ms() + PRINT.lease_ms
    scene.clock.advance(PRINT.lease_ms - 1)
    assert await scene.store.sweep() == 0


async def test_a_batch_never_exceeds_its_limit(scene: Scene) -> None:
    lane, other = await _fill(scene, 40), await _fill(scene, 40)
    seen: set[bytes] = set()
    answers = await asyncio.gather(*(scene.claim(scene.id(), lane, other, max=7) for _ in range(12)))
    for claimed in answers:
        assert len(claimed) <= 7
        assert seen.isdisjoint(e.job.id for e in claimed)
        seen |= {e.job.id for e in claimed}
    assert len(seen) == 80
    lane = await _fill(scene, 9)
    assert len(await scene.claim(scene.id(), lane, max=64, per_lane=4)) == 4


async def test_a_lane_named_twice_hands_out_each_job_once(scene: Scene) -> None:
    lane = await _fill(scene, 2)
    claimed = await scene.claim(scene.id(), lane, lane, max=5)
    assert len({e.job.id for e in claimed}) == len(claimed) == 2
    assert [(await scene.job(e.job.id)).attempt for e in claimed] == [1, 1]


async def test_the_best_job_comes_first_across_lanes(scene: Scene) -> None:
    one, two = scene.id(), scene.id()
    old = await scene.submit(one)
    urgent = await scene.submit(two, priority=5)
    young = await scene.submit(two)
    claimed = await scene.claim(scene.id(), one, two, max=3)
    assert [e.job.id for e in claimed] == [urgent, old, young]


async def test_a_claim_of_another_tenant_gets_nothing(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    assert await scene.store.claim(Claim(org_id=2, agent_id=scene.id(), lanes=(lane,))) == []


async def test_a_release_before_no_return_is_uncounted(scene: Scene) -> None:
    for name in ("offered", "accepted", "started"):
        spot = await reach(scene, name)
        granted(await scene.release(spot.newest))
        job = await scene.job(spot.job_id)
        assert (job.state, job.tries) == (State.QUEUED, 0), name
        await spot.claim()


async def test_a_release_past_no_return_is_refused(scene: Scene) -> None:
    spot = await reach(scene, "spooling")
    before = await scene.snapshot(spot.job_id)
    refused(await scene.release(spot.newest), "no-return")
    refused(await scene.release(spot.newest, refuse=True), "no-return")
    assert await scene.snapshot(spot.job_id) == before


async def test_a_refused_job_is_not_offered_again_until_the_capabilities_change(scene: Scene) -> None:
    def registration(*capabilities: str) -> Registration:
        return Registration(
            org_id=ORG,
            key_digest=b"k" * 32,
            name="a",
            dialect="native",
            capabilities=capabilities,
            open_enrolment=True,
        )

    answer = await scene.store.registry.register(registration("pdf"))
    assert isinstance(answer, Registered)
    agent, lane = answer.agent.id, await _fill(scene, 1)
    claimed = await scene.take(agent, lane)
    granted(await scene.release(claimed, refuse=True))
    job = await scene.job(claimed.job.id)
    assert (job.state, job.tries) == (State.QUEUED, 0)
    assert await scene.claim(agent, lane) == []
    await scene.store.registry.register(registration("pdf"))
    assert await scene.claim(agent, lane) == []
    (other,) = await scene.claim(scene.id(), lane)
    granted(await scene.release(other))
    await scene.store.registry.register(registration("pdf", "color"))
    assert len(await scene.claim(agent, lane)) == 1


async def test_a_job_goes_only_to_an_agent_that_can_do_it(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, requires=frozenset({"insecure-tls", "private-ip"}))
    learned: dict[str, int] = {}
    async with scene.store.database.transaction() as tx:
        both = await scene.store.writer.capabilities.bits(
            tx, ["insecure-tls", "private-ip"], learned, org_id=ORG, now=0
        )
        one = await scene.store.writer.capabilities.bits(tx, ["private-ip"], learned, org_id=ORG, now=0)
    assert await scene.claim(scene.id(), lane) == []
    assert await scene.claim(scene.id(), lane, capabilities=one) == []
    assert len(await scene.claim(scene.id(), lane, capabilities=both)) == 1


async def test_what_a_policy_requires_every_job_of_it_requires(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, dataclasses.replace(PRINT, requires=("colour",)))
    async with scene.store.database.transaction() as tx:
        able = await scene.store.writer.capabilities.bits(tx, ["colour"], {}, org_id=ORG, now=0)
    assert await scene.claim(scene.id(), lane) == []
    assert len(await scene.claim(scene.id(), lane, capabilities=able)) == 1


async def test_a_seed_job_starts_when_its_payload_is_fetched(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    claimed = await scene.take_seed(scene.id(), lane)
    job = await scene.job(claimed.job.id)
    assert (job.state, job.tries) == (State.CLAIMED, 1)
    assert claimed.attempt.lease_until == scene.clock.now_ms() + PRINT.seed_lease_ms
    held = granted(await scene.store.fetch_payload(scene.unnamed(claimed)))
    assert held.state == State.RUNNING
    before = await scene.snapshot(job.id)
    granted(await scene.store.fetch_payload(scene.unnamed(claimed)))
    assert await scene.snapshot(job.id) == before
    refused(await scene.release(claimed), "no-return")
    await scene.lapse(claimed)
    assert await scene.state(job.id) == State.UNCERTAIN


async def test_a_seed_job_never_fetched_goes_back_to_the_queue(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    claimed = await scene.take_seed(scene.id(), lane)
    await scene.lapse(claimed)
    assert await scene.state(claimed.job.id) == State.QUEUED


async def test_a_seed_job_is_not_handed_out_twice(scene: Scene) -> None:
    lane, agent = await _fill(scene, 1), scene.id()
    await scene.take_seed(agent, lane)
    assert await scene.claim(agent, lane, dialect=Dialect.SEED) == []


async def test_the_plain_reaper_of_the_seed_can_be_restored(scene: Scene) -> None:
    policy, lane = dataclasses.replace(PRINT, on_lost_running="queued"), scene.id()
    job = await scene.submit(lane, policy)
    for turn in range(1, policy.max_attempts + 1):
        claimed = await scene.take_seed(scene.id(), lane)
        granted(await scene.store.fetch_payload(scene.unnamed(claimed)))
        await scene.lapse(claimed)
        assert await scene.state(job) == (State.QUEUED if turn < policy.max_attempts else State.FAILED)


async def test_a_seed_claim_that_is_the_start_starts_at_once(scene: Scene) -> None:
    for policy, after in ((COMMAND, State.QUEUED), (FETCH_UNSAFE, State.UNCERTAIN)):
        lane = scene.id()
        job = await scene.submit(lane, policy)
        claimed = await scene.take_seed(scene.id(), lane, begin=True)
        assert await scene.state(job) == State.RUNNING
        await scene.lapse(claimed)
        assert await scene.state(job) == after


async def test_a_seed_agent_that_fetches_a_cancelled_job_gets_nothing(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    claimed = await scene.take_seed(scene.id(), lane)
    assert granted(await scene.cancel(claimed.job.id)) == State.CLAIMED
    refused(await scene.store.fetch_payload(scene.unnamed(claimed)), "payload-gone")
    assert await scene.state(claimed.job.id) == State.CANCELLED


async def test_a_caller_without_a_token_settles_its_own_attempt(scene: Scene) -> None:
    lane = await _fill(scene, 1)
    claimed = await scene.take_seed(scene.id(), lane)
    granted(await scene.store.fetch_payload(scene.unnamed(claimed)))
    done = Settle(act=scene.unnamed(claimed), report=report())
    assert granted(await scene.store.settle(done)).state == State.DONE
    assert granted(await scene.store.settle(done)).replay


async def test_a_caller_without_a_token_cannot_settle_another_s_attempt(scene: Scene) -> None:
    lane, job = scene.id(), b""
    job = await scene.submit(lane)
    old = await scene.take_seed(scene.id(), lane)
    await scene.lapse(old)
    await scene.take_seed(scene.id(), lane)
    before = await scene.snapshot(job)
    stranger = dataclasses.replace(scene.unnamed(old), agent_id=scene.id())
    refused(await scene.store.settle(Settle(act=stranger, report=report())), "not-found")
    assert await scene.snapshot(job) == before
    refused(await scene.store.settle(Settle(act=scene.unnamed(old), report=report())), "stale-claim")
    refused(await scene.store.release(Release(act=scene.unnamed(old))), "stale-claim")
    assert (await scene.snapshot(job)).but_events() == before.but_events()


async def test_without_a_token_a_late_word_that_may_mean_two_attempts_changes_nothing(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    job = await scene.submit(lane)
    await scene.lapse(await scene.take_seed(agent, lane))
    claimed = await scene.take_seed(agent, lane)
    await scene.lapse(claimed)
    before = await scene.snapshot(job)
    unnamed = Settle(act=scene.unnamed(claimed), report=report())
    refused(await scene.store.settle(unnamed), "stale-claim")
    assert (await scene.snapshot(job)).but_events() == before.but_events()
    granted(await scene.settle(claimed))
    assert await scene.state(job) == State.DONE


async def test_one_poll_asked_twice_at_the_same_moment_gets_one_answer(scene: Scene) -> None:
    lane, agent = await _fill(scene, 4), scene.id()
    answers = await asyncio.gather(*(scene.claim(agent, lane, max=2, poll_id="p") for _ in range(3)))
    assert [tokens(answer) for answer in answers] == [tokens(answers[0])] * 3
    assert len(answers[0]) == 2
