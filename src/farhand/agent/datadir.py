"""The agent's folder: one agent at a time, and nobody else looks in."""

import os
from pathlib import Path
from typing import Final

from farhand.agent.config import ConfigError

LOCK_NAME: Final = "agent.lock"


class DataDir:
    """Held from its making until `release`, or until the process ends in whatever way.

    Raises ConfigError when it cannot be used or another agent uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"data {path} cannot be used: {error}") from error
        try:
            _lock(self._fd)
        except OSError as error:
            os.close(self._fd)
            raise ConfigError(f"another agent runs with data {path}; stop it or set another data") from error

    def release(self) -> None:
        """Lets another agent have it."""
        os.close(self._fd)


def _lock(descriptor: int) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        return
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
