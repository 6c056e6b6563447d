"""Issuing commands and looking at them."""

import statistics
import time
import uuid
from typing import Any

import pytest

from farhand.model.job import State
from farhand.systems.commands import routes as route_table
from tests.server.serving import ROOT, Reply, Server, until
from tests.server.test_grants import make_foreign
from tests.systems.commands.conftest import (
    CLAIM,
    Worker,
    command,
    grant,
    issue,
    trail,
    try_issue,
    worker,
)

FIELDS = {
    "id", "uuid", "type", "agent", "agent_id", "status", "state", "final", "phase", "reason",
    "error", "params", "attempt", "attempts", "next_attempt_at", "expires_at", "created_at",
    "collected_at", "finished_at", "cancel_requested_at", "retry_of", "result",
}  # fmt: skip


@pytest.fixture
def agent(server: Server) -> Worker:
    return worker(server)


def test_an_issued_command_has_a_uuid_and_a_place(server: Server, agent: Worker) -> None:
    reply = try_issue(server, agent, "whatsapp.connect", params={"instance": "shop"})
    made = reply.ok(201)
    assert set(made) == FIELDS
    assert uuid.UUID(made["uuid"]).version == 7
    assert reply.headers["location"] == f"/commands/{made['uuid']}"
    assert (made["type"], made["agent"], made["agent_id"]) == ("whatsapp.connect", agent.name, agent.id)
    assert made["params"] == {"instance": "shop"}
    assert command(server, made["uuid"]) == made


def test_an_agent_is_named_by_name_or_id(server: Server, agent: Worker) -> None:
    assert issue(server, agent.id)["agent"] == agent.name
    assert issue(server, agent.name, "whatsapp.connect")["agent_id"] == agent.id


def test_a_command_comes_by_jobs_too(server: Server, agent: Worker) -> None:
    body = {
        "type": "command.whatsapp.status",
        "agent": agent.name,
        "params": {"a": 1},
        "idempotency_key": "k",
    }
    made = server.call("POST", "/jobs", json_body=body).ok(201)
    assert server.call("POST", "/jobs", json_body=body).ok(200)["id"] == made["id"]
    assert server.call("POST", "/jobs", json_body={**body, "params": {}}).problem(422, "idempotency-mismatch")
    shown = command(server, made["job_id"])
    assert (shown["type"], shown["params"]) == ("whatsapp.status", {"a": 1})
    assert server.job(made["id"])["kind"] == "command.whatsapp.status"
    assert agent.collect()["uuid"] == made["id"]


def test_in_jobs_a_type_is_never_bare(server: Server, agent: Worker) -> None:
    body = {"type": "whatsapp.status", "agent": agent.name}
    known = server.call("POST", "/jobs", json_body=body).problem(422, "unsupported-type")
    assert "command.whatsapp.status" in known["detail"]


def test_a_type_nobody_declared_is_refused_with_those_there_are(server: Server, agent: Worker) -> None:
    refused = try_issue(server, agent, "whatsapp.conect").problem(422, "unsupported-type")
    assert refused["field"] == "type"
    assert "did you mean 'whatsapp.connect'?" in refused["detail"]
    assert "whatsapp.disconnect" in refused["detail"]
    assert set(refused["known"]) >= {"whatsapp.connect", "whatsapp.status", "whatsapp.disconnect"}


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"instance": 7}, "params.instance"),
        ({"instance": "x" * 41}, "params.instance"),
        ({"instnace": "shop"}, "params.instnace"),
        ({"options": {}}, "params.options.retries"),
        ({"options": {"retries": [1, 2, "three"]}}, "params.options.retries[2]"),
        ([], "params"),
        ("text", "params"),
        (None, "params"),
        ({"instance": "a\0b"}, "params.instance"),
    ],
)
def test_params_that_do_not_fit_are_refused_by_their_path(
    server: Server, agent: Worker, params: Any, field: str
) -> None:
    refused = try_issue(server, agent, "whatsapp.connect", params=params).problem(422, "bad-field")
    assert refused["field"] == field
    assert refused["detail"].startswith(field)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"type": ""}, "type"),
        ({"type": None}, "type"),
        ({"type": "x" * 101}, "type"),
        ({"agent": ""}, "agent"),
        ({"agent": 7}, "agent"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": 1.5}, "expires_in"),
        ({"expires_in": 2**63}, "expires_in"),
        ({"expires_in": 901}, "expires_in"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "x" * 256}, "idempotency_key"),
        ({"idempotency_key": "a\nb"}, "idempotency_key"),
        ({"parms": {}}, "parms"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(
    server: Server, agent: Worker, fields: dict[str, Any], field: str
) -> None:
    body = {"type": "whatsapp.status", "agent": agent.name, **fields}
    refused = server.call("POST", "/commands", json_body=body)
    assert refused.problem(422, refused.json()["code"])["field"] == field
    assert server.call("GET", f"/commands?agent={agent.id}").ok()["items"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 5_000])
