"""Ways into every state, each through real operations only."""

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from farhand.engine.requests import Claimed
from farhand.model.job import UPLOAD_TIMEOUT, State
from farhand.model.policy import DAY, FETCH_SAFE, MINUTE, PRINT, SECOND, Policy
from farhand.testing.factories import Scene, granted

STEADY = PRINT
LAST = dataclasses.replace(PRINT, max_attempts=1)
FAILING = dataclasses.replace(PRINT, on_lost_running="failed", no_return_phase=None)
BOUNDED = dataclasses.replace(PRINT, deadline_ms=30 * SECOND, deadline_aborts=True)
HEDGED = dataclasses.replace(
    FETCH_SAFE, start_by_ms=DAY, deadline_ms=DAY, hedge_after_ms=5 * SECOND, backoff_base_ms=MINUTE
)


@dataclass(slots=True)
class Spot:
    """A job brought into a state, with everything that was handed out for it, in order."""

    scene: Scene
    lane: bytes
    policy: Policy = STEADY
    job_id: bytes = b""
    claims: list[Claimed] = field(default_factory=list[Claimed])

    @property
    def newest(self) -> Claimed:
        """The newest handing-out."""
        return self.claims[-1]

    async def submit(self, **fields: object) -> None:
        """Write the job down under a key that the walk submits again."""
        self.job_id = await self.scene.submit(self.lane, self.policy, key=self.lane.hex(), **fields)

    async def claim(self, *, accept: bool = True) -> Claimed:
        """Hand the job to an agent that never had it."""
        claimed = await self.scene.take(self.scene.id(), self.lane, accept=accept)
        self.claims.append(claimed)
        return claimed

    async def hedge(self, *, accept: bool = True) -> Claimed:
        """Hand it to a second agent when that is due."""
        job = await self.scene.job(self.job_id)
        assert job.hedge_at is not None
        self.scene.clock.advance_to(job.hedge_at)
        return await self.claim(accept=accept)


Way = Callable[[Spot], Awaitable[None]]
WAYS: dict[str, tuple[State, Policy, Way]] = {}


def way(state: State, policy: Policy = STEADY) -> Callable[[Way], Way]:
    """Register a way into a state."""

    def register(function: Way) -> Way:
        WAYS[function.__name__] = (state, policy, function)
        return function

    return register


async def reach(scene: Scene, name: str) -> Spot:
    """Bring a new job into a state by a way. Raises AssertionError when it ends elsewhere."""
    state, policy, function = WAYS[name]
    spot = Spot(scene, scene.id(), policy)
    await function(spot)
    found = await scene.state(spot.job_id)
    assert found == state, f"{name} led to {found}"
    return spot


@way(State.SCHEDULED)
async def later(spot: Spot) -> None:
    await spot.submit(run_at=spot.scene.clock.now_ms() + MINUTE)


@way(State.SCHEDULED)
async def backing_off(spot: Spot) -> None:
    await spot.submit()
    await spot.scene.settle(await spot.claim(), ok=False, retryable=True)


@way(State.SCHEDULED, HEDGED)
async def backing_off_after_a_loss(spot: Spot) -> None:
    await held_failure_claimed(spot)
    await spot.scene.lapse(spot.newest)


@way(State.QUEUED)
async def fresh(spot: Spot) -> None:
    await spot.submit()


@way(State.QUEUED)
async def lost_once(spot: Spot) -> None:
    await spot.submit()
    await spot.scene.lapse(await spot.claim())


@way(State.CLAIMED)
async def offered(spot: Spot) -> None:
    await spot.submit()
    await spot.claim(accept=False)


@way(State.CLAIMED)
async def accepted(spot: Spot) -> None:
    await spot.submit()
    await spot.claim()


@way(State.CLAIMED, LAST)
async def accepted_for_the_last_time(spot: Spot) -> None:
    await accepted(spot)


@way(State.CLAIMED)
async def accepted_and_cancelled(spot: Spot) -> None:
    await accepted(spot)
    await spot.scene.cancel(spot.job_id)


@way(State.CLAIMED, BOUNDED)
async def accepted_and_bounded(spot: Spot) -> None:
    await accepted(spot)


