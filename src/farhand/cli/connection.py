"""Which server to talk to and with which key: options, environment, profile."""

import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click

from farhand.model.errors import FarhandError
from farhand.model.policy import suggest

if TYPE_CHECKING:
    from farhand.client import AsyncClient, Client

# The client's own DEFAULT_SERVER, repeated so that help and errors need not load HTTP; a test compares them.
DEFAULT_SERVER: Final = "http://127.0.0.1:8631"
# A person at a terminal wants to know soon that nobody answers.
PATIENCE_MS: Final = 4_000
PROFILE_NAMES: Final = ("server", "key", "key_file")

P = ParamSpec("P")
R = TypeVar("R")


class ProfileError(FarhandError):
    """The profile file cannot be used; the message says what to change."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a command talks to, and whether it answers in JSON."""

    server: str
    key: str | None
    as_json: bool = False

    def client(self) -> "Client":
        """The sync SDK. Raises FarhandError when there is no key."""
        from farhand.client import Client

        return Client(self.server, self._needed_key(), patience_ms=PATIENCE_MS)

    def async_client(self) -> "AsyncClient":
        """The async SDK. Raises FarhandError when there is no key."""
        from farhand.client import AsyncClient

        return AsyncClient(self.server, self._needed_key(), patience_ms=PATIENCE_MS)

    def _needed_key(self) -> str:
        if self.key is None:
            raise FarhandError(
                f"there is no key for {self.server}\n"
                "Give one with --key or FARHAND_TOKEN, or in ~/.config/farhand/client.toml; the server's\n"
                "own token lies in its data folder, in the file root-token."
            )
        return self.key


def profile_path(environment: Mapping[str, str]) -> Path:
    """Where the profile is: `farhand/client.toml` in the user's configuration folder."""
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "farhand" / "client.toml"


def read_profile(path: Path) -> dict[str, str]:
    """The profile's settings, empty without a file.

    Raises ProfileError when others can read it, or it holds what it should not.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read {path}: {error}") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ProfileError(f"{path} can be read by others; run: chmod 600 {path}")
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path} is not valid TOML: {error}") from error
    for name, value in found.items():
        if name not in PROFILE_NAMES:
            raise ProfileError(f"{path} has an unknown setting {name!r}{suggest(name, PROFILE_NAMES)}")
        if not isinstance(value, str):
            raise ProfileError(f'{path}: write {name} as {name} = "…"')
    return found


def choose_session(
    server: str | None, key: str | None, environment: Mapping[str, str], *, as_json: bool = False
) -> Session:
    """Options before environment before profile.

    The profile's key is for the profile's server: another address, from an option or the
    environment, does not get it.
    """
    server = server or environment.get("FARHAND_SERVER") or None
    key = key or environment.get("FARHAND_TOKEN") or None
    if server is not None and key is not None:
        return Session(server=server, key=key, as_json=as_json)
    profile = read_profile(profile_path(environment))
    home = profile.get("server", DEFAULT_SERVER)
    if key is None and (server is None or server.rstrip("/") == home.rstrip("/")):
        key = profile.get("key") or _read_key(profile.get("key_file"))
    return Session(server=server or home, key=key, as_json=as_json)


def _read_key(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).expanduser().read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the profile's key_file {path}: {error}") from error


def api_options(command: Callable[Concatenate[Session, P], R]) -> Callable[..., R]:
    """Adds --server, --key and --json; the command gets a Session in front."""

    @click.option("--server", metavar="URL", help=f"Server [FARHAND_SERVER; else {DEFAULT_SERVER}].")
    @click.option("--key", metavar="KEY", help="Key [FARHAND_TOKEN; safer, others cannot see it].")
    @click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
    @wraps(command)
    def with_session(server: str | None, key: str | None, as_json: bool, *args: Any, **options: Any) -> R:
        session = choose_session(server, key, os.environ, as_json=as_json)
        return command(session, *args, **options)

    return with_session
