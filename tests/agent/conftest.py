"""What the agent's tests share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from farhand.agent.config import AgentConfig
from farhand.agent.handler import ResultDraft, Tools, Unfinished
from farhand.agent.link import Link
from farhand.agent.runner import Agent, build
from farhand.model.clock import Clock, SystemClock
from farhand.protocol.agent import ClaimedJob, PrinterInfo
from tests.agent.fake_server import FakeServer, fake_server

KEY = "a key of an agent in a test"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """A server that goes wrong on request."""
    async with fake_server() as running:
        yield running


@pytest.fixture
async def link(server: FakeServer) -> AsyncIterator[Link]:
    """A link to it that is not patient."""
    link = Link(server.url, KEY, answer_ms=300, stall_ms=300)
    yield link
    await link.aclose()


Step = Callable[[ClaimedJob, Tools], Awaitable[ResultDraft]]


async def _plainly(job: ClaimedJob, tools: Tools) -> ResultDraft:
    await tools.payload()
    await tools.no_return("spooling", "a memo")
    await tools.handed("a handle")
    return ResultDraft(ok=True, evidence="delivered")


@dataclass(slots=True)
class Worker:
    """A handler whose work is the test's; `done` counts what would have been irreversible."""

    devices: list[str] = field(default_factory=lambda: ["first"])
    step: Step = _plainly
    fate: ResultDraft = field(default_factory=lambda: ResultDraft(ok=True, evidence="printed"))
    ran: list[str] = field(default_factory=list)
    recovered: list[Unfinished] = field(default_factory=list)
    kinds: Sequence[str] = ("test.work",)

    async def describe(self) -> Sequence[PrinterInfo]:
        return [PrinterInfo(name=name) for name in self.devices]

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        self.ran.append(job.job_id)
        return await self.step(job, tools)

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        self.recovered.append(work)
        return self.fate

    async def aclose(self) -> None:
        pass


@dataclass(slots=True)
class Bench:
    """Agents in this process against a server that goes wrong."""

    server: FakeServer
    data: Path
    worker: Worker = field(default_factory=Worker)
    shown: list[str] = field(default_factory=list)

    def config(self, **changes: object) -> AgentConfig:
        settings: dict[str, object] = {
            "server": self.server.url,
            "name": "bench",
            "data": self.data,
            "folder": self.data,
            "key": KEY,
            "describe_every_ms": 100,
            "stop_grace_ms": 500,
        }
        return AgentConfig(**(settings | changes))  # type: ignore[arg-type]  (the fields of the class)

    @asynccontextmanager
    async def running(self, *, clock: Clock | None = None, **changes: object) -> AsyncIterator[Agent]:
        """An agent at work; stopped in good order at the end."""
        async with self.started(clock=clock, **changes) as (agent, task):
            yield agent
            agent.stop()
            await task

    @asynccontextmanager
    async def started(
        self, *, clock: Clock | None = None, **changes: object
    ) -> AsyncIterator[tuple[Agent, asyncio.Task[None]]]:
        """An agent and its task, for tests that end it themselves; killed when they do not."""
        config = self.config(**changes)
        agent = build(config, (self.worker,), clock=clock or SystemClock(), show=self.shown.append)
        task = asyncio.create_task(agent.run())
        try:
            yield agent, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await agent._lanes.finish(0)
            await agent.aclose()


@pytest.fixture
def bench(server: FakeServer, tmp_path: Path) -> Bench:
    """An agent's surroundings."""
    return Bench(server, tmp_path / "data")
