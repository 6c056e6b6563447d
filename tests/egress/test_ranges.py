"""One range: verified when the target cuts it, cut here when it does not."""

import gzip
from dataclasses import replace
from typing import Any

import pytest

from farhand.egress import EgressError, EgressPolicy, RangeResult, Response, request
from farhand.egress.ranges import parse_range
from tests.egress.targets import LOCAL, Collected, ok, reply, serving

WHOLE = bytes(range(100))


async def _get(answer: bytes, wanted: str, policy: EgressPolicy = LOCAL, **more: Any) -> Response:
    async with serving(answer) as target:
        response = await request(
            "GET",
            target.url(),
            policy=policy,
            range=wanted,
            **more,
        )
    assert target.requests[0].header("range") == wanted
    assert target.requests[0].header("accept-encoding") == "identity"
    return response


def _part(first: int, last: int, total: str = "100", body: bytes | None = None) -> bytes:
    field = f"Content-Range: bytes {first}-{last}/{total}"
    return reply("206 Partial Content", WHOLE[first : last + 1] if body is None else body, field)


@pytest.mark.parametrize(
    ("wanted", "first", "last", "total"),
    [
        ("bytes=10-19", 10, 19, "100"),
        ("bytes=10-19", 10, 19, "*"),
        ("bytes=90-", 90, 99, "100"),
        ("bytes=90-500", 90, 99, "100"),
        ("bytes=-5", 95, 99, "100"),
        ("bytes=-500", 0, 99, "100"),
        ("bytes=-5", 95, 99, "*"),
    ],
)
async def test_the_part_that_was_asked_for_is_accepted(
    wanted: str, first: int, last: int, total: str
) -> None:
    response = await _get(_part(first, last, total), wanted)
    assert response.body == WHOLE[first : last + 1]
    size = None if total == "*" else 100
    assert response.range == RangeResult(honoured=True, first=first, last=last, total=size)


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ("bytes=10-19", _part(0, 9)),
        ("bytes=10-19", _part(10, 20)),
        ("bytes=10-19", _part(11, 19)),
        ("bytes=-5", _part(0, 4)),
        ("bytes=-5", _part(94, 99)),
        ("bytes=-5", _part(90, 99, "*")),
        ("bytes=10-19", _part(10, 19, "15")),
        ("bytes=10-19", _part(10, 19, body=b"short")),
        ("bytes=10-19", reply("206 Partial Content", b"x" * 10)),
        ("bytes=10-19", reply("206 Partial Content", b"x" * 10, "Content-Range: bytes 10-19")),
        ("bytes=10-19", reply("206 Partial Content", b"x" * 10, "Content-Range: lines 10-19/100")),
        (
            "bytes=10-19",
            reply(
                "206 Partial Content",
                b"x" * 10,
                "Content-Range: bytes 10-19/100",
                "Content-Range: bytes 0-9/100",
            ),
        ),
        (
            "bytes=10-19",
            reply(
                "206 Partial Content",
                b"--b\r\n",
                "Content-Type: multipart/byteranges; boundary=b",
            ),
        ),
        (
            "bytes=0-9",
            reply(
                "206 Partial Content",
                gzip.compress(b"x" * 10, mtime=0),
                "Content-Range: bytes 0-9/100",
                "Content-Encoding: gzip",
            ),
        ),
        (
            "bytes=0-9",
            b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/100\r\n"
            b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 10, mtime=0),
        ),
        (
            "bytes=10-19",
            b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-19/100\r\n\r\ntoo much to be it",
        ),
    ],
)
async def test_a_part_that_is_not_what_was_asked_for_is_refused(wanted: str, answer: bytes) -> None:
    with pytest.raises(EgressError) as refusal:
        await _get(answer, wanted)
    assert (refusal.value.code, refusal.value.source) == ("protocol", "target")


async def test_a_part_that_nobody_asked_for_is_refused() -> None:
    async with serving(_part(0, 9)) as target:
        with pytest.raises(EgressError, match="the whole was asked for"):
            await request("GET", target.url(), policy=LOCAL)


@pytest.mark.parametrize(
    ("wanted", "first", "last", "total"),
    [
        ("bytes=0-0", 0, 0, None),
        ("bytes=10-19", 10, 19, None),
        ("bytes=90-", 90, 99, 100),
        ("bytes=90-500", 90, 99, 100),
        ("bytes=-5", 95, 99, 100),
        ("bytes=-100", 0, 99, 100),
        ("bytes=-500", 0, 99, 100),
    ],
)
async def test_a_whole_answer_is_cut_here(wanted: str, first: int, last: int, total: int | None) -> None:
    sink = Collected()
    response = await _get(ok(WHOLE), wanted, sink=sink)
    assert bytes(sink.body) == WHOLE[first : last + 1]
    assert response.range == RangeResult(honoured=False, first=first, last=last, total=total)
    assert response.bytes_written == last - first + 1


async def test_a_range_past_the_end_of_a_whole_answer_is_empty() -> None:
    response = await _get(ok(WHOLE), "bytes=100-")
    assert response.body == b""
    assert response.range == RangeResult(honoured=False, first=None, last=None, total=100)


async def test_cutting_counts_what_is_delivered_and_bounds_what_is_read() -> None:
    big = bytes(1_000_000)
    policy = replace(LOCAL, decoded_bytes_max=100, wire_bytes_max=2_000_000)
    assert (await _get(ok(big), "bytes=500000-500099", policy)).bytes_written == 100
    with pytest.raises(EgressError) as refusal:
        await _get(ok(big), "bytes=500000-500100", policy)
    assert refusal.value.code == "too-large"
    with pytest.raises(EgressError) as refusal:
        await _get(ok(big), "bytes=-50", replace(policy, wire_bytes_max=100_000))
    assert refusal.value.code == "too-large"


async def test_a_cut_that_is_cropped_says_what_was_delivered() -> None:
    policy = replace(LOCAL, decoded_bytes_max=20)
    response = await _get(ok(WHOLE), "bytes=10-", policy, crop=True)
    assert (response.cropped, response.body) == (True, WHOLE[10:30])
    assert response.range == RangeResult(honoured=False, first=10, last=29, total=None)
    assert response.crop_original_size is None


async def test_an_unsatisfiable_range_reports_the_size() -> None:
    answer = reply("416 Range Not Satisfiable", b"", "Content-Range: bytes */100")
    response = await _get(answer, "bytes=100-")
    assert response.status == 416
    assert response.range == RangeResult(honoured=True, first=None, last=None, total=100)


async def test_an_error_answer_to_a_range_is_not_cut() -> None:
    response = await _get(reply("404 Not Found", b"no such file"), "bytes=3-4")
    assert (response.body, response.range) == (b"no such file", None)


@pytest.mark.parametrize(
    "text",
    [
        "", "0-1", "bytes=", "bytes=-", "bytes=-0", "bytes=5-4", "bytes=a-b", "bytes=0-1,3-4",
        "lines=0-1", "bytes = 0-1", "bytes=0-1\r\n", "bytes=-1001", "bytes=٣-٤", "bytes=" + "9" * 20 + "-",
    ],
)  # fmt: skip
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(EgressError) as refusal:
        parse_range(text, bytes_max=1000)
    assert (refusal.value.code, refusal.value.source) == ("bad-range", "policy")
