"""The state machine as a table: from a state, by a verb, to the states that may follow.

A pair that is not in the table is refused and changes nothing. Which of several states
follows is decided by the rules in `farhand.engine`; SQL repeats the guard.
"""

from collections.abc import Mapping
from typing import Final

from farhand.model.job import State, Verb

S = State
V = Verb

TRANSITIONS: Final[dict[tuple[State | None, Verb], frozenset[State]]] = {
    (None, V.SUBMIT): frozenset({S.QUEUED, S.SCHEDULED}),
    (S.SCHEDULED, V.PROMOTE): frozenset({S.QUEUED}),
    (S.QUEUED, V.CLAIM): frozenset({S.CLAIMED}),
    (S.CLAIMED, V.CLAIM): frozenset({S.CLAIMED}),
    (S.RUNNING, V.CLAIM): frozenset({S.RUNNING}),
    (S.CLAIMED, V.START): frozenset({S.RUNNING}),
    (S.RUNNING, V.START): frozenset({S.RUNNING}),
    (S.CLAIMED, V.HEARTBEAT): frozenset({S.CLAIMED}),
    (S.CLAIMED, V.REPORT): frozenset({S.CLAIMED}),
    (S.RUNNING, V.HEARTBEAT): frozenset({S.RUNNING}),
    (S.RUNNING, V.REPORT): frozenset({S.RUNNING}),
    (S.CLAIMED, V.SETTLE): frozenset({S.DONE, S.FAILED, S.SCHEDULED, S.CANCELLED, S.CLAIMED}),
    (S.RUNNING, V.SETTLE): frozenset({S.DONE, S.FAILED, S.SCHEDULED, S.CANCELLED, S.RUNNING, S.CLAIMED}),
    (S.QUEUED, V.SETTLE): frozenset({S.FAILED, S.DONE}),
    (S.SCHEDULED, V.SETTLE): frozenset({S.DONE}),
    (S.UNCERTAIN, V.SETTLE): frozenset({S.DONE, S.FAILED}),
    (S.CLAIMED, V.RELEASE): frozenset({S.QUEUED, S.CANCELLED, S.FAILED, S.SCHEDULED, S.CLAIMED}),
    (S.RUNNING, V.RELEASE): frozenset({S.QUEUED, S.CANCELLED, S.FAILED, S.SCHEDULED, S.CLAIMED, S.RUNNING}),
    (S.CLAIMED, V.REFUSE): frozenset({S.QUEUED, S.CANCELLED, S.FAILED, S.SCHEDULED, S.CLAIMED}),
    (S.RUNNING, V.REFUSE): frozenset({S.QUEUED, S.CANCELLED, S.FAILED, S.SCHEDULED, S.CLAIMED, S.RUNNING}),
    (S.CLAIMED, V.RECLAIM): frozenset({S.QUEUED, S.FAILED, S.CANCELLED, S.SCHEDULED, S.CLAIMED}),
    (S.RUNNING, V.RECLAIM): frozenset(
        {S.QUEUED, S.UNCERTAIN, S.FAILED, S.CANCELLED, S.SCHEDULED, S.CLAIMED, S.RUNNING}
    ),
    (S.QUEUED, V.EXPIRE): frozenset({S.EXPIRED, S.FAILED}),
    (S.SCHEDULED, V.EXPIRE): frozenset({S.EXPIRED, S.FAILED}),
    (S.CLAIMED, V.EXPIRE): frozenset({S.CLAIMED}),
    (S.RUNNING, V.EXPIRE): frozenset({S.RUNNING}),
    (S.SCHEDULED, V.CANCEL): frozenset({S.CANCELLED}),
    (S.QUEUED, V.CANCEL): frozenset({S.CANCELLED}),
    (S.CLAIMED, V.CANCEL): frozenset({S.CANCELLED, S.CLAIMED}),
    (S.RUNNING, V.CANCEL): frozenset({S.RUNNING}),
    (S.UNCERTAIN, V.RESOLVE): frozenset({S.DONE, S.FAILED}),
    (S.UNCERTAIN, V.RETRY): frozenset({S.FAILED}),
    (S.DONE, V.RETRY): frozenset({S.DONE}),
    (S.FAILED, V.RETRY): frozenset({S.FAILED}),
    (S.CANCELLED, V.RETRY): frozenset({S.CANCELLED}),
    (S.EXPIRED, V.RETRY): frozenset({S.EXPIRED}),
    (S.UNCERTAIN, V.ADOPT): frozenset({S.RUNNING}),
    (S.FAILED, V.ADOPT): frozenset({S.RUNNING}),
}

_FOLLOWING: Final[Mapping[tuple[str | None, Verb], frozenset[State]]] = dict(TRANSITIONS.items())


def allowed(state: str | None, verb: Verb) -> frozenset[State]:
    """The states that may follow; empty when the verb is refused in this state."""
    return _FOLLOWING.get((state, verb), frozenset())


def diagram() -> str:
    """The table as a Mermaid state diagram, for docs/concepts.md."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (source, verb), targets in TRANSITIONS.items():
        for target in sorted(targets):
            if source == target:
                continue
            arrows.setdefault((str(source or "[*]"), str(target)), []).append(str(verb))
    lines = ["stateDiagram-v2"]
    lines += [f"    {a} --> {b}: {', '.join(verbs)}" for (a, b), verbs in arrows.items()]
    lines += [f"    {state} --> [*]" for state in ("done", "failed", "cancelled", "expired")]
    return "\n".join(lines) + "\n"
