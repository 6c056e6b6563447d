"""Upkeep: counters, retention, the registry's own guards, and two stores over one database."""

import asyncio
import dataclasses
from collections import Counter

from farhand.engine.enrolment import DeviceSpec, Registered, Registration
from farhand.model.errors import Problem
from farhand.model.job import TERMINAL
from farhand.model.policy import DAY, PRINT
from farhand.testing.conformance.spots import WAYS, reach
from farhand.testing.factories import ORG, PERSON, Scene, granted, refused
from farhand.testing.invariants import everything

SHA = b"s" * 32


async def counted(scene: Scene) -> Counter[tuple[str, str]]:
    """Jobs per kind and state by a real count."""
    found: Counter[tuple[str, str]] = Counter()
    async with scene.store.database.read() as reader:
        rows = await reader.all("list_jobs", everything())
    for row in rows:
        found[(row[3], row[4])] += 1
    return found


async def kept(scene: Scene) -> Counter[tuple[str, str]]:
    """Jobs per kind and state as the counters say."""
    return Counter({(kind, state): n for kind, state, n in await scene.store.counts(ORG) if n})


async def test_the_counters_equal_a_real_count(scene: Scene) -> None:
    for name in WAYS:
        await reach(scene, name)
    assert await kept(scene) == await counted(scene)
    scene.clock.advance(DAY)
    while await scene.store.sweep():
        pass
    assert await kept(scene) == await counted(scene)
    scene.clock.advance(60 * DAY)
    while await scene.store.sweep() or (await scene.store.prune())[0]:
        assert await kept(scene) == await counted(scene)
    assert all(state not in TERMINAL for _, state in await kept(scene))


async def test_a_pruned_job_leaves_nothing_behind(scene: Scene) -> None:
    lane, agent = scene.id(), scene.id()
    job = await scene.submit(lane, payload=b"bytes")
    seq = (await scene.job(job)).seq
    claimed = await scene.take(agent, lane)
    granted(await scene.release(claimed, refuse=True))
    granted(await scene.cancel(job))
    scene.clock.advance(PRINT.retain_ms - 1)
    assert await scene.store.prune() == (0, [])
    scene.clock.advance(1)
    assert await scene.store.prune() == (1, [])
    async with scene.store.database.read() as reader:
        assert await reader.one("job_by_id", {"org_id": ORG, "id": job}) is None
        assert await reader.all("job_attempts", {"job_seq": seq}) == []
        assert await reader.all("job_events", {"job_seq": seq, "after": 0, "limit": 9}) == []
        assert await reader.one("payload_place", {"job_seq": seq}) is None
    assert await scene.store.job(ORG, job) is None
    refused(await scene.retry(job), "not-found")
    refused(await scene.cancel(job), "not-found")


async def test_prune_reports_stored_payloads_that_nobody_needs(scene: Scene) -> None:
    shared, alone = b"a" * 32, b"b" * 32
    first = await scene.submit(scene.id(), payload_sha256=shared, payload_size=5)
    await scene.submit(scene.id(), payload_sha256=shared, payload_size=5)
    third = await scene.submit(scene.id(), payload_sha256=alone, payload_size=5)
    for job in (first, third):
        granted(await scene.cancel(job))
    scene.clock.advance(PRINT.retain_ms)
    assert await scene.store.prune() == (2, [alone])


async def test_a_retry_keeps_the_stored_payload_it_prints(scene: Scene) -> None:
    job = await scene.submit(scene.id(), payload_sha256=SHA, payload_size=5)
    granted(await scene.cancel(job))
    scene.clock.advance(PRINT.retain_ms - 1)
    again = granted(await scene.retry(job))
    scene.clock.advance(1)
    assert await scene.store.prune() == (1, [])
    place = await scene.store.payload((await scene.job(again.job_id)).seq)
    assert place is not None
    assert place.sha256 == SHA


async def test_prune_goes_in_small_batches(scene: Scene) -> None:
    lane = scene.id()
    for job in [await scene.submit(lane) for _ in range(7)]:
        granted(await scene.cancel(job))
    scene.clock.advance(PRINT.retain_ms)
    assert [(await scene.store.prune(3))[0] for _ in range(4)] == [3, 3, 1, 0]


