"""Work that telemetry settles: made for a device, ended by what the machine shows, taken back by proof."""

import hashlib

from farhand.engine.attempt import Progress
from farhand.engine.requests import Act, Attach, Claimed, PutFirst
from farhand.model.job import UPLOAD_TIMEOUT, State
from farhand.model.policy import DAY, FARM, SECOND
from farhand.testing.conformance.holds import hold_of
from farhand.testing.factories import ORG, Scene, granted, refused

FILE = hashlib.sha256(b"a file").digest()


async def _offered(scene: Scene, **fields: object) -> tuple[bytes, bytes, bytes, Claimed]:
    gateway, farm, device = scene.id(), scene.id(), scene.id()
    await scene.submit(farm, FARM, **fields)
    (claimed,) = await scene.claim(gateway, farm, device_id=device, hold=True)
    return gateway, farm, device, claimed


async def test_an_offer_made_for_a_device_comes_with_the_next_poll_of_its_agent(scene: Scene) -> None:
    gateway, _, device, claimed = await _offered(scene)
    (found,) = await scene.claim(gateway, device, poll_id="a")
    assert (found.job.id, found.attempt.token) == (claimed.job.id, claimed.attempt.token)
    assert await scene.claim(scene.id(), device, poll_id="b") == []
    granted(await scene.start(found, "downloading"))
    assert await scene.claim(gateway, device, poll_id="c") == []


async def test_an_offer_made_for_a_device_answers_the_poll_that_is_parked_there(scene: Scene) -> None:
    gateway, farm, device = scene.id(), scene.id(), scene.id()
    ticket = scene.store.claim_or_park(scene.asks(gateway, device, poll_id="a"))
    assert await ticket.first() == []
    await scene.submit(farm, FARM)
    (claimed,) = await scene.claim(gateway, farm, device_id=device, hold=True)
    (found,) = await ticket.result(10_000)
    assert found.attempt.token == claimed.attempt.token


async def test_the_job_that_is_named_is_claimed_before_older_ones(scene: Scene) -> None:
    farm, device = scene.id(), scene.id()
    await scene.submit(farm, FARM)
    wanted = await scene.submit(farm, FARM)
    (claimed,) = await scene.claim(scene.id(), farm, device_id=device, hold=True, job_id=wanted)
    assert claimed.job.id == wanted
    assert await scene.claim(scene.id(), farm, device_id=scene.id(), hold=True, job_id=wanted) == []
    other = scene.id()
    assert await scene.claim(scene.id(), scene.id(), device_id=other, hold=True, job_id=wanted) == []


async def test_a_print_that_was_stopped_at_its_machine_is_cancelled_though_nobody_asked(scene: Scene) -> None:
    _, _, device, claimed = await _offered(scene)
    granted(await scene.start(claimed, "starting"))
    granted(await scene.settle(claimed, ok=False, cancelled=True, error="cancelled at the printer"))
    job = await scene.job(claimed.job.id)
    assert (job.state, job.reason) == (State.CANCELLED, "cancelled at the printer")
    assert await hold_of(scene, device) == (None, "bed")


async def test_an_upload_that_stood_still_keeps_its_device_and_is_taken_back_by_proof(scene: Scene) -> None:
    _, _, device, claimed = await _offered(scene)
    granted(await scene.start(claimed, "uploading"))
    granted(await scene.settle(claimed, ok=False, error=UPLOAD_TIMEOUT))
    job = await scene.job(claimed.job.id)
    assert (job.state, job.reason) == (State.FAILED, UPLOAD_TIMEOUT)
    assert await hold_of(scene, device) == (None, "bed")
    granted(await scene.store.adopt(scene.order(job.id)))
    assert await scene.state(job.id) == State.RUNNING
    assert await hold_of(scene, device) == (job.id, "job")


async def test_silence_after_the_start_is_borne_for_a_day_and_before_it_for_a_minute(scene: Scene) -> None:
    _, _, _, claimed = await _offered(scene)
    held = granted(await scene.start(claimed, "uploading"))
    assert held.lease_ms == 60 * SECOND
    held = granted(await scene.heartbeat(claimed, phase="starting"))
    assert held.lease_ms == DAY
    await scene.lapse(claimed)
    assert await scene.state(claimed.job.id) == State.UNCERTAIN


async def test_an_attempt_is_written_about_without_its_token_by_its_own_agent(scene: Scene) -> None:
    gateway, _, _, claimed = await _offered(scene)
    act = Act(org_id=ORG, job_id=claimed.job.id, agent_id=gateway, progress=Progress(phase="starting"))
    granted(await scene.store.heartbeat(act))
    assert (await scene.job(claimed.job.id)).phase == "starting"


async def test_a_file_that_arrives_after_its_job_is_pinned_to_it(scene: Scene) -> None:
    job = await scene.submit(scene.id(), FARM)
    first = Attach(order=scene.order(job), sha256=FILE, size=6)
    granted(await scene.store.attach(first))
    again = Attach(order=scene.order(job), sha256=hashlib.sha256(b"another").digest(), size=7)
    granted(await scene.store.attach(again))
    row = await scene.job(job)
    place = await scene.store.payload(row.seq)
    assert place is not None
    assert (row.payload_size, place.sha256, place.size) == (6, FILE, 6)
    known = await scene.store.job(ORG, job)
    assert known is not None
    assert known.payload_size == 6


async def test_a_job_that_is_over_takes_no_file(scene: Scene) -> None:
    job = await scene.submit(scene.id(), FARM)
    granted(await scene.cancel(job))
    refused(await scene.store.attach(Attach(order=scene.order(job), sha256=FILE, size=6)), "state-conflict")


async def test_a_job_moved_to_the_top_goes_first(scene: Scene) -> None:
    farm = scene.id()
    await scene.submit(farm, FARM, priority=3)
    last = await scene.submit(farm, FARM)
    granted(await scene.store.put_first(PutFirst(order=scene.order(last), priority=4)))
    (claimed,) = await scene.claim(scene.id(), farm, device_id=scene.id(), hold=True)
    assert claimed.job.id == last
    refused(await scene.store.put_first(PutFirst(order=scene.order(last), priority=9)), "state-conflict")
