"""What a person reads: states, times and errors in words. Texts of others are made harmless."""

import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from farhand.model.clock import from_rfc3339
from farhand.model.errors import FarhandError
from farhand.protocol.client import EventView, JobView
from farhand.protocol.commands import CommandEvent

CALM: Final = "default"
STYLES: Final[Mapping[str, str]] = {
    "done": "green",
    "failed": "red",
    "uncertain": "bold magenta",
    "running": "cyan",
    "claimed": "cyan",
    "cancelled": "yellow",
    "expired": "yellow",
}
EXIT_CODES: Final[Mapping[str, int]] = {"done": 0, "failed": 1, "cancelled": 3, "expired": 4, "uncertain": 5}
TIMEOUT_EXIT: Final = 6
"""Exit code by how a job ended; 2 is a wrong command line, 6 a wait that ran out of time."""

_EVIDENCE: Final = {
    "delivered": "the printer took it; it cannot say whether it came out",
    "reported": "the agent says so",
    "person": "a person said so",
}
_AGAIN: Final = {True: "print it again", False: "submit it again"}


def clean(text: str) -> str:
    """A text without what could move the cursor, recolour the terminal or turn the reading order."""
    return "".join(
        " " if char in "\t\r\n" else "\N{REPLACEMENT CHARACTER}" if _is_unsafe(char) else char
        for char in text
    )


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char != "\N{ZERO WIDTH JOINER}"


def state_words(job: JobView) -> str:
    """The state with what is known beside it, short enough for a table."""
    if job.state == "done" and job.evidence is not None:
        return f"done ({clean(job.evidence)})"
    if job.state == "running" and job.phase is not None:
        return f"running ({clean(job.phase)})"
    return clean(job.state)


def sentence(job: JobView) -> str:
    """Where the job stands, in full."""
    text = state_words(job)
    if job.state == "done" and job.evidence in _EVIDENCE:
        text = f"{text}: {_EVIDENCE[job.evidence]}"
    if job.state == "scheduled" and job.run_at is not None:
        text = f"{text} until {local_time(job.run_at)}"
    if job.cancel_requested_at is not None and not job.final:
        text = f"{text}, to be cancelled"
    said = job.error if job.state == "failed" else job.reason
    return f"{text}: {clean(said)}" if said and job.state != "done" else text


def next_step(job: JobView) -> str | None:
    """What a person can do about a job that did not simply end well."""
    printing = job.kind.startswith("print.")
    if job.state == "uncertain":
        look = (
            "Look at the printer: nobody else knows whether it came out."
            if printing
            else "Look at what it was to do: nobody else knows whether it happened."
        )
        return (
            f"{look} Then\n"
            f"  farhand jobs resolve {job.id} done     it did\n"
            f"  farhand jobs retry {job.id}            it did not; {_AGAIN[printing]}"
        )
    if job.state in ("failed", "expired"):
        return f"{_AGAIN[printing].capitalize()} with: farhand jobs retry {job.id}"
    return None


def local_time(text: str) -> str:
    """RFC 3339 as this machine's own time, to the second."""
    return datetime.fromtimestamp(from_rfc3339(text) // 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def moment(text: str | None) -> str | None:
    """The same for a time that may not have come."""
    return None if text is None else local_time(text)


def json_line(value: object) -> str | None:
    """Anything as JSON in one line; None stays None, so that nothing is shown."""
    return None if value is None else msgspec.json.encode(value).decode()


def change(event: EventView | CommandEvent) -> str:
    """Where an event led from and to."""
    return event.to if event.from_ in (None, event.to) else f"{event.from_} → {event.to}"


def age(text: str, now_ms: int) -> str:
    """How long ago, in one number and unit."""
    seconds = max(0, now_ms - from_rfc3339(text)) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def advice(error: FarhandError) -> str:
    """An error's message, with what to do where the message alone does not say it."""
    message = clean_lines(error.message)
    problem = getattr(error, "problem", None)
    code = problem if isinstance(problem, str) else getattr(problem, "code", None)
    if type(error).__name__ == "Unreachable":
        return (
            f"{message}\n"
            "Is the server running there? Start one with `farhand serve`, or name another address\n"
            "with --server or FARHAND_SERVER."
        )
    if code == "unauthorized":
        return (
            f"{message}\n"
            "Give the key with --key or FARHAND_TOKEN, or in ~/.config/farhand/client.toml; the server's\n"
            "own token lies in its data folder, in the file root-token."
        )
    return message


def clean_lines(text: str) -> str:
    """Like clean, with its lines kept."""
    return "\n".join(clean(line) for line in text.splitlines())
