"""What people and proof decide: resolve, adopt, the gate; and reading."""

from farhand.engine.requests import JobFilter
from farhand.model.job import UPLOAD_TIMEOUT, Outcome, State, Verb
from farhand.model.policy import PRINT
from farhand.testing.conformance.spots import reach
from farhand.testing.factories import ORG, PERSON, Scene, granted, refused


async def test_a_person_says_how_an_uncertain_job_ended(scene: Scene) -> None:
    for done, state, error in ((True, State.DONE, None), (False, State.FAILED, "it is not there")):
        spot = await reach(scene, "lost_past_no_return")
        order = scene.order(spot.job_id, done=done, note=error)
        assert granted(await scene.store.resolve(order)) == state
        job = await scene.job(spot.job_id)
        assert (job.state, job.evidence, job.error) == (state, "person", error)
        assert (await scene.events(spot.job_id))[-1].actor == PERSON
        refused(await scene.store.resolve(order), "state-conflict")


async def test_proof_brings_an_uncertain_job_back_to_work(scene: Scene) -> None:
    spot = await reach(scene, "lost_past_no_return")
    granted(await scene.store.adopt(scene.order(spot.job_id, note="the file is on the machine")))
    job = await scene.job(spot.job_id)
    assert (job.state, job.finished_at, job.reason) == (State.RUNNING, None, None)
    assert job.due_at == scene.clock.now_ms() + PRINT.lease_ms
    granted(await scene.heartbeat(spot.newest, phase="printing"))
    granted(await scene.settle(spot.newest, evidence="telemetry"))
    assert await scene.state(spot.job_id) == State.DONE


async def test_proof_is_the_only_way_out_of_a_terminal_state(scene: Scene) -> None:
    spot = await reach(scene, "upload_timed_out")
    assert (await scene.job(spot.job_id)).reason == UPLOAD_TIMEOUT
    granted(await scene.store.adopt(scene.order(spot.job_id)))
    job = await scene.job(spot.job_id)
    assert (job.state, job.finished_at, job.prune_at, job.error) == (State.RUNNING, None, None, None)
    for name in ("printed", "failed", "cancelled", "expired"):
        spot = await reach(scene, name)
        refused(await scene.store.adopt(scene.order(spot.job_id)), "state-conflict")


async def test_an_adopted_job_that_falls_silent_is_uncertain_again(scene: Scene) -> None:
    spot = await reach(scene, "lost_past_no_return")
    granted(await scene.store.adopt(scene.order(spot.job_id)))
    await scene.lapse(spot.newest)
    assert await scene.state(spot.job_id) == State.UNCERTAIN
    assert [a.outcome for a in await scene.attempts(spot.job_id)] == [Outcome.LOST]


async def test_a_gate_ends_a_queued_job_and_no_other(scene: Scene) -> None:
    spot = await reach(scene, "fresh")
    order = scene.order(spot.job_id, note="the upload is empty")
    assert granted(await scene.store.fail_at_gate(order)) == State.FAILED
    assert (await scene.job(spot.job_id)).error == "the upload is empty"
    for name in ("later", "offered", "spooling", "lost_past_no_return", "printed"):
        spot = await reach(scene, name)
        refused(await scene.store.fail_at_gate(scene.order(spot.job_id)), "state-conflict")


async def test_what_is_another_tenant_s_is_not_there(scene: Scene) -> None:
    spot = await reach(scene, "lost_past_no_return")
    before = await scene.snapshot(spot.job_id)
    order = scene.order(spot.job_id)
    foreign = type(order)(org_id=2, job_id=order.job_id, actor=order.actor)
    for verb in (scene.store.cancel, scene.store.resolve, scene.store.adopt, scene.store.fail_at_gate):
        refused(await verb(foreign), "not-found")
    assert await scene.store.job(2, spot.job_id) is None
    assert await scene.store.events(2, spot.job_id) is None
    assert await scene.store.jobs(JobFilter(org_id=2)) == []
    refused(await scene.store.cancel(scene.order(scene.id())), "not-found")
    assert await scene.snapshot(spot.job_id) == before


async def test_the_trail_tells_the_whole_story_in_order(scene: Scene) -> None:
    spot = await reach(scene, "spooling")
    granted(await scene.heartbeat(spot.newest, reason="out of paper", says_reason=True))
    granted(await scene.heartbeat(spot.newest, reason="out of paper", says_reason=True))
    granted(await scene.cancel(spot.job_id))
    granted(await scene.settle(spot.newest, evidence="printed"))
    trail = await scene.events(spot.job_id)
    told = [(e.verb, e.from_state, e.to_state) for e in trail]
    assert told == [
        (Verb.SUBMIT, None, State.QUEUED),
        (Verb.CLAIM, State.QUEUED, State.CLAIMED),
        (Verb.START, State.CLAIMED, State.RUNNING),
        (Verb.REPORT, State.RUNNING, State.RUNNING),
        (Verb.CANCEL, State.RUNNING, State.RUNNING),
        (Verb.SETTLE, State.RUNNING, State.DONE),
    ]
    assert [e.number for e in trail] == [1, 2, 3, 4, 5, 6]
    assert [e.attempt for e in trail] == [None, 1, 1, 1, None, 1]
    assert trail[3].reason == "spooling: out of paper"
    page = await scene.store.events(ORG, spot.job_id, after=2, limit=2)
    assert page == trail[2:4]


async def test_chatter_does_not_fill_the_trail_without_end(scene: Scene) -> None:
    spot = await reach(scene, "spooling")
    for n in range(700):
        granted(await scene.heartbeat(spot.newest, reason=f"page {n}", says_reason=True))
    assert (await scene.job(spot.job_id)).reason == "page 699"
    granted(await scene.settle(spot.newest))
    trail = await scene.events(spot.job_id)
    assert len(trail) <= 502
    assert trail[-1].verb == Verb.SETTLE


async def test_jobs_are_listed_newest_first_by_every_filter(scene: Scene) -> None:
    lane, device, agent = scene.id(), scene.id(), scene.id()
    first = await scene.submit(lane, device_id=device, tags=("a%b", "x"), source="shop")
    second = await scene.submit(lane, device_id=device, agent_id=agent, tags=("axb",))
    third = await scene.submit(lane, kind="fetch.http")
    granted(await scene.cancel(third))

    async def ids(**fields: object) -> list[bytes]:
        query = JobFilter(org_id=ORG, **fields)  # pyright: ignore[reportArgumentType]  (each test names its own)
        return [job.id for job in await scene.store.jobs(query)]

    assert await ids() == [third, second, first]
    assert await ids(state="queued") == [second, first]
    assert await ids(kind="fetch.http") == [third]
    assert await ids(device_id=device) == [second, first]
    assert await ids(device_id=device, state="done") == []
    assert await ids(device_id=device, source="shop") == [first]
    assert await ids(agent_id=agent) == [second]
    assert await ids(tag="a%b") == [first]
    assert await ids(tag="x") == [first]
    assert await ids(limit=1) == [third]
    seq = (await scene.job(second)).seq
    assert await ids(before=seq) == [first]
    assert await ids(device_id=device, before=seq) == [first]


async def test_a_job_knows_how_many_come_first(scene: Scene) -> None:
    lane = scene.id()
    one = await scene.submit(lane)
    two = await scene.submit(lane)
    urgent = await scene.submit(lane, priority=1)
    ahead = [await scene.store.queued_before(await scene.job(job)) for job in (one, two, urgent)]
    assert ahead == [1, 2, 0]
