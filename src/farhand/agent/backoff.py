"""How long to wait before asking again."""

import secrets


class Backoff:
    """Doubling waits up to a cap, every one of them with jitter, the first one too.

    Without jitter on the first retry all agents would come back at the same moment.
    """

    def __init__(self, *, first_ms: int = 1_000, cap_ms: int = 60_000) -> None:
        self._first_ms = min(first_ms, cap_ms)
        self._cap_ms = cap_ms
        self._failures = 0

    def next_ms(self, at_least_ms: int | None = None) -> int:
        """The next wait. `at_least_ms` is what the server asked for; jitter then only adds. 0 means
        that nothing speaks against asking at once.
        """
        if at_least_ms == 0:
            return 0
        window = min(self._cap_ms, self._first_ms << min(self._failures, 20))
        self._failures += 1
        if at_least_ms:
            return at_least_ms + secrets.randbelow(min(self._first_ms, at_least_ms) + 1)
        return window // 2 + secrets.randbelow(window // 2 + 1)

    def reset(self) -> None:
        """It worked: start over with short waits."""
        self._failures = 0
