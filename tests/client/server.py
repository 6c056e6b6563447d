"""A real server for tests of what talks to it, and an agent that is moved by hand."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

FARHAND = Path(sys.executable).with_name("farhand")


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """An environment without the settings and the home of whoever runs the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FARHAND_", "XDG_", "COLUMNS", "NO_COLOR", "FORCE_COLOR"))
    }
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", **more}


class FarhandServer:
    """`farhand serve` as a process of its own, on SQLite and a free port."""

    def __init__(self, folder: Path, settings: str | None = None) -> None:
        self.data = folder / "data"
        self._options: list[str | Path] = []
        if settings is not None:
            (folder / "farhand.toml").write_text(settings)
            self._options = ["--config", folder / "farhand.toml"]
        self.port = 0
        self._home = folder
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The root token that it made for itself."""
        return (self.data / "root-token").read_text().strip()

    def start(self) -> None:
        """Starts it (again), on the port that it had."""
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [FARHAND, "serve", "--port", str(self.port), "--data", self.data, *self._options],
                env=clean_environment(self._home),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        found = re.search(r"listens on http://127\.0\.0\.1:(\d+)", read_line(self._process))
        assert found is not None, (self._home / "log").read_text()
        self.port = int(found.group(1))

    def kill(self) -> None:
        """Ends it without a chance to answer anybody."""
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """Ends it in order."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(20) == 0, (self._home / "log").read_text()
        self._close()

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()


def read_line(process: "subprocess.Popen[str]", seconds: float = 20) -> str:
    """The next line of a process's output.

    Read byte by byte: what a buffer has taken beyond the line, `select` would not know of.
    """
    assert process.stdout is not None
    output, line, end = process.stdout.fileno(), bytearray(), time.monotonic() + seconds
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([output], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{process.args}: no output within {seconds} s but {bytes(line)!r}"
        byte = os.read(output, 1)
        if not byte:
            break
        line += byte
    return line.decode()


@contextmanager
def farhand_server(folder: Path, settings: str | None = None) -> Iterator[FarhandServer]:
    """A server that is gone afterwards; `settings` is its farhand.toml."""
    server = FarhandServer(folder, settings)
    try:
        yield server
    finally:
        server.stop()


class HandAgent:
    """An agent that does what the test tells it, over the real wire (dialect of seed 000)."""

    def __init__(self, url: str, name: str, printers: list[dict[str, Any]], key: str | None = None) -> None:
        self.name = name
        key = key or f"key-of-agent-{name}-{'x' * 16}"
        self._http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30)
        self.reply = self._http.post("/agent/register", json={"name": name, "printers": printers})
        reply = self.reply.json()
        self.printer_ids: list[str] = reply.get("printer_ids", [])
        self.id: str = reply.get("computer_id", "")

    def claim(self) -> str:
        """Takes the next job; its id."""
        reply = self._http.get("/agent/jobs", headers={"Prefer": "wait=10"})
        assert reply.status_code == 200, reply.text
        return reply.json()["job_id"]

    def fetch(self, job_id: str) -> bytes:
        """The job's bytes, which for this dialect is the start."""
        reply = self._http.get(f"/agent/jobs/{job_id}/payload")
        assert reply.status_code == 200, reply.text
        return reply.content

    def report(self, job_id: str, **result: Any) -> None:
        """Reports how it ended."""
        reply = self._http.post(f"/agent/jobs/{job_id}/result", json=result)
        assert reply.status_code == 200, reply.text

    def do(self, **result: Any) -> str:
        """Takes one job and ends it so; its id."""
        job_id = self.claim()
        self.fetch(job_id)
        self.report(job_id, **result)
        return job_id

    def close(self) -> None:
        """Hangs up."""
        self._http.close()


def wait_until(holds: Any, what: str, seconds: float = 20) -> None:
    """Polls a condition; AssertionError naming `what` after the deadline."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
