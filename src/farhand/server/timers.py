"""What the server does by itself: sweeps, retention, last-seen, the look behind the hints."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from farhand.server.context import Context

log = logging.getLogger("farhand.server")
SWEEP_FULL = 200
# Deleting keeps the event loop and the disk from everybody else: few jobs at a time, then longer rests.
PRUNE_BATCH = 20
PRUNE_REST_S = 0.005
PRUNE_RESTS = 2
LOOK_S = 10.0
NONCE_MEMORY_MS = 600_000
COLLECT_S = 6 * 3600.0
UNUSED_MS = 3_600_000
# An agent is online for a minute after it was seen: what is written down may not grow older than this.
WRITTEN_MS = 50_000
SEEN_BATCH = 1000


class Timers:
    """The background work of one server; start it after the store, stop it before."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []
        self._unused: set[bytes] = set()
        self._written: dict[bytes, int] = {}

    def start(self) -> None:
        """Begin."""
        config = self._context.config
        work: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (config.sweep_ms / 1000, self.sweep),
            (config.sweep_ms / 1000, self.forget_secrets),
            (config.prune_ms / 1000, self.prune),
            (config.seen_ms / 1000, self.write_seen),
            (COLLECT_S, self.collect),
        ]
        work += [
            (pause_ms / 1000, partial(tick, self._context)) for pause_ms, tick in self._context.hooks.ticks
        ]
        if self._context.store.shared:
            work.append((LOOK_S, self._context.store.look))
        self._tasks = [asyncio.create_task(self._every(pause, action)) for pause, action in work]

    async def stop(self) -> None:
        """End, writing down what is only in memory."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._write_seen(self._context.seen)

    async def _every(self, pause: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(pause)
            try:
                await action()
            except Exception:
                log.exception("timer_failed", extra={"action": getattr(action, "__name__", "")})

    async def sweep(self) -> None:
        """Carry out what is due, until nothing is."""
        store = self._context.store
        due = store.next_due
        if not store.shared and (due is None or due > self._context.clock.now_ms()):
            return
        while await store.sweep() >= SWEEP_FULL:
            continue

    async def forget_secrets(self) -> None:
        """Let secrets go when their time is over, whether or not anybody asks."""
        await self._context.store.forget_secrets()

    async def prune(self) -> None:
        """Delete finished jobs past their retention, in small batches with rests between them."""
        context = self._context
        while True:
            began = context.clock.monotonic_ms()
            gone, unused = await context.store.prune(PRUNE_BATCH)
            self._unused.update(unused)
            if gone < PRUNE_BATCH:
                break
            took_s = (context.clock.monotonic_ms() - began) / 1000
            await asyncio.sleep(max(PRUNE_REST_S, PRUNE_RESTS * took_s))
        await self._discard()
        await context.store.forget_keys()
        # A request stays valid for the skew on both sides of its time.
        memory_ms = max(NONCE_MEMORY_MS, 2 * context.config.signature_skew_ms)
        await context.store.forget_nonces(memory_ms)

    async def collect(self) -> None:
        """Find stored payloads that no job needs, left by a crash or by a submit that came to nothing."""
        self._unused.update(await self._context.payloads.stored(self._long_ago()))
        await self._discard()

    def _long_ago(self) -> int:
        return self._context.clock.now_ms() - UNUSED_MS

    async def _discard(self) -> None:
        """Remove payloads that have had no use for an hour.

        A job being submitted puts its bytes before its row is there: bytes put lately stay.
        """
        context = self._context
        for sha256 in list(self._unused):
            used = await context.store.payload_used(sha256)
            if used or await context.payloads.discard(sha256, self._long_ago()):
                self._unused.discard(sha256)

    async def write_seen(self) -> None:
        """Write down when agents were last seen, those whose last word would be too old by the next time.

        Whoever is held is there now. A server that dies takes no agent's minute with it.
        """
        context = self._context
        for agent in context.held.agents:
            context.saw(agent)
        now = context.clock.now_ms()
        enough = now + context.config.seen_ms - WRITTEN_MS
        self._written = {agent: at for agent, at in self._written.items() if at > enough}
        await self._write_seen(
            {agent: at for agent, at in context.seen.items() if agent not in self._written}
        )

    async def _write_seen(self, moments: dict[bytes, int]) -> None:
        """Write some down, with room for others between the transactions."""
        seen = self._context.seen
        waiting = list(moments.items())
        for first in range(0, len(waiting), SEEN_BATCH):
            some = dict(waiting[first : first + SEEN_BATCH])
            await self._context.store.registry.seen(some)
            self._written.update(some)
            for agent, at in some.items():
                if seen.get(agent) == at:
                    del seen[agent]
            await asyncio.sleep(0)