def test_what_is_no_json_object_is_refused(server: Server, body: bytes) -> None:
    reply = server.call("POST", "/commands", body=body)
    assert reply.status in (400, 422)
    assert reply.json()["code"] in ("bad-json", "bad-field")


def test_params_nested_too_deeply_or_too_large_are_refused(server: Server, agent: Worker) -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    assert try_issue(server, agent, params={"a": deep}).problem(422, "bad-field")["field"] == "params"
    large = try_issue(server, agent, params={"a": "x" * 65_536}).problem(413, "payload-too-large")
    assert large["field"] == "params"
    assert large["limit_bytes"] == 65_536


def test_commands_for_nobody_are_refused(server: Server) -> None:
    gone = worker(server)
    server.call("POST", f"/agents/{gone.id}/revoke").ok()
    for name in ("nobody", str(uuid.uuid4()), gone.id, gone.name):
        refused = try_issue(server, name).problem(422, "unknown-agent")
        assert refused["field"] == "agent"
    assert server.call("GET", "/commands?agent=nobody").problem(422, "unknown-agent")["field"] == "agent"


def test_the_window_of_one_command_is_set_within_limits(server: Server, agent: Worker) -> None:
    made = issue(server, agent, "whatsapp.connect", expires_in=480)
    assert made["expires_at"] > made["created_at"]
    over = try_issue(server, agent, "whatsapp.status", expires_in=901).problem(422, "bad-field")
    assert "900" in over["detail"]
    issue(server, agent, "whatsapp.status", expires_in=1)


def test_lists_go_by_status_type_and_agent_page_by_page(server: Server, agent: Worker) -> None:
    other = worker(server)
    issue(server, other)
    uuids = [issue(server, agent, "many.at-once", params={"n": n})["uuid"] for n in range(5)]
    agent.report(agent.collect(), status="completed").ok()
    agent.collect()
    server.call("POST", f"/commands/{uuids[4]}/cancel").ok()

    def listed(query: str) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            page = server.call("GET", f"/commands?limit=2&{query}{cursor}").ok()
            assert len(page["items"]) <= 2
            found += [item["uuid"] for item in page["items"]]
            if page["next"] is None:
                return found
            cursor = f"&cursor={page['next']}"

    assert listed(f"agent={agent.name}") == uuids[::-1]
    assert listed(f"agent={agent.id}&status=pending") == [uuids[3], uuids[2]]
    assert listed(f"agent={agent.id}&status=in_progress") == [uuids[1]]
    assert listed(f"agent={agent.id}&status=completed") == [uuids[0]]
    assert listed(f"agent={agent.id}&status=cancelled") == [uuids[4]]
    assert listed(f"agent={agent.id}&status=expired") == []
    assert listed(f"agent={agent.id}&type=many.at-once") == uuids[::-1]
    assert listed(f"agent={agent.id}&type=whatsapp.status") == []


