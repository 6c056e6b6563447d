"""Bytes on a socket, for requests that no HTTP library would send."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.server.serving import ROOT, Reply


@contextmanager
def connected(port: int, timeout: float = 10) -> Iterator[socket.socket]:
    """A connection to the server."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as peer:
        yield peer


def head(method: str, path: str, *lines: str, key: str = ROOT) -> bytes:
    """A request's head without the empty line that ends it."""
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *lines]
    ).encode("latin-1")


def receive(peer: socket.socket) -> bytes:
    """Everything until the server closes or its reply is whole."""
    got = b""
    while True:
        try:
            more = peer.recv(65536)
        except ConnectionResetError:
            return got
        got += more
        if not more or _whole(got):
            return got


def _whole(got: bytes) -> bool:
    top, found, body = got.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in top.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return len(body) >= int(value)
    return True


def reply_of(got: bytes) -> Reply:
    """The reply in what was received."""
    top, _, body = got.partition(b"\r\n\r\n")
    status, *lines = top.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Reply(status=int(status.split(" ")[1]), headers=headers, body=body)


def exchange(port: int, *parts: bytes) -> Reply:
    """Send the parts and read one reply."""
    with connected(port) as peer:
        for part in parts:
            try:
                peer.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                break
        return reply_of(receive(peer))


def json_request(method: str, path: str, message: object, **more: str) -> bytes:
    """A whole request with a JSON body."""
    body = json.dumps(message).encode()
    return head(method, path, f"Content-Length: {len(body)}", **more) + b"\r\n\r\n" + body
