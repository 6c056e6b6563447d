"""Secret results: apart from everything else, gone in time, and never read by the wrong one."""

import dataclasses
import json
from typing import Any

from farhand.engine.requests import Claimed
from farhand.model.job import TERMINAL, Attempt
from farhand.model.policy import COMMAND
from farhand.testing.factories import ORG, Scene, granted, refused, report

TTL_MS = 90_000
KIND = "command.whatsapp.connect"
POLICY = dataclasses.replace(COMMAND, secret_fields=("qr_code", "token"), result_ttl_ms=TTL_MS)
QR = "2@Zx9'\"\\/é+Qk1vTqQ=="
RESULT = {"qr_code": QR, "session": "s-17", "size": 12345678901234567890}


async def claimed_job(scene: Scene, policy: Any = POLICY) -> Claimed:
    """A command in hand."""
    lane, agent = scene.id(), scene.id()
    await scene.submit(lane, policy, kind=KIND)
    claimed = await scene.take(agent, lane)
    granted(await scene.start(claimed))
    return claimed


async def reported(scene: Scene, result: Any = RESULT, **fields: Any) -> bytes:
    """A command that ended with a result; its id."""
    claimed = await claimed_job(scene)
    granted(await scene.settle(claimed, result=json.dumps(result), **fields))
    return claimed.job.id


async def row_is_there(scene: Scene, job_id: bytes) -> bool:
    """Whether the database still has a secret of this job, whatever a reader is told."""
    async with scene.store.database.read() as reader:
        return await reader.one("secret_of", {"org_id": ORG, "id": job_id}) is not None


async def everything_shown(scene: Scene, job_id: bytes) -> str:
    """All that the store says about a job, in one text."""
    shown = await scene.snapshot(job_id)
    listed = await scene.store.job(ORG, job_id)
    return repr((shown, listed, await scene.store.audit(ORG)))


async def test_a_secret_field_is_in_the_secret_and_nowhere_else(scene: Scene) -> None:
    job = await reported(scene, error=f"could not show {QR}", ok=False)
    assert await scene.store.secret(ORG, job) == {"qr_code": QR}
    row = await scene.job(job)
    assert row.state == "failed"
    assert row.result is not None
    assert json.loads(row.result) == {"session": "s-17", "size": 12345678901234567890}
    assert row.error == "could not show ***"
    for form in (QR, json.dumps(QR), repr(QR)[1:-1]):
        assert form not in await everything_shown(scene, job)


