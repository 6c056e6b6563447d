"""What the engine needs from the outside: a store, a registry, payload storage."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Protocol

from farhand.engine.attempt import Held, Settled
from farhand.engine.farms import Farms
from farhand.engine.registry_ports import ApiKeys, Registry
from farhand.engine.requests import (
    Act,
    Attach,
    Claim,
    Claimed,
    JobFilter,
    Nonce,
    Order,
    PayloadPlace,
    PutFirst,
    Release,
    Reserve,
    Retry,
    Settle,
    Submit,
    Submitted,
)
from farhand.engine.wakeups import Hub, Ticket
from farhand.model.errors import Problem
from farhand.model.job import Event, Job


class StoreGone(Exception):
    """The database cannot be reached just now."""


class StoreFault(Exception):
    """The database refused a statement."""


class Store(Protocol):
    """The durable queue. Every write is answered only after its commit.

    Methods return a Problem instead of raising it where the answer belongs to one request
    of a batch; a Problem changes nothing except, for late results, the event trail. Raises
    StoreGone while the database cannot be reached, StoreFault when it refuses a statement.
    """

    hub: Hub

    @property
    def registry(self) -> Registry:
        """Agents and devices."""
        ...

    @property
    def keys(self) -> ApiKeys:
        """Client keys."""
        ...

    @property
    def farms(self) -> Farms:
        """Farms, their printers and what holds them."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes may write to the same database."""
        ...

    @property
    def next_due(self) -> int | None:
        """The earliest moment at which something is due, as far as this process knows."""
        ...

    @property
    def figures(self) -> tuple[int, int]:
        """How many transactions were committed, and how many requests they carried."""
        ...

    async def open(self) -> None:
        """Connect, bring the schema up to date, begin to write."""
        ...

    async def close(self) -> None:
        """Answer whoever waits, finish what is queued, let go."""
        ...

    async def look(self) -> None:
        """Try the parked claims whose lanes have work that another process brought."""
        ...

    async def reserve(self, request: Reserve) -> Submitted | Problem | None:
        """Take an idempotency key before outside work begins; None when it may begin."""
        ...

    def claim_or_park(self, request: Claim) -> Ticket:
        """Hand out work now or as soon as there is some."""
        ...

    def submit_soon(self, request: Submit) -> asyncio.Future[Submitted | Problem]:
        """Queue a submit; the future is set after its commit."""
        ...

    def settle_soon(self, request: Settle) -> asyncio.Future[Settled | Problem]:
        """Queue a report; the future is set after its commit."""
        ...

    async def settle_then_claim(self, request: Settle, then: Claim) -> tuple[Settled | Problem, Ticket]:
        """Settle and claim in one transaction; a refused settle does not stop the claim."""
        ...

    async def prune(self, limit: int = 50) -> tuple[int, list[bytes]]:
        """Delete finished jobs past their retention; how many, and the stored payloads nobody needs now."""
        ...

    async def payload_used(self, sha256: bytes) -> bool:
        """Whether any job still needs a stored payload."""
        ...

    async def first_use(self, request: Nonce) -> bool:
        """Whether the agent never used this nonce before, as far as it is remembered."""
        ...

    async def forget_nonces(self, memory_ms: int) -> int:
        """Drop nonces used longer ago than that; how many."""
        ...

    async def forget_keys(self) -> int:
        """Drop idempotency keys past their memory; how many."""
        ...

    async def queued_before(self, job: Job) -> int:
        """How many jobs of its lane a queued job still waits for, counted up to 1000."""
        ...

    async def counts(self, org_id: int) -> list[tuple[str, str, int]]:
        """Jobs per kind and state."""
        ...

    async def audit(
        self, org_id: int, before: int | None = None, limit: int = 200
    ) -> Sequence[Sequence[Any]]:
        """The audit log, newest first: seq, time, actor kind and id, action, subject, data."""
        ...

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

    async def counters(self, org_id: int, subject: bytes) -> dict[str, int]:
        """What was counted for a session, an agent or a key."""
        ...

    async def over(self, agent_id: bytes) -> list[bytes]:
        """Jobs the agent may stop working on: another was first, or they are to be cancelled."""
        ...

    async def capability_bits(self, names: Iterable[str]) -> int:
        """The bits of those of the capability names that are known."""
        ...

    async def declared(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the capability names that are known."""
        ...

    async def keep_result_body(self, act: Act, sha256: bytes, size: int) -> Problem | None:
        """Note that a stored body belongs to the result of an attempt, while that may be reported."""
        ...

    async def result_body(self, job_seq: int, sha256: bytes) -> int | None:
        """The size of a body that belongs to a job's results, None when there is none."""
        ...

    async def attach(self, request: Attach) -> str | Problem:
        """The payload of a waiting job has arrived; the job's state."""
        ...

    async def put_first(self, request: PutFirst) -> str | Problem:
        """Let a waiting job go before the others of its lane; the job's state."""
        ...

    async def secret(self, org_id: int, job_id: bytes) -> dict[str, Any] | None:
        """The secret fields of a job's result; None when it has none, or has them no longer."""
        ...

    async def ack(self, request: Order) -> str | Problem:
        """The issuer needs the job's secret no longer: it is gone at once; the job's state.

        Asking again changes nothing. Problem `state-conflict` while the job has not ended.
        """
        ...

    async def forget_secrets(self) -> int:
        """Drop secrets past their time and destroy the keys that no secret needs; how many went."""
        ...

    async def sweep(self) -> int:
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


class Keys(Protocol):
    """Small keys stored outside the database, shared by all its servers. Every method blocks."""

    def open_root(self, space: str) -> None:
        """Make ready the keys of one database, called `space`. Raises OSError when they cannot be kept."""
        ...

    def names(self) -> list[str]:
        """The names of all keys."""
        ...

    def put(self, name: str, key: bytes) -> bytes:
        """Keep a key, durably when this returns; the one that is there already, if there is one."""
        ...

    def get(self, name: str) -> bytes | None:
        """A key, None when it is not, or no longer, there."""
        ...

    def destroy(self, name: str) -> None:
        """Make a key unrecoverable; nothing happens when it is not there."""
        ...

    def clear(self) -> None:
        """Remove what a crash left half-written; only for whoever has the keys alone."""
        ...


class Payloads(Protocol):
    """Bytes stored apart from rows, addressed by their SHA-256; streams, never whole bodies."""

    def open_root(self) -> None:
        """Make ready, and clear away what a crash left half-written. Blocks; only its owner may call it."""
        ...

    async def put(self, chunks: AsyncIterator[bytes], limit: int) -> tuple[bytes, int]:
        """Store a stream durably; its SHA-256 and size. Raises Problem `payload-too-large`."""
        ...

    def open(self, sha256: bytes) -> AsyncIterator[bytes]:
        """Stream stored bytes. Raises FileNotFoundError when they are not there."""
        ...

    async def head(self, sha256: bytes) -> int | None:
        """The size of stored bytes, None when they are not there."""
        ...

    async def discard(self, sha256: bytes, before_ms: int) -> bool:
        """Remove bytes unless they were put at or after a moment; whether they are gone."""
        ...

    async def stored(self, before_ms: int) -> list[bytes]:
        """The addresses of all bytes that were last put before a moment."""
        ...
