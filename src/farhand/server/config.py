"""Server settings: farhand.toml, the command line, the environment."""

import dataclasses
import os
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farhand.egress.policy import parse_networks
from farhand.model.errors import FarhandError
from farhand.model.policy import Policy, suggest

ROOT_TOKEN_FILE = "root-token"  # noqa: S105  (a file name)
TOKEN_MIN = 16
_HOUR_MS = 3_600_000
_ANY = 1 << 40
_BOUNDS: dict[str, tuple[int, int]] = {
    "port": (0, 65_535),
    "accept_ms": (100, _HOUR_MS),
    # Proxies cut what is held for a minute.
    "poll_wait_ms": (0, 55_000),
    "sweep_ms": (10, _HOUR_MS),
    "prune_ms": (10, _HOUR_MS),
    # An agent counts as online for a minute after it was seen.
    "seen_ms": (10, 30_000),
    "signature_skew_ms": (1_000, _HOUR_MS),
    "secret_epoch_ms": (1_000, 24 * _HOUR_MS),
    "secret_epoch_max": (1, 1_000_000),
    "payload_bytes_max": (1, _ANY),
    "payload_inline_max": (0, _ANY),
    "payload_fetch_ms": (1, _HOUR_MS),
    "held_polls_max": (1, 10_000_000),
    "held_polls_per_agent": (1, 1_000),
    "held_waits_per_key": (1, 1_000_000),
}


class ConfigError(FarhandError):
    """A setting that does not fit; the message names it and says what would."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The `[server]` settings. Durations in milliseconds, sizes in bytes.

    `public_url` is the address agents reach the server under; once it is set, unknown agents
    always wait for approval. `payload_private_cidrs` and `payload_loopback` open payload URLs
    to addresses that are closed by default; an empty `payload_ports` opens every port. A key
    that seals secret results is used for at most `secret_epoch_ms` and `secret_epoch_max` secrets.
    `signature_skew_ms` is how far the time of a signed request may be from the server's.
    `sections` are the systems' own tables, unchecked here.
    """

    host: str = "127.0.0.1"
    port: int = 8631
    data: Path = Path("farhand-data")
    database: str | None = None
    payloads: Path | None = None
    public_url: str | None = None
    open_enrolment: bool = True
    accept_ms: int = 10_000
    poll_wait_ms: int = 25_000
    sweep_ms: int = 1_000
    prune_ms: int = 5_000
    seen_ms: int = 15_000
    signature_skew_ms: int = 300_000
    secret_epoch_ms: int = 60_000
    secret_epoch_max: int = 1_000
    payload_bytes_max: int = 64 * 1024 * 1024
    payload_inline_max: int = 16 * 1024
    payload_fetch_ms: int = 60_000
    payload_private_cidrs: tuple[str, ...] = ()
    payload_loopback: bool = False
    payload_ports: tuple[str, ...] = ("80", "443")
    held_polls_max: int = 20_000
    held_polls_per_agent: int = 4
    held_waits_per_key: int = 50
    policies: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])

    def __post_init__(self) -> None:
        """Raise ConfigError naming the first setting whose value makes no sense."""
        for name, (low, high) in _BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"[server] {name} must be from {low} to {high}, got {getattr(self, name)}")
        for port in self.payload_ports:
            if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65_535):
                raise ConfigError(f"[server] payload_ports must hold numbers from 1 to 65535, got {port!r}")
        try:
            parse_networks(self.payload_private_cidrs)
        except ValueError as error:
            raise ConfigError(f"[server] payload_private_cidrs: {error}") from error
        if self.public_url is not None and not self.public_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"[server] public_url must begin with http:// or https://, got {self.public_url!r}"
            )

    @property
    def database_url(self) -> str:
        """The database, by default a SQLite file in the data folder."""
        return self.database or f"sqlite:///{(self.data / 'farhand.db').absolute()}"


