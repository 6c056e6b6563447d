"""The lifecycle of a command as its diagram shows it, through HTTP."""

from farhand.testing.clock import FakeClock
from tests.server.serving import Server
from tests.systems.commands.conftest import command, issue, trail, worker


def words(server: Server, uuid: str) -> list[tuple[str | None, str]]:
    """The statuses that a command went through."""
    return [(event["from"], event["to"]) for event in trail(server, uuid) if event["from"] != event["to"]]


def test_a_command_is_written_down_collected_and_completed(server: Server) -> None:
    agent = worker(server)
    made = issue(server, agent, params={"instance": "shop"})
    assert made["status"] == "pending"
    assert made["uuid"] == made["id"]
    collected = agent.collect()
    assert collected["uuid"] == made["uuid"]
    assert collected["type"] == "whatsapp.status"
    assert collected["params"] == {"instance": "shop"}
    assert collected["attempt"] == 1
    assert collected["expires_at"] == made["expires_at"]
    assert len(collected["lease_token"]) == 32
    assert collected["secret_fields"] == []
    shown = command(server, made["uuid"])
    assert (shown["status"], shown["attempts"]) == ("in_progress", 1)
    said = agent.report(made["uuid"], status="completed", result={"state": "open"}).ok()
    assert said == {"uuid": made["uuid"], "status": "completed", "state": "done"}
    shown = command(server, made["uuid"])
    assert shown["status"] == "completed"
    assert shown["final"] is True
    assert shown["result"] == {"state": "open"}
    assert shown["error"] is None
    assert words(server, made["uuid"]) == [
        (None, "pending"),
        ("pending", "in_progress"),
        ("in_progress", "completed"),
    ]
    assert agent.claim().status == 204


def test_a_failure_that_another_try_could_mend_waits_and_is_collected_again(
    timed: Server, clock: FakeClock
) -> None:
    agent = worker(timed)
    made = issue(timed, agent)
    for attempt, wait_ms in ((1, 30_000), (2, 60_000)):
        collected = agent.collect()
        assert collected["attempt"] == attempt
        said = agent.report(
            collected, status="failed", error="Evolution was unreachable", retryable=True
        ).ok()
        assert said["status"] == "pending"
        waiting = command(timed, made["uuid"])
        assert waiting["next_attempt_at"] is not None
        assert waiting["error"] == "Evolution was unreachable"
        clock.advance(wait_ms - 1)
        assert agent.claim().status == 204
        clock.advance(wait_ms // 10 + 2)
    last = agent.collect()
    assert last["attempt"] == 3
    assert (
        agent.report(last, status="failed", error="still unreachable", retryable=True).ok()["status"]
        == "failed"
    )
    ended = command(timed, made["uuid"])
    assert (ended["status"], ended["error"], ended["next_attempt_at"]) == (
        "failed",
        "still unreachable",
        None,
    )
    assert words(timed, made["uuid"]) == [
        (None, "pending"),
        ("pending", "in_progress"),
        ("in_progress", "pending"),
        ("pending", "in_progress"),
        ("in_progress", "pending"),
        ("pending", "in_progress"),
        ("in_progress", "failed"),
    ]


def test_a_failure_that_nothing_mends_ends_it_at_once(server: Server) -> None:
    agent = worker(server)
    made = issue(server, agent)
    said = agent.report(
        agent.collect(), status="failed", error="cannot be linked by QR", retryable=False
    ).ok()
    assert said["status"] == "failed"
    assert command(server, made["uuid"])["error"] == "cannot be linked by QR"


def test_a_failure_that_says_nothing_of_another_try_gets_none(server: Server) -> None:
    agent = worker(server)
    issue(server, agent)
    assert agent.report(agent.collect(), status="failed", error="no").ok()["status"] == "failed"


def test_nobody_collects_it_and_it_expires(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    made = issue(timed, agent, "whatsapp.connect")
    clock.advance(119_999)
    assert command(timed, made["uuid"])["status"] == "pending"
    clock.advance(1)
    assert command(timed, made["uuid"])["status"] == "expired"
    assert agent.claim().status == 204
    assert words(timed, made["uuid"]) == [(None, "pending"), ("pending", "expired")]


def test_a_person_changes_their_mind(server: Server) -> None:
    agent = worker(server)
    made = issue(server, agent)
    path = f"/commands/{made['uuid']}/cancel"
    assert server.call("POST", path, json_body={"reason": "closed the page"}).ok()["status"] == "cancelled"
    assert server.call("POST", path).ok()["status"] == "cancelled"
    assert agent.claim().status == 204
    assert trail(server, made["uuid"])[-1]["reason"] == "closed the page"


def test_what_is_at_work_is_asked_to_end_and_what_really_happens_wins(server: Server) -> None:
    agent = worker(server)
    for status, ends in (("completed", "completed"), ("failed", "cancelled")):
        made = issue(server, agent)
        collected = agent.collect()
        asked = server.call("POST", f"/commands/{made['uuid']}/cancel").ok()
        assert asked["status"] == "in_progress"
        assert asked["cancel_requested_at"] is not None
        assert agent.report(collected, status=status).ok()["status"] == ends


def test_a_command_that_is_over_cannot_be_cancelled(server: Server) -> None:
    agent = worker(server)
    made = issue(server, agent)
    agent.report(agent.collect(), status="completed").ok()
    refused = server.call("POST", f"/commands/{made['uuid']}/cancel").problem(409, "state-conflict")
    assert "completed" in refused["detail"]


def test_an_agent_that_was_killed_gets_its_work_back_after_five_minutes(
    timed: Server, clock: FakeClock
) -> None:
    agent = worker(timed)
    made = issue(timed, agent)
    first = agent.collect()
    clock.advance(299_999)
    assert agent.claim().status == 204
    clock.advance(1)
    again = agent.collect()
    assert again["uuid"] == made["uuid"]
    assert again["attempt"] == 2
    assert again["lease_token"] != first["lease_token"]
    assert agent.report(again, status="completed", result=1).ok()["status"] == "completed"


def test_a_native_agent_gets_its_work_back_at_once_by_its_poll_id(server: Server) -> None:
    agent = worker(server)
    made = issue(server, agent, params={"instance": "shop"})
    poll = {"poll_id": "before the kill", "accept": True}
    headers = {"Farhand-Protocol": "1"}
    first = agent.call("POST", "/agent/claim", json_body=poll, headers=headers).ok()["jobs"]
    again = agent.call("POST", "/agent/claim", json_body=poll, headers=headers).ok()["jobs"]
    assert [job["job_id"] for job in again] == [made["uuid"]]
    assert again[0]["lease_token"] == first[0]["lease_token"]
    assert again[0]["kind"] == "command.whatsapp.status"
    assert again[0]["params"] == {"instance": "shop"}
    said = agent.call(
        "POST",
        f"/agent/jobs/{made['uuid']}/result",
        json_body={"ok": True, "lease_token": first[0]["lease_token"], "result": {"n": 1}},
        headers=headers,
    )
    assert said.ok()["state"] == "done"
    assert command(server, made["uuid"])["result"] == {"n": 1}
