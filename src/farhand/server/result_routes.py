"""Results in bytes: an agent puts a large one apart, a client reads what a job came to."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from typing import Final

from farhand.model.errors import Problem
from farhand.model.job import TERMINAL, Job, State
from farhand.protocol.agent import ResultBodyReply
from farhand.server.agent_routes import act_of, lease
from farhand.server.call import Call, Gone, body_too_large
from farhand.server.context import Context
from farhand.server.hooks import Shown
from farhand.server.job_routes import job_id
from farhand.server.views import raw
from farhand.server.waiting import WAIT_MAX_MS, applied, not_found, wait_for_change

PIECE_S: Final = 30
WHOLE_S: Final = 300
_GUARDED: Final = (
    # Somebody else's bytes under our own address: a browser keeps them, and runs nothing of them.
    (b"content-disposition", b"attachment"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


async def put_body(context: Context, call: Call) -> None:
    """`PUT /agent/jobs/{id}/result/body`: the bytes that the result will name by their SHA-256."""
    call.query(frozenset())
    act = act_of(call, lease(call))
    job = await context.store.job(act.org_id, act.job_id)
    results = context.hooks.results.get(job.kind) if job is not None else None
    if job is None:
        raise not_found()
    if results is None:
        raise Problem("state-conflict", f"jobs of kind {job.kind} have no body apart from their result")
    # Whoever no longer holds the attempt need not send the bytes.
    held = await context.store.heartbeat(act)
    if isinstance(held, Problem):
        raise held
    limit = results.body_limit(job)
    sha256, size = await context.payloads.put(pieces(call, limit), limit)
    kept = await context.store.keep_result_body(act, sha256, size)
    if isinstance(kept, Problem):
        raise kept
    await call.json(ResultBodyReply(sha256=sha256.hex(), size=size))


async def pieces(call: Call, limit: int, whole_s: int = WHOLE_S) -> AsyncGenerator[bytes]:
    """The body as it arrives. Raises as `Call.body` does."""
    length = call.header(b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise body_too_large(limit)
    seen, digest, more = 0, hashlib.sha256(), True
    end = asyncio.get_running_loop().time() + whole_s
    while more:
        try:
            async with asyncio.timeout_at(min(end, asyncio.get_running_loop().time() + PIECE_S)):
                message = await call.receive()
        except TimeoutError as error:
            raise Problem("bad-request", "the body did not arrive in time; send it again") from error
        if message["type"] == "http.disconnect":
            raise Gone
        piece, more = message.get("body", b""), message.get("more_body", False)
        seen += len(piece)
        if seen > limit:
            raise body_too_large(limit)
        digest.update(piece)
        if piece:
            yield piece
    if call.body_digest is not None and digest.digest() != call.body_digest:
        raise Problem("bad-signature", "the body is not the one that was signed")


async def show(context: Context, call: Call) -> None:
    """`GET /jobs/{id}/result`: what a job came to; with `Prefer: wait=N` held until it has ended."""
    call.query(frozenset())
    wait_ms = call.prefer_wait_ms(WAIT_MAX_MS)
    job: Job | None = await context.store.job(call.principal.org_id, job_id(call))
    if job is None:
        raise not_found()
    held: tuple[tuple[bytes, bytes], ...] = ()
    if wait_ms > 0 and not _over(job):
        job = await wait_for_change(context, call, job, wait_ms, _over)
        if job is None:
            return
        held = (applied(wait_ms),)
    if job.state != State.DONE:
        raise _nothing(job)
    results = context.hooks.results.get(job.kind)
    if results is None:
        shown = Shown(content_type="application/json", body=(job.result or "null").encode())
    else:
        shown = await results.show(context, job)
    await _send(context, call, shown, held)


def _over(job: Job) -> bool:
    return job.state in TERMINAL or job.state == State.UNCERTAIN


def _nothing(job: Job) -> Problem:
    """Why there is no result: with what is known of the end where there was one."""
    if job.state not in TERMINAL:
        message = f"the job is {job.state}; its result comes with its end"
        return Problem("state-conflict", message, job_state=job.state)
    message = f"the job is {job.state} and has no result" + (f": {job.error}" if job.error else "")
    return Problem("state-conflict", message, job_state=job.state, error=job.error, result=raw(job.result))


async def _send(context: Context, call: Call, shown: Shown, held: tuple[tuple[bytes, bytes], ...]) -> None:
    content = (b"content-type", shown.content_type.encode("latin-1"))
    if shown.sha256 is None:
        await call.reply(200, shown.body or b"", content=content, headers=(*_GUARDED, *held))
        return
    if await context.payloads.head(shown.sha256) is None:
        raise Problem("payload-gone", "the body of the result is not in the payload store")
    call.status = 200
    lines = [content, (b"content-length", b"%d" % shown.size), *_GUARDED, *held]
    await call.send({"type": "http.response.start", "status": 200, "headers": lines})
    async for chunk in context.payloads.open(shown.sha256):
        await call.send({"type": "http.response.body", "body": chunk, "more_body": True})
    await call.send({"type": "http.response.body", "body": b""})
