"""Whatever comes in: a problem that names what is wrong, never a fault of the server."""

import base64
import json
import typing
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from farhand.engine.registry import AGENT_GRANTS
from farhand.server import api
from farhand.server.routes import Route
from tests.server.serving import Machine, Reply, Server, serving
from tests.server.wire import connected, exchange, head, receive, reply_of

ROUTES = api.routes()
WITH_BODY = [route for route in ROUTES if route.request not in (None, bytes)]
DEEP = b"[" * 5_000 + b"]" * 5_000
NUL = "a\x00b"


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def ask(server: Server, machine: Machine, route: Route, body: bytes, path: str | None = None) -> Reply:
    """Send a body to a route, as the caller it is for."""
    path = (path or route.path).replace("{id}", str(uuid.uuid4()))
    agent = route.grant in AGENT_GRANTS or route.grant == "any key"
    return server.call(route.method, path, key=machine.key if agent else server.token, body=body)


def refused(reply: Reply) -> dict[str, Any]:
    """A problem that is the caller's."""
    assert 400 <= reply.status < 500, (reply.status, reply.body[:500])
    return reply.problem(reply.status, reply.json()["code"])


def fitting(route: Route, machine: Machine) -> dict[str, Any]:
    """A body that the route would take."""
    bodies: dict[str, dict[str, Any]] = {
        "RegisterRequest": {"name": machine.name, "printers": [{"name": "p"}]},
        "ClaimRequest": {"poll_id": "p"},
        "ResultRequest": {"ok": True},
        "ResultsRequest": {"results": []},
        "BatchRequest": {"jobs": []},
        "SubmitPrint": {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="},
        "ResolveRequest": {"outcome": "done"},
        "IssueRequest": {"name": str(uuid.uuid4())},
        "ApproveRequest": {"without_code": True},
        "GrantsRequest": {"grants": ["agent.work"]},
        "SigningRequest": {"public_key": None},
        "KeyRequest": {"name": str(uuid.uuid4()), "grants": []},
    }
    assert route.request is not None
    return bodies.get(route.request.__name__, {})


@pytest.fixture
def machine(shared: Server) -> Machine:
    return shared.machine()


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
@pytest.mark.parametrize(
    "body",
    [b"{", b"no json", b"\xff\xfe{}", b'{"a":1}{"b":2}', b"\x00", b'{"name":"\xff"}', b'{"name":"\\ud800"}'],
)
def test_what_is_no_json_is_refused(shared: Server, machine: Machine, route: Route, body: bytes) -> None:
    assert refused(ask(shared, machine, route, body))["code"] in ("bad-json", "bad-field")


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
@pytest.mark.parametrize("body", [b"[]", b"7", b'"text"', b"null", b"true", DEEP, b'{"zzz":' + DEEP + b"}"])
def test_what_is_no_object_of_ours_is_refused(
    shared: Server, machine: Machine, route: Route, body: bytes
) -> None:
    assert refused(ask(shared, machine, route, body))["code"] in ("bad-json", "bad-field")


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
def test_a_field_nobody_knows_is_named(shared: Server, machine: Machine, route: Route) -> None:
    body = json.dumps({**fitting(route, machine), "copeis": 2}).encode()
    document = refused(ask(shared, machine, route, body))
    if route.path != "/jobs/batch":
        assert document["field"] == "copeis"
        assert "copeis" in document["detail"]


@pytest.mark.parametrize("route", [r for r in WITH_BODY if not r.request_optional], ids=name_of)
def test_an_empty_body_is_refused_where_one_is_needed(shared: Server, machine: Machine, route: Route) -> None:
    assert refused(ask(shared, machine, route, b""))["code"] == "bad-json"
    assert refused(ask(shared, machine, route, b"{}"))["field"]


def fields_of(route: Route) -> list[tuple[str, Any]]:
    """The fields of a route's request with their types; those that may hold anything are left out."""
    assert route.request is not None
    hints = typing.get_type_hints(route.request)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(route.request)}
    return [(wire, hints[name]) for wire, name in names.items() if hints[name] is not Any]


