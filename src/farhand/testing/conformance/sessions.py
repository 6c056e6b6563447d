"""Devices that come with an identifier, their owners and their sessions."""

import asyncio
from typing import Final

from farhand.engine.enrolment import (
    PENDING_PER_ADDRESS,
    SESSION_MS,
    SESSIONS_PER_AGENT,
    Pending,
    Registration,
)
from farhand.engine.registry import Agent, AgentSession
from farhand.model.errors import Problem
from farhand.model.job import Actor
from farhand.storage.capabilities import BITS_MAX
from farhand.testing.factories import ORG, PERSON, Scene, granted, refused

BID: Final = "browser-0123456789abcdef0123456789abcdef"
HERE: Final = "192.0.2.7"
ROOT: Final = Actor(kind="root")
WORDS: Final = {"insecureTLS": "ignore", "privateIP": "accept"}
NAMES: Final = frozenset({"fetch", "private-ip"})


async def _present(scene: Scene, bid: str = BID, address: str = HERE) -> Agent | Pending | Problem:
    return await scene.store.registry.present_bid(bid, address=address, runtime="browser")


async def _approved(scene: Scene, bid: str = BID) -> Agent:
    waits = await _present(scene, bid)
    assert isinstance(waits, Pending)
    return granted(await scene.store.registry.approve(ORG, waits.agent.id, ROOT, code=waits.user_code))


async def _open(scene: Scene, agent: Agent, session_id: bytes | None = None) -> AgentSession:
    registry = scene.store.registry
    return granted(await registry.open_session(ORG, agent.id, session_id, WORDS, "a page", names=NAMES))


async def test_an_unknown_device_waits_and_only_its_mask_is_kept(scene: Scene) -> None:
    waits = await _present(scene)
    assert isinstance(waits, Pending)
    (entry,) = await scene.store.registry.pending(ORG)
    assert (entry.dialect, entry.runtime, entry.bid, entry.address) == (
        "pulsar",
        "browser",
        "browser-0123…",
        HERE,
    )
    assert BID not in repr(entry)
    again = await _present(scene)
    assert isinstance(again, Pending)
    assert again.user_code == waits.user_code


async def test_a_device_is_in_with_the_code_that_it_shows(scene: Scene) -> None:
    waits = await _present(scene)
    assert isinstance(waits, Pending)
    registry = scene.store.registry
    refused(await registry.approve(ORG, waits.agent.id, ROOT, code="BBBB-BBBB"), "wrong-code")
    granted(await registry.approve(ORG, waits.agent.id, ROOT, code=waits.user_code))
    known = await _present(scene)
    assert isinstance(known, Agent)
    assert (known.id, known.state, known.approved_by) == (waits.agent.id, "active", "code")


async def test_a_revoked_device_is_told_so_and_never_waits_again(scene: Scene) -> None:
    agent = await _approved(scene)
    granted(await scene.store.registry.revoke(ORG, agent.id, ROOT))
    refused(await _present(scene), "agent-revoked")
    assert await scene.store.registry.pending(ORG) == []


async def test_one_address_cannot_fill_the_inbox(scene: Scene) -> None:
    for number in range(PENDING_PER_ADDRESS):
        assert isinstance(await _present(scene, f"browser-{number:032x}"), Pending)
    refused(await _present(scene, f"browser-{99:032x}"), "inbox-full")
    assert isinstance(await _present(scene, f"browser-{99:032x}", "192.0.2.8"), Pending)


async def test_who_approves_owns_and_others_may_own_it_too(scene: Scene) -> None:
    store, registry = scene.store, scene.store.registry
    key = granted(await store.keys.create(ORG, "ann's", b"a" * 32, [], ROOT, user="ann"))
    again = granted(await store.keys.create(ORG, "ann's second", b"b" * 32, [], ROOT, user="ann"))
    ann = Actor(kind="key", id=key.id)
    agent = await _approved(scene)
    first = await registry.first_user(ORG)
    assert await registry.owners(agent.id) == (first,)
    refused(await registry.approve(ORG, agent.id, ROOT, code=None), "state-conflict")
    refused(await registry.approve(ORG, agent.id, ann, code="BBBB-BBBB"), "state-conflict")
    scene.clock.advance(1)
    granted(await registry.approve(ORG, agent.id, ann, code=None))
    owners = await registry.owners(agent.id)
    assert len(owners) == 2
    assert await registry.owner_names(ORG, agent.name, agent.name) == {agent.id: ["owner", "ann"]}
    assert sorted(await store.keys.of_user(ORG, owners[1])) == sorted([key.id, again.id])
    refused(await registry.approve(ORG, agent.id, ann, code=None), "state-conflict")


