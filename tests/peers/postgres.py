"""A real PostgreSQL for tests, started from the machine's own binaries and ended with the run."""

import atexit
import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.peers import require_peer

START_DEADLINE_S = 30.0
USER = "farhand"

# Without fsync a crash of the machine would lose writes; a crash of the server does not, which is all
# that tests bring about. synchronous_commit stays on: off, a killed server loses its last commits.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "log_min_messages": "warning",
}


def postgres_bin() -> Path | None:
    """The folder with the newest initdb and postgres of the machine, or None."""
    debian = sorted(
        (path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()),
        key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)],
    )
    if debian:
        return debian[-1]
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def _unprivileged() -> dict[str, object]:
    """Popen arguments that leave root behind, which PostgreSQL refuses to run as."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _open_folder() -> Path:
    """A new folder that an unprivileged user can reach: a private TMPDIR would shut it out."""
    candidates = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    reachable = (base for base in candidates if all(p.stat().st_mode & 0o001 for p in (base, *base.parents)))
    return Path(tempfile.mkdtemp(prefix="farhand-postgres-", dir=next(reachable)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """One PostgreSQL server process with a data folder of its own.

    Drills may `kill` it and `start` it again; port and data stay. Raises RuntimeError with the
    server's own log when it does not come up, or when a statement fails.
    """

    def __init__(self, binaries: Path) -> None:
        self.binaries = binaries
        self.folder = _open_folder()
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._templates: set[str] = set()
        # Copying files is four times as fast as copying through the log; PostgreSQL 14 knows no other.
        major = int(re.findall(r"\d+", self._tool("postgres", "--version"))[0])
        self._strategy = "STRATEGY file_copy" if major >= 15 else ""
        drop = _unprivileged()
        if drop:
            os.chown(self.folder, int(str(drop["user"])), int(str(drop["group"])))
        self._tool(
            "initdb", "-D", str(self.data), "-A", "trust", "-U", USER, "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync", "--no-instructions",
        )  # fmt: skip

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    def url(self, database: str = "postgres") -> str:
        """The address of one database of this server."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and return when it answers. A port is chosen at the first start."""
        fixed = self.port
        for _ in range(5):
            self.port = fixed or _free_port()
            if self._came_up():
                return
        raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")

    def kill(self) -> None:
        """End the server at once, as a crash would: its backends go, what it had committed stays."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End the server and remove its folder."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run one statement through psql; rows come back as lines, columns parted by `|`."""
        return self._tool("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(database))

    def create(self, template: str = "template1") -> str:
        """Make a new database, a copy of the template, and return its name."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {self._strategy}')
        return name

    def drop(self, database: str) -> None:
        """Drop a database, even while somebody is connected to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def template(self, name: str, prepare: Callable[[str], None]) -> str:
        """The name of a database to copy from; `prepare(url)` fills it, once for each server.

        Nobody may be connected to it when it is copied, so prepare has to close what it opens.
        """
        if name not in self._templates:
            self.execute(f'CREATE DATABASE "{name}"')
            prepare(self.url(name))
            self._templates.add(name)
        return name

    def log(self) -> str:
        """What the server has said so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _came_up(self) -> bool:
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-c", f"port={self.port}"]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        # So that a killed test run leaves no server behind.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "QUIT", *command]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **_unprivileged()
            )  # type: ignore[call-overload]  # the keyword arguments are those of Popen
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            ready = subprocess.run(
                [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)],
                check=False,
            )
            # A stranger on the same port would answer too, but then ours has ended.
            if ready.returncode == 0 and self.process.poll() is None:
                return True
            time.sleep(0.02)
        self._end(signal.SIGQUIT)
        return False

    def _end(self, with_signal: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _tool(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.binaries / name), *arguments],
            check=False, capture_output=True, text=True, cwd="/", **_unprivileged(),
        )  # type: ignore[call-overload]  # fmt: skip  # the keyword arguments are those of run
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL, one for each test process, shared by its tests."""
    binaries = postgres_bin()
    require_peer("PostgreSQL", binaries is not None, "apt-get install postgresql, or `make peers`")
    assert binaries is not None
    server = PostgresServer(binaries)
    # pytest.exit and an interrupt in another fixture skip the end of this one.
    atexit.register(server.stop)
    try:
        server.start()
        yield server
    finally:
        atexit.unregister(server.stop)
        server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database that belongs to this test alone."""
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)
