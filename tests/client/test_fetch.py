"""Fetching through the client: what is sent, what comes of it, bodies that arrive in pieces."""

import asyncio
import base64
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from farhand.client import ApiError, AsyncClient, Client, FetchFailed, StillOpen, Unreachable
from farhand.client import fetch as calls
from farhand.protocol.fetch import FetchRequest, FetchResult, FetchSubmit
from tests.client.test_plan import LOST, MADE, Answer, answer, carry_out, problem, script, view

ANSWER = {"status": 200, "statusText": "OK", "headers": {"Content-Type": "text/plain"}, "body": "hello"}

BODY = bytes(range(256)) * 4000
NO_SUCH_NAME = {"code": "dns", "message": "no such name", "source": "resolver"}


def done(**more: object) -> Answer:
    """The reply about a job that brought this result."""
    return answer(view("done", kind="fetch.http", result=ANSWER | more))


def sent(call: Any) -> dict[str, Any]:
    """The request that a call submits, decoded as the server would."""
    message = msgspec.json.decode(call.body, type=FetchSubmit)
    return msgspec.structs.asdict(message.request) | {"agent": message.agent, "tags": message.tags}


def test_a_fetch_is_one_held_request_when_the_answer_comes_in_time() -> None:
    found, made, _ = carry_out(calls.fetch("https://example.com/"), script(done()))
    assert [(call.method, call.path, call.wait_s) for call in made] == [("POST", "/jobs", 20)]
    assert (found.status, found.ok, found.content, found.text) == (200, True, b"hello", "hello")
    assert found.headers == {"content-type": "text/plain"}
    assert json.loads(made[0].body or b"") == {
        "type": "fetch.http",
        "request": {"url": "https://example.com/"},
    }


def test_a_fetch_that_takes_longer_is_waited_for() -> None:
    world = script(MADE, answer(view("queued")), answer(view("running")), done())
    found, made, _ = carry_out(calls.fetch("https://example.com/"), world)
    assert found.content == b"hello"
    assert [call.path for call in made] == ["/jobs", "/jobs/i", "/jobs/i", "/jobs/i"]


def test_a_fetch_gives_up_when_its_time_is_over_and_names_the_job() -> None:
    with pytest.raises(StillOpen) as caught:
        carry_out(calls.fetch("https://example.com/", wait_ms=0), script(MADE, answer(view("queued"))))
    assert caught.value.job.state == "queued"


def test_every_option_reaches_the_request() -> None:
    plan = calls.fetch(
        "https://example.com/",
        method="PUT",
        headers={"X-A": "1"},
        body="text",
        range="bytes=0-9",
        timeout_ms=1234,
        max_response_bytes=77,
        follow_redirects=False,
        allow_insecure_tls=True,
        allow_private_ip=True,
        idempotent=True,
        agent="shop",
        tags=["eu"],
    )
    _, made, _ = carry_out(plan, script(done()))
    request = sent(made[0])
    plain = msgspec.structs.asdict(FetchRequest(url=""))
    # What is left at its default did not arrive: only a body in text is no base64.
    assert [name for name, value in plain.items() if request[name] == value] == ["body_base64"]
    assert (request["method"], request["timeout_ms"], request["max_response_bytes"]) == ("PUT", 1234, 77)
    assert (request["range_request"], request["follow_redirects"]) == ("bytes=0-9", False)
    assert (request["agent"], request["tags"]) == ("shop", ["eu"])


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="alow_private_ip"):
        carry_out(calls.fetch("https://example.com/", alow_private_ip=True), script())  # pyright: ignore[reportCallIssue]  (what is tested)


@pytest.mark.parametrize(
    ("body", "method", "shown"),
    [
        (None, "GET", (None, False)),
        ("text", "POST", ("text", False)),
        ("", "POST", ("", False)),
        (b"plain", "POST", ("plain", False)),
        (b"\xff\x00", "POST", ("/wA=", True)),
        (b"a\0b", "POST", ("YQBi", True)),
        ("ü".encode(), "POST", ("ü", False)),
    ],
)
def test_a_body_makes_a_post_and_travels_as_text_where_it_is_some(
    body: bytes | str | None, method: str, shown: tuple[str | None, bool]
) -> None:
    _, made, _ = carry_out(calls.fetch("https://example.com/", body=body), script(done()))
    request = sent(made[0])
    assert (request["method"], request["body"], request["body_base64"]) == (method, *shown)


def test_a_lost_reply_is_asked_for_again_with_the_same_key() -> None:
    found, made, _ = carry_out(calls.fetch("https://example.com/"), script(LOST, done()))
    assert found.status == 200
    assert len({call.headers["Idempotency-Key"] for call in made}) == 1
    assert len({call.body for call in made}) == 1


def test_a_status_of_the_target_is_an_answer_and_no_error() -> None:
    found, _, _ = carry_out(calls.fetch("https://example.com/"), script(done(status=404)))
    assert (found.status, found.ok) == (404, False)


