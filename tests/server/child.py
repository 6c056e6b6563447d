"""A server as a process of its own, for what ends processes: signals, restarts, two at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.server.serving import ROOT, Reply, call, until

PROGRAM = """
import json, logging, sys
from pathlib import Path
from farhand.cli.compose import run
from farhand.cli.logs import start_log
from farhand.server.config import load
from farhand.systems import find_systems, load as resolve
from farhand.systems.printing import SYSTEM
wanted = json.loads(sys.argv[1])
wanted["data"] = Path(wanted["data"])
wanted["payload_ports"] = ()
start_log("debug")
systems = find_systems() if "sections" in wanted else (SYSTEM,)
run(load(None, wanted), systems=systems, load=resolve, announce=lambda line: print(line, flush=True))
"""


@dataclass(slots=True, kw_only=True)
class Child:
    """A running server process."""

    process: "subprocess.Popen[bytes]"
    port: int
    said: list[str] = field(default_factory=list)

    def call(self, method: str, path: str, *, key: str | None = ROOT, **more: Any) -> Reply:
        """One request, by default with the root token."""
        return call(self.port, method, path, key=key, **more)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(timeout=10)

    def stop(self) -> int:
        """End it as an init system would; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextmanager
def process(
    data: Path, *, log: Path, token: str | None = ROOT, port: int = 0, **more: Any
) -> Iterator[Child]:
    """A server process, listening."""
    wanted = {"data": str(data), "port": port, "payload_loopback": True, "sweep_ms": 50, **more}
    environment = {name: value for name, value in os.environ.items() if name != "FARHAND_TOKEN"}
    if token is not None:
        environment["FARHAND_TOKEN"] = token
    with log.open("ab") as errors:
        running = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(wanted)],
            stdout=subprocess.PIPE, stderr=errors, env=environment,
        )  # fmt: skip
    said: list[str] = []

    def read() -> None:
        assert running.stdout is not None
        with running.stdout:
            for line in running.stdout:
                said.append(line.decode().strip())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until(
            "the server listens",
            lambda: running.poll() is not None or any("listens on" in line for line in said),
            deadline_s=60,
        )
        if running.poll() is not None:
            raise RuntimeError(log.read_text())
        found = next(line for line in said if "listens on" in line)
        yield Child(process=running, port=int(found.rsplit(":", 1)[1]), said=said)
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        running.wait(timeout=10)
        reader.join(timeout=10)
