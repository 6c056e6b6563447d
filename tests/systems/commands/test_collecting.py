"""Agents collect commands and report how they ended."""

import json
from typing import Any

import pytest

from tests.server.serving import Server
from tests.server.wire import connected, head
from tests.systems.commands.conftest import CLAIM, Worker, command, grant, issue, trail, worker


@pytest.fixture
def agent(server: Server) -> Worker:
    return worker(server)


def test_without_work_a_claim_answers_at_once(agent: Worker) -> None:
    reply = agent.claim()
    assert (reply.status, reply.body) == (204, b"")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"agent":"ai"}', b"no json at all"])
def test_a_claim_needs_no_body_and_minds_none(server: Server, agent: Worker, body: bytes) -> None:
    made = issue(server, agent)
    assert agent.call("POST", CLAIM, body=body).ok()["uuid"] == made["uuid"]


def test_a_held_claim_gets_what_is_issued_meanwhile(server: Server, agent: Worker) -> None:
    held = server.later(agent.claim, 30)
    server.await_held(1)
    made = issue(server, agent)
    assert held.result(timeout=20).ok()["uuid"] == made["uuid"]


def test_a_held_claim_ends_with_nothing_when_its_time_is_up(agent: Worker) -> None:
    assert agent.claim(wait=1).status == 204


def test_a_wait_that_is_none_is_refused(agent: Worker) -> None:
    agent.call("POST", CLAIM, headers={"Prefer": "wait=soon"}).problem(400, "bad-request")


def test_commands_are_collected_in_order_and_by_their_own_agent(server: Server, agent: Worker) -> None:
    other = worker(server)
    first = issue(server, agent, "many.at-once")["uuid"]
    second = issue(server, agent, "many.at-once")["uuid"]
    assert other.claim().status == 204
    assert [agent.collect()["uuid"], agent.collect()["uuid"]] == [first, second]
    assert agent.claim().status == 204


def test_a_new_agent_does_not_hold_the_grant(server: Server) -> None:
    made = server.call("POST", "/agents", json_body={"name": "a fresh one"}).ok(201)
    fresh = Worker(server=server, name="a fresh one", id=made["id"], key=made["key"])
    uuid = issue(server, fresh)["uuid"]
    for reply in (fresh.claim(), fresh.report(uuid, status="completed")):
        refused = reply.problem(403, "forbidden")
        assert refused["grant"] == "commands.process"
        assert "commands.process" in refused["detail"]
    poll = {"poll_id": "p", "accept": True}
    assert fresh.call("POST", "/agent/claim", json_body=poll).ok()["jobs"] == []
    grant(server, fresh.id, "agent.work", "commands.process")
    assert fresh.collect()["uuid"] == uuid
    server.call("POST", f"/agents/{fresh.id}/revoke").ok()


def test_an_agent_that_loses_the_grant_while_it_waits_gets_nothing(server: Server, agent: Worker) -> None:
    held = server.later(agent.claim, 30)
    server.await_held(1)
    grant(server, agent.id, "agent.work")
    uuid = issue(server, agent)["uuid"]
    assert held.result(timeout=20).problem(403, "forbidden")["grant"] == "commands.process"
    shown = command(server, uuid)
    assert (shown["status"], shown["attempts"]) == ("pending", 0)


def test_a_native_claim_that_waits_gets_none_either(server: Server, agent: Worker) -> None:
    poll = {"poll_id": agent.id, "accept": True, "wait_ms": 30_000}
    held = server.later(agent.call, "POST", "/agent/claim", json_body=poll)
    server.await_held(1)
    grant(server, agent.id, "agent.work")
    uuid = issue(server, agent)["uuid"]
    assert held.result(timeout=20).ok()["jobs"] == []
    assert command(server, uuid)["status"] == "pending"


def test_a_paused_agent_is_given_nothing(server: Server, agent: Worker) -> None:
    issue(server, agent)
    server.call("POST", f"/agents/{agent.id}/pause").ok()
    assert agent.claim().status == 204
    server.call("POST", f"/agents/{agent.id}/resume").ok()
    agent.collect()


