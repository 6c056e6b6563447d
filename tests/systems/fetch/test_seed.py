"""The protocol of seed 002, word by word, through plain HTTP."""

import json
from typing import Any

import pytest

from tests.server.serving import Server
from tests.systems.fetch.conftest import (
    API,
    RESULT,
    Device,
    approve,
    device,
    okay,
    refused,
    revoke,
    submit,
    user_key,
)

ROUTES = ("session", "claim", "callback")
DEFAULTS = {
    "url": "https://example.com/data.json",
    "method": "GET",
    "headers": {},
    "body": None,
    "bodyBase64": False,
    "timeoutMs": 10000,
    "maxResponseBytes": 2097152,
    "allowInsecureTLS": False,
    "allowPrivateIP": False,
    "rangeRequest": None,
    "followRedirects": True,
}


def pending_rows(server: Server, found: Device) -> list[Any]:
    """The rows of the inbox that may be this device's."""
    rows = server.call("GET", "/agents/pending").ok()["items"]
    return [row for row in rows if found.bid[: len("browser-") + 4] in json.dumps(row)]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("message", [{}, {"bid": ""}, {"bid": None}, {"bid": 7}])
def test_a_request_without_a_bid_is_told_so(server: Server, route: str, message: dict[str, Any]) -> None:
    reply = server.call("POST", f"{API}/{route}", key=None, json_body=message)
    refused(reply, 400, "bid-required")


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_bid_on_any_route_becomes_a_row_in_the_inbox(server: Server, route: str) -> None:
    found = Device(server=server)
    told = refused(found.post(route, {}), 403, "device-pending")
    assert told["user_code"]
    assert told["expires_in"] > 0
    (row,) = pending_rows(server, found)
    assert row["dialect"] == "pulsar"
    assert row["runtime"] == "browser"
    assert row["first_seen_at"]
    assert found.bid not in json.dumps(row)
    assert told["user_code"] not in json.dumps(row)
    refused(found.post(route, {}), 403, "device-pending")
    assert len(pending_rows(server, found)) == 1


def test_an_approved_device_works_on_its_next_request(server: Server, owner: str) -> None:
    found = Device(server=server)
    code = refused(found.try_open(), 403, "device-pending")["user_code"]
    approve(server, found, code=code, key=owner)
    assert okay(found.try_open())["sessionId"]
    assert pending_rows(server, found) == []


