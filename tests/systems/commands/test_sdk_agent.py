"""Handlers in a whole agent, against a server that goes wrong: lanes, cancels, crashes, secrets."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from farhand.agent.config import AgentConfig
from farhand.agent.handler import Handler
from farhand.agent.runner import Agent, build
from farhand.systems.commands import Commands, Context, Secret
from farhand.systems.commands.handler import CommandsHandler
from tests.agent.conftest import KEY, Worker
from tests.agent.fake_server import FakeServer, fake_server, page
from tests.peers.printers import until

CODE = "2@AbCdEf-the-code-that-links-a-phone"


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as running:
        running.wait_ms = 2_000
        yield running


def config(server: FakeServer, data: Path) -> AgentConfig:
    return AgentConfig(
        server=server.url,
        name="bench",
        data=data,
        folder=data,
        key=KEY,
        describe_every_ms=100,
        stop_grace_ms=500,
    )


@asynccontextmanager
async def started(
    server: FakeServer, data: Path, handlers: Sequence[Handler]
) -> AsyncIterator[tuple[Agent, "asyncio.Task[None]"]]:
    """An agent and its task; killed at the end unless it has stopped."""
    agent = build(config(server, data), handlers)
    task = asyncio.create_task(agent.run())
    try:
        yield agent, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await agent._lanes.finish(0)
        await agent.aclose()


def command(server: FakeServer, name: str, params: Any = None, **fields: Any) -> str:
    return server.add(None, kind=f"command.{name}", params=params, payload=None, **fields)


def on_disk(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_commands_come_through_the_agents_own_lane_beside_its_devices(
    server: FakeServer, tmp_path: Path
) -> None:
    commands, worker = Commands(), Worker(devices=["first"])

    @commands.on("shop.open")
    async def opened(params: Any, ctx: Context) -> Any:
        ctx.report("opening", "the key turns slowly")
        return {"opened": params["door"]}

    async with started(server, tmp_path, (worker, CommandsHandler(commands))):
        work = server.add("lane-1")
        opening = command(server, "shop.open", {"door": 7})
        await until(lambda: len(server.results) == 2, "both are done")
    results = dict(server.results)
    assert results[work]["ok"] is True
    assert results[opening]["result"] == {"opened": 7}
    assert server.bodies("/agent/claim")[0]["lanes"] == ["lane-1", "agent-1"]


async def test_an_agent_without_handlers_does_not_ask_for_commands(
    server: FakeServer, tmp_path: Path
) -> None:
    async with started(server, tmp_path, (Worker(devices=["first"]), CommandsHandler(Commands()))):
        await until(lambda: server.count("/agent/claim") > 0, "it claims")
    assert server.bodies("/agent/claim")[0]["lanes"] == ["lane-1"]


async def test_commands_of_two_types_run_at_once_and_no_more_are_claimed_than_can_run(
    server: FakeServer, tmp_path: Path
) -> None:
    commands, release = Commands(), asyncio.Event()
    at_work: list[str] = []

    async def hold(params: Any, ctx: Context) -> None:
        at_work.append(ctx.type)
        await release.wait()

    commands.on("shop.open")(hold)
    commands.on("shop.close")(hold)
    async with started(server, tmp_path, (CommandsHandler(commands),)):
        for name in ("shop.open", "shop.close", "shop.open"):
            command(server, name)
        await until(lambda: len(at_work) == 2, "two are at work")
        claims = server.count("/agent/claim")
        assert sorted(at_work) == ["shop.close", "shop.open"]
        assert len(server.handed_out) == 2
        release.set()
        await until(lambda: len(server.results) == 3, "all are done")
    assert claims >= 2


async def test_an_unknown_type_is_refused_and_not_asked_for_again(server: FakeServer, tmp_path: Path) -> None:
    commands = Commands()
    commands.on("shop.open")(lambda params, ctx: None)
    async with started(server, tmp_path, (CommandsHandler(commands),)):
        job = command(server, "shop.burn")
        await until(lambda: bool(server.results), "it is answered")
    said = dict(server.results)[job]
    assert (said["ok"], said["retryable"]) == (False, False)
    assert said["error"] == "this agent has no handler for shop.burn; it has shop.open"
    assert server.released == []


async def test_a_cancel_reaches_a_handler_in_a_thread_through_its_heartbeats(
    server: FakeServer, tmp_path: Path
) -> None:
    commands, seen = Commands(), threading.Event()

    @commands.on("shop.clean")
    def clean(params: Any, ctx: Context) -> None:
        ctx.report("cleaning")
        try:
            # Either the word or the heartbeat that raises may come first.
            while not ctx.cancelled.wait(0.001):
                ctx.heartbeat()
        finally:
            seen.set()
        ctx.heartbeat()

    async with started(server, tmp_path, (CommandsHandler(commands),)):
        job = command(server, "shop.clean")
        await until(lambda: server.phases.get(job) is not None, "it is at work")
        # The lease asks for a heartbeat in 15 s only: what is sent before is the handler's doing.
        server.directives[job] = "cancel"
        await until(lambda: bool(server.results), "the end is reported")
    assert seen.is_set()
    said = dict(server.results)[job]
    assert (said["ok"], said["cancelled"]) == (False, True)
    # However often the handler beats, the server hears of it once a second.
    assert server.count("/heartbeat") <= 3


@pytest.mark.parametrize("known_by", ["wrapping", "declaration"])
async def test_an_undelivered_secret_is_nowhere_on_the_agents_disk_and_the_command_runs_again(
    server: FakeServer, tmp_path: Path, known_by: str
) -> None:
    commands, runs = Commands(), list[str]()
    declared: dict[str, Any] = {"secret_fields": ["qr"]}

    @commands.on("whatsapp.connect")
    async def connect(params: Any, ctx: Context) -> Any:
        runs.append(ctx.id)
        return {"state": "scan", "qr": Secret(CODE) if known_by == "wrapping" else CODE}

    server.fault("/result", *[page(502)] * 1_000)
    async with started(server, tmp_path, (CommandsHandler(commands),)) as (agent, _):
        job = command(server, "whatsapp.connect", {"instance": "shop"}, **declared)
        await until(lambda: server.count("/result") > 0, "the server does not take the result")
        await until(lambda: bool(agent._parts.outbox.waiting()), "it is kept")
        stored = on_disk(tmp_path)
        assert job.encode() in stored
        assert CODE.encode() not in stored
        assert b"shop" not in stored
        assert CODE not in repr(agent._parts.outbox._waiting)
    # The process is gone, and the result with it.
    assert CODE.encode() not in on_disk(tmp_path)
    server._faults.clear()
    async with started(server, tmp_path, (CommandsHandler(commands),)):
        await until(lambda: server.released == [job], "the command is given back at once")
        again = command(server, "whatsapp.connect", **declared)
        await until(lambda: bool(server.results), "and done again")
    assert dict(server.results)[again]["result"] == {"state": "scan", "qr": CODE}
    assert runs == [job, again]
    assert CODE.encode() not in on_disk(tmp_path)


async def test_an_undelivered_result_without_secrets_is_delivered_by_the_next_run(
    server: FakeServer, tmp_path: Path
) -> None:
    commands, runs = Commands(), list[str]()

    @commands.on("whatsapp.status")
    async def status(params: Any, ctx: Context) -> Any:
        runs.append(ctx.id)
        return {"state": "open"}

    server.fault("/result", *[page(502)] * 1_000)
    async with started(server, tmp_path, (CommandsHandler(commands),)) as (agent, _):
        job = command(server, "whatsapp.status")
        await until(lambda: bool(agent._parts.outbox.waiting()), "it is kept")
    server._faults.clear()
    async with started(server, tmp_path, (CommandsHandler(commands),)):
        await until(lambda: bool(server.results), "it is delivered")
    assert dict(server.results)[job]["result"] == {"state": "open"}
    assert runs == [job]


async def test_an_agent_that_stops_gives_a_command_back_and_does_not_wait_for_a_deaf_handler(
    server: FakeServer, tmp_path: Path
) -> None:
    commands, release = Commands(), threading.Event()

    @commands.on("shop.sleep", grace_ms=50)
    def deaf(params: Any, ctx: Context) -> None:
        ctx.report("sleeping")
        release.wait(30)

    async with started(server, tmp_path, (CommandsHandler(commands),)) as (agent, task):
        job = command(server, "shop.sleep")
        await until(lambda: server.phases.get(job) is not None, "it is at work")
        agent.stop()
        async with asyncio.timeout(10):
            await task
    release.set()
    assert server.released == [job]
    assert server.results == []
