"""A PostgreSQL of the bench's own: the machine's binaries, durable settings, a folder for this run."""

import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from bench.servers import NotRunning, free_port

START_S = 30
USER = "farhand"

# Durable, as a server for real data is: what the bench compares must all be on the disk.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_connections": "100",
    "max_wal_size": "4GB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "log_min_messages": "warning",
}


def binaries() -> Path | None:
    """The folder with the machine's newest initdb and postgres, or None."""
    debian = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if debian:
        return max(debian, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)])
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _unprivileged() -> dict[str, Any]:
    """Popen arguments that leave root behind, which PostgreSQL refuses to run as."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Postgres:
    """One PostgreSQL server. `pid` is its main process, the others are its children."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._tools = tools
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NotRunning("PostgreSQL was stopped")
        return self._process.pid

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """Make an empty database; its name."""
        name = f"bench_{secrets.token_hex(4)}"
        self.execute(f'CREATE DATABASE "{name}"')
        return name

    def drop(self, database: str) -> None:
        """Remove a database."""
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run statements through psql; rows come back as lines. Raises NotRunning when one fails."""
        return self._run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(database))

    def start(self) -> None:
        """Make the data folder and start. Raises NotRunning with the end of the log."""
        drop = _unprivileged()
        if drop:
            os.chown(self._folder, drop["user"], drop["group"])
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8")
        command = [str(self._tools / "postgres"), "-D", data, "-c", f"port={self.port}"]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        # So that a killed bench leaves no server behind.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "QUIT", *command]
        log = self._folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", **drop
            )
        ready = [str(self._tools / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.05)
        self.stop()
        raise NotRunning(
            f"PostgreSQL did not start. Its log ends:\n{log.read_text(errors='replace')[-1500:]}"
        )

    def stop(self) -> None:
        """End the server at once."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self, tool: str, *arguments: str) -> str:
        command = [str(self._tools / tool), *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd="/", **_unprivileged()
        )
        if done.returncode:
            raise NotRunning(f"{tool} failed: {done.stderr.strip()[-1500:]}")
        return done.stdout.strip()


@contextlib.contextmanager
def running() -> Generator[Postgres | None]:
    """A started server, or None on a machine without PostgreSQL."""
    tools = binaries()
    if tools is None:
        yield None
        return
    # /var/tmp: on a disk where /tmp may be memory, and open to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="farhand-bench-", dir="/var/tmp"))
    server = Postgres(folder, tools)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
