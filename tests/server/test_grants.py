"""Who may do what: every route, every kind of caller, one's own objects and those of others."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farhand.engine.registry import AGENT_GRANTS, CLIENT_GRANTS
from farhand.server.auth import digest
from farhand.server.routes import Route
from tests.server.serving import ALL, ROOT, Machine, Reply, Server, all_routes, serving

OPEN = {"/health", "/openapi.json", "/problems/{code}"}
SIGNED = {"/farm/uploads/{id}"}
"""Whose address says who may."""

FARM_PRINTERS = ("/bed-cleared", "/pause", "/resume")
FARM_JOBS = ("/upload", "/pause", "/resume", "/top")
DEVICES = "/pulsar/agent/"
"""Where devices say in their own way who they are, and where their pages are."""

ROUTES = all_routes()
AGENT_ROUTES = [route for route in ROUTES if route.grant in AGENT_GRANTS]
CLIENT_ROUTES = [route for route in ROUTES if route.grant in CLIENT_GRANTS]


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


@dataclass(slots=True, kw_only=True)
class Scene:
    """A server with an object of every kind, and callers of every kind."""

    server: Server
    machine: Machine
    keys: dict[str, str]
    revoked: str
    pending: str
    foreign: dict[str, str]
    foreign_key: str

    def own(self, route: Route) -> str:
        """The route's path with an id of the caller's own tenant."""
        if route.path.startswith("/agents/"):
            return route.path.replace("{id}", self.server.machine().id)
        if route.path.startswith("/farms/"):
            return route.path.replace("{id}", new_farm(self.server))
        if route.path.startswith("/printers/") and route.path.endswith(FARM_PRINTERS):
            return route.path.replace("{id}", new_farm_printer(self.server))
        if route.path.startswith("/jobs/") and route.path.endswith(FARM_JOBS):
            message = {"type": "farm.print", "farm": new_farm(self.server), "filename": "part.gcode"}
            made = self.server.call("POST", "/jobs", json_body=message).ok(201)
            return route.path.replace("{id}", made["id"])
        if route.path.startswith("/printers/"):
            return route.path.replace("{id}", self.machine.printers[0])
        if route.path.startswith("/keys/"):
            message = {"name": str(uuid.uuid4()), "grants": ["jobs.read"]}
            made = self.server.call("POST", "/keys", json_body=message).ok(201)
            return route.path.replace("{id}", made["id"])
        if "{uuid}" in route.path:
            message = {"type": "demo.say", "agent": self.machine.name}
            made = self.server.call("POST", "/commands", json_body=message).ok(201)
            return route.path.replace("{uuid}", made["uuid"])
        return route.path.replace("{id}", self.server.submit(self.machine.printers[0])["id"])

    def others(self, route: Route) -> str:
        """The route's path with the id of another tenant's object."""
        kind = route.path.split("/")[1]
        if "{uuid}" in route.path:
            return route.path.replace("{uuid}", self.foreign["commands"])
        return route.path.replace("{id}", self.foreign["jobs" if kind == "agent" else kind])

    def ask(self, route: Route, path: str, key: str | None) -> Reply:
        """A request that fits the route as far as its body goes."""
        if route.request is bytes:
            return self.server.call(route.method, path, key=key, body=b"bytes")
        return self.server.call(route.method, path, key=key, json_body=fitting(route))


def fitting(route: Route) -> Any:
    """A body that the route can decode."""
    bodies: dict[str, Any] = {
        "ClaimRequest": {"poll_id": str(uuid.uuid4())},
        "ResultRequest": {"ok": True},
        "ResultsRequest": {"results": []},
        "BatchRequest": {"jobs": []},
        "ResolveRequest": {"outcome": "done"},
        "IssueRequest": {"name": str(uuid.uuid4())},
        "ApproveRequest": {"without_code": True},
        "GrantsRequest": {"grants": ["agent.work"]},
        "SigningRequest": {"public_key": None},
        "KeyRequest": {"name": str(uuid.uuid4()), "grants": []},
        "CommandRequest": {"type": "demo.say", "agent": str(uuid.uuid4())},
        "CommandResult": {"status": "completed"},
    }
    if route.request is None or route.method == "GET":
        return None
    return bodies.get(route.request.__name__, {})


def new_farm(server: Server) -> str:
    """The id of a farm of its own."""
    return server.call("POST", "/farms", json_body={"name": str(uuid.uuid4())}).ok(201)["id"]


def new_farm_printer(server: Server) -> str:
    """The id of a printer that a gateway reports and that is claimed."""
    farm, gateway = new_farm(server), server.machine()
    report = {"id": "mk4", "state": "idle"}
    message = {"farm": farm, "boot_id": "boot", "seq": 1, "printers": [report]}
    server.call("POST", "/agent/telemetry", key=gateway.key, json_body=message).ok()
    claim = {"farm": farm, "gateway_printer_id": "mk4", "name": "MK4"}
    return server.call("POST", "/printers", json_body=claim).ok(201)["id"]


def make_foreign(server: Server) -> tuple[dict[str, str], str]:
    """A second tenant with an agent, a printer, a job and a key of its own."""
    now = server.context.clock.now_ms()
    server.execute("insert_org", {"id": 2, "uid": uuid.uuid4().bytes, "name": "others", "now": now})
    agent, device, key = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    plain = {
        name: None for name in ("approved_by", "version", "runtime", "address", "owner_id", "last_seen_at")
    }
    server.execute(
        "insert_agent",
        {
            **plain,
            "id": agent.bytes, "org_id": 2, "name": "theirs", "live_name": "theirs", "dialect": "native",
            "state": "active", "grants": json.dumps(list(AGENT_GRANTS)), "capabilities": 0,
            "code_digest": None, "code_expires_at": None, "code_tries": 0, "first_seen_at": now,
            "created_at": now, "public_key": None, "signing": 0, "bid": None,
        },
    )  # fmt: skip
    agent_key = {
        "digest": digest(b"the-key-of-their-agent"),
        "org_id": 2,
        "agent_id": agent.bytes,
        "now": now,
    }
    server.execute("insert_agent_key", agent_key)
    server.execute(
        "insert_device",
        {
            "id": device.bytes, "org_id": 2, "agent_id": agent.bytes, "number": 1, "name": "their printer",
            "kind": "printer", "capabilities": "{}", "state": "idle", "reason": None, "gone_at": None,
            "created_at": now,
        },
    )  # fmt: skip
    secret = "the-key-of-their-owner"
    server.execute(
        "insert_api_key",
        {
            "id": key.bytes, "org_id": 2, "user_id": None, "name": "theirs",
            "digest": digest(secret.encode()),
            "grants": json.dumps(list(CLIENT_GRANTS)), "now": now,
        },
    )  # fmt: skip
    job = server.try_submit(str(device), key=secret).ok(201)["id"]
    farm = uuid.uuid4()
    server.execute(
        "insert_farm",
        {"id": farm.bytes, "org_id": 2, "name": "theirs", "upload_key": bytes(32), "now": now},
    )
    return {
        "farms": str(farm),
        "agents": str(agent),
        "printers": str(device),
        "jobs": job,
        "keys": str(key),
    }, secret


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with serving(tmp_path_factory.mktemp("grants") / "data", sections=ALL) as server:
        revoked = server.machine()
        server.call("POST", f"/agents/{revoked.id}/revoke").ok()
        pending = "the-key-of-a-pending-agent"
        server.register("waits", key=pending, headers={"Via": "1.1 proxy"}).problem(403, "agent-pending")
        foreign, foreign_key = make_foreign(server)
        message = {"type": "demo.say", "agent": "theirs"}
        theirs = server.call("POST", "/commands", key=foreign_key, json_body=message).ok(201)
        machine = server.machine()
        grants = {"grants": list(AGENT_GRANTS)}
        server.call("PUT", f"/agents/{machine.id}/grants", json_body=grants).ok()
        yield Scene(
            server=server,
            machine=machine,
            keys={grant: server.new_key(grant) for grant in CLIENT_GRANTS},
            revoked=revoked.key,
            pending=pending,
            foreign={**foreign, "commands": theirs["uuid"]},
            foreign_key=foreign_key,
        )


def test_only_these_routes_need_no_grant() -> None:
    free = [route.path for route in ROUTES if route.grant is None]
    assert {path for path in free if not path.startswith(DEVICES)} == OPEN | SIGNED
    assert {route.path for route in ROUTES if route.grant == "any key"} == {"/agent/register"}
    assert len(AGENT_ROUTES) + len(CLIENT_ROUTES) + len(free) + 1 == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_nobody_gets_further_than_the_open_routes(scene: Scene, route: Route) -> None:
    path = scene.own(route).replace("{code}", "not-found").replace("{name}", "main.js")
    for key in (None, "a-key-that-nobody-knows"):
        if route.grant == "any key" and key is not None:
            continue
        reply = scene.ask(route, path, key)
        if route.failure is not None:
            assert reply.status == 400
            assert reply.json()["code"] == "bid-required"
        elif route.path in SIGNED:
            reply.problem(403, "upload-expired")
        elif route.grant is None:
            assert reply.status == 200
        else:
            reply.problem(401, "unauthorized")


@pytest.mark.parametrize("route", AGENT_ROUTES, ids=name_of)
def test_agent_routes_take_agents_in_force_only(scene: Scene, route: Route) -> None:
    path = scene.own(route)
    for key in (ROOT, *scene.keys.values()):
        scene.ask(route, path, key).problem(401, "unauthorized")
    scene.ask(route, path, scene.revoked).problem(403, "agent-revoked")
    scene.ask(route, path, scene.pending).problem(403, "agent-pending")


@pytest.mark.parametrize("route", AGENT_ROUTES, ids=name_of)
def test_an_agent_without_the_grant_does_no_work(scene: Scene, route: Route) -> None:
    machine = scene.server.machine()
    message = {"grants": [grant for grant in AGENT_GRANTS if grant != route.grant]}
    scene.server.call("PUT", f"/agents/{machine.id}/grants", json_body=message).ok()
    refused = scene.ask(route, scene.own(route), machine.key).problem(403, "forbidden")
    assert refused["grant"] == route.grant


@pytest.mark.parametrize("route", CLIENT_ROUTES, ids=name_of)
def test_client_routes_want_their_one_grant(scene: Scene, route: Route) -> None:
    for grant, key in scene.keys.items():
        reply = scene.ask(route, scene.own(route), key)
        if grant == route.grant and route.path.endswith("/ack"):
            # Whoever did not issue the command needs the right to its secrets besides.
            assert reply.problem(403, "forbidden")["grant"] == "results.secret"
        elif grant == route.grant:
            assert reply.status not in (401, 403, 404, 405)
            assert reply.status < 500
        else:
            assert reply.problem(403, "forbidden")["grant"] == route.grant
    assert scene.ask(route, scene.own(route), ROOT).status not in (401, 403, 404, 405)
    scene.ask(route, scene.own(route), scene.machine.key).problem(403, "forbidden")
    scene.ask(route, scene.own(route), scene.revoked).problem(403, "agent-revoked")
    scene.ask(route, scene.own(route), scene.pending).problem(403, "agent-pending")


@pytest.mark.parametrize(
    "route",
    [r for r in ROUTES if ("{id}" in r.path or "{uuid}" in r.path) and r.path not in SIGNED],
    ids=name_of,
)
def test_what_belongs_to_others_is_not_there(scene: Scene, route: Route) -> None:
    key = scene.machine.key if route.grant in AGENT_GRANTS else ROOT
    scene.ask(route, scene.others(route), key).problem(404, "not-found")
    for made_up in (str(uuid.uuid4()), "no-id"):
        path = route.path.replace("{id}", made_up).replace("{uuid}", made_up)
        scene.ask(route, path, key).problem(404, "not-found")
    if route.grant not in AGENT_GRANTS:
        scene.ask(route, scene.own(route), scene.foreign_key).problem(404, "not-found")


def test_lists_show_ones_own_alone(scene: Scene) -> None:
    mine = scene.server.submit(scene.machine.printers[0])["id"]
    for path, kind in (
        ("/jobs", "jobs"),
        ("/printers", "printers"),
        ("/agents", "agents"),
        ("/keys", "keys"),
    ):
        seen = {item["id"] for item in scene.server.call("GET", path).ok()["items"]}
        theirs = {item["id"] for item in scene.server.call("GET", path, key=scene.foreign_key).ok()["items"]}
        assert theirs == {scene.foreign[kind], *([scene.foreign["commands"]] if kind == "jobs" else [])}
        assert not seen & theirs
    assert mine in {item["id"] for item in scene.server.call("GET", "/jobs").ok()["items"]}
    assert scene.server.call("GET", "/agents/pending", key=scene.foreign_key).ok()["items"] == []
    assert scene.server.call("GET", "/audit", key=scene.foreign_key).ok()["items"] == []
    for query in (f"printer={scene.foreign['printers']}", f"agent={scene.foreign['agents']}"):
        assert scene.server.call("GET", f"/jobs?{query}").ok()["items"] == []


def test_a_printer_of_others_takes_no_job(scene: Scene) -> None:
    reply = scene.server.try_submit(scene.foreign["printers"])
    assert reply.problem(422, "unknown-printer")["field"] == "printer_id"


def test_figures_show_ones_own_alone(scene: Scene) -> None:
    with_theirs = scene.server.call("GET", "/metrics", key=scene.foreign_key)
    assert with_theirs.status == 200
    assert b'farhand_jobs{kind="print.raw",state="queued"} 1.0' in with_theirs.body


def test_a_key_cannot_make_a_key_that_may_more(scene: Scene) -> None:
    maker = scene.server.new_key("keys.manage", "jobs.read")
    message = {"name": str(uuid.uuid4()), "grants": ["jobs.read", "agents.manage"]}
    refused = scene.server.call("POST", "/keys", key=maker, json_body=message).problem(403, "forbidden")
    assert refused["grant"] == "agents.manage"
    message["grants"] = ["jobs.read"]
    scene.server.call("POST", "/keys", key=maker, json_body=message).ok(201)


def test_many_wrong_keys_make_an_address_wait_but_not_those_who_are_known(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        machine = server.machine()
        machine.poll()
        statuses = [server.call("GET", "/jobs", key=f"guess-number-{n:05}").status for n in range(125)]
        assert statuses[:120] == [401] * 120
        server.call("GET", "/jobs", key="one-more-guess-at-the-key").problem(429, "too-many-keys")
        assert machine.poll().status == 204
        assert server.call("GET", "/jobs").status == 200
