"""Group commit and hand-off: shared transactions, requests that fail alone, parked claims."""

import asyncio

import msgspec

from farhand.engine.requests import Settle
from farhand.engine.wakeups import Ticket
from farhand.model.errors import Problem
from farhand.model.job import State
from farhand.model.policy import COMMAND, PRINT
from farhand.storage.database import StatementFailed
from farhand.testing.factories import ORG, Scene, granted, refused, report

SOON_MS = 5_000
# Neither database takes this for an integer column.
TOO_LARGE = 1 << 70


async def parked(scene: Scene, lane: bytes, **fields: object) -> Ticket:
    """A claim of a new agent that found nothing and waits."""
    ticket = scene.store.claim_or_park(scene.asks(scene.id(), lane, **fields))
    assert await ticket.first() == []
    assert not ticket.future.done()
    return ticket


async def test_concurrent_submits_share_transactions(scene: Scene) -> None:
    sizes: list[int] = []
    scene.store.writer.observe = sizes.append
    lane = scene.id()
    jobs = await asyncio.gather(*(scene.submit(lane) for _ in range(100)))
    assert len(set(jobs)) == 100
    assert sum(sizes) == 100
    assert len(sizes) < 20


async def test_each_job_of_a_batch_keeps_its_own_payload_and_its_place(scene: Scene) -> None:
    lane = scene.id()
    jobs = await asyncio.gather(
        *(scene.submit(lane, title=f"{n}", payload=b"payload %d" % n) for n in range(30))
    )
    claimed = await scene.claim(scene.id(), lane, max=30)
    assert [c.job.id for c in claimed] == jobs
    assert [c.job.title for c in claimed] == [f"{n}" for n in range(30)]
    assert [c.body for c in claimed] == [b"payload %d" % n for n in range(30)]


