"""What becomes of work that an earlier run of the agent left behind."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from farhand.agent.attempt import Attempt, Parts, give_back
from farhand.agent.backoff import Backoff
from farhand.agent.errors import ShutOut
from farhand.agent.handler import Handler, ResultDraft
from farhand.agent.journal import Entry
from farhand.agent.suspend import within

log: Final = logging.getLogger(__name__)


def left_behind(parts: Parts) -> Sequence[Entry]:
    """The attempts that an earlier run had in hand and whose results are not yet safe."""
    safe = {*parts.outbox.waiting()}
    return [entry for entry in parts.journal.left_behind if entry.key not in safe]


async def forget_settled(parts: Parts) -> None:
    """Closes entries whose result was put into the outbox just before the end."""
    for key in parts.outbox.waiting():
        await parts.journal.ended(key)


def recover(parts: Parts, entry: Entry, handler: Handler | None) -> Coroutine[Any, Any, None]:
    """Brings one entry to its end; never does its work again."""
    if not entry.begun:
        return _give_back(parts, entry)
    return _find_out(parts, entry, handler)


async def _give_back(parts: Parts, entry: Entry) -> None:
    backoff = Backoff()
    try:
        while not await give_back(parts, entry):
            if await within(parts.stopping, backoff.next_ms()):
                return
        await parts.journal.ended(entry.key)
    except ShutOut as error:
        parts.shut_out(error)
    except OSError as error:
        log.error("journal_disk", extra={"job": entry.job_id, "error": str(error)})


async def _find_out(parts: Parts, entry: Entry, handler: Handler | None) -> None:
    log.warning(
        "job_recovering", extra={"job": entry.job_id, "attempt": entry.attempt, "device": entry.device}
    )

    async def work(attempt: Attempt) -> ResultDraft:
        if handler is None:
            reason = f"the agent stopped while at work, and nothing here handles {entry.kind} any more"
            return ResultDraft(ok=False, uncertain=True, error=reason)
        return await handler.recover(entry.unfinished(), attempt)

    await Attempt(parts, entry, None).run(work, lambda: None)


async def quiet(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Cancels tasks and waits until they are gone, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
