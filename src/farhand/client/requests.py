"""How calls of the API are put together: paths, bodies, pages."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from farhand.client.plan import Call, Plan, ask, reads
from farhand.protocol.wire import Reply, encode

T = TypeVar("T")


class Page(Reply, Generic[T], frozen=True):
    """Some items of a list; `next` is the cursor of the rest, None at the end."""

    items: list[T]
    next: str | None = None


def path_of(*parts: str) -> str:
    """A path with its parts quoted."""
    return "/".join([parts[0], *(quote(part, safe="") for part in parts[1:])])


def get(path: str, kind: type[T]) -> Call[T]:
    """A read of one thing."""
    return Call(method="GET", path=path, parse=reads(kind), repeatable=True)


def post(
    path: str, kind: type[T], message: msgspec.Struct | None = None, *, repeatable: bool = False
) -> Call[T]:
    """A write whose body is a message."""
    body = None if message is None else encode(members(message))
    return Call(method="POST", path=path, parse=reads(kind), body=body, repeatable=repeatable)


def listing(path: str, kind: type[Page[T]], query: Mapping[str, str | None]) -> Call[Page[T]]:
    """A read of one page."""
    given = {name: value for name, value in query.items() if value is not None}
    return Call(method="GET", path=path, parse=reads(kind), query=given, repeatable=True)


def everything(path: str, kind: type[Page[T]], query: Mapping[str, str] | None = None) -> Plan[list[T]]:
    """The plan of reading a list to its end."""
    items: list[T] = []
    cursor: str | None = None
    while True:
        page = yield from ask(listing(path, kind, {**(query or {}), "cursor": cursor}))
        items += page.items
        if page.next is None or page.next == cursor:
            return items
        cursor = page.next


def members(message: Mapping[str, Any] | msgspec.Struct) -> Mapping[str, Any]:
    """A message without the members that say nothing."""
    if not isinstance(message, msgspec.Struct):
        return message
    fields = msgspec.structs.fields(message)
    said = {
        field.encode_name: getattr(message, field.name) for field in fields if not _is_default(message, field)
    }
    return {
        name: members(value) if isinstance(value, msgspec.Struct) else value for name, value in said.items()
    }


def _is_default(message: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    value = getattr(message, field.name)
    if field.default_factory is not msgspec.NODEFAULT:
        return value == field.default_factory()
    return field.default is not msgspec.NODEFAULT and value == field.default
