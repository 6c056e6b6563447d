"""Servers that are stopped, killed, started again, and two on one database."""

import base64
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.child import Child, process
from tests.server.serving import call, until
from tests.server.wire import connected, head, receive, reply_of

# Processes take their time to start on a machine with other things to do.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def threads() -> Any:
    with ThreadPoolExecutor(max_workers=64) as pool:
        yield pool


def register(child: Child, name: str, printers: int = 1) -> tuple[str, list[str]]:
    """An agent's key and its printers' ids."""
    key = f"the-key-of-{name}-0123456"
    message = {"name": name, "printers": [{"name": f"p{n}"} for n in range(printers)]}
    made = child.call("POST", "/agent/register", key=key, json_body=message).ok()
    return key, made["printer_ids"]


def submit(port: int, printer: str, content: bytes = b"x", **more: Any) -> str:
    message = {
        "printer_id": printer,
        "type": "raw_base64",
        "content": base64.b64encode(content).decode(),
    }
    return str(call(port, "POST", "/jobs", json_body=message, **more).ok(201)["id"])


def poll(child: Child, key: str, wait: int = 30) -> Any:
    return child.call("GET", "/agent/jobs", key=key, headers={"Prefer": f"wait={wait}"})


def held(child: Child, count: int) -> None:
    line = f"farhand_held_polls {count}.0".encode()
    until(f"{count} polls are held", lambda: line in child.call("GET", "/metrics").body)


