"""`farhand agent`: the agent of this machine."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from farhand.cli.logs import LEVELS, start_log
from farhand.cli.output import Cell, Column, show_json, show_table
from farhand.cli.words import CALM, clean
from farhand.model.clock import SystemClock
from farhand.model.errors import FarhandError

if TYPE_CHECKING:
    from farhand.agent.config import AgentConfig
    from farhand.agent.handler import Handler
    from farhand.protocol.agent import PrinterInfo

CONFIG_HELP: Final = "Settings [~/.config/farhand/agent.toml]."
_HEAD: Final = """\
# An agent of Farhand: where it dials to, and what it does for those there.
server = {server}
name = {name}
{more}"""
_PRINTING: Final = """
[printing]
# The queues that this machine's CUPS or spooler has, as far as their names fit.
discover = {discover}
# include = ["*"]
# exclude = ["PDF*"]
# Others, by address: ipp://10.0.0.8/ipp/print, socket://10.0.0.9:9100, file:///srv/labels
printers = [{printers}]
"""
_FETCHING: Final = """
[fetch]
# It requests URLs for its owners: public addresses, on ports 80 and 443.
tags = [{tags}]
"""


@click.group()
def agent() -> None:
    """Run or enrol the agent of this machine."""


@agent.command("run")
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help=CONFIG_HELP)
@click.option("--server", metavar="URL", help="Instead of the one in the settings.")
@click.option("--name", help="Instead of the one in the settings.")
@click.option(
    "--commands",
    "registries",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Run these command handlers; repeatable. Printing takes part only if the settings have it.",
)
@click.option(
    "--log", "level", type=click.Choice(LEVELS), default="info", show_default=True, help="Log from here on."
)
def run_agent(
    path: Path | None, server: str | None, name: str | None, registries: Sequence[str], level: str
) -> None:
    """Work until Ctrl-C.

    What has begun is brought to its end first; a second run takes up what is left.
    """
    from farhand.agent.runner import run

    config = _load(path, {"server": server, "name": name})
    if registries:
        config = _with_commands(config, registries)
    handlers = _handlers(config)
    start_log(level)
    asyncio.run(run(config, handlers, clock=SystemClock(), show=_show))


@agent.command("join")
@click.argument("server", metavar="URL")
@click.option("--name", help="What the agent is called [this machine's name].")
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help=CONFIG_HELP)
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), help="Where its key and journal lie."
)
@click.option("--key-file", type=click.Path(path_type=Path, dir_okay=False), help="Key of an issued agent.")
@click.option(
    "--printer", "printers", multiple=True, metavar="[NAME=]URI", help="Offer this too; repeatable."
)
@click.option("--no-discover", is_flag=True, help="Do not offer the queues of this machine.")
@click.option("--fetch", is_flag=True, help="Request URLs for its owners; printers only with --printer.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="With --fetch: leads requests here.")
@click.option("--force", is_flag=True, help="Replace settings that are already there.")
def join(
    server: str,
    name: str | None,
    path: Path | None,
    data: Path | None,
    key_file: Path | None,
    printers: Sequence[str],
    no_discover: bool,
    fetch: bool,
    tags: Sequence[str],
    force: bool,
) -> None:
    """Let this machine's printers, or its network, take part in the server at URL.

    Writes the settings and a key, shows the code that the server's owner has to type, and
    waits until that has happened.
    """
    from farhand.agent.errors import ShutOut
    from farhand.client import Client

    if tags and not fetch:
        raise click.UsageError("--tag is for an agent with --fetch")
    path = (path or default_config(os.environ)).absolute()
    with Client(server, patience_ms=4_000) as client:
        client.health()
    text = _settings_head(server, name or _machine_name(), data, key_file)
    if printers or not fetch:
        text += _settings_of_printing(printers, discover=not (no_discover or fetch))
    if fetch:
        text += _FETCHING.format(tags=", ".join(_quoted(tag) for tag in tags))
    new = not path.exists()
    config, handlers = _write_settings(path, text, force=force)
    start_log("warning")
    try:
        names = asyncio.run(_enrol(config, handlers))
    except ShutOut:
        # What the server refused is not to stand in the way of another name.
        if new:
            path.unlink()
        raise
    click.echo(f"{clean(config.name)} takes part in {config.server}.")
    if fetch:
        click.echo("It requests URLs for its owners: farhand fetch URL")
    if names or not fetch:
        click.echo(f"Its printers: {', '.join(clean(found) for found in names) or 'none found here yet'}")
    own = "" if path == default_config(os.environ).absolute() else f" --config {path}"
    click.echo(f"Settings: {path}\nStart it with: farhand agent run{own}")


@agent.command("keygen")
@click.argument("path", metavar="FILE", required=False, type=click.Path(path_type=Path, dir_okay=False))
def make_signing_key(path: Path | None) -> None:
    """Make the key that this agent signs its requests with, and show its public half.

    FILE is signing.pem beside the settings unless it is named; only its owner can read it.
    """
    from farhand.agent.signing import make_key

    path = (path or default_config(os.environ).with_name("signing.pem")).absolute()
    click.echo(make_key(path))
    click.echo(
        f"The public key; the private one lies in {path}.\n"
        f"In agent.toml: signing_key_file = {_quoted(path)}\n"
        "On the server, to insist on it: farhand agents sign NAME --public-key KEY --required",
        err=True,
    )


@agent.command("printers")
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help=CONFIG_HELP)
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def list_printers(path: Path | None, as_json: bool) -> None:
    """The printers that this machine's agent offers, as they are now; no server is asked."""
    from farhand.cli.connection import DEFAULT_SERVER

    config = _load(path, {}, fallback=DEFAULT_SERVER)
    found = asyncio.run(_describe(_handlers(config)))
    if as_json:
        show_json({"items": found, "next": None})
        return
    columns = (
        Column(title="PRINTER", shrink=True),
        Column(title="STATE"),
        Column(title="TAKES"),
        Column(title="REASON", shrink=True),
    )
    rows = [
        (
            printer.name,
            Cell(text=printer.state, style="green" if printer.state in ("idle", "printing") else CALM),
            _takes(printer),
            printer.reason,
        )
        for printer in found
    ]
    show_table(
        columns,
        rows,
        empty="No printers here. List one under [printing] in agent.toml, or add a queue to CUPS.",
    )


