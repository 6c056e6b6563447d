"""Seed 000 as it is written: what it lists under testing, and its rules."""

import threading
import time

import pytest

from tests.server.serving import PDF, ROOT, FakeClock, Server
from tests.server.target import listening

MINUTE = 60_000


@pytest.mark.parametrize(
    ("word", "mode", "document"), [("raw_base64", "raw", b"^XA^XZ"), ("pdf_base64", "pdf", PDF)]
)
def test_content_in_the_request_reaches_the_agent_byte_for_byte(
    server: Server, word: str, mode: str, document: bytes
) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0], document, type=word)["job_id"]
    claimed = machine.poll().ok()
    assert (claimed["job_id"], claimed["mode"], claimed["printer_id"]) == (job_id, mode, machine.printers[0])
    payload = machine.payload(job_id)
    assert payload.status == 200
    assert payload.headers["content-type"] == "application/octet-stream"
    assert payload.body == document


@pytest.mark.parametrize(("word", "mode"), [("raw_uri", "raw"), ("pdf_uri", "pdf")])
def test_content_behind_a_url_is_fetched_by_the_server(server: Server, word: str, mode: str) -> None:
    machine = server.machine()
    with listening() as target:
        target.body = bytes(range(256)) * 400
        made = server.submit(machine.printers[0], type=word, url=target.url("/a?b=c"))
        (asked,) = target.asked
    assert (asked.method, asked.path, asked.body) == ("GET", "/a?b=c", b"")
    assert asked.headers["user-agent"].startswith("Mozilla/5.0")
    assert machine.poll().ok()["mode"] == mode
    assert machine.payload(made["job_id"]).body == target.body


@pytest.mark.parametrize(("word", "mode"), [("raw_uri_post", "raw"), ("pdf_uri_post", "pdf")])
def test_content_behind_a_url_is_asked_for_by_post_with_json(server: Server, word: str, mode: str) -> None:
    machine = server.machine()
    with listening() as target:
        made = server.submit(
            machine.printers[0], type=word, url=target.url(), json={"order": 7, "name": "Zoë"}
        )
        (asked,) = target.asked
    assert asked.method == "POST"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["user-agent"].startswith("Mozilla/5.0")
    assert asked.body.decode() == '{"order":7,"name":"Zoë"}'
    assert machine.poll().ok()["mode"] == mode
    assert machine.payload(made["job_id"]).body == b"a document"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a", "file:///etc/passwd", "javascript:1", "//host/a"])
def test_only_web_addresses_are_fetched(small: Server, url: str) -> None:
    machine = small.machine()
    reply = small.try_submit(machine.printers[0], type="raw_uri", url=url)
    assert reply.problem(422, "payload-fetch-failed")["field"] == "url"


def test_overlapping_claims_of_one_job_have_one_winner(server: Server) -> None:
    machine = server.machine()
    for _ in range(5):
        job_id = server.submit(machine.printers[0])["job_id"]
        gate = threading.Barrier(16)

        def claim(gate: threading.Barrier = gate) -> int:
            gate.wait(timeout=10)
            return machine.poll().status

        answers = [future.result(timeout=30) for future in [server.later(claim) for _ in range(16)]]
        assert sorted(answers) == [200, *[204] * 15]
        assert machine.result(job_id, ok=True).ok()["state"] == "done"


