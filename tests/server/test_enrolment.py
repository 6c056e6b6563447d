"""How agents come in: freely from this machine, else by a code that the device shows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import FakeClock, Machine, Reply, Server, serving

HOUR = 3_600_000
PROXY = {"X-Forwarded-For": "203.0.113.9"}


@pytest.fixture
def gate(tmp_path: Path, database: str | None, clock: FakeClock) -> Iterator[Server]:
    """A server with a public address: nobody comes in unseen."""
    url = "https://print.example"
    with serving(tmp_path / "data", database=database, clock=clock, public_url=url) as running:
        yield running


def waiting(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.call("GET", "/agents/pending").ok()["items"]
    return found


def approve(server: Server, agent_id: str, **message: Any) -> Reply:
    return server.call("POST", f"/agents/{agent_id}/approve", json_body=message)


def knock(server: Server, name: str = "desk", key: str = "the-key-of-the-desk") -> dict[str, Any]:
    """Register and be told to wait."""
    return server.register(name, key=key).problem(403, "agent-pending")


def test_a_stranger_waits_until_somebody_types_its_code(gate: Server) -> None:
    told = knock(gate)
    assert 590 <= told["expires_in"] <= 600
    assert len(told["user_code"].replace("-", "")) == 8
    (entry,) = waiting(gate)
    assert (entry["name"], entry["address"]) == ("desk", "127.0.0.1")
    assert told["user_code"] not in json.dumps(waiting(gate))
    assert gate.call("GET", "/agents").ok()["items"] == []
    assert gate.call("GET", "/printers").ok()["items"] == []
    gate.call("GET", "/agent/jobs", key="the-key-of-the-desk").problem(403, "agent-pending")

    shown = approve(gate, entry["id"], code=told["user_code"].lower().replace("-", " ")).ok()
    assert (shown["state"], shown["approved_by"]) == ("active", "code")
    assert waiting(gate) == []
    made = gate.register("desk", key="the-key-of-the-desk").ok()
    assert made["computer_id"] == entry["id"]
    job_id = gate.submit(made["printer_ids"][0])["id"]
    machine = Machine(server=gate, name="desk", key="the-key-of-the-desk", id=entry["id"], printers=[])
    assert machine.poll().ok()["job_id"] == job_id
    approve(gate, entry["id"], without_code=True).problem(409, "state-conflict")


def test_registering_again_shows_the_same_code_until_it_runs_out(gate: Server, clock: FakeClock) -> None:
    first = knock(gate)
    clock.advance(599_000)
    again = knock(gate)
    assert (again["user_code"], again["expires_in"]) == (first["user_code"], 1)
    clock.advance(1_000)
    (entry,) = waiting(gate)
    late = approve(gate, entry["id"], code=first["user_code"]).problem(403, "wrong-code")
    assert "run out" in late["detail"]
    fresh = knock(gate)
    assert fresh["user_code"] != first["user_code"]
    approve(gate, entry["id"], code=fresh["user_code"]).ok()


def test_after_five_wrong_codes_the_right_one_is_refused_too(gate: Server, clock: FakeClock) -> None:
    told = knock(gate)
    (entry,) = waiting(gate)
    for _ in range(5):
        approve(gate, entry["id"], code="BBBB-BBBB").problem(403, "wrong-code")
    approve(gate, entry["id"], code=told["user_code"]).problem(403, "wrong-code")
    assert knock(gate)["user_code"] == told["user_code"]
    clock.advance(600_000)
    approve(gate, entry["id"], code=knock(gate)["user_code"]).ok()


def test_an_approval_without_the_code_is_marked(gate: Server) -> None:
    knock(gate)
    (entry,) = waiting(gate)
    approve(gate, entry["id"]).problem(422, "bad-field")
    approve(gate, entry["id"], code="BBBB-BBBB", without_code=True).problem(422, "bad-field")
    assert approve(gate, entry["id"], without_code=True).ok()["approved_by"] == "without_code"
    (note,) = gate.call("GET", "/audit").ok()["items"]
    assert (note["action"], note["data"], note["actor"]) == ("agents.approve", "without_code", "root")
    assert note["subject"] == entry["id"]


def test_an_entry_is_forgotten_after_a_day(gate: Server, clock: FakeClock) -> None:
    knock(gate)
    (entry,) = waiting(gate)
    clock.advance(24 * HOUR + 1)
    assert waiting(gate) == []
    knock(gate)
    (again,) = waiting(gate)
    assert again["id"] != entry["id"]


def test_the_inbox_is_bounded_for_each_address(gate: Server) -> None:
    for number in range(10):
        knock(gate, f"desk-{number}", f"the-key-of-desk-{number}")
    gate.register("one-more", key="the-key-of-one-more").problem(429, "inbox-full")
    assert len(waiting(gate)) == 10
    gate.call("POST", f"/agents/{waiting(gate)[0]['id']}/revoke").ok()
    knock(gate, "one-more", "the-key-of-one-more")


def test_an_entry_can_be_turned_away(gate: Server) -> None:
    told = knock(gate)
    (entry,) = waiting(gate)
    assert gate.call("POST", f"/agents/{entry['id']}/revoke").ok()["state"] == "revoked"
    gate.register("desk", key="the-key-of-the-desk").problem(403, "agent-revoked")
    approve(gate, entry["id"], code=told["user_code"]).problem(409, "state-conflict")


def test_a_waiting_agent_takes_no_name(gate: Server) -> None:
    knock(gate, "desk", "the-key-of-the-first")
    knock(gate, "desk", "the-key-of-the-other")
    first, other = waiting(gate)
    approve(gate, first["id"], without_code=True).ok()
    approve(gate, other["id"], without_code=True).problem(409, "name-conflict")
    gate.register("desk", key="the-key-of-the-other").problem(401, "name-taken")


def test_an_issued_agent_never_waits(gate: Server) -> None:
    made = gate.call("POST", "/agents", json_body={"name": "desk"}).ok(201)
    shown = gate.register("desk", key=made["key"]).ok()
    assert shown["computer_id"] == made["id"]
    agent = gate.call("GET", f"/agents/{made['id']}").ok()
    assert (agent["approved_by"], agent["state"], agent["online"]) == ("issued", "active", True)
    gate.call("POST", "/agents", json_body={"name": "desk"}).problem(409, "name-conflict")


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
def test_what_came_through_a_proxy_waits(shared: Server, header: str) -> None:
    reply = shared.register(key=f"key-behind-{header}-0123", headers={header: "for=203.0.113.9"})
    reply.problem(403, "agent-pending")


def test_a_known_agent_may_come_through_a_proxy(shared: Server) -> None:
    machine = shared.machine()
    shared.register(machine.name, key=machine.key, headers=PROXY).ok()


def test_enrolment_can_be_closed(tmp_path: Path) -> None:
    with serving(tmp_path / "data", open_enrolment=False) as server:
        server.register("desk", key="the-key-of-the-desk").problem(403, "agent-pending")


@pytest.mark.parametrize("key", ["fifteen-letters", "x", "y" * 513])
def test_a_key_of_an_unusable_length_registers_nobody(shared: Server, key: str) -> None:
    shared.register("short", key=key).problem(401, "unauthorized")


def test_a_revoked_agent_is_out_at_once_and_its_name_is_free(server: Server) -> None:
    machine = server.machine()
    machine.poll()
    assert server.call("POST", f"/agents/{machine.id}/revoke").ok()["state"] == "revoked"
    machine.poll().problem(403, "agent-revoked")
    server.register(machine.name, key=machine.key).problem(403, "agent-revoked")
    server.call("POST", f"/agents/{machine.id}/resume").problem(409, "state-conflict")
    again = server.machine(machine.name, key="a-new-key-for-that-name")
    assert again.id != machine.id


def test_what_a_revoked_agent_held_goes_back(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["id"]
    machine.poll().ok()
    timed.call("POST", f"/agents/{machine.id}/revoke").ok()
    clock.advance(600_000)
    timed.await_state(job_id, "queued")


def test_grants_of_an_agent_are_replaced(server: Server) -> None:
    machine = server.machine()
    path = f"/agents/{machine.id}/grants"
    shown = server.call("PUT", path, json_body={"grants": ["commands.process", "agent.work"]}).ok()
    assert shown["grants"] == ["agent.work", "commands.process"]
    wrong = server.call("PUT", path, json_body={"grants": ["agent.work", "agent.wrok"]})
    document = wrong.problem(422, "bad-field")
    assert document["field"] == "grants[1]"
    assert "did you mean 'agent.work'" in document["detail"]
    server.call("PUT", path, json_body={"grants": []}).ok()
    machine.poll().problem(403, "forbidden")


def test_an_agents_printers_that_vanish_are_gone_and_come_back_as_themselves(server: Server) -> None:
    machine = server.machine(printers=[{"name": "a"}, {"name": "b"}])
    server.register(machine.name, key=machine.key, printers=[{"name": "b"}]).ok()
    gone = server.call("GET", f"/printers/{machine.printers[0]}").ok()
    assert gone["gone_at"] is not None
    assert gone["online"] is False
    listed = {item["id"] for item in server.call("GET", "/printers?limit=200").ok()["items"]}
    assert machine.printers[1] in listed
    assert machine.printers[0] not in listed
    everything = server.call("GET", "/printers?gone=true&limit=200").ok()["items"]
    assert machine.printers[0] in {item["id"] for item in everything}
    back = server.register(machine.name, key=machine.key, printers=[{"name": "a"}]).ok()
    assert back["printer_ids"] == [machine.printers[0]]
