"""Capability names and their bits: a job requires some, an agent declares some."""

from collections.abc import Iterable

from farhand.storage.database import Reader, Tx

BITS_MAX = 62


class Capabilities:
    """The names this process has met, each with its bit."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}

    async def read(self, reader: Reader) -> None:
        """Learn all names there are."""
        for row in await reader.all("capability_ids", {}):
            self._bits[row[1]] = row[0]

    async def bits(self, tx: Tx, names: Iterable[str], *, org_id: int = 1, now: int = 0) -> int:
        """The bit set of names; a new name gets its bit.

        Raises OverflowError when all bits are taken.
        """
        wanted = set(names)
        missing = wanted - self._bits.keys()
        if missing:
            await self.read(tx)
            for name in sorted(missing - self._bits.keys()):
                await tx.run("insert_capability", {"org_id": org_id, "name": name, "now": now})
            await self.read(tx)
        total = 0
        for name in wanted:
            bit = self._bits[name]
            if bit > BITS_MAX:
                raise OverflowError(
                    f"there are already {BITS_MAX} capability names; {name!r} is one too many"
                )
            total |= 1 << (bit - 1)
        return total

    def names(self, bits: int) -> frozenset[str]:
        """The names of a bit set."""
        return frozenset(name for name, bit in self._bits.items() if bits >> (bit - 1) & 1)
