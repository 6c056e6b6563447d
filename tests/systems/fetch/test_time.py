"""What time does to a fetch: hedges, leases, sessions. The clock stands still until a test moves it."""

from typing import Any

from farhand.testing.clock import FakeClock
from tests.server.serving import Server, until
from tests.systems.fetch.conftest import RESULT, Device, device, okay, refused, revoke, submit, user_key

SECOND = 1_000
HEDGE_MS = 15 * SECOND
LEASE_MS = 25 * SECOND
DAY_MS = 24 * 3_600_000


def pair(server: Server) -> tuple[str, Device, Device]:
    """An owner's key and two devices of that owner."""
    key = user_key(server)
    return key, device(server, key=key), device(server, key=key)


def hedged(server: Server, clock: FakeClock, **request: Any) -> tuple[str, Device, Device, Any]:
    """A job that two devices are at work on: its owner's key, both, and the job as claimed."""
    key, first, second = pair(server)
    submit(server, key=key, **request)
    job = first.take()
    clock.advance(HEDGE_MS + 1)
    assert second.take() == job
    return key, first, second, job


def verbs(server: Server, job_id: str) -> list[str]:
    """The verbs of a job's trail."""
    return [event["verb"] for event in server.call("GET", f"/jobs/{job_id}/events?limit=200").ok()["items"]]


def test_a_second_device_is_handed_a_job_that_takes_long(timed: Server, clock: FakeClock) -> None:
    key, first, second = pair(timed)
    job_id = submit(timed, key=key)
    assert first.take()["jobId"] == job_id
    clock.advance(HEDGE_MS - 1)
    assert second.claim()["jobs"] == []
    clock.advance(2)
    assert first.claim()["jobs"] == []
    assert second.take()["jobId"] == job_id
    third = device(timed, key=key)
    clock.advance(1_000)
    assert third.claim(batch=5)["jobs"] == []


def test_the_first_answer_wins_and_only_it_counts(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock)
    assert second.callback(job, result={**RESULT, "body": "second"}) == "done"
    assert first.callback(job, result={**RESULT, "body": "first"}) == "noop"
    assert timed.job(job["jobId"])["result"]["body"] == "second"
    assert (first.stats()["jobsDone"], second.stats()["jobsDone"]) == (0, 1)
    assert (first.stats()["bytesOut"], second.stats()["bytesOut"]) == (0, len("second"))
    assert "late_result" in verbs(timed, job["jobId"])


def test_the_loser_is_told_to_stop_on_its_next_call(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock)
    assert "cancel" not in first.claim()
    assert second.callback(job) == "done"
    assert first.claim()["cancel"] == [job["jobId"]]
    assert "cancel" not in second.claim()


def test_a_failure_waits_for_the_other_device_which_succeeds(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock)
    assert first.fail(job) == "noop"
    going_on = timed.job(job["jobId"])
    assert (going_on["state"], going_on["result"], going_on["error"]) == ("running", None, None)
    assert first.stats()["jobsFailed"] == 0
    assert second.callback(job) == "done"
    assert timed.job(job["jobId"])["state"] == "done"
    assert first.stats()["jobsFailed"] == 0


def test_a_failure_counts_when_the_other_device_fails_too(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock)
    assert first.fail(job, "dns", "no such name") == "noop"
    assert second.fail(job, "timeout", "too slow") == "failed"
    assert timed.job(job["jobId"])["state"] == "failed"
    assert first.stats()["jobsFailed"] + second.stats()["jobsFailed"] == 1


def test_a_failure_settles_the_job_when_the_other_device_vanishes(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock)
    assert first.fail(job) == "noop"
    clock.advance(LEASE_MS + 1)
    ended = timed.await_state(job["jobId"], "failed")
    assert ended["error"] == "timeout: upstream did not respond"
    assert ended["result"]["code"] == "timeout"
    assert (first.stats()["jobsFailed"], second.stats()["jobsFailed"]) == (1, 0)


def test_a_failure_beside_another_device_is_forgotten_when_the_job_goes_on(
    timed: Server, clock: FakeClock
) -> None:
    _, first, second, job = hedged(timed, clock)
    assert first.fail(job) == "noop"
    assert second.refuse(job) == "refused"
    ended = timed.await_state(job["jobId"], "failed")
    assert ended["result"]["code"] == "timeout"
    assert (first.stats()["jobsFailed"], second.stats()["jobsRefused"]) == (1, 1)


def test_a_refusal_beside_another_device_leaves_the_job_to_it(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock)
    assert first.refuse(job) == "refused"
    assert timed.job(job["jobId"])["state"] == "running"
    assert second.callback(job) == "done"
    assert first.stats()["jobsRefused"] == 1


