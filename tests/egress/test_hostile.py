"""Servers that lie, drip, bomb and never stop."""

import asyncio
import gzip
import zlib
from dataclasses import replace
from typing import Any

import pytest

from farhand.egress import EgressError, EgressPolicy, Response, request
from farhand.egress.policy import MIB
from tests.egress.targets import LOCAL, Answer, Collected, Seen, by_path, ok, reply, serving

SMALL = replace(LOCAL, decoded_bytes_max=1000, wire_bytes_max=1000, total_timeout_ms=5_000)


async def _get(answer: Answer | bytes, policy: EgressPolicy = LOCAL, **options: Any) -> Response:
    async with serving(answer) as target:
        return await request("GET", target.url(), policy=policy, **options)


async def _fails(answer: Answer | bytes, policy: EgressPolicy = LOCAL, **options: Any) -> EgressError:
    with pytest.raises(EgressError) as failure:
        await _get(answer, policy, **options)
    return failure.value


def _raw(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]) + body


async def test_a_redirect_to_metadata_is_refused() -> None:
    for place in (
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "http://metadata.google.internal/",
        "//10.0.0.1/",
    ):
        error = await _fails(reply("302 Found", b"", f"Location: {place}"))
        assert error.code in ("blocked-address", "blocked-name")
        assert error.source == "policy"


async def test_a_redirect_to_a_bad_url_is_the_targets_fault() -> None:
    for place in ("http://user:pw@example.com/", "http://2130706433/", "file:///etc/passwd", "/a b"):
        error = await _fails(reply("302 Found", b"", f"Location: {place}"))
        assert (error.code, error.source) == ("bad-url", "target")


async def test_a_redirect_to_a_shut_port_is_refused() -> None:
    async with serving(reply("302 Found", b"", "Location: http://127.0.0.1:22/")) as target:
        with pytest.raises(EgressError) as refusal:
            await request("GET", target.url(), policy=replace(LOCAL, ports=(target.port,)))
    assert refusal.value.code == "blocked-port"


def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MIB)
    return b"".join([*(packer.compress(zeros) for _ in range(64)), packer.flush()])


async def test_a_gzip_bomb_is_stopped_early() -> None:
    bomb = _bomb()
    assert len(bomb) < 70 * 1024
    sink = Collected()
    policy = replace(LOCAL, decoded_bytes_max=100 * MIB)
    error = await _fails(ok(bomb, "Content-Encoding: gzip"), policy, sink=sink)
    assert (error.code, error.source) == ("decompression-limit", "target")
    assert len(sink.body) <= 100 * len(bomb)
    assert sink.largest <= 64 * 1024


async def test_what_a_bomb_unpacks_to_is_held_against_the_bytes_it_came_from() -> None:
    """The whole bomb is there after one read, most of it not looked at yet."""
    sink = Collected()
    policy = replace(LOCAL, decoded_bytes_max=2 * MIB)
    error = await _fails(ok(_bomb(), "Content-Encoding: gzip"), policy, sink=sink, crop=True)
    assert (error.code, error.source) == ("decompression-limit", "target")
    assert len(sink.body) <= MIB + 64 * 1024


async def test_a_gzip_bomb_meets_the_size_limit_first_when_that_is_lower() -> None:
    answer = ok(_bomb(), "Content-Encoding: gzip")
    policy = replace(LOCAL, decoded_bytes_max=100_000)
    sink = Collected()
    assert (await _fails(answer, policy, sink=sink)).code == "too-large"
    assert len(sink.body) <= 100_000
    cropped = await _get(answer, policy, crop=True)
    assert (cropped.cropped, cropped.body) == (True, bytes(100_000))
    assert cropped.crop_original_size is None


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Encoding: gzip, gzip"],
        ["Content-Encoding: gzip", "Content-Encoding: deflate"],
        ["Content-Encoding: gzip, identity, gzip"],
        ["Content-Encoding: br"],
        ["Content-Encoding: zstd"],
        ["Content-Encoding: " + ", ".join(["gzip"] * 50)],
    ],
)
async def test_chained_and_unknown_codings_are_refused(fields: list[str]) -> None:
    body = gzip.compress(gzip.compress(b"x"))
    error = await _fails(ok(body, *fields))
    assert (error.code, error.source) == ("content-coding", "target")


