"""The owners' routes: printers, agents, keys, the audit log."""

import base64
import secrets
from typing import Final

import msgspec

from farhand.engine.registry import AGENT_GRANTS, CLIENT_GRANTS, Agent, ApiKey, Device
from farhand.model.clock import to_rfc3339
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import Actor
from farhand.model.policy import suggest
from farhand.protocol.client import (
    ApproveRequest,
    AuditView,
    GrantsRequest,
    IssueReply,
    IssueRequest,
    KeyReply,
    KeyRequest,
    KeyView,
    SigningRequest,
)
from farhand.protocol.signing import parse_key
from farhand.protocol.wire import bad_field, decode
from farhand.server.auth import digest
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.job_routes import decode_cursor, encode_cursor, page_limit
from farhand.server.text import refuse_nul
from farhand.server.views import actor_text, agent_view, moment, pending_view, printer_view

BODY_MAX: Final = 64 * 1024
_issue = msgspec.json.Decoder(IssueRequest)
_approve = msgspec.json.Decoder(ApproveRequest)
_grants = msgspec.json.Decoder(GrantsRequest)
_key = msgspec.json.Decoder(KeyRequest)
_signing = msgspec.json.Decoder(SigningRequest)


def new_key(prefix: str) -> str:
    """A fresh credential of 256 random bits; the prefix tells people what it is."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def _cursor(row: Agent | Device) -> str:
    """Names are not unique across agents, so that the id says where among equals the page ended."""
    return base64.urlsafe_b64encode(row.id + row.name.encode()).decode("ascii").rstrip("=")


def _after(query: dict[str, str]) -> tuple[str, bytes] | None:
    text = query.get("cursor")
    if text is None:
        return None
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        name = plain[16:].decode()
        if not name or "\0" in name:
            raise ValueError("not a name")
    except ValueError as error:
        raise Problem("bad-cursor", "cursor: take it unchanged from the `next` of a list") from error
    return name, plain[:16]


async def printers(context: Context, call: Call) -> None:
    """`GET /printers`: printers by name, without the gone ones unless `gone=true`."""
    query = call.query(frozenset({"limit", "cursor", "gone"}))
    limit = page_limit(query)
    with_gone = query.get("gone", "false")
    if with_gone not in ("true", "false"):
        raise Problem("bad-field", "gone: must be true or false", field="gone")
    rows = await context.store.registry.devices(
        call.principal.org_id, _after(query), limit + 1, with_gone=with_gone == "true"
    )
    now = context.clock.now_ms()
    items = [printer_view(*row, now, context.seen) for row in rows[:limit]]
    following = _cursor(rows[limit - 1][0]) if len(rows) > limit else None
    await call.json({"items": items, "next": following})


async def printer(context: Context, call: Call) -> None:
    """`GET /printers/{id}`: one printer."""
    device_id = parse_id(call.params[0])
    registry = context.store.registry
    device = await registry.device(call.principal.org_id, device_id) if device_id is not None else None
    if device is None:
        raise Problem("not-found", "there is no printer with this id, or it is not yours")
    agent = await registry.agent(call.principal.org_id, device.agent_id)
    name, last, state = (agent.name, agent.last_seen_at, agent.state) if agent else ("", None, "revoked")
    await call.json(printer_view(device, name, last, state, context.clock.now_ms(), context.seen))


async def agents(context: Context, call: Call) -> None:
    """`GET /agents`: agents by name, without the inbox."""
    query = call.query(frozenset({"limit", "cursor"}))
    limit = page_limit(query)
    rows = await context.store.registry.agents(call.principal.org_id, _after(query), limit + 1)
    now = context.clock.now_ms()
    following = _cursor(rows[limit - 1]) if len(rows) > limit else None
    page = rows[:limit]
    owners = await _owners(context, call, page)
    await call.json({"items": [agent_view(a, now, context.seen, owners) for a in page], "next": following})


async def _owners(context: Context, call: Call, page: list[Agent]) -> dict[bytes, list[str]]:
    if not page:
        return {}
    first, last = page[0].name, page[-1].name
    return await context.store.registry.owner_names(call.principal.org_id, first, last)


async def pending(context: Context, call: Call) -> None:
    """`GET /agents/pending`: who waits for approval."""
    call.query(frozenset())
    rows = await context.store.registry.pending(call.principal.org_id)
    await call.json({"items": [pending_view(agent) for agent in rows], "next": None})


def _agent_id(call: Call) -> bytes:
    found = parse_id(call.params[0])
    if found is None:
        raise Problem("not-found", "there is no agent with this id, or it is not yours")
    return found


async def _show(context: Context, call: Call, agent: Agent | Problem) -> None:
    if isinstance(agent, Problem):
        raise agent
    owners = await _owners(context, call, [agent])
    await call.json(agent_view(agent, context.clock.now_ms(), context.seen, owners))


async def agent(context: Context, call: Call) -> None:
    """`GET /agents/{id}`: one agent."""
    found = await context.store.registry.agent(call.principal.org_id, _agent_id(call))
    await _show(
        context, call, found or Problem("not-found", "there is no agent with this id, or it is not yours")
    )


async def issue(context: Context, call: Call) -> None:
    """`POST /agents`: make an agent; its key is in this reply and nowhere else."""
    body = await call.body(BODY_MAX)
    message = decode(_issue, body)
    refuse_nul(body, message)
    key = new_key("fha")
    made = await context.store.registry.issue(
        call.principal.org_id, message.name, digest(key.encode()), call.principal.actor
    )
    if isinstance(made, Problem):
        raise made
    await call.json(IssueReply(id=id_text(made.id), name=made.name, key=key), 201)


async def approve(context: Context, call: Call) -> None:
    """`POST /agents/{id}/approve`: let a waiting agent in."""
    body = await call.body(BODY_MAX)
    message = decode(_approve, body)
    refuse_nul(body, message)
    if (message.code is None) != message.without_code:
        raise Problem(
            "bad-field",
            "code: type the code that the device shows, or send without_code: true to approve without it",
            field="code",
        )
    approved = await context.store.registry.approve(
        call.principal.org_id, _agent_id(call), call.principal.actor, code=message.code
    )
    await _show(context, call, approved)


async def revoke(context: Context, call: Call) -> None:
    """`POST /agents/{id}/revoke`: throw an agent out at once."""
    await call.body(BODY_MAX)
    agent_id, principal = _agent_id(call), call.principal
    revoked = await context.store.registry.revoke(principal.org_id, agent_id, principal.actor)
    if not isinstance(revoked, Problem):
        context.held.dismiss(agent_id)
    await _show(context, call, revoked)


async def _set_state(context: Context, call: Call, state: str) -> None:
    await call.body(BODY_MAX)
    agent_id, principal = _agent_id(call), call.principal
    changed = await context.store.registry.set_state(principal.org_id, agent_id, state, principal.actor)
    if not isinstance(changed, Problem):
        context.held.dismiss(agent_id)
    await _show(context, call, changed)


async def pause(context: Context, call: Call) -> None:
    """`POST /agents/{id}/pause`: no new work until resumed."""
    await _set_state(context, call, "paused")


async def drain(context: Context, call: Call) -> None:
    """`POST /agents/{id}/drain`: finish what is in hand, take nothing new."""
    await _set_state(context, call, "draining")


async def resume(context: Context, call: Call) -> None:
    """`POST /agents/{id}/resume`: take work again."""
    await _set_state(context, call, "active")


def _check_grants(grants: list[str], known: tuple[str, ...]) -> list[str]:
    for index, grant in enumerate(grants):
        if grant not in known:
            hint = suggest(grant, known) or f"; known are {', '.join(known)}"
            raise Problem(
                "bad-field", f"grants[{index}]: there is no grant {grant!r}{hint}", field=f"grants[{index}]"
            )
    return sorted(set(grants))


async def set_grants(context: Context, call: Call) -> None:
    """`PUT /agents/{id}/grants`: replace an agent's grants."""
    message = decode(_grants, await call.body(BODY_MAX))
    grants = _check_grants(message.grants, AGENT_GRANTS)
    changed = await context.store.registry.set_grants(
        call.principal.org_id, _agent_id(call), grants, call.principal.actor
    )
    await _show(context, call, changed)


