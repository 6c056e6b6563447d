"""What an IPP message consists of.

Value tags of RFC 8010 section 3.5.2, delimiter tags of section 3.5.1. Values are always lists
(1setOf), each with its own tag, because one attribute may mix them (media: keyword and name).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum


class WireError(Exception):
    """The bytes are no whole IPP message, or a value does not fit its tag."""


class Tag(IntEnum):
    """Value tags."""

    UNSUPPORTED = 0x10
    DEFAULT = 0x11
    UNKNOWN = 0x12
    NO_VALUE = 0x13
    NOT_SETTABLE = 0x15
    DELETE = 0x16
    ADMIN_DEFINE = 0x17
    INTEGER = 0x21
    BOOLEAN = 0x22
    ENUM = 0x23
    OCTETS = 0x30
    DATE_TIME = 0x31
    RESOLUTION = 0x32
    RANGE = 0x33
    COLLECTION = 0x34
    TEXT_LANG = 0x35
    NAME_LANG = 0x36
    END_COLLECTION = 0x37
    TEXT = 0x41
    NAME = 0x42
    KEYWORD = 0x44
    URI = 0x45
    URI_SCHEME = 0x46
    CHARSET = 0x47
    LANGUAGE = 0x48
    MIME = 0x49
    MEMBER_NAME = 0x4A


class GroupTag(IntEnum):
    """Delimiter tags that begin a group; others from a newer standard are kept as numbers."""

    OPERATION = 0x01
    JOB = 0x02
    END = 0x03
    PRINTER = 0x04
    UNSUPPORTED = 0x05


@dataclass(frozen=True, slots=True)
class Resolution:
    """Dots per inch (units 3) or per centimetre (units 4)."""

    cross: int
    feed: int
    units: int


@dataclass(frozen=True, slots=True)
class Range:
    """Both ends belong to it."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class Localized:
    """Text or a name with its natural language."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Collection:
    """Named members, in order."""

    members: tuple["Attribute", ...]

    def first(self, name: str) -> "Content":
        """First value of a member, or None."""
        return _first(self.members, name)


# dateTime stays as its 11 octets: printers without a clock send impossible dates.
Content = int | bool | str | bytes | Resolution | Range | Localized | Collection | None


@dataclass(frozen=True, slots=True)
class Value:
    """One value with its tag, which may be a number no standard we know names."""

    tag: int
    content: Content


@dataclass(frozen=True, slots=True)
class Attribute:
    """A name and its values; at least one."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The attributes under one delimiter tag; tags may repeat (Get-Jobs)."""

    tag: int
    attributes: tuple[Attribute, ...]

    def all(self, name: str) -> list[Content]:
        """Every value of an attribute, language and out-of-band values taken off."""
        return list(_contents(self.attributes, name))

    def first(self, name: str) -> Content:
        """First value of an attribute, or None."""
        return _first(self.attributes, name)

    def words(self, name: str) -> list[str]:
        """The values that are text."""
        return [value for value in self.all(name) if isinstance(value, str)]

    def number(self, name: str) -> int | None:
        """First value when it is a number."""
        value = self.first(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or a reply; `code` is the operation or the status."""

    code: int
    request_id: int
    groups: tuple[Group, ...]
    version: tuple[int, int] = (2, 0)

    def group(self, tag: int) -> Group:
        """The first group with this tag, empty when there is none."""
        return next((group for group in self.groups if group.tag == tag), Group(tag, ()))

    def each(self, tag: int) -> Iterator[Group]:
        """Every group with this tag."""
        return (group for group in self.groups if group.tag == tag)


def attribute(name: str, tag: int, *contents: Content) -> Attribute:
    """An attribute whose values share one tag."""
    return Attribute(name, tuple(Value(tag, content) for content in contents))


def _contents(attributes: Iterable[Attribute], name: str) -> Iterator[Content]:
    for item in attributes:
        if item.name != name:
            continue
        for value in item.values:
            if value.content is None:
                continue
            yield value.content.text if isinstance(value.content, Localized) else value.content


def _first(attributes: Iterable[Attribute], name: str) -> Content:
    return next(_contents(attributes, name), None)
