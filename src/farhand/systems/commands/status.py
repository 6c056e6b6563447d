"""The command queue's six words for the states of a job."""

from collections.abc import Mapping
from typing import Final

from farhand.model.job import State

STATUS_OF: Final[Mapping[State, str]] = {
    State.SCHEDULED: "pending",
    State.QUEUED: "pending",
    State.CLAIMED: "in_progress",
    State.RUNNING: "in_progress",
    # Not over: it keeps its active key, and a person or a late report still says how it ended.
    State.UNCERTAIN: "in_progress",
    State.DONE: "completed",
    State.FAILED: "failed",
    State.EXPIRED: "expired",
    State.CANCELLED: "cancelled",
}


def status_of(state: str) -> str:
    """The word for a state."""
    return STATUS_OF[State(state)]


def states_of(status: str) -> tuple[str, ...]:
    """The states behind a word, none for a word that is no status."""
    return tuple(str(state) for state, word in STATUS_OF.items() if word == status)
