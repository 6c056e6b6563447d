"""A raw HTTP server that answers whatever a test wants, byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from farhand.egress import EgressPolicy

LOCAL = EgressPolicy(loopback=True, ports=None)

Answer = Callable[["Seen", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came in."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass(slots=True)
class Target:
    """A running server: where it listens, what it was asked, how many connections it had."""

    port: int
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:])]
    length = next((int(value) for name, value in pairs if name.lower() == "content-length"), 0)
    return Seen(head[0], pairs, await reader.readexactly(length))


@asynccontextmanager
async def serving(
    answer: Answer | bytes, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Target]:
    """Serve until the block ends; bytes are sent as they are and the connection closed."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        target.connections += 1
        try:
            seen = await _read(reader)
            target.requests.append(seen)
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(seen, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(handle, host, 0, ssl=tls)
    target = Target(server.sockets[0].getsockname()[1])
    try:
        yield target
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def by_path(**answers: bytes) -> Answer:
    """Answers by the first path segment."""

    async def answer(seen: Seen, writer: asyncio.StreamWriter) -> None:
        name = seen.line.split(" ")[1].lstrip("/").partition("?")[0]
        writer.write(answers[name])
        await writer.drain()

    return answer


def ok(body: bytes, *headers: str) -> bytes:
    """A plain 200 with its length."""
    return reply("200 OK", body, *headers)


def reply(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A well-formed answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


class Names:
    """A resolver over a table; remembers what it was asked."""

    def __init__(self, **table: list[str]) -> None:
        self._table = {name.replace("_", "."): answers for name, answers in table.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        return self._table.get(host, [])


class Collected:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.largest = 0

    async def __call__(self, piece: bytes) -> None:
        self.body += piece
        self.largest = max(self.largest, len(piece))
