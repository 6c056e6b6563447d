"""`farhand print`: a file, standard input or a URL to a printer."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from farhand.cli.connection import Session, api_options
from farhand.cli.mistakes import Mistake
from farhand.cli.output import make_console, show_json
from farhand.cli.words import EXIT_CODES, STYLES, TIMEOUT_EXIT, clean, next_step, sentence
from farhand.model.errors import FarhandError
from farhand.model.policy import suggest
from farhand.protocol.client import JobView, PrintOptions

if TYPE_CHECKING:
    from farhand.client import Client
    from farhand.protocol.client import SubmitReply

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Duration(click.ParamType[int]):
    """A time as 90, 90s, 5m, 2h or 14d; its value is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The seconds."""
        match = re.fullmatch(r"(\d{1,9})([smhd]?)", str(value))
        if match is None or int(match.group(1)) == 0:
            self.fail(f"{value!r} is no time; write it like 90s, 5m, 2h or 14d", param, ctx)
        return int(match.group(1)) * _UNITS[match.group(2) or "s"]


@click.command("print")
@click.argument("file", metavar="FILE|URL|-")
@click.option("--printer", "-p", required=True, metavar="NAME", help="Printer: name, number or id.")
@click.option("--copies", "-n", type=click.IntRange(1, 999), default=1, help="How many.")
@click.option("--title", "-t", help="What the job is called [the file's name].")
@click.option("--option", "-o", "options", multiple=True, metavar="K=V", help="paper=A4, color=false, …")
@click.option("--type", "kind", type=click.Choice(["raw", "pdf"]), help="Instead of a look at the content.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, help="Higher goes first.")
@click.option("--expires-in", type=Duration(), metavar="TIME", help="Give up when it has not begun by then.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by; may be repeated.")
@click.option("--idempotency-key", metavar="KEY", help="The same key never prints twice.")
@click.option("--wait", is_flag=True, help="Stay until it has ended; the exit code says how.")
@click.option("--timeout", type=Duration(), metavar="TIME", help="Stop waiting after this; implies --wait.")
@api_options
def print_file(
    session: Session,
    file: str,
    printer: str,
    options: Sequence[str],
    wait: bool,
    timeout: int | None,
    **more: Any,
) -> int:
    """Print a file.

    A file that begins as a PDF is printed as one, any other goes to the printer as it is.

    \b
    Options: paper bin media color duplex dpi fit_to_page pages nup rotate collate
    Exit codes with --wait: 0 done, 1 failed, 2 wrong command line, 3 cancelled,
    4 expired, 5 uncertain, 6 timeout.
    """
    chosen = parse_options(options)
    with session.client() as client:
        made = _submit(client, file, printer, chosen, **more)
        if not (wait or timeout):
            _show_made(session, made, printer)
            return 0
        return follow(session, client, made.id, timeout)


def follow(session: Session, client: "Client", job_id: str, timeout_s: int | None) -> int:
    """Shows a job's progress until it has ended; returns the exit code of its outcome."""
    from farhand.cli.board import Board
    from farhand.client import StillOpen
    from farhand.model.clock import SystemClock

    board = Board(SystemClock(), passing=True)
    limit_ms = None if timeout_s is None else timeout_s * 1000
    try:
        if session.as_json:
            ended = client.wait(job_id, timeout_ms=limit_ms)
        else:
            with board:
                ended = client.wait(job_id, timeout_ms=limit_ms, on_change=board.change, hold_s=5)
    except StillOpen as still:
        if session.as_json:
            show_json(still.job)
        click.echo(f"Still {sentence(still.job)}. It goes on: farhand jobs show {job_id}", err=True)
        return TIMEOUT_EXIT
    except KeyboardInterrupt:
        click.echo(f"\nThe job goes on. To stop it: farhand jobs cancel {job_id}", err=True)
        raise
    show_end(session, ended)
    return EXIT_CODES[ended.state]


def show_end(session: Session, job: JobView) -> None:
    """How a job ended, and what can be done about it."""
    if session.as_json:
        show_json(job)
        return
    make_console().print(f"{job.id} {sentence(job)}", style=STYLES.get(job.state), soft_wrap=True)
    advice = next_step(job)
    if advice is not None:
        click.echo(advice, err=True)


def parse_options(pairs: Sequence[str]) -> PrintOptions | None:
    """`paper=A4` and the like as print options. Raises Mistake naming the one that does not fit."""
    known = PrintOptions.__struct_fields__
    members: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise Mistake(f"write --option {pair}=VALUE")
        if name not in known:
            hint = suggest(name, known) or f"; there are: {', '.join(known)}"
            raise Mistake(f"there is no print option {name!r}{hint}")
        members[name] = value.strip()
    if not members:
        return None
    try:
        return msgspec.convert(members, PrintOptions, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise Mistake(f"print option {where.rstrip('`') or '?'}: {what}") from error


def _submit(
    client: "Client",
    file: str,
    printer: str,
    options: PrintOptions | None,
    *,
    kind: str | None,
    title: str | None,
    tags: Sequence[str],
    idempotency_key: str | None,
    **more: Any,
) -> "SubmitReply":
    from farhand.cli.names import printer_id
    from farhand.client import Unreachable
    from farhand.client.calls import is_pdf, new_idempotency_key

    if re.match(r"https?://", file):
        content, url = None, file
        pdf = re.search(r"\.(prn|zpl|epl|raw|bin|txt|ps|pcl)$", file.partition("?")[0], re.IGNORECASE) is None
    else:
        content, url = _read(file), None
        pdf = is_pdf(content)
        if not content:
            raise Mistake(f"{file} is empty; there is nothing to print")
    word = kind or ("pdf" if pdf else "raw")
    where, key = printer_id(client, printer), idempotency_key or new_idempotency_key()
    try:
        return client.submit_print(
            where,
            content,
            type=f"{word}_uri" if url else f"{word}_base64",
            url=url,
            title=title or _title(file),
            source="farhand print",
            options=options,
            tags=tags,
            idempotency_key=key,
            **more,
        )
    except Unreachable as error:
        if not error.maybe_taken:
            raise
        raise FarhandError(
            f"{error.message}\nThe job may have been taken all the same. Send it again, never twice, with:\n"
            f"  --idempotency-key {key}"
        ) from error


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Mistake(f"cannot read {file}: {error.strerror}") from error


def _title(file: str) -> str:
    if file == "-":
        return "standard input"
    name = file.partition("?")[0].rstrip("/").rpartition("/")[2] or file
    return name.encode("utf-8", "replace").decode()[:200]


def _show_made(session: Session, made: "SubmitReply", printer: str) -> None:
    if session.as_json:
        show_json(made)
        return
    click.echo(made.id)
    click.echo(
        f"{clean(made.state)} for {clean(printer)}; follow it with: farhand jobs show {made.id} --wait",
        err=True,
    )
