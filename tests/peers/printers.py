"""Real printers for tests: ippeveprinter, a private cupsd and plain TCP listeners.

Everything lives in a fresh folder that the account `lp` can reach (cupsd's backends run under
it), on free loopback ports, and ends with its context manager. Nothing here needs root, but
root works. A missing program skips the test, and fails it where CI is set.
"""

import asyncio
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]>>endobj\n"
    b"trailer<</Root 1 0 R>>\n%%EOF\n"
)

PLAIN_FORMATS = "application/pdf,image/pwg-raster,image/urf,application/octet-stream,text/plain"

_COMMAND = """#!/bin/sh
# ippeveprinter runs this for each document; the file `mode` says what goes wrong.
here="$(dirname "$0")"
alive() { kill -0 "$PPID" 2>/dev/null && [ -d "$here" ]; }
echo "$IPP_JOB_NAME" >> "$here/started"
case "$(cat "$here/mode")" in
media-empty)
    echo "STATE: +media-empty" >&2
    while alive && [ ! -e "$here/paper" ]; do sleep 0.05; done
    echo "STATE: -media-empty" >&2 ;;
abort)
    echo "ERROR: jammed for good" >&2
    exit 1 ;;
slow)
    while alive && [ ! -e "$here/go" ]; do sleep 0.05; done ;;
esac
alive || exit 1
env | grep -E '^(IPP_|CONTENT_TYPE)' | sort > "$here/printed/$IPP_JOB_ID.env"
cp "$1" "$here/printed/$IPP_JOB_ID.tmp" && mv "$here/printed/$IPP_JOB_ID.tmp" "$here/printed/$IPP_JOB_ID.doc"
"""