def load(path: Path | None, overrides: Mapping[str, object], *, tables: Iterable[str] = ()) -> ServerConfig:
    """Read farhand.toml and lay the command line's settings over it; `tables` are those of systems.

    Raises ConfigError naming the file, the setting and a near name where one is misspelt.
    """
    table: dict[str, Any] = {}
    if path is not None:
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
    known = ("server", "policy", *tables)
    for name in sorted(set(table) - {*known}):
        what = f"table [{name}]" if isinstance(table[name], dict) else f"setting {name!r} outside a table"
        raise ConfigError(f"{path} may have no {what}{suggest(name, known)}")
    settings = _settings(table.get("server", {}))
    settings["policies"] = _policies(table.get("policy", {}))
    settings["sections"] = {name: _section(name, table[name]) for name in tables if name in table}
    settings.update({key: value for key, value in overrides.items() if value is not None})
    return ServerConfig(**settings)


def _section(name: str, table: object) -> Mapping[str, object]:
    if not isinstance(table, dict):
        raise ConfigError(f"[{name}] must be a table")
    return dict(_entries(table))


def _settings(table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError("[server] must be a table")
    known = {f.name: f for f in dataclasses.fields(ServerConfig) if f.name not in ("policies", "sections")}
    settings: dict[str, Any] = {}
    for key, value in _entries(table):
        if key not in known:
            raise ConfigError(f"[server] has no setting {key!r}{suggest(key, known)}")
        settings[key] = _fitting(key, value, str(known[key].type))
    return settings


def _entries(table: Any) -> list[tuple[str, Any]]:
    return [(str(key), value) for key, value in table.items()]


def _fitting(key: str, value: Any, kind: str) -> Any:
    if "Path" in kind and isinstance(value, str):
        return Path(value)
    if "tuple" in kind and isinstance(value, list):
        return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  (from TOML)
    if "bool" in kind and isinstance(value, bool):
        return value
    if kind.endswith("int'>") or kind == "int":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise ConfigError(f"[server] {key} must be a whole number that is not negative, got {value!r}")
    if "str" in kind and "tuple" not in kind and isinstance(value, str):
        return value
    raise ConfigError(f"[server] {key} has a value of the wrong kind: {value!r}")


def _policies(table: object) -> dict[str, Mapping[str, object]]:
    if not isinstance(table, dict):
        raise ConfigError('policies are written as [policy."print.raw"]')
    found: dict[str, Mapping[str, object]] = {}
    for name, fields in _entries(table):
        if not isinstance(fields, dict):
            raise ConfigError(f'write [policy."{name}"] as a table of policy fields')
        found[name] = fields
    return found


def policies(defaults: Mapping[str, Policy], config: ServerConfig) -> dict[str, Policy]:
    """The policies in force: the systems' own with the configured fields replaced.

    Raises ConfigError for a kind nobody has, PolicyError for a field or value that does not fit.
    """
    merged = dict(defaults)
    for name, changes in config.policies.items():
        if name not in merged:
            raise ConfigError(f'[policy."{name}"] names no kind{suggest(name, merged)}')
        merged[name] = merged[name].override(name, dict(changes))
    return merged


def root_token(data: Path, environment: Mapping[str, str]) -> tuple[str, Path | None]:
    """The root token and the file it lies in, None when the environment gave it.

    On the first start a token is made and kept in the data folder, readable by its owner only.
    Raises ConfigError when the given one is too short or the file is open to others.
    """
    given = environment.get("FARHAND_TOKEN")
    if given is not None:
        if len(given) < TOKEN_MIN:
            raise ConfigError(f"FARHAND_TOKEN needs at least {TOKEN_MIN} characters")
        return given, None
    path = data / ROOT_TOKEN_FILE
    data.mkdir(parents=True, exist_ok=True)
    if path.exists():
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} can be read by others; run: chmod 600 {path}")
        kept = path.read_text("ascii", errors="replace").strip()
        if len(kept) < TOKEN_MIN:
            raise ConfigError(f"{path} holds no token; delete it, and a new one is made")
        return kept, path
    token = secrets.token_urlsafe(32)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token, path