JUNK: list[Any] = [
    {"surprise": {"of": "all"}},
    [[]],
    [{"x": 1}],
    -1,
    10**30,
    1.5,
    True,
    NUL,
    "x" * 1_000_000,
    "",
    "\n",
    "💥" * 50,
    {NUL: NUL},
    [NUL],
]


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
def test_junk_in_any_field_is_refused_by_name_or_taken_but_never_a_fault(
    shared: Server, machine: Machine, route: Route
) -> None:
    assert route.request is not None
    for field in msgspec.structs.fields(route.request):
        wire = field.encode_name
        for junk in JUNK:
            if wire in ("wait_ms", "next") and junk in (True, -1):
                continue
            body = json.dumps({**fitting(route, machine), wire: junk}).encode()
            reply = ask(shared, machine, route, body)
            assert reply.status < 500, (wire, str(junk)[:80], reply.body[:500])
            if reply.status >= 400:
                document = refused(reply)
                assert document["detail"]


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
def test_a_value_of_the_wrong_type_is_refused_by_its_field(
    shared: Server, machine: Machine, route: Route
) -> None:
    if route.path == "/jobs/batch":
        pytest.skip("each job of a batch is answered by itself")
    for wire, hint in fields_of(route):
        wrong: Any = [1] if "dict" in str(hint) else {"surprise": [1]}
        body = json.dumps({**fitting(route, machine), wire: wrong}).encode()
        document = refused(ask(shared, machine, route, body))
        assert document["code"] in ("bad-field", "unsupported-type")
        assert document["field"].startswith(wire), (wire, document)


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
def test_a_nul_in_any_text_is_refused_by_its_field(shared: Server, machine: Machine, route: Route) -> None:
    if route.path == "/jobs/batch":
        pytest.skip("each job of a batch is answered by itself")
    for wire, hint in fields_of(route):
        if "str" not in str(hint) or "list" in str(hint) or "dict" in str(hint):
            continue
        body = json.dumps({**fitting(route, machine), wire: NUL}).encode()
        document = refused(ask(shared, machine, route, body))
        assert document["field"] == wire, document