def test_a_claim_whose_agent_fell_silent_is_handed_out_again(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["job_id"]
    assert machine.poll().ok()["attempt"] == 1
    clock.advance(10 * MINUTE - 1)
    assert timed.job(job_id)["state"] == "claimed"
    clock.advance(1)
    timed.await_state(job_id, "queued")
    assert machine.poll().ok()["attempt"] == 2


def test_silence_has_a_bounded_number_of_tries(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["job_id"]
    for number in (1, 2, 3):
        assert machine.poll().ok()["attempt"] == number
        clock.advance(10 * MINUTE)
        timed.await_state(job_id, "queued" if number < 3 else "failed")
    assert timed.job(job_id)["error"]
    assert machine.poll().status == 204


def test_silence_after_the_payload_was_taken_is_never_printed_again(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine()
    job_id = timed.submit(machine.printers[0])["job_id"]
    machine.poll().ok()
    assert machine.payload(job_id).status == 200
    clock.advance(10 * MINUTE)
    assert timed.await_state(job_id, "uncertain")["reason"]
    assert machine.poll().status == 204


def test_registering_again_changes_no_id(fresh: Server) -> None:
    printers = [{"name": "b", "can_pdf": True}, {"name": "a", "can_pdf": False}]
    first = fresh.register("front-desk", key="k" * 16, printers=printers).ok()
    again = fresh.register("front-desk", key="k" * 16, printers=printers[::-1]).ok()
    assert again["computer_id"] == first["computer_id"]
    assert again["printer_ids"] == first["printer_ids"][::-1]
    assert [p["name"] for p in fresh.call("GET", "/printers").ok()["items"]] == ["a", "b"]


def test_a_job_goes_from_submit_to_done(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0], b"label")["job_id"]
    assert server.job(job_id)["state"] == "queued"
    assert machine.poll().ok()["job_id"] == job_id
    assert server.job(job_id)["state"] == "claimed"
    assert machine.payload(job_id).body == b"label"
    assert server.job(job_id)["state"] == "running"
    machine.result(job_id, ok=True).ok()
    job = server.job(job_id)
    assert (job["state"], job["error"], job["printer_id"]) == ("done", None, machine.printers[0])
    assert job["created_at"] <= job["finished_at"]


def test_a_failure_is_shown_with_its_error(server: Server) -> None:
    machine = server.machine()
    job_id = server.submit(machine.printers[0])["job_id"]
    machine.poll().ok()
    machine.payload(job_id)
    machine.result(job_id, ok=False, error="out of ribbon").ok()
    job = server.job(job_id)
    assert (job["state"], job["error"]) == ("failed", "out of ribbon")


def test_an_idle_poll_ends_empty_after_its_wait(server: Server) -> None:
    machine = server.machine()
    began = time.monotonic()
    reply = machine.poll(wait=1)
    assert (reply.status, reply.body) == (204, b"")
    assert 0.95 <= time.monotonic() - began < 6


def test_a_job_reaches_a_poll_that_was_already_waiting(server: Server) -> None:
    machine = server.machine()
    poll = server.later(machine.poll, 20)
    server.await_held(1)
    submitted = time.monotonic()
    job_id = server.submit(machine.printers[0])["job_id"]
    assert poll.result(timeout=20).ok()["job_id"] == job_id
    assert time.monotonic() - submitted < 2


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/jobs"), ("GET", "/jobs/x"), ("GET", "/printers"), ("GET", "/jobs")]
)
@pytest.mark.parametrize("key", ["a-token-that-is-not-known", "short", None])
def test_a_wrong_bearer_is_refused_on_client_routes(
    shared: Server, method: str, path: str, key: str | None
) -> None:
    reply = shared.call(method, path, key=key, json_body={} if method == "POST" else None)
    reply.problem(401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/agent/jobs"), ("GET", "/agent/jobs/x/payload"), ("POST", "/agent/jobs/x/result")],
)
@pytest.mark.parametrize("key", ["an-agent-key-that-is-not-known", ROOT, None])
def test_a_wrong_agent_key_is_refused_on_agent_routes(
    shared: Server, method: str, path: str, key: str | None
) -> None:
    shared.call(method, path, key=key, json_body={} if method == "POST" else None).problem(
        401, "unauthorized"
    )


def test_an_agent_cannot_touch_the_job_of_another(server: Server) -> None:
    owner, stranger = server.machine(), server.machine()
    job_id = server.submit(owner.printers[0])["job_id"]
    assert stranger.poll().status == 204
    stranger.payload(job_id).problem(404, "not-found")
    owner.poll().ok()
    stranger.payload(job_id).problem(404, "not-found")
    stranger.result(job_id, ok=True).problem(404, "not-found")
    assert server.job(job_id)["state"] == "claimed"


def test_a_name_belongs_to_the_key_that_took_it_first(fresh: Server) -> None:
    fresh.register("front-desk", key="first-key-0123456789").ok()
    fresh.register("front-desk", key="other-key-0123456789").problem(401, "name-taken")
    fresh.register("front-desk", key="first-key-0123456789").ok()


def test_a_key_belongs_to_the_name_it_came_with(fresh: Server) -> None:
    fresh.register("front-desk", key="first-key-0123456789").ok()
    fresh.register("back-office", key="first-key-0123456789").problem(401, "name-taken")


def test_printers_show_their_agent_and_whether_it_is_there(timed: Server, clock: FakeClock) -> None:
    machine = timed.machine("front-desk")
    (printer,) = timed.call("GET", "/printers").ok()["items"]
    assert (printer["agent"], printer["agent_id"], printer["online"]) == ("front-desk", machine.id, True)
    clock.advance(61_000)
    (printer,) = timed.call("GET", "/printers").ok()["items"]
    assert printer["online"] is False
    machine.poll()
    (printer,) = timed.call("GET", "/printers").ok()["items"]
    assert printer["online"] is True


def test_health_needs_no_key(shared: Server) -> None:
    assert shared.call("GET", "/health", key=None).ok()["ok"] is True
