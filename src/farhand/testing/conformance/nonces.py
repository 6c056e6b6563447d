"""Nonces: the database says which request is the first, and remembers it for a while."""

import asyncio

from farhand.engine.requests import Nonce
from farhand.testing.factories import ORG, Scene


async def first_use(scene: Scene, agent: bytes, nonce: str) -> bool:
    """Whether the store takes it for the first time."""
    return await scene.store.first_use(Nonce(org_id=ORG, agent_id=agent, nonce=nonce))


async def test_a_nonce_is_new_once_for_each_agent(scene: Scene) -> None:
    one, two = scene.id(), scene.id()
    assert await first_use(scene, one, "n")
    assert not await first_use(scene, one, "n")
    assert await first_use(scene, two, "n")
    assert await first_use(scene, one, "m")


async def test_of_equal_requests_in_one_batch_one_is_the_first(scene: Scene) -> None:
    agent = scene.id()
    for turn in range(10):
        nonces = [f"{turn}-{n % 3}" for n in range(30)]
        answers = await asyncio.gather(*(first_use(scene, agent, nonce) for nonce in nonces))
        assert sum(answers) == 3


async def test_a_nonce_is_forgotten_after_its_time_alone(scene: Scene) -> None:
    agent = scene.id()
    assert await first_use(scene, agent, "old")
    scene.clock.advance(1_000)
    assert await first_use(scene, agent, "young")
    scene.clock.advance(9_000)
    assert await scene.store.forget_nonces(10_000) == 0
    scene.clock.advance(1)
    assert await scene.store.forget_nonces(10_000) == 1
    assert await first_use(scene, agent, "old")
    assert not await first_use(scene, agent, "young")
