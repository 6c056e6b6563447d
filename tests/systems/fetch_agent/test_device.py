"""The agent as a pulsar device, against a server that goes wrong."""

import asyncio
import base64
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farhand.agent.config import AgentConfig, ConfigError
from farhand.agent.errors import ShutOut
from farhand.agent.runner import build
from farhand.model.clock import SystemClock
from farhand.systems.fetch import device as device_module
from farhand.systems.fetch.device import REOPEN_MS, Device, find_bid
from farhand.systems.fetch.settings import FetchSettings
from farhand.testing.clock import FakeClock
from tests.agent.fake_server import hang, listening, lost_reply, lost_request, page
from tests.egress.targets import ok, serving
from tests.peers.printers import until
from tests.systems.fetch_agent.hostile import answer, silent_after
from tests.systems.fetch_agent.pulsar_server import PulsarServer, failing

SETTINGS = FetchSettings(
    dialect="pulsar", loopback=True, ports=(), per_host_per_second=0, concurrency=2, tags=("lab",)
)
BODY = bytes(range(256)) * 2000


class Bench:
    """Agents in this process, each with nothing but a device in it."""

    def __init__(self, server: PulsarServer, data: Path) -> None:
        self.server = server
        self.url = server.url
        self.data = data
        self.settings = SETTINGS
        self.shown: list[str] = []
        self.clock: Any = SystemClock()

    def config(self) -> AgentConfig:
        return AgentConfig(
            server=self.url, name="bench", data=self.data, folder=self.data, stop_grace_ms=20_000
        )

    @asynccontextmanager
    async def started(self) -> AsyncIterator[tuple[Callable[[], None], "asyncio.Task[None]"]]:
        """How to stop the agent, and its task."""
        config = self.config()
        agent = build(config, (Device(self.settings, config, self.clock),), show=self.shown.append)
        task = asyncio.create_task(agent.run())
        try:
            yield agent.stop, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await agent.aclose()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """An agent at work; stopped in good order at the end."""
        async with self.started() as (stop, task):
            yield
            stop()
            await task

    async def called_back(self, count: int = 1) -> list[dict[str, Any]]:
        await until(lambda: len(self.server.callbacks) >= count, f"{count} callbacks")
        return self.server.callbacks


@pytest.fixture
async def server() -> AsyncIterator[PulsarServer]:
    async with listening(PulsarServer()) as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farhand.agent.backoff.Backoff.next_ms", lambda self, at_least_ms=None: 5)
    monkeypatch.setattr(device_module, "PENDING_MS", 5)


@pytest.fixture
def bench(server: PulsarServer, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path / "data")