async def test_a_policy_change_does_not_alter_work_in_flight(scene: Scene) -> None:
    lane = scene.id()
    old = await scene.submit(lane, dataclasses.replace(PRINT, lease_ms=5_000))
    new = await scene.submit(lane, dataclasses.replace(PRINT, lease_ms=9_000))
    one, two = await scene.claim(scene.id(), lane, max=2, accept=True)
    leases = {c.job.id: c.attempt.lease_until - scene.clock.now_ms() for c in (one, two)}
    assert leases == {old: 5_000, new: 9_000}


def registration(name: str, key: bytes, *devices: str) -> Registration:
    """An agent that presents itself with printers."""
    specs = tuple(DeviceSpec(name=d, kind="printer", capabilities="{}") for d in devices)
    return Registration(
        org_id=ORG,
        key_digest=key.ljust(32, b"\0"),
        name=name,
        dialect="native",
        devices=specs,
        open_enrolment=True,
    )


async def test_registering_twice_changes_nothing(scene: Scene) -> None:
    registry = scene.store.registry
    first = await registry.register(registration("a", b"k", "p", "q"))
    again = await registry.register(registration("a", b"k", "p", "q"))
    assert isinstance(first, Registered)
    assert isinstance(again, Registered)
    assert [d.id for d in first.devices] == [d.id for d in again.devices]
    assert first.agent.id == again.agent.id


async def test_a_printer_named_twice_is_one_printer(scene: Scene) -> None:
    answer = await scene.store.registry.register(registration("a", b"k", "p", "q", "p"))
    assert isinstance(answer, Registered)
    assert [d.name for d in answer.devices] == ["p", "q", "p"]
    assert answer.devices[0].id == answer.devices[2].id


async def test_very_many_printers_at_once_all_get_a_number(scene: Scene) -> None:
    names = [f"p{n}" for n in range(1500)]
    answer = await scene.store.registry.register(registration("a", b"k", *names))
    assert isinstance(answer, Registered)
    assert len({d.number for d in answer.devices}) == 1500


async def test_a_vanished_printer_is_gone_and_may_come_back(scene: Scene) -> None:
    registry = scene.store.registry
    first = await registry.register(registration("a", b"k", "p", "q"))
    assert isinstance(first, Registered)
    await registry.register(registration("a", b"k", "p"))
    gone = {d.name: d.gone_at for d in await registry.devices_of(first.agent.id)}
    assert gone["p"] is None
    assert gone["q"] == scene.clock.now_ms()
    back = await registry.register(registration("a", b"k", "p", "q"))
    assert isinstance(back, Registered)
    assert [d.gone_at for d in back.devices] == [None, None]
    assert [d.id for d in back.devices] == [d.id for d in first.devices]


async def test_one_name_or_key_registered_in_many_places_makes_one_agent(scene: Scene) -> None:
    registry = scene.store.registry
    for turn in range(10):
        answers = await asyncio.gather(
            *(registry.register(registration(f"n{turn}", b"k%d" % turn, "p")) for _ in range(4)),
            *(registry.register(registration(f"n{turn}", b"other%d-%d" % (turn, n), "p")) for n in range(3)),
        )
        ids = {answer.agent.id for answer in answers if isinstance(answer, Registered)}
        assert len(ids) == 1
        for answer in answers:
            if isinstance(answer, Problem):
                refused(answer, "name-taken")


async def test_a_revocation_is_not_undone_by_a_registration_beside_it(scene: Scene) -> None:
    registry = scene.store.registry
    for turn in range(20):
        answer = await registry.register(registration(f"n{turn}", b"k%d" % turn))
        assert isinstance(answer, Registered)
        await asyncio.gather(
            registry.revoke(ORG, answer.agent.id, PERSON),
            *(registry.register(registration(f"n{turn}", b"k%d" % turn)) for _ in range(3)),
        )
        agent = await registry.agent(ORG, answer.agent.id)
        assert agent is not None
        assert agent.state == "revoked"
        refused(await registry.register(registration(f"n{turn}", b"k%d" % turn)), "agent-revoked")


async def test_wrong_codes_typed_at_the_same_moment_are_all_counted(scene: Scene) -> None:
    registry = scene.store.registry
    closed = dataclasses.replace(registration("a", b"k"), open_enrolment=False)
    answer = await registry.register(closed)
    assert not isinstance(answer, Problem | Registered)
    tries = await asyncio.gather(
        *(registry.approve(ORG, answer.agent.id, PERSON, code="BBBB-BBBB") for _ in range(8))
    )
    assert sum("tries left" in refused(t, "wrong-code").message for t in tries) == 5
    refused(await registry.approve(ORG, answer.agent.id, PERSON, code=answer.user_code), "wrong-code")
