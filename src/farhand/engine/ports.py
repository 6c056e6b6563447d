"""What the engine needs from the outside: a store, a registry, payload storage."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from farhand.engine.attempt import Held, Settled
from farhand.engine.enrolment import Pending, Registered, Registration
from farhand.engine.farms import Farms
from farhand.engine.registry import Agent, AgentSession, ApiKey, Device
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
from farhand.model.job import Actor, Event, Job


class StoreGone(Exception):
    """The database cannot be reached just now."""


class StoreFault(Exception):
    """The database refused a statement."""


class Registry(Protocol):
    """Agents, their keys and devices. `changed` callbacks run when any of it may have changed."""

    changed: list[Callable[[], None]]

    async def register(self, request: Registration) -> Registered | Pending | Problem:
        """An agent presents itself: known, let in, put into the inbox or refused."""
        ...

    async def present_bid(
        self, bid: str, *, address: str | None, runtime: str | None, user_agent: str | None = None
    ) -> Agent | Pending | Problem:
        """A device presents its identifier: it is known, waits for approval, or was shut out."""
        ...

    async def open_session(
        self,
        org_id: int,
        agent_id: bytes,
        session_id: bytes | None,
        capabilities: Mapping[str, str],
        user_agent: str | None,
        *,
        names: frozenset[str] = frozenset(),
    ) -> AgentSession | Problem:
        """The agent's own live session of this id, refreshed, or a new one; `names` it can do now."""
        ...

    async def session(self, agent_id: bytes, session_id: bytes) -> AgentSession | None:
        """A live session of this agent; None for any other."""
        ...

    async def refresh_session(
        self, session: AgentSession, capabilities: Mapping[str, str], *, names: frozenset[str] = frozenset()
    ) -> AgentSession | Problem:
        """A session alive for another day, with what its device says it can do now."""
        ...

    async def owners(self, agent_id: bytes) -> tuple[bytes, ...]:
        """The users that own an agent, the first one first."""
        ...

    async def owner_names(self, org_id: int, first: str, last: str) -> dict[bytes, list[str]]:
        """The names of the owners of all agents whose own names lie between two."""
        ...

    async def first_user(self, org_id: int) -> bytes | None:
        """The user that stands for whoever holds the root token."""
        ...

    async def issue(self, org_id: int, name: str, key_digest: bytes, actor: Actor) -> Agent | Problem:
        """Make an agent that is never pending."""
        ...

    async def approve(
        self, org_id: int, agent_id: bytes, actor: Actor, *, code: str | None
    ) -> Agent | Problem:
        """Let a pending agent in, by its code or, with None, marked as approved without one.

        An agent that is in gets the approver as one more owner.
        """
        ...

    async def revoke(self, org_id: int, agent_id: bytes, actor: Actor) -> Agent | Problem:
        """Throw an agent out at once."""
        ...

    async def set_grants(
        self, org_id: int, agent_id: bytes, grants: list[str], actor: Actor
    ) -> Agent | Problem:
        """Replace an agent's grants."""
        ...

    async def set_signing(
        self, org_id: int, agent_id: bytes, actor: Actor, *, public_key: bytes | None, required: bool
    ) -> Agent | Problem:
        """Set the key that an agent signs with, and whether it has to."""
        ...

    async def set_state(self, org_id: int, agent_id: bytes, state: str, actor: Actor) -> Agent | Problem:
        """Pause, drain or resume an agent."""
        ...

    async def agent_by_key(self, digest: bytes) -> Agent | None:
        """The agent behind a key, revoked and pending ones included."""
        ...

    async def signer(self, agent_id: bytes) -> Agent | None:
        """The agent of this id, of whatever tenant: who signs is known by id alone."""
        ...

    async def agent(self, org_id: int, agent_id: bytes) -> Agent | None:
        """One agent."""
        ...

    async def agent_by_name(self, org_id: int, name: str) -> Agent | None:
        """The agent in force that has this name."""
        ...

    async def agents(self, org_id: int, after: tuple[str, bytes] | None, limit: int) -> list[Agent]:
        """Agents by name, without the inbox."""
        ...

    async def pending(self, org_id: int) -> list[Agent]:
        """The inbox, oldest first."""
        ...

    async def seen(self, moments: dict[bytes, int]) -> None:
        """Write down when agents were last seen, many at a time."""
        ...

    async def devices_of(self, agent_id: bytes) -> list[Device]:
        """The devices behind an agent, gone ones included."""
        ...

    async def device(self, org_id: int, device_id: bytes) -> Device | None:
        """One device."""
        ...

    async def devices(
        self, org_id: int, after: tuple[str, bytes] | None, limit: int, *, with_gone: bool
    ) -> list[tuple[Device, str, int | None, str]]:
        """Devices by name, each with its agent's name, when that was last seen, and its state."""
        ...


class ApiKeys(Protocol):
    """Client keys."""

    async def create(
        self,
        org_id: int,
        name: str,
        digest: bytes,
        grants: list[str],
        actor: Actor,
        *,
        user: str | None = None,
    ) -> ApiKey | Problem:
        """Store a new key by its digest, for a user by name, who may be new."""
        ...

    async def of_user(self, org_id: int, user_id: bytes) -> list[bytes]:
        """The ids of all keys of a user, revoked ones included."""
        ...

    async def find(self, digest: bytes) -> ApiKey | None:
        """The key in force behind a digest."""
        ...

    async def list(self, org_id: int) -> list[ApiKey]:
        """All keys by name, revoked ones included."""
        ...

    async def revoke(self, org_id: int, key_id: bytes, actor: Actor) -> ApiKey | Problem:
        """Stop a key from working, at once."""
        ...


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
