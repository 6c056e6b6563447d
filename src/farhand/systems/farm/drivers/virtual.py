"""The built-in virtual printer: a machine in a folder that prints on while nobody looks.

Its state is one file, so that a person at the machine and several gateways can meet there.
"""

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from farhand.model.clock import Clock
from farhand.systems.farm.drivers import machine as rules
from farhand.systems.farm.drivers.base import DriverError, Snapshot
from farhand.systems.farm.drivers.machine import Machine

CHUNK: Final = 64 * 1024
T = TypeVar("T")


class VirtualPrinter:
    """A virtual printer in a folder. `prepare_ms` and `duration_ms` are how long a print takes,
    unless its file says otherwise; `bytes_per_second` slows uploads down.
    """

    watch_ms = 30_000

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        prepare_ms: int = 1_000,
        duration_ms: int = 30_000,
        bytes_per_second: int | None = None,
        watch_ms: int = 30_000,
    ) -> None:
        self.watch_ms = watch_ms
        self._folder = folder
        self._clock = clock
        self._prepare_ms = prepare_ms
        self._duration_ms = duration_ms
        self._bytes_per_second = bytes_per_second
        folder.mkdir(parents=True, exist_ok=True)

    def change(self, action: Callable[[Machine], T]) -> T:
        """Do something to the machine; also for whoever stands in front of it. Blocks."""
        with self._locked():
            state = self._read()
            try:
                return action(state)
            finally:
                self._write(state)

    async def snapshot(self) -> Snapshot:
        """What the machine shows now."""
        return await self._ask(lambda machine: rules.snapshot(machine, self._clock.now_ms()))

    async def upload(self, path: Path, remote: str, progress: Callable[[int, int], None]) -> None:
        """Takes a file in, as fast as it may. Raises Refused, DriverError."""
        await self._awake()
        if await self._ask(_upload_error):
            raise DriverError("the connection broke while the file was sent")
        content = await asyncio.to_thread(path.read_bytes)
        for sent in range(0, len(content), CHUNK):
            piece = content[sent : sent + CHUNK]
            if self._bytes_per_second is not None:
                await asyncio.sleep(len(piece) / self._bytes_per_second)
            progress(sent + len(piece), len(content))
        duration = rules.duration_of(content, self._duration_ms)
        await self._ask(lambda machine: machine.files.update({remote: duration}))

    async def start(self, remote: str) -> None:
        """Starts a file. Raises Refused, and DriverError when its answer is lost."""
        await self._awake()
        now = self._clock.now_ms()

        def begin(machine: Machine) -> bool:
            duration = machine.files.get(remote, 0)
            rules.start(machine, remote, now, prepare_ms=self._prepare_ms, duration_ms=duration)
            return machine.faults.lose_reply

        if await self._ask(begin):
            raise DriverError("the printer did not answer the start")

    async def pause(self) -> None:
        """Pauses the print."""
        await self._ask(lambda machine: rules.pause(machine, self._clock.now_ms()))

    async def resume(self) -> None:
        """Lets a paused print go on."""
        await self._ask(lambda machine: rules.resume(machine, self._clock.now_ms()))

    async def cancel(self) -> None:
        """Ends the print."""
        await self._ask(lambda machine: rules.cancel(machine, self._clock.now_ms()))

    async def remove(self, remote: str) -> None:
        """Removes a file."""
        await self._ask(lambda machine: machine.files.pop(remote, None))

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _ask(self, action: Callable[[Machine], T]) -> T:
        return await asyncio.to_thread(self.change, action)

    async def _awake(self) -> None:
        if not await self._ask(lambda machine: machine.power):
            raise DriverError("the printer is switched off")

    def _read(self) -> Machine:
        try:
            return msgspec.json.decode((self._folder / "machine.json").read_bytes(), type=Machine)
        except FileNotFoundError:
            return Machine()

    def _write(self, state: Machine) -> None:
        fresh = self._folder / "machine.new"
        fresh.write_bytes(msgspec.json.encode(state))
        fresh.replace(self._folder / "machine.json")

    @contextmanager
    def _locked(self) -> Generator[None]:
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)


def _upload_error(machine: Machine) -> bool:
    if machine.faults.upload_errors <= 0:
        return False
    machine.faults.upload_errors -= 1
    return True


def _lock(handle: int) -> None:
    """Hold the folder until the handle is closed."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
        return
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX)