def test_the_printers_poll_gets_no_command_and_the_commands_claim_no_print_job(server: Server) -> None:
    machine = server.machine()
    grant(server, machine.id, "agent.work", "commands.process")
    both = Worker(server=server, name=machine.name, id=machine.id, key=machine.key)
    made = issue(server, machine.id)["uuid"]
    assert machine.poll().status == 204
    printed = server.submit(machine.printers[0])["id"]
    assert both.collect()["uuid"] == made
    assert both.claim().status == 204
    assert machine.poll().ok()["job_id"] == printed


def test_a_native_claim_brings_printing_and_commands(server: Server) -> None:
    machine = server.machine()
    grant(server, machine.id, "agent.work", "commands.process")
    printed = server.submit(machine.printers[0])["id"]
    made = issue(server, machine.id)["uuid"]
    jobs = machine.claim(max=8, accept=True)["jobs"]
    assert {job["job_id"] for job in jobs} == {printed, made}


def test_a_native_agent_names_itself_as_a_lane(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    other = {"poll_id": "other", "accept": True, "lanes": [worker(server).id]}
    assert agent.call("POST", "/agent/claim", json_body=other).ok()["jobs"] == []
    mine = {"poll_id": "mine", "accept": True, "lanes": [agent.id]}
    (job,) = agent.call("POST", "/agent/claim", json_body=mine).ok()["jobs"]
    assert job["job_id"] == uuid


def test_a_reply_nobody_heard_puts_the_command_back_uncounted(server: Server, agent: Worker) -> None:
    with connected(server.port) as peer:
        peer.sendall(head("POST", CLAIM, "Prefer: wait=30", "Content-Length: 0", key=agent.key) + b"\r\n\r\n")
        server.await_held(1)
    server.await_held(0)
    uuid = issue(server, agent)["uuid"]
    shown = command(server, uuid)
    assert (shown["status"], shown["attempts"]) == ("pending", 0)
    assert agent.collect()["uuid"] == uuid


def test_a_result_may_name_its_lease_or_not(server: Server, agent: Worker) -> None:
    for named in (True, False):
        issue(server, agent)
        collected = agent.collect()
        target: Any = collected if named else collected["uuid"]
        agent.report(target, status="completed", result={"ok": named}).ok()


def test_the_same_result_again_is_answered_as_the_first_time(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    collected = agent.collect()
    first = agent.report(collected, status="failed", error="down", retryable=True).ok()
    for target in (collected, uuid):
        assert agent.report(target, status="failed", error="down", retryable=True).ok() == first
    assert [event["verb"] for event in trail(server, uuid)] == ["submit", "claim", "start", "settle"]


def test_whoever_lost_the_lease_is_told_and_what_it_says_is_an_event(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    old = agent.collect()
    give = {"lease_token": old["lease_token"], "reason": "restarts"}
    agent.call("POST", f"/agent/jobs/{uuid}/release", json_body=give).ok()
    new = agent.collect()
    assert new["attempt"] == 2
    stale = agent.report(old, status="completed", result={"secret": "LATE"}).problem(409, "stale-claim")
    assert stale["job_state"] == "running"
    late = trail(server, uuid)[-1]
    assert (late["verb"], late["from"], late["to"], late["attempt"]) == (
        "late_result",
        "in_progress",
        "in_progress",
        1,
    )
    assert "reported success for attempt 1" in late["text"]
    assert "LATE" not in json.dumps(late)
    assert agent.report(new, status="completed").ok()["status"] == "completed"


def test_a_made_up_lease_is_stale(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    agent.collect()
    agent.report(uuid, status="completed", lease_token="0" * 32).problem(409, "stale-claim")
    assert command(server, uuid)["status"] == "in_progress"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "status"),
        ({"status": "done"}, "status"),
        ({"status": "completed\n"}, "status"),
        ({"status": None}, "status"),
        ({"status": "completed", "error": "but"}, "error"),
        ({"status": "completed", "retryable": True}, "retryable"),
        ({"status": "failed", "retryable": "yes"}, "retryable"),
        ({"status": "failed", "error": 7}, "error"),
        ({"status": "failed", "lease_token": "short"}, "lease_token"),
        ({"status": "completed", "resutl": 1}, "resutl"),
        ({"status": "completed", "result": {"a": "\0"}}, "result.a"),
        ({"status": "failed", "error": "\0"}, "error"),
    ],
)
def test_a_report_that_does_not_fit_is_refused_by_its_field(
    server: Server, agent: Worker, message: dict[str, Any], field: str
) -> None:
    uuid = issue(server, agent)["uuid"]
    agent.collect()
    assert agent.report(uuid, **message).problem(422, "bad-field")["field"] == field
    assert command(server, uuid)["status"] == "in_progress"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 5_000])
