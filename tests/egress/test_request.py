"""What is sent, what redirects change, and what comes back."""

import asyncio
import gzip
import hashlib
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand.egress import EgressError, EgressPolicy, Response, parse_url, request
from farhand.egress.body import utf8_boundary
from farhand.egress.coding import PIECE_BYTES, Inflate
from farhand.egress.headers import check_outgoing, escape
from tests.egress.targets import LOCAL, Collected, Names, Seen, by_path, ok, reply, serving

URL = parse_url("https://files.example/x")
SMALL = replace(LOCAL, decoded_bytes_max=10)


async def _get(answer: bytes, policy: EgressPolicy = LOCAL, **options: Any) -> Response:
    async with serving(answer) as target:
        return await request("GET", target.url(), policy=policy, **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "x"),
        ("A B", "x"),
        ("A:", "x"),
        ("A\r\nB", "x"),
        ("Ä", "x"),
        ("A", "x\r\nB: y"),
        ("A", "x\ny"),
        ("A", "x\x00"),
        ("A", "x\x1b"),
        ("A", "x\x7f"),
        ("A", " x"),
        ("A", "x "),
        ("A", "€"),
        ("A", "x" * 8193),
        ("Host", "other.example"),
        ("Host", "files.example:8443"),
        ("Content-Length", "3"),
        ("Expect", "100-continue"),
        ("Range", "bytes=0-1"),
        ("Forwarded", "for=10.0.0.1"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-FORWARDED-HOST", "x"),
        ("X-Real-IP", "10.0.0.1"),
        ("Metadata", "true"),
        ("metadata-flavor", "Google"),
        ("X-aws-ec2-metadata-token", "t"),
        ("X-aws-ec2-metadata-token-ttl-seconds", "60"),
    ],
)
def test_a_field_that_may_not_be_sent_is_refused(name: str, value: str) -> None:
    with pytest.raises(EgressError) as refusal:
        check_outgoing([(name, value)], URL, EgressPolicy())
    assert (refusal.value.code, refusal.value.source) == ("refused-header", "policy")


def test_too_many_and_too_large_fields_are_refused() -> None:
    for headers in ([("A", "x")] * 65, [("A", "x" * 8000)] * 5):
        with pytest.raises(EgressError, match="header fields"):
            check_outgoing(headers, URL, EgressPolicy())


def test_hop_by_hop_fields_and_those_they_name_are_left_out() -> None:
    sent = check_outgoing(
        [
            ("Connection", "close, X-Private"),
            ("X-Private", "1"),
            ("Keep-Alive", "5"),
            ("Proxy-Authorization", "Basic eA=="),
            ("Proxy-Connection", "x"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Host", "FILES.example:443"),
            ("X-Public", "1"),
        ],
        URL,
        EgressPolicy(),
    )
    assert sent == (("X-Public", "1"),)


def test_the_operator_can_allow_forwarded_fields_but_not_metadata_ones() -> None:
    policy = EgressPolicy(allowed_headers=("x-forwarded-for", "metadata"))
    assert check_outgoing([("X-Forwarded-For", "1.2.3.4")], URL, policy)
    for name in ("X-Forwarded-Host", "Metadata"):
        with pytest.raises(EgressError):
            check_outgoing([(name, "x")], URL, policy)


@settings(deadline=None)
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_field_is_refused_or_safe_to_send(name: str, value: str) -> None:
    try:
        sent = check_outgoing([(name, value)], URL, EgressPolicy())
    except EgressError:
        return
    for key, text in sent:
        assert not set("\r\n\x00") & set(key + text)
        text.encode("latin-1")


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_escaped_bytes_are_printable_ascii(data: bytes) -> None:
    text = escape(data)
    assert text.isascii()
    assert text.replace("\t", "").isprintable()


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "track", "", "GE T", "GET\r\n", "G" * 33])
async def test_a_method_that_may_not_be_sent_is_refused(method: str) -> None:
    with pytest.raises(EgressError) as refusal:
        await request(method, "http://127.0.0.1/", policy=LOCAL)
    assert refusal.value.code == "bad-method"


