"""What databases and readers of JSON refuse, found before it reaches one; fields that jobs share."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from farhand.model.clock import from_rfc3339
from farhand.protocol.wire import bad_field

AHEAD_MAX_MS: Final = 366 * 24 * 3_600_000


def refuse_nul(body: bytes, message: object) -> None:
    """Raise Problem naming the field when a text in a decoded body contains NUL."""
    if b"\\u0000" not in body:
        return
    path = _find(msgspec.to_builtins(message), "")
    if path is not None:
        raise bad_field(path or "(body)", "must not contain NUL characters")


DEPTH_MAX = 64


def refuse_deep(field: str, value: Any) -> None:
    """Raise Problem naming the field when a free value is nested deeper than JSON readers like."""
    if not isinstance(value, dict | list):
        return
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [inner for entry in level if isinstance(entry, dict | list) for inner in _inside(entry)]
        if not level:
            return
    raise bad_field(field, f"is nested deeper than {DEPTH_MAX} levels")


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType]  (decoded JSON)


def _find(value: Any, path: str) -> str | None:
    if isinstance(value, str):
        return path if "\0" in value else None
    if isinstance(value, dict):
        for key, entry in cast("dict[str, Any]", value).items():
            inner = f"{path}.{key}" if path else str(key)
            found = path if "\0" in str(key) else _find(entry, inner)
            if found is not None:
                return found
    if isinstance(value, list | tuple):
        for index, entry in enumerate(cast("list[Any]", value)):
            found = _find(entry, f"{path}[{index}]")
            if found is not None:
                return found
    return None


def line_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags of a job. Raises Problem naming the one that is not a single line."""
    for index, tag in enumerate(tags):
        if "\n" in tag or "\r" in tag:
            raise bad_field(f"tags[{index}]", "must be one line")
    return tuple(tags)


def moment_to_run(text: str | None, now: int) -> int | None:
    """The `run_at` of a job in ms UTC; None for now, or for what has passed.

    Raises Problem for what is no RFC 3339 time, or lies more than a year ahead.
    """
    if text is None:
        return None
    try:
        moment = from_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise bad_field("run_at", "must be an RFC 3339 time such as 2026-12-24T18:00:00Z") from error
    if moment > now + AHEAD_MAX_MS:
        raise bad_field("run_at", "must lie within a year from now")
    return moment if moment > now else None
