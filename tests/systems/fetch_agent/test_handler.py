"""The native agent with its fetch handler, against a server that goes wrong."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from farhand.agent import journal
from farhand.agent.handler import Unfinished
from farhand.model.clock import SystemClock
from farhand.protocol.fetch import INLINE_BYTES_MAX
from farhand.systems.fetch.handler import FetchHandler
from farhand.systems.fetch.settings import FetchSettings
from tests.agent.conftest import Bench
from tests.agent.fake_server import FakeServer, fake_server, lost_reply, page, problem
from tests.egress.targets import ok, serving
from tests.peers.printers import until
from tests.systems.fetch_agent.hostile import answer, silent_after
from tests.systems.fetch_agent.test_execute import asked

SETTINGS = FetchSettings(loopback=True, ports=(), per_host_per_second=0, concurrency=2)
BODY = bytes(range(256)) * 2000


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as running:
        yield running


@pytest.fixture
def bench(server: FakeServer, tmp_path: Path) -> Bench:
    found = Bench(server, tmp_path / "data")
    use(found, SETTINGS)
    return found


def use(bench: Bench, settings: FetchSettings) -> None:
    bench.worker = FetchHandler(settings, SystemClock())  # type: ignore[assignment]  (a handler like any)


def add(server: FakeServer, url: str, *, body: bytes | None = None, via: str = "owners", **more: Any) -> str:
    params = msgspec.to_builtins(asked(url, **more))
    return server.add(None, body, via=via, kind="fetch.http", params=params)


async def settled(server: FakeServer, count: int = 1) -> list[dict[str, Any]]:
    await until(lambda: len(server.results) >= count, f"{count} results")
    return [said for _, said in server.results]


def leftovers(bench: Bench) -> list[Path]:
    return [
        path for name in ("payloads", "outbox") for path in (bench.data / name).rglob("*") if path.is_file()
    ]


@pytest.mark.parametrize("via", ["owners", "agent-1"])
async def test_a_job_of_the_owners_or_for_this_agent_is_fetched(via: str, bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        add(bench.server, target.url("/hello"), via=via)
        (said,) = await settled(bench.server)
    assert (said["ok"], said["evidence"]) == (True, "response")
    assert (said["result"]["status"], said["result"]["body"]) == (200, "GET hello")
    assert bench.server.bodies("/register")[0]["capabilities"] == ["fetch"]
    assert leftovers(bench) == []


async def test_a_settled_job_brings_the_next_one(bench: Bench) -> None:
    use(bench, FetchSettings(loopback=True, ports=(), concurrency=1))
    async with serving(answer) as target, bench.running():
        for number in range(5):
            add(bench.server, target.url(f"/{number}"))
        said = await settled(bench.server, 5)
    assert [entry["result"]["body"] for entry in said] == [f"GET {number}" for number in range(5)]
    following = [body["next"]["lanes"] for body in bench.server.bodies("/result") if body["next"]]
    assert ["owners"] in following


async def test_no_more_than_the_settings_say_are_fetched_at_once(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target, bench.started():
        for _ in range(5):
            add(bench.server, target.url())
        await until(lambda: target.connections == 2, "two are on their way")
        polls = [body["lanes"] for body in bench.server.bodies("/claim")]
        assert set(polls[0]) == {"owners", "agent-1"}
        assert len(bench.server.handed_out) == 2


async def test_the_jobs_body_is_what_is_sent(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        add(bench.server, target.url("/a"), body=b"\x00payload", method="POST")
        (said,) = await settled(bench.server)
    assert target.requests[0].body == b"\x00payload"
    assert said["result"]["body"] == "POST a"


async def test_a_large_body_goes_up_apart_and_leaves_nothing_behind(bench: Bench) -> None:
    async with serving(ok(BODY)) as target, bench.running():
        job_id = add(bench.server, target.url())
        (said,) = await settled(bench.server)
    assert bench.server.kept == {job_id: BODY}
    result = said["result"]
    assert (result["body"], result["bodySha256"]) == (None, hashlib.sha256(BODY).hexdigest())
    assert result["bytesWritten"] == len(BODY) > INLINE_BYTES_MAX
    assert leftovers(bench) == []


async def test_a_large_body_is_sent_again_when_the_way_was_bad(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    bench.server.fault("/body", lost_reply, page(502), problem(503, "busy"))
    async with serving(ok(BODY)) as target, bench.running():
        job_id = add(bench.server, target.url())
        await settled(bench.server)
    assert bench.server.count("/body") == 4
    assert bench.server.kept[job_id] == BODY


async def test_a_large_body_that_the_server_does_not_take_fails_the_job(bench: Bench) -> None:
    bench.server.fault("/body", problem(413, "payload-too-large"))
    async with serving(ok(BODY)) as target, bench.running():
        add(bench.server, target.url())
        (said,) = await settled(bench.server)
    assert (said["ok"], said["retryable"], said["result"]["code"]) == (False, True, "result-body")
    assert "200" in said["error"]


async def test_a_large_body_for_a_lost_attempt_is_dropped(bench: Bench) -> None:
    bench.server.fault("/body", problem(409, "stale-claim"))
    async with serving(ok(BODY)) as target, bench.running():
        add(bench.server, target.url())
        await until(lambda: bench.server.count("/body") == 1, "the body is offered")
        await until(lambda: leftovers(bench) == [], "nothing is left")
    assert bench.server.results == []


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farhand.agent.backoff.Backoff.next_ms", lambda self, at_least_ms=None: 5)


async def test_a_failure_says_what_failed_and_is_not_tried_again_by_itself(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        add(bench.server, target.url("/metadata"))
        (said,) = await settled(bench.server)
    assert (said["ok"], said["retryable"]) == (False, False)
    assert said["error"].startswith("blocked-address: ")
    assert (said["result"]["code"], said["result"]["source"]) == ("blocked-address", "policy")


@pytest.mark.parametrize(
    ("wish", "settings"),
    [
        ({"allow_private_ip": True}, SETTINGS),
        ({"allow_insecure_tls": True}, SETTINGS),
        ({"allow_insecure_tls": True}, FetchSettings(loopback=True, insecure_tls="refuse")),
    ],
)
async def test_what_this_agent_does_not_do_is_left_to_others(
    wish: dict[str, Any], settings: FetchSettings, bench: Bench
) -> None:
    use(bench, settings)
    async with serving(answer) as target, bench.running():
        job_id = add(bench.server, target.url(), **wish)
        await until(lambda: job_id in bench.server.refused, "it is refused")
    assert "this agent has" in bench.server.refused[job_id]
    assert (target.connections, bench.server.results, bench.server.released) == (0, [], [])


async def test_a_job_of_a_kind_that_nobody_here_handles_is_left_to_others(bench: Bench) -> None:
    async with bench.running():
        job_id = bench.server.add(None, None, kind="command.reboot")
        await until(lambda: job_id in bench.server.refused, "it is refused")
    assert "command.reboot" in bench.server.refused[job_id]


@pytest.mark.parametrize("directive", ["cancel", "abort"])
async def test_a_wish_to_stop_ends_a_request_at_once(directive: str, bench: Bench) -> None:
    bench.server.lease_ms = 200
    async with serving(silent_after(b"")) as target, bench.running():
        job_id = add(bench.server, target.url(), timeout_ms=120_000)
        await until(lambda: target.connections == 1, "it is on its way")
        bench.server.directives[job_id] = directive
        (said,) = await settled(bench.server)
    assert (said["ok"], said["cancelled"], said["uncertain"]) == (False, True, False)


async def test_an_unsafe_request_that_was_stopped_may_have_happened(bench: Bench) -> None:
    bench.server.lease_ms = 200
    async with serving(silent_after(b"")) as target, bench.running():
        job_id = add(bench.server, target.url(), method="POST", timeout_ms=120_000)
        await until(lambda: len(target.requests) == 1, "it has arrived")
        bench.server.directives[job_id] = "cancel"
        (said,) = await settled(bench.server)
    assert (said["ok"], said["cancelled"], said["uncertain"]) == (False, False, True)


async def test_an_unsafe_request_waits_for_the_servers_leave(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        job_id = add(bench.server, target.url("/a"), method="POST")
        await settled(bench.server)
    assert bench.server.phases[job_id] == ["requesting"]
    verbs = [request.path.rpartition("/")[2] for request in bench.server.requests if job_id in request.path]
    assert verbs == ["start", "result"]


async def test_an_unsafe_request_is_not_sent_when_it_was_cancelled_before(bench: Bench) -> None:
    async with serving(answer) as target, bench.running():
        job_id = add(bench.server, target.url("/a"), method="POST")
        bench.server.directives[job_id] = "cancel"
        (said,) = await settled(bench.server)
    assert (said["ok"], said["cancelled"]) == (False, True)
    assert target.connections == 0


async def test_a_stop_gives_a_safe_request_back_at_once(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target, bench.running(stop_grace_ms=60_000):
        job_id = add(bench.server, target.url(), timeout_ms=120_000)
        await until(lambda: target.connections == 1, "it is on its way")
    assert (bench.server.released, bench.server.results) == ([job_id], [])


async def test_a_stop_sees_an_unsafe_request_through(bench: Bench) -> None:
    gate = asyncio.Event()

    async def play(seen: Any, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer(seen, writer)

    async with serving(play) as target, bench.started(stop_grace_ms=60_000) as (agent, task):
        add(bench.server, target.url("/a"), method="POST")
        await until(lambda: len(target.requests) == 1, "it has arrived")
        agent.stop()
        gate.set()
        await task
    assert [said["result"]["body"] for _, said in bench.server.results] == ["POST a"]


async def test_what_a_killed_agent_left_is_uncertain_or_given_back(bench: Bench) -> None:
    async with serving(silent_after(b"")) as target:
        async with bench.started(stop_grace_ms=0):
            unsafe = add(bench.server, target.url("/unsafe"), method="POST", timeout_ms=120_000)
            safe = add(bench.server, target.url("/safe"), timeout_ms=120_000)
            await until(lambda: len(target.requests) == 2, "both are on their way")
            left = (bench.data / "journal").read_bytes()
        results, bench.server.results, bench.server.released = bench.server.results, [], []
        assert results == []
        (bench.data / "journal").write_bytes(left)
        async with bench.running():
            (said,) = await settled(bench.server)
            await until(lambda: bench.server.released == [safe], "the safe one goes back")
    assert bench.server.results[0][0] == unsafe
    assert (said["ok"], said["uncertain"]) == (False, True)
    assert len(target.requests) == 2


async def test_the_disk_is_waited_for_only_before_a_point_of_no_return(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    fsync = journal.os.fsync
    async with serving(answer) as target, bench.running():
        await until(lambda: bench.server.count("/claim") == 1, "it asks for work")
        monkeypatch.setattr(journal.os, "fsync", lambda fd: (flushed.append(fd), fsync(fd))[1])
        add(bench.server, target.url("/safe"))
        await settled(bench.server)
        await until(lambda: b'"ended"' in (bench.data / "journal").read_bytes(), "it is written down")
        assert flushed == []
        add(bench.server, target.url("/unsafe"), method="POST")
        await settled(bench.server, 2)
        assert flushed


async def test_what_cannot_be_read_is_a_failure(bench: Bench) -> None:
    async with bench.running():
        bench.server.add(None, None, via="owners", kind="fetch.http", params={"url": 3})
        (said,) = await settled(bench.server)
    assert (said["ok"], said["retryable"], said["result"]["code"]) == (False, False, "bad-request")


async def test_nothing_is_done_for_work_that_is_found_unfinished() -> None:
    handler = FetchHandler(SETTINGS, SystemClock())
    work = Unfinished(
        job_id="j", attempt=1, lease_token="t", kind="fetch.http", device=None, memo=None, handle=None
    )
    draft = await handler.recover(work, None)  # type: ignore[arg-type]  (not used)
    assert (draft.ok, draft.uncertain) == (False, True)
