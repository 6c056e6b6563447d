"""SQLite through apsw: one writer connection, statements inline, COMMIT in a thread."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from farhand.storage.database import GuardFailed, Params, Row, StatementFailed
from farhand.storage.migrate import migrations
from farhand.storage.statements import Statement, load

_WRITER = (
    "PRAGMA busy_timeout = 10000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -65536",
)
_READER = ("PRAGMA busy_timeout = 10000", "PRAGMA query_only = ON", "PRAGMA cache_size = -16384")


class SqliteReads:
    """Named statements on one connection, run inline on the event loop."""

    def __init__(self, connection: Any, statements: dict[str, Statement]) -> None:
        self._connection = connection
        self._statements = statements

    def _rows(self, name: str, params: Params) -> list[Row]:
        statement = self._statements[name]
        bindings = tuple([params[key] for key in statement.params])
        try:
            return self._connection.execute(statement.text, bindings).fetchall()
        except apsw.Error as error:
            raise StatementFailed(f"{name}: {error}", transient=isinstance(error, apsw.BusyError)) from error

    async def all(self, name: str, params: Params) -> Sequence[Row]:
        """All rows."""
        return self._rows(name, params)

    async def one(self, name: str, params: Params) -> Row | None:
        """The first row, or None."""
        rows = self._rows(name, params)
        return rows[0] if rows else None


class SqliteTx(SqliteReads):
    """The open write transaction."""

    async def run(self, name: str, params: Params) -> int:
        """The number of rows changed."""
        self._rows(name, params)
        return self._connection.changes()

    async def each(self, name: str, rows: Sequence[Params]) -> list[Row]:
        """Run a statement once per entry; the rows of all of them in order."""
        found: list[Row] = []
        for params in rows:
            found += self._rows(name, params)
        return found

    async def bulk(self, name: str, rows: Sequence[Params]) -> None:
        """Run a statement once per entry, for its effect."""
        if not rows:
            return
        statement = self._statements[name]
        keys = statement.params
        bindings = [tuple([params[key] for key in keys]) for params in rows]
        try:
            self._connection.executemany(statement.text, bindings)
        except apsw.Error as error:
            raise StatementFailed(f"{name}: {error}") from error

    async def guarded(self, name: str, rows: Sequence[Params]) -> None:
        """Run an update once per entry. Raises GuardFailed unless each changed exactly one row."""
        for params in rows:
            self._rows(name, params)
            if self._connection.changes() != 1:
                raise GuardFailed(name)

    async def notify(self, message: str) -> None:
        """Nothing: a second server process on one file is refused."""


class SqliteDatabase:
    """A SQLite file as the Store's database."""

    writers = 1
    shared = False
    slot = 0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._statements = load("sqlite")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-commit")
        self._lock = asyncio.Lock()
        self._writer: Any = None
        self._reader: Any = None

    async def open(self) -> None:
        """Open the file, migrate it. Raises StatementFailed when it is not a usable database."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._writer = self._connect(_WRITER)
            self._migrate(self._writer)
            self._reader = self._connect(_READER)
        except apsw.Error as error:
            self._release()
            raise StatementFailed(f"cannot use {self._path} as a database: {error}") from error
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def _connect(self, pragmas: tuple[str, ...]) -> Any:
        connection: Any = apsw.Connection(str(self._path), statementcachesize=256)
        # Without this a statement is planned anew whenever a bound value could change its plan.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for pragma in pragmas:
            connection.execute(pragma).fetchall()
        return connection

    def _migrate(self, connection: Any) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for text in migrations("sqlite", self._applied(connection)):
                connection.execute(text).fetchall()
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _applied(self, connection: Any) -> set[int]:
        connection.execute(self._statements["create_migrations"].text)
        return {row[0] for row in connection.execute(self._statements["applied_migrations"].text).fetchall()}

    async def close(self) -> None:
        """Close both connections; safe to call twice."""
        async with self._lock:
            self._release()
        self._thread.shutdown(wait=True)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[SqliteTx]:
        """A write transaction; the loop goes on while the disk makes it durable."""
        async with self._lock:
            connection = self._writer
            if connection is None:
                raise StatementFailed("the database is closed")
            try:
                connection.execute("BEGIN IMMEDIATE")
            except apsw.Error as error:
                raise StatementFailed(f"begin: {error}", transient=True) from error
            try:
                yield SqliteTx(connection, self._statements)
            except BaseException:
                # A full disk or a failing one has already rolled it back.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            await self._commit(connection)

    async def _commit(self, connection: Any) -> None:
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._thread, connection.execute, "COMMIT")
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            await done
            raise
        except apsw.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise StatementFailed(f"commit: {error}", transient=True) from error

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[SqliteReads]:
        """The reading connection; a WAL reader never waits for the writer."""
        if self._reader is None:
            raise StatementFailed("the database is closed")
        yield SqliteReads(self._reader, self._statements)

    async def listen(self, heard: Callable[[str], Awaitable[None]]) -> None:
        """Nothing to hear: nobody else writes."""