async def test_the_request_on_the_wire_is_what_was_asked_plus_our_own_fields() -> None:
    async with serving(ok(b"")) as target:
        await request(
            "put",
            target.url("/a%20b?c=d"),
            policy=LOCAL,
            headers=[("X-A", "1"), ("X-A", "2"), ("Accept-Encoding", "br"), ("X-U", "ü")],
            body=b"hello",
        )
    seen = target.requests[0]
    assert seen.line == "PUT /a%20b?c=d HTTP/1.1"
    assert seen.body == b"hello"
    assert seen.headers == [
        ("Host", f"127.0.0.1:{target.port}"),
        ("User-Agent", "farhand"),
        ("Accept", "*/*"),
        ("X-A", "1"),
        ("X-A", "2"),
        ("X-U", "ü"),
        ("Accept-Encoding", "gzip"),
        ("Content-Length", "5"),
        ("Connection", "close"),
    ]


async def test_the_callers_agent_accept_and_identity_are_kept() -> None:
    fields = [("User-Agent", "me"), ("Accept", "text/plain"), ("Accept-Encoding", "identity")]
    async with serving(ok(b"")) as target:
        await request("GET", target.url(), policy=LOCAL, headers=fields)
    seen = target.requests[0]
    for name, value in fields:
        assert [v for n, v in seen.headers if n == name] == [value]
    assert seen.header("content-length") is None


async def test_the_answer_comes_back_whole() -> None:
    answer = reply(
        "404 Not Here",
        b"nope",
        "Set-Cookie: a=1",
        "Set-Cookie: b=2",
        "Connection: X-Hop",
        "X-Hop: 1",
        "Keep-Alive: 5",
    )
    response = await _get(answer)
    assert (response.status, response.reason, response.body) == (404, "Not Here", b"nope")
    assert response.headers == (
        ("Content-Length", "4"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    )
    assert (response.bytes_written, response.wire_bytes, response.cropped) == (4, 4, False)
    assert response.sha256 == hashlib.sha256(b"nope").hexdigest()
    assert (response.remote_address, response.tls, response.redirects) == ("127.0.0.1", None, ())
    assert response.timings.total >= response.timings.first_byte >= 0
    assert response.timings.tls is None


async def test_times_are_the_injected_clocks() -> None:
    class Ticking:
        def __init__(self) -> None:
            self.now = 0

        def now_ms(self) -> int:
            return 0

        def monotonic_ms(self) -> int:
            self.now += 1000
            return self.now

    response = await _get(ok(b"x"), clock=Ticking())
    assert response.timings.dns == 1000
    assert response.timings.total >= 5000
    assert response.timings.total % 1000 == 0


async def test_a_head_request_has_no_body_whatever_its_fields_say() -> None:
    answer = reply("200 OK", b"", "Content-Encoding: br").replace(b": 0\r\n", b": 99999999999\r\n")
    async with serving(answer) as target:
        response = await request("HEAD", target.url(), policy=SMALL)
    assert (response.body, response.header("content-length")) == (b"", "99999999999")


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_without_a_body_is_empty(status: str) -> None:
    answer = f"HTTP/1.1 {status}\r\nContent-Encoding: gzip\r\n\r\n".encode()
    assert (await _get(answer)).body == b""


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "raw", "members"])
async def test_a_coded_body_is_decoded_and_counted_both_ways(coding: str) -> None:
    body = b"the quick brown fox " * 5000
    raw = zlib.compressobj(wbits=-15)
    coded = {
        "deflate": zlib.compress(body),
        "raw": raw.compress(body) + raw.flush(),
        "members": gzip.compress(body[:7]) + gzip.compress(b"") + gzip.compress(body[7:]),
    }.get(coding, gzip.compress(body))
    name = {"raw": "deflate", "members": "GZIP"}.get(coding, coding)
    sink = Collected()
    response = await _get(ok(coded, f"Content-Encoding: {name}, identity"), sink=sink)
    assert bytes(sink.body) == body
    assert (response.body, response.bytes_written) == (b"", len(body))
    assert response.wire_bytes == len(coded)
    assert response.sha256 == hashlib.sha256(body).hexdigest()


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20), st.booleans())
def test_decoding_does_not_depend_on_how_the_bytes_arrive(body: bytes, cuts: list[int], gz: bool) -> None:
    coded = gzip.compress(body) if gz else zlib.compress(body)
    decoder, out, at = Inflate("gzip" if gz else "deflate"), b"", 0
    for cut in [*cuts, len(coded)]:
        out += b"".join(decoder.feed(coded[at : at + cut]))
        at += cut
    decoder.finish()
    assert out == body


