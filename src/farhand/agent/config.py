"""The agent's settings, from `agent.toml` and the environment."""

import os
import socket
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

from farhand.model.errors import FarhandError
from farhand.model.policy import suggest

KEY_VARIABLE: Final = "FARHAND_AGENT_KEY"
KEY_LENGTH_MIN: Final = 16
_KEYS: Final = (
    "server",
    "key",
    "key_file",
    "signing_key",
    "signing_key_file",
    "name",
    "data",
    "ca_file",
    "describe_every_ms",
    "stop_grace_ms",
)


class ConfigError(FarhandError):
    """A setting that cannot be used; the message names it and says what to write."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What an agent needs to know. `sections` are the tables of the systems, unchecked here.

    `folder` is where relative paths of the sections start. `describe_every_ms` is how often
    devices are looked at anew; `stop_grace_ms` how long a stop waits for devices at work. With
    `signing_key` or `signing_key_file` every request is signed, and the key itself is sent only
    to register.
    """

    server: str
    name: str
    data: Path
    folder: Path
    key: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    signing_key: str | None = field(default=None, repr=False)
    signing_key_file: Path | None = None
    ca_file: Path | None = None
    describe_every_ms: int = 30_000
    stop_grace_ms: int = 30_000
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])


def load_config(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
) -> AgentConfig:
    """Settings from a file (None: none), then `overrides` (from the command line), then the key
    from FARHAND_AGENT_KEY.

    Raises ConfigError for a missing or unreadable file, an unknown or ill-typed setting, and a
    file with a key in it that others may read.
    """
    table = {} if path is None else _read(path)
    folder = Path.cwd() if path is None else path.absolute().parent
    sections = {key: cast("dict[str, object]", value) for key, value in table.items() if _is_table(value)}
    flat = {key: value for key, value in table.items() if key not in sections}
    for key in flat:
        if key not in _KEYS:
            raise ConfigError(f"agent.toml: unknown setting {key!r}{suggest(key, (*_KEYS, 'printing'))}")
    if path is not None and not flat.keys().isdisjoint(("key", "signing_key")):
        check_private(path, "it holds the agent's key")
    flat |= {key: value for key, value in (overrides or {}).items() if value is not None}
    if environ.get(KEY_VARIABLE):
        flat["key"] = environ[KEY_VARIABLE]
    key_file = _path(flat, "key_file", folder)
    return AgentConfig(
        server=_server(flat),
        name=_text(flat, "name") or socket.gethostname() or "agent",
        data=_path(flat, "data", folder) or default_data(environ),
        folder=folder,
        key=_key(_text(flat, "key"), "key"),
        key_file=key_file,
        signing_key=_text(flat, "signing_key"),
        signing_key_file=_path(flat, "signing_key_file", folder),
        ca_file=_path(flat, "ca_file", folder),
        describe_every_ms=_duration(flat, "describe_every_ms", 30_000),
        stop_grace_ms=_duration(flat, "stop_grace_ms", 30_000),
        sections=sections,
    )


def default_data(environ: Mapping[str, str]) -> Path:
    """Where the agent keeps its key, journal and undelivered results unless told otherwise."""
    if os.name == "nt":
        return Path(environ.get("PROGRAMDATA", r"C:\ProgramData")) / "Farhand" / "agent"
    if "XDG_STATE_HOME" in environ:
        return Path(environ["XDG_STATE_HOME"]) / "farhand-agent"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "farhand-agent"


def check_private(path: Path, why: str) -> None:
    """Raises ConfigError when others than the owner may read or change a file (POSIX only)."""
    if os.name == "nt":
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ConfigError(f"{path} may be read by others ({mode:04o}), and {why}; run: chmod 600 {path}")


def read_key(path: Path) -> str:
    """The key in a file of its own. Raises ConfigError when it is missing, open or too short."""
    try:
        check_private(path, "it is the agent's key")
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"key_file {path} cannot be read: {error}") from error
    key = _key(text, f"key_file {path}")
    assert key is not None
    return key


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _text(table: Mapping[str, object], key: str) -> str | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ConfigError(f"{key} must be a text that is not empty, got {value!r}")
    return str(value).strip()


def _path(table: Mapping[str, object], key: str, folder: Path) -> Path | None:
    text = _text(table, key)
    return None if text is None else folder / Path(text).expanduser()


def _duration(table: Mapping[str, object], key: str, default: int) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{key} must be a whole number of milliseconds, got {value!r}")
    return value


def _server(table: Mapping[str, object]) -> str:
    text = _text(table, "server")
    if text is None:
        raise ConfigError('server is missing; write server = "https://…" in agent.toml or pass --server')
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"server must be an http:// or https:// address, got {text!r}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("server must not hold a name or password; the key goes into key or key_file")
    return text.rstrip("/")


def _key(text: str | None, where: str) -> str | None:
    if text is not None and (len(text) < KEY_LENGTH_MIN or not text.isascii() or not text.isprintable()):
        raise ConfigError(f"{where} must hold at least {KEY_LENGTH_MIN} plain characters")
    return text