@pytest.mark.parametrize(
    ("query", "code", "status"),
    [
        ("status=done", "bad-field", 422),
        ("status=", "bad-field", 422),
        ("kind=x", "bad-field", 422),
        ("limit=0", "bad-field", 422),
        ("cursor=x", "bad-cursor", 400),
        ("type=%00", "bad-field", 422),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(server: Server, query: str, code: str, status: int) -> None:
    server.call("GET", f"/commands?{query}").problem(status, code)


def test_other_systems_jobs_are_no_commands(server: Server, agent: Worker) -> None:
    machine = server.machine()
    job = server.submit(machine.printers[0])["id"]
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry")):
        server.call(method, f"/commands/{job}{path}").problem(404, "not-found")
    assert job not in [item["uuid"] for item in server.call("GET", "/commands?limit=200").ok()["items"]]


def test_a_wait_ends_when_the_status_changes_and_not_before(server: Server, agent: Worker) -> None:
    made = issue(server, agent)
    path = f"/commands/{made['uuid']}"
    held = server.later(server.call, "GET", path, headers={"Prefer": "wait=30"})
    server.await_held(1)
    collected = agent.collect()
    reply: Reply = held.result(timeout=20)
    assert reply.ok()["status"] == "in_progress"
    assert reply.headers["preference-applied"] == "wait=30"
    assert reply.headers["cache-control"] == "no-store"
    held = server.later(server.call, "GET", path, headers={"Prefer": "wait=30"})
    server.await_held(1)
    told = {"lease_token": collected["lease_token"], "phase": "scanning"}
    agent.call("POST", f"/agent/jobs/{made['uuid']}/heartbeat", json_body=told).ok()
    server.call("POST", f"{path}/cancel").ok()
    assert not held.done()
    agent.report(collected, status="completed", result={"state": "open"}).ok()
    shown = held.result(timeout=20).ok()
    assert (shown["status"], shown["result"]) == ("completed", {"state": "open"})
    assert server.call("GET", path, headers={"Prefer": "wait=30"}).ok()["status"] == "completed"


def test_a_wait_ends_when_its_time_is_up(server: Server, agent: Worker) -> None:
    made = issue(server, agent)
    reply = server.call("GET", f"/commands/{made['uuid']}", headers={"Prefer": "wait=1"})
    assert reply.ok()["status"] == "pending"


def test_a_command_is_retried_as_a_new_one(server: Server, agent: Worker) -> None:
    made = issue(server, agent, params={"n": 1})
    path = f"/commands/{made['uuid']}/retry"
    refused = server.call("POST", path).problem(409, "state-conflict")
    assert "pending" in refused["detail"]
    agent.report(agent.collect(), status="failed", error="no").ok()
    reply = server.call("POST", path)
    again = reply.ok(201)
    assert reply.headers["location"] == f"/commands/{again['uuid']}"
    assert (again["retry_of"], again["params"], again["status"]) == (made["uuid"], {"n": 1}, "pending")
    assert server.call("POST", path).problem(409, "retry-conflict")["uuid"] == again["uuid"]
    assert agent.collect()["uuid"] == again["uuid"]
    assert trail(server, made["uuid"])[-1]["text"].endswith("issued it again as a new command")


def test_a_retry_beside_a_live_one_of_the_type_is_refused(server: Server, agent: Worker) -> None:
    made = issue(server, agent)
    agent.report(agent.collect(), status="failed", error="no").ok()
    live = issue(server, agent)
    refused = server.call("POST", f"/commands/{made['uuid']}/retry").problem(409, "active-conflict")
    assert refused["uuid"] == live["uuid"]


def test_nothing_is_retried_for_an_agent_that_is_gone(server: Server, agent: Worker) -> None:
    made = issue(server, agent)
    agent.report(agent.collect(), status="failed", error="no").ok()
    server.call("POST", f"/agents/{agent.id}/revoke").ok()
    server.call("POST", f"/commands/{made['uuid']}/retry").problem(422, "unknown-agent")


def test_the_trail_says_in_words_why_it_failed_three_times(server: Server, agent: Worker) -> None:
    key = server.new_key("jobs.submit", "jobs.read", name=f"cms of {agent.name}")
    made = issue(server, agent, key=key)
    agent.report(agent.collect(), status="failed", error="Evolution was unreachable", retryable=True).ok()
    found = trail(server, made["uuid"])
    assert [event["verb"] for event in found] == ["submit", "claim", "start", "settle"]
    assert found[0]["text"] == f"The key cms of {agent.name} issued it"
    assert found[1]["text"] == f"The agent {agent.name} collected it: attempt 1"
    failed = found[-1]
    assert failed["actor"] == f"agent:{agent.id}"
    assert (failed["from"], failed["to"], failed["attempt"]) == ("in_progress", "pending", 1)
    assert failed["reason"] == "Evolution was unreachable"
    assert failed["retry_at"] == command(server, made["uuid"])["next_attempt_at"]
    assert "Attempt 1 failed: Evolution was unreachable; it will be tried again at" in failed["text"]
    page = server.call("GET", f"/commands/{made['uuid']}/events?limit=3").ok()
    rest = server.call("GET", f"/commands/{made['uuid']}/events?limit=3&cursor={page['next']}").ok()
    assert page["items"] + rest["items"] == found


def test_a_command_that_nobody_collects_says_why(server: Server) -> None:
    agent = worker(server, "agent.work")
    uuid_ = issue(server, agent)["uuid"]
    assert command(server, uuid_)["reason"] == "the agent does not hold the grant commands.process"
    grant(server, agent.id, "commands.process")
    assert command(server, uuid_)["reason"] == "the agent has not been seen yet"
    server.call("POST", f"/agents/{agent.id}/pause").ok()
    assert agent.claim().status == 204
    assert command(server, uuid_)["reason"] == "the agent is paused"
    server.call("POST", f"/agents/{agent.id}/resume").ok()
    assert command(server, uuid_)["reason"] is None
    assert agent.collect()["uuid"] == uuid_


@pytest.mark.parametrize("route", route_table.routes(), ids=lambda route: f"{route.method} {route.path}")
def test_every_route_wants_its_grant(server: Server, agent: Worker, route: Any) -> None:
    path = route.path.replace("{uuid}", str(uuid.uuid4()))
    server.call(route.method, path, key=None, json_body={}).problem(401, "unauthorized")
    if route.grant == "commands.process":
        server.call(route.method, path, key=ROOT, json_body={}).problem(401, "unauthorized")
        fresh = worker(server, "agent.work")
        refused = fresh.call(route.method, path, json_body={"status": "completed"}).problem(403, "forbidden")
    else:
        key = server.new_key(*({"jobs.submit", "jobs.read", "jobs.manage", "results.secret"} - {route.grant}))
        refused = server.call(route.method, path, key=key, json_body={}).problem(403, "forbidden")
    assert refused["grant"] == route.grant


MALFORMED = ("1", "x" * 36, "0190c6b2-0000-7000-8000-00000000000g", "..%2e", "%00", "a" * 5_000)


def test_what_is_not_there_another_agents_or_no_id_is_one_answer_to_agents(
    server: Server, agent: Worker, foreign: str
) -> None:
    other = worker(server)
    issue(server, other)
    theirs = other.collect()["uuid"]
    uncollected = issue(server, other, "whatsapp.connect")["uuid"]
    mine_uncollected = issue(server, agent)["uuid"]
    machine = server.machine()
    printed = server.submit(machine.printers[0])["id"]
    bodies = {
        agent.report(name, status="completed").body
        for name in (foreign, theirs, uncollected, mine_uncollected, printed, str(uuid.uuid4()), *MALFORMED)
    }
    assert len(bodies) == 1
    agent.report(str(uuid.uuid4()), status="completed").problem(404, "not-found")
    assert command(server, theirs)["status"] == "in_progress"


@pytest.fixture(scope="module")
def foreign(server: Server) -> str:
    """A command of another tenant."""
    _, key = make_foreign(server)
    return issue(server, "theirs", key=key)["uuid"]


@pytest.mark.parametrize(
    ("method", "tail"),
    [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry"), ("POST", "/ack")],
)
def test_what_is_not_there_another_tenants_or_no_id_is_one_answer_to_issuers(
    server: Server, foreign: str, method: str, tail: str
) -> None:
    machine = server.machine()
    printed = server.submit(machine.printers[0])["id"]
    bodies = {
        server.call(method, f"/commands/{name}{tail}").body
        for name in (foreign, printed, str(uuid.uuid4()), *MALFORMED)
    }
    assert len(bodies) == 1
    server.call(method, f"/commands/{uuid.uuid4()}{tail}").problem(404, "not-found")


def test_the_answers_for_what_is_not_there_take_equally_long(
    server: Server, agent: Worker, foreign: str
) -> None:
    other = worker(server)
    issue(server, other)
    theirs = other.collect()["uuid"]
    names = {"foreign": foreign, "theirs": theirs, "unknown": str(uuid.uuid4()), "malformed": "no-id-at-all"}

    def measure() -> dict[str, float]:
        taken: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(60):
            for name, uuid_ in names.items():
                began = time.perf_counter()
                agent.report(uuid_, status="completed")
                taken[name].append(time.perf_counter() - began)
        return {name: statistics.median(times) for name, times in taken.items()}

    # Load on the machine is not the server's doing: one calm measurement is enough.
    def alike() -> bool:
        medians = measure()
        return max(medians.values()) < 2 * min(medians.values())

    until("all take equally long", alike, deadline_s=30)


def test_an_uncertain_command_is_in_progress_until_a_person_says_or_retries(server: Server) -> None:
    agent = worker(server)
    made = issue(server, agent, "once.only")
    headers = {"Farhand-Protocol": "1"}
    poll = {"poll_id": made["uuid"], "accept": True}
    (job,) = agent.call("POST", "/agent/claim", json_body=poll, headers=headers).ok()["jobs"]
    said = {"ok": False, "uncertain": True, "error": "the line broke", "lease_token": job["lease_token"]}
    agent.call("POST", f"/agent/jobs/{made['uuid']}/result", json_body=said, headers=headers).ok()
    shown = command(server, made["uuid"])
    assert (shown["status"], shown["state"], shown["final"]) == ("in_progress", State.UNCERTAIN, False)
    assert "a person has to say" in trail(server, made["uuid"])[-1]["text"]
    again = server.call("POST", f"/commands/{made['uuid']}/retry").ok(201)
    assert again["retry_of"] == made["uuid"]
    assert command(server, made["uuid"])["status"] == "failed"


def test_the_claim_route_is_where_the_protocol_has_it() -> None:
    paths = {(route.method, route.path) for route in route_table.routes()}
    assert ("POST", CLAIM) in paths
    assert ("POST", "/api/agent/v1/commands/{uuid}/result") in paths


def test_the_description_of_the_api_holds_the_commands(server: Server) -> None:
    described = server.call("GET", "/openapi.json", key=None).ok()
    assert {"/commands", "/commands/{uuid}", CLAIM} <= set(described["paths"])
    headers = [p["name"] for p in described["paths"]["/commands"]["post"]["parameters"]]
    assert "Idempotency-Key" in headers
