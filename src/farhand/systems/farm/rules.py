"""What a job becomes when its printer is seen in some state. Pure; nothing here reads or writes.

`decide` is asked at every snapshot of a printer that a job occupies, `gate` at every snapshot of
any printer. A state that means an end counts with proof that it is this attempt's: its identity,
or that the same run of the gateway saw this attempt at work.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from farhand.model.job import UPLOAD_TIMEOUT, State

UPLOAD_STALL_MS: Final = 20 * 60_000
START_WATCH_MS: Final = 30_000
NEARLY_DONE: Final = 99.0


class Seen(StrEnum):
    """The state of a machine, whatever its brand calls it."""

    IDLE = "idle"
    PREPARING = "preparing"
    PRINTING = "printing"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    ERROR = "error"
    BUSY = "busy"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


class Whose(StrEnum):
    """Whose print the machine shows: this attempt's, another one, or it does not say."""

    OURS = "ours"
    FOREIGN = "foreign"
    NONE = "none"


class Status(StrEnum):
    """Where a farm job stands: its state, and inside `running` its phase."""

    QUEUED = "queued"
    ASSIGNED = "assigned"
    UPLOADING = "uploading"
    STARTING = "starting"
    PRINTING = "printing"
    PAUSED = "paused"
    UNCERTAIN = "uncertain"
    REAPED = "reaped"
    OVER = "over"


class Kind(StrEnum):
    """What to do with the job."""

    KEEP = "keep"
    STALE = "stale"
    ADVANCE = "advance"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNCERTAIN = "uncertain"
    REQUEUE = "requeue"


ACTIVE: Final = frozenset({Seen.PREPARING, Seen.PRINTING, Seen.PAUSED})
ENDED: Final = frozenset({Seen.FINISHED, Seen.CANCELLED, Seen.FAILED})
SILENT: Final = frozenset({Seen.OFFLINE, Seen.UNKNOWN})
READY: Final = ENDED | {Seen.IDLE}
"""States in which a machine takes a new print, if its bed is clear and nothing holds it."""

