"""The port under the Store: transactions that run named statements."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from farhand.engine.ports import StoreFault, StoreGone

Row = Sequence[Any]
Params = Mapping[str, object] | tuple[object, ...]
"""A statement's values by name, or already in the order of the statement's own parameters."""


class GuardFailed(Exception):
    """A guarded update met a row that was not as it was read."""


class StatementFailed(StoreFault):
    """The database refused a statement; the transaction is over. `transient` may succeed when tried again."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class DatabaseGone(StoreGone):
    """The database cannot be reached."""


class Reader(Protocol):
    """Named statements that read."""

    async def all(self, name: str, params: Params) -> Sequence[Row]:
        """All rows."""
        ...

    async def one(self, name: str, params: Params) -> Row | None:
        """The first row, or None."""
        ...


class Tx(Reader, Protocol):
    """An open transaction. `narrow` says that writing fewer columns of a row is cheaper."""

    narrow: bool

    async def run(self, name: str, params: Params) -> int:
        """The number of rows changed."""
        ...

    async def each(self, name: str, rows: Sequence[Params]) -> list[Row]:
        """Run a statement once per entry; the rows of all of them in order."""
        ...

    async def numbered(self, name: str, rows: Sequence[tuple[object, ...]]) -> list[int]:
        """Insert rows that nothing stands in the way of; the numbers they got, in order."""
        ...

    async def bulk(self, name: str, rows: Sequence[Params]) -> None:
        """Run a statement once per entry, for its effect."""
        ...

    async def guarded(self, name: str, rows: Sequence[Params]) -> None:
        """Run an update once per entry. Raises GuardFailed unless each changed exactly one row."""
        ...

    async def notify(self, message: str) -> None:
        """Tell other processes on commit; nothing where there can be none."""
        ...


class Database(Protocol):
    """A database that can run the named statements.

    `writers` is how many transactions may run at once; `shared` whether other processes may
    write too, `exclusive` whether nobody but this process can; `slot` is this process's row in
    the counters.
    """

    writers: int
    shared: bool
    exclusive: bool
    slot: int

    async def open(self) -> None:
        """Connect and bring the schema up to date."""
        ...

    async def close(self) -> None:
        """Let go of everything; safe to call twice."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A write transaction, committed durably at its end, rolled back on any exception."""
        ...

    def read(self) -> AbstractAsyncContextManager[Reader]:
        """A connection that only reads."""
        ...

    async def listen(self, heard: Callable[[str], Awaitable[None]]) -> None:
        """Call `heard` with every message of another process until closed; returns once listening."""
        ...
