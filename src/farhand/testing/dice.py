"""Chance that a seed reproduces."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Numbers that look random and are the same for the same seed in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """A whole number from 0 up to, not including, the limit."""
        self._count += 1
        raw = hashlib.sha256(b"%d:%d" % (self._seed, self._count)).digest()
        return int.from_bytes(raw[:8], "big") % limit

    def chance(self, percent: int) -> bool:
        """Whether something happens that does so this often."""
        return self.below(100) < percent

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self.below(len(choices))]
