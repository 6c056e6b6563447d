"""Holds: what occupies a device, where telemetry settles the job."""

import asyncio
import dataclasses

from farhand.engine.requests import Claimed
from farhand.model.job import State
from farhand.model.policy import FARM
from farhand.testing.factories import ORG, Scene, granted

POLICY = dataclasses.replace(FARM, max_attempts=2)


async def hold_of(scene: Scene, device: bytes) -> tuple[bytes | None, str] | None:
    """The job and the reason of a device's hold."""
    async with scene.store.database.read() as reader:
        row = await reader.one("hold_of", {"device_id": device})
    return (row[0], row[1]) if row is not None else None


async def _offer(scene: Scene, farm: bytes, device: bytes) -> list[Claimed]:
    return await scene.claim(scene.id(), farm, device_id=device, hold=True)


async def _printing(scene: Scene) -> tuple[bytes, Claimed]:
    farm, device = scene.id(), scene.id()
    await scene.submit(farm, POLICY)
    (claimed,) = await _offer(scene, farm, device)
    granted(await scene.start(claimed, "starting"))
    return device, claimed


async def test_a_claim_takes_its_device(scene: Scene) -> None:
    farm, device = scene.id(), scene.id()
    job = await scene.submit(farm, POLICY)
    await scene.submit(farm, POLICY)
    (claimed,) = await scene.claim(scene.id(), farm, device_id=device, hold=True, max=5)
    assert claimed.job.id == job
    assert await hold_of(scene, device) == (job, "job")
    assert (await scene.job(job)).device_id == device
    assert await _offer(scene, farm, device) == []
    (other,) = await _offer(scene, farm, scene.id())
    assert other.job.id != job


async def test_two_claims_of_one_device_have_one_winner(scene: Scene) -> None:
    farm, device = scene.id(), scene.id()
    for _ in range(4):
        await scene.submit(farm, POLICY)
    answers = await asyncio.gather(*(_offer(scene, farm, device) for _ in range(4)))
    assert sum(len(claimed) for claimed in answers) == 1


async def test_a_device_is_free_again_when_its_offer_goes_back(scene: Scene) -> None:
    for turn in range(4):
        farm, device = scene.id(), scene.id()
        job = await scene.submit(farm, POLICY)
        (claimed,) = await _offer(scene, farm, device)
        if turn == 0:
            await scene.lapse(claimed)
        elif turn == 1:
            granted(await scene.release(claimed))
        elif turn == 2:
            granted(await scene.cancel(job))
        else:
            granted(await scene.start(claimed, "uploading"))
            await scene.lapse(claimed)
        assert await hold_of(scene, device) is None, turn
        if turn != 2:
            assert len(await _offer(scene, farm, device)) == 1


async def test_any_end_after_the_start_leaves_the_bed_to_be_cleared(scene: Scene) -> None:
    for said in (
        {"ok": True},
        {"ok": False},
        {"ok": False, "cancelled": True},
        {"ok": False, "retryable": True},
    ):
        device, claimed = await _printing(scene)
        if said.get("cancelled"):
            granted(await scene.cancel(claimed.job.id))
        granted(await scene.settle(claimed, **said))
        assert await hold_of(scene, device) == (None, "bed"), said


async def test_an_uncertain_print_keeps_its_device_until_somebody_knows(scene: Scene) -> None:
    for turn in range(4):
        device, claimed = await _printing(scene)
        job = claimed.job.id
        await scene.lapse(claimed)
        assert await scene.state(job) == State.UNCERTAIN
        assert await hold_of(scene, device) == (job, "job")
        if turn == 0:
            granted(await scene.store.resolve(scene.order(job, done=True)))
        elif turn == 1:
            granted(await scene.settle(claimed))
        elif turn == 2:
            granted(await scene.settle(claimed, ok=False))
        else:
            granted(await scene.retry(job, POLICY))
        assert await hold_of(scene, device) == (None, "bed"), turn


async def test_an_adopted_print_takes_its_device_again(scene: Scene) -> None:
    device, claimed = await _printing(scene)
    job = claimed.job.id
    await scene.lapse(claimed)
    granted(await scene.store.adopt(scene.order(job)))
    assert await hold_of(scene, device) == (job, "job")
    granted(await scene.settle(claimed))
    assert await hold_of(scene, device) == (None, "bed")


async def test_a_late_success_after_the_device_was_given_back_raises_the_bed_gate(scene: Scene) -> None:
    farm, device = scene.id(), scene.id()
    await scene.submit(farm, POLICY)
    (claimed,) = await _offer(scene, farm, device)
    await scene.lapse(claimed)
    assert await hold_of(scene, device) is None
    granted(await scene.settle(claimed))
    assert await hold_of(scene, device) == (None, "bed")


async def test_the_end_of_a_print_leaves_another_job_s_hold_alone(scene: Scene) -> None:
    farm, device = scene.id(), scene.id()
    await scene.submit(farm, POLICY)
    (lost,) = await _offer(scene, farm, device)
    await scene.lapse(lost)
    await scene.submit(farm, POLICY, priority=9)
    (now,) = await _offer(scene, farm, device)
    granted(await scene.settle(lost))
    assert await hold_of(scene, device) == (now.job.id, "job")


async def test_a_foreign_print_and_a_bed_keep_claims_away(scene: Scene) -> None:
    farm = scene.id()
    await scene.submit(farm, POLICY)
    for reason in ("foreign", "bed"):
        device = scene.id()
        hold = {"device_id": device, "org_id": ORG, "job_id": None, "reason": reason, "now": 0}
        async with scene.store.database.transaction() as tx:
            assert await tx.each("insert_hold", [hold])
        assert await _offer(scene, farm, device) == []
        async with scene.store.database.transaction() as tx:
            assert await tx.run("clear_hold", {"device_id": device, "reason": reason}) == 1
        (claimed,) = await _offer(scene, farm, device)
        granted(await scene.release(claimed))
