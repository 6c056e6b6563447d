"""An agent and a client written from the text of seed 000 alone, with the standard library."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any


def ask(base: str, method: str, path: str, key: str, body: Any = None) -> tuple[int, bytes]:
    """Status and body of one request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data=data, method=method)
    request.add_header("Authorization", f"Bearer {key}")
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


class SeedAgent:
    """Register, poll, download, print, report; `printed` is its paper."""

    def __init__(self, base: str, key: str, name: str, printers: list[dict[str, Any]]) -> None:
        self.base, self.key, self.name, self.printers = base, key, name, printers
        self.printer_ids: list[str] = []
        self.printed: list[tuple[str, str, bytes]] = []

    def register(self) -> str:
        status, body = ask(
            self.base, "POST", "/agent/register", self.key, {"name": self.name, "printers": self.printers}
        )
        if status != 200:
            raise PermissionError(status)
        answer = json.loads(body)
        self.printer_ids = answer["printer_ids"]
        return str(answer["computer_id"])

    def once(self, error: str | None = None) -> bool:
        """One turn of the loop; whether there was a job."""
        status, body = ask(self.base, "GET", "/agent/jobs", self.key)
        if status == 204:
            return False
        job = json.loads(body)
        status, payload = ask(self.base, "GET", f"/agent/jobs/{job['job_id']}/payload", self.key)
        if status != 200:
            raise FileNotFoundError(status)
        self.printed.append((job["printer_id"], job["mode"], payload))
        outcome = {"ok": True} if error is None else {"ok": False, "error": error}
        status, _ = ask(self.base, "POST", f"/agent/jobs/{job['job_id']}/result", self.key, outcome)
        if status != 200:
            raise RuntimeError(status)
        return True


class SeedClient:
    """Submit and ask."""

    def __init__(self, base: str, token: str) -> None:
        self.base, self.token = base, token

    def submit(self, printer_id: str, kind: str, content: bytes) -> str:
        encoded = base64.b64encode(content).decode()
        body = {"printer_id": printer_id, "type": kind, "content": encoded, "url": None, "json": None}
        status, answer = ask(self.base, "POST", "/jobs", self.token, body)
        if status not in (200, 201):
            raise ValueError(status, answer)
        return str(json.loads(answer)["job_id"])

    def status(self, job_id: str) -> dict[str, Any]:
        status, answer = ask(self.base, "GET", f"/jobs/{job_id}", self.token)
        if status != 200:
            raise ValueError(status)
        found: dict[str, Any] = json.loads(answer)
        return found

    def printers(self) -> Any:
        return json.loads(ask(self.base, "GET", "/printers", self.token)[1])
