"""A clock that stands still until it is told to go on."""


class FakeClock:
    """Wall and monotonic time in whole milliseconds, moved by hand."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._wall = now_ms
        self._monotonic = 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return self._wall

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back."""
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let time pass. Raises ValueError for a negative time."""
        if ms < 0:
            raise ValueError("time does not go back; use jump for a wall clock that was set")
        self._wall += ms
        self._monotonic += ms

    def advance_to(self, moment: int) -> None:
        """Let time pass until a moment; nothing happens when it is over already."""
        self.advance(max(0, moment - self._wall))

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back, as a person or NTP does; monotonic time stays."""
        self._wall += ms
