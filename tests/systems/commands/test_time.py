"""Windows, leases, deadlines and backoff; and clocks that somebody sets."""

from typing import Any

from farhand.model.clock import from_rfc3339
from farhand.testing.clock import FakeClock
from tests.server.serving import Server, until
from tests.systems.commands.conftest import Worker, command, issue, trail, try_issue, worker

MINUTE = 60_000
HOUR = 60 * MINUTE


def status_by_timer(server: Server, uuid: str, status: str) -> None:
    """Wait until the timer has brought a command into a status: lists carry nothing out by themselves."""

    def row() -> Any:
        async def look() -> Any:
            store = server.context.store
            async with store.database.read() as reader:
                return await reader.one(
                    "job_by_id", {"org_id": 1, "id": bytes.fromhex(uuid.replace("-", ""))}
                )

        return server.do(look())[4]

    until(f"the timer makes it {status}", lambda: row() == status)


def fail(agent: Worker, error: str = "down", *, retryable: bool = True) -> Any:
    """Collect the next command and report that it failed."""
    return agent.report(agent.collect(), status="failed", error=error, retryable=retryable).ok()


def test_windows_go_by_type_and_by_command(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuids = {
        120_000: issue(timed, agent, "whatsapp.connect")["uuid"],
        300_000: issue(timed, agent, "whatsapp.status")["uuid"],
        10_000: issue(timed, agent, "whatsapp.disconnect", expires_in=10)["uuid"],
    }
    passed = 0
    for window in sorted(uuids):
        clock.advance(window - 1 - passed)
        assert command(timed, uuids[window])["status"] == "pending"
        clock.advance(1)
        passed = window
        assert command(timed, uuids[window])["status"] == "expired"
        last = trail(timed, uuids[window])[-1]
        assert (last["verb"], last["to"], last["actor"]) == ("expire", "expired", "sweep")
        assert "no agent had collected it" in last["text"]


def test_the_timer_expires_what_nobody_looks_at(timed: Server, clock: FakeClock) -> None:
    uuid = issue(timed, worker(timed))["uuid"]
    clock.advance(5 * MINUTE)
    status_by_timer(timed, uuid, "expired")


def test_what_has_expired_is_never_handed_out(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent)["uuid"]
    clock.advance(5 * MINUTE)
    assert agent.claim().status == 204
    assert command(timed, uuid)["status"] == "expired"
    issue(timed, agent)
    assert agent.collect()["uuid"] != uuid


def test_the_window_bounds_the_first_collection_only(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent, "whatsapp.connect")["uuid"]
    clock.advance(110_000)
    fail(agent)
    clock.advance(40_000)
    assert agent.collect()["uuid"] == uuid


def test_a_lost_lease_counts_and_three_of_them_fail_it(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    made = issue(timed, agent, "whatsapp.status")["uuid"]
    for attempt in (1, 2):
        assert agent.collect()["attempt"] == attempt
        clock.advance(5 * MINUTE)
        assert command(timed, made)["status"] == "pending"
    assert agent.collect()["attempt"] == 3
    clock.advance(5 * MINUTE)
    ended = command(timed, made)
    assert ended["status"] == "failed"
    assert ended["error"] == "the deadline passed" or "did not report" in ended["error"]


def test_the_deadline_ends_what_was_collected_with_the_last_error(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent)["uuid"]
    fail(agent, "Evolution was unreachable")
    clock.advance(15 * MINUTE)
    ended = command(timed, uuid)
    assert (ended["status"], ended["error"]) == ("failed", "Evolution was unreachable")
    assert agent.claim().status == 204


def test_the_deadline_ends_what_is_at_work(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent)["uuid"]
    fail(agent, "Evolution was unreachable")
    clock.advance(14 * MINUTE)
    collected = agent.collect()
    clock.advance(5 * MINUTE)
    ended = command(timed, uuid)
    assert (ended["status"], ended["error"]) == ("failed", "Evolution was unreachable")
    stale = agent.report(collected, status="completed").problem(409, "stale-claim")
    assert stale["job_state"] == "failed"
    assert trail(timed, uuid)[-1]["verb"] == "late_result"


def test_backoff_is_30_60_120_seconds(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    timed.context.desk.policies["command.whatsapp.status"] = timed.context.desk.policy(
        "command.whatsapp.status"
    ).override("test", {"max_attempts": 4})
    uuid = issue(timed, agent)["uuid"]
    for wait in (30_000, 60_000, 120_000):
        fail(agent)
        shown = command(timed, uuid)
        waits = from_rfc3339(shown["next_attempt_at"]) - clock.now_ms()
        assert wait <= waits <= wait * 1.1
        assert trail(timed, uuid)[-1]["retry_at"] == shown["next_attempt_at"]
        clock.advance(waits)
    assert fail(agent, "for the last time")["status"] == "failed"
    assert command(timed, uuid)["error"] == "for the last time"


def test_a_late_success_completes_what_nobody_took_over(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent)["uuid"]
    collected = agent.collect()
    clock.advance(5 * MINUTE)
    assert command(timed, uuid)["status"] == "pending"
    assert agent.report(collected, status="completed", result={"late": True}).ok()["status"] == "completed"
    assert command(timed, uuid)["result"] == {"late": True}


def test_a_late_result_of_an_attempt_that_was_given_on_changes_nothing(
    timed: Server, clock: FakeClock
) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent)["uuid"]
    old = agent.collect()
    clock.advance(5 * MINUTE)
    new = agent.collect()
    agent.report(old, status="completed", result="old").problem(409, "stale-claim")
    assert command(timed, uuid)["status"] == "in_progress"
    assert agent.report(new, status="completed", result="new").ok()["status"] == "completed"
    assert command(timed, uuid)["result"] == "new"


def test_a_cancelled_command_whose_agent_died_ends_as_cancelled(timed: Server, clock: FakeClock) -> None:
    agent = worker(timed)
    uuid = issue(timed, agent)["uuid"]
    agent.collect()
    assert timed.call("POST", f"/commands/{uuid}/cancel").ok()["status"] == "in_progress"
    clock.advance(5 * MINUTE)
    assert command(timed, uuid)["status"] == "cancelled"


def test_a_wait_hears_of_an_expiry(timed: Server, clock: FakeClock) -> None:
    uuid = issue(timed, worker(timed))["uuid"]
    held = timed.later(timed.call, "GET", f"/commands/{uuid}", headers={"Prefer": "wait=30"})
    timed.await_held(1)
    clock.advance(5 * MINUTE)
    assert held.result(timeout=20).ok()["status"] == "expired"


def scene(server: Server) -> dict[str, tuple[Worker, str]]:
    """A command in each of the places where a clock matters."""
    found: dict[str, tuple[Worker, str]] = {}
    for name in ("waiting", "held", "backing off"):
        agent = worker(server)
        found[name] = (agent, issue(server, agent)["uuid"])
    found["held"][0].collect()
    fail(found["backing off"][0], "down")
    return found


def test_a_clock_that_jumps_six_hours_ahead_ends_everything_and_loses_nothing(
    timed: Server, clock: FakeClock
) -> None:
    found = scene(timed)
    clock.jump(6 * HOUR)
    ends = {name: command(timed, uuid)["status"] for name, (_, uuid) in found.items()}
    assert ends == {"waiting": "expired", "held": "failed", "backing off": "failed"}
    assert command(timed, found["backing off"][1])["error"] == "down"
    assert command(timed, found["held"][1])["error"] == "the deadline passed"
    for agent, uuid in found.values():
        assert agent.claim().status == 204
        again = timed.call("POST", f"/commands/{uuid}/retry").ok(201)["uuid"]
        assert agent.collect()["uuid"] == again
        assert agent.report(again, status="completed").ok()["status"] == "completed"


def test_a_clock_that_is_set_back_an_hour_hands_nothing_out_twice_and_loses_nothing(
    timed: Server, clock: FakeClock
) -> None:
    found = scene(timed)
    clock.jump(-HOUR)
    waiting, uuid = found["waiting"]
    assert waiting.collect()["uuid"] == uuid
    assert waiting.report(uuid, status="completed").ok()["status"] == "completed"
    held, uuid = found["held"]
    assert held.claim().status == 204
    assert held.report(uuid, status="completed", result=1).ok()["status"] == "completed"
    failed, uuid = found["backing off"]
    assert failed.claim().status == 204
    try_issue(timed, failed).problem(409, "active-conflict")
    fresh = worker(timed)
    made = issue(timed, fresh)
    assert fresh.collect()["uuid"] == made["uuid"]
    clock.advance(HOUR + 40_000)
    assert failed.collect()["uuid"] == uuid
    assert failed.report(uuid, status="completed").ok()["status"] == "completed"
    for agent, uuid in found.values():
        events = trail(timed, uuid)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert [event["verb"] for event in events].count("submit") == 1
        assert agent.claim().status == 204
