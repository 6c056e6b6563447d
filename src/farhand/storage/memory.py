"""Committed jobs kept in memory, where no other process can change them behind our back."""

from collections import OrderedDict
from dataclasses import fields
from operator import attrgetter
from typing import Final

from farhand.model.job import Attempt, Job

JOBS_MAX = 20_000
BODY_MAX = 16 * 1024
BODIES_MAX = 16 * 1024 * 1024
_fields: Final = attrgetter(*(field.name for field in fields(Job)))


def pruned(job: Job, now: int) -> bool:
    """Whether the job's retention is over, so that its row may be gone."""
    return job.prune_at is not None and job.prune_at <= now


class Memory:
    """The jobs touched last, as they were committed.

    A transaction takes a job out before it changes it and puts it back after its commit, so a
    transaction that fails leaves nothing behind. The guards of every write still prove that
    what was remembered is what is in the database. Small payloads of jobs that have not ended
    lie beside them: they never change.
    """

    def __init__(self, size: int = JOBS_MAX) -> None:
        self._size = size
        self._jobs: OrderedDict[bytes, tuple[Job, list[Attempt]]] = OrderedDict()
        self._bodies: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0

    def take(self, job_id: bytes) -> tuple[Job, list[Attempt]] | None:
        """Take a job and its attempts out, to change them."""
        return self._jobs.pop(job_id, None)

    def put(self, job: Job, attempts: list[Attempt]) -> None:
        """Keep a job as it was just committed."""
        self._jobs[job.id] = (job, attempts)
        if job.finished_at is not None:
            self._drop_body(job.seq)
        if len(self._jobs) > self._size:
            _, (oldest, _) = self._jobs.popitem(last=False)
            self._drop_body(oldest.seq)

    def put_body(self, job_seq: int, body: bytes | None) -> None:
        """Keep the payload of a job that was just written down, when it is small."""
        self._drop_body(job_seq)
        if body is None or len(body) > BODY_MAX:
            return
        self._bodies[job_seq] = body
        self._bytes += len(body)
        while self._bytes > BODIES_MAX:
            self._bytes -= len(self._bodies.popitem(last=False)[1])

    def body(self, job_seq: int) -> bytes | None:
        """A remembered payload."""
        return self._bodies.get(job_seq)

    def _drop_body(self, job_seq: int) -> None:
        self._bytes -= len(self._bodies.pop(job_seq, b""))

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
        self._bodies.clear()
        self._bytes = 0
