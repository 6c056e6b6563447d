"""`POST /jobs` for fetch: from a client's words to a job that can be written down."""

import binascii
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from farhand.egress import EgressError, EgressPolicy, Url, check_url
from farhand.egress.headers import check_method, check_outgoing
from farhand.egress.ranges import parse_range
from farhand.model.errors import Problem
from farhand.model.job import Submission
from farhand.protocol.fetch import (
    INSECURE_TLS,
    KIND,
    PRIVATE_IP,
    TAG_PREFIX,
    FetchParams,
    FetchRequest,
    FetchSubmit,
)
from farhand.protocol.wire import bad_field, encode
from farhand.protocol.wire import decode as decode_message
from farhand.server.desk import Desk, Prepared
from farhand.server.lanes import pinned_lane
from farhand.server.principal import Principal
from farhand.server.text import refuse_nul
from farhand.systems.fetch.declare import SETTINGS, FetchRules
from farhand.systems.fetch.kind import for_timeout, policy_name

NAME: Final = "fetch"
_FORWARDED: Final = ("forwarded", "x-real-ip", "x-forwarded-")
_decoder = msgspec.json.Decoder(FetchSubmit)


async def decode(body: bytes, principal: Principal, desk: Desk) -> Prepared:
    """Decode and check a fetch request.

    What every agent would refuse is refused here already. Raises Problem naming the field for
    anything that does not fit, `payload-too-large` for the body, `unknown-agent`, and
    `bad-field` for a tag that no agent has.
    """
    message = decode_message(_decoder, body)
    request = message.request
    refuse_nul(body, msgspec.structs.replace(message, request=msgspec.structs.replace(request, body=None)))
    method = _checked("request.method", lambda: check_method(request.method))
    _check_request(request, settings_of(desk).guard(private=request.allow_private_ip))
    payload = _payload(request)
    name = policy_name(method, idempotent=request.idempotent)
    policy = for_timeout(desk.policy(name), request.timeout_ms)
    _check_size(payload, desk.payload_limit(policy))
    tags = await _tags(message, desk)
    agent_id = await _agent_id(message, principal, desk)
    submission = Submission(
        org_id=principal.org_id,
        kind=KIND,
        lane=principal.user_id if agent_id is None else pinned_lane(agent_id),
        agent_id=agent_id,
        title=message.title,
        source=message.source,
        tags=tags,
        params=encode(_params(request, method)).decode(),
        payload=payload,
        requires=_requires(request, tags),
        expires_in_ms=None if message.expires_in is None else message.expires_in * 1000,
        submitted_by=principal.id,
        actor=principal.actor,
        policy_name=name,
    )
    return Prepared(submission=submission, canonical=partial(_canonical, message, submission), policy=policy)


def settings_of(desk: Desk) -> FetchRules:
    """The table `[fetch]` of farhand.toml."""
    found = desk.declared.get(NAME, {}).get(SETTINGS)
    return found if isinstance(found, FetchRules) else FetchRules()


def _canonical(message: FetchSubmit, submission: Submission) -> bytes:
    """What two requests have in common that ask for the same: defaults and spelling do not matter."""
    payload = submission.payload
    plain: dict[str, Any] = {
        "params": submission.params,
        "body": None if payload is None else payload.hex(),
        "lane": submission.lane.hex(),
        "tags": sorted(submission.tags),
        "title": message.title,
        "source": message.source,
        "expires_in": message.expires_in,
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def _checked(field: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except EgressError as error:
        raise Problem("bad-field", f"{field}: {error.message}", field=field, fetch_code=error.code) from error


def _check_request(request: FetchRequest, guard: EgressPolicy) -> None:
    url: Url = _checked("request.url", lambda: check_url(request.url, guard))
    pairs = tuple(request.headers.items())
    # An operator may allow these by name, so that it is the agent's to refuse them.
    allowed = tuple(name for name in request.headers if name.lower().startswith(_FORWARDED))
    policy = dataclasses.replace(guard, allowed_headers=allowed)
    for name, value in pairs:
        pair = ((name, value),)
        _checked(f"request.headers.{name}", partial(check_outgoing, pair, url, policy))
    _checked("request.headers", partial(check_outgoing, pairs, url, policy))
    wanted, most = request.range_request, request.max_response_bytes
    if wanted is not None:
        _checked("request.rangeRequest", partial(parse_range, wanted, bytes_max=most))


def _payload(request: FetchRequest) -> bytes | None:
    """The bytes of the body; an empty one is none."""
    if not request.body:
        return None
    field = "request.body"
    if not request.body_base64:
        try:
            return request.body.encode()
        except UnicodeEncodeError as error:
            raise bad_field(field, "holds half of a surrogate pair; send other bytes as base64") from error
    try:
        encoded = "".join(request.body.split()).encode("ascii")
        return binascii.a2b_base64(encoded, strict_mode=True) or None
    except (binascii.Error, UnicodeEncodeError) as error:
        raise bad_field(field, f"is not valid base64 ({error}), as bodyBase64 says it is") from error


def _check_size(payload: bytes | None, limit: int) -> None:
    if payload is not None and len(payload) > limit:
        raise Problem(
            "payload-too-large",
            f"request.body: larger than the limit of {limit} bytes",
            limit_bytes=limit,
            field="request.body",
        )


def _params(request: FetchRequest, method: str) -> FetchParams:
    return FetchParams(
        url=request.url,
        method=method,
        headers=request.headers,
        body_base64=request.body_base64,
        timeout_ms=request.timeout_ms,
        max_response_bytes=request.max_response_bytes,
        allow_insecure_tls=request.allow_insecure_tls,
        allow_private_ip=request.allow_private_ip,
        range_request=request.range_request,
        follow_redirects=request.follow_redirects,
        idempotent=request.idempotent,
    )


def _requires(request: FetchRequest, tags: tuple[str, ...]) -> frozenset[str]:
    names = {TAG_PREFIX + tag for tag in tags}
    if request.allow_insecure_tls:
        names.add(INSECURE_TLS)
    if request.allow_private_ip:
        names.add(PRIVATE_IP)
    return frozenset(names)


async def _tags(message: FetchSubmit, desk: Desk) -> tuple[str, ...]:
    """The tags, each once. One that no agent ever declared would wait for nobody."""
    tags = tuple(dict.fromkeys(message.tags))
    if not tags:
        return ()
    declared = await desk.declared_capabilities([TAG_PREFIX + tag for tag in tags])
    for index, tag in enumerate(message.tags):
        if TAG_PREFIX + tag not in declared:
            raise bad_field(f"tags[{index}]", f"no agent has the tag {tag!r}")
    return tags


async def _agent_id(message: FetchSubmit, principal: Principal, desk: Desk) -> bytes | None:
    if message.agent is None:
        return None
    agent = await desk.find_agent(principal.org_id, message.agent)
    if agent is None or agent.state in ("pending", "revoked"):
        why = "there is no agent" if agent is None else f"{agent.state} and given no work: agent"
        raise Problem(
            "unknown-agent", f"agent: {why} {message.agent!r}; GET /agents lists them", field="agent"
        )
    if not await desk.owns(principal, agent):
        raise Problem(
            "unknown-agent",
            f"agent: {message.agent!r} has other owners; approve it with your key to become one",
            field="agent",
        )
    return agent.id
