"""An Idempotency-Key over HTTP: one request, one job, one fetch."""

from typing import Any

import pytest

from tests.server.serving import Machine, Reply, Server
from tests.server.target import Target, listening


def submit(server: Server, machine: Machine, word: str, **message: Any) -> Reply:
    return server.try_submit(machine.printers[0], headers={"Idempotency-Key": word}, **message)


def post(server: Server, machine: Machine, key: str, target: Target, path: str = "/label") -> Reply:
    message = {"type": "raw_uri_post", "url": target.url(path), "json": {"order": 7}}
    return submit(server, machine, key, **message)


def test_a_repeat_answers_with_the_job_that_was_made(server: Server) -> None:
    machine = server.machine()
    first = submit(server, machine, "order-7", title="Label")
    again = submit(server, machine, '"order-7"', title="Label")
    assert first.ok(201)["id"] == again.ok(200)["id"]
    assert again.headers["location"] == first.headers["location"] == f"/jobs/{first.json()['id']}"
    machine.act(machine.take(), "result", ok=True).ok()
    assert submit(server, machine, "order-7", title="Label").ok(200)["state"] == "done"
    assert machine.claim()["jobs"] == []


def test_the_order_and_spelling_of_a_repeat_do_not_matter(server: Server) -> None:
    machine = server.machine()
    printer = machine.printers[0]
    headers = {"Idempotency-Key": f"spelling-{printer}"}
    one = f'{{"printer_id":"{printer}","type":"raw_base64","content":"eA==","copies":1}}'
    two = f'{{ "content":"\\u0065A==", "type":"raw_base64", "printer_id":"{printer}", "title":null }}'
    first = server.call("POST", "/jobs", body=one.encode(), headers=headers).ok(201)
    assert server.call("POST", "/jobs", body=two.encode(), headers=headers).ok(200)["id"] == first["id"]


def test_a_key_of_another_request_is_refused(server: Server) -> None:
    machine = server.machine()
    submit(server, machine, "order-8", title="Label").ok(201)
    submit(server, machine, "order-8", title="Other").problem(422, "idempotency-mismatch")


def test_keys_belong_to_their_callers(server: Server) -> None:
    machine = server.machine()
    client = server.new_key("jobs.submit")
    first = submit(server, machine, "order-9").ok(201)["id"]
    assert submit(server, machine, "order-9", key=client).ok(201)["id"] != first


def test_many_at_once_make_one_job(server: Server) -> None:
    machine = server.machine()
    futures = [server.later(submit, server, machine, "order-10") for _ in range(24)]
    replies = [future.result(timeout=30) for future in futures]
    assert {reply.status for reply in replies} <= {200, 201}
    assert [reply.status for reply in replies].count(201) == 1
    assert len({reply.json()["id"] for reply in replies}) == 1


def test_a_repeat_never_posts_twice(server: Server) -> None:
    machine = server.machine()
    with listening() as target:
        first = post(server, machine, "post-1", target).ok(201)
        again = post(server, machine, "post-1", target).ok(200)
        assert again["id"] == first["id"]
        assert target.count("POST") == 1
        post(server, machine, "post-1", target, "/other").problem(422, "idempotency-mismatch")
        assert target.count("POST") == 1


def test_a_repeat_while_the_first_is_out_is_told_so(server: Server) -> None:
    machine = server.machine()
    with listening() as target:
        target.open.clear()
        first = server.later(post, server, machine, "post-2", target)
        assert target.arrived.wait(timeout=10)
        assert post(server, machine, "post-2", target).problem(409, "idempotency-in-flight")["retryable"]
        target.open.set()
        made = first.result(timeout=20).ok(201)
        assert post(server, machine, "post-2", target).ok(200)["id"] == made["id"]
        assert target.count("POST") == 1


def test_a_fetch_that_failed_lets_its_key_go(server: Server) -> None:
    machine = server.machine()
    with listening() as target:
        target.status = 503
        failed = post(server, machine, "post-3", target).problem(422, "payload-fetch-failed")
        assert (failed["fetch_code"], failed["target_status"]) == ("target-status", 503)
        target.status = 200
        post(server, machine, "post-3", target).ok(201)
        assert target.count("POST") == 2


def test_a_refused_request_leaves_no_key_behind(server: Server) -> None:
    machine = server.machine()
    submit(server, machine, "order-11", copies=0).problem(422, "bad-field")
    submit(server, machine, "order-11", copies=1).ok(201)


@pytest.mark.parametrize("status", [301, 400, 404, 500])
def test_what_the_target_answered_reaches_the_client(shared: Server, status: int) -> None:
    machine = shared.machine()
    with listening() as target:
        target.status = status
        reply = shared.try_submit(machine.printers[0], type="raw_uri", url=target.url())
    document = reply.problem(422, "payload-fetch-failed")
    assert document["field"] == "url"
    if status != 301:
        assert str(status) in document["detail"]
        assert (document["target_status"], document["failure_source"]) == (status, "target")


def test_a_target_that_refuses_the_connection_is_named(shared: Server) -> None:
    machine = shared.machine()
    with listening() as target:
        url = target.url()
    reply = shared.try_submit(machine.printers[0], type="raw_uri", url=url)
    assert reply.problem(422, "payload-fetch-failed")["fetch_code"] == "connect"


def test_a_target_that_answers_nothing_is_named(shared: Server) -> None:
    machine = shared.machine()
    with listening() as target:
        target.body = b""
        reply = shared.try_submit(machine.printers[0], type="raw_uri", url=target.url())
    assert reply.problem(422, "payload-fetch-failed")["fetch_code"] == "empty-body"


def test_a_name_that_does_not_exist_is_named(shared: Server) -> None:
    machine = shared.machine()
    reply = shared.try_submit(machine.printers[0], type="raw_uri", url="http://nothing.invalid/label")
    assert reply.problem(422, "payload-fetch-failed")["field"] == "url"


@pytest.mark.parametrize(
    "url", ["http://user:secret@127.0.0.1/", "http://", "http://127.0.0.1:99999/", "http://a b/", "x" * 8000]
)
def test_a_url_that_is_none_is_named(shared: Server, url: str) -> None:
    machine = shared.machine()
    reply = shared.try_submit(machine.printers[0], type="raw_uri", url=url)
    document = reply.problem(422, "payload-fetch-failed")
    assert document["field"] == "url"
    assert "secret" not in document["detail"]
