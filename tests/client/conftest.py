"""A real server for the tests of this folder, and both faces of the client."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from farhand.client import AsyncClient, Client
from tests.client.server import FarhandServer, HandAgent, farhand_server

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarhandServer]:
    """One server for a module's tests."""
    with farhand_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, server: FarhandServer) -> Ask:
    """Calls a method by name, on either face."""

    async def on_async(name: str, *args: Any, **options: Any) -> Any:
        async with AsyncClient(server.url, server.token) as client:
            called = getattr(client, name)(*args, **options)
            assert inspect.iscoroutine(called)
            return await called

    def call(name: str, *args: Any, **options: Any) -> Any:
        if request.param == "async":
            return asyncio.run(on_async(name, *args, **options))
        with Client(server.url, server.token) as client:
            return getattr(client, name)(*args, **options)

    return call


@pytest.fixture
def shop(server: FarhandServer, request: pytest.FixtureRequest) -> Iterator[HandAgent]:
    """An agent of this test's own with one printer of each kind."""
    name = request.node.name
    printers = [
        {
            "name": f"laser {name}",
            "can_pdf": True,
            "state": "idle",
            "capabilities": {"pdf": True, "raw": True},
        },
        {"name": f"label {name}", "can_pdf": False},
    ]
    agent = HandAgent(server.url, name, printers)
    assert agent.reply.status_code == 200, agent.reply.text
    yield agent
    agent.close()
