"""One transaction's view of jobs: cases loaded under lock, changes written with their guards."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from farhand.engine.case import Case
from farhand.engine.holds import hold_change
from farhand.model.job import Attempt, Event, Job, State
from farhand.model.policy import Policy
from farhand.storage.database import Tx
from farhand.storage.policies import Policies
from farhand.storage.statements import columns

JOB_COLUMNS: Final = tuple(columns(Job))
ATTEMPT_COLUMNS: Final = tuple(columns(Attempt))
_HOLD_STATEMENTS: Final = {"free": "drop_hold", "bed": "raise_bed", "take": "take_hold"}


def job_params(job: Job) -> dict[str, object]:
    """A job as statement parameters."""
    return {name: getattr(job, name) for name in JOB_COLUMNS}


def attempt_params(attempt: Attempt) -> dict[str, object]:
    """An attempt as statement parameters."""
    return {name: getattr(attempt, name) for name in ATTEMPT_COLUMNS}


def event_params(event: Event) -> dict[str, object]:
    """An event as statement parameters."""
    return {
        "job_seq": event.job_seq,
        "number": event.number,
        "org_id": event.org_id,
        "at": event.at,
        "actor_kind": event.actor.kind,
        "actor_id": event.actor.id,
        "verb": event.verb,
        "from_state": event.from_state,
        "to_state": event.to_state,
        "attempt": event.attempt,
        "reason": event.reason,
        "data": event.data,
    }


class Session:
    """What one transaction has loaded and changed.

    `ready` counts jobs per lane that became claimable, `jobs` the ids that changed, `due` the
    earliest moment at which one of them needs looking at again. `new_policies`,
    `read_policies` and `learned` are for the caches of the process, after the commit.
    """

    def __init__(self, tx: Tx, now: int, policies: Policies, jitter: Callable[[], float], slot: int) -> None:
        self.tx = tx
        self.now = now
        self.policies = policies
        self.ready: Counter[bytes] = Counter()
        self.jobs: set[bytes] = set()
        self.due: int | None = None
        self.new_policies: list[tuple[int, str, Policy, int]] = []
        self.read_policies: dict[int, Policy] = {}
        self.learned: dict[str, int] = {}
        self._jitter = jitter
        self._slot = slot
        self._cases: dict[bytes, Case] = {}
        self._deltas: Counter[tuple[int, str, str]] = Counter()

    async def load(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Lock jobs by tenant and id, in id order, so that two processes never wait in a ring."""
        wanted = sorted({key for key in keys if key[1] not in self._cases}, key=lambda key: key[1])
        rows = await self.tx.each("lock_job", [{"org_id": org, "id": job} for org, job in wanted])
        await self.adopt_rows(rows)

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
            policy = self.read_policies.get(job.policy_id)
            if policy is None:
                policy = await self.policies.get(self.tx, job.policy_id)
                self.read_policies[job.policy_id] = policy
            self._cases[job.id] = Case(
                job=job, attempts=attempts.get(job.seq, []), policy=policy, now=self.now, jitter=self._jitter
            )
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
        saves: list[dict[str, object]] = []
        touched: list[dict[str, object]] = []
        created: list[dict[str, object]] = []
        events: list[dict[str, object]] = []
        refusals: list[dict[str, object]] = []
        for case in changed:
            job = case.job
            saves.append({**job_params(job), "guard": case.guard, "before": case.before})
            touched += [attempt_params(a) for a in case.touched]
            created += [attempt_params(a) for a in case.created]
            events += [event_params(e) for e in case.events]
            for agent in case.refused_by:
                refusals.append(
                    {"job_seq": job.seq, "agent_id": agent, "org_id": job.org_id, "now": self.now}
                )
        await self.tx.guarded("save_job", saves)
        await self.tx.guarded("save_attempt", touched)
        await self.tx.bulk("insert_attempt", created)
        await self.tx.bulk("insert_event", events)
        await self.tx.bulk("insert_refusal", refusals)
        await self._move_holds(changed)
        for case in changed:
            self._settle_down(case)

    def _settle_down(self, case: Case) -> None:
        job = case.job
        if job.state != case.before:
            self.count(job.org_id, job.kind, case.before, -1)
            self.count(job.org_id, job.kind, job.state, 1)
        became_ready = job.state == State.QUEUED and case.before != State.QUEUED
        self.note_job(job, became_ready=became_ready)
        case.before = job.state
        case.guard = job.version
        case.changed = False
        case.events = []
        case.touched = []
        case.created = []
        case.refused_by = []

    async def _move_holds(self, changed: list[Case]) -> None:
        for case in changed:
            change = hold_change(case)
            if change is None:
                continue
            job = case.job
            params = {"device_id": job.device_id, "job_id": job.id, "org_id": job.org_id, "now": self.now}
            await self.tx.run(_HOLD_STATEMENTS[change], params)

    async def finish(self) -> None:
        """Write the counters; the last thing before the commit."""
        rows = [
            {"slot": self._slot, "org_id": org, "kind": kind, "state": state, "delta": delta, "now": self.now}
            for (org, kind, state), delta in sorted(self._deltas.items())
            if delta
        ]
        await self.tx.bulk("add_count", rows)
        self._deltas.clear()
