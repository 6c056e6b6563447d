"""A 3D printer made of nothing but its state and the time that passes; pure."""

import re
from typing import Final

import msgspec

from farhand.systems.farm.drivers.base import Refused, Snapshot
from farhand.systems.farm.rules import READY, Seen

DURATION: Final = re.compile(rb"^;\s*virtual-ms:\s*(\d{1,9})\s*$", re.MULTILINE)
"""A line of a file that says how long the virtual printer prints it."""

ROOM: Final = 23.0
HOT: Final = 215.0


class Faults(msgspec.Struct):
    """What goes wrong: percents at which the print stops, and words that get lost.

    `lose_start` accepts a start and does nothing; `lose_reply` starts and answers nothing.
    """

    runout_at: float | None = None
    fail_at: float | None = None
    refuse_start: bool = False
    lose_start: bool = False
    lose_reply: bool = False
    nameless: bool = False
    upload_errors: int = 0


class Print(msgspec.Struct):
    """The print that the machine shows."""

    name: str
    started_at: int
    prepare_ms: int
    duration_ms: int
    paused_at: int | None = None
    paused_ms: int = 0
    reason: str | None = None
    ended: str | None = None


class Machine(msgspec.Struct):
    """The whole machine. `started` are all prints that it ever began, in order."""

    power: bool = True
    files: dict[str, int] = {}
    print: Print | None = None
    started: list[str] = []
    ended: list[tuple[str, str]] = []
    faults: Faults = msgspec.field(default_factory=Faults)


def advance(machine: Machine, now: int) -> None:
    """Let the time pass that has passed."""
    job = machine.print
    if job is None or job.ended is not None or job.paused_at is not None or not machine.power:
        return
    done = _percent(job, now)
    faults = machine.faults
    stops = [at for at in (faults.fail_at, faults.runout_at) if at is not None and at <= done]
    if stops and faults.fail_at == min(stops):
        faults.fail_at = None
        job.reason = "thermal runaway"
        _end(machine, "failed")
    elif stops:
        at, faults.runout_at = faults.runout_at or 0.0, None
        job.paused_at = _moment(job, at)
        job.reason = "filament runout"
    elif done >= 100.0:
        _end(machine, "finished")


def snapshot(machine: Machine, now: int) -> Snapshot:
    """What the machine shows."""
    advance(machine, now)
    if not machine.power:
        return Snapshot(state=Seen.OFFLINE, reason="the printer is switched off")
    job = machine.print
    if job is None:
        return Snapshot(state=Seen.IDLE, temperatures={"nozzle": ROOM, "bed": ROOM})
    name = None if machine.faults.nameless else job.name
    if job.ended is not None:
        percent = 100.0 if job.ended == "finished" else None
        return Snapshot(state=Seen(job.ended), identity=name, percent=percent, reason=job.reason)
    percent = max(0.0, min(100.0, _percent(job, now)))
    state = Seen.PRINTING
    if job.paused_at is not None:
        state = Seen.PAUSED
    elif _elapsed(job, now) < job.prepare_ms:
        state = Seen.PREPARING
    return Snapshot(
        state=state,
        identity=name,
        percent=percent,
        remaining_ms=int(job.duration_ms * (100.0 - percent) / 100.0),
        reason=job.reason,
        temperatures={"nozzle": HOT, "bed": 60.0},
    )


def start(machine: Machine, name: str, now: int, *, prepare_ms: int, duration_ms: int) -> None:
    """Begin a print. Raises Refused while the machine is at work or the file is not there."""
    shown = snapshot(machine, now)
    if shown.state not in READY:
        raise Refused(f"the printer is {shown.state}")
    if name not in machine.files:
        raise Refused(f"the printer has no file {name!r}")
    if machine.faults.refuse_start:
        raise Refused("the printer refuses commands from outside")
    if machine.faults.lose_start:
        return
    machine.started = [*machine.started, name]
    machine.print = Print(name=name, started_at=now, prepare_ms=prepare_ms, duration_ms=duration_ms)


def pause(machine: Machine, now: int) -> None:
    """Pause what is at work."""
    if snapshot(machine, now).state in (Seen.PRINTING, Seen.PREPARING) and machine.print is not None:
        machine.print.paused_at, machine.print.reason = now, None


def resume(machine: Machine, now: int) -> None:
    """Go on with what is paused."""
    job = machine.print
    if snapshot(machine, now).state == Seen.PAUSED and job is not None and job.paused_at is not None:
        job.paused_ms += now - job.paused_at
        job.paused_at, job.reason = None, None


def cancel(machine: Machine, now: int) -> None:
    """End what is at work or paused."""
    if snapshot(machine, now).state in (Seen.PRINTING, Seen.PREPARING, Seen.PAUSED):
        _end(machine, "cancelled")


def power_cycle(machine: Machine) -> None:
    """Off and on again: the print is gone, and nothing tells of it."""
    if machine.print is not None and machine.print.ended is None:
        machine.ended = [*machine.ended, (machine.print.name, "lost")]
    machine.power, machine.print = True, None


def duration_of(content: bytes, default_ms: int) -> int:
    """How long a file is printed, by its own word."""
    found = DURATION.search(content)
    return int(found.group(1)) if found is not None else default_ms


def _end(machine: Machine, how: str) -> None:
    if machine.print is not None:
        machine.print.ended = how
        machine.ended = [*machine.ended, (machine.print.name, how)]


def _elapsed(job: Print, now: int) -> int:
    return (job.paused_at if job.paused_at is not None else now) - job.started_at - job.paused_ms


def _percent(job: Print, now: int) -> float:
    return 100.0 * (_elapsed(job, now) - job.prepare_ms) / max(1, job.duration_ms)


def _moment(job: Print, percent: float) -> int:
    return job.started_at + job.paused_ms + job.prepare_ms + int(job.duration_ms * percent / 100.0)
