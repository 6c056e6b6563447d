"""What a printer's IPP attributes mean, and print options as IPP attributes.

Attributes of RFC 8011, PWG 5100.7 (media-col), PWG 5100.13 (print-color-mode, print-scaling);
paper names of PWG 5101.1; device-uri and application/vnd.cups-raw of CUPS.
"""

import re
from urllib.parse import urlsplit

from farhand.systems.printing.drivers.base import (
    Capabilities,
    Evidence,
    Mode,
    PrinterState,
    PrinterStatus,
    PrintOptions,
)
from farhand.systems.printing.drivers.ipp_values import (
    Attribute,
    Collection,
    Group,
    Range,
    Resolution,
    Tag,
    attribute,
)
from farhand.systems.printing.drivers.ipp_words import base_reason, printer_words

RAW_FORMAT, CUPS_RAW_FORMAT, PDF_FORMAT = (
    "application/octet-stream",
    "application/vnd.cups-raw",
    "application/pdf",
)
_STATES: dict[int, PrinterState] = {3: "idle", 4: "printing", 5: "stopped"}
_SIDES = {"one-sided": "one-sided", "long-edge": "two-sided-long-edge", "short-edge": "two-sided-short-edge"}
# orientation-requested counts anti-clockwise (RFC 8011 section 5.2.10), our option clockwise.
_ORIENTATION = {0: 3, 90: 5, 180: 6, 270: 4}
_SIZE = re.compile(r"_(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)(mm|in)$")
# Backends that make a file of their own: raw bytes have no reader there.
_FILE_MAKERS = frozenset({"cups-pdf", "cups-brf"})
_IPP_DEVICES = frozenset({"ipp", "ipps", "http", "https", "dnssd", "implicitclass", "driverless"})
_RAW_QUEUE = "Local Raw Printer"
PAGE_MAX = 2**31 - 1

PRINTER_ATTRIBUTES = (
    "printer-name", "printer-info", "printer-uri-supported", "printer-make-and-model", "device-uri",
    "printer-state", "printer-state-reasons", "printer-state-message", "printer-is-accepting-jobs",
    "document-format-supported", "operations-supported", "print-color-mode-supported", "color-supported",
    "sides-supported", "copies-supported", "media-supported", "media-source-supported",
    "media-type-supported", "printer-resolution-supported", "page-ranges-supported",
    "number-up-supported", "print-scaling-supported", "orientation-requested-supported",
    "multiple-document-handling-supported", "media-col-supported",
)  # fmt: skip


class OptionError(Exception):
    """The printer cannot do what an option asks for; the text lists what it can."""


def status_of(printer: Group) -> PrinterStatus:
    """State, reasons in words and capabilities."""
    keywords = printer.words("printer-state-reasons")
    state = _STATES.get(printer.number("printer-state") or 0, "unknown")
    if "offline" in {base_reason(keyword) for keyword in keywords}:
        state = "offline"
    reasons = printer_words(keywords)
    message = printer.first("printer-state-message")
    if state == "stopped" and isinstance(message, str) and message:
        reasons.append(message)
    return PrinterStatus(
        state=state,
        reasons=tuple(reasons),
        accepting=printer.first("printer-is-accepting-jobs") is not False,
        capabilities=capabilities_of(printer),
    )


def capabilities_of(printer: Group) -> Capabilities:
    """What the printer lists; None and empty where it lists nothing."""
    sides = printer.words("sides-supported")
    copies = [value for value in printer.all("copies-supported") if isinstance(value, Range)]
    resolutions = printer.all("printer-resolution-supported")
    return Capabilities(
        raw=document_format(printer, "raw") is not None,
        pdf=document_format(printer, "pdf") is not None,
        color=_has_color(printer),
        duplex=any(side.startswith("two-sided") for side in sides) if sides else None,
        copies_max=max((value.upper for value in copies), default=None),
        papers=tuple(dict.fromkeys(_papers(printer).values())),
        bins=tuple(dict.fromkeys(printer.words("media-source-supported"))),
        media_types=tuple(dict.fromkeys(printer.words("media-type-supported"))),
        resolutions=tuple(_dpi(value) for value in resolutions if isinstance(value, Resolution)),
        formats=tuple(dict.fromkeys(printer.words("document-format-supported"))),
    )


def device_scheme(printer: Group) -> str | None:
    """How a CUPS queue reaches its device; None when this is no queue or it does not say."""
    uri = printer.first("device-uri")
    return (urlsplit(uri).scheme or None) if isinstance(uri, str) else None


def relays_to_ipp(printer: Group) -> bool:
    """Whether this is a CUPS queue in front of another IPP printer."""
    return device_scheme(printer) in _IPP_DEVICES


