"""Bodies: small ones in the result, large ones apart, and none larger than was asked for."""

import base64
import hashlib
import json
import uuid
from typing import Any

import pytest

from tests.server.serving import Machine, Server
from tests.systems.fetch.conftest import RESULT, device, okay, refused, submit

LARGE = bytes(range(256)) * 2_000
GUARDS = {
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def encoded(body: bytes, **more: Any) -> dict[str, Any]:
    """A result with a binary body."""
    text = base64.b64encode(body).decode()
    return {**RESULT, "body": text, "bodyBase64": True, "bytesWritten": len(body), **more}


def fetched(server: Server, job_id: str) -> bytes:
    """The bytes that a job came to."""
    reply = server.call("GET", f"/jobs/{job_id}/result")
    assert reply.status == 200, reply.body
    for name, value in GUARDS.items():
        assert reply.headers[name] == value
    assert "sandbox" in reply.headers["content-security-policy"]
    return reply.body


def native(server: Server, owner: str) -> Machine:
    """A native agent of this owner that fetches."""
    name = f"native-{uuid.uuid4().hex[:8]}"
    made = server.call("POST", "/agents", key=owner, json_body={"name": name}).ok(201)
    message = {"name": name, "capabilities": ["fetch"], "printers": []}
    headers = {"Farhand-Protocol": "1"}
    server.call("POST", "/agent/register", key=made["key"], json_body=message, headers=headers).ok()
    return Machine(server=server, name=name, key=made["key"], id=made["id"], printers=[])


def put(machine: Machine, job: Any, body: bytes) -> Any:
    """Put a body apart."""
    path = f"/agent/jobs/{job['job_id']}/result/body"
    return machine.native("PUT", path, body=body, headers={"Farhand-Lease": job["lease_token"]})


def test_the_bytes_of_an_answer_are_shown_with_its_content_type(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    found.callback(
        found.take(), result={**RESULT, "body": "héllo", "headers": {"Content-Type": "text/plain"}}
    )
    assert fetched(server, job_id) == "héllo".encode()
    reply = server.call("GET", f"/jobs/{job_id}/result")
    assert reply.headers["content-type"] == "text/plain"


@pytest.mark.parametrize("said", ["text/html\r\nX-Evil: 1", "nonsense", "text/ht☃l", ""])
def test_an_odd_content_type_is_not_passed_on(server: Server, owner: str, said: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    found.callback(found.take(), result={**RESULT, "headers": {"content-type": said}})
    reply = server.call("GET", f"/jobs/{job_id}/result")
    assert reply.headers["content-type"] == "application/octet-stream"
    assert "x-evil" not in reply.headers


def test_a_binary_body_comes_back_as_its_bytes(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    assert found.callback(found.take(), result=encoded(b"\0\xff\x01")) == "done"
    assert fetched(server, job_id) == b"\0\xff\x01"
    assert server.job(job_id)["result"]["bytesWritten"] == 3


def test_text_with_a_nul_comes_back_as_its_bytes(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    result = {**RESULT, "body": "a\0b", "statusText": "O\0K", "headers": {"x": "a\0b"}}
    assert found.callback(found.take(), result=result) == "done"
    assert fetched(server, job_id) == b"a\0b"
    assert "\0" not in json.dumps(server.job(job_id)["result"], ensure_ascii=False)


def test_an_answer_without_a_body_is_empty(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner, method="HEAD")
    assert found.callback(found.take(), result={**RESULT, "body": None, "bytesWritten": 0}) == "done"
    assert fetched(server, job_id) == b""


def test_a_large_body_of_a_device_lies_apart(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    assert found.callback(found.take(), result=encoded(LARGE)) == "done"
    result = server.job(job_id)["result"]
    assert result["body"] is None
    assert result["bodySha256"] == hashlib.sha256(LARGE).hexdigest()
    assert result["bytesWritten"] == len(LARGE)
    assert fetched(server, job_id) == LARGE
    assert found.stats()["bytesOut"] == len(LARGE)


def test_a_very_large_body_is_read_of_a_device_that_says_first_who_it_is(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    body = LARGE * 4
    job_id = submit(server, key=owner)
    job = found.take()
    message = {"sessionId": found.session_id, "jobId": job["jobId"], "result": encoded(body)}
    headers = {"Farhand-Bid": found.bid, "Farhand-Session": found.session_id or ""}
    assert okay(found.post("callback", message, headers=headers))["state"] == "done"
    assert fetched(server, job_id) == body
    headers["Farhand-Session"] = "0" * 32
    refused(found.post("callback", message, headers=headers), 403, "session-unknown")


def test_a_body_larger_than_was_allowed_ends_the_job_as_failed(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner, maxResponseBytes=1000)
    assert found.callback(found.take(), result=encoded(bytes(1001))) == "failed"
    job = server.job(job_id)
    assert (job["state"], job["result"]["code"]) == ("failed", "result-too-large")
    assert found.stats()["bytesOut"] == 0
    server.call("GET", f"/jobs/{job_id}/result").problem(409, "state-conflict")


def test_a_body_as_large_as_was_allowed_is_taken(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    submit(server, key=owner, maxResponseBytes=1000)
    assert found.callback(found.take(), result=encoded(bytes(1000))) == "done"


def test_optional_fields_of_a_device_are_kept_and_others_are_not(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    job_id = submit(server, key=owner)
    more = {
        "remoteAddress": "93.184.216.34",
        "tls": {"version": "TLSv1.3", "verified": True},
        "redirects": [{"status": 302, "url": "http://example.com/"}],
        "timings": {"dnsMs": 1.6, "totalMs": 9},
        "elapsedMs": 181.7,
        "somethingElse": {"deep": 1},
        "bodySha256": "0" * 64,
    }
    assert found.callback(found.take(), result={**RESULT, **more}) == "done"
    result = server.job(job_id)["result"]
    assert result["remoteAddress"] == "93.184.216.34"
    assert result["tls"]["verified"] is True
    assert result["redirects"] == [{"status": 302, "url": "http://example.com/"}]
    assert result["timings"]["dnsMs"] == 2
    assert result["elapsedMs"] == 182
    assert result["bodySha256"] is None
    assert "somethingElse" not in result


def test_a_native_agent_is_handed_the_request_and_reports_its_result(server: Server, owner: str) -> None:
    machine = native(server, owner)
    job_id = submit(server, key=owner, method="POST", body="hello")
    (job,) = machine.claim(accept=True)["jobs"]
    assert job["job_id"] == job_id
    assert job["params"]["url"] == "https://example.com/data.json"
    assert base64.b64decode(job["payload"]["base64"]) == b"hello"
    machine.act(job, "start").ok()
    machine.act(job, "result", ok=True, evidence="response", result=RESULT).ok()
    done = server.job(job_id)
    assert (done["state"], done["result"]["body"]) == ("done", RESULT["body"])
    assert done["result"]["bytesWritten"] == len(str(RESULT["body"]))


@pytest.mark.parametrize(
    ("result", "field"),
    [
        (None, "result"),
        ({}, "result.status"),
        ({**RESULT, "status": "200"}, "result.status"),
        ({**RESULT, "surprise": 1}, "result.surprise"),
        ({**RESULT, "headers": {"a": 1}}, "result.headers[...]"),
        ({**RESULT, "body": "%", "bodyBase64": True}, "result.body"),
        ({**RESULT, "bodySha256": "0" * 64}, "result.body"),
        ({**RESULT, "body": None, "bodySha256": "0" * 64}, "result.bodySha256"),
    ],
)
def test_a_native_result_that_does_not_fit_is_named(
    server: Server, owner: str, result: Any, field: str
) -> None:
    machine = native(server, owner)
    job_id = submit(server, key=owner)
    (job,) = machine.claim(accept=True)["jobs"]
    found = machine.act(job, "result", ok=True, result=result).problem(422, "bad-field")
    assert found["field"] == field
    assert server.job(job_id)["state"] in ("claimed", "running")
    batch = {"results": [{"job_id": job_id, "ok": True, "result": result}]}
    (item,) = machine.native("POST", "/agent/results", json_body=batch).ok()["items"]
    assert item["field"] == field


def test_a_native_agent_puts_a_large_body_apart(server: Server, owner: str) -> None:
    machine = native(server, owner)
    job_id = submit(server, key=owner)
    (job,) = machine.claim(accept=True)["jobs"]
    sha256 = hashlib.sha256(LARGE).hexdigest()
    for _ in range(2):
        assert put(machine, job, LARGE).ok() == {"sha256": sha256, "size": len(LARGE)}
    result = {**RESULT, "body": None, "bodySha256": sha256, "headers": {"content-type": "image/png"}}
    machine.act(job, "result", ok=True, result=result).ok()
    assert server.job(job_id)["result"]["bytesWritten"] == len(LARGE)
    assert fetched(server, job_id) == LARGE
    assert server.call("GET", f"/jobs/{job_id}/result").headers["content-type"] == "image/png"


def test_a_body_apart_is_no_larger_than_was_allowed(server: Server, owner: str) -> None:
    machine = native(server, owner)
    submit(server, key=owner, maxResponseBytes=1000)
    (job,) = machine.claim(accept=True)["jobs"]
    put(machine, job, bytes(1001)).problem(413, "payload-too-large")
    put(machine, job, bytes(1000)).ok()


def test_a_body_apart_needs_the_lease(server: Server, owner: str) -> None:
    machine, other = native(server, owner), native(server, owner)
    submit(server, key=owner)
    (job,) = machine.claim(accept=True)["jobs"]
    put(other, job, b"x").problem(404, "not-found")
    put(machine, {**job, "lease_token": "0" * 32}, b"x").problem(409, "stale-claim")
    machine.act(job, "result", ok=True, result=RESULT).ok()
    put(machine, job, b"x").problem(409, "stale-claim")


def test_a_native_failure_says_whose_doing_it_was(server: Server, owner: str) -> None:
    machine = native(server, owner)
    job_id = submit(server, key=owner)
    (job,) = machine.claim(accept=True)["jobs"]
    error = {"code": "dns", "message": "no such name", "source": "resolver"}
    bad = {**error, "source": "somebody"}
    found = machine.act(job, "result", ok=False, error="x", result=bad).problem(422, "bad-field")
    assert found["field"] == "result.source"
    machine.act(job, "result", ok=False, error="dns: no such name", result=error).ok()
    assert server.job(job_id)["result"]["source"] == "resolver"


def test_a_native_agent_claims_its_owners_work_by_name(server: Server, owner: str) -> None:
    machine = native(server, owner)
    job_id = submit(server, key=owner)
    assert machine.claim(lanes=[machine.id])["jobs"] == []
    assert machine.claim(lanes=["nonsense", str(uuid.uuid4())])["jobs"] == []
    (job,) = machine.claim(lanes=["owners"], accept=True)["jobs"]
    assert job["job_id"] == job_id
    pinned = submit(server, key=owner, agent=machine.name)
    assert machine.claim(lanes=["owners"])["jobs"] == []
    assert machine.claim(lanes=[machine.id])["jobs"][0]["job_id"] == pinned


def test_an_agent_that_only_prints_is_handed_no_fetch(server: Server) -> None:
    machine = server.machine()
    submit(server)
    assert machine.claim()["jobs"] == []
    assert machine.poll().status == 204
