"""The walk: every verb on every way into every state, against the transition table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from farhand.engine.requests import Claimed
from farhand.model.errors import Problem
from farhand.model.job import HELD, TERMINAL, State, Verb
from farhand.model.policy import SECOND
from farhand.model.transitions import TRANSITIONS, allowed
from farhand.testing.conformance.spots import WAYS, Spot, reach
from farhand.testing.factories import ORG, Snapshot, granted

Deed = Callable[[Spot], Awaitable[object]]
# Each with the number of attempts without which it has nothing to work on.
DEEDS: list[tuple[Verb, str, Deed, int]] = []
# A deed that found nothing to do on, say because the job was never handed out.
IDLE = object()


def deed(verb: Verb) -> Callable[[Deed], Deed]:
    """Register a way to try a verb."""

    def register(function: Deed) -> Deed:
        DEEDS.append((verb, function.__name__, function, 0))
        return function

    return register


def each_claim(verb: Verb, name: str, act: Callable[[Spot, Claimed], Awaitable[object]]) -> None:
    """Try a verb under the token of the newest attempt and under that of the first."""

    async def by_newest(spot: Spot) -> object:
        return await act(spot, spot.newest)

    async def by_first(spot: Spot) -> object:
        return await act(spot, spot.claims[0])

    DEEDS.append((verb, f"{name} by the newest", by_newest, 1))
    DEEDS.append((verb, f"{name} by the first", by_first, 2))


@deed(Verb.SUBMIT)
async def submit_again(spot: Spot) -> object:
    answer = granted(await spot.scene.try_submit(spot.lane, spot.policy, key=spot.lane.hex()))
    assert not answer.created
    assert answer.job_id == spot.job_id
    return answer


@deed(Verb.PROMOTE)
async def reach_run_at(spot: Spot) -> object:
    job = await spot.scene.job(spot.job_id)
    if job.state == State.SCHEDULED and job.run_at is not None:
        spot.scene.clock.advance_to(job.run_at)
    return await spot.scene.store.sweep()


@deed(Verb.CLAIM)
async def claim_by_another(spot: Spot) -> object:
    job = await spot.scene.job(spot.job_id)
    if job.hedge_at is not None:
        spot.scene.clock.advance_to(job.hedge_at)
    return await spot.scene.claim(spot.scene.id(), spot.lane)


async def _start(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.start(claimed)


async def _heartbeat(spot: Spot, claimed: Claimed) -> object:
    spot.scene.clock.advance(SECOND)
    return await spot.scene.heartbeat(claimed)


async def _report(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.heartbeat(claimed, reason="out of paper", says_reason=True)


async def _succeed(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.settle(claimed, evidence="printed")


async def _fail(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.settle(claimed, ok=False, error="jammed")


async def _fail_for_now(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.settle(claimed, ok=False, error="busy", retryable=True)


async def _doubt(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.settle(claimed, ok=False, uncertain=True)


async def _stop(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.settle(claimed, ok=False, cancelled=True)


async def _release(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.release(claimed)


async def _refuse(spot: Spot, claimed: Claimed) -> object:
    return await spot.scene.release(claimed, refuse=True)


async def _lapse(spot: Spot, claimed: Claimed) -> object:
    """Let this one lease run out while every other open attempt is kept alive."""
    attempts = await spot.scene.attempts(spot.job_id)
    mine = attempts[claimed.attempt.number - 1]
    if not mine.open:
        return await spot.scene.store.sweep()
    spot.scene.clock.advance_to(mine.lease_until - 1)
    for other in spot.claims:
        if other is not claimed and attempts[other.attempt.number - 1].open:
            granted(await spot.scene.heartbeat(other))
    spot.scene.clock.advance(1)
    return await spot.scene.store.sweep()


each_claim(Verb.START, "start", _start)
each_claim(Verb.HEARTBEAT, "heartbeat", _heartbeat)
each_claim(Verb.REPORT, "report", _report)
each_claim(Verb.SETTLE, "success", _succeed)
each_claim(Verb.SETTLE, "failure", _fail)
each_claim(Verb.SETTLE, "failure for now", _fail_for_now)
each_claim(Verb.SETTLE, "stop", _stop)
each_claim(Verb.RECLAIM, "doubt", _doubt)
each_claim(Verb.RELEASE, "release", _release)
each_claim(Verb.REFUSE, "refuse", _refuse)
each_claim(Verb.RECLAIM, "lapse", _lapse)


@deed(Verb.SETTLE)
async def fail_at_gate(spot: Spot) -> object:
    return await spot.scene.store.fail_at_gate(spot.scene.order(spot.job_id, note="an empty upload"))


@deed(Verb.EXPIRE)
async def pass_every_limit(spot: Spot) -> object:
    job = await spot.scene.job(spot.job_id)
    if job.state in HELD:
        leases = [a.lease_until for a in await spot.scene.attempts(spot.job_id) if a.open]
        if job.deadline is None or job.deadline >= min(leases):
            return IDLE
    limit = job.start_by if job.accepted_at is None else job.deadline
    spot.scene.clock.advance_to(limit or 0)
    return await spot.scene.store.sweep()


@deed(Verb.CANCEL)
async def cancel(spot: Spot) -> object:
    return await spot.scene.cancel(spot.job_id)


@deed(Verb.RESOLVE)
async def resolve_as_done(spot: Spot) -> object:
    return await spot.scene.store.resolve(spot.scene.order(spot.job_id, done=True))


@deed(Verb.RESOLVE)
async def resolve_as_failed(spot: Spot) -> object:
    return await spot.scene.store.resolve(spot.scene.order(spot.job_id, done=False))


@deed(Verb.RETRY)
async def retry(spot: Spot) -> object:
    return await spot.scene.retry(spot.job_id)


@deed(Verb.ADOPT)
async def adopt(spot: Spot) -> object:
    return await spot.scene.store.adopt(spot.scene.order(spot.job_id))


@dataclass(slots=True)
class Record:
    """What the walk saw: for each state and verb the states that followed."""

    seen: dict[tuple[State | None, Verb], set[State]] = field(
        default_factory=dict[tuple[State | None, Verb], set[State]]
    )

    def note(self, source: str | None, verb: str, target: str) -> None:
        """Remember a transition. Raises AssertionError when the table does not know it."""
        state = State(source) if source is not None else None
        assert State(target) in allowed(state, Verb(verb)), f"{source} --{verb}--> {target}"
        self.seen.setdefault((state, Verb(verb)), set()).add(State(target))


def compare(record: Record, before: Snapshot, after: Snapshot, verb: Verb, answer: object) -> None:
    """Hold one deed against the table: a refused verb changed nothing, any other a transition of it."""
    state = State(str(before.job["state"]))
    fresh = after.events[len(before.events) :]
    moves = [event for event in fresh if event.verb != Verb.LATE_RESULT]
    assert after.events[: len(before.events)] == before.events
    assert [event.number for event in after.events] == list(range(1, len(after.events) + 1))
    assert after.job["version"] == len(after.events)
    for event in moves:
        record.note(event.from_state, event.verb, event.to_state)
    if moves:
        assert moves[0].from_state == state
        assert moves[-1].to_state == after.job["state"]
    else:
        assert after.job["state"] == state
    if isinstance(answer, Problem) or not allowed(state, verb):
        assert not moves
        assert after.but_events() == before.but_events()
    elif verb == Verb.HEARTBEAT and answer is not IDLE:
        record.note(state, verb, str(after.job["state"]))
        assert after.attempts != before.attempts


async def walk_from(spot_name: str, record: Record, scene_of: Callable[[], Awaitable[Spot]]) -> None:
    """Try every deed from one way into a state."""
    claims = len((await scene_of()).claims)
    for verb, name, act, needed in DEEDS:
        if claims < needed:
            continue
        spot = await scene_of()
        before = await spot.scene.snapshot(spot.job_id)
        for event in before.events:
            record.note(event.from_state, event.verb, event.to_state)
        answer = await act(spot)
        after = await spot.scene.snapshot(spot.job_id)
        try:
            compare(record, before, after, verb, answer)
        except AssertionError as error:
            raise AssertionError(f"{spot_name}, {name}: {error}; answered {answer!r}") from error


async def prune_takes_finished_jobs_alone(spot: Spot) -> None:
    """After every retention a terminal job is gone, and no other is."""
    job = await spot.scene.job(spot.job_id)
    spot.scene.clock.advance(spot.policy.retain_ms)
    await spot.scene.store.prune()
    left = await spot.scene.store.events(ORG, spot.job_id)
    assert (left is None) == (job.state in TERMINAL)


def missing(record: Record) -> dict[str, list[str]]:
    """What the table allows and the walk has not seen."""
    return {
        f"{source} --{verb}-->": sorted(targets - record.seen.get((source, verb), set()))
        for (source, verb), targets in TRANSITIONS.items()
        if targets - record.seen.get((source, verb), set())
    }


__all__ = ["DEEDS", "WAYS", "Record", "missing", "prune_takes_finished_jobs_alone", "reach", "walk_from"]