def default_config(environment: Mapping[str, str]) -> Path:
    """Where the agent's settings are: `farhand/agent.toml` in the user's configuration folder."""
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "farhand" / "agent.toml"


def _load(
    path: Path | None, overrides: Mapping[str, object], *, fallback: str | None = None
) -> "AgentConfig":
    from farhand.agent.config import load_config

    chosen = path or default_config(os.environ)
    if path is None and not chosen.exists():
        server = overrides.get("server") or fallback
        if server is None:
            raise FarhandError(
                f"there are no settings at {chosen}\nJoin a server first: farhand agent join URL"
            )
        return load_config(None, environ=os.environ, overrides={**overrides, "server": server})
    return load_config(chosen, environ=os.environ, overrides=overrides)


def _with_commands(config: "AgentConfig", registries: Sequence[str]) -> "AgentConfig":
    """Settings with these registries instead of their own, and without printing unless it is there.

    Who runs handlers on a machine does not mean to lend its printers.
    """
    from dataclasses import replace

    sections = {"printing": {"discover": False}, **config.sections}
    return replace(config, sections={**sections, "commands": {"handlers": list(registries)}})


def _handlers(config: "AgentConfig") -> "Sequence[Handler]":
    """What each installed system does on the agent, with its table of the settings."""
    from farhand.systems.handlers import build_handlers

    return build_handlers(config)


async def _describe(handlers: "Sequence[Handler]") -> "list[PrinterInfo]":
    try:
        return [printer for handler in handlers for printer in await handler.describe()]
    finally:
        for handler in handlers:
            await handler.aclose()


async def _enrol(config: "AgentConfig", handlers: "Sequence[Handler]") -> list[str]:
    """Registers, waiting for approval as long as it takes; the names of the printers."""
    from farhand.agent.enrol import Registration, find_key
    from farhand.agent.link import Link
    from farhand.agent.signing import find_signer
    from farhand.agent.suspend import Waker

    clock = SystemClock()
    signer = find_signer(config, clock)
    link = Link(config.server, find_key(config), signer=signer, ca_file=config.ca_file)
    registration = Registration(link, Waker(clock), config.name, handlers, _show)
    try:
        await registration.refresh()
    finally:
        for handler in handlers:
            await handler.aclose()
        await link.aclose()
    return list(registration.ids.values())


def _settings_head(server: str, name: str, data: Path | None, key_file: Path | None) -> str:
    more = "" if data is None else f"data = {_quoted(data.absolute())}\n"
    more += "" if key_file is None else f"key_file = {_quoted(key_file.absolute())}\n"
    return _HEAD.format(server=_quoted(server.rstrip("/")), name=_quoted(name), more=more)


def _settings_of_printing(printers: Sequence[str], *, discover: bool) -> str:
    return _PRINTING.format(
        discover="true" if discover else "false",
        printers=", ".join(_printer(entry) for entry in printers),
    )


def _printer(entry: str) -> str:
    """`name=uri` as a table, a bare address as it is."""
    name, equals, uri = entry.partition("=")
    if not equals or ":" in name or "/" in name:
        return _quoted(entry)
    return f"{{ name = {_quoted(name)}, uri = {_quoted(uri)} }}"


def _quoted(value: object) -> str:
    """A TOML string; JSON's escapes are TOML's too."""
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_settings(path: Path, text: str, *, force: bool) -> "tuple[AgentConfig, Sequence[Handler]]":
    """Writes settings that only the owner can read, once they have been found to work.

    Raises FarhandError when they do not, or when other settings are there already.
    """
    if path.exists() and not force and path.read_text("utf-8") != text:
        raise FarhandError(
            f"{path} holds other settings\nKeep them with `farhand agent run`, or add --force."
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        config = _load(fresh, {})
        handlers = _handlers(config)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return config, handlers


def _machine_name() -> str:
    import socket

    return socket.gethostname() or "agent"


def _takes(printer: "PrinterInfo") -> str:
    capabilities: dict[str, Any] = printer.capabilities or {}
    words = ["pdf"] if printer.can_pdf else []
    return " ".join([*words, "raw"] if capabilities.get("raw", True) else words)


def _show(text: str) -> None:
    click.echo(clean(text), err=True)
