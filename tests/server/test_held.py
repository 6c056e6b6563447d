"""Held requests: bounds, hang-ups, waits of clients."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand.engine.registry import online
from farhand.server.timers import Timers
from tests.server.serving import FakeClock, Server, serving, until
from tests.server.wire import connected, head, json_request


def seed_poll(server: Server, key: str, wait: int = 30) -> bytes:
    return head("GET", "/agent/jobs", f"Prefer: wait={wait}", key=key) + b"\r\n\r\n"


def test_a_fifth_poll_of_an_agent_answers_the_oldest(server: Server) -> None:
    machine = server.machine()
    polls = []
    for count in range(1, 5):
        polls.append(server.later(machine.poll, 30))
        server.await_held(count)
    polls.append(server.later(machine.poll, 30))
    assert polls[0].result(timeout=10).status == 204
    server.await_held(4)
    jobs = {server.submit(machine.printers[0])["id"] for _ in range(4)}
    assert {poll.result(timeout=10).ok()["job_id"] for poll in polls[1:]} == jobs


def test_a_burst_of_polls_and_jobs_loses_nothing(server: Server) -> None:
    machine = server.machine()
    gate = threading.Barrier(13)

    def poll() -> str | None:
        gate.wait(timeout=10)
        reply = machine.poll(2)
        return reply.ok()["job_id"] if reply.status == 200 else None

    polls = [server.later(poll) for _ in range(12)]
    gate.wait(timeout=10)
    jobs = {server.submit(machine.printers[0])["id"] for _ in range(12)}
    got = {found for future in polls if (found := future.result(timeout=20)) is not None}
    while (reply := machine.poll(0)).status == 200:
        got.add(reply.ok()["job_id"])
    assert got == jobs


def test_a_job_of_a_poll_whose_agent_hung_up_goes_to_the_next_poll_at_once(server: Server) -> None:
    machine = server.machine()
    with connected(server.port) as peer:
        peer.sendall(seed_poll(server, machine.key))
        server.await_held(1)
    server.await_held(0)
    job_id = server.submit(machine.printers[0])["id"]
    assert machine.poll(5).ok()["job_id"] == job_id
    job = server.job(job_id)
    assert (job["tries"], job["state"]) == (1, "claimed")


def test_a_hang_up_at_the_moment_of_the_hand_over_costs_no_try(server: Server) -> None:
    machine = server.machine()
    given_back = 0
    for _ in range(10):
        with connected(server.port) as peer:
            peer.sendall(seed_poll(server, machine.key))
            server.await_held(1)
            pending = server.later(server.submit, machine.printers[0])
        job_id = pending.result(timeout=10)["id"]
        server.await_held(0)
        if machine.poll(1).status == 200:
            given_back += 1
        # A reply that was written before the hang-up was seen is the agent's: its lease runs.
        job = server.job(job_id)
        assert (job["state"], job["tries"]) == ("claimed", 1)
        machine.result(job_id, ok=True).ok()
    assert given_back > 0


def test_a_native_poll_that_hung_up_gets_its_answer_when_it_asks_again(server: Server) -> None:
    machine = server.machine()
    message = {"poll_id": "p-1", "wait_ms": 30_000}
    with connected(server.port) as peer:
        peer.sendall(json_request("POST", "/agent/claim", message, key=machine.key))
        server.await_held(1)
    server.await_held(0)
    job_id = server.submit(machine.printers[0])["id"]
    (job,) = machine.claim("p-1")["jobs"]
    assert (job["job_id"], job["attempt"]) == (job_id, 1)


def test_the_same_native_poll_asked_again_ends_the_one_before_it(server: Server) -> None:
    machine = server.machine()
    first = server.later(machine.claim, "p-2", wait_ms=30_000)
    server.await_held(1)
    second = server.later(machine.claim, "p-2", wait_ms=30_000)
    assert first.result(timeout=10)["jobs"] == []
    server.await_held(1)
    job_id = server.submit(machine.printers[0])["id"]
    assert [job["job_id"] for job in second.result(timeout=10)["jobs"]] == [job_id]


def test_a_client_waits_until_something_happens(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    wait = server.later(server.call, "GET", f"/jobs/{job_id}", headers={"Prefer": "wait=30"})
    server.await_held(1)
    job = machine.take()
    reply = wait.result(timeout=10)
    assert reply.ok()["state"] == "claimed"
    assert reply.headers["preference-applied"] == "wait=30"
    wait = server.later(server.call, "GET", f"/jobs/{job_id}", headers={"Prefer": "wait=30"})
    server.await_held(1)
    machine.act(job, "start", phase="spooling").ok()
    assert wait.result(timeout=10).ok()["phase"] == "spooling"
    machine.act(job, "result", ok=True).ok()
    began = time.monotonic()
    done = server.call("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=30"})
    assert (done.ok()["state"], time.monotonic() - began < 5) == ("done", True)


def test_a_wait_ends_after_its_time_with_the_job_as_it_is(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    began = time.monotonic()
    assert server.call("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=1"}).ok()["state"] == "queued"
    assert 0.95 <= time.monotonic() - began < 6


def test_a_wait_sees_what_time_does(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0], expires_in=1)["id"]
    reply = server.call("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=20"})
    assert reply.ok()["state"] == "expired"


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "data", held_polls_max=6, held_waits_per_key=3) as running:
        yield running


def test_a_key_holds_a_bounded_number_of_waits(tight: Server) -> None:
    machine = tight.machine()
    job_id = tight.submit(machine.printers[0])["id"]
    path, headers = f"/jobs/{job_id}", {"Prefer": "wait=30"}
    waits = []
    for count in (1, 2, 3):
        waits.append(tight.later(tight.call, "GET", path, headers=headers))
        tight.await_held(count)
    assert tight.call("GET", path, headers=headers).problem(429, "too-many-waits")["retryable"]
    other = tight.new_key("jobs.read")
    waits.append(tight.later(tight.call, "GET", path, key=other, headers=headers))
    tight.await_held(4)
    tight.call("GET", path).ok()
    tight.call("DELETE", path).ok()
    assert {wait.result(timeout=10).ok()["state"] for wait in waits} == {"cancelled"}
    tight.await_held(0)


def test_a_full_server_says_when_to_come_back_and_loses_no_job(tight: Server) -> None:
    machines = [tight.machine() for _ in range(7)]
    polls = []
    for count, machine in enumerate(machines[:6], start=1):
        polls.append(tight.later(machine.poll, 30))
        tight.await_held(count)
    machines[6].poll(5).problem(503, "busy")
    message = {"poll_id": "p", "wait_ms": 5_000}
    machines[6].native("POST", "/agent/claim", json_body=message).problem(503, "busy")
    assert machines[6].poll(0).status == 204
    job_id = tight.submit(machines[6].printers[0])["id"]
    assert tight.job(job_id)["state"] == "queued"
    job = machines[6].take()
    settled = machines[6].act(job, "result", ok=True, next={"poll_id": "n", "wait_ms": 5_000}).ok()
    assert settled == {"state": "done", "next": {"jobs": [], "directive": None}}
    path, headers = f"/jobs/{tight.submit(machines[6].printers[0])['id']}", {"Prefer": "wait=5"}
    tight.call("GET", path, headers=headers).problem(503, "busy")
    for machine in machines[:6]:
        tight.submit(machine.printers[0])
    assert {poll.result(timeout=10).status for poll in polls} == {200}
    tight.await_held(0)


def test_a_client_that_hangs_up_leaves_no_wait_behind(tight: Server) -> None:
    machine = tight.machine()
    job_id = tight.submit(machine.printers[0])["id"]
    for _ in range(8):
        with connected(tight.port) as peer:
            peer.sendall(head("GET", f"/jobs/{job_id}", "Prefer: wait=50") + b"\r\n\r\n")
            tight.await_held(1)
        tight.await_held(0)


def test_stopping_answers_everybody_who_waits(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        machines = [server.machine() for _ in range(10)]
        job_id = server.submit(machines[0].printers[0])["id"]
        machines[0].poll().ok()
        polls = [server.later(machine.poll, 50) for machine in machines]
        wait = server.later(server.call, "GET", f"/jobs/{job_id}", headers={"Prefer": "wait=50"})
        server.await_held(11)
        server.loop.call_soon_threadsafe(server.http.stop)
        assert {poll.result(timeout=10).status for poll in polls} == {204}
        assert wait.result(timeout=10).ok()["state"] == "claimed"


def test_a_slow_body_does_not_stop_others(small: Server) -> None:
    machine = small.machine()
    with connected(small.port) as peer:
        peer.sendall(head("POST", "/jobs", "Content-Length: 1000") + b"\r\n\r\n{")
        small.submit(machine.printers[0])
        assert machine.poll(5).status == 200


def test_a_head_that_never_ends_is_given_up(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farhand.server.connection.HEAD_DEADLINE_S", 0.3)
    with connected(small.port) as silent, connected(small.port) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nX-A")
        assert silent.recv(10) == b""
        assert slow.recv(10) == b""
    with connected(small.port) as peer:
        peer.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.recv(15) == b"HTTP/1.1 200 OK"
        peer.sendall(b"GET /health HTTP/1.1\r\nX-A")
        until("the half request is given up", lambda: not peer.recv(65536))


def test_a_held_agent_stays_online_for_whoever_reads_the_database(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    poll = timed.later(machine.poll, 30)
    timed.await_held(1)
    timers, registry = Timers(timed.context), timed.context.store.registry
    written: set[int] = set()
    for _ in range(8):
        clock.advance(timed.context.config.seen_ms)
        timed.do(timers.write_seen())
        (agent,) = timed.do(registry.agents(1, None, 10))
        assert online(agent.last_seen_at, clock.now_ms() + timed.context.config.seen_ms - 1)
        written.add(agent.last_seen_at)
    assert len(written) == 3
    timed.submit(machine.printers[0])
    assert poll.result(timeout=10).status == 200
