"""What a type of command is: its name, its policy, the shape of its params."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from farhand.model.policy import DAY, SECOND, Policy

FAMILY: Final = "command."
WINDOW_FACTOR: Final = 4
WINDOW_MAX_MS: Final = DAY
PARAMS_BYTES_MAX: Final = 64 * 1024
_TYPE: Final = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandType:
    """A type as a Python package declares it under the entry-point group `farhand.commands`.

    `policy` holds policy fields by name, `params_schema` is a JSON Schema for the params.
    """

    type: str
    policy: Mapping[str, object] = field(default_factory=dict[str, object])
    params_schema: Mapping[str, Any] | None = None


def kind_of(type_name: str) -> str:
    """The job kind of a command type."""
    return FAMILY + type_name


def type_of(kind: str) -> str:
    """The command type of a job kind."""
    return kind.removeprefix(FAMILY)


def is_type_name(text: str) -> bool:
    """Whether a text can name a command type."""
    return len(text) <= 100 and _TYPE.fullmatch(text) is not None


def window_max_ms(policy: Policy) -> int:
    """The longest wait that one command of a type may ask for.

    Four times the declared window, but never longer than the command as a whole may take, nor
    than a day where the type itself declares no longer one.
    """
    limit = WINDOW_MAX_MS
    if policy.start_by_ms is not None:
        limit = max(policy.start_by_ms, min(limit, WINDOW_FACTOR * policy.start_by_ms))
    if policy.deadline_ms is not None:
        limit = min(limit, policy.deadline_ms)
    return max(limit, SECOND)
