"""How much and how slowly one connection may be read."""

import pytest

from farhand.egress import EgressError, EgressPolicy
from farhand.egress.headers import read_head
from farhand.egress.meter import Meter


class _Stopped:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


def _meter(**numbers: int) -> Meter:
    policy = EgressPolicy(min_rate_after_ms=10_000, min_rate_bytes_per_s=1000, **numbers)
    return Meter(policy, _Stopped())


def test_the_first_byte_has_all_the_time_there_is() -> None:
    assert _meter().patience_ms() is None


def test_bytes_that_came_fast_do_not_buy_a_long_silence() -> None:
    meter = _meter()
    meter.arrived(b"x" * 100_000, waited_ms=5)
    meter.arrived(b"x" * 20_000, waited_ms=5)
    assert meter.patience_ms() == 10_000


def test_waiting_uses_up_the_grace_and_bytes_earn_time() -> None:
    meter = _meter()
    meter.arrived(b"H", waited_ms=3_000)
    meter.arrived(b"x" * 2_999, waited_ms=8_000)
    assert meter.patience_ms() == 10_000 + 3_000 - 8_000
    meter.arrived(b"x", waited_ms=60_000)
    assert meter.patience_ms() == 1


def test_a_head_that_goes_on_is_too_large_long_before_the_body_limit() -> None:
    meter = _meter(wire_bytes_max=100_000_000)
    meter.arrived(bytes(128 * 1024), waited_ms=0)
    with pytest.raises(EgressError) as failure:
        meter.arrived(b"x", waited_ms=0)
    assert failure.value.code == "too-large"


def test_framing_may_double_a_body_and_no_more() -> None:
    meter = _meter(wire_bytes_max=1000)
    meter.head_done = True
    meter.arrived(bytes(2000 + 128 * 1024), waited_ms=0)
    with pytest.raises(EgressError, match="1000 bytes"):
        meter.arrived(b"x", waited_ms=0)


def test_the_end_of_the_stream_is_remembered() -> None:
    meter = _meter()
    meter.arrived(b"x", waited_ms=0)
    assert not meter.ended
    meter.arrived(b"", waited_ms=0)
    assert meter.ended


def test_an_interim_status_is_no_answer() -> None:
    with pytest.raises(EgressError, match="switch protocols"):
        read_head(101, b"", b"HTTP/1.1", [])
