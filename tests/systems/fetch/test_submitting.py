"""Submitting a fetch: what is asked for, with every mistake named, and the answer in one call."""

import base64
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farhand.systems.fetch import SYSTEM
from farhand.systems.fetch.declare import SettingError, configure
from tests.server.serving import Server, serving
from tests.systems.fetch.conftest import RESULT, device, submit, try_submit, user_key

WAIT = {"Prefer": "wait=30"}


def params(server: Server, job_id: str) -> Any:
    """The params of a job."""
    return server.job(job_id)["params"]


def test_both_types_make_the_same_kind(server: Server, owner: str) -> None:
    for word in ("fetch", "fetch.http"):
        message = {"type": word, "request": {"url": "https://example.com/"}}
        made = server.call("POST", "/jobs", key=owner, json_body=message).ok(201)
        assert server.job(made["id"])["kind"] == "fetch.http"


def test_what_is_left_out_has_the_defaults_of_the_seed(server: Server, owner: str) -> None:
    found = params(server, submit(server, key=owner))
    assert found == {
        "url": "https://example.com/data.json",
        "method": "GET",
        "headers": {},
        "bodyBase64": False,
        "timeoutMs": 10000,
        "maxResponseBytes": 2097152,
        "allowInsecureTLS": False,
        "allowPrivateIP": False,
        "rangeRequest": None,
        "followRedirects": True,
        "idempotent": False,
    }


def test_a_method_is_written_in_capitals(server: Server, owner: str) -> None:
    assert params(server, submit(server, key=owner, method="post"))["method"] == "POST"


def test_the_body_lies_apart_from_the_request(server: Server, owner: str) -> None:
    job = server.job(submit(server, key=owner, method="POST", body="secret words"))
    assert "secret words" not in json.dumps(job)
    assert job["payload_size"] == len("secret words")


def test_an_empty_body_is_none(server: Server, owner: str) -> None:
    assert server.job(submit(server, key=owner, method="POST", body=""))["payload_size"] is None


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"url": 7}, "request.url"),
        ({"url": ""}, "request.url"),
        ({"url": "example.com"}, "request.url"),
        ({"url": "ftp://example.com/"}, "request.url"),
        ({"url": "https://user:pass@example.com/"}, "request.url"),
        ({"url": "https://exa mple.com/"}, "request.url"),
        ({"url": "https://example.com:0/"}, "request.url"),
        ({"url": "http://2130706433/"}, "request.url"),
        ({"url": "http://0177.0.0.1/"}, "request.url"),
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "request.url"),
        ({"url": "http://169.254.169.254/", "allowPrivateIP": True}, "request.url"),
        ({"url": "http://metadata.google.internal/", "allowPrivateIP": True}, "request.url"),
        ({"url": "http://10.1.2.3/"}, "request.url"),
        ({"url": "http://[fd00::1]/"}, "request.url"),
        ({"url": "http://printer.local/"}, "request.url"),
        ({"url": "https://example.com/" + "x" * 9000}, "request.url"),
        ({"method": ""}, "request.method"),
        ({"method": "CONNECT"}, "request.method"),
        ({"method": "TRACE"}, "request.method"),
        ({"method": "GET / HTTP/1.1\r\nX: y"}, "request.method"),
        ({"headers": []}, "request.headers"),
        ({"headers": {"a": 1}}, "request.headers[...]"),
        ({"headers": {"a b": "x"}}, "request.headers.a b"),
        ({"headers": {"X-A": "one\r\nX-B: two"}}, "request.headers.X-A"),
        ({"headers": {"X-A": "☃"}}, "request.headers.X-A"),
        ({"headers": {"Host": "other.example"}}, "request.headers.Host"),
        ({"headers": {"Content-Length": "3"}}, "request.headers.Content-Length"),
        ({"headers": {"Metadata-Flavor": "Google"}}, "request.headers.Metadata-Flavor"),
        ({"headers": {f"X-{n}": "x" for n in range(65)}}, "request.headers"),
        ({"headers": {f"X-{n}": "x" * 8000 for n in range(5)}}, "request.headers"),
        ({"body": {"a": 1}}, "request.body"),
        ({"body": "no base64!", "bodyBase64": True}, "request.body"),
        ({"bodyBase64": "yes"}, "request.bodyBase64"),
        ({"timeoutMs": 0}, "request.timeoutMs"),
        ({"timeoutMs": 120_001}, "request.timeoutMs"),
        ({"timeoutMs": "10"}, "request.timeoutMs"),
        ({"maxResponseBytes": 0}, "request.maxResponseBytes"),
        ({"maxResponseBytes": 64 * 1024 * 1024 + 1}, "request.maxResponseBytes"),
        ({"rangeRequest": "bytes=0-1,3-4"}, "request.rangeRequest"),
        ({"rangeRequest": "bytes=9-3"}, "request.rangeRequest"),
        ({"rangeRequest": "bytes=-3000000"}, "request.rangeRequest"),
        ({"allowInsecureTLS": "no"}, "request.allowInsecureTLS"),
        ({"allowPrivateIP": None}, "request.allowPrivateIP"),
        ({"followRedirects": 1}, "request.followRedirects"),
        ({"idempotent": "yes"}, "request.idempotent"),
        ({"sendCookies": True}, "request.sendCookies"),
    ],
)
def test_a_mistake_in_a_request_is_named(
    server: Server, owner: str, request_: dict[str, Any], field: str
) -> None:
    request = {"url": "https://example.com/", **request_}
    found = try_submit(server, key=owner, **request).problem(422, "bad-field")
    assert found["field"] == field
    assert found["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tags": ["nobody-has-this"]}, "tags[0]"),
        ({"tags": [""]}, "tags[0]"),
        ({"tags": "one"}, "tags"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": 86_401}, "expires_in"),
        ({"agent": ""}, "agent"),
        ({"title": "x" * 501}, "title"),
    ],
)
def test_a_mistake_beside_the_request_is_named(
    server: Server, owner: str, more: dict[str, Any], field: str
) -> None:
    found = try_submit(server, key=owner, **more).problem(422, "bad-field")
    assert found["field"] == field