def evidence_of(printer: Group) -> Evidence:
    """What the end of a job proves by itself: a printer speaks for its paper, CUPS for its bytes."""
    return "printed" if device_scheme(printer) is None else "delivered"


def takes_whole_documents(printer: Group) -> bool:
    """Whether a document that is cut off on its way never becomes part of a job, as with cupsd."""
    return device_scheme(printer) is not None


def document_format(printer: Group, mode: Mode) -> str | None:
    """The format to announce, None when the printer does not take this mode.

    cupsd guesses the type of application/octet-stream and filters it by that guess, on every
    queue with a driver; application/vnd.cups-raw reaches the device unchanged. A driverless queue
    hands it to an IPP device as "guess what this is" and calls the job completed when the device
    refuses it, so that only a queue made raw on purpose counts there.
    """
    formats = {text.lower() for text in printer.words("document-format-supported")}
    if mode == "pdf":
        return PDF_FORMAT if PDF_FORMAT in formats else None
    made_raw = printer.first("printer-make-and-model") == _RAW_QUEUE
    if device_scheme(printer) in _FILE_MAKERS or (relays_to_ipp(printer) and not made_raw):
        return None
    if CUPS_RAW_FORMAT in formats:
        return CUPS_RAW_FORMAT
    return RAW_FORMAT if RAW_FORMAT in formats else None


def job_attributes(printer: Group, mode: Mode, copies: int, options: PrintOptions) -> tuple[Attribute, ...]:
    """Options as job template attributes.

    What changes the sheet (paper, bin, duplex, pages, copies …) must be something the printer
    lists, else OptionError: silence would print it wrongly. Wishes (colour on a mono printer,
    scaling, collating) are left out where the printer does not know them. Raw data carries its
    own settings, so that only `copies` applies.
    """
    found = _copies(printer, copies)
    if mode == "raw":
        return tuple(found)
    found += _media(printer, options)
    found += _sheet(printer, options)
    found += _wishes(printer, options)
    return tuple(found)


def page_ranges(text: str) -> tuple[Range, ...]:
    """`1,3`, `-5`, `2-`, `-` as ascending ranges that do not overlap; OptionError otherwise."""
    ranges: list[Range] = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(\d*)(-?)(\d*)", part)
        if not match or not part:
            raise OptionError(f"pages {text!r}: write numbers and ranges such as 1,3-5")
        first, dash, last = match.groups()
        lower = int(first or 1)
        upper = int(last or PAGE_MAX) if dash else lower
        if not 1 <= lower <= upper <= PAGE_MAX:
            raise OptionError(f"pages {text!r}: {part} is no range of pages")
        ranges.append(Range(lower, upper))
    merged: list[Range] = []
    for item in sorted(ranges, key=lambda item: item.lower):
        if merged and item.lower <= merged[-1].upper:
            merged[-1] = Range(merged[-1].lower, max(merged[-1].upper, item.upper))
        else:
            merged.append(item)
    return tuple(merged)


def paper_name(keyword: str) -> str:
    """`iso_a4_210x297mm` as A4, `na_letter_8.5x11in` as Letter; others as they are."""
    parts = keyword.split("_")
    if len(parts) != 3 or parts[0] not in ("iso", "na", "jis", "jpn") or not _SIZE.search(keyword):
        return keyword
    if parts[0] == "jis":
        return f"JIS {parts[1].upper()}"
    if parts[0] == "iso":
        return parts[1].upper()
    return parts[1].capitalize()


def _has_color(printer: Group) -> bool | None:
    flag = printer.first("color-supported")
    if isinstance(flag, bool):
        return flag
    modes = printer.words("print-color-mode-supported")
    return "color" in modes if modes else None


def _papers(printer: Group) -> dict[str, str]:
    keywords = [word for word in printer.words("media-supported") if not word.startswith("custom_")]
    names = [paper_name(word) for word in keywords]
    return {
        word: name if names.count(name) == 1 or keywords.count(word) > 1 else word
        for word, name in zip(keywords, names, strict=True)
    }


def _dpi(value: Resolution) -> str:
    factor = 2.54 if value.units == 4 else 1
    return f"{round(value.cross * factor)}x{round(value.feed * factor)}"


def _copies(printer: Group, copies: int) -> list[Attribute]:
    if copies == 1:
        return []
    limits = [value for value in printer.all("copies-supported") if isinstance(value, Range)]
    upper = max((value.upper for value in limits), default=1)
    if not 1 <= copies <= upper:
        raise OptionError(f"{copies} copies: the printer makes 1 to {upper}")
    return [attribute("copies", Tag.INTEGER, copies)]


