"""The example's handlers alone: every one of them may run twice, and says what only it can know."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from farhand.systems.commands import Commands, Secret
from farhand.testing.commands import Ran, run_handler_async
from tests.examples.whatsapp_scene import EXAMPLES

KEY = "a key of the provider"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's modules."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import whatsapp.evolution
    import whatsapp.handlers
    import whatsapp.standin

    yield whatsapp
    for name in [name for name in sys.modules if name.split(".")[0] == "whatsapp"]:
        del sys.modules[name]


@pytest.fixture
def service(example: Any) -> Iterator[Any]:
    """The stand-in for the provider, in a thread."""
    service = example.standin.Service(KEY)
    with example.standin.StandIn(service, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


Bound = Callable[..., Commands]


@pytest.fixture
def bound(example: Any, service: Any, monkeypatch: pytest.MonkeyPatch) -> Bound:
    monkeypatch.setattr(example.handlers, "BETWEEN_S", 0)
    return lambda key=KEY, url=service[1]: example.handlers.bound_to(
        example.evolution.Evolution(url, Secret(key), "shop")
    )


async def run(bound: Bound, name: str, **options: Any) -> Ran:
    commands = bound(**options)
    try:
        return await run_handler_async(commands, {}, type=f"whatsapp.{name}")
    finally:
        for close in commands.closing:
            await close()  # type: ignore[misc]  (the example's only one is async)


@pytest.mark.parametrize("before", ["nothing", "connecting", "open", "close"])
@pytest.mark.parametrize("name", ["connect", "status", "disconnect"])
async def test_every_handler_runs_twice_safely(name: str, before: str, bound: Bound, service: Any) -> None:
    if before != "nothing":
        await run(bound, "connect")
        service[0].instances["shop"].state = before
    first = await run(bound, name)
    between = str(service[0].instances)
    second = await run(bound, name)
    assert first.status == second.status == "completed"
    assert first.result == second.result
    assert str(service[0].instances) == between


async def test_running_connect_again_does_not_spoil_the_code_on_the_screen(
    bound: Bound, service: Any
) -> None:
    first = await run(bound, "connect")
    assert first.secret_fields == ("qr",)
    assert first.result["qr"] not in repr(first)
    assert ("waiting", "the service has no code yet") in first.reports
    await run(bound, "connect")
    assert service[0].answer("POST", "/phone/scan", None, first.result["qr"].encode()) == (
        200,
        {"linked": "shop"},
    )
    assert (await run(bound, "connect")).result == {"state": "open"}


async def test_a_provider_that_is_away_is_worth_another_attempt(bound: Bound, service: Any) -> None:
    service[0].outage = 1
    ran = await run(bound, "status")
    assert (ran.status, ran.retryable) == ("failed", True)
    assert ran.error == "the WhatsApp service is out of order (503)"
    ran = await run(bound, "connect", url="http://127.0.0.1:1")
    assert (ran.status, ran.retryable) == ("failed", True)
    assert ran.error == "the WhatsApp service cannot be reached (ConnectError)"


async def test_a_wrong_key_will_never_work(bound: Bound) -> None:
    ran = await run(bound, "connect", key="not the key")
    assert (ran.status, ran.retryable) == ("failed", False)
    assert "EVOLUTION_KEY" in str(ran.error)


async def test_what_has_no_instance_is_not_connected(bound: Bound) -> None:
    assert (await run(bound, "status")).result == {"state": "none"}
    assert (await run(bound, "disconnect")).result == {"state": "none"}
