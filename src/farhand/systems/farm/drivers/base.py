"""What every kind of machine can be asked: one Protocol, polled by its station."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from farhand.model.errors import FarhandError
from farhand.systems.farm.rules import Seen


class DriverError(FarhandError):
    """The machine did not answer, or not as it should: what was asked of it may have happened."""

    code = "state-conflict"


class Refused(FarhandError):
    """The machine said no: what was asked of it has surely not happened."""

    code = "state-conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a machine shows. `identity` is the name of the print, where it tells one.

    `percent` runs from 0 to 100; `reason` says in words why it stands still.
    """

    state: Seen
    identity: str | None = None
    percent: float | None = None
    remaining_ms: int | None = None
    reason: str | None = None
    temperatures: Mapping[str, float] = field(default_factory=dict[str, float])


class Driver(Protocol):
    """One machine. Every method raises DriverError when it cannot be reached.

    `watch_ms` is how long the machine may take to show that it follows a start.
    """

    watch_ms: int

    async def snapshot(self) -> Snapshot:
        """What the machine shows now."""
        ...

    async def upload(self, path: Path, remote: str, progress: Callable[[int, int], None]) -> None:
        """Puts a file on the machine under this name; `progress` gets bytes sent and in all.

        Cancelled it leaves at most a part under the name. Raises Refused.
        """
        ...

    async def start(self, remote: str) -> None:
        """Starts a file that lies on the machine. Raises Refused when it surely did not start."""
        ...

    async def pause(self) -> None:
        """Pauses the print."""
        ...

    async def resume(self) -> None:
        """Lets a paused print go on."""
        ...

    async def cancel(self) -> None:
        """Ends the print."""
        ...

    async def remove(self, remote: str) -> None:
        """Removes a file, or a part of one; nothing happens when it is not there."""
        ...

    async def aclose(self) -> None:
        """Frees what the driver holds."""
        ...
