"""The clients' routes about jobs."""

import asyncio
import base64
import binascii
import dataclasses
import hashlib
import logging
import re
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec

from farhand.engine.ports import StoreFault, StoreGone
from farhand.engine.requests import JobFilter, Order, Reserve, Retry, Submit, Submitted
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import TERMINAL, Job, State
from farhand.protocol.client import CancelRequest, EndedReply, JobView, ResolveRequest, SubmitReply
from farhand.protocol.wire import decode, problem_document
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.desk import Prepared
from farhand.server.text import refuse_nul
from farhand.server.views import event_view, job_view
from farhand.server.waiting import WAIT_MAX_MS, applied, not_found, wait_for_change, watch

log = logging.getLogger("farhand.server")

BODY_MAX: Final = 1024 * 1024
PAGE: Final = 50
PAGE_MAX: Final = 200
BATCH_MAX: Final = 100
KEY_MAX: Final = 255
SEQ_MAX: Final = (1 << 63) - 1
LIST_QUERY: Final = ("state", "kind", "printer", "agent", "tag", "source", "limit", "cursor")


_CURSOR = re.compile(rb"j[0-9a-f]{1,16}")


class _Kind(msgspec.Struct):
    type: Any = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[msgspec.Raw]


T = TypeVar("T")
_kind = msgspec.json.Decoder(_Kind)
_batch = msgspec.json.Decoder(_Batch)
_cancel = msgspec.json.Decoder(CancelRequest)
_resolve = msgspec.json.Decoder(ResolveRequest)


async def _prepare(context: Context, call: Call, body: bytes) -> Prepared:
    word = decode(_kind, body).type
    if not isinstance(word, str):
        raise Problem("bad-field", "type: is required and names the kind of job", field="type")
    decoder = context.submitters.get(word)
    if decoder is None:
        known = ", ".join(sorted(context.submitters))
        raise Problem(
            "unsupported-type", f"type: {word[:100]!r} is not known; use one of {known}", field="type"
        )
    return await decoder(body, call.principal, context.desk)


def _idempotency_key(call: Call) -> str | None:
    raw = call.header(b"idempotency-key")
    if raw is None:
        return None
    key = raw.decode("latin-1").strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not 1 <= len(key) <= KEY_MAX or not key.isprintable():
        raise Problem("bad-request", f"Idempotency-Key has 1 to {KEY_MAX} printable characters")
    return key


def _chosen_key(call: Call, prepared: Prepared, place: str) -> str | None:
    """The idempotency key of the header or the body, as this caller's own; `place` is that in a batch."""
    header, body = _idempotency_key(call), prepared.idempotency_key
    if header is not None and body is not None and header != body:
        message = "idempotency_key: differs from the header Idempotency-Key; send one of them"
        raise Problem("bad-field", message, field="idempotency_key")
    key = body if header is None else header
    if key is None:
        return None
    # A key of a body stands for its own job wherever in a batch that is.
    place = place if header is not None else ""
    return f"{call.principal.kind}:{(call.principal.id or b'').hex()}:{key}{place}"


async def _submit(context: Context, call: Call, body: bytes) -> tuple[Submitted | Problem, dict[str, Any]]:
    """The job, and what its system tells beside it."""
    prepared = await _prepare(context, call, body)
    done = await submit_prepared(context, call, prepared)
    if prepared.more is None or isinstance(done, Problem):
        return done, {}
    return done, await prepared.more(context, call, done)


async def submit_prepared(
    context: Context, call: Call, prepared: Prepared, *, route: bytes = b"POST /jobs", place: str = ""
) -> Submitted | Problem:
    """Write down a checked request of this route, or find the job that already stands for it."""
    request, limit = _request(context, call, prepared, route, place)
    if prepared.payload_url is not None:
        return await _submit_fetched(context, prepared, request, limit)
    submission = request.submission
    payload = submission.payload
    if payload is not None and not context.desk.is_inline(len(payload)):
        sha256, size = await context.desk.keep(payload, limit)
        stored = dataclasses.replace(submission, payload=None, payload_sha256=sha256, payload_size=size)
        request = msgspec.structs.replace(request, submission=stored)
    return await context.store.submit(request)


def _request(
    context: Context, call: Call, prepared: Prepared, route: bytes, place: str
) -> tuple[Submit, int]:
    """The request to the store, and how large its payload may be."""
    submission = prepared.submission
    policy = prepared.policy or context.desk.policy(submission.policy_name or submission.kind)
    fingerprint: bytes | None = None
    key = _chosen_key(call, prepared, place)
    if key is not None:
        fingerprint = hashlib.sha256(route + b"\n" + prepared.canonical()).digest()
    limit = context.desk.payload_limit(policy)
    if submission.payload is not None and len(submission.payload) > limit:
        raise Problem(
            "payload-too-large", f"the payload is larger than the limit of {limit} bytes", limit_bytes=limit
        )
    return (
        Submit(submission=submission, policy=policy, idempotency_key=key, fingerprint=fingerprint),
        limit,
    )


