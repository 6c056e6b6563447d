"""One job under its lock: what a verb may look at and change.

A verb is a plain function over a Case. It decides and changes the Case; whoever loaded
the Case writes it back with its guards, in the same transaction.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from farhand.model.job import HELD, TERMINAL, Actor, Attempt, Event, Job, Outcome, State, Verb
from farhand.model.policy import Policy
from farhand.model.transitions import allowed

EVENTS_PER_JOB_MAX = 500
ROOT_SUBJECT = bytes(16)
"""What is counted for jobs that the holder of the root token submitted."""


@dataclass(slots=True)
class Case:
    """A locked job with its attempts, its policy and the moment of the decision.

    `attempts` are ordered by number. `events`, `changed`, `touched`, `refused_by` and `counted`
    collect what has to be written; `jitter` returns a number in [0, 1). `keyed` makes a digest that can
    be compared only by who has the key; `secret` is what the report kept apart, to be sealed;
    `arrived` is the address of a payload that came after the job.
    """

    job: Job
    attempts: list[Attempt]
    policy: Policy
    now: int
    jitter: Callable[[], float]
    keyed: Callable[[bytes], bytes]
    secret: str | None = field(default=None, repr=False)
    arrived: bytes | None = None
    events: list[Event] = field(default_factory=list[Event])
    changed: bool = False
    touched: list[Attempt] = field(default_factory=list[Attempt])
    created: list[Attempt] = field(default_factory=list[Attempt])
    refused_by: list[bytes] = field(default_factory=list[bytes])
    counted: list[tuple[bytes, str, int]] = field(default_factory=list[tuple[bytes, str, int]])
    before: str = ""
    guard: int = 0

    def __post_init__(self) -> None:
        self.before = self.job.state
        self.guard = self.job.version

    def open_attempts(self) -> list[Attempt]:
        """The attempts that have not ended."""
        return [a for a in self.attempts if a.ended_at is None]

    def find(self, token: bytes) -> Attempt | None:
        """The attempt that holds this lease token."""
        for attempt in reversed(self.attempts):
            if attempt.token == token:
                return attempt
        return None

    def of_agent(self, agent_id: bytes) -> tuple[Attempt | None, bool]:
        """The agent's open attempt, or else its newest one; and whether no other can be meant."""
        mine = [a for a in self.attempts if a.agent_id == agent_id]
        for attempt in mine:
            if attempt.ended_at is None:
                return attempt, True
        return (mine[-1], len(mine) == 1) if mine else (None, False)

    def touch(self, attempt: Attempt) -> None:
        """Mark an attempt as changed."""
        self.changed = True
        if attempt not in self.touched and attempt not in self.created:
            self.touched.append(attempt)

    def move(
        self,
        verb: Verb,
        to: str,
        actor: Actor,
        *,
        attempt: int | None = None,
        reason: str | None = None,
        data: str | None = None,
    ) -> None:
        """Take one transition of the table and append its event.

        Raises AssertionError when the table does not know it: a rule and the table disagree.
        """
        source = self.job.state
        if to not in allowed(source, verb):
            raise AssertionError(f"{source} --{verb}--> {to} is not in the transition table")
        self.job.state = to
        if to in TERMINAL and source not in TERMINAL:
            self._finish()
        self.append(verb, source, actor, attempt=attempt, reason=reason, data=data)

    def append(
        self,
        verb: Verb,
        source: str | None,
        actor: Actor,
        *,
        attempt: int | None = None,
        reason: str | None = None,
        data: str | None = None,
    ) -> None:
        """Append an event about the job as it is now."""
        job = self.job
        job.version += 1
        self.changed = True
        event = Event(
            job_seq=job.seq,
            number=job.version,
            org_id=job.org_id,
            at=self.now,
            actor=actor,
            verb=verb,
            from_state=source,
            to_state=job.state,
            attempt=attempt,
            reason=reason,
            data=data,
        )
        self.events.append(event)

    def count(self, attempt: Attempt, name: str, amount: int = 1) -> None:
        """Count what an attempt came to, for its session, its agent and whoever submitted the job.

        Only work of the owners' lane is counted: it is theirs to see who does how much of it.
        """
        if self.policy.lane != "owner" or not amount:
            return
        for subject in {attempt.session_id, attempt.agent_id, self.job.submitted_by or ROOT_SUBJECT}:
            if subject is not None:
                self.counted.append((subject, name, amount))

    def _finish(self) -> None:
        job = self.job
        job.finished_at = self.now
        job.prune_at = self.now + self.policy.retain_ms
        job.active_key = None
        job.phase = None

    def reopen(self) -> None:
        """Undo what finishing wrote, for the one way out of a terminal state (adopt)."""
        self.job.finished_at = None
        self.job.prune_at = None

    def end(self, attempt: Attempt, outcome: Outcome, *, error: str | None = None) -> None:
        """Close an attempt."""
        attempt.ended_at = self.now
        attempt.outcome = outcome
        if error is not None:
            attempt.error = error
        self.touch(attempt)

    def derived(self) -> str:
        """The state that the open attempts add up to: started → running, any → claimed, none → queued."""
        still_open = self.open_attempts()
        if any(a.started_at is not None for a in still_open):
            return State.RUNNING
        return State.CLAIMED if still_open else State.QUEUED

    def directive(self) -> str:
        """What an agent that holds an attempt of this job is told."""
        if self.job.abort_at is not None:
            return "abort"
        return "cancel" if self.job.cancel_requested_at is not None else "continue"

    def plan(self) -> None:
        """Set when the job next needs looking at, and when a hedge is due."""
        self.job.hedge_at = self._hedge_at()
        self.job.due_at = self._due_at()

    def _due_at(self) -> int | None:
        job = self.job
        if job.state in HELD:
            return self._held_due_at()
        limits: list[int] = []
        if job.state == State.SCHEDULED and job.run_at is not None:
            limits.append(job.run_at)
        if job.state in (State.SCHEDULED, State.QUEUED):
            if job.accepted_at is None and job.start_by is not None:
                limits.append(job.start_by)
            if job.deadline is not None:
                limits.append(job.deadline)
        return min(limits, default=None)

    def _held_due_at(self) -> int | None:
        job = self.job
        still_open = self.open_attempts()
        limits = [a.lease_until for a in still_open]
        if job.hedge_at is not None and job.hedge_at > self.now:
            limits.append(job.hedge_at)
        if job.abort_at is None:
            if job.deadline is not None and self.policy.deadline_aborts:
                limits.append(job.deadline)
            if self.policy.exec_timeout_ms is not None:
                limits += [
                    a.accepted_at + self.policy.exec_timeout_ms
                    for a in still_open
                    if a.accepted_at is not None
                ]
        return min(limits, default=None)

    def _hedge_at(self) -> int | None:
        job, policy = self.job, self.policy
        if policy.hedge_after_ms is None or job.state not in HELD:
            return None
        still_open = self.open_attempts()
        offered = sum(1 for a in still_open if a.accepted_at is None)
        if (
            # Hedging runs the work twice on purpose: only where a lost run would be repeated anyway.
            policy.on_lost_running != "queued"
            or len(still_open) >= policy.max_open_attempts
            or job.tries + offered >= policy.max_attempts
            or job.cancel_requested_at is not None
            or job.abort_at is not None
        ):
            return None
        return max(a.created_at for a in still_open) + policy.hedge_after_ms
