"""How often one host is asked."""

import asyncio
from typing import Final

from farhand.model.clock import Clock

PATIENCE_MS: Final = 10_000
HOSTS_MAX: Final = 1_000


class Crowded(Exception):
    """So many requests for one host wait here that this one would wait too long."""


class Pace:
    """Lets a second's worth of requests to a host through at once, and the rest at the rate.

    `per_second` 0 means no limit. The host is the one that a request names, not those that it
    is redirected to.
    """

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._interval_ms = 1000 / per_second if per_second else 0
        self._clock = clock
        self._due: dict[str, float] = {}

    async def turn(self, host: str) -> None:
        """Returns when it is this request's turn. Raises Crowded when that is too far off."""
        wait_ms = self._wait_ms(host)
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

    def _wait_ms(self, host: str) -> float:
        if not self._interval_ms:
            return 0
        now = self._clock.monotonic_ms()
        due = max(self._due.get(host, 0), now)
        wait_ms = due + self._interval_ms - 1000 - now
        if wait_ms > PATIENCE_MS:
            raise Crowded(host)
        if len(self._due) >= HOSTS_MAX:
            self._due = {name: at for name, at in self._due.items() if at > now}
        self._due[host] = due + self._interval_ms
        return wait_ms