def _choose(what: str, wanted: str, offered: dict[str, str]) -> str:
    # Keys are what the wire wants, values what people say; both are understood.
    folded = wanted.casefold()
    for keyword, name in offered.items():
        if folded in (keyword.casefold(), name.casefold()):
            return keyword
    names = ", ".join(dict.fromkeys(offered.values())) or "no choice"
    raise OptionError(f"{what} {wanted!r}: the printer offers {names}")


def _media(printer: Group, options: PrintOptions) -> list[Attribute]:
    paper = _choose("paper", options.paper, _papers(printer)) if options.paper else None
    members: list[Attribute] = []
    for what, wanted, name in (("bin", options.bin, "source"), ("media", options.media, "type")):
        if wanted:
            offered = {word: word for word in printer.words(f"media-{name}-supported")}
            members.append(attribute(f"media-{name}", Tag.KEYWORD, _choose(what, wanted, offered)))
    if not members:
        return [attribute("media", Tag.KEYWORD, paper)] if paper else []
    if paper:
        # media and media-col exclude each other, so that the size goes in by its measures.
        members.insert(0, attribute("media-size", Tag.COLLECTION, _measures(paper)))
    return [attribute("media-col", Tag.COLLECTION, Collection(tuple(members)))]


def _measures(keyword: str) -> Collection:
    match = _SIZE.search(keyword)
    if not match:
        raise OptionError(f"paper {keyword!r} has no measures, so that it goes with no bin or media type")
    factor = 2540 if match[3] == "in" else 100
    names = (("x-dimension", match[1]), ("y-dimension", match[2]))
    return Collection(
        tuple(attribute(name, Tag.INTEGER, round(float(text) * factor)) for name, text in names)
    )


def _sheet(printer: Group, options: PrintOptions) -> list[Attribute]:
    found: list[Attribute] = []
    if options.duplex:
        found += _sides(printer, options.duplex)
    if options.dpi:
        found.append(_resolution(printer, options.dpi))
    if options.pages and options.pages.strip() != "-":
        if printer.first("page-ranges-supported") is not True:
            raise OptionError("pages: the printer prints whole documents only")
        found.append(attribute("page-ranges", Tag.RANGE, *page_ranges(options.pages)))
    if options.nup and options.nup != 1:
        found.append(_number_up(printer, options.nup))
    if options.rotate:
        turn = _ORIENTATION.get(options.rotate)
        if turn is None or turn not in printer.all("orientation-requested-supported"):
            raise OptionError(f"rotate {options.rotate}: the printer does not turn pages so")
        found.append(attribute("orientation-requested", Tag.ENUM, turn))
    return found


def _sides(printer: Group, duplex: str) -> list[Attribute]:
    side = _SIDES.get(duplex, duplex)
    offered = printer.words("sides-supported")
    if side in offered:
        return [attribute("sides", Tag.KEYWORD, side)]
    if side == "one-sided":
        return []
    raise OptionError(f"duplex {duplex!r}: the printer offers {', '.join(offered) or 'one side only'}")


def _number_up(printer: Group, pages: int) -> Attribute:
    for value in printer.all("number-up-supported"):
        if value == pages or (isinstance(value, Range) and value.lower <= pages <= value.upper):
            return attribute("number-up", Tag.INTEGER, pages)
    raise OptionError(f"nup {pages}: the printer does not put so many pages on a sheet")


def _resolution(printer: Group, text: str) -> Attribute:
    match = re.fullmatch(r"(\d+)(?:x(\d+))?(?:dpi)?", text.strip().lower())
    wanted = f"{match[1]}x{match[2] or match[1]}" if match else text
    offered = [
        value for value in printer.all("printer-resolution-supported") if isinstance(value, Resolution)
    ]
    for value in offered:
        if _dpi(value) == wanted:
            return attribute("printer-resolution", Tag.RESOLUTION, value)
    raise OptionError(f"dpi {text!r}: the printer offers {', '.join(map(_dpi, offered)) or 'no choice'}")


def _wishes(printer: Group, options: PrintOptions) -> list[Attribute]:
    handling = "separate-documents-{}collated-copies".format("" if options.collate else "un")
    wishes = (
        (options.color, "print-color-mode", "color" if options.color else "monochrome"),
        (options.fit_to_page, "print-scaling", "fit" if options.fit_to_page else "none"),
        (options.collate, "multiple-document-handling", handling),
    )
    return [
        attribute(name, Tag.KEYWORD, keyword)
        for wish, name, keyword in wishes
        if wish is not None and keyword in printer.words(f"{name}-supported")
    ]
