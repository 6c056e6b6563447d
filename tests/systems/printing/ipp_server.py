"""A small IPP server for tests: it answers with our encoder, or with whatever a test wants."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from farhand.systems.printing.drivers.ipp_values import Message
from farhand.systems.printing.drivers.ipp_wire import decode_prefix, encode

Answer = Callable[[Message, bytes], Message | Awaitable[Message]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """Where it listens and what it was asked."""

    port: int
    heads: list[str] = field(default_factory=list)
    asked: list[tuple[Message, bytes]] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"ipp://127.0.0.1:{self.port}/ipp/print"


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, bytes]:
    """Head and body of an HTTP request, with its 100 given."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    names = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head.split("\r\n")}
    if "expect" in names:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "content-length" in names:
        return head, await reader.readexactly(int(names["content-length"]))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return head, body


def http(body: bytes, *, status: str = "200 OK", extra: str = "") -> bytes:
    """A reply with a length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/ipp\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[Server]:
    """A TCP server whose every connection is the test's."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Server(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Server]:
    """A server that decodes each request and encodes the test's answer."""
    asked: list[tuple[Message, bytes]] = []
    heads: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader, writer)
            message, offset = decode_prefix(body)
            heads.append(head)
            asked.append((message, body[offset:]))
            reply = answer(message, body[offset:])
            writer.write(http(encode(await reply if inspect.isawaitable(reply) else reply)))
            await writer.drain()

    async with talking(talk) as server:
        yield Server(server.port, heads, asked)
