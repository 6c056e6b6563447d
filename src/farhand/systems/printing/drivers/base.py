"""What every printing driver offers, and the words they share."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Mode = Literal["raw", "pdf"]
PrinterState = Literal["idle", "printing", "stopped", "offline", "unknown"]
Evidence = Literal["printed", "delivered"]
Duplex = Literal["one-sided", "long-edge", "short-edge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a printer says it can do; None or empty where it does not say."""

    raw: bool
    pdf: bool
    color: bool | None = None
    duplex: bool | None = None
    copies_max: int | None = None
    papers: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    media_types: tuple[str, ...] = ()
    resolutions: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterStatus:
    """How a printer is at this moment; `reasons` are in words."""

    state: PrinterState
    reasons: tuple[str, ...] = ()
    accepting: bool = True
    capabilities: Capabilities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions:
    """How to print a PDF; None leaves the choice to the printer. `rotate` is degrees clockwise."""

    paper: str | None = None
    bin: str | None = None
    color: bool | None = None
    duplex: Duplex | None = None
    dpi: str | None = None
    fit_to_page: bool | None = None
    media: str | None = None
    pages: str | None = None
    nup: int | None = None
    rotate: int | None = None
    collate: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file to print. `name` is unique per attempt: the device shows it and `fate` finds it."""

    path: Path
    mode: Mode
    size: int
    name: str
    copies: int = 1
    options: PrintOptions = field(default_factory=PrintOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """It came out (`printed`), or the device took every byte and tells no more (`delivered`)."""

    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It did not come out; `retryable` only when another try could help and repeats nothing."""

    reason: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """It was taken back because the server asked for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """It may have come out, wholly or in part, and nobody can say."""

    reason: str


Outcome = Printed | Failed | Cancelled | Unknown


class Progress(Protocol):
    """The driver's line to the agent while it prints."""

    cancelled: asyncio.Event

    async def spooling(self) -> None:
        """Awaited before the first byte leaves; whatever it raises ends the print unsent."""
        ...

    async def handed(self, handle: str) -> None:
        """Notes what the device can be asked by; on disk when this returns, else OSError.

        A driver may call it before the first byte, and again when the device has confirmed the
        document; the last handle counts. `fate` with no handle may take it that no byte left.
        """
        ...

    async def report(self, phase: str, reason: str | None) -> None:
        """Where the print is (`starting printing paused`) and in words why it waits."""
        ...


class Driver(Protocol):
    """One printer."""

    uri: str

    async def status(self) -> PrinterStatus:
        """How the printer is now; an unreachable one is `offline`, never an exception."""
        ...

    async def print(self, document: Document, progress: Progress) -> Outcome:
        """Prints once and says what really happened."""
        ...

    async def fate(self, name: str, handle: str | None, progress: Progress) -> Outcome:
        """Asks the device what became of an earlier print and follows it; never prints."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPrinter:
    """A printer that discovery or the configuration names."""

    name: str
    uri: str
    status: PrinterStatus
    driver: Driver


def device_name(name: str, limit: int) -> str:
    """A name fit for a device: printable, in at most `limit` UTF-8 bytes, its tail kept.

    The tail is what follows the last space (the attempt, e.g. `[3f9c2a1b-1]`); where even that
    is too long, a digest of the whole name stands for it.
    """
    whole = name.encode(errors="replace").decode()
    clean = "".join(letter if letter.isprintable() else " " for letter in whole).strip() or "document"
    if len(clean.encode()) <= limit:
        return clean
    head, _, tail = clean.rpartition(" ")
    if not head or len(tail.encode()) > limit // 2:
        head, tail = clean, f"[{hashlib.sha256(whole.encode()).hexdigest()[:16]}]"
    room = limit - len(tail.encode()) - 1
    return f"{head.encode()[:room].decode(errors='ignore').rstrip()} {tail}"