async def test_a_job_goes_from_claim_to_callback_in_the_words_of_the_seed(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        job_id = bench.server.ask(target.url("/hello"), headers={"X-A": "1"})
        (said,) = await bench.called_back()
    opened, claimed = bench.server.bodies("/session")[0], bench.server.bodies("/claim")[0]
    words = {"insecureTLS": "ignore", "privateIP": "ignore", "tags": ["lab"]}
    assert opened["capabilities"] == claimed["capabilities"] == words
    assert opened["userAgent"].startswith("farhand-agent/")
    assert claimed["batch"] == 2
    assert opened["bid"] == claimed["bid"] == said["bid"]
    assert claimed["sessionId"] == said["sessionId"] == bench.server.sessions[0]
    assert said["jobId"] == job_id
    result = said["result"]
    assert (result["status"], result["statusText"], result["body"]) == (200, "OK", "GET hello")
    assert (result["bodyBase64"], result["cropped"], result["cropOriginalSize"]) == (False, False, None)
    assert (result["bytesWritten"], result["remoteAddress"]) == (9, "127.0.0.1")
    assert target.requests[0].header("x-a") == "1"
    assert not any(request.path.startswith("/agent/") for request in bench.server.requests)


async def test_a_body_is_sent_as_it_is_or_from_base64(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        bench.server.ask(target.url("/a"), method="POST", body="text")
        bench.server.ask(target.url("/b"), method="PUT", body="AP8=", bodyBase64=True)
        await bench.called_back(2)
    assert sorted(seen.body for seen in target.requests) == [b"\x00\xff", b"text"]


async def test_a_large_body_travels_in_the_callback_and_leaves_nothing_behind(bench: Bench) -> None:
    bench.server.fault("/callback", lost_reply, page(200))
    async with serving(ok(BODY)) as target:
        async with bench.running():
            bench.server.ask(target.url())
            said = (await bench.called_back(2))[-1]
            await until(lambda: not list((bench.data / "fetch").iterdir()), "the file is gone")
        assert not (bench.data / "fetch").exists()
    assert said["result"]["bodyBase64"] is True
    assert base64.b64decode(said["result"]["body"]) == BODY
    assert said["result"]["bytesWritten"] == len(BODY)


async def test_a_failure_is_called_back_with_its_code(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        bench.server.ask(target.url("/metadata"))
        (said,) = await bench.called_back()
    assert (said["error"]["code"], said["error"]["source"]) == ("blocked-address", "policy")
    assert said["error"]["message"]


@pytest.mark.parametrize("wish", ["allowPrivateIP", "allowInsecureTLS"])
async def test_what_this_device_does_not_do_is_refused_before_anything_is_sent(
    wish: str, bench: Bench
) -> None:
    async with serving(answer) as target, bench.running():
        bench.server.ask(target.url(), **{wish: True})
        (said,) = await bench.called_back()
    assert said["error"]["code"] == "agent-refused-override"
    assert target.connections == 0


@pytest.mark.parametrize(
    "request_", [{"timeoutMs": "soon"}, {"bodyBase64": True, "body": "%"}, {"headers": [1]}]
)
async def test_a_request_that_cannot_be_read_spoils_no_other(request_: dict[str, Any], bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        odd = bench.server.ask(target.url(), **request_)
        bench.server.ask(target.url("/b"))
        said = {entry["jobId"]: entry for entry in await bench.called_back(2)}
    assert said.pop(odd)["error"]["code"] == "bad-request"
    assert [entry["result"]["body"] for entry in said.values()] == ["GET b"]


async def test_a_server_that_says_less_and_more_than_the_seed_is_understood(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        bench.server.waiting.append({"jobId": "x", "request": {"url": target.url("/a"), "new": 1}, "more": 2})
        (said,) = await bench.called_back()
    assert said["result"]["body"] == "GET a"


async def test_a_device_waits_for_approval_and_shows_each_code_once(bench: Bench) -> None:
    bench.server.approved = False
    async with bench.running():
        await until(lambda: bench.server.count("/session") >= 3, "it asks again")
        bench.server.code = "WXYZ-WXYZ"
        await until(lambda: len(bench.shown) == 2, "the new code is shown")
        bench.server.approved = True
        await until(lambda: bench.server.count("/claim") > 0, "it works")
    assert "BCDF-GHJK" in bench.shown[0]
    assert "10 minutes" in bench.shown[0]
    assert "WXYZ-WXYZ" in bench.shown[1]
    assert bench.shown[2:] == ["This device is approved."]


async def test_a_device_of_a_server_without_codes_says_that_it_waits(bench: Bench) -> None:
    bench.server.fault("/session", failing(403, "device-pending"))
    async with bench.running():
        await until(lambda: bench.server.count("/claim") > 0, "it works")


async def test_a_revoked_device_stops_loudly(bench: Bench) -> None:
    bench.server.revoked = True
    async with bench.started() as (_, task):
        with pytest.raises(ShutOut, match="device-not-approved"):
            await task


async def test_a_device_that_is_revoked_in_mid_job_stops_its_request(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target, bench.started() as (_, task):
        bench.server.ask(target.url(), timeoutMs=120_000)
        await until(lambda: target.connections == 1, "it is on its way")
        bench.server.revoked = True
        with pytest.raises(ShutOut):
            await task
    assert bench.server.callbacks == []


async def test_a_lost_session_is_opened_again_and_the_result_delivered(bench: Bench) -> None:
    gate = asyncio.Event()

    async def play(seen: Any, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer(seen, writer)

    async with serving(play) as target, bench.running():
        bench.server.ask(target.url("/a"))
        await until(lambda: target.connections == 1, "it is on its way")
        (first,) = bench.server.sessions
        bench.server.forget_sessions()
        gate.set()
        (said,) = await bench.called_back()
    assert said["sessionId"] != first
    assert said["sessionId"] in bench.server.sessions


async def test_a_session_is_renewed_before_its_day_is_over(bench: Bench) -> None:
    bench.clock = FakeClock()
    async with bench.running():
        await until(lambda: bench.server.count("/claim") > 0, "it works")
        bench.clock.advance(REOPEN_MS)
        await until(lambda: bench.server.count("/session") == 2, "the session is asked for again")
    first, second = bench.server.bodies("/session")
    assert (first["sessionId"], second["sessionId"]) == ("", bench.server.sessions[0])
    assert len(bench.server.sessions) == 1


@pytest.mark.parametrize("path", ["/session", "/claim", "/callback"])
async def test_what_is_not_the_servers_word_is_asked_again(path: str, bench: Bench) -> None:
    faults = (
        page(200),
        page(403),
        page(502),
        lost_request,
        failing(500, "internal-error"),
        failing(503, "busy"),
    )
    bench.server.fault(path, *faults)
    async with serving(answer) as target, bench.running():
        await until(lambda: path == "/callback" or bench.server.count(path) > len(faults), "it asked again")
        bench.server.ask(target.url("/a"))
        (said,) = await bench.called_back()
    assert said["result"]["body"] == "GET a"
    assert bench.server.count(path) > len(faults)


async def test_a_result_that_is_too_large_for_the_server_becomes_an_error(bench: Bench) -> None:
    bench.server.fault("/callback", failing(413, "too-large"))
    async with serving(ok(BODY)) as target, bench.running():
        bench.server.ask(target.url())
        (said,) = await bench.called_back()
    assert said["error"]["code"] == "too-large"


@pytest.mark.parametrize("fault", [failing(404, "job-unknown"), failing(400, "bad-request")])
async def test_a_report_that_nobody_wants_is_dropped(fault: Any, bench: Bench) -> None:
    bench.server.fault("/callback", fault, failing(404, "job-unknown"))
    async with serving(answer) as target, bench.running():
        bench.server.ask(target.url("/a"))
        await until(lambda: bench.server.count("/callback") >= 1, "it was reported")
        await until(lambda: bench.server.count("/claim") > 5, "it goes on")
    assert bench.server.callbacks == []


async def test_a_job_on_the_list_of_those_to_stop_is_stopped(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target, bench.running():
        bench.server.cancel = [bench.server.ask(target.url(), timeoutMs=120_000)]
        (said,) = await bench.called_back()
    assert said["error"]["code"] == "cancelled"


async def test_an_idle_device_lets_its_claim_be_held_and_a_busy_one_does_not(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target, bench.started():
        await until(lambda: bench.server.count("/claim") > 0, "it asks for work")
        bench.server.ask(target.url(), timeoutMs=120_000)
        await until(lambda: target.connections == 1, "it is at work")
        asked = len(bench.server.requests)
        await until(lambda: len(bench.server.requests) > asked + 2, "it asks for more")
        claims = [request for request in bench.server.requests if request.path.endswith("/claim")]
    assert claims[0].headers["prefer"] == "wait=25"
    assert "prefer" not in claims[-1].headers


async def test_a_stop_does_not_wait_for_a_held_claim(bench: Bench) -> None:
    bench.server.fault("/claim", hang)
    async with bench.running():
        await until(lambda: bench.server.count("/claim") == 1, "it is held")
    assert bench.server.count("/claim") == 1


async def test_no_more_jobs_are_taken_than_there_is_room_for(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target, bench.started():
        for _ in range(7):
            bench.server.ask(target.url(), timeoutMs=120_000)
        await until(lambda: target.connections == 2, "two are on their way")
        asked = bench.server.count("/claim")
        assert len(bench.server.waiting) == 5
    assert bench.server.count("/claim") == asked


async def test_a_settled_job_makes_room_at_once(bench: Bench) -> None:
    bench.server.retry_ms = 60_000
    bench.settings = replace(SETTINGS, concurrency=1)
    async with serving(answer) as target:
        for number in range(3):
            bench.server.ask(target.url(f"/{number}"))
        async with bench.running():
            said = await bench.called_back(3)
    assert [entry["result"]["body"] for entry in said] == ["GET 0", "GET 1", "GET 2"]


async def test_a_stop_sees_through_what_has_begun(bench: Bench) -> None:
    gate = asyncio.Event()

    async def play(seen: Any, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer(seen, writer)

    async with serving(play) as target, bench.started() as (stop, task):
        bench.server.ask(target.url("/a"))
        await until(lambda: target.connections == 1, "it is on its way")
        stop()
        gate.set()
        await task
    assert [said["result"]["body"] for said in bench.server.callbacks] == ["GET a"]


async def test_a_proxy_is_the_way_to_the_server_and_never_to_a_target(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", bench.server.url)
    monkeypatch.setattr(bench, "url", "http://farhand.example")
    async with serving(answer) as target, bench.running():
        bench.server.ask(target.url("/a"))
        (said,) = await bench.called_back()
    assert said["result"]["body"] == "GET a"
    assert bench.server.proxied == len(bench.server.requests) > 2
    assert target.requests[0].line == "GET /a HTTP/1.1"


def test_a_bid_is_made_once_for_its_owners_eyes(tmp_path: Path) -> None:
    bid = find_bid(SETTINGS, tmp_path)
    path = tmp_path / "pulsar.bid"
    assert bid.startswith("native-")
    assert len(bid) > 60
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert find_bid(SETTINGS, tmp_path) == bid
    other = replace(SETTINGS, bid=tmp_path / "sub" / "other.bid")
    assert find_bid(other, tmp_path) != bid


@pytest.mark.parametrize(
    ("text", "mode", "words"), [("short", 0o600, "16 to 512"), ("x" * 40, 0o644, "chmod 600")]
)
def test_a_bid_that_is_no_secret_is_refused(text: str, mode: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "pulsar.bid"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=words):
        find_bid(SETTINGS, tmp_path)
