"""The Store: every durable operation of the engine, written once over a Database."""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from farhand.engine.attempt import Held, Settled
from farhand.engine.registry import DEFAULT_ORG
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
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.ids import new_id
from farhand.model.job import SWEEP, Actor, Event, Job
from farhand.storage.api_keys import ApiKeyRows
from farhand.storage.batch import Work
from farhand.storage.database import Database, Row
from farhand.storage.device_sessions import DeviceRegistry
from farhand.storage.farm_rows import FarmRows
from farhand.storage.key_folder import MemoryKeys
from farhand.storage.prune import forget_keys, forget_nonces, prune
from farhand.storage.results import Results
from farhand.storage.secret_rows import SecretRows
from farhand.storage.vault import Vault
from farhand.storage.writer import Writer


def _system_jitter() -> float:
    return secrets.randbelow(1000) / 1000


class Store:
    """The durable queue and registry; open it before use and close it after.

    `vault` seals secret results; without one their keys end with this object. `solo` makes
    every request its own transaction: the yardstick of the benchmarks.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        hub: Hub | None = None,
        *,
        vault: Vault | None = None,
        jitter: Callable[[], float] = _system_jitter,
        solo: bool = False,
    ) -> None:
        self.hub = hub or Hub()
        self.clock = clock
        self.database = database
        self.vault = vault or Vault(MemoryKeys(), clock)
        self.writer = Writer(database, clock, self.hub, vault=self.vault, jitter=jitter, solo=solo)
        self.secrets = SecretRows(database, clock, self.vault)
        self.results = Results(database, clock, self.writer.capabilities)
        self.registry = DeviceRegistry(database, clock, self.writer.capabilities)
        self.farms = FarmRows(database, clock, self.registry.announce)
        self.keys = ApiKeyRows(database, clock, self.registry.announce)

    @property
    def shared(self) -> bool:
        """Whether other processes may write to the same database."""
        return self.database.shared

    @property
    def next_due(self) -> int | None:
        """The earliest moment at which something is due, as far as this process knows."""
        return self.writer.next_due

    @property
    def figures(self) -> tuple[int, int]:
        """How many transactions were committed, and how many requests they carried."""
        return self.writer.commits, self.writer.requests

    async def open(self) -> None:
        """Connect, migrate, make the default tenant, begin to write."""
        await self.database.open()
        now = self.clock.now_ms()
        async with self.database.transaction() as tx:
            org = {"id": DEFAULT_ORG, "uid": new_id(now), "name": "default", "now": now}
            await tx.run("insert_org", org)
            if await tx.one("org_user", {"org_id": DEFAULT_ORG}) is None:
                user = {"id": new_id(now), "org_id": DEFAULT_ORG, "name": "owner", "now": now}
                await tx.run("insert_user", user)
            known = await tx.all("org_uid", {"id": DEFAULT_ORG})
        await self.vault.open(bytes(known[0][0]).hex(), alone=self.database.exclusive)
        async with self.database.read() as reader:
            await self.writer.capabilities.read(reader)
        self.writer.start()
        await self.database.listen(self._heard)

    async def close(self) -> None:
        """Answer whoever waits, finish what is queued, let go of the database."""
        self.hub.close()
        await self.writer.close()
        await self.database.close()

    async def _heard(self, message: str) -> None:
        """Another process changed something: look for the parked claims it may concern."""
        if message == "*":
            # Too much to say, or a time without hearing: anything may have changed.
            self.registry.announce()
            self.hub.changed_somewhere()
            await self.look()
            return
        lanes, jobs, registry = (message.split(";") + ["", ""])[:3]
        if registry:
            self.registry.announce()
        self.hub.changed(bytes.fromhex(job) for job in jobs.split(",") if job)
        for lane in lanes.split(","):
            if lane:
                self.writer.heard(bytes.fromhex(lane))

    async def look(self) -> None:
        """The periodic truth behind the hints: try the parked claims whose lanes have work."""
        lanes = self.hub.parked_lanes
        if not lanes:
            return
        async with self.database.read() as reader:
            for lane in lanes:
                tickets = self.hub.tickets(lane)
                params = {"lane": lane, "now": self.clock.now_ms()}
                for org_id in {ticket.request.org_id for ticket in tickets}:
                    if await reader.one("lane_ready", {**params, "org_id": org_id}) is not None:
                        self.writer.heard(lane)

    async def submit(self, request: Submit) -> Submitted | Problem:
        """Write down a job, or find the one already made for its idempotency key."""
        return await self.writer.do("submit", request)

    async def reserve(self, request: Reserve) -> Submitted | Problem | None:
        """Take an idempotency key before outside work begins; None when it may begin."""
        return await self.writer.do("reserve", request)

    async def claim(self, request: Claim) -> list[Claimed]:
        """Hand out work now, or nothing."""
        return await self.writer.claim(request)

    def claim_or_park(self, request: Claim) -> Ticket:
        """Hand out work now or as soon as there is some."""
        return self.writer.claim_or_park(request)

    async def start(self, request: Act) -> Held | Problem:
        """Begin the attempt; accepts an offer on the way."""
        return await self.writer.do("start", request)

    async def fetch_payload(self, request: Act) -> Held | Problem:
        """Start a seed attempt because its payload is being taken."""
        return await self.writer.do("fetch_payload", request)

    async def heartbeat(self, request: Act) -> Held | Problem:
        """Renew the lease and take note of progress."""
        return await self.writer.do("heartbeat", request)

    async def settle(self, request: Settle) -> Settled | Problem:
        """Take the report of how an attempt ended."""
        return await self.writer.do("settle", request)

    def submit_soon(self, request: Submit) -> asyncio.Future[Submitted | Problem]:
        """Queue a submit; the future is set after its commit."""
        return self.writer.put(Work(verb="submit", request=request))

    def settle_soon(self, request: Settle) -> asyncio.Future[Settled | Problem]:
        """Queue a report; the future is set after its commit."""
        return self.writer.put(Work(verb="settle", request=request))

    async def settle_then_claim(self, request: Settle, then: Claim) -> tuple[Settled | Problem, Ticket]:
        """Settle and claim in one transaction; a refused settle does not stop the claim."""
        return await self.writer.settle_then("settle", request, then)

    async def release(self, request: Release) -> Settled | Problem:
        """Give an attempt back or refuse it."""
        return await self.writer.do("release", request)

    async def cancel(self, request: Order) -> str | Problem:
        """Cancel or ask for it; the job's state."""
        return await self.writer.do("cancel", request)

    async def resolve(self, request: Order) -> str | Problem:
        """A person's verdict on an uncertain job; the job's state."""
        return await self.writer.do("resolve", request)

    async def retry(self, request: Retry) -> Submitted | Problem:
        """A new job linked to a finished or uncertain one."""
        return await self.writer.do("retry", request)

    async def adopt(self, request: Order) -> str | Problem:
        """Proof says that the newest attempt's work goes on; the job's state."""
        return await self.writer.do("adopt", request)

    async def fail_at_gate(self, request: Order) -> str | Problem:
        """A gate found that a queued job can never run."""
        return await self.writer.do("fail_at_gate", request)

    async def attach(self, request: Attach) -> str | Problem:
        """The payload of a waiting job has arrived; the job's state."""
        return await self.writer.do("attach", request)

    async def put_first(self, request: PutFirst) -> str | Problem:
        """Let a waiting job go before the others of its lane; the job's state."""
        return await self.writer.do("put_first", request)

    async def sweep(self) -> int:
        """Do what is due now; how many jobs were looked at."""
        return await self.writer.do("sweep", None)

    async def prune(self, limit: int = 50) -> tuple[int, list[bytes]]:
        """Delete finished jobs past their retention: how many, and the stored payloads nobody needs now."""
        return await prune(self.database, self.clock.now_ms(), limit)

    async def payload_used(self, sha256: bytes) -> bool:
        """Whether any job still needs a stored payload."""
        async with self.database.read() as reader:
            return await reader.one("stored_uses", {"sha256": sha256}) is not None

    async def first_use(self, request: Nonce) -> bool:
        """Whether the agent never used this nonce before, as far as it is remembered."""
        return await self.writer.do("nonce", request)

    async def forget_nonces(self, memory_ms: int) -> int:
        """Drop nonces used longer ago than that; how many."""
        return await forget_nonces(self.database, self.clock.now_ms() - memory_ms)

    async def forget_keys(self) -> int:
        """Drop idempotency keys past their memory, and reservations that nobody came back for; how many."""
        return await forget_keys(self.database, self.clock.now_ms())

    async def counters(self, org_id: int, subject: bytes) -> dict[str, int]:
        """What was counted for a session, an agent or a key."""
        return await self.results.counters(org_id, subject)

    async def over(self, agent_id: bytes) -> list[bytes]:
        """Jobs the agent may stop working on: another was first, or they are to be cancelled."""
        return await self.results.over(agent_id)

    async def capability_bits(self, names: Iterable[str]) -> int:
        """The bits of those of the capability names that are known."""
        return await self.results.bits(names)

    async def declared(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the capability names that are known."""
        return await self.results.declared(names)

    async def keep_result_body(self, act: Act, sha256: bytes, size: int) -> Problem | None:
        """Note that a stored body belongs to the result of an attempt, while that may be reported."""
        return await self.results.keep_body(act, sha256, size)

    async def result_body(self, job_seq: int, sha256: bytes) -> int | None:
        """The size of a body that belongs to a job's results, None when there is none."""
        return await self.results.body(job_seq, sha256)

    async def secret(self, org_id: int, job_id: bytes) -> dict[str, Any] | None:
        """The secret fields of a job's result; None when it has none, or has them no longer."""
        return await self.secrets.read(org_id, job_id)

    async def ack(self, request: Order) -> str | Problem:
        """The issuer needs the job's secret no longer: it is gone at once; the job's state."""
        return await self.secrets.ack(request)

    async def forget_secrets(self) -> int:
        """Drop secrets past their time and destroy the keys that no secret needs; how many went."""
        return await self.secrets.sweep()

    async def job(self, org_id: int, job_id: bytes) -> Job | None:
        """One job as it is now; limits that have passed are carried out first."""
        job = await self._read_job(org_id, job_id)
        if job is None or job.due_at is None or job.due_at > self.clock.now_ms():
            return job
        await self.writer.do("look_at", Order(org_id=org_id, job_id=job_id, actor=SWEEP))
        return await self._read_job(org_id, job_id)

    async def _read_job(self, org_id: int, job_id: bytes) -> Job | None:
        memory = self.writer.memory
        known = memory.look(job_id, self.clock.now_ms()) if memory is not None else None
        if known is not None:
            return known if known.org_id == org_id else None
        async with self.database.read() as reader:
            row = await reader.one("job_by_id", {"org_id": org_id, "id": job_id})
        return Job(*row) if row is not None else None

    async def jobs(self, query: JobFilter) -> list[Job]:
        """Jobs, newest first; limits that have passed are carried out first."""
        if self.next_due is not None and self.next_due <= self.clock.now_ms():
            await self.sweep()
        params: dict[str, object] = {
            "org_id": query.org_id,
            "state": query.state,
            "states": None if not query.states else f",{','.join(query.states)},",
            "kind": query.kind,
            "family": query.family,
            "device_id": query.device_id,
            "agent_id": query.agent_id,
            "source": query.source,
            "tag": None if query.tag is None else f"%\n{_literal(query.tag)}\n%",
            "newline": "\n",
            "before": query.before,
            "limit": query.limit,
        }
        others = (query.agent_id, query.source, query.tag, query.family, query.states or None)
        plain = all(wanted is None for wanted in others)
        name = "list_device_jobs" if query.device_id is not None and plain else "list_jobs"
        async with self.database.read() as reader:
            return [Job(*row) for row in await reader.all(name, params)]

    async def events(
        self, org_id: int, job_id: bytes, after: int = 0, limit: int = 200
    ) -> list[Event] | None:
        """A job's events in order, None when there is no such job."""
        async with self.database.read() as reader:
            row = await reader.one("job_by_id", {"org_id": org_id, "id": job_id})
            if row is None:
                return None
            params = {"job_seq": row[0], "after": after, "limit": limit}
            return [_event(found) for found in await reader.all("job_events", params)]

    async def payload(self, job_seq: int) -> PayloadPlace | None:
        """Where a job's payload lies."""
        memory = self.writer.memory
        body = memory.body(job_seq) if memory is not None else None
        if body is not None:
            return PayloadPlace(size=len(body), body=body, sha256=None)
        async with self.database.read() as reader:
            row = await reader.one("payload_place", {"job_seq": job_seq})
        return PayloadPlace(size=row[0], body=row[1], sha256=row[2]) if row is not None else None

    async def queued_before(self, job: Job) -> int:
        """How many jobs of its lane a queued job still waits for, counted up to 1000."""
        params = {"org_id": job.org_id, "lane": job.lane, "priority": job.priority, "seq": job.seq}
        async with self.database.read() as reader:
            row = await reader.one("queued_before", params)
        return row[0] if row is not None else 0

    async def counts(self, org_id: int) -> list[tuple[str, str, int]]:
        """Jobs per kind and state."""
        async with self.database.read() as reader:
            return [(row[0], row[1], row[2]) for row in await reader.all("counts", {"org_id": org_id})]

    async def audit(self, org_id: int, before: int | None = None, limit: int = 200) -> Sequence[Row]:
        """The audit log, newest first: seq, time, actor kind and id, action, subject, data."""
        params = {"org_id": org_id, "before": before, "limit": limit}
        async with self.database.read() as reader:
            return await reader.all("list_audit", params)


def _literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _event(row: Any) -> Event:
    return Event(
        job_seq=row[0],
        number=row[1],
        org_id=row[2],
        at=row[3],
        actor=Actor(kind=row[4], id=row[5]),
        verb=row[6],
        from_state=row[7],
        to_state=row[8],
        attempt=row[9],
        reason=row[10],
        data=row[11],
    )