def test_a_body_apart_is_read_too_unless_it_is_not_wanted() -> None:
    apart = done(body=None, bodySha256="0" * 64)
    body = Answer(status=200, headers={}, body=b"\0large")
    found, made, _ = carry_out(calls.fetch("https://example.com/"), script(apart, body))
    assert found.content == b"\0large"
    assert made[1].path == "/jobs/j/result"
    found, made, _ = carry_out(calls.fetch("https://example.com/", load=False), script(apart))
    assert (found.content, len(made)) == (None, 1)


def test_a_body_in_base64_and_a_charset_are_understood() -> None:
    content_type = {"CONTENT-TYPE": 'text/plain; charset="latin-1"'}
    encoded = base64.b64encode("ü".encode("latin-1")).decode()
    found, _, _ = carry_out(
        calls.fetch("https://example.com/"), script(done(body=encoded, bodyBase64=True, headers=content_type))
    )
    assert (found.content, found.text) == (b"\xfc", "ü")
    unknown = {"content-type": "text/plain; charset=nonsense"}
    found, _, _ = carry_out(
        calls.fetch("https://example.com/"), script(done(headers=unknown, body='{"a":1}'))
    )
    assert found.text == '{"a":1}'
    assert found.json() == {"a": 1}


def test_what_a_newer_server_says_more_does_no_harm() -> None:
    tls = {"version": "TLSv1.4", "verified": True, "quantum": "yes"}
    steps = [{"status": 302, "url": "http://example.com/", "why": "news"}]
    found, _, _ = carry_out(
        calls.fetch("https://example.com/"), script(done(tls=tls, redirects=steps, news=1))
    )
    assert found.result.tls is not None
    assert found.result.tls.version == "TLSv1.4"
    assert [step.status for step in found.result.redirects] == [302]


@pytest.mark.parametrize(
    ("state", "more", "reason", "words"),
    [
        ("failed", {"result": NO_SUCH_NAME}, "dns", "no such"),
        ("failed", {"error": "it broke"}, "failed", "it broke"),
        ("expired", {}, "expired", "no agent took it in time"),
        ("cancelled", {"reason": "by the client"}, "cancelled", "by the client"),
        ("uncertain", {}, "uncertain", "nobody knows"),
        ("done", {"result": None}, "no-result", "reported no result"),
    ],
)
def test_what_brings_no_answer_says_why(state: str, more: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        carry_out(calls.fetch("https://example.com/"), script(answer(view(state, **more))))
    assert caught.value.reason == reason
    assert words in caught.value.message
    assert caught.value.job.state == state


def test_a_refusal_of_the_server_is_raised_as_it_is() -> None:
    refused = problem("bad-field", 422, field="request.url", fetch_code="bad-url")
    with pytest.raises(ApiError) as caught:
        carry_out(calls.fetch("nonsense"), script(refused))
    assert caught.value.problem.extra["fetch_code"] == "bad-url"


def test_what_was_fetched_is_not_in_its_repr() -> None:
    found, _, _ = carry_out(calls.fetch("https://example.com/?token=s3cret"), script(done(body="s3cret")))
    assert "s3cret" not in repr(found)
    assert "s3cret" not in repr(found.result)
    assert isinstance(found.result, FetchResult)


class Breaking(socketserver.ThreadingTCPServer):
    """Breaks its first answers off in the middle, and gives all of it after that."""

    daemon_threads = True

    def __init__(self, breaks: int) -> None:
        super().__init__(("127.0.0.1", 0), OneCaller)
        self.left = breaks

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class OneCaller(socketserver.BaseRequestHandler):
    """Answers requests without a body, one after the other."""

    server: Breaking

    def handle(self) -> None:
        while self._head():
            self.server.left -= 1
            breaks = self.server.left >= 0
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
            self.request.sendall(head + (BODY[:2000] if breaks else BODY))
            if breaks:
                return

    def _head(self) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.request.recv(4096)
            if not piece:
                return b""
            head += piece
        return head


@contextmanager
def breaking(times: int) -> Iterator[str]:
    """A server that breaks so many answers off."""
    with Breaking(times) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.begun = 0
        self.pieces: list[bytes] = []

    def begin(self) -> None:
        self.begun += 1
        self.pieces = []

    def write(self, piece: bytes) -> None:
        self.pieces.append(piece)


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("breaks", [0, 1])
def test_a_body_goes_to_a_sink_in_pieces_and_anew_after_a_break(face: str, breaks: int) -> None:
    kept = Kept()

    async def on_async(url: str) -> None:
        async with AsyncClient(url, "k" * 20) as client:
            await client.save_result("j", kept)

    with breaking(breaks) as url:
        if face == "async":
            asyncio.run(on_async(url))
        else:
            with Client(url, "k" * 20) as client:
                client.save_result("j", kept)
    assert kept.begun == breaks + 1
    assert b"".join(kept.pieces) == BODY
    assert len(kept.pieces) > 1


def test_a_body_that_never_arrives_whole_ends_as_unreachable() -> None:
    with breaking(1000) as url, Client(url, "k" * 20, patience_ms=0) as client, pytest.raises(Unreachable):
        client.save_result("j", Kept())
