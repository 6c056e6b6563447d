"""Keys in a folder beside the payloads: outside the database, so that they can really be destroyed."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

SUFFIX: Final = ".key"
FRESH: Final = ".new"


class KeyFolder:
    """A key store in a folder that every server of a database shares.

    Each database has a folder in it, so that no server judges the keys of another database.
    Files are readable by their owner only. A key is on disk, name and all, before `put` returns.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root

    def open_root(self, space: str) -> None:
        """Make the folder, closed to others. Raises OSError when it cannot be used."""
        self._folder = self._root / space
        self._folder.mkdir(parents=True, exist_ok=True)
        for folder in (self._folder, self._root):
            folder.chmod(0o700)
            _flush(folder.parent)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"

    def names(self) -> list[str]:
        """The names of all keys."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"*{SUFFIX}"))

    def put(self, name: str, key: bytes) -> bytes:
        """Keep a key under a name; the one that is there already, if another was quicker."""
        fresh = self._folder / f".{name}.{secrets.token_hex(8)}{FRESH}"
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            try:
                # Unlike a rename a link never replaces what is there.
                os.link(fresh, self._path(name))
            except FileExistsError:
                key = self._path(name).read_bytes()
        finally:
            fresh.unlink(missing_ok=True)
        _flush(self._folder)
        return key

    def get(self, name: str) -> bytes | None:
        """A key, None when it is not, or no longer, there."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def destroy(self, name: str) -> None:
        """Overwrite a key and remove it; nothing happens when it is not there."""
        for path in (self._path(name), *self._folder.glob(f".{name}.*{FRESH}")):
            with contextlib.suppress(FileNotFoundError):
                with path.open("r+b") as file:
                    file.write(bytes(path.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
        _flush(self._folder)

    def clear(self) -> None:
        """Remove what a crash left half-written; only for whoever has the folder alone."""
        for leftover in self._folder.glob(f".*{FRESH}"):
            leftover.unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class MemoryKeys:
    """Keys that end with the process, and with them every secret: for tests and throwaway stores."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}

    def open_root(self, space: str) -> None:
        """Nothing to make."""

    def names(self) -> list[str]:
        """The names of all keys."""
        return sorted(self._keys)

    def put(self, name: str, key: bytes) -> bytes:
        """Keep a key under a name; the one that is there already."""
        return self._keys.setdefault(name, key)

    def get(self, name: str) -> bytes | None:
        """A key, None when it is not there."""
        return self._keys.get(name)

    def destroy(self, name: str) -> None:
        """Forget a key."""
        self._keys.pop(name, None)

    def clear(self) -> None:
        """Nothing is ever half-written."""
