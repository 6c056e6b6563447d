"""`POST /jobs` for printing: from a client's words to a job that can be written down."""

import binascii
import json
from functools import partial
from typing import Any

import msgspec

from farhand.engine.registry import Device
from farhand.model.errors import Problem
from farhand.model.ids import parse_id
from farhand.model.job import Submission
from farhand.protocol import PRINT_TYPES
from farhand.protocol.client import SubmitPrint
from farhand.protocol.wire import bad_field, encode
from farhand.protocol.wire import decode as decode_message
from farhand.server.desk import Desk, PayloadUrl, Prepared
from farhand.server.principal import Principal
from farhand.server.text import line_tags, moment_to_run, refuse_deep, refuse_nul

_capabilities = msgspec.json.Decoder(dict[str, Any])
_decoder = msgspec.json.Decoder(SubmitPrint)
_ROTATIONS = (0, 90, 180, 270)


async def decode(body: bytes, principal: Principal, desk: Desk) -> Prepared:
    """Decode and check a print request.

    Raises Problem naming the field for anything that does not fit, `unknown-printer`, and
    `cannot-print` when the printer is known not to take this kind of document.
    """
    message = decode_message(_decoder, body)
    refuse_nul(body, message)
    refuse_deep("metadata", message.metadata)
    refuse_deep("json", message.json)
    kind, mode = PRINT_TYPES[message.type]
    device = await _printer(message, principal, desk)
    _check_capability(device, mode)
    content = _content(message)
    now = desk.clock.now_ms()
    submission = Submission(
        org_id=principal.org_id,
        kind=kind,
        lane=device.id,
        agent_id=device.agent_id,
        device_id=device.id,
        mode=mode,
        title=message.title,
        source=message.source,
        tags=line_tags(message.tags),
        metadata=None if message.metadata is None else encode(message.metadata).decode(),
        params=_params(message),
        payload=content,
        priority=message.priority,
        run_at=moment_to_run(message.run_at, now),
        expires_in_ms=_expires_in_ms(message),
        submitted_by=principal.id,
        actor=principal.actor,
    )
    return Prepared(
        submission=submission,
        canonical=partial(_canonical, message, content),
        payload_url=_payload_url(message),
    )


def _canonical(message: SubmitPrint, content: bytes | None) -> bytes:
    """What two requests have in common that ask for the same: order and spelling do not matter."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    plain["content"] = None if content is None else content.hex()
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


async def _printer(message: SubmitPrint, principal: Principal, desk: Desk) -> Device:
    device_id = parse_id(message.printer_id)
    device = await desk.device(principal.org_id, device_id) if device_id is not None else None
    if device is None or device.kind != "printer":
        raise Problem(
            "unknown-printer",
            f"printer_id: there is no printer {message.printer_id!r}; GET /printers lists them",
            field="printer_id",
        )
    return device


def _check_capability(device: Device, mode: str) -> None:
    known = _capabilities.decode(device.capabilities).get(mode)
    if known is False:
        document = "a PDF" if mode == "pdf" else "raw data"
        raise Problem("cannot-print", f"type: printer {device.name!r} cannot take {document}", field="type")


def _content(message: SubmitPrint) -> bytes | None:
    if not message.type.endswith("_base64"):
        if message.content is not None:
            raise bad_field("content", f"type {message.type!r} takes its bytes from url; leave content out")
        return None
    if message.url is not None or message.json is not None:
        raise bad_field("url", f"type {message.type!r} takes its bytes from content; leave url and json out")
    if message.content is None:
        raise bad_field("content", f"is required with type {message.type!r}")
    try:
        content = _bytes_of(message.content.encode("ascii"))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise bad_field("content", f"is not valid base64 ({error})") from error
    if not content:
        raise bad_field("content", "is empty; there is nothing to print")
    return content


def _bytes_of(encoded: bytes) -> bytes:
    """Decode base64; many programs write it in lines."""
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except binascii.Error:
        return binascii.a2b_base64(b"".join(encoded.split()), strict_mode=True)


def _payload_url(message: SubmitPrint) -> PayloadUrl | None:
    if message.type.endswith("_base64"):
        return None
    if not message.url:
        raise bad_field("url", f"is required with type {message.type!r}")
    posts = message.type.endswith("_post")
    if posts and message.json is None:
        raise bad_field("json", f"is required with type {message.type!r}: it is the body POSTed to url")
    if not posts and message.json is not None:
        raise bad_field("json", f"goes with the *_uri_post types only, not with {message.type!r}")
    return PayloadUrl(url=message.url, json_body=message.json)


def _params(message: SubmitPrint) -> str | None:
    options = message.options
    if options is not None and options.rotate is not None and options.rotate not in _ROTATIONS:
        raise bad_field("options.rotate", "must be 0, 90, 180 or 270")
    given: dict[str, Any] = {}
    if message.copies != 1:
        given["copies"] = message.copies
    if options is not None:
        chosen = {k: v for k, v in msgspec.to_builtins(options).items() if v is not None}
        if chosen:
            given["options"] = chosen
    return encode(given).decode() if given else None


def _expires_in_ms(message: SubmitPrint) -> int | None:
    if message.expires_in is not None and message.expire_after is not None:
        raise bad_field("expire_after", "means the same as expires_in; send one of them")
    seconds = message.expires_in if message.expires_in is not None else message.expire_after
    return None if seconds is None else seconds * 1000
