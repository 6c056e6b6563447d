"""A stand-in for an Evolution API, with a phone that scans what it is shown.

    python -m whatsapp.standin --key a-key

The routes under /instance answer as those of version 2 do, as far as linking an account goes.
Those under /phone and /outage are the stand-in's own, for trying things out.
"""

import argparse
import json
import secrets
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from whatsapp.picture import draw, read

BODY_MAX = 1_000_000
REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 503: "Unavailable"}


class Answer(Exception):
    """An error of the service."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        error = REASONS[status]
        self.body = {"status": status, "error": error, "response": {"message": [message]}}


@dataclass(slots=True)
class Instance:
    """One account; `code` is what waits to be scanned."""

    state: str = "close"
    code: str | None = None
    count: int = 0


@dataclass(slots=True)
class Service:
    """All accounts. `outage` is how many requests are still to be answered with 503."""

    key: str
    instances: dict[str, Instance] = field(default_factory=dict)
    outage: int = 0
    log: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, key: str | None, body: bytes) -> tuple[int, Any]:
        """One request. Raises Answer."""
        parts = [unquote(part) for part in path.split("?")[0].strip("/").split("/")]
        with self.lock:
            match method, parts:
                case "POST", ["phone", "scan"]:
                    return 200, self._scan(body.decode())
                case "POST", ["outage", count]:
                    self.outage = int(count)
                    return 200, {}
                case "GET", ["log"]:
                    return 200, self.log
            self.log.append(f"{method} {path}")
            if self.outage > 0:
                self.outage -= 1
                raise Answer(503, "come back later")
            if key != self.key:
                raise Answer(401, "Unauthorized")
            return self._instance(method, parts, body)

    def _instance(self, method: str, parts: list[str], body: bytes) -> tuple[int, Any]:
        match method, parts:
            case "POST", ["instance", "create"]:
                return 201, self._create(json.loads(body))
            case "GET", ["instance", "connect", name]:
                return 200, self._connect(name)
            case "GET", ["instance", "connectionState", name]:
                return 200, {"instance": {"instanceName": name, "state": self._find(name).state}}
            case "DELETE", ["instance", "logout", name]:
                return 200, self._logout(name)
            case _:
                raise Answer(404, f"Cannot {method} /{'/'.join(parts)}")

    def _find(self, name: str) -> Instance:
        if name not in self.instances:
            raise Answer(404, f'The "{name}" instance does not exist')
        return self.instances[name]

    def _create(self, wanted: dict[str, Any]) -> dict[str, Any]:
        name = wanted["instanceName"]
        if name in self.instances:
            raise Answer(403, f'This name "{name}" is already in use.')
        self.instances[name] = Instance()
        about = {"instanceName": name, "integration": wanted["integration"], "status": "created"}
        return {"instance": about, "hash": secrets.token_hex(16).upper()}

    def _connect(self, name: str) -> dict[str, Any]:
        instance = self._find(name)
        if instance.state == "open":
            return {"instance": {"instanceName": name, "state": "open"}}
        if instance.state == "close":
            instance.state, instance.count = "connecting", instance.count + 1
            # The real one takes a moment, too: the first answer has no code in it.
            return {"count": 0}
        if instance.code is None:
            instance.code = "2@" + secrets.token_urlsafe(48)
        picture = draw(instance.code)
        return {"pairingCode": None, "code": instance.code, "base64": picture, "count": instance.count}

    def _logout(self, name: str) -> dict[str, Any]:
        instance = self._find(name)
        if instance.state == "close":
            raise Answer(400, f'The "{name}" instance is not connected')
        instance.state, instance.code = "close", None
        return {"status": "SUCCESS", "error": False, "response": {"message": "Instance logged out"}}

    def _scan(self, picture: str) -> dict[str, Any]:
        try:
            code = read(picture)
        except ValueError as error:
            raise Answer(400, "the phone sees no code") from error
        for name, instance in self.instances.items():
            if instance.state == "connecting" and instance.code == code:
                instance.state, instance.code = "open", None
                return {"linked": name}
        raise Answer(400, "the code is not valid, or no longer")


class StandIn(ThreadingHTTPServer):
    """The service on this port of the machine itself; 0 takes a free one."""

    def __init__(self, service: Service, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.service = service


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: StandIn

    def _serve(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY_MAX))
        key = self.headers.get("apikey")
        try:
            status, said = self.server.service.answer(self.command, self.path, key, body)
        except Answer as error:
            status, said = error.status, error.body
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Its own log says enough."""


def main() -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--key", required=True)
    chosen = parser.parse_args()
    with StandIn(Service(chosen.key), chosen.port) as server:
        sys.stdout.write(f"the stand-in listens on http://127.0.0.1:{server.server_port}\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
