"""`farhand farm`: prints for farms of 3D printers, and their printers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from farhand.cli.connection import Session, api_options
from farhand.cli.mistakes import Mistake
from farhand.cli.output import Cell, Column, make_console, show_json, show_table
from farhand.cli.words import CALM, clean, local_time
from farhand.protocol.farm import FarmNeeds, FarmPrinterView, FarmStatusView, FarmSubmitReply, UploadedReply

if TYPE_CHECKING:
    from farhand.client import Client

WATCH_S: Final = 2.0
_STYLES: Final = {"printing": "green", "preparing": "green", "paused": "yellow", "idle": CALM}
_COLUMNS: Final = (
    Column(title="PRINTER", shrink=True),
    Column(title="STATE"),
    Column(title="JOB"),
    Column(title="DONE"),
    Column(title="LEFT"),
    Column(title="TEMPERATURES"),
    Column(title="REASON", shrink=True),
)


@click.group()
def farm() -> None:
    """Print on farms of 3D printers, and look after their printers."""


@farm.command("print")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--farm", "farm_name", required=True, metavar="FARM", help="The farm, by name or id.")
@click.option("--printer", metavar="PRINTER", help="Only this printer.")
@click.option("--model", metavar="MODEL", help="Only printers of this model.")
@click.option("--nozzle", type=float, metavar="MM", help="The nozzle's diameter.")
@click.option("--material", metavar="MATERIAL", help="The material, as in PLA.")
@click.option("--color", metavar="COLOR", help="The colour of the spool.")
@click.option("--needs", multiple=True, metavar="TAG", help="A tag that the printer has; repeat it.")
@click.option("--copies", type=click.IntRange(1, 999), default=1, metavar="N", help="So many [1].")
@click.option(
    "--priority", type=click.IntRange(-100, 100), default=0, metavar="N", help="Higher is sooner [0]."
)
@click.option("--title", metavar="TEXT", help="What people call it [the file's name].")
@click.option("--idempotency-key", metavar="KEY", help="The same key never makes a second print.")
@api_options
def print_farm(
    session: Session,
    file: Path,
    farm_name: str,
    printer: str | None,
    model: str | None,
    nozzle: float | None,
    material: str | None,
    color: str | None,
    needs: Sequence[str],
    copies: int,
    priority: int,
    title: str | None,
    idempotency_key: str | None,
) -> None:
    """Submit FILE to a farm and send it there, with its progress."""
    from farhand.client import put_file
    from farhand.client.farm import digest_of

    size = file.stat().st_size
    if size == 0:
        raise Mistake(f"{file} is empty; there is nothing to print")
    wanted = FarmNeeds(model=model, nozzle=nozzle, material=material, color=color, tags=list(needs))
    with session.client() as client:
        made = client.submit_farm_print(
            farm_name,
            file.name,
            size=size,
            sha256=digest_of(file),
            requirements=wanted,
            printer=None if printer is None else _find(client, farm_name, printer).id,
            copies=copies,
            title=title,
            source="farhand farm print",
            priority=priority,
            idempotency_key=idempotency_key,
        )
        with _Bar(file.name, size) as bar:
            kept = put_file(made.upload, file, bar.sent)
    _show_made(session, made, kept)


def _show_made(session: Session, made: FarmSubmitReply, kept: UploadedReply | None) -> None:
    copies = kept.copies if kept is not None else [made.job_id]
    if session.as_json:
        show_json({"job_id": made.job_id, "copies": copies})
        return
    for job_id in copies:
        click.echo(job_id)
    click.echo(f"follow it with: farhand jobs show {made.job_id} --wait", err=True)


class _Bar:
    """How much of a file has been sent; nothing where nobody looks."""

    def __init__(self, name: str, size: int) -> None:
        console = make_console(stderr=True)
        self._progress: Any = None
        if console.is_terminal:
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            self._progress = Progress(
                TextColumn(clean(name), markup=False),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._progress.add_task(name, total=size)

    def __enter__(self) -> "_Bar":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def sent(self, done: int, _size: int) -> None:
        """So many bytes are on their way."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done)


@farm.command("list")
@api_options
def list_farms(session: Session) -> None:
    """List the farms."""
    with session.client() as client:
        found = client.farms()
    if session.as_json:
        show_json({"items": found, "next": None})
        return
    rows = [(one.name, one.id, "paused" if one.paused else "") for one in found]
    columns = (Column(title="FARM", shrink=True), Column(title="ID"), Column(title="STATE"))
    show_table(columns, rows, empty="There are no farms yet. Make one with: farhand farm create NAME")


@farm.command("create")
@click.argument("name")
@api_options
def create(session: Session, name: str) -> None:
    """Make a farm."""
    with session.client() as client:
        made = client.create_farm(name)
    if session.as_json:
        show_json(made)
        return
    click.echo(made.id)
    click.echo(f'gateways serve it with [farm] farm = "{clean(made.name)}" in their agent.toml', err=True)


@farm.command("status")
@click.argument("farm_name", metavar="FARM")
@click.option("--watch", is_flag=True, help="Stay, and show it anew every two seconds.")
@api_options
def status(session: Session, farm_name: str, watch: bool) -> None:
    """Show a farm's printers as they are now."""
    import threading

    with session.client() as client:
        while True:
            found = client.farm_status(farm_name)
            if watch and not session.as_json:
                click.clear()
            _show_status(session, found)
            if not watch:
                return
            threading.Event().wait(WATCH_S)


def _show_status(session: Session, found: FarmStatusView) -> None:
    if session.as_json:
        show_json(found)
        return
    if found.farm.paused:
        click.echo(f"the farm {clean(found.farm.name)} is paused", err=True)
    empty = "No printer is claimed yet. See: farhand farm unclaimed FARM"
    show_table(_COLUMNS, [_row(printer) for printer in found.printers], empty=empty)


