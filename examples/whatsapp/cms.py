"""A tiny CMS: one page with a button, and behind it the issuer's side of the command queue.

    FARHAND_KEY=… python -m whatsapp.cms --server http://127.0.0.1:8631 --agent shop

It never calls the agent and does not know where it is: it writes commands down and waits.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from farhand.client import ApiError, Client, Command, CommandOpen
from farhand.model.errors import FarhandError

FOLDER = Path(__file__).resolve().parent
WAIT_MS = 20_000
BODY_MAX = 10_000
PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)


class Desk:
    """What the page's buttons do. `connecting` is the command whose code is on the screen."""

    def __init__(self, farhand: Client, agent: str) -> None:
        self._farhand = farhand
        self._agent = agent
        self._lock = threading.Lock()
        self._connecting: str | None = None

    def connect(self, click: str) -> dict[str, Any]:
        """Somebody pressed the button; pressed twice, `click` makes it one command."""
        command = self._issue("whatsapp.connect", click)
        with self._lock:
            self._connecting = command
        return {"command": command}

    def code(self) -> dict[str, Any]:
        """What became of it, awaited at the server for a while: the code, once it is there."""
        with self._lock:
            command = self._connecting
        if command is None:
            return {"status": "none"}
        seen = self._wait(command)
        result: dict[str, Any] = seen.result or {}
        return {
            "status": seen.status,
            "state": result.get("state"),
            "qr": result.get("qr"),
            "why": seen.error or seen.reason,
        }

    def linked(self) -> dict[str, Any]:
        """Whether the phone has scanned it. Then the code has served its purpose."""
        state = self._state("whatsapp.status")
        if state == "open":
            with self._lock:
                command, self._connecting = self._connecting, None
            if command is not None:
                self._farhand.ack_command(command)
        return {"state": state}

    def disconnect(self) -> dict[str, Any]:
        """Ends the link."""
        return {"state": self._state("whatsapp.disconnect")}

    def _state(self, type: str) -> str | None:
        seen = self._wait(self._issue(type))
        return (seen.result or {}).get("state") if seen.status == "completed" else None

    def _issue(self, type: str, key: str | None = None) -> str:
        """The command's UUID; one that is live already is as good."""
        try:
            return self._farhand.issue_command(type, self._agent, idempotency_key=key).uuid
        except ApiError as error:
            if error.problem.code != "active-conflict":
                raise
            return str(error.problem.extra["uuid"])

    def _wait(self, command: str) -> Command:
        try:
            return self._farhand.wait_command(command, timeout_ms=WAIT_MS)
        except CommandOpen:
            return self._farhand.command(command)


class Cms(ThreadingHTTPServer):
    """The CMS on this port of the machine itself; 0 takes a free one."""

    def __init__(self, desk: Desk, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.buttons: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "/connect": lambda body: desk.connect(str(body["click"])[:100]),
            "/code": lambda body: desk.code(),
            "/linked": lambda body: desk.linked(),
            "/disconnect": lambda body: desk.disconnect(),
        }


class Handler(BaseHTTPRequestHandler):
    """One request of a browser."""

    protocol_version = "HTTP/1.1"
    server: Cms

    def do_GET(self) -> None:
        """The page and what belongs to it."""
        if self.path not in PAGES:
            self._say(404, b"not found", "text/plain")
            return
        name, kind = PAGES[self.path]
        self._say(200, (FOLDER / name).read_bytes(), kind)

    def do_POST(self) -> None:
        """A button."""
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY_MAX))
        # A page of another site can send this request only without a JSON type.
        if self.path not in self.server.buttons or self.headers.get("content-type") != "application/json":
            self._say(404, b"not found", "text/plain")
            return
        try:
            said = self.server.buttons[self.path](json.loads(body))
        except FarhandError as error:
            said = {"status": "failed", "why": error.message}
        except (ValueError, KeyError, TypeError):
            self._say(400, b"that cannot be read", "text/plain")
            return
        self._say(200, json.dumps(said).encode(), "application/json")

    def _say(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what passes here is not for a log."""


def main() -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="http://127.0.0.1:8631")
    parser.add_argument("--agent", default="shop")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args()
    with (
        Client(chosen.server, os.environ["FARHAND_KEY"]) as farhand,
        Cms(Desk(farhand, chosen.agent), chosen.port) as server,
    ):
        sys.stdout.write(f"the CMS listens on http://127.0.0.1:{server.server_port}\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
