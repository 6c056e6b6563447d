"""`farhand demo`: a server, an agent and printers at work, driven as anybody would drive them."""

import asyncio
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from farhand.cli.board import Board
from farhand.cli.children import Children
from farhand.cli.demo_pages import LABEL, welcome_page
from farhand.cli.words import EXIT_CODES, clean, local_time, sentence
from farhand.client import AsyncClient, Client
from farhand.model.clock import Clock, SystemClock, to_rfc3339
from farhand.model.errors import FarhandError
from farhand.protocol.client import JobView, PrinterView

START_S: Final = 30
PRINT_MS: Final = 120_000
FOLDER: Final = "folder"
OFFICE: Final = "office"

# For a few seconds it is out of paper, as printers are; the job shows it.
_OFFICE_WORK: Final = """\
#!/bin/sh
echo "STATE: +media-empty" >&2
sleep 3
echo "STATE: -media-empty" >&2
sleep 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where everything of one demo lies."""

    root: Path

    @property
    def server(self) -> Path:
        """The server's data folder."""
        return self.root / "server"

    @property
    def printed(self) -> Path:
        """What the file printer got."""
        return self.root / "printed"

    @property
    def office(self) -> Path:
        """What the IPP printer kept."""
        return self.root / "office"

    @property
    def logs(self) -> Path:
        """What the processes said."""
        return self.root / "logs"


@click.command()
@click.option("--once", is_flag=True, help="End when the jobs are done; 0 if they all are.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep everything here.")
def demo(once: bool, data: Path | None) -> int:
    """See a server, an agent and printers at work.

    Starts them on free ports of this machine, prints a page and a label, shows how that goes
    and what to try next. Stays until Ctrl-C.
    """
    from farhand.cli.serve import need_server

    need_server()
    root = Path(tempfile.mkdtemp(prefix="farhand-demo-")) if data is None else data.absolute()
    places = Places(root=root)
    # The printers' processes may run under another account than ours.
    for folder in (places.root, places.printed, places.office, places.logs):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    clock = SystemClock()
    with Children(places.logs, _environment(places, os.environ), clock) as children:
        url, token = _start_server(children, places)
        office = _start_office(children, places)
        _start_agent(children, places, url, office)
        jobs = _print(children, places, url, token, clock)
        _show_result(places, jobs)
        if once:
            return max(EXIT_CODES.get(job.state, 1) for job in jobs)
        _show_next_steps(places, url, office)
        _stay(children)
    return 0


def _environment(places: Places, environment: Mapping[str, str]) -> dict[str, str]:
    """The children's: without settings that are meant for another server, and with homes of their own."""
    kept = {name: value for name, value in environment.items() if not name.startswith("FARHAND_")}
    return kept | {"PYTHONUNBUFFERED": "1", "XDG_CONFIG_HOME": str(places.root / "config")}


def _command(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "farhand.cli", *arguments]


def _start_server(children: Children, places: Places) -> tuple[str, str]:
    """A server on embedded SQLite; its address and its root token."""
    click.echo("Starting a server on embedded SQLite …", err=True)
    server = children.start("server", _command("serve", "--port", "0", "--data", places.server))
    before = len(re.findall(_LISTENS, server.output()))
    children.wait(lambda: len(re.findall(_LISTENS, server.output())) > before, "the server's start", START_S)
    url = re.findall(_LISTENS, server.output())[-1]
    return url, (places.server / "root-token").read_text("ascii").strip()


_LISTENS: Final = re.compile(r"listens on (http://\S+)")


def _start_office(children: Children, places: Places) -> str | None:
    """A virtual IPP printer, where this machine has the programs; its address."""
    programs = [_find(name) for name in ("ippeveprinter", "dbus-daemon")]
    if None in programs:
        click.echo(
            "ippeveprinter and dbus are not here, so this prints into a folder only\n"
            "(Debian: apt-get install cups-ipp-utils dbus).",
            err=True,
        )
        return None
    click.echo("Starting a virtual IPP printer …", err=True)
    program, dbus = (str(found) for found in programs)
    work = places.root / "office-work"
    work.write_text(_OFFICE_WORK)
    work.chmod(0o755)
    # It announces itself on the system's bus; one of its own keeps it from the network.
    bus = children.start("bus", [dbus, "--session", "--nofork", "--nosyslog", "--print-address=1"])
    try:
        children.wait(lambda: "unix:" in bus.output(), "the start of a D-Bus", START_S)
        address = next(line for line in reversed(bus.output().splitlines()) if line.startswith("unix:"))
        port = _free_port()
        formats = "application/pdf,image/pwg-raster,image/urf,application/octet-stream"
        children.start(
            "printer",
            [program, "-r", "off", "-n", "localhost", "-p", str(port), "-d", places.office, "-k", "-2"]
            + ["-c", work, "-f", formats, "-v", "Farhand Office"],
            DBUS_SYSTEM_BUS_ADDRESS=address,
        )
        children.wait(lambda: _answers(port), "the start of the IPP printer", START_S)
    except FarhandError as error:
        raise FarhandError(f"{error.message}\nThe demo also runs without ippeveprinter in PATH.") from error
    return f"ipp://localhost:{port}/ipp/print"


