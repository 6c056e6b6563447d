"""Policies: the numbers and choices of a kind of job."""

import dataclasses
import difflib
import types
from dataclasses import dataclass
from typing import Literal, Self, get_args, get_origin, get_type_hints

from farhand.model.errors import FarhandError

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

Loss = Literal["queued", "uncertain", "failed"]
Settler = Literal["agent", "telemetry"]
Lane = Literal["device", "owner", "farm", "agent"]


class PolicyError(FarhandError):
    """A policy override that names no field or carries an impossible value."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the engine needs to know about a kind; every field is explicit.

    Durations are milliseconds, None means "no such limit". `seed_lease_ms` is the lease of
    work without heartbeats: of a claim made in a seed dialect, and, where telemetry settles the
    job, of an attempt past its point of no return. `no_return_phase` is the phase from
    which a lost attempt is treated by `on_lost_running`; before it (or with None: before the
    start) a lost attempt goes back to the queue. `deadline_aborts` says whether the deadline
    also stops work in hand or only ends what still waits. `active_key` is a template over
    `{agent}` and `{kind}` of which one live job may exist.
    """

    start_by_ms: int | None
    deadline_ms: int | None
    deadline_aborts: bool
    exec_timeout_ms: int | None
    lease_ms: int
    seed_lease_ms: int
    hedge_after_ms: int | None
    max_open_attempts: int
    max_attempts: int
    backoff_base_ms: int
    backoff_cap_ms: int
    on_lost_running: Loss
    no_return_phase: str | None
    cancel_grace_ms: int
    settled_by: Settler
    lane: Lane
    active_key: str | None
    requires: tuple[str, ...]
    secret_fields: tuple[str, ...]
    result_ttl_ms: int | None
    retain_ms: int
    payload_bytes_max: int
    result_bytes_max: int

    def override(self, name: str, changes: dict[str, object]) -> Self:
        """A copy with the fields of a configuration table replaced.

        Raises PolicyError naming the field, and the nearest known one, when it does not fit.
        """
        known = get_type_hints(type(self))
        checked: dict[str, object] = {}
        for key, value in changes.items():
            if key not in known:
                raise PolicyError(f'[policy."{name}"] has no field {key!r}{suggest(key, known)}')
            checked[key] = _checked(name, key, value, known[key])
        return dataclasses.replace(self, **checked)  # pyright: ignore[reportArgumentType]  (checked above)


def suggest(word: str, known: object) -> str:
    """'; did you mean …?' for a near miss, else the empty string."""
    near = difflib.get_close_matches(word, [str(k) for k in known], n=1)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType, reportUnknownArgumentType]  (any iterable of names)
    return f"; did you mean {near[0]!r}?" if near else ""


def _checked(name: str, key: str, value: object, hint: object) -> object:
    where = f'[policy."{name}"] {key}'
    options = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
    if value == "none" and type(None) in options:
        return None
    for option in options:
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if get_origin(option) is tuple and isinstance(value, list):
            return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  (from TOML)
        if option is bool and isinstance(value, bool):
            return value
        if option is str and isinstance(value, str):
            return value
        if option is int and isinstance(value, int) and not isinstance(value, bool):
            if value < 0:
                raise PolicyError(f"{where} must not be negative, got {value}")
            return value
    expected = " or ".join(_words(option) for option in options)
    raise PolicyError(f"{where} must be {expected}, got {value!r}")


def _words(option: object) -> str:
    if get_origin(option) is Literal:
        return " or ".join(repr(choice) for choice in get_args(option))
    if option is type(None):
        return '"none"'
    if option is int:
        return "a whole number"
    if option is bool:
        return "true or false"
    return "a text" if option is str else "a list of texts"


BASE = Policy(
    start_by_ms=None,
    deadline_ms=None,
    deadline_aborts=True,
    exec_timeout_ms=None,
    lease_ms=60 * SECOND,
    seed_lease_ms=10 * MINUTE,
    hedge_after_ms=None,
    max_open_attempts=1,
    max_attempts=3,
    backoff_base_ms=30 * SECOND,
    backoff_cap_ms=10 * MINUTE,
    on_lost_running="queued",
    no_return_phase=None,
    cancel_grace_ms=30 * SECOND,
    settled_by="agent",
    lane="agent",
    active_key=None,
    requires=(),
    secret_fields=(),
    result_ttl_ms=None,
    retain_ms=30 * DAY,
    payload_bytes_max=64 * 1024 * 1024,
    result_bytes_max=1024 * 1024,
)

PRINT = dataclasses.replace(
    BASE,
    start_by_ms=14 * DAY,
    deadline_ms=14 * DAY,
    deadline_aborts=False,
    on_lost_running="uncertain",
    no_return_phase="spooling",
    lane="device",
)

FETCH_SAFE = dataclasses.replace(
    BASE,
    start_by_ms=60 * SECOND,
    deadline_ms=5 * MINUTE,
    lease_ms=20 * SECOND,
    seed_lease_ms=25 * SECOND,
    hedge_after_ms=15 * SECOND,
    max_open_attempts=2,
    backoff_base_ms=0,
    lane="owner",
)

FETCH_UNSAFE = dataclasses.replace(
    FETCH_SAFE,
    hedge_after_ms=None,
    max_open_attempts=1,
    max_attempts=1,
    on_lost_running="uncertain",
)

FARM = dataclasses.replace(
    BASE,
    seed_lease_ms=DAY,
    max_attempts=1,
    on_lost_running="uncertain",
    no_return_phase="starting",
    settled_by="telemetry",
    lane="farm",
    payload_bytes_max=1024 * 1024 * 1024,
)

COMMAND = dataclasses.replace(
    BASE,
    start_by_ms=5 * MINUTE,
    deadline_ms=15 * MINUTE,
    seed_lease_ms=5 * MINUTE,
    lane="agent",
    active_key="{agent}:{kind}",
)