@pytest.mark.parametrize(
    "body",
    [b"not gzip at all", gzip.compress(b"x" * 5000)[:-9], gzip.compress(b"x") + b"junk"],
    ids=["no-gzip", "cut-short", "junk-behind"],
)
async def test_a_damaged_coding_is_refused(body: bytes) -> None:
    assert (await _fails(ok(body, "Content-Encoding: gzip"))).code == "content-coding"


async def test_a_length_that_is_too_short_cuts_the_body_there() -> None:
    response = await _get(_raw(b"Content-Length: 3", body=b"abcdef"))
    assert response.body == b"abc"


async def test_a_length_that_is_too_long_is_a_broken_answer() -> None:
    error = await _fails(_raw(b"Content-Length: 100", body=b"abc"))
    assert (error.code, error.source) == ("protocol", "target")
    assert "closed the connection" in error.message


@pytest.mark.parametrize("length", [b"99999999999999", b"9" * 19])
async def test_a_huge_length_is_refused_before_anything_is_read(length: bytes) -> None:
    sink = Collected()
    error = await _fails(_raw(b"Content-Length: " + length, body=b"abc"), SMALL, sink=sink)
    assert error.code == "too-large"
    assert sink.body == b""


async def test_a_huge_length_crops_with_the_size_reported() -> None:
    answer = _raw(b"Content-Length: 99999999", body=b"x" * 2000)
    response = await _get(answer, SMALL, crop=True)
    assert (response.cropped, response.bytes_written) == (True, 1000)
    assert response.crop_original_size == 99_999_999


