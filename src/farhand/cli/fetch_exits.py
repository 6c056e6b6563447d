"""The exit codes of `farhand fetch`: curl's where curl has one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from farhand.client import FetchFailed

PARTIAL: Final = 18
UNWELCOME: Final = 22
UNWRITTEN: Final = 23
TIMEOUT: Final = 28
TOO_LARGE: Final = 63
REFUSED: Final = 110
AGENT: Final = 114

BY_CODE: Final[Mapping[str, int]] = {
    "bad-url": 3,
    "dns": 6,
    "connect": 7,
    "protocol": 8,
    "timeout": TIMEOUT,
    "bad-range": 33,
    "tls": 35,
    "certificate": 60,
    "too-many-redirects": 47,
    "content-coding": 61,
    "too-large": TOO_LARGE,
    "decompression-limit": TOO_LARGE,
    "result-too-large": TOO_LARGE,
}
"""By the code of a failure; one that is not here goes by its source."""

BY_SOURCE: Final[Mapping[str, int]] = {"target": 56, "resolver": 6, "policy": REFUSED, "agent": AGENT}
BY_STATE: Final[Mapping[str, int]] = {"expired": 111, "uncertain": 112, "cancelled": 113}


def exit_of_code(code: str, source: str) -> int:
    """The exit code for a failure."""
    return BY_CODE.get(code) or BY_SOURCE.get(source, AGENT)


def exit_of_failure(failure: "FetchFailed") -> int:
    """The exit code for a job that brought no answer."""
    by_state = BY_STATE.get(failure.job.state)
    if by_state is not None:
        return by_state
    return AGENT if failure.why is None else exit_of_code(failure.why.code, failure.why.source)
