"""A database whose transactions fail when the dice say so, before their commit or after it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from farhand.storage.database import Database, DatabaseGone, Reader, StatementFailed, Tx
from farhand.testing.dice import Dice


class FaultyDatabase:
    """A database behind which another one does the work.

    `refuse` is how many of a hundred transactions are rolled back at their end, `lose` how many
    are committed without anybody learning of it. Both are 0 until set.
    """

    def __init__(self, behind: Database, dice: Dice) -> None:
        self.writers = behind.writers
        self.shared = behind.shared
        self.slot = behind.slot
        self.exclusive = behind.exclusive
        self.refuse = 0
        self.lose = 0
        self._behind = behind
        self._dice = dice

    async def open(self) -> None:
        """Open the database behind."""
        await self._behind.open()

    async def close(self) -> None:
        """Close the database behind."""
        await self._behind.close()

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction that may fail at its end."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Tx]:
        async with self._behind.transaction() as tx:
            yield tx
            if self.refuse and self._dice.chance(self.refuse):
                raise StatementFailed("the dice roll it back", transient=True)
        if self.lose and self._dice.chance(self.lose):
            raise DatabaseGone("the dice cut the connection after the commit")

    def read(self) -> AbstractAsyncContextManager[Reader]:
        """A read of the database behind."""
        return self._behind.read()

    async def listen(self, heard: Callable[[str], Awaitable[None]]) -> None:
        """Listen to the database behind."""
        await self._behind.listen(heard)
