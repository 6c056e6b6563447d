"""The real server and the real agent as processes, for drills."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.peers.printers import free_port, wait_until

TOKEN = "a root token for drills"
_CLI = "from farhand.cli.main import main; main()"


def _clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}


class Process:
    """A `farhand` command whose output lies in a file."""

    def __init__(self, arguments: list[str], log: Path, **environment: str) -> None:
        self._arguments, self.log = arguments, log
        self._environment = _clean_environment() | environment
        self.start()

    def start(self) -> None:
        """Starts it (again)."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CLI, *self._arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def said(self, text: str, count: int = 1) -> bool:
        """Whether its output has this text so often."""
        return self.log.read_text(errors="replace").count(text) >= count

    def wait_for(self, text: str, count: int = 1, seconds: float = 20) -> None:
        """Until it has said this so often."""

        def heard() -> bool:
            assert self.process.poll() is None, f"it ended:\n{self.tail()}"
            return self.said(text, count)

        wait_until(heard, f"{text!r} in:\n{self.tail()}", seconds)

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def terminate(self, seconds: float = 20) -> int:
        """SIGTERM, and what it exits with."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


class Server(Process):
    """A real server on SQLite; `lease_ms` is that of both print kinds."""

    def __init__(self, folder: Path, *, lease_ms: int = 60_000, settings: str = "") -> None:
        folder.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        lines = [
            "[server]",
            f"port = {self.port}",
            f'data = "{folder}"',
            "sweep_ms = 100",
            settings,
            '[policy."print.raw"]',
            f"lease_ms = {lease_ms}",
            "backoff_base_ms = 100",
            '[policy."print.pdf"]',
            f"lease_ms = {lease_ms}",
            "backoff_base_ms = 100",
        ]
        config = folder / "farhand.toml"
        config.write_text("\n".join(lines) + "\n")
        super().__init__(["serve", "--config", str(config)], folder / "log", FARHAND_TOKEN=TOKEN)

    def start(self) -> None:
        """Starts it (again) and waits until it answers."""
        super().start()
        wait_until(self._healthy, f"the server answers:\n{self.tail()}")

    def _healthy(self) -> bool:
        assert self.process.poll() is None, f"it ended:\n{self.tail()}"
        try:
            return self.call("GET", "/health")["ok"] is True
        except (OSError, http.client.HTTPException):
            return False

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One request with the root token; AssertionError for what is no success."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as reply:
                answer = reply.read()
        assert reply.status in (200, 201), f"{method} {path}: {reply.status} {answer.decode()}"
        return json.loads(answer)

    def printer_id(self, name: str) -> str:
        """Waits for a printer of this name that is there."""
        found: list[str] = []

        def there() -> bool:
            items = self.call("GET", "/printers")["items"]
            found[:] = [item["id"] for item in items if item["name"] == name and item["gone_at"] is None]
            return bool(found)

        wait_until(there, f"printer {name}")
        return found[0]

    def submit(self, printer: str, content: bytes, kind: str = "raw_base64", **more: object) -> str:
        """A print job's id."""
        body = {
            "printer_id": self.printer_id(printer),
            "type": kind,
            "content": b64encode(content).decode(),
            **more,
        }
        return str(self.call("POST", "/jobs", body)["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        """A job as it is now."""
        return dict(self.call("GET", f"/jobs/{job_id}"))

    def wait_for_job(self, job_id: str, state: str, seconds: float = 25, **fields: object) -> dict[str, Any]:
        """The job, once it is in this state and has these fields."""
        deadline = time.monotonic() + seconds
        while True:
            job = self.job(job_id)
            if job["state"] == state and all(job[key] == value for key, value in fields.items()):
                return job
            problem = f"not {state} {fields} but {job}\n{self.trail(job_id)}"
            assert not job["final"] or job["state"] == state, problem
            assert time.monotonic() < deadline, problem
            time.sleep(0.02)

    def trail(self, job_id: str) -> list[str]:
        """What happened to a job, in order."""
        items = self.call("GET", f"/jobs/{job_id}/events")["items"]
        return [f"{item['verb']} {item['to']} {item['reason'] or ''}".strip() for item in items]


class RealAgent(Process):
    """A real agent; `printing` is the inside of its table."""

    def __init__(self, folder: Path, server: str, printing: str) -> None:
        folder.mkdir(exist_ok=True)
        self.data = folder / "data"
        lines = [
            f'server = "{server}"',
            'name = "drill"',
            f'data = "{self.data}"',
            "describe_every_ms = 300",
            "[printing]",
            printing,
        ]
        config = folder / "agent.toml"
        config.write_text("\n".join(lines) + "\n")
        super().__init__(["agent", "run", "--config", str(config)], folder / "log")

    def suspend(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)
