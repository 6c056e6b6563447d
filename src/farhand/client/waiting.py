"""Waiting for something that the server holds a read of until it changes."""

import math
from collections.abc import Callable
from typing import Final, TypeVar

from farhand.client.plan import Call, Pause, Plan, ask
from farhand.model.clock import Clock, SystemClock
from farhand.model.errors import FarhandError

HOLD_S: Final = 20
WAIT_PATIENCE_MS: Final = 600_000
IDLE_MS: Final = 500

T = TypeVar("T")


def watch(
    look: Callable[[int, int | None], Call[T]],
    is_over: Callable[[T], bool],
    still_open: Callable[[T], FarhandError],
    *,
    timeout_ms: int | None,
    on_change: Callable[[T], None] | None,
    hold_s: int,
    clock: Clock | None,
) -> Plan[T]:
    """Looks until it is over. `look` makes a read held for so many seconds, tried again for so
    many milliseconds.

    `on_change` is called with what is first seen and with every change. Raises `still_open` of
    what was last seen when `timeout_ms` passed before.
    """
    clock = clock or SystemClock()
    until = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
    patience = WAIT_PATIENCE_MS if timeout_ms is None else timeout_ms
    seen = yield from ask(look(0, None))
    while True:
        if on_change is not None:
            on_change(seen)
        before = seen
        while seen == before:
            if is_over(before):
                return before
            left = hold_s * 1000 if until is None else until - clock.monotonic_ms()
            if left <= 0:
                raise still_open(before)
            asked = clock.monotonic_ms()
            hold = min(hold_s, math.ceil(left / 1000))
            seen = yield from ask(look(hold, patience))
            if seen == before and clock.monotonic_ms() - asked < IDLE_MS:
                yield Pause(ms=IDLE_MS)