@way(State.CLAIMED, BOUNDED)
async def accepted_and_aborted(spot: Spot) -> None:
    await accepted(spot)
    spot.scene.clock.advance(30 * SECOND)
    await spot.scene.store.sweep()


@way(State.CLAIMED, HEDGED)
async def one_of_two(spot: Spot) -> None:
    await accepted(spot)


@way(State.CLAIMED, HEDGED)
async def hedged(spot: Spot) -> None:
    await accepted(spot)
    await spot.hedge()


@way(State.CLAIMED, HEDGED)
async def held_failure_claimed(spot: Spot) -> None:
    await hedged(spot)
    await spot.scene.settle(spot.claims[0], ok=False, retryable=True)


@way(State.CLAIMED, HEDGED)
async def held_last_failure_claimed(spot: Spot) -> None:
    await hedged(spot)
    await spot.scene.settle(spot.claims[0], ok=False, error="cannot resolve the name")


@way(State.RUNNING)
async def started(spot: Spot) -> None:
    await accepted(spot)
    granted(await spot.scene.start(spot.newest, "downloading"))


@way(State.RUNNING)
async def spooling(spot: Spot) -> None:
    await accepted(spot)
    granted(await spot.scene.start(spot.newest, "spooling"))


@way(State.RUNNING, LAST)
async def started_for_the_last_time(spot: Spot) -> None:
    await started(spot)


@way(State.RUNNING, FAILING)
async def started_and_not_repeatable(spot: Spot) -> None:
    await started(spot)


@way(State.RUNNING)
async def started_and_cancelled(spot: Spot) -> None:
    await started(spot)
    await spot.scene.cancel(spot.job_id)


@way(State.RUNNING)
async def spooling_and_cancelled(spot: Spot) -> None:
    await spooling(spot)
    await spot.scene.cancel(spot.job_id)


@way(State.RUNNING, BOUNDED)
async def started_and_bounded(spot: Spot) -> None:
    await started(spot)


@way(State.RUNNING, BOUNDED)
async def started_and_aborted(spot: Spot) -> None:
    await started(spot)
    spot.scene.clock.advance(30 * SECOND)
    await spot.scene.store.sweep()


@way(State.RUNNING, HEDGED)
async def running_one_of_two(spot: Spot) -> None:
    await accepted(spot)
    granted(await spot.scene.start(spot.newest))


@way(State.RUNNING, HEDGED)
async def hedged_and_running(spot: Spot) -> None:
    await running_one_of_two(spot)
    await spot.hedge()


@way(State.RUNNING, HEDGED)
async def held_failure_running(spot: Spot) -> None:
    await held_failure_claimed(spot)
    granted(await spot.scene.start(spot.newest))


@way(State.RUNNING, HEDGED)
async def held_last_failure_running(spot: Spot) -> None:
    await held_last_failure_claimed(spot)
    granted(await spot.scene.start(spot.newest))


@way(State.UNCERTAIN)
async def lost_past_no_return(spot: Spot) -> None:
    await spooling(spot)
    await spot.scene.lapse(spot.newest)


@way(State.DONE)
async def printed(spot: Spot) -> None:
    await spooling(spot)
    granted(await spot.scene.settle(spot.newest, evidence="printed"))


@way(State.FAILED)
async def failed(spot: Spot) -> None:
    await started(spot)
    granted(await spot.scene.settle(spot.newest, ok=False, error="no such font"))


@way(State.FAILED)
async def upload_timed_out(spot: Spot) -> None:
    await lost_once(spot)
    granted(await spot.scene.store.fail_at_gate(spot.scene.order(spot.job_id, note=UPLOAD_TIMEOUT)))


@way(State.CANCELLED)
async def cancelled(spot: Spot) -> None:
    await fresh(spot)
    granted(await spot.scene.cancel(spot.job_id))


@way(State.CANCELLED)
async def cancelled_in_hand(spot: Spot) -> None:
    await started_and_cancelled(spot)
    granted(await spot.scene.settle(spot.newest, ok=False, cancelled=True))


@way(State.EXPIRED)
async def expired(spot: Spot) -> None:
    await fresh(spot)
    job = await spot.scene.job(spot.job_id)
    assert job.start_by is not None
    spot.scene.clock.advance_to(job.start_by)
    await spot.scene.store.sweep()