@pytest.mark.parametrize("size", [PIECE_BYTES * n + d for n in (1, 2, 5) for d in (-1, 0, 1, 200)])
def test_output_that_is_still_pending_when_the_input_ends_is_delivered(size: int) -> None:
    packer = zlib.compressobj(wbits=-15)
    coded = packer.compress(bytes(size)) + packer.flush()
    decoder = Inflate("deflate")
    pieces = list(decoder.feed(coded))
    decoder.finish()
    assert sum(map(len, pieces)) == size
    assert max(map(len, pieces)) <= PIECE_BYTES


async def test_a_body_of_exactly_the_limit_is_whole_and_one_byte_more_is_not() -> None:
    assert (await _get(ok(b"x" * 10), SMALL)).cropped is False
    assert (await _get(ok(b"x" * 10), SMALL, crop=True)).cropped is False
    with pytest.raises(EgressError, match="10 bytes"):
        await _get(ok(b"x" * 11), SMALL)
    response = await _get(ok(b"x" * 11), SMALL, crop=True)
    assert (response.cropped, response.body, response.crop_original_size) == (True, b"x" * 10, 11)


async def test_cropped_text_ends_at_a_character_and_other_bytes_at_the_limit() -> None:
    body = b"x" * 9 + "€€".encode()
    text = await _get(ok(body, "Content-Type: application/problem+json"), SMALL, crop=True)
    assert (text.body, text.bytes_written) == (b"x" * 9, 9)
    assert text.sha256 == hashlib.sha256(b"x" * 9).hexdigest()
    other = await _get(ok(body, "Content-Type: image/png"), SMALL, crop=True)
    assert other.bytes_written == 10


@settings(deadline=None)
@given(st.text(max_size=20), st.integers(0, 80))
def test_a_boundary_cut_leaves_valid_utf8_and_loses_less_than_a_character(text: str, cut: int) -> None:
    data = text.encode("utf-8", "ignore")[:cut]
    kept = data[: utf8_boundary(data)]
    kept.decode("utf-8")
    assert len(data) - len(kept) < 4


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        ("301 Moved", "POST", "GET"),
        ("302 Found", "POST", "GET"),
        ("303 See Other", "POST", "GET"),
        ("303 See Other", "PUT", "GET"),
        ("303 See Other", "HEAD", "HEAD"),
        ("307 Temporary", "POST", "POST"),
        ("308 Permanent", "POST", "POST"),
        ("301 Moved", "PUT", "PUT"),
        ("302 Found", "GET", "GET"),
    ],
)
async def test_a_redirect_changes_the_method_as_it_should(status: str, method: str, then: str) -> None:
    answers = by_path(a=reply(status, b"", "Location: b?x#y"), b=ok(b""))
    body = None if method in ("GET", "HEAD") else b"data"
    async with serving(answers) as target:
        response = await request(
            method, target.url("/a"), policy=LOCAL, body=body, headers=[("Content-Type", "text/x")]
        )
    second = target.requests[1]
    assert second.line == f"{then} /b?x HTTP/1.1"
    rewritten = then != method
    assert second.body == (b"" if rewritten or body is None else b"data")
    assert (second.header("content-type") is None) == rewritten
    assert response.url == target.url("/b?x")
    assert [(r.status, r.url) for r in response.redirects] == [(int(status[:3]), target.url("/a"))]


