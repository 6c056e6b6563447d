"""`farhand keys`: client keys with some grants."""

from collections.abc import Sequence

import click

from farhand.cli.connection import Session, api_options
from farhand.cli.output import Cell, Column, show_json, show_table
from farhand.cli.words import age, clean
from farhand.model.clock import SystemClock
from farhand.model.ids import parse_id


@click.group()
def keys() -> None:
    """Make and revoke client keys."""


@keys.command("create")
@click.argument("name")
@click.option(
    "--grant", "-g", "grants", multiple=True, required=True, metavar="GRANT",
    help="What it may do, such as jobs.submit; may be repeated.",
)  # fmt: skip
@click.option("--user", metavar="NAME", help="Whose key it is; somebody new if need be [the first user].")
@api_options
def create_key(session: Session, name: str, grants: Sequence[str], user: str | None) -> None:
    """Make a key for those who submit or manage work.

    What a user's keys submit to be fetched goes to the agents that the user owns.

    \b
    Grants: jobs.submit jobs.read jobs.manage printers.read agents.read
    agents.manage keys.manage metrics.read audit.read results.secret
    """
    with session.client() as client:
        made = client.create_key(name, grants, user=user)
    if session.as_json:
        show_json(made)
        return
    click.echo(made.key)
    whose = f" of {clean(made.user)}" if made.user else ""
    click.echo(f"The key {clean(made.name)}{whose} ({', '.join(made.grants)}), shown this once.", err=True)


@keys.command("list")
@api_options
def list_keys(session: Session) -> None:
    """All keys, without their secrets."""
    with session.client() as client:
        found = client.keys()
    if session.as_json:
        show_json({"items": found, "next": None})
        return
    now = SystemClock().now_ms()
    columns = (
        Column(title="ID"),
        Column(title="KEY", shrink=True),
        Column(title="USER", shrink=True),
        Column(title="STATE"),
        Column(title="AGE"),
        Column(title="GRANTS", shrink=True),
    )
    rows = [
        (
            key.id,
            key.name,
            key.user,
            Cell(text="revoked", style="dim") if key.revoked_at else Cell(text="valid", style="green"),
            age(key.created_at, now),
            ", ".join(key.grants),
        )
        for key in found
    ]
    show_table(
        columns, rows, empty="There are no keys yet. Make one with: farhand keys create NAME --grant …"
    )


@keys.command("revoke")
@click.argument("name")
@api_options
def revoke_key(session: Session, name: str) -> None:
    """End a key, by name or id."""
    from farhand.cli.names import find_named

    key_id = name
    with session.client() as client:
        if parse_id(name) is None:
            everything = client.keys()
            key_id = find_named("key", [key for key in everything if key.revoked_at is None], name)
        client.revoke_key(key_id)
    if session.as_json:
        show_json({"id": key_id})
        return
    click.echo(f"{clean(name)} is revoked.")
