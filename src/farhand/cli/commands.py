"""`farhand commands`: ask agents to act, and see what came of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from farhand.cli.connection import Session, api_options
from farhand.cli.mistakes import Mistake
from farhand.cli.output import Cell, Column, make_console, show_facts, show_json, show_table
from farhand.cli.print_file import Duration
from farhand.cli.words import (
    CALM,
    EXIT_CODES,
    STYLES,
    TIMEOUT_EXIT,
    age,
    change,
    clean,
    json_line,
    local_time,
    moment,
)
from farhand.model.clock import SystemClock
from farhand.protocol.commands import STATUSES, CommandView

if TYPE_CHECKING:
    from farhand.client import Client

COLUMNS = (
    Column(title="UUID"),
    Column(title="STATUS"),
    Column(title="TYPE", shrink=True),
    Column(title="AGENT", shrink=True),
    Column(title="AGE"),
    Column(title="REASON", shrink=True),
)
_WAIT = "Stay until it is over; the exit code says how."


@click.group()
def commands() -> None:
    """Ask agents to act, and see what came of it."""


@commands.command("issue")
@click.argument("type_name", metavar="TYPE")
@click.argument("agent")
@click.option(
    "--param", "-p", "pairs", multiple=True, metavar="NAME=TEXT", help="A parameter; may be repeated."
)
@click.option("--params", "text", metavar="JSON", help="All parameters as a JSON object, or @FILE.")
@click.option("--expires-in", type=Duration(), metavar="TIME", help="Give up if not collected by then.")
@click.option("--idempotency-key", metavar="KEY", help="The same key never makes a second command.")
@click.option("--wait", is_flag=True, help=_WAIT)
@click.option("--timeout", type=Duration(), metavar="TIME", help="Stop waiting after this; implies --wait.")
@api_options
def issue_command(
    session: Session,
    type_name: str,
    agent: str,
    pairs: Sequence[str],
    text: str | None,
    expires_in: int | None,
    idempotency_key: str | None,
    wait: bool,
    timeout: int | None,
) -> int:
    """Write down a command for an agent, by its name or id.

    \b
    Exit codes with --wait: 0 completed, 1 failed, 2 wrong command line,
    3 cancelled, 4 expired, 5 uncertain, 6 timeout.
    """
    params = parse_params(pairs, text)
    with session.client() as client:
        made = client.issue_command(
            type_name, agent, params, idempotency_key=idempotency_key, expires_in=expires_in
        )
        if wait or timeout:
            return _follow(session, client, made.uuid, timeout)
    _show_made(session, made)
    return 0


def parse_params(pairs: Sequence[str], text: str | None) -> dict[str, Any]:
    """The parameters of a command line. Raises Mistake saying which of them cannot be read."""
    params: dict[str, Any] = {}
    if text is not None:
        params = _read_object(text)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Mistake(f"write --param {pair}=TEXT")
        params[name] = value
    return params


def _read_object(text: str) -> dict[str, Any]:
    try:
        source = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        return msgspec.json.decode(source, type=dict[str, Any])
    except OSError as error:
        raise Mistake(f"cannot read {text[1:]}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Mistake(f"--params takes a JSON object or @FILE: {error}") from error


def _show_made(session: Session, made: CommandView) -> None:
    if session.as_json:
        show_json(made)
        return
    click.echo(made.uuid)
    click.echo(
        f"{made.status} for {clean(made.agent or made.agent_id)}; follow it with: "
        f"farhand commands show {made.uuid} --wait",
        err=True,
    )


def _follow(session: Session, client: "Client", uuid: str, timeout_s: int | None) -> int:
    """Shows a command's progress until it is over; returns the exit code of its outcome."""
    from farhand.client import CommandOpen

    def tell(seen: CommandView) -> None:
        if not session.as_json and not seen.final:
            click.echo(_sentence(seen), err=True)

    try:
        ended = client.wait_command(
            uuid, timeout_ms=None if timeout_s is None else timeout_s * 1000, on_change=tell
        )
    except CommandOpen as still:
        if session.as_json:
            show_json(still.command)
        click.echo(f"Still {_sentence(still.command)}. It goes on: farhand commands show {uuid}", err=True)
        return TIMEOUT_EXIT
    except KeyboardInterrupt:
        click.echo(f"\nThe command goes on. To stop it: farhand commands cancel {uuid}", err=True)
        raise
    _show_end(session, ended)
    return EXIT_CODES[ended.state]


def _show_end(session: Session, command: CommandView) -> None:
    if session.as_json:
        show_json(command)
        return
    style = STYLES.get(command.state)
    make_console().print(f"{command.uuid} {_sentence(command)}", style=style, soft_wrap=True)
    if command.result is not None:
        click.echo(clean(json_line(command.result) or ""))
    advice = _next_step(command)
    if advice is not None:
        click.echo(advice, err=True)