def test_a_report_that_is_no_json_object_is_refused(server: Server, agent: Worker, body: bytes) -> None:
    uuid = issue(server, agent)["uuid"]
    agent.collect()
    reply = agent.call("POST", f"/api/agent/v1/commands/{uuid}/result", body=body)
    assert reply.status in (400, 422)
    assert reply.json()["code"] in ("bad-json", "bad-field")


def test_a_long_error_is_cut_not_refused(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    agent.report(agent.collect(), status="failed", error="x" * 50_000).ok()
    error = command(server, uuid)["error"]
    assert len(error) == 4_000
    assert error.endswith("x…")


def test_an_oversize_result_ends_the_command_instead_of_coming_back(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent, "small.result")["uuid"]
    collected = agent.collect()
    refused = agent.report(collected, status="completed", result="x" * 1_001).problem(413, "result-too-large")
    assert refused["limit_bytes"] == 1_000
    assert refused["retryable"] is False
    shown = command(server, uuid)
    assert (shown["status"], shown["result"]) == ("failed", None)
    assert "larger than the limit of 1000 bytes" in shown["error"]
    assert agent.claim().status == 204
    agent.report(collected, status="completed", result="x" * 1_001).problem(409, "stale-claim")


def test_an_oversize_body_is_refused_unread(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    collected = agent.collect()
    reply = agent.report(collected, status="completed", result="x" * (1024 * 1024 + 70_000))
    reply.problem(413, "payload-too-large")
    assert agent.report(collected, status="failed", error="too large").ok()["status"] == "failed"
    assert command(server, uuid)["error"] == "too large"


def test_a_result_of_exactly_the_limit_is_taken(server: Server, agent: Worker) -> None:
    issue(server, agent, "small.result")
    assert agent.report(agent.collect(), status="completed", result="x" * 998).ok()["status"] == "completed"


def test_a_flood_of_results_settles_once_and_leaves_the_server_at_work(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    collected = agent.collect()
    other = worker(server)

    def flood(number: int) -> int:
        if number % 3 == 0:
            return agent.report(collected, status="completed", result={"n": 1}).status
        if number % 3 == 1:
            return agent.report(collected, status="completed", result={"n": number}).status
        return other.report(uuid, status="completed", result={"n": number}).status

    answers = [server.later(flood, number) for number in range(600)]
    statuses = [answer.result(timeout=50) for answer in answers]
    assert {status for number, status in enumerate(statuses) if number % 3 == 2} == {404}
    assert set(statuses) == {200, 404, 409}
    found = trail(server, uuid)
    assert [event["verb"] for event in found].count("settle") == 1
    assert command(server, uuid)["status"] == "completed"
    again = issue(server, agent)["uuid"]
    assert agent.collect()["uuid"] == again


def test_a_trail_under_a_flood_stays_bounded(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    collected = agent.collect()
    agent.report(collected, status="completed").ok()
    answers = [
        server.later(agent.report, collected, status="failed", error=str(number)) for number in range(700)
    ]
    for answer in answers:
        answer.result(timeout=50).problem(409, "stale-claim")
    events = 0
    cursor = ""
    while True:
        page = server.call("GET", f"/commands/{uuid}/events?limit=200{cursor}").ok()
        events += len(page["items"])
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert events == 500
