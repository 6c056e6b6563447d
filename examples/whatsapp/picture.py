"""A picture that looks like a QR code and carries a text, for the stand-in and its phone.

It is none: no phone but the stand-in's can read it, which is as well for an example.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterator

SIDE = 33
MARGIN = 4
SCALE = 6
EYE = 7
PREFIX = "data:image/png;base64,"
_TEXT_MAX = 96

Modules = list[list[bool]]


def draw(text: str) -> str:
    """The text as a `data:` URL of a PNG."""
    data = text.encode()
    if len(data) > _TEXT_MAX:
        raise ValueError(f"the picture has room for {_TEXT_MAX} bytes")
    content = bytes([len(data)]) + data
    # What is left looks like the rest.
    content += hashlib.shake_256(data).digest(SIDE * SIDE // 8 + 1 - len(content))
    modules = [[_eye(x, y) for x in range(SIDE)] for y in range(SIDE)]
    for place, (x, y) in enumerate(_free()):
        modules[y][x] = bool(content[place // 8] >> (7 - place % 8) & 1)
    return PREFIX + base64.b64encode(_png(modules)).decode()


def read(url: str) -> str:
    """The text in a picture. Raises ValueError when it is none of ours."""
    if not url.startswith(PREFIX):
        raise ValueError("that is no picture of a code")
    modules = _modules(base64.b64decode(url.removeprefix(PREFIX)))
    bits = [modules[y][x] for x, y in _free()]
    data = bytes(
        sum(bit << (7 - i) for i, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8)
    )
    return data[1 : 1 + data[0]].decode()


def _free() -> Iterator[tuple[int, int]]:
    for y in range(SIDE):
        for x in range(SIDE):
            if not _at_corner(x, y):
                yield x, y


def _at_corner(x: int, y: int) -> bool:
    near_x, near_y = x <= EYE, y <= EYE
    far_x, far_y = x >= SIDE - EYE - 1, y >= SIDE - EYE - 1
    return (near_x and near_y) or (far_x and near_y) or (near_x and far_y)


def _eye(x: int, y: int) -> bool:
    """The three squares in the corners."""
    if not _at_corner(x, y):
        return False
    x, y = min(x, SIDE - 1 - x), min(y, SIDE - 1 - y)
    ring = max(abs(x - EYE // 2), abs(y - EYE // 2))
    return ring in (0, 1, 3)


def _png(modules: Modules) -> bytes:
    side = (SIDE + 2 * MARGIN) * SCALE
    white = bytes([255]) * side
    rows = [white] * (MARGIN * SCALE)
    for row in modules:
        dots = b"".join(bytes([0 if dark else 255]) * SCALE for dark in row)
        rows += [white[: MARGIN * SCALE] + dots + white[: MARGIN * SCALE]] * SCALE
    rows += [white] * (MARGIN * SCALE)
    packed = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _modules(png: bytes) -> Modules:
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    rows = zlib.decompress(png[start + 4 : start + 4 + length])
    width = (SIDE + 2 * MARGIN) * SCALE + 1
    middle = SCALE // 2
    return [
        [
            rows[((MARGIN + y) * SCALE + middle) * width + 1 + (MARGIN + x) * SCALE + middle] == 0
            for x in range(SIDE)
        ]
        for y in range(SIDE)
    ]