def _sentence(command: CommandView) -> str:
    """Where the command stands, in full."""
    text = "uncertain" if command.state == "uncertain" else command.status
    if command.next_attempt_at is not None:
        text = f"{text} until {local_time(command.next_attempt_at)}"
    if command.phase is not None:
        text = f"{text} ({clean(command.phase)})"
    if command.cancel_requested_at is not None and not command.final:
        text = f"{text}, to be cancelled"
    said = command.error if command.status == "failed" else command.reason
    return f"{text}: {clean(said)}" if said and command.status != "completed" else text


def _next_step(command: CommandView) -> str | None:
    if command.status in ("failed", "expired") or command.state == "uncertain":
        return (
            f"What happened: farhand commands events {command.uuid}\n"
            f"Issue it again: farhand commands retry {command.uuid}"
        )
    return None


@commands.command("list")
@click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="Only with this status.")
@click.option("--type", "type_name", metavar="TYPE", help="Only of this type.")
@click.option("--agent", metavar="NAME", help="Only for this agent: name or id.")
@click.option("--limit", "-n", type=click.IntRange(1, 200), default=20, show_default=True, help="How many.")
@click.option("--cursor", help="Go on where a list ended.")
@api_options
def list_commands(
    session: Session,
    status: str | None,
    type_name: str | None,
    agent: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """The newest commands first."""
    with session.client() as client:
        page = client.commands(status=status, type=type_name, agent=agent, limit=limit, cursor=cursor)
    if session.as_json:
        show_json(page)
        return
    now = SystemClock().now_ms()
    rows = [
        (
            one.uuid,
            Cell(text=one.status, style=STYLES.get(one.state, CALM)),
            one.type,
            one.agent or one.agent_id,
            age(one.created_at, now),
            None if one.status == "completed" else one.error or one.reason,
        )
        for one in page.items
    ]
    show_table(COLUMNS, rows, empty="There are no such commands.")
    if page.next is not None:
        click.echo(f"There are more: --cursor {page.next}", err=True)


@commands.command("show")
@click.argument("uuid", metavar="UUID")
@click.option("--wait", is_flag=True, help=_WAIT)
@click.option("--timeout", type=Duration(), metavar="TIME", help="Stop waiting after this; implies --wait.")
@api_options
def show_command(session: Session, uuid: str, wait: bool, timeout: int | None) -> int:
    """One command with its result, and what can be done about it."""
    with session.client() as client:
        if wait or timeout:
            return _follow(session, client, uuid, timeout)
        command = client.command(uuid)
    if session.as_json:
        show_json(command)
        return 0
    show_facts(_facts(command))
    advice = _next_step(command)
    if advice is not None:
        click.echo(advice, err=True)
    return 0


def _facts(command: CommandView) -> dict[str, Cell | str | None]:
    return {
        "command": command.uuid,
        "status": Cell(text=_sentence(command), style=STYLES.get(command.state, CALM)),
        "type": command.type,
        "agent": command.agent or command.agent_id,
        "params": json_line(command.params),
        "attempts": str(command.attempts) if command.attempts > 1 else None,
        "last error": command.error if command.status != "failed" else None,
        "created": moment(command.created_at),
        "collected": moment(command.collected_at),
        "next attempt": moment(command.next_attempt_at),
        "expires": None if command.final or command.collected_at else moment(command.expires_at),
        "finished": moment(command.finished_at),
        "retry of": command.retry_of,
        "result": json_line(command.result),
    }


@commands.command("events")
@click.argument("uuid", metavar="UUID")
@api_options
def show_events(session: Session, uuid: str) -> None:
    """What happened to a command, when and why, oldest first."""
    with session.client() as client:
        found = client.command_events(uuid)
    if session.as_json:
        show_json({"items": found})
        return
    columns = (
        Column(title="TIME"),
        Column(title="STATUS"),
        Column(title="WHAT HAPPENED", shrink=True),
    )
    rows = [(local_time(event.at), change(event), event.text) for event in found]
    show_table(columns, rows, empty="Nothing is known to have happened.")


@commands.command("cancel")
@click.argument("uuid", metavar="UUID")
@click.option("--reason", help="Why, for the trail.")
@click.option("--wait", is_flag=True, help=_WAIT)
@api_options
def cancel_command(session: Session, uuid: str, reason: str | None, wait: bool) -> int:
    """Ask for a command to be cancelled. What really happens wins: it may still be completed."""
    with session.client() as client:
        command = client.cancel_command(uuid, reason=reason)
        if wait and not command.final:
            return _follow(session, client, uuid, None)
    _show_end(session, command)
    if not session.as_json and not command.final:
        click.echo("The agent is at work on it; what it reports shows in the command's end.", err=True)
    return EXIT_CODES[command.state] if wait else 0


@commands.command("retry")
@click.argument("uuid", metavar="UUID")
@click.option("--wait", is_flag=True, help="Stay until the new one is over; the exit code says how.")
@api_options
def retry_command(session: Session, uuid: str, wait: bool) -> int:
    """Issue a finished or uncertain command again, as a new one."""
    with session.client() as client:
        made = client.retry_command(uuid)
        if wait:
            return _follow(session, client, made.uuid, None)
    _show_made(session, made)
    return 0
