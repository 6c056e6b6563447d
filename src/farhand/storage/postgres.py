"""PostgreSQL through asyncpg: a few writing connections, statements pipelined per batch."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg as untyped  # pyright: ignore[reportMissingTypeStubs]  (ships none)

from farhand.storage.database import DatabaseGone, GuardFailed, Params, Row, StatementFailed
from farhand.storage.migrate import migrations
from farhand.storage.statements import Statement, load, ordered

asyncpg: Any = untyped
log = logging.getLogger("farhand.storage")
CHANNEL = "farhand"
EVERYTHING = "*"
LISTEN_AGAIN_S = 1.0
_MIGRATION_LOCK = 0x66617268
# Without these the planner chooses plans that cost 300 times more at a million queued jobs. With the
# statistics of a table that was empty a moment ago it would sort a whole lane for the first of it.
_HOT = {
    "jit": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "application_name": "farhand",
}
_READ = {"jit": "off", "application_name": "farhand"}
_TRANSIENT = (
    asyncpg.exceptions.DeadlockDetectedError,
    asyncpg.exceptions.SerializationError,
    asyncpg.exceptions.QueryCanceledError,
    asyncpg.exceptions.LockNotAvailableError,
)
_GONE = (
    OSError,
    asyncpg.exceptions.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.TooManyConnectionsError,
)


class PgReads:
    """Named statements on one connection."""

    def __init__(self, connection: Any, statements: dict[str, Statement]) -> None:
        self._connection = connection
        self._statements = statements

    async def all(self, name: str, params: Params) -> Sequence[Row]:
        """All rows."""
        statement = self._statements[name]
        with _translated(name):
            return await self._connection.fetch(statement.text, *ordered(statement, params))

    async def one(self, name: str, params: Params) -> Row | None:
        """The first row, or None."""
        rows = await self.all(name, params)
        return rows[0] if rows else None


class PgTx(PgReads):
    """The open transaction of one writing connection."""

    # One statement for a batch costs less than two narrower ones.
    narrow = False

    def __init__(self, connection: Any, statements: dict[str, Statement], sender: str) -> None:
        super().__init__(connection, statements)
        self._sender = sender

    async def run(self, name: str, params: Params) -> int:
        """The number of rows changed."""
        statement = self._statements[name]
        with _translated(name):
            status: str = await self._connection.execute(statement.text, *ordered(statement, params))
        return _changed(status)

    async def each(self, name: str, rows: Sequence[Params]) -> list[Row]:
        """Run a statement for every entry; the rows of all of them in order."""
        if not rows:
            return []
        if len(rows) == 1:
            return list(await self.all(name, rows[0]))
        statement = self._statements[name]
        many = self._statements.get(f"{name}_many")
        with _translated(name):
            if many is not None:
                return await self._connection.fetch(many.text, *_arrays(statement, many, rows))
            return await self._connection.fetchmany(statement.text, _arguments(statement, rows))

    async def numbered(self, name: str, rows: Sequence[tuple[object, ...]]) -> list[int]:
        """Insert rows; the database numbers them."""
        return [row[0] for row in await self.each(name, rows)]

    async def bulk(self, name: str, rows: Sequence[Params]) -> None:
        """Run a statement for every entry, for its effect."""
        if rows:
            await self._change(name, rows)

    async def _change(self, name: str, rows: Sequence[Params]) -> int | None:
        """Run a statement for every entry; how many rows it changed, None where that is not known."""
        statement = self._statements[name]
        many = self._statements.get(f"{name}_many")
        with _translated(name):
            if len(rows) == 1:
                text, arguments = statement.text, ordered(statement, rows[0])
            elif many is not None:
                text, arguments = many.text, _arrays(statement, many, rows)
            else:
                await self._connection.executemany(statement.text, _arguments(statement, rows))
                return None
            status: str = await self._connection.execute(text, *arguments)
        return _changed(status)

    async def guarded(self, name: str, rows: Sequence[Params]) -> None:
        """Run an update for every entry. Raises GuardFailed unless each changed one row."""
        if rows and await self._change(name, rows) != len(rows):
            raise GuardFailed(name)

    async def notify(self, message: str) -> None:
        """Tell other server processes on commit."""
        with _translated("notify"):
            await self._connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._sender}|{message}")


def _changed(status: str) -> int:
    return int(status.rsplit(" ", 1)[-1])


def _arrays(statement: Statement, many: Statement, rows: Sequence[Params]) -> list[Sequence[object]]:
    """The entries of a batch as one column of values per parameter."""
    columns = zip(*_arguments(statement, rows), strict=True)
    by_name = dict(zip(statement.params, columns, strict=True))
    return [by_name[name] for name in many.params]


def _arguments(statement: Statement, rows: Sequence[Params]) -> list[tuple[object, ...]]:
    return [ordered(statement, params) for params in rows]


@contextlib.contextmanager
def _translated(name: str) -> Any:
    try:
        yield
    except _TRANSIENT as error:
        raise StatementFailed(f"{name}: {error}", transient=True) from error
    except _GONE as error:
        raise DatabaseGone(f"{name}: {error}") from error
    except asyncpg.exceptions.PostgresError as error:
        raise StatementFailed(f"{name}: {error}") from error
    except asyncpg.exceptions.InterfaceError as error:
        # A value that does not fit its type is found before anything is sent; the connection is well.
        if isinstance(error, ValueError):
            raise StatementFailed(f"{name}: {error}") from error
        raise DatabaseGone(f"{name}: {error}") from error


async def _prepare(connection: Any) -> None:
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", format="binary", encoder=bytes, decoder=bytes
    )


async def _reset(_connection: Any) -> None:
    """Nothing to undo: no statement here leaves a lock, a cursor or a setting behind its transaction."""


class PostgresDatabase:
    """A PostgreSQL database, shared by any number of server processes."""

    shared = True
    exclusive = False

    def __init__(self, url: str, *, writers: int = 2, readers: int = 6) -> None:
        self.writers = writers
        self.slot = secrets.randbelow(1 << 31)
        self._sender = f"{self.slot:x}"
        self._url = url
        self._reader_count = readers
        self._statements = load("postgres")
        self._write_pool: Any = None
        self._read_pool: Any = None
        self._listener: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and migrate. Raises DatabaseGone when the server cannot be reached."""
        try:
            await self._migrate()
            self._write_pool = await self._pool(_HOT, self.writers)
            self._read_pool = await self._pool(_READ, self._reader_count)
        except (OSError, asyncpg.exceptions.PostgresError, ValueError) as error:
            raise DatabaseGone(f"cannot open the PostgreSQL database: {error}") from error

    async def _pool(self, settings: dict[str, str], size: int) -> Any:
        return await asyncpg.create_pool(
            self._url,
            min_size=1,
            max_size=size,
            init=_prepare,
            reset=_reset,
            server_settings=settings,
            command_timeout=30,
            max_inactive_connection_lifetime=0,
        )

    async def _migrate(self) -> None:
        connection: Any = await asyncpg.connect(self._url, timeout=15)
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
                await connection.execute(self._statements["create_migrations"].text)
                rows = await connection.fetch(self._statements["applied_migrations"].text)
                for text in migrations("postgres", {row[0] for row in rows}):
                    await connection.execute(text)
        finally:
            await connection.close()

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        for pool in (self._write_pool, self._read_pool):
            if pool is not None:
                await pool.close()
        self._write_pool = self._read_pool = None

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[PgTx]:
        """A READ COMMITTED transaction on a writing connection."""
        if self._write_pool is None:
            raise DatabaseGone("the database is closed")
        with _translated("transaction"):
            async with self._write_pool.acquire(timeout=15) as connection, connection.transaction():
                yield PgTx(connection, self._statements, self._sender)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[PgReads]:
        """A reading connection."""
        if self._read_pool is None:
            raise DatabaseGone("the database is closed")
        with _translated("read"):
            async with self._read_pool.acquire(timeout=15) as connection:
                yield PgReads(connection, self._statements)

    async def listen(self, heard: Callable[[str], Awaitable[None]]) -> None:
        """Hear other processes; a lost connection is made again, since hints may be missed anyway."""
        ready = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(heard, ready))
        await ready.wait()

    async def _listen(self, heard: Callable[[str], Awaitable[None]], ready: asyncio.Event) -> None:
        while True:
            try:
                await self._listen_once(heard, ready)
            except (OSError, asyncpg.exceptions.PostgresError, asyncpg.exceptions.InterfaceError) as error:
                log.warning("listen_failed", extra={"error": str(error)})
            ready.set()
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _listen_once(self, heard: Callable[[str], Awaitable[None]], ready: asyncio.Event) -> None:
        """Listen until the connection is lost."""
        messages: asyncio.Queue[str | None] = asyncio.Queue()

        def arrived(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            messages.put_nowait(payload)

        def lost(_connection: object) -> None:
            messages.put_nowait(None)

        connection: Any = await asyncpg.connect(self._url, timeout=15)
        try:
            connection.add_termination_listener(lost)
            await connection.add_listener(CHANNEL, arrived)
            if ready.is_set():
                await _hear(heard, EVERYTHING)
            ready.set()
            while (message := await messages.get()) is not None:
                sender, _, text = message.partition("|")
                if sender != self._sender:
                    await _hear(heard, text)
        finally:
            connection.terminate()


async def _hear(heard: Callable[[str], Awaitable[None]], message: str) -> None:
    try:
        await heard(message)
    except (ValueError, DatabaseGone, StatementFailed) as error:
        log.warning("hint_failed", extra={"error": str(error)})
