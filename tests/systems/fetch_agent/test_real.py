"""The real server, real agents as processes, and targets that mean harm."""

import asyncio
import hashlib
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from farhand.agent.signing import make_key
from tests.agent.real import TOKEN
from tests.egress.targets import Seen, Target, ok
from tests.peers.printers import wait_until
from tests.systems.fetch_agent.hostile import CASES, MIB, in_thread, says, silent_after
from tests.systems.fetch_agent.real import SECONDS, FetchAgent, FetchServer, approve

PEAK = 24 * MIB
LARGE = bytes(range(256)) * (32 * MIB // 256)


class Yard:
    """A server and its agents, which end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.server = FetchServer(folder / "server")
        stack.callback(self.server.end)

    def agent(self, name: str = "first", table: str = "", *, signing: Path | None = None) -> FetchAgent:
        """A native agent, which is in."""
        agent = FetchAgent(self._folder / name, self.server.url, name, table, signing=signing)
        self._stack.callback(agent.end)
        self.server.agent_id(name)
        return agent

    def device(self, name: str = "device", table: str = "") -> FetchAgent:
        """A pulsar device, approved by its code."""
        agent = FetchAgent(self._folder / name, self.server.url, name, f'dialect = "pulsar"\n{table}')
        self._stack.callback(agent.end)
        approve(self.server, agent)
        return agent

    def of(self, dialect: str) -> FetchAgent:
        """An agent of either dialect."""
        return self.agent() if dialect == "native" else self.device()

    def body(self, job_id: str) -> bytes:
        """The bytes that a job came to."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=SECONDS)) as line:
            line.request("GET", f"/jobs/{job_id}/result", headers={"Authorization": f"Bearer {TOKEN}"})
            reply = line.getresponse()
            assert reply.status == 200
            return reply.read()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(tmp_path, stack)


def code_of(job: dict[str, Any]) -> str | None:
    return None if job["state"] == "done" else (job["result"] or {}).get("code") or job["error"]


DIALECTS = pytest.mark.parametrize("dialect", ["native", "pulsar"])


@DIALECTS
def test_every_hostile_target_ends_in_its_code_and_the_agents_memory_is_bounded(
    dialect: str, yard: Yard
) -> None:
    agent = yard.of(dialect)
    with in_thread() as target:
        assert yard.server.ended(yard.server.fetch(target.url("/warm")))["state"] == "done"
        before = agent.memory("VmRSS")
        agent.peak_from_now()
        jobs = {
            case.name: yard.server.fetch(target.url(f"/{case.name}"), **{"timeoutMs": 60_000, **case.request})
            for case in CASES
        }
        found = {name: code_of(yard.server.ended(job_id)) for name, job_id in jobs.items()}
        after = agent.memory("VmHWM")
    assert found == {case.name: case.code for case in CASES}
    assert after - before < PEAK
    assert agent.process.poll() is None


@DIALECTS
def test_a_large_body_arrives_whole_and_is_never_in_memory_as_a_whole(dialect: str, yard: Yard) -> None:
    agent = yard.of(dialect)

    async def play(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(LARGE if "large" in seen.line else b"small"))
        await writer.drain()

    with in_thread(play) as target:
        assert yard.server.ended(yard.server.fetch(target.url("/small")))["state"] == "done"
        before = agent.memory("VmRSS")
        agent.peak_from_now()
        job_id = yard.server.fetch(target.url("/large"), maxResponseBytes=len(LARGE), timeoutMs=60_000)
        job = yard.server.ended(job_id)
        after = agent.memory("VmHWM")
    assert (job["state"], job["evidence"]) == ("done", "response")
    assert job["result"]["bytesWritten"] == len(LARGE)
    assert hashlib.sha256(yard.body(job_id)).digest() == hashlib.sha256(LARGE).digest()
    assert after - before < len(LARGE) // 2
    assert [path for path in agent.data.rglob("*") if path.is_file() and path.stat().st_size > MIB] == []


class Slow:
    """A target that keeps a request until it is told to answer, or nobody waits for that."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.arrived = 0

    async def play(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.arrived += 1
        while not self.go.is_set():
            await asyncio.sleep(0.01)
            if writer.transport.is_closing():
                return
        writer.write(ok(b"late"))
        await writer.drain()


def test_a_safe_request_of_a_killed_agent_is_done_by_another(yard: Yard) -> None:
    slow = Slow()
    first = yard.agent("first")
    with in_thread(slow.play) as target:
        job_id = yard.server.fetch(target.url(), timeoutMs=60_000)
        wait_until(lambda: slow.arrived == 1, "it is on its way", SECONDS)
        first.kill()
        slow.go.set()
        yard.agent("second")
        job = yard.server.ended(job_id)
    assert (job["state"], job["result"]["body"]) == ("done", "late")
    assert slow.arrived == 2


def test_an_unsafe_request_of_a_killed_agent_is_uncertain_and_not_made_again(yard: Yard) -> None:
    slow = Slow()
    agent = yard.agent()
    with in_thread(slow.play) as target:
        job_id = yard.server.fetch(target.url(), method="POST", body="once", timeoutMs=60_000)
        wait_until(lambda: slow.arrived == 1, "it has arrived", SECONDS)
        agent.kill()
        agent.start()
        job = yard.server.ended(job_id)
        marker = yard.server.fetch(target.url("/marker"))
        slow.go.set()
        assert yard.server.ended(marker)["state"] == "done"
    assert job["state"] == "uncertain"
    assert slow.arrived == 2


def revoke_in_mid_job(yard: Yard, agent: FetchAgent, target: Target, slow: Slow) -> str:
    """The job of an agent that was revoked while it was at work, and has stopped because of it."""
    job_id = yard.server.fetch(target.url(), timeoutMs=60_000)
    wait_until(lambda: slow.arrived == 1, "it is on its way", SECONDS)
    (item,) = yard.server.call("GET", "/agents")["items"]
    yard.server.call("POST", f"/agents/{item['id']}/revoke")
    assert agent.process.wait(SECONDS) != 0
    return job_id


def test_an_agent_that_is_revoked_in_mid_job_stops_and_another_does_it(yard: Yard) -> None:
    slow = Slow()
    agent = yard.agent("first")
    with in_thread(slow.play) as target:
        job_id = revoke_in_mid_job(yard, agent, target, slow)
        slow.go.set()
        yard.agent("second")
        job = yard.server.ended(job_id)
    assert "agent-revoked" in agent.tail()
    assert (job["state"], slow.arrived) == ("done", 2)


def test_a_device_that_is_revoked_in_mid_job_stops(yard: Yard) -> None:
    slow = Slow()
    device = yard.device()
    with in_thread(slow.play) as target:
        job_id = revoke_in_mid_job(yard, device, target, slow)
    assert "device-not-approved" in device.tail()
    assert not yard.server.job(job_id)["final"]


@DIALECTS
def test_a_cancelled_request_is_stopped_at_once(dialect: str, yard: Yard) -> None:
    yard.of(dialect)
    with in_thread(silent_after(b"")) as target:
        job_id = yard.server.fetch(target.url(), timeoutMs=120_000)
        wait_until(lambda: target.connections == 1, "it is on its way", SECONDS)
        yard.server.call("DELETE", f"/jobs/{job_id}")
        job = yard.server.ended(job_id)
    assert job["state"] == "cancelled"


def test_a_refused_job_waits_for_an_agent_that_takes_it(yard: Yard) -> None:
    """The capabilities are declared, so only a changed setting can lead to a refusal at all."""
    yard.agent("first", 'insecure_tls = "refuse"')
    with in_thread() as target:
        job_id = yard.server.fetch(target.url("/a"), allowInsecureTLS=True)
        assert yard.server.ended(yard.server.fetch(target.url("/b")))["state"] == "done"
        assert yard.server.job(job_id)["state"] == "queued"
        yard.agent("second", 'insecure_tls = "accept"')
        assert yard.server.ended(job_id)["state"] == "done"


def test_tags_and_names_lead_a_request_to_its_agent(yard: Yard) -> None:
    yard.agent("first", 'tags = ["lab"]')
    second = yard.agent("second", 'tags = ["office", "eu"]')
    assert second.terminate() == 0
    with in_thread() as target:
        tagged = yard.server.fetch(target.url("/a"), tags=["office"])
        pinned = yard.server.fetch(target.url("/b"), agent="first")
        assert yard.server.ended(pinned)["state"] == "done"
        assert yard.server.job(tagged)["state"] == "queued"
        second.start()
        assert yard.server.ended(tagged)["state"] == "done"


def test_a_body_is_sent_by_the_native_agent_as_it_was_submitted(yard: Yard) -> None:
    yard.agent()
    bodies: list[bytes] = []

    async def play(seen: Seen, writer: asyncio.StreamWriter) -> None:
        bodies.append(seen.body)
        writer.write(ok(json.dumps({"bytes": len(seen.body)}).encode(), "Content-Type: application/json"))
        await writer.drain()

    with in_thread(play) as target:
        small = yard.server.fetch(target.url(), method="POST", body="text")
        assert yard.server.ended(small)["state"] == "done"
        large = yard.server.fetch(target.url(), method="PUT", body="x" * 100_000)
        assert json.loads(yard.server.ended(large)["result"]["body"]) == {"bytes": 100_000}
    assert bodies == [b"text", b"x" * 100_000]


def test_an_agent_that_signs_hands_a_large_body_on(yard: Yard, tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    make_key(path)
    body = LARGE[: 4 * MIB]
    yard.agent(signing=path)
    (item,) = yard.server.call("GET", "/agents")["items"]
    assert item["signing"] == "optional"
    with in_thread(says(ok(body))) as target:
        job_id = yard.server.fetch(target.url(), maxResponseBytes=len(body), timeoutMs=60_000)
        assert yard.server.ended(job_id)["state"] == "done"
    assert yard.body(job_id) == body