_PHASES: Final = {Seen.PREPARING: "starting", Seen.PRINTING: "printing", Seen.PAUSED: "paused"}
_ENDS: Final = {Seen.FINISHED: Kind.DONE, Seen.CANCELLED: Kind.CANCELLED, Seen.FAILED: Kind.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One snapshot of a printer, as far as it concerns the job that occupies it.

    `full` is False for what a gateway says before it has looked at the machine itself.
    `was_active`: this run of the gateway saw this attempt at work; `edge`: it saw the machine
    inactive and then sent the start. `start_sent`: the start may have left the gateway.
    `percent` is the last progress known of this attempt. `unchanged_ms` is how long its phase
    has been without progress; `watch_ms` how long this machine may take to react to a start.
    """

    seen: Seen
    whose: Whose = Whose.NONE
    full: bool = True
    was_active: bool = False
    edge: bool = False
    start_sent: bool = False
    percent: float | None = None
    unchanged_ms: int = 0
    watch_ms: int = START_WATCH_MS
    cancel_requested: bool = False
    reason: str | None = None

    @property
    def proven(self) -> bool:
        """Whether an end that is seen is surely this attempt's."""
        return self.whose == Whose.OURS or (self.whose == Whose.NONE and self.was_active)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do: with `adopt` the job is first taken back from where it had ended.

    `inferred` marks a success that nobody saw; `phase` goes with ADVANCE.
    """

    kind: Kind
    phase: str | None = None
    reason: str | None = None
    adopt: bool = False
    inferred: bool = False


_KEEP: Final = Decision(kind=Kind.KEEP)


def status_of(state: str, phase: str | None, reason: str | None) -> Status:
    """A job's place in the table."""
    if state in (State.QUEUED, State.SCHEDULED):
        return Status.QUEUED
    if state == State.CLAIMED:
        return Status.ASSIGNED
    if state == State.UNCERTAIN:
        return Status.UNCERTAIN
    if state == State.FAILED and reason == UPLOAD_TIMEOUT:
        return Status.REAPED
    if state != State.RUNNING:
        return Status.OVER
    phases = {"starting": Status.STARTING, "printing": Status.PRINTING, "paused": Status.PAUSED}
    return phases.get(phase or "", Status.UPLOADING)


def decide(status: Status, seen: Observation) -> Decision:
    """What becomes of the job."""
    if status in (Status.QUEUED, Status.OVER) or not seen.full:
        return _KEEP
    if status == Status.ASSIGNED:
        return _assigned(seen)
    if status in (Status.UNCERTAIN, Status.REAPED):
        return _given_up(status, seen)
    if status == Status.UPLOADING:
        found = _uploading(seen)
    elif status == Status.STARTING:
        found = _starting(seen)
    else:
        found = _at_work(seen)
    return _under_cancel(found, seen)


def _assigned(seen: Observation) -> Decision:
    """Offered and not yet taken: whatever is at work there is another's, unless it says otherwise."""
    if seen.seen in ACTIVE:
        if seen.whose == Whose.OURS:
            return _advance(seen)
        return _taken(seen)
    if seen.seen == Seen.ERROR:
        return Decision(kind=Kind.REQUEUE, reason=_because("the printer reports an error", seen))
    return _silent(seen)


def _uploading(seen: Observation) -> Decision:
    if seen.seen in ACTIVE:
        if seen.whose == Whose.OURS or (seen.whose == Whose.NONE and seen.start_sent and seen.edge):
            return _advance(seen)
        if seen.start_sent:
            return _stranger(seen)
        return _taken(seen)
    if seen.seen == Seen.FINISHED and seen.whose == Whose.OURS and seen.start_sent:
        return _end(seen)
    if seen.seen in (Seen.CANCELLED, Seen.FAILED) and seen.whose == Whose.OURS:
        return _end(seen)
    if seen.seen == Seen.ERROR:
        reason = _because("the printer reports an error; the file may be on it", seen)
        return Decision(kind=Kind.FAILED, reason=reason)
    if seen.unchanged_ms < UPLOAD_STALL_MS:
        return _silent(seen)
    if seen.start_sent:
        return Decision(kind=Kind.UNCERTAIN, reason="the upload stands still, and a start may have been sent")
    return Decision(kind=Kind.FAILED, reason=UPLOAD_TIMEOUT)


def _starting(seen: Observation) -> Decision:
    """The start was sent: only what names the job, or follows it within one run, counts."""
    if seen.seen in ACTIVE:
        if seen.whose == Whose.OURS or (seen.whose == Whose.NONE and seen.edge):
            return _advance(seen)
        if seen.whose == Whose.FOREIGN:
            return _stranger(seen)
        return _watched(seen)
    if seen.seen in ENDED and (seen.whose == Whose.OURS or (seen.seen == Seen.FAILED and seen.proven)):
        return _end(seen)
    if seen.seen == Seen.ERROR:
        return Decision(kind=Kind.FAILED, reason=_because("the printer reports an error", seen))
    if seen.seen in SILENT:
        return _silent(seen)
    return _watched(seen)


def _watched(seen: Observation) -> Decision:
    if seen.unchanged_ms < seen.watch_ms:
        return _KEEP
    seconds = seen.watch_ms // 1000
    reason = f"the start was sent, and for {seconds} s the printer has shown nothing of it"
    return Decision(kind=Kind.UNCERTAIN, reason=reason)


def _at_work(seen: Observation) -> Decision:
    """The print was seen going on, and maybe paused."""
    if seen.seen in ACTIVE:
        return _stranger(seen) if seen.whose == Whose.FOREIGN else _advance(seen, working=True)
    if seen.seen in ENDED:
        return _end(seen) if seen.proven else _unknown_end(seen)
    if seen.seen == Seen.ERROR:
        if not seen.proven:
            return _unknown_end(seen)
        return Decision(kind=Kind.FAILED, reason=_because("the printer stopped with an error", seen))
    if seen.seen == Seen.IDLE:
        return _idle_at_work(seen)
    return _silent(seen)


def _idle_at_work(seen: Observation) -> Decision:
    """Idle alone is no success; idle after the very last percent, seen all along, is one."""
    if seen.cancel_requested:
        return Decision(kind=Kind.CANCELLED, reason="the printer is idle after the cancel request")
    if seen.proven and seen.percent is not None and seen.percent >= NEARLY_DONE:
        reason = f"idle after {seen.percent:.0f} %; the end itself was not seen"
        return Decision(kind=Kind.DONE, reason=reason, inferred=True)
    return Decision(kind=Kind.UNCERTAIN, reason="the printer is idle, and nobody saw how the print ended")


def _given_up(status: Status, seen: Observation) -> Decision:
    """Only the job's own name in the telemetry brings it back."""
    if seen.whose != Whose.OURS:
        return _KEEP
    if seen.seen in ACTIVE:
        return replace(_advance(seen), adopt=True)
    if seen.seen == Seen.FINISHED or (status == Status.UNCERTAIN and seen.seen in ENDED):
        return replace(_end(seen), adopt=True)
    return _KEEP


def _advance(seen: Observation, *, working: bool = False) -> Decision:
    """Into the phase that is seen; a print at work that heats up again stays where it is."""
    if working and seen.seen == Seen.PREPARING:
        return Decision(kind=Kind.ADVANCE, phase="printing", reason=seen.reason)
    reason = seen.reason if seen.seen != Seen.PAUSED else (seen.reason or "paused")
    return Decision(kind=Kind.ADVANCE, phase=_PHASES[seen.seen], reason=reason)


def _end(seen: Observation) -> Decision:
    words = {
        Seen.FINISHED: None,
        Seen.CANCELLED: _because("cancelled at the printer", seen),
        Seen.FAILED: _because("the printer reports that the print failed", seen),
    }
    return Decision(kind=_ENDS[seen.seen], reason=words[seen.seen])


def _unknown_end(seen: Observation) -> Decision:
    whose = "another print" if seen.whose == Whose.FOREIGN else "a print without a name"
    return Decision(kind=Kind.UNCERTAIN, reason=f"the printer shows {whose} as {seen.seen}")


def _stranger(seen: Observation) -> Decision:
    return Decision(kind=Kind.UNCERTAIN, reason=f"the printer is now {seen.seen} with another print")


def _taken(seen: Observation) -> Decision:
    reason = f"the printer was taken by another print ({seen.seen}) before ours was started"
    return Decision(kind=Kind.REQUEUE, reason=reason)


def _silent(seen: Observation) -> Decision:
    return Decision(kind=Kind.STALE) if seen.seen in SILENT else _KEEP


def _because(what: str, seen: Observation) -> str:
    return f"{what}: {seen.reason}" if seen.reason else what


def _under_cancel(found: Decision, seen: Observation) -> Decision:
    """Once a cancel was asked for, every end is a cancellation, except a finish with our name."""
    if not seen.cancel_requested:
        return found
    unnamed = found.kind == Kind.DONE and seen.whose != Whose.OURS
    if unnamed or found.kind == Kind.FAILED:
        return Decision(kind=Kind.CANCELLED, reason=found.reason)
    return found


class Gate(StrEnum):
    """What a snapshot means for what holds the printer."""

    KEEP = "keep"
    FOREIGN = "foreign"
    BED = "bed"
    FREE = "free"


def gate(
    hold: str | None, seen: Seen, *, print_key: str, cleared_key: str | None, self_clearing: bool
) -> Gate:
    """Whether a printer is taken, has to be cleared, or is free again.

    `hold` is the reason of its hold. `print_key` names the print that the machine shows;
    `cleared_key` the one that it showed when the bed was last cleared: a finish that stays on
    the display does not fill the bed again.
    """
    if hold == "job":
        return Gate.KEEP
    if hold == "bed":
        return Gate.FREE if self_clearing and seen in READY else Gate.KEEP
    if seen in ACTIVE:
        return Gate.KEEP if hold == "foreign" else Gate.FOREIGN
    if hold == "foreign":
        return Gate.BED if seen in READY or seen == Seen.ERROR else Gate.KEEP
    if seen in ENDED and print_key != cleared_key:
        return Gate.BED
    return Gate.KEEP


def table() -> str:
    """The rules as a Markdown table, for docs/systems/farm.md."""
    names = [str(seen) for seen in Seen]
    lines = ["| job \\ seen | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for status in Status:
        cells = [_cell(status, seen) for seen in Seen]
        lines.append(f"| **{status}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(status: Status, seen: Seen) -> str:
    started = status in (Status.STARTING, Status.PRINTING, Status.PAUSED)
    words: dict[str, list[str]] = {}
    for whose in Whose:
        found = decide(
            status, Observation(seen=seen, whose=whose, start_sent=started, edge=started, was_active=started)
        )
        word = found.phase if found.kind == Kind.ADVANCE and found.phase else str(found.kind)
        word = "=" if found.kind == Kind.KEEP else word
        words.setdefault(f"adopt, {word}" if found.adopt else word, []).append(whose[0])
    if len(words) == 1:
        return next(iter(words))
    return "; ".join(f"{''.join(letters)}: {word}" for word, letters in words.items())
