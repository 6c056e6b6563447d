"""Waiting that ends at once when the machine was asleep."""

import asyncio
from typing import Final

from farhand.model.clock import Clock

TICK_MS: Final = 1_000
JUMP_MS: Final = 5_000


class Waker:
    """Notices that time has passed without us (suspend, a stopped process) and wakes waits.

    Timers of the event loop stand still while the machine sleeps; leases and connections of
    the other side do not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: set[asyncio.Event] = set()

    def listen(self, event: asyncio.Event) -> None:
        """Set this event at every wake, until `forget`."""
        self._listeners.add(event)

    def forget(self, event: asyncio.Event) -> None:
        """No longer set this event."""
        self._listeners.discard(event)

    def wake(self) -> None:
        """End every wait now."""
        for event in self._listeners:
            event.set()

    async def sleep(self, ms: int) -> None:
        """Wait, at most until the next wake."""
        woken = asyncio.Event()
        self.listen(woken)
        try:
            await within(woken, ms)
        finally:
            self.forget(woken)

    async def next_jump(self) -> int:
        """Return, once it happens, how many milliseconds passed without us."""
        while True:
            before = self._clock.monotonic_ms()
            await asyncio.sleep(TICK_MS / 1000)
            missing = self._clock.monotonic_ms() - before - TICK_MS
            if missing >= JUMP_MS:
                return missing


async def within(event: asyncio.Event, ms: int) -> bool:
    """Wait for an event, at most so long; whether it is set."""
    try:
        async with asyncio.timeout(ms / 1000):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