@pytest.mark.parametrize("place", ["metadata", "json"])
def test_a_nul_deep_inside_is_found(shared: Server, machine: Machine, place: str) -> None:
    message = {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    if place == "json":
        message.update(type="raw_uri_post", url="http://127.0.0.1:1/")
        del message["content"]
    for value in ({"a": [{"b": NUL}]}, {"a": {NUL: 1}}):
        reply = shared.call("POST", "/jobs", json_body={**message, place: value})
        assert refused(reply)["field"].startswith(place)
    harmless = {**message, "metadata": {"a": "\\u0000 is how it is written"}}
    if place == "metadata":
        job = shared.job(shared.call("POST", "/jobs", json_body=harmless).ok(201)["id"])
        assert job["metadata"] == harmless["metadata"]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("printer_id", "01890a5d-ac96-774b-bcce-b302099a8057", "unknown-printer"),
        ("printer_id", "7", "unknown-printer"),
        ("printer_id", "", "unknown-printer"),
        ("type", "pdf_base65", "unsupported-type"),
        ("type", "", "unsupported-type"),
        ("type", None, "bad-field"),
        ("content", "%%%", "bad-field"),
        ("content", "eA", "bad-field"),
        ("content", "eA=", "bad-field"),
        ("content", "eA==eA==", "bad-field"),
        ("content", "é", "bad-field"),
        ("content", "", "bad-field"),
        ("content", None, "bad-field"),
        ("url", "http://example.com/", "bad-field"),
        ("copies", 0, "bad-field"),
        ("copies", 1000, "bad-field"),
        ("copies", 2**63, "bad-field"),
        ("priority", -(2**70), "bad-field"),
        ("priority", 101, "bad-field"),
        ("expires_in", 0, "bad-field"),
        ("expires_in", 2**63, "bad-field"),
        ("run_at", "tomorrow", "bad-field"),
        ("run_at", "2026-12-24T18:00:00", "bad-field"),
        ("run_at", "9999-12-31T23:59:59+00:00", "bad-field"),
        ("tags", [""], "bad-field"),
        ("tags", ["a\nb"], "bad-field"),
        ("tags", ["x"] * 21, "bad-field"),
        ("title", "x" * 501, "bad-field"),
        ("options", {"duplex": "upside-down"}, "bad-field"),
        ("options", {"duplex": "long-edge\n"}, "bad-field"),
        ("options", {"rotate": 45}, "bad-field"),
        ("options", {"pages": "1-3;rm"}, "bad-field"),
        ("options", {"nup": 0}, "bad-field"),
        ("options", {"colour": True}, "bad-field"),
    ],
)
def test_a_print_request_that_does_not_fit_is_refused_by_its_field(
    shared: Server, machine: Machine, field: str, value: Any, code: str
) -> None:
    message = {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    document = shared.call("POST", "/jobs", json_body={**message, field: value}).problem(422, code)
    assert document["field"].startswith(field)
    assert document["detail"].startswith(field)
    assert shared.call("GET", f"/jobs?printer={machine.printers[0]}").ok()["items"] == []


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"type": "raw_uri"}, "url"),
        ({"type": "raw_uri", "url": ""}, "url"),
        ({"type": "raw_uri", "url": "http://127.0.0.1:1/", "content": "eA=="}, "content"),
        ({"type": "raw_uri", "url": "http://127.0.0.1:1/", "json": {}}, "json"),
        ({"type": "raw_uri_post", "url": "http://127.0.0.1:1/"}, "json"),
        ({"type": "raw_base64", "content": "eA==", "expires_in": 5, "expire_after": 5}, "expire_after"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(
    shared: Server, machine: Machine, message: dict[str, Any], field: str
) -> None:
    reply = shared.call("POST", "/jobs", json_body={"printer_id": machine.printers[0], **message})
    assert reply.problem(422, "bad-field")["field"] == field


def test_base64_in_lines_is_base64(shared: Server, machine: Machine) -> None:
    document = bytes(range(256)) * 3
    message = {"printer_id": machine.printers[0], "type": "raw_base64"}
    message["content"] = base64.encodebytes(document).decode().replace("\n", "\r\n")
    job_id = shared.call("POST", "/jobs", json_body=message).ok(201)["id"]
    machine.poll().ok()
    assert machine.payload(job_id).body == document


def test_a_printer_that_cannot_take_a_pdf_is_given_none(shared: Server) -> None:
    machine = shared.machine(printers=[{"name": "label printer", "can_pdf": False}])
    reply = shared.try_submit(machine.printers[0], b"%PDF-1.4", type="pdf_base64")
    assert reply.problem(422, "cannot-print")["field"] == "type"


def test_the_last_of_two_equal_keys_counts_everywhere(shared: Server, machine: Machine) -> None:
    twice = '"type":"mystery","type":"raw_base64","content":"?","content":"eA=="'
    body = f'{{"printer_id":"{machine.printers[0]}",{twice}}}'
    job_id = shared.call("POST", "/jobs", body=body.encode()).ok(201)["id"]
    assert machine.poll().ok()["job_id"] == job_id


def test_free_values_may_be_deep_and_large_within_reason(shared: Server, machine: Machine) -> None:
    deep: Any = 10**40
    for _ in range(30):
        deep = [deep, {"k": None}]
    metadata = {"deep": deep, "big": 2**64, "text": "😀" * 1000}
    job_id = shared.submit(machine.printers[0], metadata=metadata)["id"]
    assert shared.job(job_id)["metadata"] == metadata


@pytest.mark.parametrize("depth", [200, 400, 600, 800, 900, 950, 1000, 2000])
def test_nesting_that_readers_choke_on_is_refused_at_every_depth(
    shared: Server, machine: Machine, depth: int
) -> None:
    nested = "[" * depth + "]" * depth
    for field in ('"metadata":{"a":%s}', '"json":%s,"url":"http://127.0.0.1:1/"'):
        kind = "raw_uri_post" if "json" in field else "raw_base64"
        content = "" if "json" in field else '"content":"eA==",'
        body = f'{{"printer_id":"{machine.printers[0]}","type":"{kind}",{content}{field % nested}}}'
        reply = shared.call("POST", "/jobs", body=body.encode())
        assert reply.status in (400, 422), reply.body[:300]
    printer = f'{{"name":"p","capabilities":{{"x":{nested}}}}}'
    register = f'{{"name":"{machine.name}","printers":[{printer}]}}'
    reply = shared.call("POST", "/agent/register", key=machine.key, body=register.encode())
    assert reply.status in (400, 422), reply.body[:300]
    shared.submit(machine.printers[0])
    job = machine.take()
    body = f'{{"ok":true,"lease_token":"{job["lease_token"]}","result":{nested}}}'
    path = f"/agent/jobs/{job['job_id']}/result"
    assert shared.call("POST", path, key=machine.key, body=body.encode()).status in (400, 422)


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "9" * 4000, "9" * 5000, "-" + "9" * 30, "NaN", "0x1", "1."]
)
def test_numbers_are_taken_or_refused_at_every_size(shared: Server, machine: Machine, number: str) -> None:
    for place in (
        '"metadata":{"n":%s},"content":"eA==","type":"raw_base64"',
        '"priority":%s,"type":"raw_base64"',
    ):
        body = f'{{"printer_id":"{machine.printers[0]}",{place % number}}}'
        assert shared.call("POST", "/jobs", body=body.encode()).status in (201, 400, 422)
    body = '{"printer_id":"%s","type":"raw_uri_post","url":"http://127.0.0.1:1/","json":%s}'
    reply = shared.call("POST", "/jobs", body=(body % (machine.printers[0], number)).encode())
    assert reply.status in (400, 422)


