"""What agents report of a fetch: checked before it is kept, and shown as the bytes that came."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from farhand.engine.requests import Act
from farhand.model.errors import Problem
from farhand.model.job import Job
from farhand.protocol.fetch import SIZE_MAX, SOURCES, FetchError, FetchResult
from farhand.protocol.wire import bad_field, field_problem
from farhand.server.context import Context
from farhand.server.hooks import Checked, Shown
from farhand.systems.fetch.kind import params_of

UNKNOWN_TYPE: Final = "application/octet-stream"
TEXT_ROOM: Final = 1024
_TYPE: Final = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(\s*;[\x20-\x7e]{0,200})?", re.ASCII)
_SOURCE_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("dns",), "resolver"),
    **dict.fromkeys(
        (
            "certificate",
            "connect",
            "content-coding",
            "decompression-limit",
            "protocol",
            "timeout",
            "tls",
            "too-large",
            "too-many-redirects",
        ),
        "target",
    ),
    **dict.fromkeys(
        (
            "bad-method",
            "bad-range",
            "bad-url",
            "blocked-address",
            "blocked-name",
            "blocked-port",
            "refused-header",
            "refused-redirect",
        ),
        "policy",
    ),
}
_NUMBERS: Final = ("status", "cropOriginalSize", "elapsedMs", "bytesWritten")
_KNOWN: Final = frozenset(field.encode_name for field in msgspec.structs.fields(FetchResult))
T = TypeVar("T")


class FetchResults:
    """The results of fetch jobs, as the server's own routes ask about them."""

    def body_limit(self, job: Job) -> int:
        """What the request allows the target to send."""
        return params_of(job).max_response_bytes

    async def check(self, context: Context, act: Act, result: Any, *, ok: bool) -> Checked:
        """A native agent's result. Raises Problem naming the field that does not fit."""
        if not ok:
            error = None if result is None else _converted(result, FetchError)
            return Checked(result=error, bytes_out=0)
        found = _converted(result, FetchResult)
        if found.body_sha256 is None:
            size = len(body_of(found))
            return Checked(result=msgspec.structs.replace(found, bytes_written=size), bytes_out=size)
        if found.body is not None:
            raise bad_field("result.body", "is null where bodySha256 names the body that was put apart")
        size = await _put_apart(context, act, bytes.fromhex(found.body_sha256))
        return Checked(result=msgspec.structs.replace(found, bytes_written=size), bytes_out=size)

    async def show(self, context: Context, job: Job) -> Shown:
        """The bytes that the target sent, with its content type."""
        if job.result is None:
            raise Problem("payload-gone", "the agent reported no result of this fetch")
        found = msgspec.json.decode(job.result, type=FetchResult)
        content_type = _content_type(found)
        if found.body_sha256 is None:
            return Shown(content_type=content_type, body=body_of(found))
        sha256 = bytes.fromhex(found.body_sha256)
        return Shown(content_type=content_type, sha256=sha256, size=found.bytes_written or 0)


async def _put_apart(context: Context, act: Act, sha256: bytes) -> int:
    """The size of a body that was put apart for this job."""
    job = await context.store.job(act.org_id, act.job_id)
    kept = await context.store.result_body(job.seq, sha256) if job is not None else None
    if kept is None:
        raise bad_field("result.bodySha256", "names no body that was put apart; put it first")
    return kept


def body_of(result: FetchResult) -> bytes:
    """The bytes of a body that is in the result itself. Raises Problem for what is no base64."""
    if result.body is None:
        return b""
    if not result.body_base64:
        return result.body.encode("utf-8", "replace")
    try:
        return binascii.a2b_base64(result.body.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise bad_field("result.body", f"is not valid base64 ({error}), as bodyBase64 says it is") from error


def with_body(result: FetchResult, body: bytes) -> FetchResult:
    """The result with these bytes in it, as text where they are text that a database takes."""
    text = None if result.body_base64 or b"\0" in body else body.decode("utf-8", "replace")
    encoded = text is None
    shown = base64.b64encode(body).decode("ascii") if text is None else text
    return msgspec.structs.replace(result, body=shown, body_base64=encoded, bytes_written=len(body))


def apart(result: FetchResult, sha256: bytes, size: int) -> FetchResult:
    """The result without its body, which is kept under this SHA-256."""
    return msgspec.structs.replace(
        result, body=None, body_base64=False, body_sha256=sha256.hex(), bytes_written=size
    )


def _converted(value: Any, kind: type[T]) -> T:
    if value is None:
        raise bad_field("result", "is required")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = field_problem(str(error))
        field = f"result.{problem.extra['field']}".removesuffix(".(body)")
        raise bad_field(field, problem.message.partition(": ")[2]) from error


def of_device(value: Mapping[str, Any]) -> FetchResult:
    """A result in the words of the seed.

    What else a device says is left out, and numbers are made whole. Raises Problem naming the
    field that does not fit.
    """
    plain = {name: _without_nul(entry) for name, entry in value.items() if name in _KNOWN}
    plain["body"] = value.get("body")
    plain.pop("bodySha256", None)
    for name in _NUMBERS:
        if isinstance(plain.get(name), float):
            plain[name] = _whole(plain[name])
    if isinstance(plain.get("timings"), dict):
        plain["timings"] = {
            name: _whole(entry) if isinstance(entry, float) else entry
            for name, entry in plain["timings"].items()
        }
    for name in ("statusText", "headers", "bodyBase64", "cropped", "elapsedMs", "redirects"):
        if plain.get(name, ...) is None:
            del plain[name]
    return _converted(plain, FetchResult)


def _whole(number: float) -> int:
    return round(number) if -1 < number < SIZE_MAX else -1


def _without_nul(value: Any) -> Any:
    """A value whose texts a database takes."""
    if isinstance(value, str):
        return value.replace("\0", "�")
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {_without_nul(name): _without_nul(entry) for name, entry in entries.items()}
    if isinstance(value, list):
        return [_without_nul(entry) for entry in cast("list[Any]", value)]
    return value


def of_device_error(code: str, message: str, source: str | None) -> FetchError:
    """A failure in the words of the seed, with whose doing it was where that follows from the code."""
    found = source if source in SOURCES else _SOURCE_OF.get(code, "agent")
    return FetchError(code=_clean(code, 100) or "unknown", message=_clean(message, 4000), source=found)


def too_large(limit: int) -> FetchError:
    """The failure of a fetch whose device sent more than was allowed."""
    message = f"the body is larger than the {limit} bytes that the request allows"
    return FetchError(code="result-too-large", message=message, source="agent")


def _clean(text: str, most: int) -> str:
    plain = text.replace("\0", "�")
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _content_type(result: FetchResult) -> str:
    for name, value in result.headers.items():
        if name.lower() == "content-type" and _TYPE.fullmatch(value.strip()):
            return value.strip()
    return UNKNOWN_TYPE
