"""Who is counted for work of an owner's lane: whoever's report decided it, and nobody else."""

import asyncio
from typing import Final

from farhand.engine.attempt import Settled
from farhand.engine.case import ROOT_SUBJECT
from farhand.engine.requests import Claimed, Release, Settle
from farhand.model.errors import Problem
from farhand.model.job import Dialect, State
from farhand.model.policy import COMMAND, FETCH_SAFE, FETCH_UNSAFE, PRINT, SECOND
from farhand.testing.dice import Dice
from farhand.testing.factories import ORG, Scene, granted, refused, report

KEY: Final = b"key".ljust(16, b"\1")
SOON: Final = FETCH_SAFE.hedge_after_ms or 0


async def _take(scene: Scene, lane: bytes, *, session: bytes, agent: bytes | None = None) -> Claimed:
    return await scene.take_seed(agent or scene.id(), lane, begin=True, session=session)


async def _settle(scene: Scene, claimed: Claimed, *, ok: bool = True, size: int = 0) -> Settled | Problem:
    act = scene.unnamed(claimed)
    return await scene.store.settle(Settle(act=act, report=report(ok=ok), bytes_out=size))


async def _figures(scene: Scene, subject: bytes) -> dict[str, int]:
    return await scene.store.counters(ORG, subject)


async def _hedged(scene: Scene) -> tuple[Claimed, Claimed, bytes, bytes]:
    """One job in the hands of two agents, and their sessions."""
    lane, one, other = scene.id(), scene.id(), scene.id()
    await scene.submit(lane, FETCH_SAFE, kind="fetch.http", submitted_by=KEY)
    first = await _take(scene, lane, session=one)
    scene.clock.advance(SOON)
    return first, await _take(scene, lane, session=other), one, other


async def test_a_success_counts_for_its_session_its_agent_and_its_submitter(scene: Scene) -> None:
    lane, session, agent = scene.id(), scene.id(), scene.id()
    await scene.submit(lane, FETCH_SAFE, kind="fetch.http", submitted_by=KEY)
    claimed = await _take(scene, lane, session=session, agent=agent)
    done = granted(await _settle(scene, claimed, size=700))
    assert (done.state, done.counted) == (State.DONE, True)
    expected = {"claims": 1, "jobs_done": 1, "bytes_out": 700}
    for subject in (session, agent, KEY):
        assert await _figures(scene, subject) == expected


async def test_what_root_submits_is_counted_under_no_key(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, FETCH_SAFE, kind="fetch.http")
    await _settle(scene, await _take(scene, lane, session=scene.id()))
    assert (await _figures(scene, ROOT_SUBJECT))["jobs_done"] == 1


async def test_only_work_of_an_owners_lane_is_counted(scene: Scene) -> None:
    for policy in (PRINT, COMMAND):
        lane, agent = scene.id(), scene.id()
        await scene.submit(lane, policy, submitted_by=KEY, agent_id=agent)
        claimed = await scene.take(agent, lane)
        granted(await scene.start(claimed))
        granted(await scene.settle(claimed))
        assert await _figures(scene, agent) == {}
    assert await _figures(scene, KEY) == {}


async def test_the_loser_of_a_hedge_counts_nothing(scene: Scene) -> None:
    first, second, one, other = await _hedged(scene)
    assert granted(await _settle(scene, second, size=5)).counted
    refused(await _settle(scene, first, size=9), "stale-claim")
    assert await _figures(scene, one) == {"claims": 1}
    assert await _figures(scene, other) == {"claims": 1, "jobs_done": 1, "bytes_out": 5}
    trail = await scene.events(first.job.id)
    assert [event.verb for event in trail][-1] == "late_result"


async def test_a_failure_beside_an_open_sibling_decides_nothing(scene: Scene) -> None:
    first, second, one, other = await _hedged(scene)
    held = granted(await _settle(scene, first, ok=False))
    assert (held.state, held.counted) == (State.RUNNING, False)
    won = granted(await _settle(scene, second))
    assert (won.state, won.counted) == (State.DONE, True)
    assert await _figures(scene, one) == {"claims": 1}
    assert (await _figures(scene, other))["jobs_done"] == 1