def test_two_hundred_held_polls_are_answered_at_the_end_and_the_agents_come_back(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    with process(data, log=log) as child, ExitStack() as stack:
        agents = [register(child, f"agent-{number}") for number in range(50)]
        peers = [stack.enter_context(connected(child.port, 30)) for _ in range(200)]
        for index, peer in enumerate(peers):
            key = agents[index % 50][0]
            if index % 2:
                body = b'{"poll_id":"p-%d","wait_ms":50000}' % index
                lines = (f"Content-Length: {len(body)}",)
                peer.sendall(head("POST", "/agent/claim", *lines, key=key) + b"\r\n\r\n" + body)
            else:
                peer.sendall(head("GET", "/agent/jobs", "Prefer: wait=50", key=key) + b"\r\n\r\n")
        held(child, 200)
        ended = threads.submit(child.stop)
        for index, peer in enumerate(peers):
            reply = reply_of(receive(peer))
            if index % 2:
                assert reply.ok() == {"jobs": [], "directive": None}
            else:
                assert reply.status == 204
        assert ended.result(timeout=30) == 0
    with process(data, log=log) as child:
        jobs = {submit(child.port, printers[0]) for _, printers in agents}
        got = list(threads.map(lambda agent: poll(child, agent[0], 5).ok()["job_id"], agents))
        assert set(got) == jobs
        agents_shown = child.call("GET", "/agents?limit=200").ok()["items"]
        assert len(agents_shown) == 50
    assert "Traceback" not in log.read_text()


def test_what_only_memory_knew_is_written_down_at_the_end(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    with process(data, log=log) as child:
        key, _ = register(child, "desk")
        before = child.call("GET", "/agents").ok()["items"][0]["last_seen_at"]

        def later() -> str | None:
            assert poll(child, key, 0).status == 204
            seen = str(child.call("GET", "/agents").ok()["items"][0]["last_seen_at"])
            return seen if seen > before else None

        seen = until("the agent was seen again", later)
        assert child.stop() == 0
    with process(data, log=log) as child:
        assert child.call("GET", "/agents").ok()["items"][0]["last_seen_at"] == seen


class Load:
    """Submitters and agents at work on a server that may die under them."""

    def __init__(self, child: Child, agents: list[tuple[str, list[str]]]) -> None:
        self.port = child.port
        self.agents = agents
        self.over = threading.Event()
        self.acknowledged: list[str] = []
        self.begun: Counter[str] = Counter()
        self.settled: set[str] = set()

    def submitter(self, number: int) -> None:
        turn = 0
        while not self.over.is_set():
            printer = self.agents[turn % len(self.agents)][1][0]
            try:
                self.acknowledged.append(
                    submit(self.port, printer, headers={"Idempotency-Key": f"{number}-{turn}"})
                )
            except OSError:
                return
            except Exception:  # noqa: BLE001  # half a reply of a server that dies
                return
            turn += 1

    def agent(self, key: str) -> None:
        while not self.over.is_set():
            try:
                self.once(key)
            except Exception:  # noqa: BLE001  # half a reply of a server that dies
                return

    def once(self, key: str) -> bool:
        """Claim, start, report; whether there was a job. A start that was answered is the work itself."""
        message = {"poll_id": f"{time.monotonic_ns()}", "wait_ms": 200}
        jobs = call(self.port, "POST", "/agent/claim", key=key, json_body=message).ok()["jobs"]
        for job in jobs:
            path, lease = f"/agent/jobs/{job['job_id']}", {"lease_token": job["lease_token"]}
            begin = {**lease, "phase": "spooling"}
            started = call(self.port, "POST", f"{path}/start", key=key, json_body=begin)
            if started.status == 409:
                continue  # A slow machine: the offer ran out, and comes again.
            started.ok()
            self.begun[job["job_id"]] += 1
            done = {**lease, "ok": True}
            call(self.port, "POST", f"{path}/result", key=key, json_body=done).ok()
            self.settled.add(job["job_id"])
        return bool(jobs)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_server_killed_under_load_loses_no_job_and_repeats_none(
    tmp_path: Path, threads: ThreadPoolExecutor, kind: str, request: pytest.FixtureRequest
) -> None:
    database = {} if kind == "sqlite" else {"database": request.getfixturevalue("postgres_url")}
    short = {"accept_ms": 300, **database}
    data, log = tmp_path / "data", tmp_path / "log"
    with process(data, log=log, **short) as child:
        agents = [register(child, f"agent-{number}") for number in range(4)]
        load = Load(child, agents)
        work: list[Future[None]] = [threads.submit(load.submitter, number) for number in range(6)]
        work += [threads.submit(load.agent, key) for key, _ in agents]
        until("there is load", lambda: len(load.settled) > 40, 60)
        child.kill()
        load.over.set()
        for future in work:
            future.result(timeout=30)
    with process(data, log=log, **short) as child:
        load.port = child.port

        def state_of(job_id: str) -> str:
            return str(child.call("GET", f"/jobs/{job_id}").ok()["state"])

        for job_id in load.settled:
            assert state_of(job_id) == "done"
        for job_id, times in load.begun.items():
            assert times == 1
            assert job_id in load.settled or state_of(job_id) in ("running", "done")

        def drain(key: str) -> None:
            """Work until there is nothing left, offers of the past included."""
            idle_since = time.monotonic()
            while time.monotonic() - idle_since < 1:
                if load.once(key):
                    idle_since = time.monotonic()

        for future in [threads.submit(drain, key) for key, _ in agents]:
            future.result(timeout=50)
        left = Counter(state_of(job_id) for job_id in load.acknowledged)
        # A work that was begun when the server died is its agent's to report; four agents, four at most.
        assert left["done"] + left["running"] == len(load.acknowledged)
        assert left["running"] <= 4
        assert max(load.begun.values()) == 1


# Two servers, one database.


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Any:
    with (
        process(tmp_path / "one", log=tmp_path / "log-1", database=postgres_url) as one,
        process(tmp_path / "two", log=tmp_path / "log-2", database=postgres_url) as two,
    ):
        yield one, two


def beside(threads: ThreadPoolExecutor, action: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    return threads.submit(action, *arguments, **more)


def test_a_job_submitted_at_one_server_reaches_a_poll_at_the_other(
    pair: tuple[Child, Child], threads: ThreadPoolExecutor
) -> None:
    one, two = pair
    key, printers = register(one, "desk")
    for _ in range(5):
        waiting = beside(threads, poll, two, key)
        held(two, 1)
        began = time.monotonic()
        job_id = submit(one.port, printers[0])
        assert waiting.result(timeout=20).ok()["job_id"] == job_id
        # The look behind the hints comes every 10 s only.
        assert time.monotonic() - began < 5
        two.call("GET", f"/agent/jobs/{job_id}/payload", key=key)
        one.call("POST", f"/agent/jobs/{job_id}/result", key=key, json_body={"ok": True}).ok()


def test_polls_at_both_servers_share_the_jobs_and_take_none_twice(
    pair: tuple[Child, Child], threads: ThreadPoolExecutor
) -> None:
    one, two = pair
    key, printers = register(one, "desk")
    polls = [beside(threads, poll, child, key, 20) for child in (one, two) for _ in range(4)]
    held(one, 4)
    held(two, 4)
    jobs = {submit(port, printers[0]) for port in (one.port, two.port) * 4}
    assert {waiting.result(timeout=20).ok()["job_id"] for waiting in polls} == jobs


def test_a_client_waits_at_one_server_for_what_happens_at_the_other(
    pair: tuple[Child, Child], threads: ThreadPoolExecutor
) -> None:
    one, two = pair
    key, printers = register(one, "desk")
    job_id = submit(one.port, printers[0])
    waiting = beside(threads, one.call, "GET", f"/jobs/{job_id}", headers={"Prefer": "wait=30"})
    held(one, 1)
    began = time.monotonic()
    poll(two, key, 0).ok()
    assert waiting.result(timeout=20).ok()["state"] == "claimed"
    assert time.monotonic() - began < 10


def test_what_is_revoked_at_one_server_is_out_at_the_other(
    pair: tuple[Child, Child], threads: ThreadPoolExecutor
) -> None:
    one, two = pair
    key, printers = register(two, "desk")
    made = one.call("POST", "/keys", json_body={"name": "till", "grants": ["jobs.read"]}).ok(201)
    two.call("GET", "/jobs", key=made["key"]).ok()
    poll(two, key, 0)
    agent_id = one.call("GET", "/agents").ok()["items"][0]["id"]
    waiting = beside(threads, poll, two, key)
    held(two, 1)
    one.call("DELETE", f"/keys/{made['id']}").ok()
    one.call("POST", f"/agents/{agent_id}/revoke").ok()
    until("the key is out", lambda: two.call("GET", "/jobs", key=made["key"]).status == 401, 2)
    until("the agent is out", lambda: poll(two, key, 0).status == 403, 2)
    job_id = submit(two.port, printers[0])
    waiting.result(timeout=20).problem(403, "agent-revoked")
    until("the job waits", lambda: one.call("GET", f"/jobs/{job_id}").ok()["state"] == "queued")


def test_a_printer_that_changed_at_one_server_is_known_at_the_other(pair: tuple[Child, Child]) -> None:
    one, two = pair
    key, printers = register(one, "desk")
    submit(two.port, printers[0])
    message = {"name": "desk", "printers": [{"name": "p0", "capabilities": {"raw": False}}]}
    one.call("POST", "/agent/register", key=key, json_body=message).ok()
    body = {"printer_id": printers[0], "type": "raw_base64", "content": "eA=="}
    until("the other server knows", lambda: two.call("POST", "/jobs", json_body=body).status == 422, 3)


def test_an_idempotency_key_holds_across_servers(
    pair: tuple[Child, Child], threads: ThreadPoolExecutor
) -> None:
    one, two = pair
    _, printers = register(one, "desk")
    body = {"printer_id": printers[0], "type": "raw_base64", "content": "eA=="}
    headers = {"Idempotency-Key": "order-1"}
    futures = [
        beside(threads, child.call, "POST", "/jobs", json_body=body, headers=headers)
        for child in (one, two) * 8
    ]
    replies = [future.result(timeout=20) for future in futures]
    assert {reply.status for reply in replies} <= {200, 201}
    assert len({reply.json()["id"] for reply in replies}) == 1
