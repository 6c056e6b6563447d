"""Printers and agents by what people call them."""

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from farhand.cli.mistakes import Mistake
from farhand.cli.words import clean
from farhand.model.ids import parse_id

if TYPE_CHECKING:
    from farhand.client import Client
    from farhand.protocol.client import PrinterView

T = TypeVar("T")
SHOWN = 8


class Named(Protocol):
    """What has an id and a name."""

    @property
    def id(self) -> str:
        """The server's id."""
        ...

    @property
    def name(self) -> str:
        """What people call it."""
        ...


def find_printer(client: "Client", text: str) -> "PrinterView":
    """A printer by id, number, name, or agent/name when two agents use the same name."""
    found = client.printers(with_gone=True)
    present = [printer for printer in found if printer.gone_at is None]
    for choice in (present, found):
        matches = _matches(choice, text, lambda printer: (printer.id, str(printer.number)))
        matches = matches or _matches(choice, text, lambda p: (p.name, f"{p.agent}/{p.name}"))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(clean(f"{printer.agent}/{printer.name}") for printer in matches[:SHOWN])
            raise Mistake(f"several printers are called {text!r}; say which: {names}")
    raise unknown("printer", text, [printer.name for printer in present], "farhand agent join adds some")


def printer_id(client: "Client", text: str) -> str:
    """A printer's id by anything find_printer takes; an id is not looked up."""
    return text if parse_id(text) is not None else find_printer(client, text).id


def agent_id(client: "Client", text: str) -> str:
    """An agent's id by id or name; an id is not looked up."""
    return text if parse_id(text) is not None else find_named("agent", client.agents(), text)


def find_named(what: str, things: Sequence[Named], text: str, empty: str = "there is none yet") -> str:
    """The id of the one thing called `text`. Raises Mistake with near ones otherwise."""
    matches = _matches(things, text, lambda thing: (thing.name,))
    if len(matches) == 1:
        return matches[0].id
    if matches:
        ids = ", ".join(thing.id for thing in matches[:SHOWN])
        raise Mistake(f"several {what}s are called {text!r}; give the id: {ids}")
    raise unknown(what, text, [thing.name for thing in things], empty)


def unknown(what: str, text: str, names: Sequence[str], empty: str) -> Mistake:
    """The error for a name nobody has, with near ones or all of them."""
    if not names:
        return Mistake(f"there is no {what} {text!r}; {empty}")
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(text.lower(), lower, n=1)
    hint = f"did you mean {clean(lower[near[0]])!r}?" if near else f"known are {_some(names)}"
    return Mistake(f"there is no {what} {text!r}; {hint}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(clean(name) for name in names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def _matches(things: Sequence[T], text: str, names: Callable[[T], tuple[str, ...]]) -> list[T]:
    exact = [thing for thing in things if text in names(thing)]
    lower = text.lower()
    return exact or [thing for thing in things if lower in (name.lower() for name in names(thing))]
