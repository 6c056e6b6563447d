"""From a client's words to a farm job that can be written down."""

import json
from functools import partial
from typing import Any, Final

import msgspec

from farhand.engine.farms import DEVICE_KIND, Farm
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import Submission
from farhand.protocol.farm import SubmitFarmPrint
from farhand.protocol.wire import decode as decode_message
from farhand.protocol.wire import encode
from farhand.server.desk import Desk, Prepared
from farhand.server.principal import Principal
from farhand.server.text import line_tags, moment_to_run, refuse_deep, refuse_nul
from farhand.systems.farm.fit import fit_text
from farhand.systems.farm.upload import upload_of

KIND: Final = "farm.print"
_decoder = msgspec.json.Decoder(SubmitFarmPrint)


async def decode(body: bytes, principal: Principal, desk: Desk) -> Prepared:
    """Decode and check a print for a farm.

    Raises Problem `unknown-farm`, `unknown-printer`, `payload-too-large` for a size over the
    limit, and `bad-field` with the path of what does not fit.
    """
    message = decode_message(_decoder, body)
    refuse_nul(body, message)
    refuse_deep("metadata", message.metadata)
    farm = await desk.farm(principal.org_id, message.farm)
    if farm is None:
        raise unknown_farm(message.farm)
    printer_id = await _printer(message, farm, principal, desk)
    limit = desk.policy(KIND).payload_bytes_max
    if message.size is not None and message.size > limit:
        raise Problem(
            "payload-too-large", f"size: the limit is {limit} bytes", limit_bytes=limit, field="size"
        )
    submission = Submission(
        org_id=principal.org_id,
        kind=KIND,
        lane=farm.id,
        mode=fit_text(message.requirements, printer_id),
        title=message.title or message.filename,
        source=message.source,
        tags=line_tags(message.tags),
        metadata=None if message.metadata is None else encode(message.metadata).decode(),
        params=_params(message, farm),
        priority=message.priority,
        run_at=moment_to_run(message.run_at, desk.clock.now_ms()),
        expires_in_ms=None if message.expires_in is None else message.expires_in * 1000,
        submitted_by=principal.id,
        actor=principal.actor,
    )
    return Prepared(submission=submission, canonical=partial(_canonical, message, submission), more=upload_of)


def unknown_farm(text: str) -> Problem:
    """The answer for a farm that is not there."""
    return Problem(
        "unknown-farm", f"farm: there is no farm {text[:200]!r}; GET /farms lists them", field="farm"
    )


async def _printer(message: SubmitFarmPrint, farm: Farm, principal: Principal, desk: Desk) -> bytes | None:
    if message.printer is None:
        return None
    device_id = parse_id(message.printer)
    device = await desk.device(principal.org_id, device_id) if device_id is not None else None
    if device is None or device.kind != DEVICE_KIND:
        raise Problem(
            "unknown-printer",
            f"printer: farm {farm.name} has no printer {message.printer!r}; see GET /farms/{{id}}/status",
            field="printer",
        )
    return device.id


def _params(message: SubmitFarmPrint, farm: Farm) -> str:
    given: dict[str, Any] = {"farm": farm.name, "filename": message.filename}
    if message.size is not None:
        given["size"] = message.size
    if message.sha256 is not None:
        given["sha256"] = message.sha256
    if message.copies != 1:
        given["copies"] = message.copies
    needs = msgspec.to_builtins(message.requirements)
    if needs:
        given["requirements"] = needs
    if message.printer is not None:
        given["printer"] = message.printer
    return encode(given).decode()


def _canonical(message: SubmitFarmPrint, submission: Submission) -> bytes:
    """What two requests have in common that ask for the same: a farm's name and id are one."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    plain["farm"] = id_text(submission.lane)
    plain["requirements"] = submission.mode
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