def test_a_revoked_device_is_refused_at_once_on_every_route(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    found.claim()
    revoke(server, found)
    refused(found.try_claim(), 403, "device-not-approved")
    refused(found.try_open(), 403, "device-not-approved")
    refused(found.try_callback("0" * 36), 403, "device-not-approved")
    refused(found.try_stats(), 403, "device-not-approved")


def test_a_session_has_the_shape_of_the_seed(server: Server, owner: str) -> None:
    data = device(server, key=owner).open()
    assert set(data) == {"sessionId", "capabilities"}
    assert data["capabilities"] == {"insecureTLS": "ignore", "privateIP": "ignore"}
    assert len(data["sessionId"]) >= 32


def test_a_session_has_the_capabilities_that_were_said(server: Server, owner: str) -> None:
    said = {"insecureTLS": "accept", "privateIP": "refuse"}
    assert device(server, key=owner).open(capabilities=said)["capabilities"] == said


def test_opening_a_session_again_finds_the_one_there_is(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    assert found.open(sessionId=found.session_id)["sessionId"] == found.session_id
    other = found.open(sessionId="0" * 32)["sessionId"]
    assert other != "0" * 32


def test_a_session_belongs_to_its_bid(server: Server, owner: str) -> None:
    one, other = device(server, key=owner), device(server, key=owner)
    assert one.session_id != other.session_id
    stolen = Device(server=server, bid=other.bid, session_id=one.session_id)
    refused(stolen.try_claim(), 403, "session-unknown")
    refused(stolen.try_callback("0" * 36), 403, "session-unknown")
    refused(stolen.try_stats(), 403, "session-unknown")
    assert stolen.open(sessionId=one.session_id)["sessionId"] != one.session_id


@pytest.mark.parametrize("session_id", [None, "", "0" * 32, "no session"])
def test_work_needs_a_session(server: Server, owner: str, session_id: str | None) -> None:
    found = device(server, key=owner)
    found.session_id = session_id
    refused(found.try_claim(), 403, "session-unknown")
    refused(found.try_callback("0" * 36), 403, "session-unknown")


def test_a_claim_with_nothing_to_do_says_to_wait_three_seconds(server: Server, owner: str) -> None:
    assert device(server, key=owner).claim() == {"jobs": [], "retryAfterMs": 3000}


def test_a_claimed_job_has_the_shape_and_the_defaults_of_the_seed(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    data = found.claim(batch=1, capabilities={"insecureTLS": "accept", "privateIP": "refuse"})
    assert data == {"jobs": [{"jobId": job_id, "request": DEFAULTS}], "retryAfterMs": 500}


def test_a_claimed_job_has_the_request_that_was_submitted(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    wanted = {
        "url": "https://example.com/things?a=1",
        "method": "POST",
        "headers": {"User-Agent": "my-tool/1.0", "Content-Type": "text/plain"},
        "body": "héllo\n",
        "bodyBase64": False,
        "timeoutMs": 20000,
        "maxResponseBytes": 4096,
        "allowInsecureTLS": True,
        "allowPrivateIP": True,
        "rangeRequest": "bytes=0-99",
        "followRedirects": False,
    }
    submit(server, key=owner, **wanted)
    accepts = {"insecureTLS": "accept", "privateIP": "accept"}
    (job,) = found.claim(capabilities=accepts)["jobs"]
    assert job["request"] == wanted


def test_a_binary_body_is_claimed_as_it_was_submitted(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    submit(server, key=owner, method="PUT", body="AAH+/w==", bodyBase64=True)
    request = found.take()["request"]
    assert (request["body"], request["bodyBase64"]) == ("AAH+/w==", True)


def test_a_large_body_is_claimed_whole(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    body = "x" * 300_000
    submit(server, key=owner, method="POST", body=body)
    assert found.take()["request"]["body"] == body


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (None, 1),
        (0, 1),
        (-3, 1),
        (1, 1),
        (2, 2),
        (2.9, 2),
        (5, 5),
        (6, 5),
        (10**9, 5),
        ("many", 1),
        (True, 1),
    ],
)
def test_the_batch_is_taken_to_be_from_one_to_five(server: Server, owner: str, said: Any, given: int) -> None:
    found = device(server, key=owner)
    ids = [submit(server, key=owner) for _ in range(6)]
    message = {} if said is None else {"batch": said}
    assert [job["jobId"] for job in found.claim(**message)["jobs"]] == ids[:given]


def test_jobs_are_handed_out_in_the_order_they_came(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    ids = [submit(server, f"https://example.com/{n}", key=owner) for n in range(7)]
    claimed = [job["jobId"] for batch in (3, 1, 5) for job in found.claim(batch=batch)["jobs"]]
    assert claimed == ids


def test_a_device_is_given_the_jobs_of_its_owners_alone(server: Server, owner: str) -> None:
    other = user_key(server)
    found = device(server, key=owner)
    theirs, mine = submit(server, key=other), submit(server, key=owner)
    assert [job["jobId"] for job in found.claim(batch=5)["jobs"]] == [mine]
    also = device(server, key=other)
    assert also.take()["jobId"] == theirs


def test_a_second_owner_shares_a_device(server: Server, owner: str) -> None:
    other = user_key(server)
    found = device(server, key=owner)
    theirs = submit(server, key=other)
    assert found.claim()["jobs"] == []
    message = {"without_code": True}
    server.call("POST", f"/agents/{found.agent_id()}/approve", key=other, json_body=message).ok()
    mine = submit(server, key=owner)
    assert {job["jobId"] for job in found.claim(batch=5)["jobs"]} == {theirs, mine}


@pytest.mark.parametrize(
    ("flag", "word"), [("allowInsecureTLS", "insecureTLS"), ("allowPrivateIP", "privateIP")]
)
def test_a_job_that_wants_more_is_for_devices_that_accept_it(
    server: Server, owner: str, flag: str, word: str
) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner, **{flag: True})
    other = "privateIP" if word == "insecureTLS" else "insecureTLS"
    assert found.claim()["jobs"] == []
    for said in ("ignore", "refuse"):
        assert found.claim(capabilities={word: said, other: "accept"})["jobs"] == []
    (job,) = found.claim(capabilities={word: "accept"})["jobs"]
    assert job["jobId"] == job_id
    assert job["request"][flag] is True


def test_a_result_ends_the_job_as_done(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    reply = okay(found.try_callback(found.take()))
    assert reply["state"] == "done"
    assert reply["retryAfterMs"] == 300
    job = server.job(job_id)
    assert (job["state"], job["evidence"]) == ("done", "response")
    for name in ("status", "statusText", "headers", "body", "bodyBase64", "cropped", "elapsedMs"):
        assert job["result"][name] == RESULT[name]


def test_an_error_ends_the_job_as_failed(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    assert found.fail(found.take()) == "failed"
    job = server.job(job_id)
    assert (job["state"], job["error"]) == ("failed", "timeout: upstream did not respond")
    assert job["result"]["code"] == "timeout"
    assert job["result"]["message"] == "upstream did not respond"
    assert job["result"]["source"] == "target"


def test_an_answer_of_an_error_status_is_an_answer(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    assert found.callback(found.take(), result={**RESULT, "status": 503}) == "done"
    assert server.job(job_id)["result"]["status"] == 503


def test_a_refused_job_is_for_another_device(server: Server, owner: str) -> None:
    first, second = device(server, key=owner), device(server, key=owner)
    job_id = submit(server, key=owner)
    assert first.refuse(first.take()) == "refused"
    assert server.job(job_id)["state"] == "queued"
    assert first.claim(batch=5)["jobs"] == []
    job = second.take()
    assert job["jobId"] == job_id
    assert second.callback(job) == "done"
    assert first.callback(job) == "noop"


def test_an_unsafe_request_can_be_refused_too(server: Server, owner: str) -> None:
    first, second = device(server, key=owner), device(server, key=owner)
    job_id = submit(server, key=owner, method="DELETE")
    assert first.refuse(first.take()) == "refused"
    assert second.take()["jobId"] == job_id


def test_a_refusing_device_is_offered_the_job_again_when_its_capabilities_change(
    server: Server, owner: str
) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    assert found.refuse(found.take()) == "refused"
    assert found.claim()["jobs"] == []
    (job,) = found.claim(capabilities={"insecureTLS": "accept", "privateIP": "ignore"})["jobs"]
    assert job["jobId"] == job_id


def test_a_second_report_changes_nothing(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    job = found.take()
    assert found.callback(job) == "done"
    assert found.fail(job) == "noop"
    assert found.refuse(job) == "noop"
    assert server.job(job_id)["state"] == "done"


def test_a_report_sent_again_after_a_lost_reply_counts_once(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    submit(server, key=owner)
    job = found.take()
    assert found.callback(job) == "done"
    assert found.callback(job) in ("done", "noop")
    assert found.stats()["jobsDone"] == 1


@pytest.mark.parametrize("job_id", ["0" * 36, "no id", "", "00000000-0000-0000-0000-000000000000"])
def test_a_report_about_no_job_is_noop(server: Server, owner: str, job_id: str) -> None:
    assert device(server, key=owner).callback(job_id) == "noop"


def test_a_report_about_a_job_of_others_is_noop_and_changes_nothing(server: Server, owner: str) -> None:
    other = user_key(server)
    found, theirs = device(server, key=owner), device(server, key=other)
    job_id = submit(server, key=other)
    assert found.callback(job_id) == "noop"
    job = theirs.take()
    assert found.callback(job) == "noop"
    assert found.fail(job) == "noop"
    assert found.refuse(job) == "noop"
    assert server.job(job_id)["state"] == "running"
    assert theirs.callback(job) == "done"


@pytest.mark.parametrize(
    "message",
    [
        {"result": None},
        {"result": RESULT, "error": {"code": "timeout", "message": "x"}},
        {"result": {**RESULT, "status": "200"}},
        {"result": {**RESULT, "status": 7}},
        {"result": {}},
        {"result": []},
        {"result": {**RESULT, "headers": {"a": 1}}},
        {"result": {**RESULT, "body": "no base64!", "bodyBase64": True}},
        {"error": {"message": "no code"}},
        {"error": "timeout"},
    ],
)
def test_a_report_that_cannot_be_read_is_refused_in_the_shape_of_the_seed(
    server: Server, owner: str, message: dict[str, Any]
) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    refused(found.try_callback(found.take(), **message), 400, "bad-request")
    assert server.job(job_id)["state"] == "running"


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"[" * 60_000, b'"x"', b"\xff"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_body_that_cannot_be_read_is_refused_in_the_shape_of_the_seed(
    server: Server, route: str, body: bytes
) -> None:
    refused(server.call("POST", f"{API}/{route}", key=None, body=body), 400, "bad-request")


def test_a_fault_of_the_server_is_an_internal_error_in_the_shape_of_the_seed(
    server: Server, owner: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = device(server, key=owner)

    def broken(_request: object) -> None:
        raise RuntimeError("broken for the test")

    monkeypatch.setattr(server.context.store, "claim_or_park", broken)
    refused(found.try_claim(), 500, "internal-error")
    assert "request_failed" in caplog.text


def test_figures_are_counted_per_session(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    for _ in range(4):
        submit(server, key=owner)
    one, two, three, four = (found.take() for _ in range(4))
    found.callback(one)
    found.callback(two, result={**RESULT, "body": "12345", "bytesWritten": 5})
    found.fail(three)
    found.refuse(four)
    size = len(str(RESULT["body"])) + 5
    expected = {"claims": 4, "jobsDone": 2, "jobsFailed": 1, "jobsRefused": 1, "bytesOut": size}
    assert found.stats() == expected
    data = okay(found.try_stats())
    assert data["sessionId"] == found.session_id
    assert data["userAgent"] == "tests"
    found.open()
    assert set(found.stats().values()) == {0}
    assert server.call("GET", f"/agents/{found.agent_id()}/stats").ok() == expected
    assert server.call("GET", "/stats", key=owner).ok() == expected


def test_what_the_root_token_had_fetched_is_the_first_users(small: Server) -> None:
    found = device(small)
    job_id = submit(small)
    assert found.callback(found.take()) == "done"
    assert small.job(job_id)["state"] == "done"
    of_root = small.call("GET", "/stats").ok()
    assert (of_root["claims"], of_root["jobsDone"]) == (1, 1)
    theirs = small.call("GET", "/stats", key=user_key(small)).ok()
    assert set(theirs.values()) == {0}
    first = small.call("POST", "/keys", json_body={"name": "first", "grants": ["jobs.read"]}).ok(201)["key"]
    assert small.call("GET", "/stats", key=first).ok() == of_root
