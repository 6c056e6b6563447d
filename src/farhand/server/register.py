"""`POST /agent/register`: an agent presents itself."""

import ipaddress
import json
from typing import Final

import msgspec

from farhand.engine.enrolment import DeviceSpec, Pending, Registration
from farhand.engine.registry import DEFAULT_ORG
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.protocol import PROTOCOL_HEADER
from farhand.protocol.agent import PrinterInfo, RegisterReply, RegisterRequest
from farhand.protocol.signing import AGENT_HEADER, NEW_AGENT, parse_key
from farhand.protocol.wire import bad_field, decode
from farhand.server import signature
from farhand.server.auth import bearer, digest
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.text import refuse_deep, refuse_nul

BODY_MAX: Final = 4 * 1024 * 1024
FORWARDING: Final = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
_register = msgspec.json.Decoder(RegisterRequest)


def _loopback(address: str | None) -> bool:
    if address is None:
        return False
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def may_enrol_freely(context: Context, call: Call) -> bool:
    """Whether an unknown agent comes in without approval: only where nobody else can be calling."""
    config = context.config
    if not config.open_enrolment or config.public_url is not None or not _loopback(call.address):
        return False
    return all(call.header(name) is None for name in FORWARDING)


def _spec(printer: PrinterInfo) -> DeviceSpec:
    capabilities = dict(printer.capabilities or {})
    capabilities.setdefault("pdf", printer.can_pdf)
    return DeviceSpec(
        name=printer.name,
        kind="printer",
        capabilities=json.dumps(capabilities, sort_keys=True),
        state=printer.state,
        reason=printer.reason,
    )


def _check_printers(message: RegisterRequest) -> None:
    for index, printer in enumerate(message.printers):
        refuse_deep(f"printers[{index}].capabilities", printer.capabilities)
    names = [printer.name for printer in message.printers]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise bad_field(
                f"printers[{index}].name", f"{name!r} stands twice; printer names are unique per agent"
            )


def _presented(message: RegisterRequest, signed: signature.Signed | None) -> bytes | None:
    """The signing key that an agent presents, proven to be its own; None without one.

    Raises Problem `bad-signature` for a key without its signature and the other way round.
    """
    if signed is None and message.public_key is None:
        return None
    if signed is None:
        raise signature.bad("public_key: sign the registration with the key that it presents")
    if message.public_key is None or signed.agent != NEW_AGENT:
        raise signature.bad(
            f"a signed registration carries the public_key, and {NEW_AGENT!r} as {AGENT_HEADER}"
        )
    public_key = parse_key(message.public_key)
    if public_key is None:
        raise bad_field("public_key", "must be a raw Ed25519 public key in base64, 44 characters")
    signature.check(signed, public_key)
    return public_key


async def register(context: Context, call: Call) -> None:
    """Register an agent and its printers; an unknown one may have to wait for approval."""
    key = bearer(call)
    signed = signature.read(call) if call.header(signature.HEADER) is not None else None
    if signed is not None:
        signature.check_time(signed, context.clock.now_ms(), context.config.signature_skew_ms)
        call.body_digest = signed.body_digest
    body = await call.body(BODY_MAX)
    message = decode(_register, body)
    refuse_nul(body, message)
    public_key = _presented(message, signed)
    _check_printers(message)
    request = Registration(
        org_id=DEFAULT_ORG,
        key_digest=digest(key),
        name=message.name,
        dialect="native" if call.header(PROTOCOL_HEADER.lower().encode()) is not None else "print",
        version=message.version,
        runtime=message.runtime,
        address=call.address,
        capabilities=tuple(message.capabilities) if message.capabilities is not None else None,
        devices=tuple(_spec(printer) for printer in message.printers),
        open_enrolment=may_enrol_freely(context, call),
        public_key=public_key,
        nonce=signed.nonce if signed is not None else None,
    )
    answer = await context.store.registry.register(request)
    if isinstance(answer, Problem):
        raise answer
    if isinstance(answer, Pending):
        raise Problem(
            "agent-pending",
            "the agent waits for approval: have the owner type the code that this device shows",
            user_code=answer.user_code,
            expires_in=answer.expires_in_ms // 1000,
        )
    agent = answer.agent
    context.saw(agent.id)
    reply = RegisterReply(
        computer_id=id_text(agent.id),
        printer_ids=[id_text(device.id) for device in answer.devices],
        name=agent.name,
        state=agent.state,
        wait_ms=context.config.poll_wait_ms,
    )
    await call.json(reply)
