"""The one place where a server's parts are chosen and put together."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from farhand.engine.ports import StoreFault, StoreGone
from farhand.model.clock import Clock, SystemClock
from farhand.model.system import System
from farhand.server import serve as server
from farhand.server.app import App
from farhand.server.config import ConfigError, ServerConfig
from farhand.server.context import Context
from farhand.storage.database import Database
from farhand.storage.folder import FolderPayloads
from farhand.storage.key_folder import KeyFolder
from farhand.storage.sqlite import SqliteDatabase
from farhand.storage.store import Store
from farhand.storage.vault import Vault
from farhand.systems import configured


def database_of(config: ServerConfig) -> Database:
    """The database behind the configured URL. Raises ConfigError for one it does not know."""
    url = config.database_url
    if url.startswith("sqlite:///"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")), exclusive=True)
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from farhand.storage.postgres import PostgresDatabase
        except ImportError as error:
            raise ConfigError(
                "PostgreSQL needs its driver: pip install 'farhand[server,postgres]'"
            ) from error
        return PostgresDatabase(url)
    raise ConfigError(f"database must be sqlite:///PATH or postgresql://…, got {url.partition(':')[0]}:…")


def payloads_of(config: ServerConfig, clock: Clock) -> FolderPayloads:
    """The payload store: a folder beside the database."""
    return FolderPayloads(config.payloads or config.data / "payloads", clock)


def store_of(config: ServerConfig, clock: Clock) -> Store:
    """The store over the configured database; the keys of its secrets lie beside the payloads."""
    keys = KeyFolder(payloads_of(config, clock).beside("keys"))
    vault = Vault(keys, clock, epoch_ms=config.secret_epoch_ms, epoch_max=config.secret_epoch_max)
    return Store(database_of(config), clock, vault=vault)


@asynccontextmanager
async def running(
    config: ServerConfig,
    *,
    systems: tuple[System, ...],
    load: Callable[[str], Any],
    token: str,
    clock: Clock | None = None,
) -> AsyncGenerator[tuple[App, Context]]:
    """A whole server without its socket: for tests and for embedding."""
    clock = clock or SystemClock()
    async with server.running(
        config,
        store=store_of(config, clock),
        payloads=payloads_of(config, clock),
        systems=configured(systems, config.sections, load),
        load=load,
        token=token,
        clock=clock,
    ) as parts:
        yield parts


async def serve(
    config: ServerConfig,
    *,
    systems: tuple[System, ...],
    load: Callable[[str], Any],
    environment: Mapping[str, str] = os.environ,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises ConfigError when the settings do not fit or the database cannot be used with them.
    """
    # What is written here holds jobs and keys: nobody else on the machine is to read it.
    os.umask(0o077)
    clock = SystemClock()
    try:
        await server.serve(
            config,
            store=store_of(config, clock),
            payloads=payloads_of(config, clock),
            systems=configured(systems, config.sections, load),
            load=load,
            clock=clock,
            environment=environment,
            announce=announce,
        )
    except StoreGone as error:
        raise ConfigError(f"{error}; is it running, and is the address right?") from error
    except StoreFault as error:
        raise ConfigError(str(error)) from error


def run(
    config: ServerConfig,
    *,
    systems: tuple[System, ...],
    load: Callable[[str], Any],
    announce: Callable[[str], None] = print,
) -> None:
    """Serve in this process on the fast event loop."""
    import uvloop

    uvloop.run(serve(config, systems=systems, load=load, announce=announce))
