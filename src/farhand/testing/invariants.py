"""What must hold of every database at every moment, whatever was done to it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from farhand.model.job import HELD, TERMINAL, Attempt, Job, Outcome, State, Verb
from farhand.model.policy import Policy
from farhand.model.transitions import allowed
from farhand.storage.database import Row
from farhand.storage.store import Store
from farhand.testing.factories import ORG

UNCOUNTED = (Outcome.RELEASED, Outcome.REFUSED)
# `adopt` and the retry of an uncertain job are the only moves that start from an end.
FROM_THE_END = (Verb.ADOPT, Verb.RETRY)


def everything() -> dict[str, object]:
    """The parameters of `list_jobs` that leave nothing out."""
    chosen: dict[str, object] = {"newline": "\n", "org_id": ORG, "limit": 1_000_000}
    return defaultdict(lambda: None, chosen)


async def violations(store: Store) -> list[str]:
    """Every broken rule, in words; empty when all is well."""
    found: list[str] = []
    counted: Counter[tuple[str, str]] = Counter()
    async with store.database.read() as reader:
        jobs = [Job(*row) for row in await reader.all("list_jobs", everything())]
        for job in jobs:
            counted[(job.kind, job.state)] += 1
            attempts = [Attempt(*row) for row in await reader.all("job_attempts", {"job_seq": job.seq})]
            policy = await store.writer.policies.get(reader, job.policy_id)
            whole = {"job_seq": job.seq, "after": 0, "limit": 100_000}
            trail = await reader.all("job_events", whole)
            for words in (
                *_of_state(job, attempts),
                *_of_tries(job, attempts, policy),
                *_of_clocks(job, attempts),
                *_of_trail(job, trail),
            ):
                found.append(f"job {job.seq} ({job.state}): {words}")
            if job.device_id is not None and policy.settled_by == "telemetry":
                hold = await reader.one("hold_of", {"device_id": job.device_id})
                held = hold is not None and hold[0] == job.id
                if held and job.state not in (*HELD, State.UNCERTAIN):
                    found.append(f"job {job.seq} ({job.state}): still holds its device")
    kept = Counter({(kind, state): n for kind, state, n in await store.counts(ORG) if n})
    if kept != counted:
        found.append(f"the counters say {kept}, the rows say {counted}")
    return found


def _of_state(job: Job, attempts: list[Attempt]) -> Iterator[str]:
    still_open = [a for a in attempts if a.open]
    if bool(still_open) != (job.state in HELD):
        yield f"{len(still_open)} attempts are open"
    if job.state in HELD and any(a.started_at is not None for a in still_open) != (
        job.state == State.RUNNING
    ):
        yield "running is not what its open attempts say"
    terminal = job.state in TERMINAL
    if terminal and (job.active_key is not None or job.due_at is not None or job.hedge_at is not None):
        yield "ended, but still keyed or due"
    if (job.finished_at is not None) != terminal or (job.prune_at is not None) != terminal:
        yield "finished_at or prune_at does not fit"
    if job.state != State.RUNNING and job.phase is not None:
        yield f"has the phase {job.phase}"
    succeeded = sum(1 for a in attempts if a.outcome == Outcome.SUCCEEDED)
    if succeeded > 1:
        yield f"succeeded {succeeded} times"
    if (job.state == State.DONE) != (succeeded == 1) and job.evidence != "person":
        yield f"{succeeded} successes"


def _of_tries(job: Job, attempts: list[Attempt], policy: Policy) -> Iterator[str]:
    if [a.number for a in attempts] != list(range(1, job.attempt + 1)):
        yield "attempts are not numbered through"
    counted = sum(1 for a in attempts if a.accepted_at is not None and a.outcome not in UNCOUNTED)
    if policy.settled_by != "telemetry" and job.tries != counted:
        yield f"{job.tries} tries, but {counted} attempts count"
    if job.tries > policy.max_attempts:
        yield f"{job.tries} tries of {policy.max_attempts}"
    still_open = [a for a in attempts if a.open]
    if len(still_open) > policy.max_open_attempts:
        yield f"{len(still_open)} attempts are open at once"
    if len({a.agent_id for a in still_open}) != len(still_open):
        yield "one agent has it twice"


def _of_clocks(job: Job, attempts: list[Attempt]) -> Iterator[str]:
    if job.state in HELD:
        first = min(a.lease_until for a in attempts if a.open)
        if job.due_at is None or job.due_at > first:
            yield "nobody would notice a lost lease"
    if job.state == State.SCHEDULED and (job.run_at is None or job.due_at is None or job.due_at > job.run_at):
        yield "nobody would promote it"
    if job.state in (State.SCHEDULED, State.QUEUED):
        limits = [job.deadline, job.start_by if job.accepted_at is None else None]
        known = [limit for limit in limits if limit is not None]
        if known and (job.due_at is None or job.due_at > min(known)):
            yield "nobody would expire it"


def _of_trail(job: Job, trail: Sequence[Row]) -> Iterator[str]:
    if [event[1] for event in trail] != list(range(1, job.version + 1)):
        yield "events are missing"
        return
    state: str | None = None
    for event in trail:
        number, verb, source, target = event[1], event[6], event[7], event[8]
        if source != state:
            yield f"event {number} starts from {source}, not from {state}"
        if verb != Verb.LATE_RESULT:
            known = State(source) if source is not None else None
            if State(target) not in allowed(known, Verb(verb)):
                yield f"{source} --{verb}--> {target} is not in the table"
            if source in TERMINAL and verb not in FROM_THE_END:
                yield f"{verb} moved it from its end"
        state = target
    if state != job.state:
        yield f"its trail ends in {state}"