def _start_agent(children: Children, places: Places, url: str, office: str | None) -> None:
    """An agent that offers the folder and the IPP printer, and none of the machine's own."""
    click.echo("Starting an agent that dials out to it …", err=True)
    settings, own = places.root / "agent.toml", places.root / "agent"
    printers = ["--printer", f"{FOLDER}={places.printed.as_uri()}"]
    if office is not None:
        printers += ["--printer", f"{OFFICE}={office}"]
    joining = children.start(
        "join",
        _command("agent", "join", url, "--name", "demo", "--config", settings, "--data", own)
        + ["--no-discover", "--force", *printers],
    )
    children.finish(joining, START_S)
    children.start("agent", _command("agent", "run", "--config", settings))


def _print(children: Children, places: Places, url: str, token: str, clock: Clock) -> list[JobView]:
    """Prints the page on each printer and the label in the folder; the jobs as they ended."""
    found: dict[str, PrinterView] = {}

    def all_there() -> bool:
        with Client(url, token) as client:
            found.update({printer.name: printer for printer in client.printers()})
        return bool(found) and all(printer.online and printer.state == "idle" for printer in found.values())

    children.wait(all_there, "the start of the agent", START_S)
    click.echo("Printing through POST /jobs …", err=True)
    facts = [
        ("Server", f"{url}, on embedded SQLite"),
        ("Agent", "demo, on this machine"),
        ("Printers", ", ".join(sorted(found))),
        ("Sent", local_time(to_rfc3339(clock.now_ms()))),
    ]
    page = welcome_page(facts)
    (places.root / "welcome.pdf").write_bytes(page)
    (places.root / "label.zpl").write_text(LABEL)
    wanted = [(printer, f"Welcome ({name})", page) for name, printer in sorted(found.items(), reverse=True)]
    wanted.append((found[FOLDER], "Shipping label", LABEL.encode()))
    with Board(clock) as board:
        return asyncio.run(_follow(url, token, wanted, board))


async def _follow(
    url: str, token: str, wanted: list[tuple[PrinterView, str, bytes]], board: Board
) -> list[JobView]:
    async with AsyncClient(url, token) as client:
        made = [
            await client.submit_print(printer.id, content, title=title, source="farhand demo")
            for printer, title, content in wanted
        ]
        waits = (client.wait(job.id, timeout_ms=PRINT_MS, on_change=board.change, hold_s=2) for job in made)
        return list(await asyncio.gather(*waits))


def _show_result(places: Places, jobs: list[JobView]) -> None:
    if not sys.stdout.isatty():
        for job in jobs:
            click.echo(f"{clean(job.title or job.id)}: {sentence(job)}")
    click.echo("\nWhat came out:")
    for folder in (places.office, places.printed):
        for path in sorted(folder.iterdir()):
            if path.stat().st_size:
                click.echo(f"  {path}")


def _show_next_steps(places: Places, url: str, office: str | None) -> None:
    printer = FOLDER if office is None else OFFICE
    auth = '-H "Authorization: Bearer $FARHAND_TOKEN"'
    click.echo(
        f"""
Try in another terminal:
  export FARHAND_SERVER={url}
  export FARHAND_TOKEN=$(cat {places.server / "root-token"})
  farhand printers
  farhand print {places.root / "welcome.pdf"} --printer {printer} --wait
  farhand jobs list
  curl {auth} $FARHAND_SERVER/printers
  curl {auth} $FARHAND_SERVER/jobs?limit=3

Everything of this demo lies in {places.root}
Ctrl-C ends it."""
    )


def _stay(children: Children) -> None:
    try:
        while True:
            children.check()
            threading.Event().wait(0.5)
    except KeyboardInterrupt:
        click.echo("\nEnding …", err=True)


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
