"""Tables and JSON on standard output."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from farhand.cli.words import CALM, clean

GAP: Final = 2
NARROWEST: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column's heading; only one that may `shrink` is cut to fit a terminal."""

    title: str
    shrink: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A text and its style."""

    text: str
    style: str = CALM


def show_json(value: object) -> None:
    """Any message, as the API writes it, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell | str | None]], *, empty: str) -> None:
    """A table that fits the terminal; in a pipe nothing is cut. `empty` is said when there is no row."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        click.echo(empty, err=True)
        return
    console = make_console()
    widths = [
        max(cell_len(column.title), *(cell_len(row[place].text) for row in cells))
        for place, column in enumerate(columns)
    ]
    if console.is_terminal:
        _fit(widths, columns, console.width)

    def line(row: Sequence[Cell]) -> Text:
        text = Text()
        for cell, width in zip(row, widths, strict=True):
            fitting = cell.text
            if cell_len(fitting) > width:
                fitting = set_cell_size(fitting, width - 1) + "…"
            text.append(fitting, cell.style)
            text.append(" " * (width - cell_len(fitting) + GAP))
        text.rstrip()
        return text

    console.print(line([Cell(text=column.title, style="bold") for column in columns]), soft_wrap=True)
    for row in cells:
        console.print(line(row), soft_wrap=True)


def show_facts(facts: Mapping[str, Cell | str | None]) -> None:
    """One thing, a fact a line; what is not known is left out."""
    from rich.text import Text

    console = make_console()
    known = {name: _cell(value) for name, value in facts.items() if value is not None}
    width = max(len(name) for name in known)
    for name, cell in known.items():
        console.print(Text.assemble((f"{name:<{width}}  ", "dim"), (cell.text, cell.style)), soft_wrap=True)


def make_console(*, stderr: bool = False):  # noqa: ANN201  (rich is loaded here only)
    """A console that writes what it is given and nothing else."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _cell(value: Cell | str | None) -> Cell:
    if isinstance(value, Cell):
        return Cell(text=clean(value.text), style=value.style)
    return Cell(text=clean(value or ""))


def _fit(widths: list[int], columns: Sequence[Column], room: int) -> None:
    """Takes from the widest column that may shrink until all fit."""
    shrinking = [place for place, column in enumerate(columns) if column.shrink]
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    while excess > 0 and shrinking:
        widest = max(shrinking, key=lambda place: widths[place])
        if widths[widest] <= max(NARROWEST, len(columns[widest].title)):
            return
        widths[widest] -= 1
        excess -= 1