@pytest.mark.parametrize(
    "fields",
    [
        (b"Content-Length: 3", b"Content-Length: 6"),
        (b"Content-Length: 3, 6",),
        (b"Content-Length: -3",),
        (b"Content-Length: 0x3",),
        (b"Content-Length: +3",),
        (b"Content-Length: " + b"9" * 40,),
        (b"Content-Length: 3", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: gzip, chunked",),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    ],
)
async def test_a_length_with_two_readings_is_refused(fields: tuple[bytes, ...]) -> None:
    error = await _fails(_raw(*fields, body=b"3\r\nabc\r\n0\r\n\r\n"))
    assert (error.code, error.source) == ("protocol", "target")


async def test_chunked_with_http_1_0_is_refused() -> None:
    answer = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert (await _fails(answer)).code == "protocol"


async def test_a_repeated_equal_length_is_one_length() -> None:
    response = await _get(_raw(b"Content-Length: 3", b"Content-Length: 3", body=b"abc"))
    assert response.body == b"abc"


@pytest.mark.parametrize(
    "body", [b"zz\r\nabc\r\n", b"3\r\nabcdef\r\n0\r\n\r\n", b"-1\r\n", b"3\r\nab", b"f" * 30 + b"\r\n"]
)
async def test_bad_chunks_are_refused(body: bytes) -> None:
    assert (await _fails(_raw(b"Transfer-Encoding: chunked", body=body))).code == "protocol"


async def test_a_body_that_drips_is_given_up() -> None:
    async def drip(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_raw(b"Content-Length: 100000"))
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    policy = replace(LOCAL, min_rate_after_ms=150, min_rate_bytes_per_s=50_000)
    error = await _fails(drip, policy)
    assert (error.code, error.source) == ("timeout", "target")
    assert "bytes a second" in error.message


async def test_header_fields_that_drip_are_given_up() -> None:
    async def drip(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: y\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    policy = replace(LOCAL, min_rate_after_ms=150, min_rate_bytes_per_s=50_000)
    assert (await _fails(drip, policy)).code == "timeout"


async def test_a_slow_receiver_is_not_the_targets_fault() -> None:
    async def slow(piece: bytes) -> None:
        await asyncio.sleep(0.05)

    policy = replace(LOCAL, min_rate_after_ms=200, min_rate_bytes_per_s=10_000_000)
    response = await _get(ok(bytes(600_000)), policy, sink=slow)
    assert response.bytes_written == 600_000


async def test_a_body_that_never_ends_in_time_is_a_timeout() -> None:
    async def hang(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_raw(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n"))
        await asyncio.Event().wait()

    error = await _fails(hang, replace(LOCAL, total_timeout_ms=300))
    assert (error.code, error.source) == ("timeout", "target")


async def test_a_server_that_says_nothing_is_a_timeout() -> None:
    async def hang(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    assert (await _fails(hang, replace(LOCAL, total_timeout_ms=300))).code == "timeout"


async def test_a_body_that_never_stops_is_too_large_or_cropped() -> None:
    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 4096)
            await writer.drain()

    assert (await _fails(flood, SMALL)).code == "too-large"
    response = await _get(flood, SMALL, crop=True)
    assert (response.cropped, response.body) == (True, b"x" * 1000)
    assert response.crop_original_size is None


async def test_chunk_framing_counts_as_wire_bytes() -> None:
    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_raw(b"Transfer-Encoding: chunked"))
        while True:
            writer.write(b"1;" + b"e" * 30_000 + b"\r\nx\r\n")
            await writer.drain()

    assert (await _fails(flood, SMALL)).code == "too-large"


async def test_header_fields_without_end_are_too_large() -> None:
    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Filler: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    assert (await _fails(flood)).code == "too-large"


async def test_interim_answers_without_end_are_too_large() -> None:
    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100)
            await writer.drain()

    assert (await _fails(flood)).code == "too-large"


async def test_trailers_without_end_are_refused() -> None:
    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_raw(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n"))
        while True:
            writer.write(b"X-Filler: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    assert (await _fails(flood)).code in ("too-large", "protocol")


@pytest.mark.parametrize("count", [101, 2000])
async def test_more_than_a_hundred_fields_are_too_large(count: int) -> None:
    assert (await _fails(ok(b"", *["A: b"] * count))).code == "too-large"


async def test_one_field_of_a_megabyte_is_too_large() -> None:
    assert (await _fails(ok(b"", "A: " + "b" * MIB))).code == "too-large"


async def test_a_field_just_over_the_limit_is_too_large() -> None:
    assert (await _fails(ok(b"", "A: " + "b" * 65_536))).code == "too-large"
    assert (await _get(ok(b"", "A: " + "b" * 60_000))).status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 O\x00K\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA\xff: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: first\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused(answer: bytes) -> None:
    error = await _fails(answer, replace(LOCAL, total_timeout_ms=5_000))
    assert (error.code, error.source) == ("protocol", "target")


async def test_a_bare_newline_never_reaches_a_reason_or_value() -> None:
    response = await _get(b"HTTP/1.1 200 OK\nX-A: b\nContent-Length: 0\n\n")
    assert response.reason == "OK"
    assert response.header("x-a") == "b"


async def test_odd_bytes_in_the_head_are_escaped() -> None:
    answer = b"HTTP/1.1 200 \xfcber\r\nX-A: caf\xc3\xa9\r\nX-B: a\x7f\x1bb\r\nContent-Length: 0\r\n\r\n"
    response = await _get(answer)
    assert response.reason == "\\xfcber"
    assert response.header("x-a") == "caf\\xc3\\xa9"
    assert response.header("x-b") == "a\\x7f\\x1bb"


async def test_a_folded_field_becomes_one_line() -> None:
    response = await _get(_raw(b"X-A: one", b"   two", b"Content-Length: 0"))
    assert response.header("x-a") == "one two"


async def test_any_bytes_in_a_body_arrive_as_they_are() -> None:
    body = bytes(range(256)) * 40
    assert (await _get(ok(body, "Content-Type: text/plain; charset=utf-8"))).body == body


async def test_a_request_body_that_is_not_read_does_not_hide_the_answer() -> None:
    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply("413 Content Too Large"))
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hasty, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        response = await request("POST", f"http://127.0.0.1:{port}/", policy=LOCAL, body=bytes(100_000))
    assert response.status == 413


async def test_a_failing_sink_fails_the_request_with_its_own_error() -> None:
    async def full(piece: bytes) -> None:
        raise TimeoutError("the disk is slow")

    async with serving(ok(b"abc")) as target:
        with pytest.raises(TimeoutError, match="the disk is slow"):
            await request("GET", target.url(), policy=LOCAL, sink=full)


async def test_cancelling_a_request_closes_its_connection() -> None:
    gone = asyncio.Event()
    waiting = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        waiting.set()
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        task = asyncio.create_task(request("GET", f"http://127.0.0.1:{port}/", policy=LOCAL))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await gone.wait()


async def test_messages_hold_neither_paths_nor_queries() -> None:
    answers = by_path(a=reply("302 Found", b"", "Location: http://10.0.0.1/?token=hunter2"))
    async with serving(answers) as target:
        with pytest.raises(EgressError) as refusal:
            await request("GET", target.url("/a?key=hunter2"), policy=LOCAL)
    assert "hunter2" not in refusal.value.message
