"""What attributes mean and how options become attributes, without a printer."""

import pytest

from farhand.systems.printing.drivers.base import PrintOptions
from farhand.systems.printing.drivers.ipp_attributes import (
    OptionError,
    capabilities_of,
    document_format,
    evidence_of,
    job_attributes,
    page_ranges,
    paper_name,
    status_of,
)
from farhand.systems.printing.drivers.ipp_values import (
    Attribute,
    Collection,
    Content,
    Group,
    GroupTag,
    Range,
    Resolution,
    Tag,
    attribute,
)
from farhand.systems.printing.drivers.ipp_words import ending_words, status_words

RAW, CUPS_RAW, PDF = "application/octet-stream", "application/vnd.cups-raw", "application/pdf"


def printer(*more: Attribute) -> Group:
    return Group(GroupTag.PRINTER, more)


def keywords(name: str, *words: str) -> Attribute:
    return attribute(name, Tag.KEYWORD, *words)


FULL = printer(
    keywords("media-supported", "iso_a4_210x297mm", "na_letter_8.5x11in", "custom_min_10x10mm"),
    keywords("media-source-supported", "tray-1", "tray-2"),
    keywords("media-type-supported", "stationery", "labels"),
    keywords("sides-supported", "one-sided", "two-sided-long-edge", "two-sided-short-edge"),
    keywords("print-color-mode-supported", "auto", "color", "monochrome"),
    keywords("print-scaling-supported", "auto", "fit", "none"),
    keywords(
        "multiple-document-handling-supported",
        "separate-documents-uncollated-copies",
        "separate-documents-collated-copies",
    ),
    attribute("copies-supported", Tag.RANGE, Range(1, 99)),
    attribute("page-ranges-supported", Tag.BOOLEAN, True),
    attribute("number-up-supported", Tag.INTEGER, 1, 2, 4),
    attribute("orientation-requested-supported", Tag.ENUM, 3, 4, 5, 6),
    attribute(
        "printer-resolution-supported", Tag.RESOLUTION, Resolution(600, 600, 3), Resolution(120, 120, 4)
    ),
    attribute("document-format-supported", Tag.MIME, PDF, RAW),
)
BARE = printer(attribute("document-format-supported", Tag.MIME, PDF))


def mapped(group: Group, copies: int = 1, **options: object) -> dict[str, list[Content]]:
    made = job_attributes(group, "pdf", copies, PrintOptions(**options))  # type: ignore[arg-type]  (names are parametrized)
    whole = Group(GroupTag.JOB, made)
    return {item.name: whole.all(item.name) for item in made}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"paper": "a4"}, {"media": ["iso_a4_210x297mm"]}),
        ({"paper": "na_letter_8.5x11in"}, {"media": ["na_letter_8.5x11in"]}),
        ({"duplex": "long-edge"}, {"sides": ["two-sided-long-edge"]}),
        ({"duplex": "one-sided"}, {"sides": ["one-sided"]}),
        ({"color": False}, {"print-color-mode": ["monochrome"]}),
        ({"color": True}, {"print-color-mode": ["color"]}),
        ({"fit_to_page": True}, {"print-scaling": ["fit"]}),
        ({"fit_to_page": False}, {"print-scaling": ["none"]}),
        ({"dpi": "600x600"}, {"printer-resolution": [Resolution(600, 600, 3)]}),
        ({"dpi": "600dpi"}, {"printer-resolution": [Resolution(600, 600, 3)]}),
        ({"dpi": "305"}, {"printer-resolution": [Resolution(120, 120, 4)]}),
        ({"pages": "7-9,1"}, {"page-ranges": [Range(1, 1), Range(7, 9)]}),
        ({"pages": "-"}, {}),
        ({"nup": 4}, {"number-up": [4]}),
        ({"nup": 1}, {}),
        ({"rotate": 90}, {"orientation-requested": [5]}),
        ({"rotate": 180}, {"orientation-requested": [6]}),
        ({"rotate": 270}, {"orientation-requested": [4]}),
        ({"rotate": 0}, {}),
        ({"collate": True}, {"multiple-document-handling": ["separate-documents-collated-copies"]}),
        ({"collate": False}, {"multiple-document-handling": ["separate-documents-uncollated-copies"]}),
    ],
)
def test_options_become_attributes(options: dict[str, object], expected: dict[str, list[Content]]) -> None:
    assert mapped(FULL, **options) == expected


def test_paper_with_a_bin_and_a_media_type_goes_into_one_collection() -> None:
    found = mapped(FULL, paper="Letter", bin="TRAY-2", media="labels")
    size = Collection(
        (attribute("x-dimension", Tag.INTEGER, 21590), attribute("y-dimension", Tag.INTEGER, 27940))
    )
    assert found == {
        "media-col": [
            Collection(
                (
                    attribute("media-size", Tag.COLLECTION, size),
                    keywords("media-source", "tray-2"),
                    keywords("media-type", "labels"),
                )
            )
        ]
    }


def test_copies_are_sent_when_there_is_more_than_one() -> None:
    assert mapped(FULL, copies=99) == {"copies": [99]}
    with pytest.raises(OptionError, match="1 to 99"):
        mapped(FULL, copies=100)


