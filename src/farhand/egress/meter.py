"""What one connection may read, and how slowly."""

from farhand.egress.errors import EgressError
from farhand.egress.policy import EgressPolicy
from farhand.model.clock import Clock

HEAD_BYTES_MAX = 64 * 1024
# One read may bring the end of the head and the start of the body together.
READ_BYTES = 64 * 1024


class Meter:
    """Counts bytes and waiting time of a connection against the policy.

    Only time spent waiting for the target counts: a slow receiver of the body is not its fault.
    """

    def __init__(self, policy: EgressPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._waited_ms = 0
        # Framing of a chunked body costs bytes too; the exact count is the body's own.
        self._raw_bytes_max = 2 * policy.wire_bytes_max + HEAD_BYTES_MAX + READ_BYTES
        self.raw_bytes = 0
        self.head_done = False
        self.ended = False
        self.first_byte_at_ms: int | None = None

    def now_ms(self) -> int:
        """The injected clock's monotonic time."""
        return self._clock.monotonic_ms()

    def patience_ms(self) -> int | None:
        """How long the next byte may take; None before the first, where the total limit holds."""
        if self.first_byte_at_ms is None:
            return None
        earned = self.raw_bytes * 1000 // self._policy.min_rate_bytes_per_s
        # Bytes that came fast do not buy a long silence.
        earned = min(earned, self._waited_ms)
        return max(self._policy.min_rate_after_ms + earned - self._waited_ms, 1)

    def arrived(self, data: bytes, *, waited_ms: int) -> None:
        """Account for one read. Raises EgressError `too-large` past the limits."""
        if self.first_byte_at_ms is None:
            self.first_byte_at_ms = self.now_ms()
        else:
            self._waited_ms += waited_ms
        self.ended = not data
        self.raw_bytes += len(data)
        if not self.head_done and self.raw_bytes > HEAD_BYTES_MAX + READ_BYTES:
            raise head_too_large()
        if self.raw_bytes > self._raw_bytes_max:
            raise wire_too_large(self._policy.wire_bytes_max)


def head_too_large() -> EgressError:
    """The error for header fields that go on and on."""
    return EgressError(
        "too-large",
        f"the target's header fields exceed {HEAD_BYTES_MAX} bytes or 100 fields",
        source="target",
    )


def wire_too_large(limit: int) -> EgressError:
    """The error for a body that is too long as it arrives."""
    return EgressError("too-large", f"the target sends more than the {limit} bytes allowed", source="target")


def too_slow(policy: EgressPolicy) -> EgressError:
    """The error for a target that drips."""
    return EgressError(
        "timeout",
        f"the target sends fewer than {policy.min_rate_bytes_per_s} bytes a second; try later",
        source="target",
    )