async def test_what_a_job_without_secret_fields_reports_is_left_as_it_is(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    job = await scene.submit(lane)
    granted(await scene.settle(await scene.take(agent, lane), result=json.dumps(RESULT)))
    assert json.loads((await scene.job(job)).result or "") == RESULT
    assert await scene.store.secret(ORG, job) is None


async def test_a_result_that_is_no_object_is_secret_as_a_whole(scene: Scene) -> None:
    for result in (QR, [QR], 493_817, True):
        job = await reported(scene, result)
        assert (await scene.job(job)).result is None
        assert await scene.store.secret(ORG, job) == {"result": result}


async def test_a_field_that_holds_a_secret_further_in_is_secret_as_a_whole(scene: Scene) -> None:
    job = await reported(scene, {"links": [{"token": QR}], "n": 1})
    assert json.loads((await scene.job(job)).result or "") == {"n": 1}
    assert await scene.store.secret(ORG, job) == {"links": [{"token": QR}]}


async def test_a_result_without_secrets_makes_no_secret(scene: Scene) -> None:
    job = await reported(scene, {"session": "s-17"})
    assert await scene.store.secret(ORG, job) is None
    assert not await row_is_there(scene, job)
    empty = await reported(scene, {})
    assert (await scene.job(empty)).result == "{}"


async def test_a_secret_is_another_tenants_as_little_as_its_job(scene: Scene) -> None:
    job = await reported(scene)
    assert await scene.store.secret(2, job) is None
    refused(await scene.store.ack(dataclasses.replace(scene.order(job), org_id=2)), "not-found")
    assert await scene.store.secret(ORG, job) == {"qr_code": QR}
    assert await scene.store.secret(ORG, scene.id()) is None


async def test_a_secret_ends_with_its_time_though_no_sweep_has_run(scene: Scene) -> None:
    job = await reported(scene)
    scene.clock.advance(TTL_MS - 1)
    assert await scene.store.secret(ORG, job) == {"qr_code": QR}
    scene.clock.advance(1)
    assert await scene.store.secret(ORG, job) is None
    assert await row_is_there(scene, job)


async def test_the_sweep_drops_a_secret_past_its_time_with_nobody_polling(scene: Scene) -> None:
    first = await reported(scene)
    scene.clock.advance(1_000)
    second = await reported(scene)
    scene.clock.advance(TTL_MS - 1_000)
    assert await scene.store.forget_secrets() == 1
    assert not await row_is_there(scene, first)
    assert await scene.store.secret(ORG, second) == {"qr_code": QR}
    scene.clock.advance(1_000)
    assert await scene.store.forget_secrets() == 1
    assert not await row_is_there(scene, second)
    assert await scene.store.forget_secrets() == 0


async def test_an_acknowledged_secret_is_gone_at_once(scene: Scene) -> None:
    job = await reported(scene)
    assert await scene.store.ack(scene.order(job)) == "done"
    assert not await row_is_there(scene, job)
    assert await scene.store.secret(ORG, job) is None
    assert await scene.store.ack(scene.order(job)) == "done"
    assert [entry[4] for entry in await scene.store.audit(ORG)] == ["results.ack"]


async def test_only_an_ended_job_can_be_acknowledged(scene: Scene) -> None:
    claimed = await claimed_job(scene)
    refused(await scene.store.ack(scene.order(claimed.job.id)), "state-conflict")
    refused(await scene.store.ack(scene.order(scene.id())), "not-found")
    granted(await scene.settle(claimed, result=json.dumps(RESULT)))
    assert await scene.store.secret(ORG, claimed.job.id) == {"qr_code": QR}


async def test_a_failure_that_is_tried_again_leaves_no_secret(scene: Scene) -> None:
    claimed = await claimed_job(scene)
    granted(await scene.settle(claimed, ok=False, retryable=True, result=json.dumps(RESULT)))
    assert await scene.state(claimed.job.id) == "scheduled"
    assert not await row_is_there(scene, claimed.job.id)
    assert QR not in await everything_shown(scene, claimed.job.id)


async def test_a_retry_does_not_inherit_the_secret(scene: Scene) -> None:
    job = await reported(scene)
    again = granted(await scene.retry(job, POLICY))
    assert await scene.store.secret(ORG, again.job_id) is None
    assert await scene.store.secret(ORG, job) == {"qr_code": QR}


async def test_a_late_success_brings_its_secret(scene: Scene) -> None:
    claimed = await claimed_job(scene)
    await scene.lapse(claimed)
    assert await scene.state(claimed.job.id) == "queued"
    granted(await scene.settle(claimed, result=json.dumps(RESULT)))
    assert await scene.state(claimed.job.id) in TERMINAL
    assert await scene.store.secret(ORG, claimed.job.id) == {"qr_code": QR}


async def test_a_replayed_report_is_known_by_a_digest_that_gives_nothing_away(scene: Scene) -> None:
    claimed = await claimed_job(scene)
    said = json.dumps({"token": "4711"})
    first = granted(await scene.settle(claimed, result=said))
    again = granted(await scene.settle(claimed, result=said))
    assert (first.state, again.state, again.replay) == ("done", "done", True)
    refused(await scene.settle(claimed, result=json.dumps({"token": "4712"})), "stale-claim")
    plain = [report(result=json.dumps({"token": text})).digest for text in ("4711", "4712")]
    stored: list[Attempt] = await scene.attempts(claimed.job.id)
    assert stored[0].digest is not None
    assert stored[0].digest not in plain
    late = (await scene.events(claimed.job.id))[-1]
    assert late.verb == "late_result"
    assert all(digest.hex() not in (late.data or "") for digest in plain)


async def test_a_pruned_job_takes_its_secret_with_it(scene: Scene) -> None:
    claimed = await claimed_job(scene, dataclasses.replace(POLICY, retain_ms=10_000))
    granted(await scene.settle(claimed, result=json.dumps(RESULT)))
    scene.clock.advance(10_000)
    assert (await scene.store.prune())[0] == 1
    assert not await row_is_there(scene, claimed.job.id)


async def test_a_clock_that_is_set_does_not_lengthen_the_life_of_a_secret(scene: Scene) -> None:
    back = await reported(scene)
    await scene.store.forget_secrets()
    scene.clock.jump(-3_600_000)
    assert await scene.store.secret(ORG, back) is None
    assert await scene.store.forget_secrets() == 1
    ahead = await reported(scene)
    scene.clock.jump(6 * 3_600_000)
    assert await scene.store.secret(ORG, ahead) is None
    assert await scene.store.forget_secrets() == 1


async def test_the_last_secret_takes_its_key_with_it(scene: Scene) -> None:
    first, second = await reported(scene), await reported(scene)
    epochs = {await epoch_of(scene, job) for job in (first, second)}
    assert len(epochs) == 1
    granted(await scene.store.ack(scene.order(first)))
    assert await scene.store.secret(ORG, second) == {"qr_code": QR}
    granted(await scene.store.ack(scene.order(second)))
    third = await reported(scene)
    assert await epoch_of(scene, third) not in epochs
    assert await scene.store.secret(ORG, third) == {"qr_code": QR}


async def epoch_of(scene: Scene, job_id: bytes) -> str:
    """The epoch a job's secret was sealed in."""
    async with scene.store.database.read() as reader:
        row = await reader.one("secret_of", {"org_id": ORG, "id": job_id})
    if row is None:
        raise AssertionError("there is no secret")
    return row[0]