async def test_a_failure_held_back_counts_when_the_sibling_vanishes(scene: Scene) -> None:
    first, second, one, other = await _hedged(scene)
    answer = await scene.store.settle(
        Settle(act=scene.unnamed(first), report=report(ok=False, error="no route", result='{"code":"dns"}'))
    )
    assert not granted(answer).counted
    await scene.lapse(second)
    job = await scene.job(first.job.id)
    assert (job.state, job.error, job.result) == (State.FAILED, "no route", '{"code":"dns"}')
    assert await _figures(scene, one) == {"claims": 1, "jobs_failed": 1}
    assert await _figures(scene, other) == {"claims": 1}


async def test_a_failure_held_back_counts_when_the_sibling_refuses(scene: Scene) -> None:
    first, second, one, other = await _hedged(scene)
    granted(await _settle(scene, first, ok=False))
    granted(await scene.store.release(Release(act=scene.unnamed(second), refuse=True)))
    assert await scene.state(first.job.id) == State.FAILED
    assert await _figures(scene, one) == {"claims": 1, "jobs_failed": 1}
    assert await _figures(scene, other) == {"claims": 1, "jobs_refused": 1}


async def test_of_two_failures_the_last_one_counts(scene: Scene) -> None:
    first, second, one, other = await _hedged(scene)
    granted(await _settle(scene, first, ok=False))
    last = granted(await _settle(scene, second, ok=False))
    assert (last.state, last.counted) == (State.FAILED, True)
    assert await _figures(scene, one) == {"claims": 1}
    assert await _figures(scene, other) == {"claims": 1, "jobs_failed": 1}


async def test_the_error_and_the_result_of_a_job_are_of_one_attempt(scene: Scene) -> None:
    first, second, _, other = await _hedged(scene)
    held = report(ok=False, error="no route", result='{"code":"dns"}')
    granted(await scene.store.settle(Settle(act=scene.unnamed(first), report=held)))
    granted(await _settle(scene, second, ok=False))
    job = await scene.job(first.job.id)
    assert (job.state, job.result) == (State.FAILED, None)
    assert (await _figures(scene, other))["jobs_failed"] == 1


async def test_who_cannot_say_decides_nothing_even_where_a_held_failure_then_does(scene: Scene) -> None:
    first, second, one, other = await _hedged(scene)
    granted(await _settle(scene, first, ok=False))
    unsure = Settle(act=scene.unnamed(second), report=report(ok=False, uncertain=True))
    answer = granted(await scene.store.settle(unsure))
    assert (answer.state, answer.counted) == (State.FAILED, False)
    again = granted(await scene.store.settle(unsure))
    assert (again.state, again.counted, again.replay) == (State.FAILED, False, True)
    assert await _figures(scene, one) == {"claims": 1, "jobs_failed": 1}
    assert await _figures(scene, other) == {"claims": 1}


async def test_a_report_sent_twice_counts_once(scene: Scene) -> None:
    lane, session = scene.id(), scene.id()
    await scene.submit(lane, FETCH_SAFE, kind="fetch.http")
    claimed = await _take(scene, lane, session=session)
    first = granted(await _settle(scene, claimed, size=3))
    again = granted(await _settle(scene, claimed, size=3))
    assert (first.counted, again.counted, again.replay) == (True, True, True)
    assert await _figures(scene, session) == {"claims": 1, "jobs_done": 1, "bytes_out": 3}


async def test_a_job_whose_agents_all_vanish_ends_and_counts_for_nobody(scene: Scene) -> None:
    lane, sessions = scene.id(), [scene.id() for _ in range(3)]
    job = await scene.submit(lane, FETCH_SAFE, kind="fetch.http")
    first = await _take(scene, lane, session=sessions[0])
    scene.clock.advance(SOON)
    second = await _take(scene, lane, session=sessions[1])
    await scene.lapse(first)
    await scene.lapse(second)
    assert await scene.state(job) == State.QUEUED
    third = await _take(scene, lane, session=sessions[2])
    await scene.lapse(third)
    assert await scene.state(job) == State.FAILED
    for session in sessions:
        assert await _figures(scene, session) == {"claims": 1}


async def test_an_unsafe_request_whose_agent_vanished_is_uncertain_and_never_hedged(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, FETCH_UNSAFE, kind="fetch.http")
    claimed = await _take(scene, lane, session=scene.id())
    scene.clock.advance(SOON)
    assert await scene.claim(scene.id(), lane) == []
    await scene.lapse(claimed)
    assert await scene.state(job) == State.UNCERTAIN