async def set_signing(context: Context, call: Call) -> None:
    """`PUT /agents/{id}/signing`: the key an agent signs with, and whether it has to sign."""
    message = decode(_signing, await call.body(BODY_MAX))
    agent_id, principal = _agent_id(call), call.principal
    public_key = None if message.public_key is None else parse_key(message.public_key)
    if public_key is None and message.public_key is not None:
        raise bad_field("public_key", "must be a raw Ed25519 public key in base64, 44 characters")
    if message.required and public_key is None:
        raise bad_field("required", "needs the public_key that the agent signs with")
    changed = await context.store.registry.set_signing(
        principal.org_id, agent_id, principal.actor, public_key=public_key, required=message.required
    )
    if not isinstance(changed, Problem):
        context.held.dismiss(agent_id)
    await _show(context, call, changed)


async def create_key(context: Context, call: Call) -> None:
    """`POST /keys`: make a client key; it is in this reply and nowhere else."""
    body = await call.body(BODY_MAX)
    message = decode(_key, body)
    refuse_nul(body, message)
    grants = _check_grants(message.grants, CLIENT_GRANTS)
    for grant in grants:
        call.principal.require(grant)
    key = new_key("fhc")
    principal = call.principal
    made = await context.store.keys.create(
        principal.org_id, message.name, digest(key.encode()), grants, principal.actor, user=message.user
    )
    if isinstance(made, Problem):
        raise made
    await call.json(
        KeyReply(id=id_text(made.id), name=made.name, grants=grants, user=made.user, key=key), 201
    )


