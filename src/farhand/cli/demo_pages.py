"""What the demo prints: a page and a label, made here so that nothing has to be shipped or fetched.

PDF by ISO 32000-1: sections 7.5 (file structure), 8 (graphics), 9 (text, the standard fonts).
"""

from collections.abc import Iterable
from typing import Final

WIDTH: Final = 420
HEIGHT: Final = 595
"""A5 in points."""

_MARGIN: Final = 36
_INK: Final = (0.10, 0.13, 0.20)
_ACCENT: Final = (0.05, 0.45, 0.52)
_PALE: Final = (0.90, 0.95, 0.95)
_GREY: Final = (0.42, 0.46, 0.52)

Colour = tuple[float, float, float]

LABEL: Final = """\
^XA
^CI28
^PW812
^LL609
^FO40,40^GB732,529,4^FS
^FO70,75^A0N,70,70^FDFarhand^FS
^FO70,160^A0N,34,34^FDA label for a machine nobody can call^FS
^FO70,215^GB672,3,3^FS
^FO70,245^A0N,30,30^FDTo: the printer behind the firewall^FS
^FO70,290^A0N,30,30^FDBy: an agent that dials out^FS
^FO70,350^BY3^BCN,140,Y,N,N^FDFARHAND-0001^FS
^FO580,330^BQN,2,6^FDQA,FARHAND-0001^FS
^XZ
"""
"""A shipping label in ZPL II, 4 by 3 inches at 203 dpi."""


def welcome_page(rows: Iterable[tuple[str, str]]) -> bytes:
    """A page as PDF with a table of `rows`."""
    return _document("\n".join([*_header(), *_path(), *_table(rows), *_footer()]))


def _header() -> list[str]:
    return [
        _box(0, HEIGHT - 120, WIDTH, 120, _ACCENT),
        _box(0, HEIGHT - 124, WIDTH, 4, _INK),
        _text(_MARGIN, HEIGHT - 62, "Farhand", size=34, font="F2", colour=(1, 1, 1)),
        _text(_MARGIN, HEIGHT - 88, "It came out. That is what the printer says.", size=13, colour=_PALE),
    ]


def _path() -> list[str]:
    """The way of a job: three stations and the arrows between them."""
    top = HEIGHT - 218
    parts: list[str] = []
    for place, (name, what) in enumerate(
        [("Server", "writes it down"), ("Agent", "dials out"), ("Printer", "says what happened")]
    ):
        left = _MARGIN + place * 122
        parts += [
            _box(left, top, 104, 58, _PALE),
            _box(left, top + 55, 104, 3, _ACCENT),
            _text(left + 10, top + 33, name, size=13, font="F2"),
            _text(left + 10, top + 15, what, size=8.5, colour=_GREY),
        ]
        if place:
            parts.append(_arrow(left - 16, top + 29))
    return parts


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    y = HEIGHT - 262
    parts: list[str] = []
    for name, value in rows:
        parts += [
            _text(_MARGIN, y, name, size=10, font="F2"),
            _text(_MARGIN + 110, y, value, size=10, colour=_GREY),
            _box(_MARGIN, y - 9, WIDTH - 2 * _MARGIN, 0.6, _PALE),
        ]
        y -= 26
    return parts


def _footer() -> list[str]:
    shades = [(0.05 + 0.085 * step, 0.45 + 0.05 * step, 0.52 + 0.043 * step) for step in range(11)]
    width = (WIDTH - 2 * _MARGIN) / len(shades)
    parts = [_box(_MARGIN + place * width, 72, width, 20, shade) for place, shade in enumerate(shades)]
    return [
        *parts,
        _text(_MARGIN, 50, "Nothing accepted is lost. Nothing is silently done twice.", size=9, font="F2"),
        _text(_MARGIN, 37, "A state is what happened.", size=9, colour=_GREY),
    ]


def _box(x: float, y: float, width: float, height: float, colour: Colour) -> str:
    return f"{_paint(colour)} {x:.2f} {y:.2f} {width:.2f} {height:.2f} re f"


def _arrow(x: float, y: float) -> str:
    head = f"{x + 8} {y + 4} m {x + 14} {y} l {x + 8} {y - 4} l f"
    return f"{_paint(_ACCENT)} {x} {y - 0.8} 9 1.6 re f {head}"


def _text(x: float, y: float, text: str, *, size: float, font: str = "F1", colour: Colour = _INK) -> str:
    encoded = text.encode("cp1252", "replace").decode("latin-1")
    escaped = encoded.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"BT {_paint(colour)} /{font} {size} Tf {x:.2f} {y:.2f} Td ({escaped}) Tj ET"


def _paint(colour: Colour) -> str:
    return "{:.3f} {:.3f} {:.3f} rg".format(*colour)


def _document(drawing: str) -> bytes:
    """One page as a file: header, objects, their places, trailer."""
    content = drawing.encode("latin-1")
    font = "<</Type/Font/Subtype/Type1/BaseFont/{}/Encoding/WinAnsiEncoding>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {WIDTH} {HEIGHT}]/Contents 4 0 R"
        "/Resources<</Font<</F1 5 0 R/F2 6 0 R>>>>>>".encode(),
        b"<</Length %d>>\nstream\n%b\nendstream" % (len(content), content),
        font.format("Helvetica").encode(),
        font.format("Helvetica-Bold").encode(),
        b"<</Title(Farhand: it came out)/Producer(farhand demo)>>",
    ]
    file = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % place for place in places)
    file += b"trailer\n<</Size %d/Root 1 0 R/Info 7 0 R>>\n" % (len(objects) + 1)
    return bytes(file + b"startxref\n%d\n%%%%EOF\n" % start)
