"""Requests of clients that are held until a job has got somewhere."""

import asyncio
from collections.abc import Callable
from typing import Final

from farhand.model.errors import Problem
from farhand.model.job import Job
from farhand.server.call import Call
from farhand.server.context import Context

WAIT_MAX_MS: Final = 55_000


def not_found() -> Problem:
    """The answer for a job that is not there or not the caller's."""
    return Problem("not-found", "there is no job with this id, or it is not yours")


def applied(wait_ms: int) -> tuple[bytes, bytes]:
    """The header that tells how long a request was ready to be held."""
    return (b"preference-applied", b"wait=%d" % (wait_ms // 1000))


async def wait_for_change(
    context: Context, call: Call, job: Job, wait_ms: int, differs: Callable[[Job], bool]
) -> Job | None:
    """The job once it differs from what the caller may know, or when the time is up; None on hang-up."""
    with context.held.waiting(call.principal.id):
        return await watch(context, call, job.id, wait_ms, differs)


async def watch(
    context: Context, call: Call, job_id: bytes, wait_ms: int, differs: Callable[[Job], bool]
) -> Job | None:
    """As `wait_for_change`, for a caller whose room to wait is taken already."""
    store, org_id = context.store, call.principal.org_id
    gone = asyncio.ensure_future(call.disconnected())
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_ms / 1000
    try:
        while not context.closing.is_set():
            left = end - loop.time()
            changed = store.hub.watch(job_id)
            latest = await store.job(org_id, job_id)
            if latest is None:
                raise not_found()
            if differs(latest) or left <= 0:
                store.hub.unwatch(job_id, changed)
                return latest
            # Hints can be missed where several servers share a database, so look now and then.
            pause = min(left, 2.0) if store.shared else left
            await asyncio.wait((changed, gone), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            store.hub.unwatch(job_id, changed)
            if gone.done():
                return None
        return await store.job(org_id, job_id)
    finally:
        gone.cancel()
