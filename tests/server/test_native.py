"""The native dialect: offers, leases, directives, results with the next claim."""

import base64

import pytest

from tests.server.serving import FakeClock, Server

MINUTE = 60_000


def test_the_same_poll_gets_the_same_answer(server: Server) -> None:
    machine = server.machine()
    first = server.submit(machine.printers[0], b"one")
    server.submit(machine.printers[0], b"two")
    once = machine.claim("p-1")["jobs"]
    again = machine.claim("p-1")["jobs"]
    assert [job["job_id"] for job in once] == [first["id"]]
    same = ("job_id", "attempt", "lease_token", "payload", "mode", "kind", "printer_id")
    assert [{k: job[k] for k in same} for job in again] == [{k: job[k] for k in same} for job in once]


def test_a_poll_that_accepted_gets_the_same_answer_again(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    (once,) = machine.claim("p-1", accept=True)["jobs"]
    (again,) = machine.claim("p-1", accept=True)["jobs"]
    assert once["accepted"] is again["accepted"] is True
    assert (once["lease_token"], once["attempt"]) == (again["lease_token"], again["attempt"])
    assert server.job(once["job_id"])["tries"] == 1


def test_an_offer_nobody_takes_goes_back_uncounted(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["id"]
    (offer,) = machine.claim()["jobs"]
    assert offer["accepted"] is False
    assert 9_000 <= offer["lease_ms"] <= 10_000
    clock.advance(10_000)
    job = timed.await_state(job_id, "queued")
    assert (job["tries"], job["attempt"]) == (0, 1)
    machine.act(offer, "start").problem(409, "stale-claim")
    assert machine.take()["attempt"] == 2


def test_a_small_payload_comes_with_the_job_and_a_large_one_by_its_path(server: Server) -> None:
    machine = server.machine()
    large = bytes(range(256)) * 1200
    server.submit(machine.printers[0], b"small", title="Label 7")
    server.submit(machine.printers[0], large, copies=3, options={"duplex": "long-edge"})
    small_job, large_job = machine.claim(max=2)["jobs"]
    assert base64.b64decode(small_job["payload"]["base64"]) == b"small"
    assert (small_job["title"], small_job["params"]) == ("Label 7", None)
    assert large_job["payload"] == {"size": len(large), "url": f"/agent/jobs/{large_job['job_id']}/payload"}
    assert large_job["params"] == {"copies": 3, "options": {"duplex": "long-edge"}}
    reply = machine.native("GET", large_job["payload"]["url"])
    assert reply.headers["content-length"] == str(len(large))
    assert reply.body == large
    assert server.job(large_job["job_id"])["state"] == "claimed"


def test_a_payload_is_read_under_the_lease_that_is_named(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0], b"x")
    job = machine.take()
    named = {"Farhand-Lease": job["lease_token"]}
    assert machine.payload(job["job_id"], headers=named).body == b"x"
    machine.payload(job["job_id"], headers={"Farhand-Lease": "0" * 32}).problem(409, "stale-claim")
    machine.payload(job["job_id"], headers={"Farhand-Lease": "nonsense"}).problem(400, "bad-request")


def test_progress_is_shown_to_clients_while_the_work_goes_on(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    job = machine.take()
    held = machine.act(job, "start", phase="downloading").ok()
    assert (held["state"], held["directive"]) == ("running", "continue")
    assert held["heartbeat_ms"] == held["lease_ms"] // 4
    machine.act(job, "heartbeat", phase="spooling", reason="media-empty").ok()
    shown = server.job(job["job_id"])
    assert (shown["state"], shown["phase"], shown["reason"]) == ("running", "spooling", "media-empty")
    machine.act(job, "heartbeat").ok()
    assert server.job(job["job_id"])["reason"] == "media-empty"
    machine.act(job, "heartbeat", reason=None).ok()
    assert server.job(job["job_id"])["reason"] is None
    settled = machine.act(job, "result", ok=True, evidence="printed", result={"pages": 2}).ok()
    assert settled == {"state": "done", "next": None}
    shown = server.job(job["job_id"])
    assert (shown["evidence"], shown["result"], shown["phase"]) == ("printed", {"pages": 2}, None)


def test_a_heartbeat_keeps_the_lease(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["id"]
    job = machine.take()
    for _ in range(4):
        clock.advance(45_000)
        machine.act(job, "heartbeat").ok()
    assert timed.job(job_id)["state"] == "claimed"
    clock.advance(MINUTE)
    timed.await_state(job_id, "queued")


def test_a_cancel_request_travels_as_a_directive(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    job = machine.take()
    machine.act(job, "start").ok()
    shown = server.call("DELETE", f"/jobs/{job_id}", json_body={"reason": "wrong label"}).ok()
    assert (shown["state"], shown["cancel_requested_at"] is None) == ("running", False)
    assert machine.act(job, "heartbeat").ok()["directive"] == "cancel"
    assert machine.act(job, "result", ok=False, cancelled=True).ok()["state"] == "cancelled"
    server.call("DELETE", f"/jobs/{job_id}").problem(409, "state-conflict")


def test_what_really_happened_wins_over_a_cancel_request(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    job = machine.take()
    machine.act(job, "start").ok()
    server.call("DELETE", f"/jobs/{job_id}").ok()
    assert machine.act(job, "result", ok=True).ok()["state"] == "done"


def test_a_waiting_job_is_cancelled_at_once(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    assert server.call("DELETE", f"/jobs/{job_id}").ok()["state"] == "cancelled"
    assert machine.claim()["jobs"] == []


def test_released_work_goes_back_uncounted(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    job = machine.take()
    assert machine.act(job, "release", reason="shutting down").ok() == {"state": "queued"}
    assert machine.act(job, "release").ok() == {"state": "queued"}
    assert server.job(job_id)["tries"] == 0
    assert machine.take()["job_id"] == job_id


def test_work_past_the_point_of_no_return_cannot_be_given_back(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    job = machine.take()
    machine.act(job, "start", phase="spooling").ok()
    assert machine.act(job, "release").problem(409, "no-return")["job_state"] == "running"
    machine.act(job, "refuse").problem(409, "no-return")
    assert machine.act(job, "result", ok=True).ok()["state"] == "done"


def test_refused_work_is_not_offered_to_the_same_agent_again(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    assert machine.act(machine.take(), "refuse", reason="no such paper").ok() == {"state": "queued"}
    assert machine.claim()["jobs"] == []
    job = server.job(job_id)
    assert (job["state"], job["reason"], job["tries"]) == ("queued", "no such paper", 0)


def test_a_result_brings_the_next_job(server: Server) -> None:
    machine = server.machine()
    first, second = (server.submit(machine.printers[0])["id"] for _ in range(2))
    job = machine.take()
    reply = machine.act(job, "result", ok=True, next={"poll_id": "n-1", "accept": True}).ok()
    assert (job["job_id"], reply["state"]) == (first, "done")
    assert [entry["job_id"] for entry in reply["next"]["jobs"]] == [second]
    again = machine.act(job, "result", ok=True, next={"poll_id": "n-1", "accept": True}).ok()
    assert again["state"] == "done"
    token = reply["next"]["jobs"][0]["lease_token"]
    assert [entry["lease_token"] for entry in again["next"]["jobs"]] == [token]


def test_a_result_may_wait_for_the_next_job(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    job = machine.take()
    wanted = {"poll_id": "n-1", "wait_ms": 20_000}
    reply = server.later(machine.act, job, "result", ok=True, next=wanted)
    server.await_held(1)
    assert server.job(job["job_id"])["state"] == "done"
    second = server.submit(machine.printers[0])["id"]
    assert [entry["job_id"] for entry in reply.result(timeout=20).ok()["next"]["jobs"]] == [second]


def test_a_stale_result_still_brings_the_next_job(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    first = timed.submit(machine.printers[0])["id"]
    job = machine.take()
    clock.advance(MINUTE)
    timed.await_state(first, "queued")
    timed.call("DELETE", f"/jobs/{first}").ok()
    second = timed.submit(machine.printers[0])["id"]
    stale = machine.act(job, "result", ok=False, next={"poll_id": "n-1"}).problem(409, "stale-claim")
    assert stale["job_state"] == "cancelled"
    assert [entry["job_id"] for entry in stale["next"]["jobs"]] == [second]


def test_a_lost_reply_to_a_result_is_answered_as_the_first_time(server: Server) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    job = machine.take()
    assert machine.act(job, "result", ok=True, evidence="printed").ok()["state"] == "done"
    assert machine.act(job, "result", ok=True, evidence="printed").ok()["state"] == "done"
    other = machine.act(job, "result", ok=False, error="no").problem(409, "stale-claim")
    assert other["job_state"] == "done"


def test_a_wrong_lease_changes_nothing(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    job = {**machine.take(), "lease_token": "ab" * 16}
    for verb, message in (("start", {}), ("heartbeat", {}), ("release", {}), ("refuse", {})):
        machine.act(job, verb, **message).problem(409, "stale-claim")
    machine.act(job, "result", ok=True).problem(409, "stale-claim")
    assert server.job(job_id)["state"] == "claimed"


def test_a_retryable_failure_is_tried_again_later(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["id"]
    job = machine.take()
    settled = machine.act(job, "result", ok=False, retryable=True, error="printer offline").ok()
    assert settled["state"] == "scheduled"
    shown = timed.job(job_id)
    assert "printer offline" in shown["reason"]
    clock.advance(34_000)
    timed.await_state(job_id, "queued")
    assert machine.take()["attempt"] == 2


def test_an_uncertain_result_waits_for_a_person(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    job = machine.take()
    reply = machine.act(job, "result", ok=False, uncertain=True, error="power was lost").ok()
    assert reply["state"] == "uncertain"
    assert server.job(job_id)["reason"] == "power was lost"
    assert machine.claim()["jobs"] == []
    outcome = {"outcome": "done", "note": "the paper lies there"}
    resolved = server.call("POST", f"/jobs/{job_id}/resolve", json_body=outcome).ok()
    assert (resolved["state"], resolved["evidence"]) == ("done", "person")
    server.call("POST", f"/jobs/{job_id}/resolve", json_body=outcome).problem(409, "state-conflict")


def test_a_retry_is_a_new_job_and_a_double_click_prints_once(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0], b"again")["id"]
    server.call("POST", f"/jobs/{job_id}/retry").problem(409, "state-conflict")
    machine.act(machine.take(), "result", ok=False, error="jam").ok()
    made = server.call("POST", f"/jobs/{job_id}/retry")
    again = made.ok(201)["id"]
    assert made.headers["location"] == f"/jobs/{again}"
    double = server.call("POST", f"/jobs/{job_id}/retry").problem(409, "retry-conflict")
    assert double["job_id"] == again
    assert server.job(again)["retry_of"] == job_id
    job = machine.take()
    assert (job["job_id"], base64.b64decode(job["payload"]["base64"])) == (again, b"again")


def test_many_results_are_answered_one_by_one(server: Server) -> None:
    machine = server.machine()
    for _ in range(4):
        server.submit(machine.printers[0])
    good, bad, stale = machine.claim(max=3, accept=True)["jobs"]
    results = [
        {"job_id": good["job_id"], "ok": True, "lease_token": good["lease_token"]},
        {"job_id": bad["job_id"], "ok": False, "error": "jam", "lease_token": bad["lease_token"]},
        {"job_id": stale["job_id"], "ok": True, "lease_token": "00" * 16},
        {"job_id": "no-id", "ok": True},
    ]
    wanted = {"results": results, "next": {"poll_id": "n-1"}}
    reply = machine.native("POST", "/agent/results", json_body=wanted).ok()
    assert reply["items"][:2] == [{"state": "done"}, {"state": "failed"}]
    assert [item["code"] for item in reply["items"][2:]] == ["stale-claim", "not-found"]
    assert len(reply["next"]["jobs"]) == 1
    assert machine.native("POST", "/agent/results", json_body={"results": []}).ok() == {
        "items": [],
        "next": None,
    }


def test_many_jobs_are_answered_one_by_one(server: Server) -> None:
    machine = server.machine()
    good = {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    jobs = [good, {**good, "content": "?"}, {**good, "printer_id": "x"}, {"type": "mystery"}, 7, good]
    headers = {"Idempotency-Key": "batch-1"}
    items = server.call("POST", "/jobs/batch", json_body={"jobs": jobs}, headers=headers).ok()["items"]
    codes = ["bad-field", "unknown-printer", "unsupported-type", "bad-field"]
    assert [item["code"] for item in items[1:5]] == codes
    assert items[0]["id"] != items[5]["id"]
    again = server.call("POST", "/jobs/batch", json_body={"jobs": jobs}, headers=headers).ok()["items"]
    assert [again[0]["id"], again[5]["id"]] == [items[0]["id"], items[5]["id"]]
    assert len(machine.claim(max=10)["jobs"]) == 2


def test_a_batch_has_a_bound(shared: Server) -> None:
    reply = shared.call("POST", "/jobs/batch", json_body={"jobs": [{}] * 101})
    assert reply.problem(422, "bad-field")["field"] == "jobs"


def test_an_agent_that_speaks_an_old_protocol_is_told_to_upgrade(shared: Server) -> None:
    machine = shared.machine()
    message = {"poll_id": "p"}
    old = machine.call("POST", "/agent/claim", json_body=message, headers={"Farhand-Protocol": "0"})
    document = old.problem(426, "upgrade-required")
    assert (document["oldest"], "upgrade" in document["detail"]) == (1, True)
    odd = machine.call("POST", "/agent/claim", json_body=message, headers={"Farhand-Protocol": "one"})
    odd.problem(400, "bad-request")


@pytest.mark.parametrize("verb", ["pause", "drain"])
def test_a_paused_agent_finishes_what_it_has_and_gets_nothing_new(server: Server, verb: str) -> None:
    machine = server.machine()
    server.submit(machine.printers[0])
    job = machine.take()
    server.submit(machine.printers[0])
    shown = server.call("POST", f"/agents/{machine.id}/{verb}").ok()
    assert shown["state"] == {"pause": "paused", "drain": "draining"}[verb]
    assert machine.claim() == {"jobs": [], "directive": "drain"}
    assert machine.poll().status == 204
    assert machine.act(job, "heartbeat").ok()["directive"] == "drain"
    reply = machine.act(job, "result", ok=True, next={"poll_id": "n-1"}).ok()
    assert reply == {"state": "done", "next": {"jobs": [], "directive": "drain"}}
    server.call("POST", f"/agents/{machine.id}/resume").ok()
    assert len(machine.claim()["jobs"]) == 1


@pytest.mark.parametrize("verb", ["pause", "revoke"])
def test_a_poll_that_waits_is_answered_when_its_agent_may_no_longer_work(server: Server, verb: str) -> None:
    machine = server.machine()
    seed = server.later(machine.poll, 30)
    native = server.later(
        machine.native, "POST", "/agent/claim", json_body={"poll_id": "p-1", "wait_ms": 30_000}
    )
    server.await_held(2)
    server.call("POST", f"/agents/{machine.id}/{verb}").ok()
    job_id = server.submit(machine.printers[0])["id"]
    replies = [seed.result(timeout=10), native.result(timeout=10)]
    if verb == "pause":
        assert replies[0].status == 204
        assert replies[1].ok() == {"jobs": [], "directive": "drain"}
    else:
        for reply in replies:
            reply.problem(403, "agent-revoked")
    assert server.job(job_id)["state"] == "queued"


def test_a_claim_names_the_lanes_that_are_free(server: Server) -> None:
    machine = server.machine(printers=[{"name": "a"}, {"name": "b"}])
    stranger = server.machine()
    a, b = machine.printers
    for printer in (a, a, b):
        server.submit(printer)
    foreign = server.submit(stranger.printers[0])["id"]
    assert machine.claim(lanes=[])["jobs"] == []
    assert machine.claim(lanes=[stranger.printers[0]])["jobs"] == []
    jobs = machine.claim(lanes=[a, b], max=10, per_lane=1)["jobs"]
    assert sorted(job["printer_id"] for job in jobs) == sorted([a, b])
    assert server.job(foreign)["state"] == "queued"


def test_the_trail_tells_the_story_of_a_job(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["id"]
    job = machine.take()
    machine.act(job, "start", phase="spooling").ok()
    machine.act(job, "result", ok=True, evidence="delivered").ok()
    events = server.call("GET", f"/jobs/{job_id}/events").ok()["items"]
    assert [event["verb"] for event in events] == ["submit", "claim", "start", "settle"]
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert [event["to"] for event in events] == ["queued", "claimed", "running", "done"]
    assert [event["actor"] for event in events] == ["root", *[f"agent:{machine.id}"] * 3]
    page = server.call("GET", f"/jobs/{job_id}/events?limit=3").ok()
    rest = server.call("GET", f"/jobs/{job_id}/events?cursor={page['next']}").ok()
    assert [event["seq"] for event in rest["items"]] == [4]
    assert rest["next"] is None
