"""Asks for work: one held request at a time, naming the lanes that are free."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from farhand.agent.backoff import Backoff
from farhand.agent.errors import LinkError, NoAnswer, ShutOut
from farhand.agent.lanes import Lanes
from farhand.agent.link import Link
from farhand.agent.suspend import Waker, within
from farhand.protocol.agent import ClaimedJob, ClaimReply, ClaimRequest

BATCH: Final = 16
WAIT_MAX_MS: Final = 55_000
DRAINED_MS: Final = 15_000
REPEATED_MS: Final = 100
log: Final = logging.getLogger(__name__)


def new_poll_id() -> str:
    """A name for one claim; the server answers the same name the same."""
    return secrets.token_hex(16)


class Claims:
    """The agent's held request.

    It names only free lanes. When another lane falls free, it is cut off and sent anew under
    the same poll id: had the server just answered it, it answers the same again, so that no
    offer is lost. `take` says whether a job was new.
    """

    def __init__(
        self,
        link: Link,
        lanes: Lanes,
        waker: Waker,
        *,
        wait_ms: Callable[[], int],
        take: Callable[[ClaimedJob], bool],
    ) -> None:
        self._link = link
        self._lanes = lanes
        self._waker = waker
        self._wait_ms = wait_ms
        self._take = take
        self._backoff = Backoff()
        self._poll_id = new_poll_id()
        self.drained = False

    async def run(self) -> None:
        """Claims until cancelled. Raises ShutOut."""
        while True:
            # Cleared before the look, so that a lane that falls free meanwhile is not missed.
            self._lanes.changed.clear()
            self._lanes.left.clear()
            free = self._lanes.free()
            if not free:
                await self._lanes.changed.wait()
                continue
            wait_ms = min(self._wait_ms(), WAIT_MAX_MS)
            request = ClaimRequest(
                poll_id=self._poll_id,
                lanes=list(free),
                max=min(len(free), BATCH),
                per_lane=1,
                wait_ms=wait_ms,
            )
            pause_ms = await self._once(request)
            if pause_ms:
                await self._waker.sleep(pause_ms)

    async def _once(self, request: ClaimRequest) -> int:
        """One request; how long to wait before the next one."""
        began = asyncio.get_running_loop().time()
        try:
            reply = await self._ask(request)
        except ShutOut:
            raise
        except NoAnswer as error:
            wait_ms = self._backoff.next_ms(error.retry_after_ms)
            log.warning("claim_failed", extra={"retry_ms": wait_ms, "error": str(error)})
            return wait_ms
        except LinkError as error:
            # It will not be taken as it is, for instance because a lane has just vanished.
            log.error("claim_refused", extra={"error": str(error)})
            self._poll_id = new_poll_id()
            return self._backoff.next_ms()
        if reply is None:
            return 0
        self._poll_id = new_poll_id()
        taken = [self._take(job) for job in reply.jobs]
        if reply.directive == "drain":
            if not self.drained:
                log.warning("agent_drained")
            self.drained = True
            return DRAINED_MS
        self.drained = False
        if taken and not any(taken):
            # Only offers that are in hand already: their start is on its way, or their end.
            await within(self._lanes.left, REPEATED_MS)
            return 0
        held_ms = (asyncio.get_running_loop().time() - began) * 1000
        if not reply.jobs and held_ms < request.wait_ms / 2:
            # Answered early and empty: the server is on its way down.
            return self._backoff.next_ms()
        self._backoff.reset()
        return 0

    async def _ask(self, request: ClaimRequest) -> ClaimReply | None:
        """The reply; None when the request was cut off because a lane fell free."""
        asking = asyncio.create_task(self._link.claim(request))
        freed = asyncio.create_task(self._lanes.changed.wait())
        try:
            await asyncio.wait((asking, freed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            freed.cancel()
            if not asking.done():
                asking.cancel()
                # The answer may have arrived in this very moment; then it counts.
                await asyncio.wait((asking,))
        return None if asking.cancelled() else asking.result()
