"""One transaction's view of jobs: cases loaded under lock, changes written with their guards."""

from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final

from farhand.engine.case import Case
from farhand.engine.holds import hold_change
from farhand.engine.report import secret_ttl_ms
from farhand.model.job import Attempt, Event, Job, State
from farhand.model.policy import Policy
from farhand.storage.database import Params, Tx
from farhand.storage.memory import Memory, pruned
from farhand.storage.policies import Policies
from farhand.storage.statements import columns, load
from farhand.storage.vault import Epoch, Vault

JOB_COLUMNS: Final = tuple(columns(Job))
ATTEMPT_COLUMNS: Final = tuple(columns(Attempt))
_HOLD_STATEMENTS: Final = {"free": "drop_hold", "bed": "raise_bed", "take": "take_hold"}


_STATEMENTS: Final = load("sqlite")


def _saved(name: str) -> tuple[str, ...]:
    """The columns that a statement writes."""
    return tuple(p for p in _STATEMENTS[name].params if p in JOB_COLUMNS)


_STEP, _END, _ALL = _saved("save_step"), _saved("save_end"), _saved("save_job")
_SAVES: Final[dict[str, Callable[[Job], tuple[object, ...]]]] = {
    "save_step": attrgetter(*_STEP),
    "save_end": attrgetter(*_END),
    "save_job": attrgetter(*_ALL),
}
_ended: Final[Callable[[Job], tuple[object, ...]]] = attrgetter(*(c for c in _END if c not in _STEP))
_seldom: Final[Callable[[Job], tuple[object, ...]]] = attrgetter(*(c for c in _ALL if c not in _END))
_save_attempt: Final = attrgetter(*_STATEMENTS["save_attempt"].params)
job_row: Final[Callable[[Job], tuple[object, ...]]] = attrgetter(*JOB_COLUMNS[1:])
"""A job as the parameters of `insert_job`."""
attempt_row: Final[Callable[[Attempt], tuple[object, ...]]] = attrgetter(*ATTEMPT_COLUMNS)
"""An attempt as the parameters of `insert_attempt`."""


def event_row(event: Event) -> tuple[object, ...]:
    """An event as the parameters of `insert_event`."""
    return (
        event.job_seq,
        event.number,
        event.org_id,
        event.at,
        event.actor.kind,
        event.actor.id,
        event.verb,
        event.from_state,
        event.to_state,
        event.attempt,
        event.reason,
        event.data,
    )


