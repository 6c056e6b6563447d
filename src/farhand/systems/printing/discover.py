"""Which printers an agent offers: the machine's own queues and those its configuration lists."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from farhand.systems.printing.drivers import winspool
from farhand.systems.printing.drivers.base import Driver, FoundPrinter, PrinterStatus
from farhand.systems.printing.drivers.folder import FolderDriver
from farhand.systems.printing.drivers.ipp import IppDriver, Timing
from farhand.systems.printing.drivers.ipp_attributes import PRINTER_ATTRIBUTES, status_of
from farhand.systems.printing.drivers.ipp_client import IppClient, IppError, endpoint
from farhand.systems.printing.drivers.ipp_session import CUPS_GET_PRINTERS, IppSession, StatusError
from farhand.systems.printing.drivers.ipp_values import Group, GroupTag, Tag, attribute
from farhand.systems.printing.drivers.ipp_words import NOT_FOUND
from farhand.systems.printing.drivers.raw9100 import RawDriver
from farhand.systems.printing.drivers.windows import WindowsDriver, find_sumatra, windows_uri
from farhand.systems.printing.drivers.windows import status_of as windows_status_of

CUPS_SOCKET = Path("/run/cups/cups.sock")
_KINDS = {
    "ipp": "ipp",
    "ipps": "ipp",
    "ipp+unix": "ipp",
    "socket": "raw",
    "file": "folder",
    "winspool": "windows",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrinter:
    """A printer of the configuration. `fingerprint` is for `ipps://` with its own certificate."""

    uri: str
    name: str | None = None
    fingerprint: str | None = None


def driver_for(
    uri: str, *, fingerprint: str | None = None, sumatra: Path | None = None, timing: Timing | None = None
) -> Driver:
    """The driver of an address; ValueError names the addresses there are.

    `timing` is for IPP; `sumatra` is where SumatraPDF lies when it is not in its usual place.
    """
    match _KINDS.get(urlsplit(uri).scheme):
        case "ipp":
            return IppDriver(uri, fingerprint=fingerprint, timing=timing)
        case "raw":
            return RawDriver(uri)
        case "folder":
            return FolderDriver(uri)
        case "windows":
            return WindowsDriver(uri, sumatra=sumatra)
        case _:
            raise ValueError(
                f"{uri!r} is no printer address; write ipp://host/path, ipps://host/path, "
                "socket://host:9100 or file:///folder"
            )


async def discover(
    *,
    listed: Sequence[ListedPrinter] = (),
    cups: str | Path | None = None,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    sumatra: Path | None = None,
    timing: Timing | None = None,
) -> list[FoundPrinter]:
    """Listed printers first, then the machine's own queues whose name the patterns admit.

    `cups` is `host:port`, the path of a socket, or None for the machine's own socket. Patterns
    (`*`, `?`, `[…]`) ignore case; a listed printer is always wanted. Names and addresses are
    unique: the first of equal ones stays. A cupsd that does not answer offers nothing. Raises
    ValueError for a listed address that is none.
    """
    drivers = [
        (entry, driver_for(entry.uri, fingerprint=entry.fingerprint, sumatra=sumatra, timing=timing))
        for entry in listed
    ]
    states = await asyncio.gather(*(driver.status() for _, driver in drivers))
    found = [
        FoundPrinter(name=entry.name or default_name(entry.uri), uri=entry.uri, status=state, driver=driver)
        for (entry, driver), state in zip(drivers, states, strict=True)
    ]
    own = await _windows_printers(sumatra) if sys.platform == "win32" else await _own_queues(cups, timing)
    found += [printer for printer in own if is_wanted(printer.name, include, exclude)]
    return _unique(found)


async def cups_queues(where: str | Path, *, timing: Timing | None = None) -> list[FoundPrinter]:
    """Every queue of a cupsd at `host:port` or a socket's path; raises IppError when it does not answer."""
    start = f"ipp+unix://{quote(str(where), safe='')}" if _is_path(where) else f"ipp://{where}"
    limits = (timing or Timing()).network
    session = IppSession(IppClient(endpoint(f"{start}/"), timeouts=limits), "farhand")
    wanted = attribute("requested-attributes", Tag.KEYWORD, *PRINTER_ATTRIBUTES)
    try:
        reply = await session.ask(CUPS_GET_PRINTERS, wanted)
    except StatusError as error:
        # So cupsd says that there is no queue yet.
        if error.status == NOT_FOUND:
            return []
        raise
    queues = (_queue(start, group, timing) for group in reply.each(GroupTag.PRINTER))
    return [queue for queue in queues if queue is not None]


def is_wanted(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a name matches a pattern of `include` and none of `exclude`."""
    folded = name.casefold()
    admitted = any(fnmatchcase(folded, pattern.casefold()) for pattern in include)
    return admitted and not any(fnmatchcase(folded, pattern.casefold()) for pattern in exclude)


def default_name(uri: str) -> str:
    """What a listed printer without a name is called: its queue or folder, or its host."""
    parts = urlsplit(uri)
    last = unquote(parts.path.rstrip("/").rpartition("/")[2])
    if parts.scheme == "socket" or last in ("", "print", "ipp"):
        return parts.netloc or uri
    return last


async def _own_queues(cups: str | Path | None, timing: Timing | None) -> list[FoundPrinter]:
    where = cups if cups is not None else CUPS_SOCKET
    if _is_path(where) and not await asyncio.to_thread(Path(where).exists):
        return []
    try:
        return await cups_queues(where, timing=timing)
    except IppError:
        return []


def _queue(start: str, group: Group, timing: Timing | None) -> FoundPrinter | None:
    name, supported = group.first("printer-name"), group.first("printer-uri-supported")
    if not isinstance(name, str) or not isinstance(supported, str):
        return None
    # cupsd names itself by its own host name, which need not lead here; the path does.
    uri = start + quote(unquote(urlsplit(supported).path), safe="/")
    driver = IppDriver(uri, timing=timing)
    return FoundPrinter(name=name, uri=uri, status=status_of(group), driver=driver)


async def _windows_printers(sumatra: Path | None) -> list[FoundPrinter]:
    spooler = winspool.Spooler(winspool.load())
    program = sumatra or find_sumatra()
    try:
        async with asyncio.timeout(30):
            printers = await asyncio.to_thread(spooler.printers)
    except OSError:
        return []
    found: list[FoundPrinter] = []
    for printer in printers:
        uri = windows_uri(printer.name)
        status: PrinterStatus = windows_status_of(printer, pdf=program is not None)
        driver = WindowsDriver(uri, spooler=spooler, sumatra=program)
        found.append(FoundPrinter(name=printer.name, uri=uri, status=status, driver=driver))
    return found


def _unique(found: Sequence[FoundPrinter]) -> list[FoundPrinter]:
    names: set[str] = set()
    uris: set[str] = set()
    kept: list[FoundPrinter] = []
    for printer in found:
        if printer.name in names or printer.uri in uris:
            continue
        names.add(printer.name)
        uris.add(printer.uri)
        kept.append(printer)
    return kept


def _is_path(where: str | Path) -> bool:
    return isinstance(where, Path) or where.startswith("/")
