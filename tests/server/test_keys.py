"""Client keys: made, listed, revoked, and the audit log of such changes."""

import json

from tests.server.serving import ROOT, Server


def test_a_key_is_shown_once_and_works_within_its_grants(server: Server) -> None:
    message = {"name": "shop", "grants": ["jobs.submit", "jobs.read", "jobs.read"]}
    made = server.call("POST", "/keys", json_body=message).ok(201)
    assert made["grants"] == ["jobs.read", "jobs.submit"]
    listed = server.call("GET", "/keys").ok()["items"]
    assert made["key"] not in json.dumps(listed)
    (entry,) = [item for item in listed if item["id"] == made["id"]]
    assert (entry["name"], entry["revoked_at"]) == ("shop", None)
    machine = server.machine()
    job_id = server.try_submit(machine.printers[0], key=made["key"]).ok(201)["id"]
    events = server.call("GET", f"/jobs/{job_id}/events", key=made["key"]).ok()["items"]
    assert events[0]["actor"] == f"key:{made['id']}"
    server.call("DELETE", f"/jobs/{job_id}", key=made["key"]).problem(403, "forbidden")
    server.call("POST", "/keys", json_body=message).problem(409, "name-conflict")


def test_a_revoked_key_stops_at_once(server: Server) -> None:
    made = server.call("POST", "/keys", json_body={"name": "till", "grants": ["jobs.read"]}).ok(201)
    server.call("GET", "/jobs", key=made["key"]).ok()
    shown = server.call("DELETE", f"/keys/{made['id']}").ok()
    assert shown["revoked_at"] is not None
    server.call("GET", "/jobs", key=made["key"]).problem(401, "unauthorized")
    assert server.call("DELETE", f"/keys/{made['id']}").ok()["revoked_at"] == shown["revoked_at"]
    server.call("POST", "/keys", json_body={"name": "till", "grants": ["jobs.read"]}).ok(201)


def test_a_key_with_an_unknown_grant_is_not_made(server: Server) -> None:
    reply = server.call("POST", "/keys", json_body={"name": "odd", "grants": ["jobs.sumbit"]})
    document = reply.problem(422, "bad-field")
    assert document["field"] == "grants[0]"
    assert "did you mean 'jobs.submit'" in document["detail"]


def test_changes_are_audited_with_who_made_them(fresh: Server) -> None:
    maker = fresh.call(
        "POST", "/keys", json_body={"name": "owner", "grants": ["agents.manage", "keys.manage"]}
    ).ok(201)
    issued = fresh.call("POST", "/agents", key=maker["key"], json_body={"name": "desk"}).ok(201)
    path = f"/agents/{issued['id']}"
    for verb in ("pause", "drain", "resume"):
        fresh.call("POST", f"{path}/{verb}", key=maker["key"]).ok()
    fresh.call("PUT", f"{path}/grants", key=maker["key"], json_body={"grants": []}).ok()
    fresh.call("POST", f"{path}/revoke", key=maker["key"]).ok()
    fresh.call("DELETE", f"/keys/{maker['id']}").ok()
    fresh.call("DELETE", f"/keys/{maker['id']}").ok()
    items = fresh.call("GET", "/audit").ok()["items"]
    assert [item["action"] for item in reversed(items)] == [
        "keys.create",
        "agents.issue",
        "agents.paused",
        "agents.draining",
        "agents.active",
        "agents.grant",
        "agents.revoke",
        "keys.revoke",
    ]
    actors = [item["actor"] for item in reversed(items)]
    assert actors == ["root", *[f"key:{maker['id']}"] * 6, "root"]
    assert {item["subject"] for item in items} == {maker["id"], issued["id"]}
    for secret in (maker["key"], issued["key"], ROOT):
        assert secret not in json.dumps(items)
    first = fresh.call("GET", "/audit?limit=5").ok()
    rest = fresh.call("GET", f"/audit?limit=5&cursor={first['next']}").ok()
    assert first["items"] + rest["items"] == items
    assert rest["next"] is None