async def test_whoever_issues_an_agent_owns_it(scene: Scene) -> None:
    issued = granted(await scene.store.registry.issue(ORG, "desk", b"d" * 32, PERSON))
    assert await scene.store.registry.owners(issued.id) == (await scene.store.registry.first_user(ORG),)


async def test_a_session_is_its_devices_alone_and_ends_with_its_day(scene: Scene) -> None:
    agent, stranger = await _approved(scene), await _approved(scene, BID[:-1] + "0")
    session = await _open(scene, agent)
    registry = scene.store.registry
    assert await registry.session(agent.id, session.id) == session
    assert await registry.session(stranger.id, session.id) is None
    scene.clock.advance(SESSION_MS - 1)
    assert await registry.session(agent.id, session.id) is not None
    scene.clock.advance(1)
    assert await registry.session(agent.id, session.id) is None


async def test_a_session_opened_again_is_the_same_while_it_lives(scene: Scene) -> None:
    agent, stranger = await _approved(scene), await _approved(scene, BID[:-1] + "0")
    session = await _open(scene, agent)
    scene.clock.advance(SESSION_MS // 2)
    again = await _open(scene, agent, session.id)
    assert (again.id, again.created_at) == (session.id, session.created_at)
    assert again.expires_at == scene.clock.now_ms() + SESSION_MS
    assert (await _open(scene, stranger, session.id)).id != session.id
    scene.clock.advance(SESSION_MS)
    assert (await _open(scene, agent, session.id)).id != session.id


async def test_a_device_has_a_bounded_number_of_sessions(scene: Scene) -> None:
    agent = await _approved(scene)
    opened: list[AgentSession] = []
    for _ in range(SESSIONS_PER_AGENT + 2):
        scene.clock.advance(1)
        opened.append(await _open(scene, agent))
    alive = [s for s in opened if await scene.store.registry.session(agent.id, s.id) is not None]
    assert alive == opened[2:]


async def test_what_a_device_can_do_now_is_noted_and_what_it_refused_is_offered_again(scene: Scene) -> None:
    agent, lane = await _approved(scene), scene.id()
    session = await _open(scene, agent)
    registry = scene.store.registry
    bits = await scene.store.capability_bits(NAMES)
    found = await registry.agent(ORG, agent.id)
    assert found is not None
    assert found.capabilities == bits != 0
    await scene.submit(lane)
    granted(await scene.release(await scene.take(agent.id, lane, capabilities=bits), refuse=True))
    granted(await registry.refresh_session(session, WORDS, names=NAMES))
    assert await scene.claim(agent.id, lane) == []
    granted(await registry.refresh_session(session, WORDS, names=frozenset({"fetch"})))
    assert len(await scene.claim(agent.id, lane)) == 1


async def test_more_capability_names_than_there_are_bits_is_an_answer(scene: Scene) -> None:
    agent = await _approved(scene)
    names = frozenset(f"tag:{number}" for number in range(100))
    answer = await scene.store.registry.open_session(ORG, agent.id, None, WORDS, None, names=names)
    assert refused(answer, "bad-field").extra["field"] == "capabilities"
    assert await scene.store.declared(names) == frozenset()


async def test_who_still_waits_disturbs_nobody(scene: Scene) -> None:
    heard: list[bool] = []
    scene.store.registry.changed.append(lambda: heard.append(True))
    for _ in range(3):
        assert isinstance(await _present(scene), Pending)
    assert heard == []
    await _approved(scene, BID[:-1] + "1")
    assert heard


async def test_a_job_that_needs_one_capability_name_too_many_is_refused_alone(scene: Scene) -> None:
    lane = scene.id()
    for number in range(BITS_MAX):
        await scene.submit(lane, requires=frozenset({f"name-{number}"}))
    answers = await asyncio.gather(
        scene.try_submit(lane, requires=frozenset({"one more"})), scene.try_submit(lane)
    )
    assert refused(answers[0], "bad-field").extra["field"] == "requires"
    granted(answers[1])
    more = Registration(
        org_id=ORG,
        key_digest=b"k" * 32,
        name="desk",
        dialect="native",
        capabilities=("two more",),
        open_enrolment=True,
    )
    refused(await scene.store.registry.register(more), "bad-field")
    assert await scene.store.registry.agent_by_name(ORG, "desk") is None
