"""One module per measure: `ORDER` (its place in the table) and `run(context) -> Measure`.

A new measure is one new file in this folder; nothing else has to know of it.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from bench.measure import Context, Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A measure that can be run; `about` is the first line of its module's docstring."""

    name: str
    order: int
    about: str
    run: Callable[[Context], Measure]


def find_measures() -> list[Entry]:
    """Import every module of this folder; return the measures in the order of the table."""
    entries: list[Entry] = []
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        about = (module.__doc__ or "").strip().partition("\n")[0]
        entries.append(Entry(name=found.name, order=module.ORDER, about=about, run=module.run))
    return sorted(entries, key=lambda entry: (entry.order, entry.name))
