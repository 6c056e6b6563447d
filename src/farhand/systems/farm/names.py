"""The names under which prints lie on machines; each belongs to one attempt of one job."""

import re
from typing import Final

SLUG_MAX: Final = 40
_MARK: Final = re.compile(r"fh([0-9a-f]{12})a([0-9]{1,9})(?![0-9a-z])")


def mark(job_id: bytes, attempt: int) -> str:
    """What names an attempt: the random tail of the job's id, and the attempt's number."""
    return f"fh{job_id.hex()[-12:]}a{attempt}"


def remote_name(attempt_mark: str, filename: str) -> str:
    """A file's name on the machine: the mark, and what a person recognises."""
    stem, dot, ending = filename.rpartition(".")
    stem, ending = (stem, ending) if dot and stem else (filename, "gcode")
    slug = re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:SLUG_MAX] or "print"
    return f"{attempt_mark}-{slug}.{re.sub(r'[^A-Za-z0-9]', '', ending)[:10] or 'gcode'}"


def mark_in(identity: str | None) -> str | None:
    """The mark in a name that a machine shows, None when it is none of ours."""
    found = _MARK.search(identity) if identity is not None else None
    return found.group(0) if found is not None else None


def tail_of(attempt_mark: str) -> tuple[str, int]:
    """The end of the job's id in hexadecimal, and the attempt."""
    found = _MARK.fullmatch(attempt_mark)
    if found is None:
        raise ValueError(f"{attempt_mark!r} is no mark")
    return found.group(1), int(found.group(2))