async def keys(context: Context, call: Call) -> None:
    """`GET /keys`: client keys without their secrets."""
    call.query(frozenset())
    rows = await context.store.keys.list(call.principal.org_id)
    await call.json({"items": [_key_view(key) for key in rows], "next": None})


def _key_view(key: ApiKey) -> KeyView:
    return KeyView(
        id=id_text(key.id),
        name=key.name,
        grants=list(key.grants),
        user=key.user,
        created_at=to_rfc3339(key.created_at),
        revoked_at=moment(key.revoked_at),
    )


async def revoke_key(context: Context, call: Call) -> None:
    """`DELETE /keys/{id}`: a key stops working at once."""
    await call.body(BODY_MAX)
    key_id = parse_id(call.params[0])
    if key_id is None:
        raise Problem("not-found", "there is no key with this id, or it is not yours")
    revoked = await context.store.keys.revoke(call.principal.org_id, key_id, call.principal.actor)
    if isinstance(revoked, Problem):
        raise revoked
    await call.json(_key_view(revoked))


async def audit(context: Context, call: Call) -> None:
    """`GET /audit`: who changed what, newest first."""
    query = call.query(frozenset({"limit", "cursor"}))
    limit = page_limit(query)
    before = decode_cursor(query["cursor"]) if "cursor" in query else None
    rows = await context.store.audit(call.principal.org_id, before, limit + 1)
    items = [
        AuditView(
            seq=row[0],
            at=to_rfc3339(row[1]),
            actor=actor_text(Actor(kind=row[2], id=row[3])),
            action=row[4],
            subject=id_text(bytes.fromhex(row[5])),
            data=row[6],
        )
        for row in rows[:limit]
    ]
    following = encode_cursor(rows[limit - 1][0]) if len(rows) > limit else None
    await call.json({"items": items, "next": following})
