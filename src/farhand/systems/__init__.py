"""The door through which systems come in: our own and those of other packages alike."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from farhand.model.policy import suggest
from farhand.model.system import ManifestError, System

BUILTIN: Final = (
    "farhand.systems.commands",
    "farhand.systems.farm",
    "farhand.systems.fetch",
    "farhand.systems.printing",
)
"""Modules with a `SYSTEM`; a new system of ours is one folder and one line here."""

ENTRY_POINTS: Final = "farhand.systems"


def find_systems(found: Iterable[EntryPoint] | None = None) -> tuple[System, ...]:
    """All systems of this installation, by name. `found` replaces the installed entry points.

    Raises ManifestError naming the culprit when a manifest cannot be loaded or takes a name,
    kind or type that is already taken.
    """
    systems = [_manifest(f"{module}:SYSTEM") for module in BUILTIN]
    for point in entry_points(group=ENTRY_POINTS) if found is None else found:
        systems.append(_manifest(point.value))
    _check_unique(systems)
    return tuple(sorted(systems, key=lambda system: system.name))


def configured(
    systems: Iterable[System],
    sections: Mapping[str, Mapping[str, object]],
    load: Callable[[str], Any],
) -> tuple[System, ...]:
    """The systems with what their own tables of farhand.toml, and other packages, add to them.

    Raises ManifestError for a table of no system or a name taken twice, and what the systems
    raise for a table that does not fit.
    """
    found: list[System] = []
    for system in systems:
        if system.configure is None:
            found.append(system)
            continue
        found.append(load(system.configure)(system, sections.get(system.name, {})))
    names = tables_of(found)
    for name in sections:
        if name not in names:
            raise ManifestError(f"farhand.toml has no table [{name}]{suggest(name, names)}")
    _check_unique(found)
    return tuple(found)


def tables_of(systems: Iterable[System]) -> tuple[str, ...]:
    """The tables of farhand.toml that belong to systems."""
    return tuple(system.name for system in systems if system.configure is not None)


def load(reference: str) -> Any:
    """What a manifest's `module:name` stands for.

    Raises ManifestError when there is no such module or name.
    """
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ManifestError(f"{reference} cannot be loaded: {error}; repair or remove the package") from error


def _manifest(reference: str) -> System:
    found = load(reference if ":" in reference else f"{reference}:SYSTEM")
    if not isinstance(found, System):
        raise ManifestError(f"{reference} is no farhand.model.system.System; repair or remove the package")
    return found


def _check_unique(systems: Iterable[System]) -> None:
    owners: dict[tuple[str, str], str] = {}
    for system in systems:
        words = [("name", system.name)]
        words += [("kind", kind) for kind in system.kinds]
        words += [("type", word) for word in system.types]
        for what, word in words:
            if (what, word) in owners:
                owner = owners[what, word]
                raise ManifestError(f"system {system.name}: the {what} {word!r} belongs to system {owner}")
            owners[what, word] = system.name