async def test_every_verb_of_a_batch_gets_its_own_answer(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    for _ in range(4):
        await scene.submit(lane)
    one, two, three, four = await scene.claim(agent, lane, max=4, accept=True)
    attempts = asyncio.gather(
        scene.start(one), scene.settle(two), scene.release(three), scene.heartbeat(four)
    )
    others = asyncio.gather(scene.submit(lane), scene.cancel(scene.id()))
    rest = asyncio.gather(scene.claim(scene.id(), scene.id()), scene.store.sweep())
    states = [granted(answer).state for answer in await attempts]
    assert states == [State.RUNNING, State.DONE, State.QUEUED, State.CLAIMED]
    job, missing = await others
    assert await scene.state(job) == State.QUEUED
    refused(missing, "not-found")
    assert await rest == [[], 0]


async def test_verbs_on_one_job_run_in_the_order_they_came(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    claimed = await scene.take(scene.id(), lane)
    started, settled, late = await asyncio.gather(
        scene.start(claimed, "spooling"), scene.settle(claimed), scene.heartbeat(claimed)
    )
    assert granted(started).state == State.RUNNING
    assert granted(settled).state == State.DONE
    refused(late, "stale-claim")
    assert [e.verb for e in await scene.events(job)] == ["submit", "claim", "start", "settle"]


async def test_a_request_that_the_database_refuses_fails_alone(scene: Scene) -> None:
    lane = scene.id()
    answers = await asyncio.gather(
        *(scene.submit(lane, priority=TOO_LARGE if n == 7 else n) for n in range(20)),
        return_exceptions=True,
    )
    bad = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(bad) == 1
    assert bad[0] is answers[7]
    claimed = await scene.claim(scene.id(), lane, max=64)
    assert {c.job.id for c in claimed} == {a for a in answers if isinstance(a, bytes)}
    assert len(claimed) == 19


async def test_a_constraint_that_does_not_hold_fails_one_request(scene: Scene) -> None:
    lane = scene.id()
    answers = await asyncio.gather(
        *(scene.submit(lane, org_id=77 if n == 3 else ORG) for n in range(8)), return_exceptions=True
    )
    bad = [answer for answer in answers if isinstance(answer, BaseException)]
    assert [type(error) for error in bad] == [StatementFailed]
    assert answers.index(bad[0]) == 3
    assert len(await scene.claim(scene.id(), lane, max=64)) == 7


async def test_text_that_only_one_database_takes_harms_nobody_else(scene: Scene) -> None:
    lane = scene.id()
    answers = await asyncio.gather(
        *(scene.submit(lane, title=t) for t in ("a", "NUL \0 inside", "b", "\ud800", "c")),
        return_exceptions=True,
    )
    made = [answer for answer in answers if isinstance(answer, bytes)]
    assert len(made) >= 3
    assert all(isinstance(answers[n], bytes) for n in (0, 2, 4))
    assert len(await scene.claim(scene.id(), lane, max=64)) == len(made)


async def test_an_unknown_capability_too_many_fails_one_request(scene: Scene) -> None:
    lane = scene.id()
    names = [frozenset({f"cap{n}"}) for n in range(70)]
    answers = await asyncio.gather(*(scene.try_submit(lane, requires=r) for r in [*names, frozenset[str]()]))
    granted(answers[-1])
    assert sum(isinstance(answer, Problem) and answer.problem == "bad-field" for answer in answers) == 8


async def test_a_rolled_back_batch_leaves_no_capability_behind(scene: Scene) -> None:
    lane = scene.id()
    tried = await asyncio.gather(
        scene.submit(lane, requires=frozenset({"pdf"}), priority=TOO_LARGE), return_exceptions=True
    )
    assert isinstance(tried[0], BaseException)
    await scene.submit(lane, requires=frozenset({"zpl"}))
    learned: dict[str, int] = {}
    async with scene.store.database.transaction() as tx:
        capabilities = scene.store.writer.capabilities
        zpl = await capabilities.bits(tx, ["zpl"], learned, org_id=ORG, now=0)
        pdf = await capabilities.bits(tx, ["pdf"], learned, org_id=ORG, now=0)
    assert zpl != pdf
    assert await scene.claim(scene.id(), lane, capabilities=pdf) == []
    assert len(await scene.claim(scene.id(), lane, capabilities=zpl)) == 1


async def test_a_rolled_back_batch_leaves_no_policy_behind(scene: Scene) -> None:
    lane, other = scene.id(), scene.id()
    ticket = await parked(scene, lane, accept_ms=TOO_LARGE)
    tried = await asyncio.gather(scene.submit(lane, COMMAND), return_exceptions=True)
    assert isinstance(tried[0], BaseException)
    assert await ticket.settled() == []
    await scene.submit(other, PRINT)
    (claimed,) = await scene.claim(scene.id(), other)
    assert claimed.policy == PRINT


async def test_a_submit_answers_a_parked_claim_in_its_own_transaction(scene: Scene) -> None:
    lane = scene.id()
    ticket = await parked(scene, lane)
    commits: list[int] = []
    scene.store.writer.observe = commits.append
    job = await scene.submit(lane, payload=b"^XA^XZ")
    (claimed,) = await ticket.result(SOON_MS)
    assert (claimed.job.id, claimed.body) == (job, b"^XA^XZ")
    assert commits == [1]
    assert await scene.state(job) == State.CLAIMED


async def test_one_job_wakes_one_parked_claim(scene: Scene) -> None:
    lane = scene.id()
    tickets = [await parked(scene, lane) for _ in range(5)]
    await scene.submit(lane)
    answers = await asyncio.gather(*(ticket.result(50) for ticket in tickets))
    assert [len(answer) for answer in answers] == [1, 0, 0, 0, 0]


async def test_a_hand_off_gives_the_oldest_and_best_job_not_its_own(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane, requires=frozenset({"pdf"}))
    ticket = await parked(scene, lane)
    jobs = await asyncio.gather(scene.submit(lane), scene.submit(lane, priority=3))
    (claimed,) = await ticket.result(SOON_MS)
    assert claimed.job.id == jobs[1]


async def test_a_hand_off_passes_over_a_claim_that_cannot_take_the_job(scene: Scene) -> None:
    lane = scene.id()
    unable = await parked(scene, lane)
    able = await parked(scene, lane, capabilities=(1 << 62) - 1)
    await scene.submit(lane, requires=frozenset({"pdf"}))
    assert len(await able.result(SOON_MS)) == 1
    await scene.submit(lane)
    assert len(await unable.result(SOON_MS)) == 1


async def test_what_goes_back_to_the_queue_wakes_a_parked_claim(scene: Scene) -> None:
    lane = scene.id()
    await scene.submit(lane)
    claimed = await scene.take(scene.id(), lane)
    ticket = await parked(scene, lane)
    granted(await scene.release(claimed))
    (again,) = await ticket.result(SOON_MS)
    ticket = await parked(scene, lane)
    await scene.lapse(again)
    assert len(await ticket.result(SOON_MS)) == 1


async def test_a_parked_claim_that_gives_up_gets_nothing_later(scene: Scene) -> None:
    lane = scene.id()
    ticket = await parked(scene, lane)
    assert await ticket.result(1) == []
    job = await scene.submit(lane)
    assert await scene.state(job) == State.QUEUED
    assert scene.store.hub.parked_lanes == []


async def test_a_claim_withdrawn_during_its_hand_off_still_gets_the_jobs(scene: Scene) -> None:
    lane = scene.id()
    ticket = await parked(scene, lane)
    submitting = asyncio.create_task(scene.submit(lane))
    for _ in range(10_000):
        if ticket.taken:
            break
        await asyncio.sleep(0)
    assert not ticket.future.done()
    (claimed,) = await ticket.settled()
    assert claimed.job.id == await submitting


async def test_a_failed_batch_parks_again_what_it_had_taken(scene: Scene) -> None:
    lane = scene.id()
    ticket = await parked(scene, lane)
    bad = scene.submit(lane, priority=TOO_LARGE)
    good = scene.submit(lane)
    answers = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(answers[0], BaseException)
    (claimed,) = await ticket.result(SOON_MS)
    assert claimed.job.id == answers[1]


async def test_a_hand_off_that_fails_leaves_the_claim_parked(scene: Scene) -> None:
    lane = scene.id()
    ticket = await parked(scene, lane, max=1)
    broken = msgspec.structs.replace(ticket.request, accept_ms=TOO_LARGE)
    ticket.request = broken
    failed = await asyncio.gather(scene.submit(lane), return_exceptions=True)
    assert isinstance(failed[0], BaseException)
    ticket.request = msgspec.structs.replace(broken, accept_ms=10_000)
    await scene.submit(lane)
    assert len(await ticket.result(SOON_MS)) == 1


async def test_the_same_poll_on_a_new_connection_replaces_the_old_one(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    old = scene.store.claim_or_park(scene.asks(agent, lane, poll_id="p"))
    await old.first()
    new = scene.store.claim_or_park(scene.asks(agent, lane, poll_id="p"))
    assert await old.result(SOON_MS) == []
    await new.first()
    await scene.submit(lane)
    assert len(await new.result(SOON_MS)) == 1


async def test_a_settle_carries_the_next_claim(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    await scene.submit(lane)
    second = await scene.submit(lane)
    claimed = await scene.take(agent, lane, poll_id="1")
    sizes: list[int] = []
    scene.store.writer.observe = sizes.append
    then = scene.asks(agent, lane, poll_id="2", accept=True)
    settle = Settle(act=scene.act(claimed), report=report())
    answer, ticket = await scene.store.settle_then_claim(settle, then)
    assert granted(answer).state == State.DONE
    (found,) = await ticket.result(SOON_MS)
    assert found.job.id == second
    assert sizes == [1]


async def test_a_refused_settle_does_not_stop_the_claim(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    await scene.submit(lane)
    claimed = await scene.take(agent, lane)
    await scene.lapse(claimed)
    await scene.take(scene.id(), lane)
    second = await scene.submit(lane)
    settle = Settle(act=scene.act(claimed), report=report())
    answer, ticket = await scene.store.settle_then_claim(settle, scene.asks(agent, lane))
    refused(answer, "stale-claim")
    (found,) = await ticket.result(SOON_MS)
    assert found.job.id == second


async def test_a_settle_with_next_parks_when_there_is_nothing(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    await scene.submit(lane)
    claimed = await scene.take(agent, lane)
    settle = Settle(act=scene.act(claimed), report=report())
    _, ticket = await scene.store.settle_then_claim(settle, scene.asks(agent, lane))
    assert not ticket.future.done()
    await scene.submit(lane)
    assert len(await ticket.result(SOON_MS)) == 1


async def test_a_caller_that_goes_away_leaves_no_claim_parked_behind_it(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    job = await scene.submit(lane)
    claimed = await scene.take(agent, lane)
    settle = Settle(act=scene.act(claimed), report=report())
    gone = asyncio.create_task(scene.store.settle_then_claim(settle, scene.asks(agent, lane)))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait((gone,))
    # The same report again: whichever of the two comes first, the job is done after this one.
    granted(await scene.settle(claimed))
    assert await scene.state(job) == State.DONE
    assert scene.store.hub.parked_lanes == []


async def test_a_cancelled_caller_does_not_disturb_its_batch(scene: Scene) -> None:
    lane = scene.id()
    tasks = [asyncio.create_task(scene.submit(lane, priority=TOO_LARGE if n == 4 else 0)) for n in range(12)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[4].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(answer, bytes) for answer in answers) == 10


async def test_closing_answers_parked_claims_and_finishes_what_is_queued(scene: Scene) -> None:
    lane = scene.id()
    ticket = await parked(scene, scene.id())
    waiting = asyncio.create_task(ticket.result(60_000))
    submits = [asyncio.create_task(scene.submit(lane)) for _ in range(5)]
    await asyncio.sleep(0)
    await scene.store.close()
    assert await waiting == []
    assert len({await task for task in submits}) == 5
    await scene.store.close()


async def test_a_watcher_is_woken_by_the_job_s_next_change(scene: Scene) -> None:
    lane = scene.id()
    job = await scene.submit(lane)
    other = await scene.submit(scene.id())
    watch, untouched = scene.store.hub.watch(job), scene.store.hub.watch(other)
    await scene.take(scene.id(), lane)
    await asyncio.wait_for(watch, 5)
    assert not untouched.done()
    scene.store.hub.unwatch(other, untouched)
    scene.store.hub.close()
    await asyncio.wait_for(scene.store.hub.watch(other), 5)


async def _race(scene: Scene, turns: int) -> list[int]:
    """Three claims that park while three submits come in; how many jobs each claim got."""
    lane = scene.id()
    tickets: list[Ticket] = []

    async def park(agent: bytes) -> None:
        ticket = scene.store.claim_or_park(scene.asks(agent, lane))
        tickets.append(ticket)
        await ticket.first()

    async def submit(turn: int) -> None:
        for _ in range(turn * turns):
            await asyncio.sleep(0)
        await scene.submit(lane)

    await asyncio.gather(*(park(scene.id()) for _ in range(3)), *(submit(turn) for turn in range(3)))
    answers = await asyncio.gather(*(ticket.result(SOON_MS) for ticket in tickets))
    return [len(answer) for answer in answers]


async def test_claims_parked_beside_running_submits_are_never_forgotten(scene: Scene) -> None:
    for turn in range(90):
        assert await _race(scene, turn % 9) == [1, 1, 1]
