"""What the engine needs from the outside: a store, payload storage, wake-ups."""

from collections.abc import AsyncIterator
from typing import Protocol

from farhand.engine.attempt import Held, Settled
from farhand.engine.requests import (
    Act,
    Claim,
    Claimed,
    JobFilter,
    Order,
    PayloadPlace,
    Release,
    Retry,
    Settle,
    Submit,
    Submitted,
)
from farhand.model.errors import Problem
from farhand.model.job import Event, Job


class Ticket(Protocol):
    """A claim that may still be waiting: await `result()`, or `withdraw()` when nobody waits any more."""

    async def result(self, timeout_ms: int) -> list[Claimed]:
        """The jobs handed over, empty after the time."""
        ...

    def withdraw(self) -> None:
        """Stop waiting. What was handed over in the meantime must be given back by the caller."""
        ...


class JobStore(Protocol):
    """The durable queue. Every write is answered only after its commit.

    Methods return a Problem instead of raising it where the answer belongs to one request
    of a batch; a Problem changes nothing except, for late results, the event trail.
    """

    async def submit(self, request: Submit) -> Submitted | Problem:
        """Write down a job, or find the one already made for its idempotency key."""
        ...

    async def claim(self, request: Claim) -> list[Claimed]:
        """Hand out work now, or nothing."""
        ...

    async def start(self, request: Act) -> Held | Problem:
        """Begin the attempt; accepts an offer on the way."""
        ...

    async def fetch_payload(self, request: Act) -> Held | Problem:
        """Start a seed attempt because its payload is being taken."""
        ...

    async def heartbeat(self, request: Act) -> Held | Problem:
        """Renew the lease and take note of progress."""
        ...

    async def settle(self, request: Settle) -> Settled | Problem:
        """Take the report of how an attempt ended."""
        ...

    async def release(self, request: Release) -> Settled | Problem:
        """Give an attempt back or refuse it."""
        ...

    async def cancel(self, request: Order) -> str | Problem:
        """Cancel or ask for it; the job's state."""
        ...

    async def resolve(self, request: Order) -> str | Problem:
        """A person's verdict on an uncertain job; the job's state."""
        ...

    async def retry(self, request: Retry) -> Submitted | Problem:
        """A new job linked to a finished or uncertain one."""
        ...

    async def adopt(self, request: Order) -> str | Problem:
        """Proof says that the newest attempt's work goes on; the job's state."""
        ...

    async def fail_at_gate(self, request: Order) -> str | Problem:
        """A gate found that a queued job can never run."""
        ...

    async def sweep(self, limit: int = 200) -> int:
        """Do what is due; how many jobs were looked at."""
        ...

    async def job(self, org_id: int, job_id: bytes) -> Job | None:
        """One job as it is now; limits that have passed are carried out first."""
        ...

    async def jobs(self, query: JobFilter) -> list[Job]:
        """Jobs, newest first."""
        ...

    async def events(
        self, org_id: int, job_id: bytes, after: int = 0, limit: int = 200
    ) -> list[Event] | None:
        """A job's events in order, None when there is no such job."""
        ...

    async def payload(self, job_seq: int) -> PayloadPlace | None:
        """Where a job's payload lies."""
        ...


class Payloads(Protocol):
    """Bytes stored apart from rows, addressed by their SHA-256; streams, never whole bodies."""

    async def put(self, chunks: AsyncIterator[bytes], limit: int) -> tuple[bytes, int]:
        """Store a stream durably; its SHA-256 and size. Raises Problem `payload-too-large`."""
        ...

    def open(self, sha256: bytes) -> AsyncIterator[bytes]:
        """Stream stored bytes. Raises FileNotFoundError when they are not there."""
        ...

    async def head(self, sha256: bytes) -> int | None:
        """The size of stored bytes, None when they are not there."""
        ...

    async def delete(self, sha256: bytes) -> None:
        """Remove stored bytes; nothing happens when they are not there."""
        ...
