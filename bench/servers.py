"""Starting and stopping the servers under measurement, each on core 0 with its own data folder and log."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.proc import pin

ROOT = Path(__file__).resolve().parent.parent
READY_S = 30
STOP_S = 15


class NotRunning(Exception):
    """A server that did not start; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How to start one design. `{port}` and `{data}` in the command are filled in."""

    name: str
    command: tuple[str, ...]


FLOOR = Variant(name="floor", command=(sys.executable, "-m", "bench.floor", "--port", "{port}"))
SEED = Variant(
    name="seed design",
    command=(sys.executable, "-m", "bench.seed_design", "--port", "{port}", "--data", "{data}"),
)


def product(database: str | None = None) -> Variant:
    """Farhand itself, from the environment that runs the bench; on SQLite unless a database is given."""
    farhand = str(Path(sys.executable).parent / "farhand")
    command = (farhand, "serve", "--host", "127.0.0.1", "--port", "{port}", "--data", "{data}")
    return Variant(name="farhand", command=(*command, "--database", database) if database else command)


@dataclass(slots=True, kw_only=True)
class Server:
    """A running server. `token` is its root token."""

    variant: Variant
    data: Path
    token: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise NotRunning(f"{self.variant.name} was stopped")
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.data.with_suffix(".log")

    def start(self) -> None:
        """Start and wait until `/health` answers. Raises NotRunning."""
        self.port = free_port()
        self.data.mkdir(parents=True, exist_ok=True)
        command = [part.format(port=self.port, data=self.data) for part in self.variant.command]
        environment = {**os.environ, "FARHAND_TOKEN": self.token}
        with self.log.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=lambda: pin(0),
                )
            except FileNotFoundError as error:
                raise NotRunning(f"{command[0]} does not exist; run make setup first") from error
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.05)
        code = None if self.process is None else self.process.poll()
        what = f"did not answer /health within {READY_S} s" if code is None else f"ended with code {code}"
        self.stop()
        tail = self.log.read_text(errors="replace")[-1500:]
        raise NotRunning(f"{self.variant.name} {what}. Its log ends:\n{tail}")

    def stop(self) -> None:
        """Ask the server to stop, and kill it if it does not."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stop and start again on the same data, so that memory and caches begin anew."""
        self.stop()
        self.start()


def new_server(variant: Variant, work: Path) -> Server:
    """A server with a fresh data folder under `work`, not yet started."""
    name = f"{variant.name.replace(' ', '-')}-{secrets.token_hex(4)}"
    return Server(variant=variant, data=work / name, token=secrets.token_hex(24))


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