@pytest.mark.parametrize("route", [r for r in ROUTES if "{" not in r.path or "{id}" in r.path], ids=name_of)
def test_a_method_that_a_path_does_not_know_is_answered_with_those_it_does(
    shared: Server, route: Route
) -> None:
    path = route.path.replace("{id}", str(uuid.uuid4()))
    known = sorted(r.method for r in ROUTES if r.path == route.path)
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} - set(known):
        reply = shared.call(method, path)
        document = reply.problem(405, "method-not-allowed")
        assert reply.headers["allow"] == document["allow"] == ", ".join(known)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing",
        "/jobs/",
        "//jobs",
        "/jobs/x/y/z",
        "/%00",
        "/%ff",
        "/jobs%2fx",
        "/" + "x" * 30_000,
        "/jobs/%0a%0d/events/",
    ],
)
def test_a_path_that_is_not_there_is_a_problem(shared: Server, path: str) -> None:
    document = shared.call("GET", path).problem(404, "not-found")
    assert len(document["detail"]) < 500


@pytest.mark.parametrize(
    "job_id",
    ["x", "%00", "%ff" * 16, "g" * 36, "0" * 36, "-" * 36, "1" * 5000, "{" + "0" * 32 + "}--", "é" * 3],
)
@pytest.mark.parametrize("route", [r for r in ROUTES if "{id}" in r.path], ids=name_of)
def test_an_id_that_is_none_is_not_there(shared: Server, machine: Machine, route: Route, job_id: str) -> None:
    path = route.path.replace("{id}", job_id.replace("é", "%C3%A9"))
    body = json.dumps(fitting(route, machine)).encode() if route in WITH_BODY else None
    key = machine.key if route.grant in AGENT_GRANTS else shared.token
    shared.call(route.method, path, key=key, body=body).problem(404, "not-found")