async def test_credentials_stay_behind_when_the_origin_changes_and_do_not_come_back() -> None:
    secret = [
        ("Authorization", "Bearer x"),
        ("Cookie", "a=1"),
        ("X-Api-Key", "k"),
        ("X-Other", "o"),
    ]
    back = by_path(b=ok(b"end"))
    async with serving(back) as last:
        away = by_path(
            a=reply("302 Found", b"", "Location: /b"),
            b=reply("302 Found", b"", f"Location: {last.url('/b')}"),
        )
        async with serving(away) as home:
            await request("GET", home.url("/a"), policy=LOCAL, headers=secret, secret_headers=["x-API-key"])
    for name, value in secret:
        assert home.requests[0].header(name) == value
        assert home.requests[1].header(name) == value
    seen = last.requests[0]
    assert seen.header("x-other") == "o"
    for name in ("authorization", "cookie", "x-api-key"):
        assert seen.header(name) is None


async def test_a_chain_of_five_is_followed_and_of_six_is_not() -> None:
    answers = {f"s{n}": reply("302 Found", b"", f"Location: /s{n + 1}") for n in range(6)}
    async with serving(by_path(**answers, s6=ok(b"end"))) as target:
        response = await request("GET", target.url("/s1"), policy=LOCAL)
        assert (response.body, len(response.redirects)) == (b"end", 5)
        target.requests.clear()
        with pytest.raises(EgressError) as refusal:
            await request("GET", target.url("/s0"), policy=LOCAL)
    assert (refusal.value.code, refusal.value.source) == ("too-many-redirects", "target")
    assert len(target.requests) == 6


async def test_a_redirect_is_handed_back_when_it_shall_not_be_followed() -> None:
    policy = replace(LOCAL, follow_redirects=False)
    response = await _get(reply("302 Found", b"here", "Location: http://10.0.0.1/"), policy)
    assert (response.status, response.body, response.redirects) == (302, b"here", ())


async def test_a_redirect_without_a_location_is_the_answer_and_with_two_is_none() -> None:
    assert (await _get(reply("302 Found", b"x"))).status == 302
    with pytest.raises(EgressError, match="two places"):
        await _get(reply("302 Found", b"", "Location: /a", "Location: /b"))


async def test_a_location_in_raw_utf8_or_latin1_is_understood() -> None:
    for raw in ("/ü".encode(), "/ü".encode("latin-1")):
        there = b"HTTP/1.1 302 Found\r\nLocation: " + raw + b"\r\n\r\n"
        async with serving(by_path(**{"a": there, "%C3%BC": ok(b"end")})) as target:
            assert (await request("GET", target.url("/a"), policy=LOCAL)).body == b"end"


async def test_the_total_time_covers_all_redirects() -> None:
    async def around(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        writer.write(reply("302 Found", b"", "Location: /"))
        await writer.drain()

    policy = replace(LOCAL, total_timeout_ms=400, max_redirects=50)
    async with serving(around) as target:
        with pytest.raises(EgressError) as failure:
            await request("GET", target.url(), policy=policy)
    assert failure.value.code == "timeout"
    assert len(target.requests) <= 3


async def test_a_name_is_the_host_even_when_it_is_international() -> None:
    names = Names(**{"xn--bcher-kva_example": ["127.0.0.1"]})
    async with serving(ok(b"hi")) as target:
        await request("GET", target.url(host="bücher.example"), policy=LOCAL, resolver=names)
    assert target.requests[0].header("host") == f"xn--bcher-kva.example:{target.port}"


async def test_a_request_needs_a_bracketed_host_for_ipv6() -> None:
    async with serving(ok(json.dumps({"a": 1}).encode()), host="::1") as target:
        response = await request("GET", target.url(host="[::1]"), policy=LOCAL)
    assert target.requests[0].header("host") == f"[::1]:{target.port}"
    assert response.remote_address == "::1"


async def test_nothing_of_this_machines_own_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what lies in a netrc file nor the cookies of the answer before."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\ndefault login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    pages = by_path(a=reply("302 Found", b"", "Location: /b", "Set-Cookie: id=1"), b=ok(b"b"))
    async with serving(pages) as target:
        await request("GET", target.url("/a"), policy=LOCAL)
        await request("GET", target.url("/b"), policy=LOCAL)
    assert len(target.requests) == 3
    for seen in target.requests:
        assert (seen.header("authorization"), seen.header("cookie")) == (None, None)
