"""Documents by URL for the print server."""

import gzip
import json
from dataclasses import replace

import pytest

from farhand.egress import BROWSER_USER_AGENT, EgressError, fetch_payload
from tests.egress.targets import LOCAL, Collected, by_path, ok, reply, serving

PDF = b"%PDF-1.7\n" + bytes(200_000)


async def test_a_document_is_streamed_to_the_sink() -> None:
    sink = Collected()
    async with serving(ok(PDF, "Content-Type: application/pdf")) as target:
        fetched = await fetch_payload(target.url("/a.pdf"), policy=LOCAL, limit_bytes=len(PDF), sink=sink)
    assert bytes(sink.body) == PDF
    assert (fetched.size, fetched.content_type, fetched.status) == (
        len(PDF),
        "application/pdf",
        200,
    )
    seen = target.requests[0]
    assert seen.line == "GET /a.pdf HTTP/1.1"
    assert seen.header("user-agent") == BROWSER_USER_AGENT
    assert "Chrome/" in BROWSER_USER_AGENT
    assert sink.largest <= 64 * 1024


@pytest.mark.parametrize("body", [{"order": 7, "name": "Zoë"}, [], {}, "text", 0, False])
async def test_a_body_is_posted_as_json(body: object) -> None:
    sink = Collected()
    async with serving(reply("201 Created", b"^XA^XZ")) as target:
        fetched = await fetch_payload(target.url(), json_body=body, policy=LOCAL, limit_bytes=100, sink=sink)
    seen = target.requests[0]
    assert seen.line == "POST / HTTP/1.1"
    assert seen.header("content-type") == "application/json"
    assert json.loads(seen.body) == body
    assert (fetched.size, fetched.content_type) == (6, None)


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "304 Not Modified", "401 No"])
async def test_a_status_other_than_success_is_named_and_nothing_reaches_the_sink(
    status: str,
) -> None:
    sink = Collected()
    body = b"" if status.startswith("304") else b"<html>"
    async with serving(reply(status, body, "Content-Encoding: br")) as target:
        with pytest.raises(EgressError) as failure:
            await fetch_payload(target.url(), policy=LOCAL, limit_bytes=100, sink=sink)
    assert (failure.value.code, failure.value.source) == ("target-status", "target")
    assert failure.value.status == int(status[:3])
    assert status[:3] in failure.value.message
    assert sink.body == b""


@pytest.mark.parametrize("status", ["200 OK", "204 No Content"])
async def test_an_empty_document_is_an_error(status: str) -> None:
    answer = f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode()
    async with serving(answer) as target:
        with pytest.raises(EgressError) as failure:
            await fetch_payload(target.url(), policy=LOCAL, limit_bytes=100, sink=Collected())
    assert failure.value.code == "empty-body"


@pytest.mark.parametrize("limit", [1, 1000, len(PDF) - 1])
async def test_a_document_beyond_the_limit_is_too_large(limit: int) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    answers = by_path(
        plain=ok(PDF),
        chunked=chunked % (len(PDF), PDF),
        coded=ok(gzip.compress(PDF), "Content-Encoding: gzip"),
    )
    async with serving(answers) as target:
        for path in ("/plain", "/chunked", "/coded"):
            sink = Collected()
            with pytest.raises(EgressError) as failure:
                await fetch_payload(target.url(path), policy=LOCAL, limit_bytes=limit, sink=sink)
            assert failure.value.code == "too-large"
            assert str(limit) in failure.value.message
            assert len(sink.body) <= limit


async def test_the_limit_replaces_the_policys_own_sizes() -> None:
    sink = Collected()
    async with serving(ok(PDF)) as target:
        small = replace(LOCAL, decoded_bytes_max=10, wire_bytes_max=10)
        fetched = await fetch_payload(target.url(), policy=small, limit_bytes=1_000_000, sink=sink)
    assert fetched.size == len(PDF)


async def test_a_post_that_is_redirected_fetches_the_document_where_it_lies() -> None:
    sink = Collected()
    answers = by_path(make=reply("303 See Other", b"", "Location: /made"), made=ok(b"done"))
    async with serving(answers) as target:
        fetched = await fetch_payload(
            target.url("/make"), json_body={"a": 1}, policy=LOCAL, limit_bytes=100, sink=sink
        )
    assert bytes(sink.body) == b"done"
    assert fetched.url == target.url("/made")
    assert [seen.line.split()[0] for seen in target.requests] == ["POST", "GET"]


async def test_a_private_address_is_refused_without_the_switch() -> None:
    async with serving(ok(b"secret")) as target:
        with pytest.raises(EgressError) as refusal:
            await fetch_payload(
                target.url(), policy=replace(LOCAL, loopback=False), limit_bytes=9, sink=Collected()
            )
    assert (refusal.value.code, refusal.value.source) == ("blocked-address", "policy")
    assert target.connections == 0


async def test_json_that_is_none_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        await fetch_payload(
            "http://127.0.0.1/",
            json_body=float("nan"),
            policy=LOCAL,
            limit_bytes=9,
            sink=Collected(),
        )
