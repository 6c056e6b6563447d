"""SQLite through apsw: one writer connection, statements inline, COMMIT in a thread."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import apsw

from farhand.storage.database import GuardFailed, Params, Row, StatementFailed
from farhand.storage.migrate import migrations
from farhand.storage.statements import Statement, load, ordered

_WRITER = (
    "PRAGMA busy_timeout = 10000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -65536",
)
OPEN_TRIES = 100
OPEN_PAUSE_S = 0.05
_READER = ("PRAGMA busy_timeout = 10000", "PRAGMA query_only = ON", "PRAGMA cache_size = -16384")


class SqliteReads:
    """Named statements on one connection, run inline on the event loop."""

    def __init__(self, connection: Any, statements: dict[str, Statement]) -> None:
        self._connection = connection
        self._statements = statements

    def _rows(self, name: str, params: Params) -> list[Row]:
        statement = self._statements[name]
        try:
            return self._connection.execute(statement.text, ordered(statement, params)).fetchall()
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

    # SQLite writes the index entries of every column that is named, changed or not.
    narrow = True

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

    async def numbered(self, name: str, rows: Sequence[tuple[object, ...]]) -> list[int]:
        """Insert rows under the next numbers: nobody else writes before the commit."""
        if not rows:
            return []
        last: int = self._rows(f"{name}_last", ())[0][0] or 0
        numbers = list(range(last + 1, last + 1 + len(rows)))
        await self.bulk(f"{name}_at", [(number, *row) for number, row in zip(numbers, rows, strict=True)])
        return numbers

    async def bulk(self, name: str, rows: Sequence[Params]) -> None:
        """Run a statement once per entry, for its effect."""
        if not rows:
            return
        statement = self._statements[name]
        try:
            # Rows of one call are made in one place: all in order already, or all by name.
            if not isinstance(rows[0], tuple):
                rows = [ordered(statement, params) for params in rows]
            self._connection.executemany(statement.text, rows)
        except apsw.Error as error:
            raise StatementFailed(f"{name}: {error}", transient=isinstance(error, apsw.BusyError)) from error

    async def guarded(self, name: str, rows: Sequence[Params]) -> None:
        """Run an update once per entry. Raises GuardFailed unless each changed exactly one row."""
        if not rows:
            return
        before = self._connection.total_changes()
        await self.bulk(name, rows)
        if self._connection.total_changes() - before != len(rows):
            raise GuardFailed(name)

    async def notify(self, message: str) -> None:
        """Nothing: a second server process on one file is refused."""


def hold_file(path: Path) -> int:
    """Hold a lock file for this process; closing the handle lets go of it.

    Raises StatementFailed while another process holds it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StatementFailed(f"another server already uses {path.with_suffix('')}; stop it first") from error
    return handle


class CommitThread:
    """A thread that waits for the disk, so that the event loop need not."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def commit(self, connection: Any) -> asyncio.Future[None]:
        """Commit the connection's transaction; the future is set when the disk has it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sqlite-commit", daemon=True)
            self._thread.start()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((connection, done))
        return done

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            connection, done = work
            error: Exception | None = None
            try:
                connection.execute("COMMIT")
            except Exception as failed:
                error = failed
            done.get_loop().call_soon_threadsafe(_tell, done, error)

    def stop(self) -> None:
        """End the thread after what it is doing."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None


def _tell(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class SqliteDatabase:
    """A SQLite file as the Store's database.

    With `exclusive` no second process is let in, and what was committed may be remembered.
    """

    writers = 1
    shared = False
    slot = 0

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        self.exclusive = exclusive
        self._path = path
        self._held: int | None = None
        self._statements = load("sqlite")
        self._thread = CommitThread()
        self._lock = asyncio.Lock()
        self._writer: Any = None
        self._reader: Any = None

    async def open(self) -> None:
        """Open the file, migrate it. Raises StatementFailed when it is not a usable database."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self.exclusive:
                self._held = hold_file(self._path.with_name(self._path.name + ".lock"))
            self._writer = await self._connect_first()
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
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def _connect_first(self) -> Any:
        # Another process may be turning a new file to WAL, for which SQLite does not wait.
        for _ in range(OPEN_TRIES):
            with suppress(apsw.BusyError):
                return self._connect(_WRITER)
            await asyncio.sleep(OPEN_PAUSE_S)
        return self._connect(_WRITER)

    def _connect(self, pragmas: tuple[str, ...]) -> Any:
        connection: Any = apsw.Connection(str(self._path), statementcachesize=256)
        try:
            # Without this a statement is planned anew whenever a bound value could change its plan.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            for pragma in pragmas:
                connection.execute(pragma).fetchall()
        except apsw.Error:
            connection.close()
            raise
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
        self._thread.stop()

    def transaction(self) -> "_Transaction":
        """A write transaction; the loop goes on while the disk makes it durable."""
        return _Transaction(self._lock, self._thread, self._writer, self._statements)

    def read(self) -> "_Reading":
        """The reading connection; a WAL reader never waits for the writer."""
        if self._reader is None:
            raise StatementFailed("the database is closed")
        return _Reading(SqliteReads(self._reader, self._statements))

    async def listen(self, heard: Callable[[str], Awaitable[None]]) -> None:
        """Nothing to hear: nobody else writes."""


class _Reading:
    """A scope around the reading connection."""

    __slots__ = ("_reads",)

    def __init__(self, reads: SqliteReads) -> None:
        self._reads = reads

    async def __aenter__(self) -> SqliteReads:
        return self._reads

    async def __aexit__(self, *_: object) -> None:
        return None


class _Transaction:
    """A scope around one write transaction of the only writer."""

    __slots__ = ("_changes", "_connection", "_lock", "_statements", "_thread")

    def __init__(
        self,
        lock: asyncio.Lock,
        thread: CommitThread,
        connection: Any,
        statements: dict[str, Statement],
    ) -> None:
        self._lock = lock
        self._thread = thread
        self._connection = connection
        self._statements = statements
        self._changes = 0

    async def __aenter__(self) -> SqliteTx:
        if self._connection is None:
            raise StatementFailed("the database is closed")
        await self._lock.acquire()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._lock.release()
            raise StatementFailed(f"begin: {error}", transient=True) from error
        self._changes = self._connection.total_changes()
        return SqliteTx(self._connection, self._statements)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._roll_back()
            elif self._connection.total_changes() == self._changes:
                self._connection.execute("COMMIT")
            else:
                await self._commit()
        finally:
            self._lock.release()

    def _roll_back(self) -> None:
        # A full disk or a failing one has already rolled it back.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    async def _commit(self) -> None:
        done = self._thread.commit(self._connection)
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            await done
            raise
        except apsw.Error as error:
            self._roll_back()
            raise StatementFailed(f"commit: {error}", transient=True) from error