@pytest.mark.parametrize(
    "options",
    [
        {"paper": "A4"},
        {"bin": "tray-1"},
        {"media": "labels"},
        {"duplex": "long-edge"},
        {"dpi": "600"},
        {"pages": "1"},
        {"nup": 2},
        {"rotate": 90},
        {"copies": 2},
    ],
)
def test_what_changes_the_sheet_is_refused_where_the_printer_cannot_do_it(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        mapped(BARE, **options)


def test_wishes_are_dropped_where_the_printer_does_not_know_them() -> None:
    assert mapped(BARE, color=True, fit_to_page=True, collate=True, duplex="one-sided") == {}


def test_raw_data_carries_no_options_but_copies() -> None:
    made = job_attributes(FULL, "raw", 2, PrintOptions(paper="A4", duplex="long-edge"))
    assert [item.name for item in made] == ["copies"]


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("1,3", [(1, 1), (3, 3)]),
        ("-5", [(1, 5)]),
        ("2-", [(2, 2**31 - 1)]),
        ("3-4, 1-3", [(1, 4)]),
    ],
)
def test_page_ranges_are_ascending_and_apart(text: str, ranges: list[tuple[int, int]]) -> None:
    assert [(item.lower, item.upper) for item in page_ranges(text)] == ranges


@pytest.mark.parametrize("text", ["", "0", "5-2", "a", "1,,2", "1-2-3", "99999999999"])
def test_what_is_no_page_range_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        page_ranges(text)


@pytest.mark.parametrize(
    ("formats", "device", "model", "raw"),
    [
        ((PDF, RAW), None, "Laser", RAW),
        ((PDF,), None, "Laser", None),
        ((PDF, RAW, CUPS_RAW), "socket://h", "Local Raw Printer", CUPS_RAW),
        ((PDF, RAW, CUPS_RAW), "usb://Zebra", "Zebra ZPL", CUPS_RAW),
        ((PDF, RAW, CUPS_RAW), "ipp://h/ipp/print", "Laser - IPP Everywhere", None),
        ((PDF, RAW, CUPS_RAW), "dnssd://Laser._ipp._tcp.local/", "Laser - IPP Everywhere", None),
        ((PDF, RAW, CUPS_RAW), "ipp://h/ipp/print", "Local Raw Printer", CUPS_RAW),
        ((PDF, RAW, CUPS_RAW), "cups-pdf:/", "Generic CUPS-PDF", None),
    ],
)
def test_raw_is_offered_where_the_bytes_reach_a_device_unchanged(
    formats: tuple[str, ...], device: str | None, model: str, raw: str | None
) -> None:
    group = printer(
        attribute("document-format-supported", Tag.MIME, *formats),
        attribute("printer-make-and-model", Tag.TEXT, model),
        *([attribute("device-uri", Tag.URI, device)] if device else []),
    )
    assert document_format(group, "raw") == raw
    assert capabilities_of(group).raw is (raw is not None)
    assert evidence_of(group) == ("delivered" if device else "printed")


def test_a_printer_that_says_nothing_has_unknown_capabilities() -> None:
    found = capabilities_of(printer())
    assert (found.raw, found.pdf) == (False, False)
    assert (found.color, found.duplex, found.copies_max) == (None, None, None)
    assert found.papers == ()


def test_papers_have_short_names_as_long_as_they_are_unique() -> None:
    assert paper_name("iso_a4_210x297mm") == "A4"
    assert paper_name("jis_b5_182x257mm") == "JIS B5"
    assert paper_name("oe_photo-l_3.5x5in") == "oe_photo-l_3.5x5in"
    twins = printer(keywords("media-supported", "na_letter_8.5x11in", "na_letter_215x279mm"))
    assert capabilities_of(twins).papers == ("na_letter_8.5x11in", "na_letter_215x279mm")


def test_reasons_lose_their_severity_and_reports_are_no_reasons() -> None:
    found = status_of(
        printer(
            attribute("printer-state", Tag.ENUM, 5),
            keywords("printer-state-reasons", "media-empty-error", "toner-low-warning"),
            keywords("printer-state-reasons", "door-open-report", "odd-thing"),
            attribute("printer-state-message", Tag.TEXT, "Load tray 1"),
            attribute("printer-is-accepting-jobs", Tag.BOOLEAN, False),
        )
    )
    assert found.state == "stopped"
    assert not found.accepting
    assert found.reasons == (
        "media-empty: the printer is out of paper",
        "toner-low: the toner is low",
        "odd-thing",
        "Load tray 1",
    )


def test_an_offline_reason_is_the_state() -> None:
    group = printer(attribute("printer-state", Tag.ENUM, 3), keywords("printer-state-reasons", "offline"))
    assert status_of(group).state == "offline"


def test_statuses_and_endings_are_words() -> None:
    assert status_words(0x040B, "bad sides", ["sides"]) == (
        "the printer does not take a setting of the job (sides) [0x040b: bad sides]"
    )
    assert "0x04ff" in status_words(0x04FF)
    assert ending_words(["aborted-by-system"], "jam", "") == "jam; aborted-by-system: the printer gave up"
    assert ending_words([], "") == "the printer gives no reason"
