"""Secret members of a result: shown on one route, to those who may, for as long as they may be."""

import json
from typing import Any

import pytest

from farhand.testing.clock import FakeClock
from tests.server.serving import Server
from tests.systems.commands.conftest import Worker, command, issue, trail, worker

QR = "2@QR-OF-ONE-SHOP-0123456789"


def completed(server: Server, agent: Worker, **more: Any) -> str:
    """A command that ended with a QR code."""
    uuid = issue(server, agent, "whatsapp.connect", **more)["uuid"]
    collected = agent.collect()
    assert collected["secret_fields"] == ["qr_code"]
    result = {"qr_code": QR, "state": "scan me"}
    agent.report(collected, status="completed", result=result).ok()
    return str(uuid)


@pytest.fixture
def agent(server: Server) -> Worker:
    return worker(server)


def test_the_issuing_key_and_the_grant_see_the_secret_and_nobody_else(server: Server, agent: Worker) -> None:
    issuer = server.new_key("jobs.submit", "jobs.read", "jobs.manage")
    uuid = completed(server, agent, key=issuer)
    path = f"/commands/{uuid}"
    holder, other = server.new_key("jobs.read", "results.secret"), server.new_key("jobs.read", "jobs.manage")
    for key in (issuer, holder, server.token):
        reply = server.call("GET", path, key=key)
        assert reply.ok()["result"] == {"qr_code": QR, "state": "scan me"}
        assert reply.headers["cache-control"] == "no-store"
    assert server.call("GET", path, key=other).ok()["result"] == {"state": "scan me"}


def test_no_other_route_shows_it(server: Server, agent: Worker) -> None:
    uuid = completed(server, agent, idempotency_key=f"of {agent.name}")
    again = {"type": "whatsapp.connect", "agent": agent.name, "idempotency_key": f"of {agent.name}"}
    replies = [
        server.call("GET", f"/commands?agent={agent.id}"),
        server.call("GET", f"/commands/{uuid}/events"),
        server.call("POST", "/commands", json_body=again),
        server.call("GET", f"/jobs/{uuid}"),
        server.call("GET", f"/jobs/{uuid}/events"),
        server.call("GET", f"/jobs?agent={agent.id}"),
        server.call("GET", "/audit"),
        server.call("GET", "/metrics"),
        server.call("POST", f"/commands/{uuid}/retry"),
    ]
    for reply in replies:
        assert reply.status < 300
        assert QR.encode() not in reply.body


def test_a_wait_brings_it_at_once(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent, "whatsapp.connect")["uuid"]
    collected = agent.collect()
    held = server.later(server.call, "GET", f"/commands/{uuid}", headers={"Prefer": "wait=30"})
    server.await_held(1)
    agent.report(collected, status="completed", result={"qr_code": QR}).ok()
    reply = held.result(timeout=20)
    assert reply.ok()["result"] == {"qr_code": QR}
    assert reply.headers["cache-control"] == "no-store"


def test_once_acknowledged_it_is_gone(server: Server, agent: Worker) -> None:
    issuer = server.new_key("jobs.submit", "jobs.read")
    uuid = completed(server, agent, key=issuer)
    path = f"/commands/{uuid}/ack"
    stranger = server.new_key("jobs.read", "jobs.submit", "jobs.manage")
    assert server.call("POST", path, key=stranger).problem(403, "forbidden")["grant"] == "results.secret"
    assert command(server, uuid)["result"]["qr_code"] == QR
    for _ in range(2):
        assert server.call("POST", path, key=issuer).ok()["result"] == {"state": "scan me"}
    assert command(server, uuid)["result"] == {"state": "scan me"}


def test_what_is_not_over_cannot_be_acknowledged(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent, "whatsapp.connect")["uuid"]
    refused = server.call("POST", f"/commands/{uuid}/ack").problem(409, "state-conflict")
    assert "pending" in refused["detail"]


def test_after_ninety_seconds_it_is_gone_whether_anybody_looks_or_not(
    timed: Server, clock: FakeClock
) -> None:
    uuid = completed(timed, worker(timed))
    clock.advance(89_999)
    assert command(timed, uuid)["result"]["qr_code"] == QR
    clock.advance(1)
    assert command(timed, uuid)["result"] == {"state": "scan me"}


def test_the_trail_never_holds_it(server: Server, agent: Worker) -> None:
    uuid = completed(server, agent)
    assert QR not in json.dumps(trail(server, uuid))


def test_a_failures_error_is_shown_without_the_secret_beside_it(server: Server, agent: Worker) -> None:
    uuid = issue(server, agent, "whatsapp.connect")["uuid"]
    collected = agent.collect()
    message = {"status": "failed", "error": f"could not show {QR}", "result": {"qr_code": QR}}
    agent.report(collected, **message).ok()
    shown = command(server, uuid)
    assert QR not in str(shown["error"])
    assert QR not in json.dumps(trail(server, uuid))
