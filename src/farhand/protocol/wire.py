"""Encoding and decoding of bodies, with errors that name the field."""

import re
from typing import Any, Final, TypeVar

import msgspec

from farhand.model.errors import Problem

_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<field>.*)`")
_MISSING = re.compile(r"missing required field `(?P<field>.*)`")

T = TypeVar("T")
_encoder: Final = msgspec.json.Encoder()
encode = _encoder.encode


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what others send us: a field nobody knows is an error, not a silent loss."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what the server sends: readers ignore fields that they do not know."""


def decode(decoder: "msgspec.json.Decoder[T]", body: bytes | bytearray | memoryview) -> T:
    """Decode and validate one JSON body.

    Raises Problem `bad-json` when it is not JSON, `bad-field` naming the field otherwise.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise field_problem(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("bad-json", f"the body is not valid JSON: {error}") from error


def field_problem(text: str) -> Problem:
    """A validation message of the decoder as a problem that names the field."""
    match = _PATH.match(text)
    what = match.group("what") if match is not None else text
    path = (match.group("path") if match is not None else None) or "$"
    inner = _UNKNOWN.search(what) or _MISSING.search(what)
    field = path.removeprefix("$").removeprefix(".")
    if inner is not None:
        field = f"{field}.{inner.group('field')}" if field else inner.group("field")
    return bad_field(field or "(body)", what)


def bad_field(field: str, what: str) -> Problem:
    """A problem about one field."""
    return Problem("bad-field", f"{field}: {what[:1].lower()}{what[1:]}", field=field)


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as RFC 9457 application/problem+json."""
    kind = problem.kind
    return {
        "type": f"/problems/{problem.problem}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.message,
        "code": problem.problem,
        "retryable": kind.retryable,
        **problem.extra,
    }
