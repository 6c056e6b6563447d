"""`farhand agents`: the agents as the server knows them."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from farhand.cli.connection import Session, api_options
from farhand.cli.output import Cell, Column, show_facts, show_json, show_table
from farhand.cli.words import age, clean
from farhand.model.clock import SystemClock

if TYPE_CHECKING:
    from farhand.client import Client
    from farhand.protocol.client import AgentView, PendingView


@click.group()
def agents() -> None:
    """List, approve and revoke agents."""


@agents.command("list")
@api_options
def list_agents(session: Session) -> None:
    """All agents, and how many wait for approval."""
    with session.client() as client:
        found = client.agents()
        if session.as_json:
            show_json({"items": found, "next": None})
            return
        waiting = len(client.pending())
    now = SystemClock().now_ms()
    columns = (
        Column(title="AGENT", shrink=True),
        Column(title="STATE"),
        Column(title="SEEN"),
        Column(title="VERSION", shrink=True),
        Column(title="OWNERS", shrink=True),
        Column(title="GRANTS", shrink=True),
        Column(title="ADDRESS", shrink=True),
    )
    rows = [
        (
            agent.name,
            _presence(agent),
            f"{age(agent.last_seen_at, now)} ago" if agent.last_seen_at else "never",
            agent.version if agent.version and agent.bid is None else agent.dialect,
            ", ".join(agent.owners),
            ", ".join(agent.grants),
            agent.address,
        )
        for agent in found
    ]
    show_table(
        columns, rows, empty="There are no agents yet. On a machine with printers: farhand agent join URL"
    )
    if waiting:
        click.echo(f"{waiting} waiting for approval: farhand agents pending", err=True)


def _presence(agent: "AgentView") -> Cell:
    if agent.state != "active":
        return Cell(text=agent.state, style="yellow" if agent.state != "revoked" else "dim")
    return Cell(text="online", style="green") if agent.online else Cell(text="offline", style="red")


@agents.command("pending")
@api_options
def list_pending(session: Session) -> None:
    """The agents that wait for approval."""
    with session.client() as client:
        found = client.pending()
    if session.as_json:
        show_json({"items": found, "next": None})
        return
    now = SystemClock().now_ms()
    columns = (
        Column(title="AGENT", shrink=True),
        Column(title="ADDRESS"),
        Column(title="WAITS"),
        Column(title="RUNTIME", shrink=True),
        Column(title="BID", shrink=True),
    )
    rows = [(item.name, item.address, age(item.first_seen_at, now), item.runtime, item.bid) for item in found]
    show_table(columns, rows, empty="Nobody waits for approval.")
    if found:
        click.echo("Let one in with the code that it shows: farhand agents approve NAME", err=True)


@agents.command("issue")
@click.argument("name")
@api_options
def issue_agent(session: Session, name: str) -> None:
    """Make an agent and its key, so that it needs no approval."""
    with session.client() as client:
        made = client.issue_agent(name)
    if session.as_json:
        show_json(made)
        return
    click.echo(made.key)
    click.echo(
        f"The key of agent {clean(made.name)}, shown this once. On its machine, write it to a file and:\n"
        f"  farhand agent join {clean(session.server)} --name {clean(made.name)} --key-file FILE",
        err=True,
    )


@agents.command("approve")
@click.argument("name")
@click.option("--code", help="The code that the device shows [asked for].")
@click.option("--without-code", is_flag=True, help="Trust the name alone; it is marked as such.")
@api_options
def approve_agent(session: Session, name: str, code: str | None, without_code: bool) -> None:
    """Let a waiting agent in, and own it.

    Look at the device, not at this list: only who stands before it can read its code. An agent
    that is in already shows none: --without-code makes you one more of its owners.
    """
    if code is not None and without_code:
        raise click.UsageError("give --code or --without-code, not both")
    with session.client() as client:
        entry = _find_pending(client, name, shared=without_code)
        if code is None and not without_code:
            code = _ask_code(entry)
        approved = client.approve(entry.id, code=code.strip() if code else None, without_code=without_code)
    if session.as_json:
        show_json(approved)
        return
    click.echo(f"{clean(approved.name)} is in.")


def _ask_code(entry: "PendingView | AgentView") -> str:
    where = f" ({clean(entry.address)})" if entry.address else ""
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"give the code that {clean(entry.name)}{where} shows with --code, or --without-code"
        )
    return click.prompt(f"Code shown by {clean(entry.name)}{where}", err=True)


def _find_pending(client: "Client", text: str, *, shared: bool) -> "PendingView | AgentView":
    """Who waits under a name or id; with `shared` also who is in already, to own it too."""
    from farhand.cli.names import find_named

    waiting: list[PendingView | AgentView] = [*client.pending()]
    if shared:
        waiting += [agent for agent in client.agents() if agent.state != "revoked"]
    by_id = {entry.id: entry for entry in waiting}
    if text in by_id:
        return by_id[text]
    return by_id[find_named("waiting agent", waiting, text, "nobody waits; has it been started there?")]


@agents.command("stats")
@click.argument("name")
@api_options
def agent_stats(session: Session, name: str) -> None:
    """How much an agent has fetched, whoever wanted it."""
    from farhand.cli.names import agent_id

    with session.client() as client:
        found = client.agent_stats(agent_id(client, name))
    if session.as_json:
        show_json(found)
        return
    show_facts(
        {
            "taken": str(found.claims),
            "done": str(found.jobs_done),
            "failed": str(found.jobs_failed),
            "refused": str(found.jobs_refused),
            "bytes": str(found.bytes_out),
        }
    )


@agents.command("revoke")
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@api_options
def revoke_agent(session: Session, name: str, yes: bool) -> None:
    """Shut an agent out; its key is worth nothing from then on."""
    from farhand.cli.names import agent_id

    with session.client() as client:
        found = agent_id(client, name)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Shut out {clean(name)}?", abort=True, err=True)
        revoked = client.revoke(found)
    _show_changed(session, revoked, "is shut out")


@agents.command("grant")
@click.argument("name")
@click.argument("grants", nargs=-1, required=True, metavar="GRANT...")
@api_options
def grant_agent(session: Session, name: str, grants: Sequence[str]) -> None:
    """Set what an agent may do: agent.work, commands.process.

    The grants named replace those that it has.
    """
    from farhand.cli.names import agent_id

    with session.client() as client:
        changed = client.grants(agent_id(client, name), grants)
    _show_changed(session, changed, f"may: {', '.join(changed.grants)}")


@agents.command("sign")
@click.argument("name")
@click.option("--public-key", metavar="KEY", help="What `farhand agent keygen` showed [the one it has].")
@click.option("--required/--optional", default=False, help="Whether it has to sign [optional].")
@click.option("--off", is_flag=True, help="Forget its signing key.")
@api_options
def sign_agent(session: Session, name: str, public_key: str | None, required: bool, off: bool) -> None:
    """Set the key that an agent signs its requests with, and whether it has to.

    Where it has to, its other key alone opens nothing any more.
    """
    from farhand.cli.names import agent_id

    if off and (public_key is not None or required):
        raise click.UsageError("give --off alone")
    with session.client() as client:
        found = agent_id(client, name)
        key = public_key if public_key is not None or off else client.agent(found).public_key
        if key is None and not off:
            raise click.UsageError("it has no signing key yet; give --public-key")
        changed = client.sign(found, key, required=required)
    words = {"off": "no longer signs", "optional": "may sign", "required": "has to sign"}
    _show_changed(session, changed, words.get(changed.signing, changed.signing))


@agents.command("pause")
@click.argument("name")
@api_options
def pause_agent(session: Session, name: str) -> None:
    """Give an agent no more work for now."""
    from farhand.cli.names import agent_id

    with session.client() as client:
        changed = client.pause(agent_id(client, name))
    _show_changed(session, changed, "is paused")


@agents.command("drain")
@click.argument("name")
@api_options
def drain_agent(session: Session, name: str) -> None:
    """Let an agent end what it has, and give it nothing more."""
    from farhand.cli.names import agent_id

    with session.client() as client:
        changed = client.drain(agent_id(client, name))
    _show_changed(session, changed, "ends what it has")


@agents.command("resume")
@click.argument("name")
@api_options
def resume_agent(session: Session, name: str) -> None:
    """Give a paused or drained agent work again."""
    from farhand.cli.names import agent_id

    with session.client() as client:
        changed = client.resume(agent_id(client, name))
    _show_changed(session, changed, "takes work")


def _show_changed(session: Session, agent: "AgentView", what: str) -> None:
    if session.as_json:
        show_json(agent)
        return
    click.echo(f"{clean(agent.name)} {clean(what)}.")
