"""Names that lead astray: the real server and both of the agent's loops, with a name server of the tests'."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farhand.agent.config import AgentConfig
from farhand.agent.handler import Handler
from farhand.agent.runner import build
from farhand.model.clock import SystemClock
from farhand.systems.fetch import device
from farhand.systems.fetch.device import Device
from farhand.systems.fetch.handler import FetchHandler
from farhand.systems.fetch.settings import FetchSettings
from tests.egress.nameserver import UdpResolver, name_server
from tests.egress.targets import Seen, Target, ok, reply, serving
from tests.peers.printers import until
from tests.server.serving import Server
from tests.server.serving import serving as server_at

SETTINGS = FetchSettings(loopback=True, ports=(), per_host_per_second=0)
HERE = ["127.0.0.1"]
METADATA = ["169.254.169.254"]
ZONES: dict[str, list[list[str]]] = {
    "metadata": [METADATA],
    "private": [["10.0.0.1"]],
    "two": [["127.0.0.1", "10.0.0.1"]],
    "mapped": [["127.0.0.1", "::ffff:169.254.169.254"]],
    "mapped-private": [["127.0.0.1", "::ffff:192.168.1.1"]],
    "translated": [["127.0.0.1", "64:ff9b::a9fe:a9fe"]],
    "link-local": [["127.0.0.1", "fe80::1"]],
    "unique-local": [["127.0.0.1", "fd00:ec2::254"]],
    "turned": [HERE, METADATA],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("names") / "data"
    with server_at(data, sections={"fetch": {"loopback": True}}) as running:
        yield running


@asynccontextmanager
async def at_work(server: Server, folder: Path, dialect: str, resolver: UdpResolver) -> AsyncIterator[None]:
    """An agent of this dialect, which is in."""
    shown: list[str] = []
    config = AgentConfig(
        server=f"http://127.0.0.1:{server.port}", name=folder.name, data=folder, folder=folder
    )
    settings = replace(SETTINGS, tags=(dialect,))
    clock = SystemClock()
    handler: Handler = FetchHandler(settings, clock, resolver)
    if dialect == "pulsar":
        handler = Device(settings, config, clock, resolver)
    agent = build(config, (handler,), show=shown.append)
    task = asyncio.create_task(agent.run())
    try:
        if dialect == "pulsar":
            await until(lambda: bool(shown), "it shows its code")
            await asyncio.to_thread(approve, server, shown[0].split("with the code ")[1].split(" ")[0])
        yield
        agent.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await agent.aclose()


def approve(server: Server, code: str) -> None:
    (item,) = server.call("GET", "/agents/pending").ok()["items"]
    server.call("POST", f"/agents/{item['id']}/approve", json_body={"code": code}).ok()


async def ended(server: Server, url: str, dialect: str) -> dict[str, Any]:
    """How a request by an agent of this dialect ends."""

    def work() -> dict[str, Any]:
        message = {"type": "fetch", "request": {"url": url, "timeoutMs": 60_000}, "tags": [dialect]}
        job_id = server.call("POST", "/jobs", json_body=message).ok(201)["id"]
        return server.await_state(job_id, "done", "failed")

    return await asyncio.to_thread(work)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "PENDING_MS", 50)


@pytest.mark.parametrize("dialect", ["native", "pulsar"])
async def test_a_name_that_leads_astray_is_refused_and_nothing_is_connected_to(
    dialect: str, server: Server, tmp_path: Path
) -> None:
    async def back(seen: Seen, writer: asyncio.StreamWriter) -> None:
        url = f"http://{seen.header('host')}/again"
        writer.write(ok(b"good") if "good" in seen.line else reply("302 Found", b"", f"Location: {url}"))
        await writer.drain()

    zones = {f"{name}_example": rounds for name, rounds in {**ZONES, "good": [HERE]}.items()}
    async with name_server(**zones) as names, serving(back) as target:
        resolver = UdpResolver(names.port)
        folder = tmp_path / dialect
        async with at_work(server, folder, dialect, resolver):
            await until_known(server, dialect)
            good = await ended(server, target.url("/good", host="good.example"), dialect)
            assert good["result"]["body"] == "good"
            found = {name: await code(server, target, name, dialect) for name in ZONES}
    assert found == dict.fromkeys(ZONES, ("failed", "blocked-address", "policy"))
    # The one that was good at first was asked once and led nowhere the second time.
    assert target.connections == 2


async def until_known(server: Server, dialect: str) -> None:
    """Until the server knows an agent with this tag: it takes no others."""

    def known() -> bool:
        message = {"type": "fetch", "request": {"url": "http://nothing.example/"}, "tags": [dialect]}
        return server.call("POST", "/jobs", json_body=message).status == 201

    await until(lambda: asyncio.to_thread(known), f"an agent has the tag {dialect}", 30)


async def code(server: Server, target: Target, name: str, dialect: str) -> tuple[str, str, str]:
    job = await ended(server, target.url(host=f"{name}.example"), dialect)
    result = job["result"]
    assert not any(text in result["message"] for answers in ZONES[name] for text in answers)
    return job["state"], result["code"], result["source"]
