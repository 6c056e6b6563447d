"""A web server that payload URLs point to; it remembers what it was asked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class Target:
    """Answers every path with `status` and `body`, once `open` is set."""

    port: int = 0
    status: int = 200
    body: bytes = b"a document"
    asked: list[Asked] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/label") -> str:
        """The address of a path here."""
        return f"http://127.0.0.1:{self.port}{path}"

    def count(self, method: str) -> int:
        """How many requests came by this method."""
        return sum(1 for entry in self.asked if entry.method == method)


def _handler(target: Target) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(method=self.command, path=self.path, headers=headers, body=self.rfile.read(length))
            target.asked.append(asked)
            target.arrived.set()
            target.open.wait(timeout=20)
            self.send_response(target.status)
            self.send_header("Content-Length", str(len(target.body)))
            self.end_headers()
            self.wfile.write(target.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def listening() -> Iterator[Target]:
    """A target on a free port of this machine."""
    target = Target()
    target.open.set()
    web = ThreadingHTTPServer(("127.0.0.1", 0), _handler(target))
    web.daemon_threads = True
    target.port = web.server_address[1]
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield target
    finally:
        target.open.set()
        web.shutdown()
        web.server_close()
        thread.join(timeout=5)