async def test_a_refusal_of_what_was_not_done_goes_back_even_where_the_claim_was_the_start(
    scene: Scene,
) -> None:
    lane, agent, session = scene.id(), scene.id(), scene.id()
    job = await scene.submit(lane, FETCH_UNSAFE, kind="fetch.http")
    claimed = await _take(scene, lane, session=session, agent=agent)
    act = scene.unnamed(claimed)
    refused(await scene.store.release(Release(act=act, refuse=True)), "no-return")
    refused(await scene.store.release(Release(act=act, untouched=True)), "no-return")
    granted(await scene.store.release(Release(act=act, refuse=True, untouched=True)))
    assert await scene.state(job) == State.QUEUED
    assert (await scene.job(job)).tries == 0
    assert await scene.claim(agent, lane) == []
    assert await _figures(scene, session) == {"claims": 1, "jobs_refused": 1}
    await _take(scene, lane, session=scene.id())


async def test_the_loser_of_a_hedge_is_told_so_for_a_while(scene: Scene) -> None:
    first, second, _, _ = await _hedged(scene)
    assert await scene.store.over(first.attempt.agent_id) == []
    granted(await _settle(scene, second))
    assert await scene.store.over(first.attempt.agent_id) == [first.job.id]
    assert await scene.store.over(second.attempt.agent_id) == []
    scene.clock.advance(600 * SECOND)
    assert await scene.store.over(first.attempt.agent_id) == []


async def test_an_agent_whose_lease_was_lost_is_told_once_the_job_is_over(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, FETCH_SAFE, kind="fetch.http")
    slow = await _take(scene, lane, session=scene.id())
    await scene.lapse(slow)
    assert await scene.store.over(slow.attempt.agent_id) == []
    granted(await _settle(scene, await _take(scene, lane, session=scene.id())))
    assert await scene.store.over(slow.attempt.agent_id) == [job]


async def test_an_agent_is_told_of_a_job_that_is_to_be_cancelled(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane, FETCH_SAFE, kind="fetch.http")
    claimed = await _take(scene, lane, session=scene.id())
    granted(await scene.cancel(job))
    assert await scene.store.over(claimed.attempt.agent_id) == [job]


async def test_a_claim_of_several_lanes_takes_the_oldest_first(scene: Scene) -> None:
    one, other, session = scene.id(), scene.id(), scene.id()
    made = [await scene.submit(lane, FETCH_SAFE, kind="fetch.http") for lane in (one, other, one, other)]
    got = await scene.claim(
        scene.id(), one, other, dialect=Dialect.SEED, begin=True, session=session, max=3, per_lane=3
    )
    assert [claimed.job.id for claimed in got] == made[:3]
    assert (await _figures(scene, session))["claims"] == 3


async def test_two_agents_that_race_to_settle_one_job_make_one_winner(scene: Scene) -> None:
    rounds, dice = 500, Dice(7)
    sessions = [scene.id(), scene.id()]
    agents = [scene.id(), scene.id()]
    lanes = [scene.id() for _ in range(rounds)]
    for lane in lanes:
        await scene.submit(lane, FETCH_SAFE, kind="fetch.http", submitted_by=KEY)
    held: list[list[Claimed]] = []
    for lane in lanes:
        held.append([await _take(scene, lane, session=sessions[0], agent=agents[0])])
    scene.clock.advance(SOON)
    for lane, pair in zip(lanes, held, strict=True):
        pair.append(await _take(scene, lane, session=sessions[1], agent=agents[1]))
    wins, losses = [0, 0], [0, 0]

    async def race(who: int, claimed: Claimed) -> None:
        answer = await _settle(scene, claimed, ok=True, size=1)
        counted = isinstance(answer, Settled) and answer.counted
        (wins if counted else losses)[who] += 1

    for pair in held:
        order = dice.pick(([0, 1], [1, 0]))
        await asyncio.gather(*(race(who, pair[who]) for who in order))
    assert (sum(wins), sum(losses)) == (rounds, rounds)
    for who, session in enumerate(sessions):
        figures = await _figures(scene, session)
        assert figures.get("jobs_done", 0) == figures.get("bytes_out", 0) == wins[who]
    assert await _figures(scene, KEY) == {"claims": 2 * rounds, "jobs_done": rounds, "bytes_out": rounds}
