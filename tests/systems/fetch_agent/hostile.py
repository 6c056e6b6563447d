"""Targets that mean harm, each with the code that a request to it has to end with.

One server answers by path, so that a whole agent can be sent through all of them.
"""

import asyncio
import gzip
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.egress.targets import Seen, Target, ok, reply, serving

MIB = 1024 * 1024
BOMB = gzip.compress(bytes(64 * MIB), 9)
METADATA = "http://169.254.169.254/latest/meta-data/"

Play = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def says(answer: bytes) -> Play:
    """Answers with these bytes and hangs up."""

    async def play(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return play


def without_end(start: bytes, more: bytes) -> Play:
    """Goes on for as long as somebody listens."""

    async def play(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more)
            await writer.drain()

    return play


def silent_after(start: bytes) -> Play:
    """Says that, and then neither more nor goodbye."""

    async def play(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        await asyncio.Event().wait()

    return play


def dripping(start: bytes) -> Play:
    """One byte every few milliseconds: never idle, never done."""

    async def play(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    return play


async def next_redirect(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """A chain without an end."""
    path = seen.line.split(" ")[1]
    writer.write(reply("302 Found", b"", f"Location: {path}/on"))
    await writer.drain()


@dataclass(frozen=True, slots=True)
class Case:
    """What the target does, what is asked of it, and the code; None when there is a result."""

    name: str
    play: Play
    code: str | None
    request: dict[str, Any] = field(default_factory=dict)


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_LENGTH = b"Content-Length: %d\r\n"
_QUICK = {"timeoutMs": 1000}

PART = "206 Partial Content"

CASES = (
    Case("metadata", says(reply("302 Found", b"", f"Location: {METADATA}")), "blocked-address"),
    Case("mapped", says(reply("302 Found", b"", "Location: http://[::ffff:a9fe:1]/")), "blocked-address"),
    Case("private", says(reply("307 Moved", b"", "Location: http://10.0.0.1/")), "blocked-address"),
    Case("octal", says(reply("302 Found", b"", "Location: http://0251.0376.0251.0376/")), "bad-url"),
    Case("other-scheme", says(reply("302 Found", b"", "Location: file:///etc/passwd")), "bad-url"),
    Case("two-places", says(reply("302 Found", b"", "Location: /a", "Location: /b")), "protocol"),
    Case("chain", next_redirect, "too-many-redirects"),
    Case("bomb", says(ok(BOMB, "Content-Encoding: gzip")), "decompression-limit"),
    Case("codings", says(ok(gzip.compress(BOMB), "Content-Encoding: gzip, gzip")), "content-coding"),
    Case("damaged", says(ok(b"\x1f\x8bnonsense", "Content-Encoding: gzip")), "content-coding"),
    Case("length-too-long", says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), "protocol"),
    Case("two-lengths", says(_OK + _LENGTH % 2 + _LENGTH % 3 + b"\r\nabc"), "protocol"),
    Case("te-and-cl", says(_CHUNKED[:-2] + _LENGTH % 3 + b"\r\n0\r\n\r\n"), "protocol"),
    Case("bad-chunk", says(_CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"), "protocol"),
    Case("drip", dripping(_CHUNKED + b"fffff\r\n"), "timeout", _QUICK),
    Case("drip-in-head", dripping(b"HTTP/1.1 200 OK\r\nX: "), "timeout", _QUICK),
    Case("never-closing", silent_after(b"HTTP/1.1 200 OK\r\n\r\nabc"), "timeout", _QUICK),
    Case("says-nothing", silent_after(b""), "timeout", _QUICK),
    Case("head-without-end", without_end(_OK, b"X: " + b"y" * 1000 + b"\r\n"), "too-large"),
    Case("one-line-without-end", without_end(b"HTTP/1.1 200 ", b"y" * 65536), "too-large"),
    Case("interim-flood", without_end(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100), "too-large"),
    Case("many-fields", says(ok(b"", *(f"X-{n}: 1" for n in range(200)))), "too-large"),
    Case("crlf-in-reason", says(b"HTTP/1.1 200 OK\rX: y\nZ: 1\r\n\r\n"), "protocol"),
    Case("not-http", says(b"SSH-2.0-OpenSSH_9.2\r\n"), "protocol"),
    Case("switch", says(b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "protocol"),
    Case("hangs-up", says(b""), "protocol"),
    Case(
        "wrong-part",
        says(reply(PART, b"abc", "Content-Range: bytes 5-7/10")),
        "protocol",
        {"rangeRequest": "bytes=0-2"},
    ),
    Case(
        "several-parts",
        says(reply(PART, b"--x--", "Content-Type: multipart/byteranges; boundary=x")),
        "protocol",
        {"rangeRequest": "bytes=0-2"},
    ),
    Case("part-unasked", says(reply(PART, b"abc", "Content-Range: bytes 0-2/9")), "protocol"),
    Case("without-end", without_end(b"HTTP/1.1 200 OK\r\n\r\n", b"\x80" * 65536), None),
    Case("huge-length", without_end(_OK + _LENGTH % 999_999_999_999 + b"\r\n", b"y" * 65536), None),
    Case("folded", says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\r\n  b\r\n\r\nok"), None),
    Case("nul-and-bytes", says(ok(b"a\x00\xff", "Content-Type: text/plain")), None),
)  # fmt: skip


async def _answer(seen: Seen, writer: asyncio.StreamWriter) -> None:
    name = seen.line.split(" ")[1].lstrip("/").partition("/")[0].partition("?")[0]
    play = {case.name: case.play for case in CASES}.get(name)
    if play is None:
        writer.write(ok(f"{seen.line.split(' ')[0]} {name}".encode(), "Content-Type: text/plain"))
        await writer.drain()
        return
    await play(seen, writer)


answer = _answer


@contextmanager
def in_thread(play: Play = _answer) -> Iterator[Target]:
    """The targets on a loop of their own, for tests that block."""
    ready: list[Target] = []
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        async with serving(play) as target:
            ready.append(target)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), name="targets")
    thread.start()
    assert started.wait(15)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(15)
        loop.close()
