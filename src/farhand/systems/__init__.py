"""The door through which systems come in: our own and those of other packages alike."""

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from farhand.model.system import ManifestError, System

BUILTIN: Final = ("farhand.systems.printing",)
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