def test_a_job_whose_devices_all_vanish_ends(timed: Server, clock: FakeClock) -> None:
    key, *devices = (user_key(timed),)
    devices = [device(timed, key=key) for _ in range(3)]
    job_id = submit(timed, key=key)
    for found in devices:
        assert found.take()["jobId"] == job_id
        clock.advance(LEASE_MS + 1)
        timed.await_state(job_id, "queued", "failed")
    assert timed.await_state(job_id, "failed")["tries"] == 3


def test_a_job_that_nobody_collects_expires(timed: Server, clock: FakeClock) -> None:
    job_id = submit(timed, key=user_key(timed))
    short = submit(timed, key=user_key(timed), expires_in=5)
    clock.advance(5 * SECOND + 1)
    timed.await_state(short, "expired")
    assert timed.job(job_id)["state"] == "queued"
    clock.advance(60 * SECOND)
    timed.await_state(job_id, "expired")


def test_an_unsafe_request_is_given_to_one_device_and_uncertain_when_that_vanishes(
    timed: Server, clock: FakeClock
) -> None:
    key, first, second = pair(timed)
    job_id = submit(timed, key=key, method="POST", body="pay")
    assert first.take()["jobId"] == job_id
    clock.advance(HEDGE_MS + 1)
    assert second.claim()["jobs"] == []
    clock.advance(LEASE_MS)
    timed.await_state(job_id, "uncertain")
    assert second.claim()["jobs"] == []
    again = timed.call("POST", f"/jobs/{job_id}/retry", key=key).ok(201)["id"]
    assert second.take()["jobId"] == again
    clock.advance(HEDGE_MS + 1)
    assert first.claim()["jobs"] == []
    clock.advance(LEASE_MS)
    timed.await_state(again, "uncertain")


def test_a_late_answer_to_an_unsafe_request_settles_it(timed: Server, clock: FakeClock) -> None:
    key, first, _ = pair(timed)
    job_id = submit(timed, key=key, method="POST", body="pay")
    job = first.take()
    clock.advance(LEASE_MS + 1)
    timed.await_state(job_id, "uncertain")
    assert first.callback(job) == "done"
    assert timed.job(job_id)["state"] == "done"
    assert first.stats()["jobsDone"] == 1


def test_an_unsafe_request_marked_idempotent_is_hedged(timed: Server, clock: FakeClock) -> None:
    _, first, second, job = hedged(timed, clock, method="PUT", body="x", idempotent=True)
    assert first.callback(job) == "done"
    assert second.callback(job) == "noop"


def test_the_lease_leaves_a_request_its_own_timeout(timed: Server, clock: FakeClock) -> None:
    key, first, _ = pair(timed)
    job_id = submit(timed, key=key, method="POST", body="x", timeoutMs=60_500)
    job = first.take()
    clock.advance(75 * SECOND)
    assert timed.job(job_id)["state"] == "running"
    assert first.callback(job) == "done"


def test_a_device_revoked_in_mid_job_decides_nothing(timed: Server, clock: FakeClock) -> None:
    key, first, second = pair(timed)
    job_id = submit(timed, key=key)
    job = first.take()
    revoke(timed, first)
    refused(first.try_callback(job), 403, "device-not-approved")
    refused(first.try_claim(), 403, "device-not-approved")
    clock.advance(LEASE_MS + 1)
    timed.await_state(job_id, "queued", "running")
    assert second.take()["jobId"] == job_id
    assert second.callback(job) == "done"


def test_a_cancelled_job_is_taken_back_from_its_device(timed: Server) -> None:
    key, first, _ = pair(timed)
    job_id = submit(timed, key=key)
    job = first.take()
    timed.call("DELETE", f"/jobs/{job_id}", key=key).ok()
    assert first.claim()["cancel"] == [job_id]
    assert first.fail(job, "cancelled", "stopped") == "noop"
    assert timed.job(job_id)["state"] == "cancelled"


def test_a_session_lives_for_a_day_after_the_last_claim(timed: Server, clock: FakeClock) -> None:
    _, first, _ = pair(timed)
    before = okay(first.try_stats())["expiresAt"]
    clock.advance(DAY_MS - 2 * SECOND)
    first.claim()
    assert okay(first.try_stats())["expiresAt"] > before
    clock.advance(DAY_MS - 2 * SECOND)
    first.claim()
    clock.advance(DAY_MS + 1)
    refused(first.try_claim(), 403, "session-unknown")
    old = first.session_id
    assert first.open(sessionId=old)["sessionId"] != old


def test_a_claim_shows_that_the_device_is_there(timed: Server, clock: FakeClock) -> None:
    _, first, _ = pair(timed)
    clock.advance(120 * SECOND)
    path = f"/agents/{first.agent_id()}"
    assert timed.call("GET", path).ok()["online"] is False
    first.claim()
    until("the device is online", lambda: timed.call("GET", path).ok()["online"])
