"""Capability names and their bits: a job requires some, an agent declares some."""

from collections.abc import Iterable, Mapping

from farhand.storage.database import Reader, Tx

BITS_MAX = 62


class Capabilities:
    """The names this process has met, each with its bit.

    What a transaction learns stays in its own `learned` until its commit: a name that was
    rolled back has no bit, and the next name gets the number.
    """

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}

    async def read(self, reader: Reader) -> None:
        """Learn all names there are."""
        self.keep(await _stored(reader))

    def keep(self, learned: Mapping[str, int]) -> None:
        """Remember names whose transaction is committed."""
        self._bits.update(learned)

    async def bits(
        self, tx: Tx, names: Iterable[str], learned: dict[str, int], *, org_id: int, now: int
    ) -> int:
        """The bit set of names; a new name gets its bit.

        Raises OverflowError when all bits are taken.
        """
        wanted = set(names)
        if not wanted:
            return 0
        while missing := wanted - self._bits.keys() - learned.keys():
            learned.update(await _stored(tx))
            new = sorted(missing - learned.keys())
            if not new:
                break
            if len(learned) >= BITS_MAX:
                raise OverflowError(
                    f"there are already {BITS_MAX} capability names; {new[0]!r} is one too many"
                )
            await tx.run("insert_capability", {"org_id": org_id, "name": new[0], "now": now})
        total = 0
        for name in wanted:
            total |= 1 << ((learned.get(name) or self._bits[name]) - 1)
        return total

    async def known(self, reader: Reader, names: Iterable[str]) -> tuple[frozenset[str], int]:
        """Those of the names that have a bit, and their bits; none gets one here."""
        wanted = set(names)
        if not wanted <= self._bits.keys():
            await self.read(reader)
        found = frozenset(name for name in wanted if name in self._bits)
        return found, sum(1 << (self._bits[name] - 1) for name in found)

    def names(self, bits: int) -> frozenset[str]:
        """The names of a bit set."""
        return frozenset(name for name, bit in self._bits.items() if bits >> (bit - 1) & 1)


async def _stored(reader: Reader) -> dict[str, int]:
    return {row[1]: row[0] for row in await reader.all("capability_ids", {})}
