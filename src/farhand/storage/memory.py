"""Committed jobs kept in memory, where no other process can change them behind our back."""

from collections import OrderedDict
from dataclasses import fields
from operator import attrgetter
from typing import Final

from farhand.model.job import Attempt, Job

JOBS_MAX = 20_000
_fields: Final = attrgetter(*(field.name for field in fields(Job)))


def pruned(job: Job, now: int) -> bool:
    """Whether the job's retention is over, so that its row may be gone."""
    return job.prune_at is not None and job.prune_at <= now


class Memory:
    """The jobs touched last, as they were committed.

    A transaction takes a job out before it changes it and puts it back after its commit, so a
    transaction that fails leaves nothing behind. The guards of every write still prove that
    what was remembered is what is in the database.
    """

    def __init__(self, size: int = JOBS_MAX) -> None:
        self._size = size
        self._jobs: OrderedDict[bytes, tuple[Job, list[Attempt]]] = OrderedDict()

    def take(self, job_id: bytes) -> tuple[Job, list[Attempt]] | None:
        """Take a job and its attempts out, to change them."""
        return self._jobs.pop(job_id, None)

    def put(self, job: Job, attempts: list[Attempt]) -> None:
        """Keep a job as it was just committed."""
        self._jobs[job.id] = (job, attempts)
        if len(self._jobs) > self._size:
            self._jobs.popitem(last=False)

    def look(self, job_id: bytes, now: int) -> Job | None:
        """A copy of a remembered job: the original is changed in place before the next commit.

        One past its retention is not there any more.
        """
        entry = self._jobs.get(job_id)
        if entry is None or pruned(entry[0], now):
            return None
        return Job(*_fields(entry[0]))

    def clear(self) -> None:
        """Forget everything."""
        self._jobs.clear()
