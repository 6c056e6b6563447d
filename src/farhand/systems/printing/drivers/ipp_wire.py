"""IPP messages as bytes: encoder and decoder.

Syntax of RFC 8010 section 3. The document that follows a message is no part of it, so that it
can be streamed.
"""

import struct
from collections.abc import Iterator

from farhand.systems.printing.drivers.ipp_values import (
    Attribute,
    Collection,
    Content,
    Group,
    GroupTag,
    Localized,
    Message,
    Range,
    Resolution,
    Tag,
    Value,
    WireError,
)

DEPTH_MAX = 16
_LENGTH_MAX = 0x7FFF
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_SIZES: dict[int, int] = {
    Tag.INTEGER: 4,
    Tag.ENUM: 4,
    Tag.BOOLEAN: 1,
    Tag.RANGE: 8,
    Tag.RESOLUTION: 9,
}


def encode(message: Message) -> bytes:
    """The message, ready to be followed by a document; WireError when a value does not fit."""
    parts = [struct.pack(">BBHi", *message.version, message.code, message.request_id)]
    for group in message.groups:
        parts.append(bytes([group.tag]))
        for item in group.attributes:
            parts.extend(_encode_attribute(item))
    parts.append(bytes([GroupTag.END]))
    return b"".join(parts)


def decode(data: bytes) -> Message:
    """The message at the start of `data`; WireError when it is cut off or no IPP."""
    return decode_prefix(data)[0]


def decode_prefix(data: bytes) -> tuple[Message, int]:
    """The message and the offset of what follows it (a request's document)."""
    reader = _Reader(data)
    major, minor, code, request_id = struct.unpack(">BBHi", reader.take(8))
    if not 1 <= major <= 9:
        raise WireError(f"no IPP message: it claims version {major}.{minor}")
    groups: list[Group] = []
    tag = reader.byte()
    while tag != GroupTag.END:
        if tag > 0x0F:
            raise WireError(f"an attribute stands outside a group (tag {tag:#04x})")
        attributes, following = _read_group(reader)
        groups.append(Group(tag, attributes))
        tag = following
    message = Message(code=code, request_id=request_id, groups=tuple(groups), version=(major, minor))
    return message, reader.offset


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.offset = data, 0

    def take(self, count: int) -> bytes:
        end = self.offset + count
        if end > len(self.data):
            raise WireError(f"the IPP message is cut off after {len(self.data)} bytes")
        chunk = self.data[self.offset : end]
        self.offset = end
        return chunk

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def item(self) -> tuple[str, bytes]:
        name = _text(self.take(self.short()))
        return name, self.take(self.short())


def _text(raw: bytes) -> str:
    # Printers do send Latin-1 under a UTF-8 charset; a broken name must not hide a job.
    return raw.decode(errors="replace")


def _encode_attribute(item: Attribute) -> Iterator[bytes]:
    if not item.values:
        raise WireError(f"{item.name} has no value")
    if not item.name:
        raise WireError("an attribute has no name")
    name = item.name
    for value in item.values:
        yield from _encode_item(value, name, 0)
        name = ""


def _encode_item(value: Value, name: str, depth: int) -> Iterator[bytes]:
    if not isinstance(value.content, Collection):
        yield _pack(value.tag, name, _encode_content(value, name))
        return
    if value.tag != Tag.COLLECTION:
        raise WireError(f"{name}: a collection under tag {value.tag:#04x}")
    if depth >= DEPTH_MAX:
        raise WireError(f"collections nest deeper than {DEPTH_MAX}")
    yield _pack(Tag.COLLECTION, name, b"")
    for member in value.content.members:
        if not member.values:
            raise WireError(f"{member.name} has no value")
        yield _pack(Tag.MEMBER_NAME, "", member.name.encode())
        for inner in member.values:
            yield from _encode_item(inner, "", depth + 1)
    yield _pack(Tag.END_COLLECTION, "", b"")


def _pack(tag: int, name: str, body: bytes) -> bytes:
    raw = name.encode()
    if len(raw) > _LENGTH_MAX or len(body) > _LENGTH_MAX:
        raise WireError(f"{name[:40]}: longer than {_LENGTH_MAX} bytes")
    if not 0x10 <= tag <= 0xFF:
        raise WireError(f"{name}: {tag:#04x} is no value tag")
    return b"".join((bytes([tag]), len(raw).to_bytes(2, "big"), raw, len(body).to_bytes(2, "big"), body))


def _encode_content(value: Value, name: str) -> bytes:
    tag, content = value.tag, value.content
    match content:
        case None if 0x10 <= tag <= 0x1F:
            return b""
        case str() if 0x40 <= tag <= 0x5F and tag != Tag.MEMBER_NAME:
            return content.encode()
        case bytes() if tag == Tag.DATE_TIME and len(content) != 11:
            raise WireError(f"{name}: a dateTime has 11 octets")
        case bytes() if _is_opaque(tag):
            return content
        case Localized() if tag in (Tag.TEXT_LANG, Tag.NAME_LANG):
            return _encode_localized(content, name)
        case _:
            return _encode_number(value, name)


