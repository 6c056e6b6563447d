"""A submit that waits for the end of its job, and what a job came to."""

import uuid
from pathlib import Path

from tests.server.serving import Machine, Server, serving

WAIT = {"Prefer": "wait=30"}


def finish(machine: Machine, **message: object) -> str:
    """Take the next job and end it; its id."""
    job = machine.claim(accept=True, wait_ms=30_000)["jobs"][0]
    machine.act(job, "result", **{"ok": True, **message}).ok()
    return job["job_id"]


def test_a_submit_that_waits_is_answered_with_the_job_at_its_end(server: Server) -> None:
    machine = server.machine()
    ending = server.later(finish, machine, result={"pages": 2})
    reply = server.try_submit(machine.printers[0], headers=WAIT)
    ended = reply.ok(201)
    assert ended["job_id"] == ended["id"] == ending.result()
    assert (ended["state"], ended["final"], ended["result"]) == ("done", True, {"pages": 2})
    assert reply.headers["location"] == f"/jobs/{ended['id']}"
    assert reply.headers["preference-applied"] == "wait=30"


def test_a_failure_ends_the_wait_too(server: Server) -> None:
    machine = server.machine()
    server.later(finish, machine, ok=False, error="out of labels")
    ended = server.try_submit(machine.printers[0], headers=WAIT).ok(201)
    assert (ended["state"], ended["error"]) == ("failed", "out of labels")


def test_uncertainty_ends_the_wait_but_not_the_job(server: Server) -> None:
    machine = server.machine()
    server.later(finish, machine, ok=False, uncertain=True)
    made = server.try_submit(machine.printers[0], headers=WAIT).ok(202)
    assert made["state"] == "uncertain"
    assert set(made) == {"id", "job_id", "state"}


def test_a_job_that_does_not_end_in_time_is_answered_with_its_place(server: Server) -> None:
    machine = server.machine()
    reply = server.try_submit(machine.printers[0], headers={"Prefer": "wait=1"})
    made = reply.ok(202)
    assert made["state"] == "queued"
    assert reply.headers["location"] == f"/jobs/{made['id']}"
    assert finish(machine) == made["id"]


def test_a_repeat_that_waits_is_answered_with_the_end_of_the_first(server: Server) -> None:
    machine = server.machine()
    headers = {**WAIT, "Idempotency-Key": str(uuid.uuid4())}
    first = server.later(server.try_submit, machine.printers[0], headers=headers)
    finish(machine)
    assert first.result().ok(201)["state"] == "done"
    again = server.try_submit(machine.printers[0], headers=headers).ok(200)
    assert again["id"] == first.result().json()["id"]
    assert again["state"] == "done"


def test_a_caller_without_room_to_wait_makes_no_job(tmp_path: Path) -> None:
    with serving(tmp_path / "data", held_waits_per_key=1) as server:
        machine = server.machine()
        first = server.later(server.try_submit, machine.printers[0], headers=WAIT)
        server.await_held(1)
        server.try_submit(machine.printers[0], headers=WAIT).problem(429, "too-many-waits")
        assert len(server.call("GET", "/jobs").ok()["items"]) == 1
        finish(machine)
        assert first.result().ok(201)["state"] == "done"
        server.await_held(0)


def test_a_wait_that_is_no_number_makes_no_job(small: Server) -> None:
    machine = small.machine()
    small.try_submit(machine.printers[0], headers={"Prefer": "wait=soon"}).problem(400, "bad-request")
    assert small.call("GET", "/jobs").ok()["items"] == []


def test_what_a_job_came_to_is_its_result(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    path = f"/jobs/{job_id}/result"
    assert server.call("GET", path).problem(409, "state-conflict")["job_state"] == "queued"
    finish(machine, result={"pages": 2})
    reply = server.call("GET", path)
    assert reply.ok() == {"pages": 2}
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"] == "attachment"
    assert "sandbox" in reply.headers["content-security-policy"]


def test_a_job_without_a_result_came_to_null(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    waiting = server.later(server.call, "GET", f"/jobs/{job_id}/result", headers=WAIT)
    finish(machine)
    assert waiting.result().ok() is None


def test_a_failed_job_has_no_result_but_its_error(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    finish(machine, ok=False, error="out of labels", result={"spool": 7})
    found = server.call("GET", f"/jobs/{job_id}/result").problem(409, "state-conflict")
    assert (found["job_state"], found["error"], found["result"]) == ("failed", "out of labels", {"spool": 7})


def test_a_printed_job_takes_no_body_apart(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    job = machine.take()
    path = f"/agent/jobs/{job['job_id']}/result/body"
    machine.native("PUT", path, body=b"bytes").problem(409, "state-conflict")
    machine.native("PUT", f"/agent/jobs/{uuid.uuid4()}/result/body", body=b"").problem(404, "not-found")