class Session:
    """What one transaction has loaded and changed.

    `ready` counts jobs per lane that became claimable, `jobs` the ids that changed, `due` the
    earliest moment at which one of them needs looking at again. `new_policies`,
    `read_policies` and `learned` are for the caches of the process, after the commit; the
    epochs in `sealed_in` are the vault's again when the transaction is over.
    """

    def __init__(
        self,
        tx: Tx,
        now: int,
        policies: Policies,
        jitter: Callable[[], float],
        slot: int,
        vault: Vault,
        sealed_in: list[Epoch],
        memory: Memory | None = None,
    ) -> None:
        self.tx = tx
        self._vault = vault
        self._sealed_in = sealed_in
        self._memory = memory
        self.now = now
        self.policies = policies
        self.ready: Counter[bytes] = Counter()
        self.jobs: set[bytes] = set()
        self.due: int | None = None
        self.new_policies: list[tuple[int, str, Policy, int]] = []
        self.read_policies: dict[int, Policy] = {}
        self.learned: dict[str, int] = {}
        self.claimed_in: set[bytes] = set()
        self.claimed_by: set[bytes] = set()
        self.written: list[Job] = []
        self.bodies: dict[int, bytes] = {}
        self.events: list[Event] = []
        self._jitter = jitter
        self._slot = slot
        self._cases: dict[bytes, Case] = {}
        self._read: dict[bytes, tuple[object, object]] = {}
        self._deltas: Counter[tuple[int, str, str]] = Counter()
        self._counted: Counter[tuple[int, bytes, str]] = Counter()

    async def load(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Lock jobs by tenant and id, in id order, so that two processes never wait in a ring."""
        wanted = sorted({key for key in keys if key[1] not in self._cases}, key=lambda key: key[1])
        if self._memory is not None:
            wanted = [key for key in wanted if not await self._remember(self._memory, key[1])]
        rows = await self.tx.each("lock_job", [{"org_id": org, "id": job} for org, job in wanted])
        await self.adopt_rows(rows)

    async def _remember(self, memory: Memory, job_id: bytes) -> bool:
        """Make a case of a job that is in memory; the guards will prove it right."""
        known = memory.take(job_id)
        if known is None or pruned(known[0], self.now):
            return False
        await self._open(*known)
        return True

    async def _open(self, job: Job, attempts: list[Attempt]) -> None:
        policy = self.read_policies.get(job.policy_id)
        if policy is None:
            policy = await self.policies.get(self.tx, job.policy_id)
            self.read_policies[job.policy_id] = policy
        if self.tx.narrow:
            self._read[job.id] = (_ended(job), _seldom(job))
        self._cases[job.id] = Case(
            job=job,
            attempts=attempts,
            policy=policy,
            now=self.now,
            jitter=self._jitter,
            keyed=self._vault.keyed,
        )

    def keep(self) -> None:
        """After the commit: remember what this transaction saw and changed."""
        if self._memory is not None:
            for job in self.written:
                self._memory.put(job, [])
                self._memory.put_body(job.seq, self.bodies.get(job.seq))
            for case in self._cases.values():
                self._memory.put(case.job, case.attempts)

    def body(self, job_seq: int) -> bytes | None:
        """The small payload of a job, as far as it is known without asking."""
        known = self.bodies.get(job_seq)
        return self._memory.body(job_seq) if known is None and self._memory is not None else known

    async def adopt_rows(self, rows: Iterable[Any]) -> list[Case]:
        """Cases for job rows that this transaction has locked, in the order of the rows."""
        jobs = [Job(*row) for row in rows]
        fresh = [job for job in jobs if job.id not in self._cases]
        tried: list[dict[str, object]] = [{"job_seq": job.seq} for job in fresh if job.attempt > 0]
        attempts: dict[int, list[Attempt]] = {}
        for row in await self.tx.each("job_attempts", tried):
            attempt = Attempt(*row)
            attempts.setdefault(attempt.job_seq, []).append(attempt)
        for job in fresh:
            if self._memory is not None:
                self._memory.take(job.id)
            await self._open(job, attempts.get(job.seq, []))
        return [self._cases[job.id] for job in jobs]

    def drop(self, case: Case) -> None:
        """Forget a case with all that was changed of it."""
        self._cases.pop(case.job.id, None)

    def case(self, org_id: int, job_id: bytes) -> Case | None:
        """A loaded case of this tenant."""
        case = self._cases.get(job_id)
        return case if case is not None and case.job.org_id == org_id else None

    def count(self, org_id: int, kind: str, state: str, delta: int) -> None:
        """Keep the counters that spare everybody counting."""
        self._deltas[(org_id, kind, state)] += delta

    def note_job(self, job: Job, *, became_ready: bool) -> None:
        """Remember what a waiter or the timer may want to know of a written job."""
        self.jobs.add(job.id)
        if became_ready:
            self.ready[job.lane] += 1
        for moment in (job.due_at, job.hedge_at):
            if moment is not None:
                self.due = moment if self.due is None else min(self.due, moment)

    async def flush(self) -> None:
        """Write every changed case. Raises GuardFailed when a row was not as it was read."""
        changed = [case for case in self._cases.values() if case.changed]
        if not changed:
            return
        saves: dict[str, list[Params]] = {}
        touched: list[Params] = []
        created: list[Params] = []
        refusals: list[Params] = []
        for case in changed:
            job = case.job
            name = self._save_name(job)
            saves.setdefault(name, []).append((*_SAVES[name](job), case.guard, case.before))
            touched += [_save_attempt(a) for a in case.touched]
            created += [attempt_row(a) for a in case.created]
            self.events += case.events
            for agent in case.refused_by:
                refusals.append(
                    {"job_seq": job.seq, "agent_id": agent, "org_id": job.org_id, "now": self.now}
                )
        for name, rows in saves.items():
            await self.tx.guarded(name, rows)
        await self.tx.guarded("save_attempt", touched)
        await self.tx.bulk("insert_attempt", created)
        await self.tx.bulk("insert_refusal", refusals)
        await self._seal(changed)
        await self._attach(changed)
        await self._move_holds(changed)
        self.claimed_in.clear()
        self.claimed_by.clear()
        for case in changed:
            self._settle_down(case)

    def _save_name(self, job: Job) -> str:
        """The narrowest statement that writes all that has changed."""
        if not self.tx.narrow:
            return "save_job"
        ended, seldom = self._read[job.id]
        if seldom != _seldom(job):
            return "save_job"
        return "save_step" if ended == _ended(job) else "save_end"

    def _settle_down(self, case: Case) -> None:
        job = case.job
        if self.tx.narrow:
            self._read[job.id] = (_ended(job), _seldom(job))
        if job.state != case.before:
            self.count(job.org_id, job.kind, case.before, -1)
            self.count(job.org_id, job.kind, job.state, 1)
        became_ready = job.state == State.QUEUED and case.before != State.QUEUED
        self.note_job(job, became_ready=became_ready)
        case.before = job.state
        case.guard = job.version
        case.changed = False
        case.secret = None
        case.arrived = None
        case.events = []
        case.touched = []
        case.created = []
        case.refused_by = []
        for subject, name, amount in case.counted:
            self._counted[job.org_id, subject, name] += amount
        case.counted = []

    async def _seal(self, changed: list[Case]) -> None:
        """Secrets are ciphertext before the database, or anything on the way to it, sees them."""
        rows: list[Params] = []
        for case in changed:
            if case.secret is None:
                continue
            job = case.job
            sealed = await self._vault.seal(job.id, case.secret, self._sealed_in)
            rows.append(
                {
                    "job_seq": job.seq,
                    "org_id": job.org_id,
                    "epoch": sealed.epoch,
                    "nonce": sealed.nonce,
                    "ciphertext": sealed.ciphertext,
                    "expires_at": self.now + secret_ttl_ms(case.policy),
                    "now": self.now,
                }
            )
        await self.tx.bulk("insert_secret", rows)

    async def _attach(self, changed: list[Case]) -> None:
        """Payloads that came after their jobs."""
        rows: list[Params] = [
            {
                "job_seq": case.job.seq,
                "org_id": case.job.org_id,
                "size": case.job.payload_size,
                "sha256": case.arrived,
                "body": None,
                "now": self.now,
            }
            for case in changed
            if case.arrived is not None
        ]
        await self.tx.bulk("insert_payload", rows)

    async def _move_holds(self, changed: list[Case]) -> None:
        for case in changed:
            change = hold_change(case)
            if change is None:
                continue
            job = case.job
            params = {"device_id": job.device_id, "job_id": job.id, "org_id": job.org_id, "now": self.now}
            await self.tx.run(_HOLD_STATEMENTS[change], params)

    async def finish(self) -> None:
        """Write the trail and the counters; the last thing before the commit."""
        await self.tx.bulk("insert_event", [event_row(event) for event in self.events])
        self.events.clear()
        rows = [
            {"slot": self._slot, "org_id": org, "kind": kind, "state": state, "delta": delta, "now": self.now}
            for (org, kind, state), delta in sorted(self._deltas.items())
            if delta
        ]
        await self.tx.bulk("add_count", rows)
        self._deltas.clear()
        counted: list[Params] = [
            {
                "slot": self._slot,
                "org_id": org,
                "subject": subject,
                "name": name,
                "amount": amount,
                "now": self.now,
            }
            for (org, subject, name), amount in sorted(self._counted.items())
        ]
        await self.tx.bulk("add_counter", counted)
        self._counted.clear()
