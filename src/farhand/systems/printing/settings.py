"""The `[printing]` table of agent.toml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from farhand.agent.config import ConfigError
from farhand.model.policy import suggest
from farhand.systems.printing.discover import ListedPrinter, driver_for

_KEYS: Final = ("discover", "include", "exclude", "printers", "cups", "sumatra")
_PRINTER_KEYS: Final = ("uri", "name", "fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintingSettings:
    """Which printers the agent offers.

    `discover`: the machine's own queues, as far as `include` and `exclude` admit their names;
    `printers` are offered in any case. `cups` is `host:port` or a socket's path where the
    machine's own cupsd is not meant; `sumatra` is where SumatraPDF lies (Windows).
    """

    discover: bool = True
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    printers: tuple[ListedPrinter, ...] = ()
    cups: str | None = None
    sumatra: Path | None = None


def read_settings(table: Mapping[str, object], folder: Path) -> PrintingSettings:
    """Settings from the table; relative paths start in `folder`.

    Raises ConfigError naming the setting, and the nearest known one, when it does not fit.
    """
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"[printing] has no setting {key!r}{suggest(key, _KEYS)}")
    discover = table.get("discover", True)
    if not isinstance(discover, bool):
        raise ConfigError(f"[printing] discover must be true or false, got {discover!r}")
    sumatra = _text(table, "sumatra")
    return PrintingSettings(
        discover=discover,
        include=_texts(table, "include", ("*",)),
        exclude=_texts(table, "exclude", ()),
        printers=_printers(table.get("printers", [])),
        cups=_text(table, "cups"),
        sumatra=None if sumatra is None else folder / sumatra,
    )


def _printers(value: object) -> tuple[ListedPrinter, ...]:
    if not isinstance(value, list):
        raise ConfigError('[printing] printers must be a list such as ["socket://10.0.0.9:9100"]')
    printers = tuple(_printer(entry) for entry in cast("list[object]", value))
    names = [printer.name for printer in printers if printer.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"[printing] printers: the name {name!r} stands twice")
    return printers


def _printer(entry: object) -> ListedPrinter:
    if isinstance(entry, str):
        fields: dict[str, Any] = {"uri": entry}
    elif isinstance(entry, dict):
        fields = cast("dict[str, Any]", entry)
    else:
        raise ConfigError(f"[printing] printers: {entry!r} is neither an address nor a table with a uri")
    for key, value in fields.items():
        if key not in _PRINTER_KEYS:
            raise ConfigError(f"[printing] printers: no field {key!r}{suggest(key, _PRINTER_KEYS)}")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"[printing] printers: {key} must be a text that is not empty, got {value!r}")
    if "uri" not in fields:
        raise ConfigError(f"[printing] printers: {entry!r} has no uri")
    try:
        driver_for(fields["uri"], fingerprint=fields.get("fingerprint"))
    except ValueError as error:
        raise ConfigError(f"[printing] printers: {error}") from error
    return ListedPrinter(uri=fields["uri"], name=fields.get("name"), fingerprint=fields.get("fingerprint"))


def _text(table: Mapping[str, object], key: str) -> str | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"[printing] {key} must be a text that is not empty, got {value!r}")
    return value


def _texts(table: Mapping[str, object], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = table.get(key)
    if value is None:
        return default
    entries = cast("list[object]", value) if isinstance(value, list) else []
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigError(f"[printing] {key} must be a list of texts, got {value!r}")
    return tuple(str(entry) for entry in entries)
