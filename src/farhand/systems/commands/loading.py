"""From a name such as `mypackage.handlers:commands` to a registry."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from farhand.agent.config import ConfigError
from farhand.model.policy import suggest
from farhand.systems.commands.sdk import Commands

_KEYS: Final = ("handlers",)


def from_section(section: Mapping[str, object], folder: Path) -> Commands:
    """The registries that a `[commands]` table names in `handlers`, joined; without one, none.

    Packages are looked for in `folder`, too. Raises ConfigError.
    """
    for key in section:
        if key not in _KEYS:
            raise ConfigError(f"[commands] has no setting {key!r}{suggest(key, _KEYS)}")
    value = section.get("handlers", [])
    listed: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
    references = [entry for entry in listed if isinstance(entry, str) and entry]
    if len(references) < len(listed):
        raise ConfigError(
            '[commands] handlers must be a text such as "mypackage.handlers", or a list of them'
        )
    return load_registries(references, folder)


def load_registries(references: Sequence[str], folder: Path) -> Commands:
    """Registries by `module` or `module:name`, joined. Raises ConfigError, RegistryError."""
    joined = Commands()
    for reference in references:
        joined.include(load_registry(reference, folder))
    return joined


def load_registry(reference: str, folder: Path) -> Commands:
    """A registry by `module:name`; by `module` alone the only one that the module has.

    The name may also stand for a function without arguments that makes one, so that nothing
    is made when the module is imported. Raises ConfigError, and whatever the module raises.
    """
    module_name, _, name = reference.partition(":")
    module = _module(module_name, folder)
    found = _only(module) if not name else getattr(module, name, None)
    if found is None:
        raise ConfigError(f"{module_name} has no {name!r}; write {module_name}:NAME of its registry")
    if callable(found) and not isinstance(found, Commands):
        found = found()
    if not isinstance(found, Commands):
        raise ConfigError(f"{reference} is no farhand.systems.commands.Commands, nor makes one")
    if not found.handlers:
        raise ConfigError(f"{reference} has no handlers; register them with @commands.on(…)")
    return found


def _module(name: str, folder: Path) -> ModuleType:
    # What is started by a console script does not find the package beside its settings.
    for place in (str(folder), str(Path.cwd())):
        if place not in sys.path:
            sys.path.insert(0, place)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {name} here or in {folder}") from error
        raise
    except ValueError as error:
        raise ConfigError(f"{name!r} is no module; write it like mypackage.handlers") from error


def _only(module: ModuleType) -> Commands:
    registries: dict[int, Any] = {id(v): v for v in vars(module).values() if isinstance(v, Commands)}
    if len(registries) == 1:
        return next(iter(registries.values()))
    count = "no registry" if not registries else f"{len(registries)} registries"
    raise ConfigError(f"{module.__name__} has {count}; write {module.__name__}:NAME of the one that is meant")
