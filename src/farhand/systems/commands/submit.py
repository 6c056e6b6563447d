"""From an issuer's words to a command that can be written down."""

import json
from functools import partial
from typing import Any, Final, cast

import msgspec

from farhand.engine.registry import Agent
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.model.job import Submission
from farhand.model.policy import Policy, suggest
from farhand.protocol.commands import CommandRequest
from farhand.protocol.wire import bad_field, encode
from farhand.protocol.wire import decode as decode_message
from farhand.server.desk import Desk, Prepared
from farhand.server.principal import Principal
from farhand.server.text import refuse_deep, refuse_nul
from farhand.systems.commands.declare import Declared
from farhand.systems.commands.kind import FAMILY, PARAMS_BYTES_MAX, kind_of, type_of, window_max_ms

NAME: Final = "commands"
_decoder = msgspec.json.Decoder(CommandRequest)


async def decode(body: bytes, principal: Principal, desk: Desk) -> Prepared:
    """Decode and check a command that came by `POST /jobs`, its type written `command.<type>`.

    Raises what `prepare` raises.
    """
    message = read(body)
    return await prepare(message, type_of(message.type), principal, desk)


def read(body: bytes) -> CommandRequest:
    """The message of a body. Raises Problem naming the field that does not fit."""
    message = decode_message(_decoder, body)
    refuse_nul(body, message)
    refuse_deep("params", message.params)
    if message.idempotency_key is not None and not message.idempotency_key.isprintable():
        raise bad_field("idempotency_key", "has 1 to 255 printable characters")
    return message


async def prepare(message: CommandRequest, type_name: str, principal: Principal, desk: Desk) -> Prepared:
    """Check a request for a command of this type.

    Raises Problem `unsupported-type` with the declared types, `unknown-agent`,
    `payload-too-large` for the params, and `bad-field` with the path of what does not fit.
    """
    declared = _declared(type_name, desk)
    kind = kind_of(declared.type)
    policy = desk.policy(kind)
    agent = await _agent(message.agent, principal, desk)
    params = encode(message.params)
    if len(params) > PARAMS_BYTES_MAX:
        raise Problem(
            "payload-too-large",
            f"params: larger than the limit of {PARAMS_BYTES_MAX} bytes",
            limit_bytes=PARAMS_BYTES_MAX,
            field="params",
        )
    if declared.validator is not None:
        from farhand.systems.commands.schema import check_params

        check_params(declared.validator, message.params)
    active = policy.active_key
    submission = Submission(
        org_id=principal.org_id,
        kind=kind,
        lane=agent.id,
        agent_id=agent.id,
        params=params.decode(),
        expires_in_ms=_expires_in_ms(message, declared.type, policy),
        active_key=None if active is None else active.format(agent=id_text(agent.id), kind=kind),
        submitted_by=principal.id,
        actor=principal.actor,
    )
    return Prepared(
        submission=submission,
        canonical=partial(_canonical, message, submission),
        idempotency_key=message.idempotency_key,
    )


def _canonical(message: CommandRequest, submission: Submission) -> bytes:
    """What two requests have in common that ask for the same: an agent's name and id are one."""
    plain: dict[str, Any] = {
        "type": submission.kind.removeprefix(FAMILY),
        "agent": submission.lane.hex(),
        "params": message.params,
        "expires_in": message.expires_in,
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def declared_types(desk: Desk) -> dict[str, Declared]:
    """The types in force, by kind."""
    return cast("dict[str, Declared]", desk.declared.get(NAME, {}))


def _declared(type_name: str, desk: Desk) -> Declared:
    known = declared_types(desk)
    found = known.get(kind_of(type_name))
    if found is not None:
        return found
    names = [entry.type for entry in known.values()]
    hint = f"declared are {', '.join(names)}" if names else 'declare one in farhand.toml: [commands."TYPE"]'
    near = suggest(type_name, names)
    raise Problem(
        "unsupported-type",
        f"type: {type_name!r} is not declared{near}; {hint}",
        field="type",
        known=names,
    )


async def _agent(text: str, principal: Principal, desk: Desk) -> Agent:
    agent = await desk.find_agent(principal.org_id, text)
    if agent is None or agent.state in ("pending", "revoked"):
        why = "there is no agent" if agent is None else f"{agent.state} and given no work: agent"
        raise Problem(
            "unknown-agent",
            f"agent: {why} {text!r}; GET /agents lists them",
            field="agent",
        )
    return agent


def _expires_in_ms(message: CommandRequest, type_name: str, policy: Policy) -> int | None:
    if message.expires_in is None:
        return None
    limit = window_max_ms(policy)
    if message.expires_in * 1000 > limit:
        raise bad_field(
            "expires_in", f"must be from 1 to {limit // 1000} seconds for commands of type {type_name!r}"
        )
    return message.expires_in * 1000