def _encode_number(value: Value, name: str) -> bytes:
    tag, content = value.tag, value.content
    match content:
        case bool() if tag == Tag.BOOLEAN:
            return bytes([content])
        case int() if tag in (Tag.INTEGER, Tag.ENUM) and not isinstance(content, bool):
            return _integer(content, name)
        case Range() if tag == Tag.RANGE:
            return _integer(content.lower, name) + _integer(content.upper, name)
        case Resolution() if tag == Tag.RESOLUTION and -128 <= content.units <= 127:
            ends = _integer(content.cross, name) + _integer(content.feed, name)
            return ends + struct.pack(">b", content.units)
        case _:
            raise WireError(f"{name}: {type(content).__name__} does not fit tag {tag:#04x}")


def _encode_localized(content: Localized, name: str) -> bytes:
    language, text = content.language.encode(), content.text.encode()
    if len(language) + len(text) + 4 > _LENGTH_MAX:
        raise WireError(f"{name[:40]}: longer than {_LENGTH_MAX} bytes")
    return b"".join(len(raw).to_bytes(2, "big") + raw for raw in (language, text))


def _is_opaque(tag: int) -> bool:
    if tag in (Tag.OCTETS, Tag.DATE_TIME):
        return True
    return tag not in frozenset(Tag) and not 0x10 <= tag <= 0x1F and not 0x40 <= tag <= 0x5F


def _integer(number: int, name: str) -> bytes:
    if not _INT_MIN <= number <= _INT_MAX:
        raise WireError(f"{name}: {number} does not fit 32 bits")
    return struct.pack(">i", number)


def _read_group(reader: _Reader) -> tuple[tuple[Attribute, ...], int]:
    names: list[str] = []
    values: list[list[Value]] = []
    while True:
        tag = reader.byte()
        if tag <= 0x0F:
            break
        name, body = reader.item()
        value = _read_value(reader, tag, body, 0)
        if name:
            names.append(name)
            values.append([value])
        elif values:
            values[-1].append(value)
        else:
            raise WireError("a further value comes before any attribute")
    return tuple(Attribute(name, tuple(v)) for name, v in zip(names, values, strict=True)), tag


def _read_value(reader: _Reader, tag: int, body: bytes, depth: int) -> Value:
    if tag in (Tag.END_COLLECTION, Tag.MEMBER_NAME):
        raise WireError(f"tag {tag:#04x} stands outside a collection")
    if tag == Tag.COLLECTION:
        return Value(tag, _read_collection(reader, depth))
    return Value(tag, _decode_content(tag, body))


def _read_collection(reader: _Reader, depth: int) -> Collection:
    if depth >= DEPTH_MAX:
        raise WireError(f"collections nest deeper than {DEPTH_MAX}")
    names: list[str] = []
    values: list[list[Value]] = []
    while (tag := reader.byte()) != Tag.END_COLLECTION:
        if tag <= 0x0F:
            raise WireError("a collection has no end")
        _, body = reader.item()
        if tag == Tag.MEMBER_NAME:
            names.append(_text(body))
            values.append([])
            continue
        if not values:
            raise WireError("a collection value comes before any member name")
        values[-1].append(_read_value(reader, tag, body, depth + 1))
    reader.item()
    if not all(values):
        raise WireError("a collection member has no value")
    return Collection(tuple(Attribute(name, tuple(v)) for name, v in zip(names, values, strict=True)))


def _decode_content(tag: int, body: bytes) -> Content:
    if 0x10 <= tag <= 0x1F:
        return None
    wanted = _SIZES.get(tag)
    if wanted is not None and len(body) != wanted:
        raise WireError(f"a value of tag {tag:#04x} has {len(body)} bytes instead of {wanted}")
    match tag:
        case Tag.INTEGER | Tag.ENUM:
            return int.from_bytes(body, "big", signed=True)
        case Tag.BOOLEAN:
            return body != b"\x00"
        case Tag.RANGE:
            return Range(*struct.unpack(">ii", body))
        case Tag.RESOLUTION:
            return Resolution(*struct.unpack(">iib", body))
        case Tag.TEXT_LANG | Tag.NAME_LANG:
            return _decode_localized(body)
        case _ if 0x40 <= tag <= 0x5F:
            return _text(body)
        case _:
            return body


def _decode_localized(body: bytes) -> Localized:
    inner = _Reader(body)
    language, text = inner.item()
    if inner.offset != len(body):
        raise WireError("a text with language has bytes left over")
    return Localized(language, _text(text))