def _row(printer: FarmPrinterView) -> tuple[Cell | str | None, ...]:
    left = printer.remaining_ms
    warm = " ".join(f"{name} {value:.0f}°" for name, value in sorted(printer.temperatures.items()))
    return (
        printer.name,
        Cell(text=printer.state, style=_STYLES.get(printer.state, "red")),
        None if printer.job_id is None else printer.job_id,
        None if printer.percent is None else f"{printer.percent:.0f} %",
        None if left is None else f"{left // 3_600_000}:{left // 60_000 % 60:02}",
        warm,
        printer.reason,
    )


@farm.command("unclaimed")
@click.argument("farm_name", metavar="FARM")
@api_options
def unclaimed(session: Session, farm_name: str) -> None:
    """List printers that gateways report and nobody claimed."""
    with session.client() as client:
        found = client.unclaimed_printers(farm_name)
    if session.as_json:
        show_json(found)
        return
    rows = [
        (
            one.gateway_printer_id,
            one.gateway if one.gateway_online else f"{one.gateway} (offline)",
            one.state,
            local_time(one.last_seen_at),
            " or ".join(one.did_you_mean),
        )
        for one in found.items
    ]
    columns = (
        Column(title="PRINTER ID", shrink=True),
        Column(title="GATEWAY", shrink=True),
        Column(title="STATE"),
        Column(title="SEEN"),
        Column(title="CLAIMED AS?", shrink=True),
    )
    there = (
        "All printers that are reported are claimed."
        if found.gateway_online
        else ("No gateway of this farm is connected.")
    )
    show_table(columns, rows, empty=there)


@farm.command("claim")
@click.argument("farm_name", metavar="FARM")
@click.argument("gateway_printer_id", metavar="PRINTER_ID")
@click.argument("name")
@click.option("--gateway", metavar="AGENT", help="The gateway, where several report this id.")
@click.option("--self-clearing", is_flag=True, help="The printer clears its bed by itself.")
@api_options
def claim(
    session: Session,
    farm_name: str,
    gateway_printer_id: str,
    name: str,
    gateway: str | None,
    self_clearing: bool,
) -> None:
    """Make a printer that a gateway reports one of FARM, called NAME."""
    with session.client() as client:
        made = client.claim_printer(
            farm_name, gateway_printer_id, name, gateway=gateway, self_clearing=self_clearing
        )
    _show_printer(session, made, "claimed")


@farm.command("clear")
@click.argument("farm_name", metavar="FARM")
@click.argument("printer")
@api_options
def clear(session: Session, farm_name: str, printer: str) -> None:
    """Say that a printer's bed is clear: the next print may start."""
    with session.client() as client:
        shown = client.bed_cleared(_find(client, farm_name, printer).id)
    _show_printer(session, shown, "its bed is clear")


@farm.command("pause")
@click.argument("farm_name", metavar="FARM")
@click.option("--printer", metavar="PRINTER", help="Only this printer.")
@api_options
def pause(session: Session, farm_name: str, printer: str | None) -> None:
    """Start nothing new in a farm, or on one of its printers."""
    with session.client() as client:
        if printer is not None:
            _show_printer(session, client.pause_printer(_find(client, farm_name, printer).id), "paused")
            return
        shown = client.pause_farm(farm_name)
    if session.as_json:
        show_json(shown)
        return
    click.echo(f"{clean(shown.name)}: paused")


@farm.command("resume")
@click.argument("farm_name", metavar="FARM")
@click.option("--printer", metavar="PRINTER", help="Only this printer.")
@api_options
def resume(session: Session, farm_name: str, printer: str | None) -> None:
    """Let a farm, or one of its printers, take work again."""
    with session.client() as client:
        if printer is not None:
            _show_printer(session, client.resume_printer(_find(client, farm_name, printer).id), "resumed")
            return
        shown = client.resume_farm(farm_name)
    if session.as_json:
        show_json(shown)
        return
    click.echo(f"{clean(shown.name)}: resumed")


@farm.command("pause-print")
@click.argument("job")
@api_options
def pause_print(session: Session, job: str) -> None:
    """Pause a print at its machine."""
    with session.client() as client:
        shown = client.pause_job(job)
    _show_asked(session, shown, "pause")


@farm.command("resume-print")
@click.argument("job")
@api_options
def resume_print(session: Session, job: str) -> None:
    """Let a paused print go on."""
    with session.client() as client:
        shown = client.resume_job(job)
    _show_asked(session, shown, "resume")


@farm.command("top")
@click.argument("job")
@api_options
def top(session: Session, job: str) -> None:
    """Let a waiting print go before all others."""
    with session.client() as client:
        shown = client.job_to_top(job)
    if session.as_json:
        show_json(shown)
        return
    click.echo(f"{shown.id}: is next for a printer that fits")


def _show_asked(session: Session, shown: Any, word: str) -> None:
    if session.as_json:
        show_json(shown)
        return
    click.echo(f"{shown.id}: asked to {word}; its phase says when it has")


def _show_printer(session: Session, shown: FarmPrinterView, what: str) -> None:
    if session.as_json:
        show_json(shown)
        return
    click.echo(f"{clean(shown.name)}: {what}")


def _find(client: "Client", farm_name: str, text: str) -> FarmPrinterView:
    """A printer of a farm by its name or id. Raises Mistake with near ones."""
    from farhand.cli.names import find_named

    printers = client.farm_status(farm_name).printers
    wanted = next((one.id for one in printers if one.id == text), None)
    wanted = wanted or find_named("printer", printers, text)
    return next(one for one in printers if one.id == wanted)