async def _submit_fetched(
    context: Context, prepared: Prepared, request: Submit, limit: int
) -> Submitted | Problem:
    """Take the idempotency key before the fetch goes out, so that a repeat never fetches twice."""
    source = prepared.payload_url
    if source is None:
        raise ValueError("there is nothing to fetch")
    reserve: Reserve | None = None
    if request.idempotency_key is not None and request.fingerprint is not None:
        reserve = Reserve(
            org_id=request.submission.org_id, key=request.idempotency_key, fingerprint=request.fingerprint
        )
        known = await context.store.reserve(reserve)
        if known is not None:
            return known
    try:
        sha256, size = await context.desk.fetch(source, limit)
    except BaseException:
        if reserve is not None:
            await asyncio.shield(context.store.reserve(dataclasses.replace(reserve, drop=True)))
        raise
    stored = dataclasses.replace(request.submission, payload_sha256=sha256, payload_size=size)
    return await context.store.submit(
        msgspec.structs.replace(request, submission=stored, reserved=reserve is not None)
    )


def _submit_reply(done: Submitted) -> SubmitReply:
    job_id = id_text(done.job_id)
    return SubmitReply(id=job_id, job_id=job_id, state=done.state)


async def submit(context: Context, call: Call) -> None:
    """`POST /jobs`: write down a job of any system; with `Prefer: wait=N` held until it has ended."""
    body = await call.body(context.desk.body_limit)
    wait_ms = call.prefer_wait_ms(WAIT_MAX_MS)
    if wait_ms <= 0:
        made, more = await _submit(context, call, body)
        await _reply_made(call, _made(made), more=more)
        return
    # The room to wait is taken first: a job whose caller is then refused would be lost to it.
    with context.held.waiting(call.principal.id):
        made, more = await _submit(context, call, body)
        done = _made(made)
        ended = await watch(context, call, done.job_id, wait_ms, _has_ended)
    if ended is None:
        return
    held = applied(wait_ms)
    if ended.state not in TERMINAL:
        await _reply_made(call, msgspec.structs.replace(done, state=ended.state), 202, held, more=more)
        return
    reply = EndedReply(job_id=id_text(ended.id), **msgspec.structs.asdict(job_view(ended)))
    location = (b"location", b"/jobs/" + reply.id.encode())
    await call.json(reply, 201 if done.created else 200, headers=(location, held))


def _has_ended(job: Job) -> bool:
    # What is uncertain stays so until a person speaks: there is nothing to wait for.
    return job.state in TERMINAL or job.state == State.UNCERTAIN


def _made(done: Submitted | Problem) -> Submitted:
    if isinstance(done, Problem):
        raise done
    return done


async def _reply_made(
    call: Call,
    done: Submitted,
    status: int | None = None,
    *headers: tuple[bytes, bytes],
    more: dict[str, Any] | None = None,
) -> None:
    reply = _submit_reply(done)
    location = (b"location", b"/jobs/" + reply.id.encode())
    whole = {**msgspec.structs.asdict(reply), **more} if more else reply
    await call.json(whole, status or (201 if done.created else 200), headers=(location, *headers))


async def submit_batch(context: Context, call: Call) -> None:
    """`POST /jobs/batch`: many jobs, each answered by itself."""
    batch = decode(_batch, await call.body(context.desk.body_limit))
    if len(batch.jobs) > BATCH_MAX:
        raise Problem("bad-field", f"jobs: holds at most {BATCH_MAX} jobs", field="jobs")
    _idempotency_key(call)
    begun = [
        await _caught(_begin(context, call, bytes(entry), f"\n{index}"))
        for index, entry in enumerate(batch.jobs)
    ]
    done = [entry if isinstance(entry, Problem) else await _caught(entry) for entry in begun]
    items = [problem_document(d) if isinstance(d, Problem) else _submit_reply(d) for d in done]
    await call.json({"items": items})


async def _begin(
    context: Context, call: Call, body: bytes, place: str
) -> asyncio.Future[Submitted | Problem]:
    """Begin to write down a job of a batch; what needs nothing but the database costs no task."""
    prepared = await _prepare(context, call, body)
    payload = prepared.submission.payload
    if prepared.payload_url is None and (payload is None or context.desk.is_inline(len(payload))):
        request, _ = _request(context, call, prepared, b"POST /jobs", place)
        return context.store.submit_soon(request)
    return asyncio.ensure_future(submit_prepared(context, call, prepared, place=place))


async def _caught(item: Awaitable[T]) -> T | Problem:
    """What becomes of one job of a batch."""
    try:
        return await item
    except Problem as problem:
        return problem
    except RecursionError:
        return Problem("bad-json", "the job is nested too deeply")
    except (StoreGone, StoreFault, OSError) as error:
        # The others of the batch may be written down already: their answers must not be lost with it.
        log.exception("batch_item_failed", exc_info=error)
        return Problem("internal", "something went wrong on the server; its log says what")


def job_id(call: Call) -> bytes:
    """The job id of the path. Raises Problem `not-found` for what is no id."""
    found = parse_id(call.params[0])
    if found is None:
        raise not_found()
    return found


