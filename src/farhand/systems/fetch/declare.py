"""The table `[fetch]` of farhand.toml: what the server itself refuses to pass on."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from farhand.egress import EgressPolicy
from farhand.egress.policy import parse_networks
from farhand.model.errors import FarhandError
from farhand.model.policy import suggest
from farhand.model.system import System

SETTINGS: Final = "settings"


class SettingError(FarhandError):
    """A setting of `[fetch]` that does not fit; the message names it."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRules:
    """The `[fetch]` settings of the server.

    They only give early answers: agents check every request themselves. `loopback` lets requests
    to the agents' own machines through, for local development; `denied_names` (with their
    subdomains) and `denied_cidrs` are refused whatever a request says.
    """

    loopback: bool = False
    denied_names: tuple[str, ...] = ()
    denied_cidrs: tuple[str, ...] = ()

    def guard(self, *, private: bool) -> EgressPolicy:
        """What any agent could be allowed at most: the rules for an early answer.

        With `private` no range is shut that an operator could open.
        """
        return EgressPolicy(
            ports=None,
            private_cidrs=("0.0.0.0/0", "::/0") if private else (),
            denied_names=self.denied_names,
            denied_cidrs=self.denied_cidrs,
            loopback=self.loopback,
            nat64=True,
        )


def configure(system: System, table: Mapping[str, object]) -> System:
    """The manifest with the settings found. Raises SettingError naming what does not fit."""
    return dataclasses.replace(system, declared={SETTINGS: read(table)})


def read(table: Mapping[str, object]) -> FetchRules:
    """The settings of a table. Raises SettingError naming the one that does not fit."""
    known = [entry.name for entry in dataclasses.fields(FetchRules)]
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise SettingError(f"[fetch] has no setting {name!r}{suggest(name, known)}")
        found[name] = _flag(name, value) if name == "loopback" else _texts(name, value)
    try:
        parse_networks(found.get("denied_cidrs", ()))
    except ValueError as error:
        raise SettingError(f"[fetch] denied_cidrs: {error}") from error
    return FetchRules(**found)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SettingError(f"[fetch] {name} must be true or false, got {value!r}")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    entries = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(entry, str) for entry in entries):
        raise SettingError(f"[fetch] {name} must be a list of texts, got {value!r}")
    return tuple(str(entry) for entry in entries)
