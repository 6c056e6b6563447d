"""The `[farm]` table of agent.toml, and printers.toml behind it."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from farhand.agent.config import ConfigError
from farhand.model.clock import Clock
from farhand.model.policy import suggest
from farhand.protocol.farm import DeclaredPrinter, LoadedSpool, Mm, SizeMm, Word
from farhand.systems.farm.drivers.base import Driver
from farhand.systems.farm.drivers.virtual import VirtualPrinter

DRIVERS: Final = ("virtual",)
_KEYS: Final = ("farm", "printers", "telemetry_ms", "look_ms")
_FASTEST_MS: Final = 10


class _Virtual(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry of printers.toml with the driver `virtual`."""

    id: str
    driver: str
    model: Word | None = None
    nozzle: Mm | None = None
    loaded: list[LoadedSpool] = []
    bed: SizeMm | None = None
    tags: list[Word] = []
    folder: str | None = None
    prepare_ms: int = 1_000
    duration_ms: int = 30_000
    bytes_per_second: int | None = None
    watch_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterEntry:
    """One printer of printers.toml, with its driver made."""

    id: str
    driver: Driver
    declared: DeclaredPrinter


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmSettings:
    """Which farm the gateway serves, with which printers.

    `telemetry_ms` is how often it tells of them, `look_ms` how often it looks at one at work.
    """

    farm: str
    printers: tuple[PrinterEntry, ...]
    telemetry_ms: int
    look_ms: int


def read_settings(table: Mapping[str, object], folder: Path, clock: Clock) -> FarmSettings | None:
    """Settings from the table; None without one. Relative paths start in `folder`.

    Raises ConfigError naming the setting, and the nearest known one, when it does not fit.
    """
    if not table:
        return None
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"[farm] has no setting {key!r}{suggest(key, _KEYS)}")
    farm = table.get("farm")
    if not isinstance(farm, str) or not farm:
        raise ConfigError('[farm] farm is required: the name of the farm, as in farm = "workshop"')
    name = table.get("printers", "printers.toml")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"[farm] printers must be the path of a file, got {name!r}")
    path = folder / name
    return FarmSettings(
        farm=farm,
        printers=_printers(path, clock),
        telemetry_ms=_duration(table, "telemetry_ms", 2_000),
        look_ms=_duration(table, "look_ms", 1_000),
    )


def _duration(table: Mapping[str, object], key: str, default: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < _FASTEST_MS:
        raise ConfigError(f"[farm] {key} must be a whole number of milliseconds, at least {_FASTEST_MS}")
    return value


def _printers(path: Path, clock: Clock) -> tuple[PrinterEntry, ...]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"[farm] printers: {path} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for key in table:
        if key != "printer":
            raise ConfigError(f"{path.name} holds [[printer]] tables only, not {key!r}")
    entries: Any = table.get("printer", [])
    if not isinstance(entries, list):
        raise ConfigError(f"{path.name}: write [[printer]], with two brackets, once for each printer")
    found = tuple(_printer(entry, path, clock) for entry in cast("list[Any]", entries))
    names = [one.id for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path.name}: the id {name!r} stands twice")
    return found


def _printer(entry: Any, path: Path, clock: Clock) -> PrinterEntry:
    name = cast("dict[str, Any]", entry).get("driver") if isinstance(entry, dict) else None
    if name not in DRIVERS:
        near = suggest(str(name), DRIVERS)
        raise ConfigError(f"{path.name}: driver must be one of {', '.join(DRIVERS)}, got {name!r}{near}")
    try:
        given = msgspec.convert(entry, type=_Virtual)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path.name}: {error}") from error
    if not given.id or len(given.id) > 200:
        raise ConfigError(f"{path.name}: an id has 1 to 200 characters, got {given.id!r}")
    driver = VirtualPrinter(
        path.parent / (given.folder or given.id),
        clock,
        prepare_ms=given.prepare_ms,
        duration_ms=given.duration_ms,
        bytes_per_second=given.bytes_per_second,
        watch_ms=given.watch_ms,
    )
    declared = DeclaredPrinter(
        model=given.model, nozzle=given.nozzle, loaded=given.loaded, bed=given.bed, tags=given.tags
    )
    return PrinterEntry(id=given.id, driver=driver, declared=declared)