async def _job(context: Context, call: Call) -> Job:
    job = await context.store.job(call.principal.org_id, job_id(call))
    if job is None:
        raise not_found()
    return job


async def show(context: Context, call: Call) -> None:
    """`GET /jobs/{id}`: a job; with `Prefer: wait=N` held until it changes."""
    call.query(frozenset())
    wait_ms = call.prefer_wait_ms(WAIT_MAX_MS)
    job = await _job(context, call)
    if wait_ms <= 0 or job.state in TERMINAL:
        await call.json(await _shown(context, job))
        return
    changed = await wait_for_change(context, call, job, wait_ms, lambda now: now.version != job.version)
    if changed is not None:
        await call.json(await _shown(context, changed), headers=(applied(wait_ms),))


async def _shown(context: Context, job: Job) -> JobView:
    return msgspec.structs.replace(job_view(job), reason=await context.hooks.why(context, job))


def encode_cursor(seq: int) -> str:
    """An opaque cursor."""
    return base64.urlsafe_b64encode(b"j%x" % seq).decode("ascii").rstrip("=")


def decode_cursor(text: str) -> int:
    """The position behind a cursor. Raises Problem `bad-cursor`."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if not _CURSOR.fullmatch(plain):
            raise ValueError("not a cursor of this list")
        return min(int(plain[1:], 16), SEQ_MAX)
    except (ValueError, binascii.Error) as error:
        raise Problem("bad-cursor", "cursor: take it unchanged from the `next` of a list") from error


def page_limit(query: dict[str, str]) -> int:
    """The page size asked for. Raises Problem when it is none."""
    text = query.get("limit", str(PAGE))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= PAGE_MAX:
        raise Problem("bad-field", f"limit: must be a whole number from 1 to {PAGE_MAX}", field="limit")
    return int(text)


def _query_id(query: dict[str, str], name: str) -> bytes | None:
    text = query.get(name)
    if text is None:
        return None
    found = parse_id(text)
    if found is None:
        raise Problem("bad-field", f"{name}: is no id", field=name)
    return found


async def listing(context: Context, call: Call) -> None:
    """`GET /jobs`: jobs, newest first."""
    query = call.query(frozenset(LIST_QUERY))
    state = query.get("state")
    if state is not None and state not in set(State):
        raise Problem("bad-field", f"state: must be one of {', '.join(State)}", field="state")
    limit = page_limit(query)
    wanted = JobFilter(
        org_id=call.principal.org_id,
        state=state,
        kind=query.get("kind"),
        device_id=_query_id(query, "printer"),
        agent_id=_query_id(query, "agent"),
        tag=query.get("tag"),
        source=query.get("source"),
        before=decode_cursor(query["cursor"]) if "cursor" in query else None,
        limit=limit + 1,
    )
    jobs = await context.store.jobs(wanted)
    following = encode_cursor(jobs[limit - 1].seq) if len(jobs) > limit else None
    await call.json({"items": [job_view(job) for job in jobs[:limit]], "next": following})


async def events(context: Context, call: Call) -> None:
    """`GET /jobs/{id}/events`: the trail."""
    query = call.query(frozenset({"limit", "cursor"}))
    limit = page_limit(query)
    after = decode_cursor(query["cursor"]) if "cursor" in query else 0
    found = await context.store.events(call.principal.org_id, job_id(call), after, limit + 1)
    if found is None:
        raise not_found()
    following = encode_cursor(found[limit - 1].number) if len(found) > limit else None
    await call.json({"items": [event_view(event) for event in found[:limit]], "next": following})


def _order(call: Call, note: str | None = None, *, done: bool = False) -> Order:
    principal = call.principal
    return Order(org_id=principal.org_id, job_id=job_id(call), actor=principal.actor, note=note, done=done)


async def cancel(context: Context, call: Call) -> None:
    """`DELETE /jobs/{id}`: cancel, or ask for it when the work is in hand."""
    body = await call.body(BODY_MAX)
    message = decode(_cancel, body or b"{}")
    refuse_nul(body, message)
    answer = await context.store.cancel(_order(call, message.reason))
    if isinstance(answer, Problem):
        raise answer
    await call.json(job_view(await _job(context, call)))


async def resolve(context: Context, call: Call) -> None:
    """`POST /jobs/{id}/resolve`: a person says how an uncertain job ended."""
    body = await call.body(BODY_MAX)
    message = decode(_resolve, body)
    refuse_nul(body, message)
    answer = await context.store.resolve(_order(call, message.note, done=message.outcome == "done"))
    if isinstance(answer, Problem):
        raise answer
    await call.json(job_view(await _job(context, call)))


async def retry(context: Context, call: Call) -> None:
    """`POST /jobs/{id}/retry`: the same work as a new job."""
    await call.body(BODY_MAX)
    job = await _job(context, call)
    policy = context.hooks.policy_of(job, context.desk.policies)
    if policy is None:
        raise Problem("unsupported-type", f"this server no longer knows jobs of kind {job.kind!r}")
    await _reply_made(call, _made(await context.store.retry(Retry(order=_order(call), policy=policy))), 201)
