"""A print's progress as a test sees it."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from farhand.systems.printing.drivers.base import Document, Mode, PrintOptions
from farhand.systems.printing.drivers.ipp import Timing
from farhand.systems.printing.drivers.ipp_client import Timeouts
from tests.peers.printers import PDF, until

# Looks at a job often and gives a lost printer up soon.
QUICK = Timing(
    poll_first_ms=20,
    poll_ms=100,
    lost_ms=1_000,
    network=Timeouts(connect_ms=2_000, read_ms=5_000, stall_ms=10_000),
)


@dataclass(slots=True)
class Recorder:
    """Keeps what a driver tells, in order."""

    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)
    handles: list[str] = field(default_factory=list)
    reports: list[tuple[str, str | None]] = field(default_factory=list)

    async def spooling(self) -> None:
        self.calls.append("spooling")

    async def handed(self, handle: str) -> None:
        self.calls.append("handed")
        self.handles.append(handle)

    async def report(self, phase: str, reason: str | None) -> None:
        self.reports.append((phase, reason))

    async def waits_for(self, word: str) -> None:
        """Until a report's reason names this word."""
        await until(lambda: any(word in (reason or "") for _, reason in self.reports), f"reason {word}")


def a_document(
    folder: Path,
    content: bytes = PDF,
    *,
    name: str = "Invoice 12 [3f9c2a1b-1]",
    mode: Mode = "pdf",
    copies: int = 1,
    options: PrintOptions | None = None,
) -> Document:
    """A document on disk."""
    path = folder / "payload"
    path.write_bytes(content)
    return Document(
        path=path,
        mode=mode,
        size=len(content),
        name=name,
        copies=copies,
        options=options or PrintOptions(),
    )
