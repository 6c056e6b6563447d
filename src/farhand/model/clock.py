"""Time, injected everywhere so that tests own it."""

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time in whole milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back and counts suspend where the system can."""
        ...


class SystemClock:
    """The machine's own clocks.

    Monotonic time is CLOCK_BOOTTIME where it exists: CLOCK_MONOTONIC stops while a Linux
    machine is suspended, and a lease does not.
    """

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since boot, suspend included where the system can say."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        return time.monotonic_ns() // 1_000_000


def to_rfc3339(ms: int) -> str:
    """Integer milliseconds as RFC 3339 with milliseconds and Z."""
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def from_rfc3339(text: str) -> int:
    """RFC 3339 as integer milliseconds UTC.

    Raises ValueError when the text is no date-time or carries no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("the time carries no offset; end it in Z")
    return int(moment.timestamp() * 1000)
