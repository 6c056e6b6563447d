"""The lease keeper by itself: rhythm, fence and what it says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from farhand.agent.handler import Abandoned
from farhand.agent.keeper import Hold, Keeper
from farhand.agent.link import Link
from farhand.agent.suspend import Waker
from farhand.testing.clock import FakeClock
from tests.agent.fake_server import Answer, FakeServer, Reply, Request, lost_request, page
from tests.peers.printers import until


@asynccontextmanager
async def kept(link: Link, server: FakeServer, clock: FakeClock) -> AsyncIterator[tuple[Keeper, str]]:
    """A keeper at work for a new job."""
    job_id = server.add()
    hold = Hold(job_id=job_id, attempt=1, lease_token=server._tokens[job_id])
    keeper = Keeper(link, clock, Waker(clock), hold)
    beating = asyncio.create_task(keeper.run())
    try:
        yield keeper, job_id
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def test_a_lease_is_fresh_for_four_fifths_of_its_length(link: Link, server: FakeServer) -> None:
    clock = FakeClock()
    async with kept(link, server, clock) as (keeper, _):
        assert not keeper.fresh()
        await keeper.ensure("spooling")
        clock.advance(47_999)
        assert keeper.fresh()
        clock.advance(1)
        assert not keeper.fresh()
        await keeper.ensure("spooling")
        assert keeper.fresh()


async def test_a_lease_ages_from_the_moment_it_was_asked_for(link: Link, server: FakeServer) -> None:
    clock = FakeClock()

    async def slow(request: Request, answer: Answer) -> Reply | None:
        clock.advance(50_000)
        return await answer(request)

    server.fault("/start", slow)
    async with kept(link, server, clock) as (keeper, _):
        await keeper.ensure("spooling")
        assert not keeper.fresh()


async def test_a_lost_attempt_is_not_fresh_however_young(link: Link, server: FakeServer) -> None:
    async with kept(link, server, FakeClock()) as (keeper, job_id):
        await keeper.ensure("starting")
        server.lose(job_id)
        with pytest.raises(Abandoned):
            await keeper.ensure("spooling")
        assert not keeper.fresh()
        with pytest.raises(Abandoned):
            await keeper.ensure("spooling")


async def test_an_answer_that_was_under_way_before_does_not_count(link: Link, server: FakeServer) -> None:
    """It cannot know the phase that is asked about."""
    held = asyncio.Event()

    async def slow(request: Request, answer: Answer) -> Reply | None:
        await held.wait()
        return await answer(request)

    server.fault("/start", slow)
    async with kept(link, server, FakeClock()) as (keeper, job_id):
        await until(lambda: server.count("/start") == 1, "the start is under way")
        asking = asyncio.create_task(keeper.ensure("spooling"))
        await asyncio.sleep(0)
        held.set()
        await asking
        assert server.phases[job_id] == [None, "spooling"]


async def test_heartbeats_come_every_quarter_of_the_lease(link: Link, server: FakeServer) -> None:
    server.lease_ms = 400
    loop = asyncio.get_running_loop()
    async with kept(link, server, FakeClock()):
        await until(lambda: server.count("/start") == 1, "it starts")
        began = loop.time()
        await until(lambda: server.count("/heartbeat") >= 5, "it beats")
        assert loop.time() - began >= 0.45


async def test_missed_heartbeats_are_made_up_for(link: Link, server: FakeServer) -> None:
    server.lease_ms = 200
    server.fault("/heartbeat", page(502), lost_request)
    async with kept(link, server, FakeClock()) as (keeper, job_id):
        await until(lambda: len(server.phases.get(job_id, [])) >= 3, "it goes on")
        assert server.count("/heartbeat") >= 4
        assert not keeper.over.is_set()


async def test_only_the_newest_word_is_said_and_nothing_twice(link: Link, server: FakeServer) -> None:
    async with kept(link, server, FakeClock()) as (keeper, job_id):
        for number in range(20):
            keeper.say("printing", f"page {number}")
        await keeper.ensure("printing")
        keeper.say("printing", "page 19")
        await keeper.ensure("printing")
    said = [body["reason"] for body in server.bodies("/start") + server.bodies("/heartbeat")]
    assert set(said) == {"page 19"}
    assert server.phases[job_id] == ["printing"] * len(said)


async def test_a_reason_is_cleared_when_it_has_gone(link: Link, server: FakeServer) -> None:
    async with kept(link, server, FakeClock()) as (keeper, _):
        await keeper.ensure("spooling")
        keeper.say("paused", "out of paper")
        await keeper.ensure("paused")
        keeper.say("printing", None)
        await keeper.ensure("printing")
    bodies = server.bodies("/start") + server.bodies("/heartbeat")
    assert "reason" not in bodies[0]
    assert [body["reason"] for body in bodies[1:]][0] == "out of paper"
    assert bodies[-1]["reason"] is None
