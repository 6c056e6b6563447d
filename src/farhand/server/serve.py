"""A whole server: put together, run, taken apart."""

import asyncio
import fcntl
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from farhand.engine.ports import Payloads, Store
from farhand.model.clock import Clock
from farhand.model.policy import Policy
from farhand.model.system import System
from farhand.server import api
from farhand.server.app import App
from farhand.server.auth import Authenticator
from farhand.server.config import ConfigError, ServerConfig, policies, root_token
from farhand.server.connection import Connection
from farhand.server.context import Context, HeldPolls
from farhand.server.desk import Decoder, Desk
from farhand.server.hooks import find_hooks
from farhand.server.routes import Route, Table
from farhand.server.timers import Timers

log = logging.getLogger("farhand.server")
GRACE_S = 10
IDLE_LOOK_TICKS = 100


def lock_data(data: Path) -> int:
    """Hold the data folder for this process. Raises ConfigError while another server has it."""
    data.mkdir(parents=True, exist_ok=True)
    handle = os.open(data / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ConfigError(
            f"another server already runs on {data}; stop it or choose another --data"
        ) from error
    return handle


def system_policies(systems: tuple[System, ...]) -> dict[str, Policy]:
    """The policies that the systems bring."""
    return {name: policy for system in systems for name, policy in system.policies.items()}


@asynccontextmanager
async def running(
    config: ServerConfig,
    *,
    store: Store,
    payloads: Payloads,
    systems: tuple[System, ...],
    load: Callable[[str], Any],
    token: str,
    clock: Clock,
) -> AsyncGenerator[tuple[App, Context]]:
    """A server's application with its store open and its timers running.

    `load` resolves the references of the systems' manifests.
    """
    in_force = policies(system_policies(systems), config)
    await asyncio.to_thread(payloads.open_root)
    await store.open()
    context = assemble(
        config,
        systems=systems,
        load=load,
        token=token,
        clock=clock,
        store=store,
        payloads=payloads,
        policies=in_force,
    )
    timers = Timers(context)
    timers.start()
    try:
        yield App(context), context
    finally:
        context.close()
        try:
            await timers.stop()
        finally:
            await store.close()


def assemble(
    config: ServerConfig,
    *,
    systems: tuple[System, ...],
    load: Callable[[str], Any],
    token: str,
    clock: Clock,
    store: Store,
    payloads: Payloads,
    policies: dict[str, Policy],
) -> Context:
    """Put the parts of a server together."""
    desk = Desk(
        store=store,
        payloads=payloads,
        config=config,
        policies=policies,
        clock=clock,
        declared={system.name: system.declared for system in systems},
    )
    context = Context(
        config=config,
        store=store,
        payloads=payloads,
        clock=clock,
        auth=Authenticator(store, token, clock, skew_ms=config.signature_skew_ms),
        desk=desk,
        systems=systems,
        submitters=_submitters(systems, load),
        hooks=find_hooks(systems, load),
        held=HeldPolls(
            total=config.held_polls_max,
            per_agent=config.held_polls_per_agent,
            per_key=config.held_waits_per_key,
        ),
    )
    extra: list[Route] = []
    for system in systems:
        if system.routes is not None:
            extra += load(system.routes)()
    context.table = Table([*api.routes(), *extra])
    return context


def _submitters(systems: tuple[System, ...], load: Callable[[str], Any]) -> dict[str, Decoder]:
    found: dict[str, Decoder] = {}
    for system in systems:
        if system.submit is not None:
            decoder: Decoder = load(system.submit)
            found.update(dict.fromkeys(system.types, decoder))
    return found


class HttpServer(uvicorn.Server):
    """uvicorn, but held polls are answered before it waits for open requests.

    Signals come through the event loop: what they set off may run in the middle of nothing.
    """

    def __init__(
        self, config: uvicorn.Config, on_stop: Callable[[], None], announce: Callable[[int], None]
    ) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._announce = announce

    def stop(self) -> None:
        """Let whoever waits go, then answer what is open and end."""
        self._on_stop()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on SIGINT and SIGTERM. uvicorn's own way ends the process before its owner has cleaned up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def on_tick(self, counter: int) -> bool:
        """Now and then end connections that nobody uses any more."""
        if counter % IDLE_LOOK_TICKS == 0:
            now = asyncio.get_running_loop().time()
            connections: list[Any] = list(self.server_state.connections)
            for connection in connections:
                connection.close_if_idle(now)
        return await super().on_tick(counter)

    async def startup(self, sockets: Any = None) -> None:
        """Listen, then say where."""
        await super().startup(sockets)
        for server in self.servers:
            for socket in server.sockets:
                self._announce(socket.getsockname()[1])
                return


def uvicorn_config(app: App, config: ServerConfig) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_level="warning",
        backlog=4096,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
    )


async def serve(
    config: ServerConfig,
    *,
    store: Store,
    payloads: Payloads,
    systems: tuple[System, ...],
    load: Callable[[str], Any],
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError when the settings do not fit."""
    lock = lock_data(config.data)
    try:
        token, path = root_token(config.data, environment)
        async with running(
            config,
            store=store,
            payloads=payloads,
            systems=systems,
            load=load,
            token=token,
            clock=clock,
        ) as (app, context):

            def listening(port: int) -> None:
                announce(f"farhand listens on http://{config.host}:{port}")
                if path is not None:
                    announce(f"the root token lies in {path}")

            # What start-up made stays; requests leave little that only the collector can free.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 20)
            server = HttpServer(uvicorn_config(app, config), context.close, listening)
            try:
                await server.serve()
            except SystemExit as error:
                raise ConfigError(
                    f"cannot listen on {config.host}:{config.port}; is the port in use? Choose another --port"
                ) from error
    finally:
        os.close(lock)
