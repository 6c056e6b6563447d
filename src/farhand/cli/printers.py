"""`farhand printers`."""

from typing import Any, cast

import click
import msgspec

from farhand.cli.connection import Session, api_options
from farhand.cli.output import Cell, Column, show_facts, show_json, show_table
from farhand.cli.words import CALM, local_time
from farhand.protocol.client import PrinterView


@click.command()
@click.argument("name", required=False)
@click.option("--all", "with_gone", is_flag=True, help="Also those that are gone.")
@api_options
def printers(session: Session, name: str | None, with_gone: bool) -> None:
    """List the printers, or show the one called NAME."""
    from farhand.cli.names import find_printer

    with session.client() as client:
        if name is not None:
            _show_one(session, find_printer(client, name))
            return
        found = client.printers(with_gone=with_gone)
    if session.as_json:
        show_json({"items": found, "next": None})
        return
    columns = (
        Column(title="PRINTER", shrink=True),
        Column(title="AGENT", shrink=True),
        Column(title="STATE"),
        Column(title="TAKES"),
        Column(title="REASON", shrink=True),
    )
    rows = [(item.name, item.agent, presence(item), _takes(item), item.reason) for item in found]
    show_table(columns, rows, empty="There are no printers yet. Add some with: farhand agent join URL")


def presence(printer: PrinterView) -> Cell:
    """Whether work for it would be done now."""
    if printer.gone_at is not None:
        return Cell(text="gone", style="dim")
    if not printer.online:
        return Cell(text="offline", style="red")
    if printer.state in ("idle", "printing"):
        return Cell(text=printer.state, style="green")
    return Cell(text="online" if printer.state == "unknown" else printer.state, style=CALM)


def _takes(printer: PrinterView) -> str:
    capabilities = _capabilities(printer)
    raw = capabilities.get("raw", not printer.can_pdf or None)
    words = (["pdf"] if printer.can_pdf else []) + (["raw"] if raw or raw is None else [])
    return " ".join(words)


def _capabilities(printer: PrinterView) -> dict[str, Any]:
    return msgspec.json.decode(printer.capabilities, type=dict[str, Any])


def _show_one(session: Session, printer: PrinterView) -> None:
    if session.as_json:
        show_json(printer)
        return
    facts: dict[str, Cell | str | None] = {
        "printer": printer.name,
        "id": printer.id,
        "number": str(printer.number),
        "agent": printer.agent,
        "state": presence(printer),
        "reason": printer.reason,
        "takes": _takes(printer),
        "gone since": None if printer.gone_at is None else local_time(printer.gone_at),
        "known since": local_time(printer.created_at),
    }
    for name, value in _capabilities(printer).items():
        if name not in ("raw", "pdf") and value not in (None, [], ""):
            facts[name.replace("_", " ")] = _value(value)
    show_facts(facts)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(item) for item in cast("list[Any]", value))
    return str(value)