def find_program(name: str) -> str:
    """Path of a program; skips the test without it, fails when CI is set."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/cups/bin")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is missing; CI must install it (cups cups-client cups-ipp-utils dbus)")
    pytest.skip(f"{name} is not installed")


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that other accounts may read, unlike pytest's tmp_path."""
    path = Path(tempfile.mkdtemp(prefix="farhand-", dir="/var/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 15) -> None:
    """Polls a condition; AssertionError naming `what` after the deadline."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


async def until(holds: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 15) -> None:
    """Like wait_until, without blocking the loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        answer = holds()
        if (answer if isinstance(answer, bool) else await answer) is True:
            return
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


@contextmanager
def bus() -> Iterator[str]:
    """A private D-Bus; ippeveprinter does not start without one."""
    command = [find_program("dbus-daemon"), "--session", "--nofork", "--nosyslog"]
    process = subprocess.Popen(
        [*command, "--print-address=1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout
        yield process.stdout.readline().decode().strip()
    finally:
        _end(process)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedDocument:
    """What really came out of a virtual printer."""

    job_id: int
    name: str
    content_type: str
    content: bytes
    env: dict[str, str]


def _unescape(text: str) -> str:
    """ippeveprinter puts a backslash before brackets and the like in its command's environment."""
    return re.sub(r"\\(.)", r"\1", text)


class EvePrinter:
    """A running ippeveprinter whose paper, faults and output tray belong to the test."""

    def __init__(self, folder: Path, port: int, bus_address: str, formats: str, secure: bool):
        self.folder, self.port = folder, port
        self.uri = f"ipp://localhost:{port}/ipp/print"
        self.secure_uri = f"ipps://localhost:{port}/ipp/print"
        self._bus, self._formats, self._secure = bus_address, formats, secure
        for name in ("printed", "spool", "keys"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        (folder / "command").write_text(_COMMAND)
        (folder / "command").chmod(0o755)
        self.set_mode("ok")
        self.start()

    def start(self) -> None:
        """Starts the printer (again); it forgets its jobs over a restart, as small ones do."""
        keys = ["-K", str(self.folder / "keys")] if self._secure else []
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_program("ippeveprinter"), "-r", "off", "-n", "localhost", "-v", "-k", "-2"]
                + ["-p", str(self.port), "-d", str(self.folder / "spool"), *keys]
                + ["-c", str(self.folder / "command"), "-f", self._formats, "Farhand Eve"],
                env={**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self._bus},
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: _answers(self.port), f"ippeveprinter listens on {self.port}")

    def set_mode(self, mode: str) -> None:
        """`ok`, `abort`, `media-empty` (until add_paper) or `slow` (until let_go)."""
        (self.folder / "mode.new").write_text(mode)
        (self.folder / "mode.new").replace(self.folder / "mode")

    def add_paper(self) -> None:
        """Ends `media-empty` for the waiting document and all later ones."""
        (self.folder / "paper").touch()

    def let_go(self) -> None:
        """Ends `slow` for the waiting document and all later ones."""
        (self.folder / "go").touch()

    def started(self) -> list[str]:
        """Names of the documents the printer began, in order, also those it never finished."""
        path = self.folder / "started"
        return [_unescape(line) for line in path.read_text().splitlines()] if path.exists() else []

    def printed(self) -> list[PrintedDocument]:
        """The documents that came out whole, in job order."""
        found: list[PrintedDocument] = []
        paths = (self.folder / "printed").glob("*.doc")
        for path in sorted(paths, key=lambda path: int(path.stem)):
            lines = path.with_suffix(".env").read_text().splitlines()
            env = dict(line.split("=", 1) for line in lines if "=" in line)
            found.append(
                PrintedDocument(
                    job_id=int(path.stem),
                    name=_unescape(env.get("IPP_JOB_NAME", "")),
                    content_type=env.get("CONTENT_TYPE", ""),
                    content=path.read_bytes(),
                    env=env,
                )
            )
        return found

    def log(self) -> str:
        """What ippeveprinter says of its requests and answers."""
        return (self.folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """Pulls the plug."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ends the printer and lets a waiting command script go."""
        self.let_go()
        self.add_paper()
        _end(self._process)


@contextmanager
def eve_printer(
    bus_address: str, *, formats: str = PLAIN_FORMATS, secure: bool = False
) -> Iterator[EvePrinter]:
    """A virtual IPP Everywhere printer."""
    find_program("ippeveprinter")
    with open_folder() as folder:
        printer = EvePrinter(folder, free_port(), bus_address, formats, secure)
        try:
            yield printer
        finally:
            printer.stop()


_CUPSD_CONF = """Listen 127.0.0.1:{port}
Listen {folder}/state/cups.sock
LogLevel debug
Browsing No
BrowseLocalProtocols none
DefaultAuthType None
WebInterface No
PreserveJobHistory Yes
PreserveJobFiles Yes
ErrorPolicy stop-printer
IdleExitTimeout 0
<Location />
Order allow,deny
Allow from 127.0.0.1
</Location>
<Policy default>
JobPrivateAccess all
JobPrivateValues none
SubscriptionPrivateAccess all
SubscriptionPrivateValues none
<Limit All>
Order deny,allow
</Limit>
</Policy>
"""

_CUPS_FILES_CONF = """SystemGroup root lpadmin
FileDevice Yes
ServerRoot {folder}/etc
CacheDir {folder}/cache
StateDir {folder}/state
RequestRoot {folder}/spool
TempDir {folder}/spool/tmp
ErrorLog {folder}/log/error
AccessLog {folder}/log/access
PageLog {folder}/log/page
"""


class Cups:
    """A private cupsd with queues made by lpadmin."""

    def __init__(self, folder: Path, port: int):
        self.folder, self.port = folder, port
        self.socket = folder / "state" / "cups.sock"
        for name in ("etc", "spool/tmp", "cache", "state", "log"):
            (folder / name).mkdir(parents=True)
        places = {"folder": folder, "port": port}
        files = _CUPS_FILES_CONF.format(**places)
        if os.geteuid() == 0:
            files += "User lp\nGroup lp\n"
            for name in ("spool", "spool/tmp", "cache"):
                shutil.chown(folder / name, group="lp")
        (folder / "spool").chmod(0o711)
        (folder / "spool/tmp").chmod(0o770)
        (folder / "cache").chmod(0o770)
        (folder / "etc/cupsd.conf").write_text(_CUPSD_CONF.format(**places))
        (folder / "etc/cups-files.conf").write_text(files)
        self.start()

    def start(self) -> None:
        """Starts cupsd (again) on the same port and spool."""
        etc = self.folder / "etc"
        with (self.folder / "log/out").open("ab") as log:
            self._process = subprocess.Popen(
                [find_program("cupsd"), "-f", "-c", str(etc / "cupsd.conf")]
                + ["-s", str(etc / "cups-files.conf")],
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: _answers(self.port), f"cupsd listens on {self.port}")

    def queue_uri(self, name: str) -> str:
        """The IPP address of a queue."""
        return f"ipp://localhost:{self.port}/printers/{name}"

    def add_queue(self, name: str, device_uri: str, *model: str) -> str:
        """Makes a queue, e.g. ("q", uri, "-m", "everywhere"); returns its IPP address."""
        command = [find_program("lpadmin"), "-h", f"127.0.0.1:{self.port}", "-p", name, "-E"]
        done = subprocess.run(
            [*command, "-v", device_uri, *model], capture_output=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        if "everywhere" in model:
            # For a moment cupsd shows, and prints through, a raw queue.
            wait_until(lambda: "IPP Everywhere" in self._options(name), f"queue {name} is driverless")
        return self.queue_uri(name)

    def _options(self, name: str) -> str:
        command = [find_program("lpoptions"), "-h", f"127.0.0.1:{self.port}", "-p", name]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout

    def kill(self) -> None:
        """Ends cupsd without a chance to clean up."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ends cupsd."""
        _end(self._process)


@contextmanager
def private_cups() -> Iterator[Cups]:
    """A cupsd of its own on loopback, without queues."""
    for program in ("cupsd", "lpadmin"):
        find_program(program)
    with open_folder() as folder:
        cups = Cups(folder, free_port())
        try:
            yield cups
        finally:
            cups.stop()


class SocketPrinter:
    """A raw TCP printer.

    Manners: `take` reads to the end and closes; `keep-open` reads to the end and never closes;
    `reset` reads a little and resets; `deaf` never reads until `wake`.
    """

    def __init__(self, manner: str):
        self._manner = manner
        self._awake = threading.Event()
        self._ended = threading.Event()
        self._listener = socket.socket()
        # A small window, so that a printer that does not read is felt soon.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self.uri = f"socket://127.0.0.1:{self.port}"
        self._jobs: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def jobs(self) -> list[bytes]:
        """What each connection that sent anything brought, whole ones only."""
        return list(self._jobs)

    def wake(self) -> None:
        """A `deaf` printer reads on: its paper is back."""
        self._awake.set()

    def stop(self) -> None:
        """Ends the printer and its connections."""
        self._ended.set()
        self._awake.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        if self._manner == "deaf":
            self._awake.wait()
        if self._manner == "reset":
            connection.recv(1024)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        connection.settimeout(30)
        parts: list[bytes] = []
        while not self._ended.is_set() and (part := connection.recv(65536)):
            parts.append(part)
        if parts:
            self._jobs.append(b"".join(parts))
        if self._manner == "keep-open":
            self._ended.wait()


@contextmanager
def socket_printer(manner: str = "take") -> Iterator[SocketPrinter]:
    """A raw TCP printer on a free port."""
    printer = SocketPrinter(manner)
    try:
        yield printer
    finally:
        printer.stop()


@pytest.fixture(scope="session")
def printer_bus() -> Iterator[str]:
    """A private D-Bus for all virtual printers of the run."""
    with bus() as address:
        yield address


@pytest.fixture
def make_eve(printer_bus: str) -> Iterator[Callable[..., EvePrinter]]:
    """Starts virtual printers, one per call; takes the keywords of eve_printer."""
    with ExitStack() as stack:
        yield lambda **wanted: stack.enter_context(eve_printer(printer_bus, **wanted))


@pytest.fixture
def eve(make_eve: Callable[..., EvePrinter]) -> EvePrinter:
    """One virtual printer that prints at once until told otherwise."""
    return make_eve()


@pytest.fixture
def cups() -> Iterator[Cups]:
    """A private cupsd without queues."""
    with private_cups() as server:
        yield server


@pytest.fixture
def make_socket_printer() -> Iterator[Callable[..., SocketPrinter]]:
    """Starts raw TCP printers; takes the argument of socket_printer."""
    with ExitStack() as stack:
        yield lambda manner="take": stack.enter_context(socket_printer(manner))