def test_a_request_is_required(server: Server, owner: str) -> None:
    found = server.call("POST", "/jobs", key=owner, json_body={"type": "fetch"}).problem(422, "bad-field")
    assert found["field"] == "request"


LOOPBACK = ("http://localhost/", "http://127.0.0.1:8000/", "http://[::1]/", "http://a.localhost/")


@pytest.mark.parametrize("url", LOOPBACK)
def test_loopback_is_let_through_by_a_setting_alone(server: Server, owner: str, url: str) -> None:
    submit(server, url, key=owner)


def test_what_the_server_denies_is_refused_whatever_is_asked_for(tmp_path: Path) -> None:
    rules = {"denied_names": ["example.org"], "denied_cidrs": ["93.184.216.0/24"]}
    with serving(tmp_path / "data", sections={"fetch": rules}) as server:
        for url in ("https://example.org/", "https://a.example.org/", "http://93.184.216.34/", *LOOPBACK):
            for private in (False, True):
                reply = try_submit(server, url, allowPrivateIP=private)
                assert reply.problem(422, "bad-field")["field"] == "request.url"
        submit(server, "https://example.com/")


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"loopbak": True}, "did you mean 'loopback'"),
        ({"loopback": "yes"}, "loopback must be true or false"),
        ({"denied_names": "example.org"}, "denied_names must be a list"),
        ({"denied_names": [1]}, "denied_names must be a list"),
        ({"denied_cidrs": ["10.0.0.1/8"]}, "denied_cidrs"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(table: dict[str, object], word: str) -> None:
    with pytest.raises(SettingError, match=word):
        configure(SYSTEM, table)


def test_an_address_that_an_operator_may_open_is_let_through_when_asked_for(
    server: Server, owner: str
) -> None:
    for url in ("http://10.1.2.3/", "http://[fd00::1]/", "http://printer.local/"):
        submit(server, url, key=owner, allowPrivateIP=True)


def test_a_body_over_the_limit_is_too_large(server: Server, owner: str) -> None:
    body = "x" * (8 * 1024 * 1024 + 1)
    found = try_submit(server, key=owner, method="POST", body=body).problem(413, "payload-too-large")
    assert found["field"] == "request.body"


def test_a_request_for_an_agent_that_there_is_not_is_named(server: Server, owner: str) -> None:
    found = try_submit(server, key=owner, agent="nobody").problem(422, "unknown-agent")
    assert found["field"] == "agent"


def test_a_pinned_request_is_for_that_device_alone(server: Server, owner: str) -> None:
    one, other = device(server, key=owner), device(server, key=owner)
    job_id = submit(server, key=owner, agent=other.agent_id())
    assert one.claim(batch=5)["jobs"] == []
    assert other.take()["jobId"] == job_id


def test_a_request_cannot_be_pinned_to_a_device_of_others(server: Server, owner: str) -> None:
    theirs = device(server, key=user_key(server)).agent_id()
    try_submit(server, key=owner, agent=theirs).problem(422, "unknown-agent")
    submit(server, agent=theirs)


def test_a_tag_leads_to_the_devices_that_have_it(server: Server, owner: str) -> None:
    plain = device(server, key=owner)
    tagged = device(server, key=owner, capabilities={"tags": ["office-berlin"]})
    job_id = submit(server, key=owner, tags=["office-berlin", "office-berlin"])
    assert server.job(job_id)["tags"] == ["office-berlin"]
    assert plain.claim(batch=5)["jobs"] == []
    assert tagged.take()["jobId"] == job_id


def test_tags_that_nobody_has_do_not_use_up_the_names_there_can_be(server: Server, owner: str) -> None:
    for n in range(80):
        try_submit(server, key=owner, tags=[f"unknown-{n}"]).problem(422, "bad-field")
    assert submit(server, key=owner)


def test_the_same_request_with_its_defaults_spelled_out_is_the_same(server: Server, owner: str) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = try_submit(server, key=owner, prefer=headers).ok(201)
    again = try_submit(server, key=owner, prefer=headers, timeoutMs=10_000, method="get").ok(200)
    assert again["id"] == first["id"]
    try_submit(server, key=owner, prefer=headers, timeoutMs=10_001).problem(422, "idempotency-mismatch")
    try_submit(server, key=owner, prefer=headers, method="POST", body="x").problem(
        422, "idempotency-mismatch"
    )


def test_a_submit_that_waits_brings_the_result_in_one_call(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    waiting = server.later(try_submit, server, key=owner, prefer=WAIT)
    assert found.callback(found.take()) == "done"
    ended = waiting.result().ok(201)
    assert ended["state"] == "done"
    assert ended["result"]["body"] == RESULT["body"]


def test_a_failed_fetch_says_whose_doing_it_was(server: Server, owner: str) -> None:
    found = device(server, key=owner)
    for code, source in (("dns", "resolver"), ("blocked-address", "policy"), ("odd", "agent")):
        waiting = server.later(try_submit, server, key=owner, prefer=WAIT)
        assert found.fail(found.take(), code) == "failed"
        ended = waiting.result().ok(201)
        assert ended["state"] == "failed"
        assert ended["result"]["code"] == code
        assert ended["result"]["source"] == source


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(
    [
        "url", "method", "headers", "body", "bodyBase64", "timeoutMs", "maxResponseBytes",
        "allowInsecureTLS", "allowPrivateIP", "rangeRequest", "followRedirects", "idempotent",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(request_=st.dictionaries(_names, _json, max_size=6), more=st.dictionaries(
    st.sampled_from(["tags", "agent", "expires_in", "title", "source"]), _json, max_size=2))  # fmt: skip
def test_no_request_makes_the_server_fail(
    server: Server, request_: dict[str, Any], more: dict[str, Any]
) -> None:
    request_.setdefault("url", "https://example.com/")
    body = json.dumps({"type": "fetch", "request": request_, **more}).encode()
    reply = server.call("POST", "/jobs", body=body)
    assert reply.status in (201, 400, 413, 422), reply.body


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(url=st.text(max_size=60), path=st.binary(max_size=20))
def test_no_url_makes_the_server_fail(server: Server, url: str, path: bytes) -> None:
    for text in (url, f"https://{url}", f"https://example.com/{base64.b16encode(path).decode()}{url}"):
        assert try_submit(server, text).status in (201, 400, 422)