@pytest.mark.parametrize(
    ("path", "code", "field"),
    [
        ("/jobs?limit=0", "bad-field", "limit"),
        ("/jobs?limit=201", "bad-field", "limit"),
        ("/jobs?limit=-1", "bad-field", "limit"),
        ("/jobs?limit=1e3", "bad-field", "limit"),
        ("/jobs?limit=%D9%A1", "bad-field", "limit"),
        ("/jobs?limit=" + "9" * 5000, "bad-field", "limit"),
        ("/jobs?limit=", "bad-field", "limit"),
        ("/jobs?state=waiting", "bad-field", "state"),
        ("/jobs?printer=7", "bad-field", "printer"),
        ("/jobs?agent=%00", "bad-field", "agent"),
        ("/jobs?tag=a%00b", "bad-field", "tag"),
        ("/jobs?kind=%00", "bad-field", "kind"),
        ("/jobs?colour=red", "bad-field", "colour"),
        ("/printers?gone=perhaps", "bad-field", "gone"),
        ("/printers?state=idle", "bad-field", "state"),
        ("/agents?x=1", "bad-field", "x"),
        ("/audit?limit=x", "bad-field", "limit"),
        ("/agents/pending?x=1", "bad-field", "x"),
        ("/keys?x=1", "bad-field", "x"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(shared: Server, path: str, code: str, field: str) -> None:
    assert shared.call("GET", path).problem(422, code)["field"] == field


def encoded(plain: bytes) -> str:
    return base64.urlsafe_b64encode(plain).decode().rstrip("=")


@pytest.mark.parametrize("path", ["/jobs", "/printers", "/agents", "/audit"])
@pytest.mark.parametrize(
    "cursor",
    ["x", "", "%00", "%FF", "a" * 9999, "====", encoded(b"j-1"), encoded(b"j0x1"), encoded(b"j"),
     encoded(b"q1"), encoded(b"j1_0"), encoded(b"\xff" * 40), encoded(b"0" * 16 + b"a\0b"),
     encoded(b"0" * 16)],
)  # fmt: skip
def test_a_cursor_that_is_not_ours_is_refused(shared: Server, path: str, cursor: str) -> None:
    reply = shared.call("GET", f"{path}?cursor={cursor}")
    if path in ("/printers", "/agents") and reply.status == 200:
        return
    if cursor == "%00":
        reply.problem(422, "bad-field")
    else:
        reply.problem(400, "bad-cursor")


@pytest.mark.parametrize("path", ["/jobs", "/printers", "/agents", "/audit"])
@pytest.mark.parametrize("plain", [b"jffffffffffffffff", b"j7fffffffffffffff", b"j8000000000000000", b"j0"])
def test_a_cursor_from_nowhere_finds_nothing_wrong(shared: Server, path: str, plain: bytes) -> None:
    assert shared.call("GET", f"{path}?cursor={encoded(plain)}").status in (200, 400)


@pytest.mark.parametrize("value", ["wait=", "wait=x", "wait=-1", "wait=1.5", "wait=²", "wait=" + "x" * 999])
def test_a_wait_that_is_no_number_is_refused(shared: Server, machine: Machine, value: str) -> None:
    job_id = shared.submit(machine.printers[0])["id"]
    headers = {"Prefer": value.encode("latin-1").decode("latin-1")}
    shared.call("GET", f"/jobs/{job_id}", headers=headers).problem(400, "bad-request")
    machine.call("GET", "/agent/jobs", headers=headers).problem(400, "bad-request")


@pytest.mark.parametrize("value", ["respond-async", "handling=lenient; x", "", ";;,,", "WAIT=0", 'wait="0"'])
def test_other_preferences_are_ignored(shared: Server, machine: Machine, value: str) -> None:
    job_id = shared.submit(machine.printers[0])["id"]
    shared.call("GET", f"/jobs/{job_id}", headers={"Prefer": value}).ok()


@pytest.mark.parametrize("value", ["", " ", '""', "x" * 256, "a\tb", "\xad"])
def test_an_idempotency_key_that_is_none_is_refused(shared: Server, machine: Machine, value: str) -> None:
    reply = shared.try_submit(machine.printers[0], headers={"Idempotency-Key": value})
    reply.problem(400, "bad-request")


@pytest.mark.parametrize(
    "value", ["Basic abc", "Bearer", "Bearer ", "bearer  ", "x" * 4000, "Bearer \xff\xfe" + "y" * 20]
)
def test_a_key_that_is_none_is_refused(shared: Server, value: str) -> None:
    shared.call("GET", "/jobs", key=None, headers={"Authorization": value}).problem(401, "unauthorized")


# Size.


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("narrow") / "data", payload_bytes_max=100_000) as server:
        yield server


def test_a_payload_at_the_limit_is_taken_and_one_beyond_is_not(narrow: Server) -> None:
    machine = narrow.machine()
    narrow.submit(machine.printers[0], b"x" * 100_000)
    document = narrow.try_submit(machine.printers[0], b"x" * 100_001).problem(413, "payload-too-large")
    assert document["limit_bytes"] == 100_000
    assert "100000 bytes" in document["detail"]


def body_limit(server: Server) -> int:
    return server.context.desk.body_limit


def test_a_body_that_says_it_is_too_large_is_refused_unread(narrow: Server) -> None:
    request = head("POST", "/jobs", f"Content-Length: {body_limit(narrow) + 1}") + b"\r\n\r\n"
    document = exchange(narrow.port, request).problem(413, "payload-too-large")
    assert str(body_limit(narrow)) in document["detail"]


def test_a_body_that_comes_in_chunks_and_grows_too_large_is_refused(narrow: Server) -> None:
    chunk = b"x" * 50_000
    parts = [b"%x\r\n%s\r\n" % (len(chunk), chunk)] * (body_limit(narrow) // len(chunk) + 1)
    start = head("POST", "/jobs", "Transfer-Encoding: chunked") + b"\r\n\r\n"
    document = exchange(narrow.port, start, *parts).problem(413, "payload-too-large")
    assert document["limit_bytes"] == body_limit(narrow)


def test_a_body_in_chunks_is_read_like_any_other(narrow: Server) -> None:
    machine = narrow.machine()
    message = {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    whole = json.dumps(message).encode()
    parts = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (whole[:10], whole[10:11], whole[11:]))
    start = head("POST", "/jobs", "Transfer-Encoding: chunked") + b"\r\n\r\n"
    exchange(narrow.port, start, parts, b"0\r\n\r\n").ok(201)


@pytest.mark.parametrize(
    "route", [r for r in WITH_BODY if r.path not in ("/jobs", "/jobs/batch")], ids=name_of
)
def test_every_body_has_a_limit_that_is_named(shared: Server, machine: Machine, route: Route) -> None:
    agent = route.grant in AGENT_GRANTS or route.grant == "any key"
    path = route.path.replace("{id}", str(uuid.uuid4()))
    start = head(route.method, path, f"Content-Length: {1 << 40}", key=machine.key if agent else shared.token)
    document = exchange(shared.port, start + b"\r\n\r\n").problem(413, "payload-too-large")
    assert str(document["limit_bytes"]) in document["detail"]


# Below HTTP.


def test_a_body_that_breaks_off_leaves_nothing_behind(shared: Server, machine: Machine) -> None:
    message = json.dumps(
        {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    ).encode()
    with connected(shared.port) as peer:
        peer.sendall(head("POST", "/jobs", f"Content-Length: {len(message) + 10}") + b"\r\n\r\n" + message)
    assert shared.call("GET", f"/jobs?printer={machine.printers[0]}").ok()["items"] == []
    assert shared.call("GET", "/health").status == 200


def test_a_body_shorter_than_its_json_is_refused(shared: Server, machine: Machine) -> None:
    message = json.dumps(
        {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    ).encode()
    start = head("POST", "/jobs", f"Content-Length: {len(message) - 3}") + b"\r\n\r\n"
    exchange(shared.port, start + message[:-3]).problem(400, "bad-json")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO\r\n\r\n",
        b"GET /jobs HTTP/9.9\r\n\r\n",
        b"GET /jobs\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"GET /jobs HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"GET /jobs HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_readably(shared: Server, garbage: bytes) -> None:
    reply = exchange(shared.port, garbage)
    assert reply.status in (400, 401, 404, 405), reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert shared.call("GET", "/health").status == 200


def test_broken_chunks_are_refused(shared: Server) -> None:
    start = head("POST", "/jobs", "Transfer-Encoding: chunked") + b"\r\n\r\n"
    exchange(shared.port, start + b"zz\r\nhello\r\n").problem(400, "bad-request")


@pytest.mark.parametrize(
    "part", [b"X-Long: " + b"x" * 200_000, b"\r\n".join(b"X-%d: y" % n for n in range(20_000))]
)
def test_a_head_that_is_too_large_is_refused(shared: Server, part: bytes) -> None:
    reply = exchange(shared.port, head("GET", "/jobs"), b"\r\n", part)
    assert "65536 bytes" in reply.problem(400, "bad-request")["detail"]
    assert shared.call("GET", "/health").status == 200


def test_large_headers_within_the_limit_are_taken(shared: Server) -> None:
    reply = shared.call("GET", "/jobs?limit=1", headers={f"X-{n}": "y" * 500 for n in range(90)})
    assert reply.status == 200


def test_requests_one_behind_the_other_are_all_answered(shared: Server) -> None:
    with connected(shared.port) as peer:
        peer.sendall((head("GET", "/health") + b"\r\n\r\n") * 3)
        got = b""
        while got.count(b'"ok":true') < 3:
            more = peer.recv(65536)
            assert more, got
            got += more
    assert reply_of(got[: got.index(b"}") + 1]).status == 200


def test_an_expected_continue_is_given_or_refused(narrow: Server) -> None:
    machine = narrow.machine()
    message = json.dumps(
        {"printer_id": machine.printers[0], "type": "raw_base64", "content": "eA=="}
    ).encode()
    with connected(narrow.port) as peer:
        peer.sendall(
            head("POST", "/jobs", "Expect: 100-continue", f"Content-Length: {len(message)}") + b"\r\n\r\n"
        )
        assert peer.recv(100).startswith(b"HTTP/1.1 100")
        peer.sendall(message)
        assert reply_of(receive(peer)).status == 201
    start = head("POST", "/jobs", "Expect: 100-continue", f"Content-Length: {1 << 40}") + b"\r\n\r\n"
    exchange(narrow.port, start).problem(413, "payload-too-large")


def test_after_all_this_the_server_is_well(tmp_path: Path, shared: Server) -> None:
    assert shared.call("GET", "/health").ok()["ok"] is True
    assert not any(status >= 500 for (_, _, status) in shared.context.requests)
