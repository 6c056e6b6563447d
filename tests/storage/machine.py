"""A random walk over the store with its invariants, for Hypothesis: data biased to lease boundaries."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from farhand.engine.requests import Claimed, JobFilter, Settle
from farhand.model.errors import Problem
from farhand.model.job import TERMINAL, Dialect, State
from farhand.model.policy import FETCH_SAFE, PRINT, SECOND, Policy
from farhand.testing.clock import FakeClock
from farhand.testing.factories import ORG, Scene, report
from farhand.testing.invariants import violations

T = TypeVar("T")
LEASE_MS = 10 * SECOND
ACCEPT_MS = 2 * SECOND
_SHORT: dict[str, Any] = {
    "lease_ms": LEASE_MS,
    "seed_lease_ms": 3 * LEASE_MS,
    "start_by_ms": 5 * LEASE_MS,
    "deadline_ms": 8 * LEASE_MS,
    "cancel_grace_ms": 5 * SECOND,
    "backoff_base_ms": 2 * SECOND,
    "backoff_cap_ms": 6 * SECOND,
    "retain_ms": 30 * LEASE_MS,
}
POLICIES = (
    dataclasses.replace(PRINT, max_attempts=3, **_SHORT),
    dataclasses.replace(PRINT, max_attempts=1, deadline_aborts=True, **_SHORT),
    dataclasses.replace(FETCH_SAFE, hedge_after_ms=3 * SECOND, **_SHORT),
    dataclasses.replace(PRINT, on_lost_running="failed", exec_timeout_ms=15 * SECOND, **_SHORT),
)
# Just before, at and just after each limit; elsewhere nothing happens that matters.
TICKS = st.sampled_from(
    [1, ACCEPT_MS - 1, ACCEPT_MS, 3 * SECOND, LEASE_MS - 1, LEASE_MS, LEASE_MS + 1, 3 * LEASE_MS]
)


class StoreMachine(RuleBasedStateMachine):
    """Operations of clients, agents, people and time on one store.

    `open_scene` makes the scene, `close_scene` ends it; both are given by the test.
    """

    open_scene: Callable[[FakeClock], Awaitable[Scene]]
    close_scene: Callable[[Scene], Awaitable[None]]

    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = FakeClock()
        self.scene: Scene = self.run(type(self).open_scene(self.clock))
        self.agents = [self.scene.id() for _ in range(3)]
        self.lane = self.scene.id()
        self.polls = 0

    def run(self, work: Awaitable[T]) -> T:
        """Run one operation to its end."""

        async def wait() -> T:
            return await work

        return self.loop.run(wait())

    def teardown(self) -> None:
        """When nobody does anything any more, time alone ends every job; then close the store."""
        try:
            for _ in range(12):
                self.clock.advance(LEASE_MS)
                while self.run(self.scene.store.sweep()):
                    pass
            left = {job.state for job in self.run(self.scene.store.jobs(JobFilter(org_id=ORG, limit=1000)))}
            assert left <= {*TERMINAL, State.UNCERTAIN}, f"hangs: {left}"
        finally:
            self.run(type(self).close_scene(self.scene))
            self.loop.close()

    @initialize(target=jobs, policy=st.sampled_from(POLICIES))
    def first(self, policy: Policy) -> bytes:
        """There is a job from the start."""
        return self.run(self.scene.submit(self.lane, policy))

    @rule(target=jobs, policy=st.sampled_from(POLICIES), delay=st.sampled_from([0, 0, LEASE_MS]))
    def submit(self, policy: Policy, delay: int) -> bytes:
        """A client submits."""
        run_at = self.clock.now_ms() + delay if delay else None
        return self.run(self.scene.submit(self.lane, policy, run_at=run_at))

    @rule(target=claims, who=st.integers(0, 2), accept=st.booleans(), most=st.sampled_from([1, 3]))
    def claim(self, who: int, accept: bool, most: int) -> Any:
        """A native agent polls."""
        self.polls += 1
        asked = {"accept": accept, "max": most, "poll_id": str(self.polls), "accept_ms": ACCEPT_MS}
        claimed = self.run(self.scene.claim(self.agents[who], self.lane, **asked))
        assert len(claimed) <= most
        return multiple(*claimed)

    @rule(target=claims, who=st.integers(0, 2))
    def claim_as_seed(self, who: int) -> Any:
        """An agent of the seed polls."""
        return multiple(*self.run(self.scene.claim(self.agents[who], self.lane, dialect=Dialect.SEED)))

    @rule(claimed=claims, phase=st.sampled_from([None, "downloading", "spooling"]))
    def start(self, claimed: Claimed, phase: str | None) -> None:
        """An agent begins, perhaps too late."""
        self.run(self.scene.start(claimed, phase))

    @rule(claimed=claims)
    def fetch(self, claimed: Claimed) -> None:
        """An agent of the seed takes the payload."""
        self.run(self.scene.store.fetch_payload(self.scene.unnamed(claimed)))

    @rule(claimed=claims, phase=st.sampled_from([None, "spooling"]))
    def heartbeat(self, claimed: Claimed, phase: str | None) -> None:
        """An agent is still at it."""
        self.run(self.scene.heartbeat(claimed, phase=phase))

    @rule(claimed=claims, said=st.sampled_from(["ok", "ok", "failed", "retryable", "uncertain", "cancelled"]))
    def settle(self, claimed: Claimed, said: str) -> None:
        """An agent reports, under its token, whenever it likes."""
        told = {} if said in ("ok", "failed") else {said: True}
        first = self.run(self.scene.settle(claimed, ok=said == "ok", **told))
        if not isinstance(first, Problem):
            again = self.run(self.scene.settle(claimed, ok=said == "ok", **told))
            assert not isinstance(again, Problem)
            assert (again.state, again.replay) == (first.state, True)

    @rule(claimed=claims)
    def settle_unnamed(self, claimed: Claimed) -> None:
        """An agent of the seed reports without a token."""
        self.run(self.scene.store.settle(Settle(act=self.scene.unnamed(claimed), report=report())))

    @rule(claimed=claims, refuse=st.booleans())
    def release(self, claimed: Claimed, refuse: bool) -> None:
        """An agent gives back."""
        self.run(self.scene.release(claimed, refuse=refuse))

    @rule(job=jobs)
    def cancel(self, job: bytes) -> None:
        """A person cancels."""
        self.run(self.scene.cancel(job))

    @rule(target=jobs, job=jobs)
    def retry(self, job: bytes) -> Any:
        """A person tries again; twice, to be sure."""
        answer = self.run(self.scene.retry(job, POLICIES[0]))
        if isinstance(answer, Problem):
            return multiple()
        again = self.run(self.scene.retry(job, POLICIES[0]))
        assert isinstance(again, Problem)
        assert again.problem == "retry-conflict"
        return answer.job_id

    @rule(job=jobs, done=st.booleans())
    def resolve(self, job: bytes, done: bool) -> None:
        """A person knows."""
        self.run(self.scene.store.resolve(self.scene.order(job, done=done)))

    @rule(job=jobs)
    def adopt(self, job: bytes) -> None:
        """Telemetry knows."""
        self.run(self.scene.store.adopt(self.scene.order(job)))

    @rule(ms=TICKS, sweep=st.booleans())
    def tick(self, ms: int, sweep: bool) -> None:
        """Time passes; the sweep may be late."""
        self.clock.advance(ms)
        if sweep:
            while self.run(self.scene.store.sweep()):
                pass

    @invariant()
    def all_is_well(self) -> None:
        """Every rule of `invariants` holds after every step."""
        assert self.run(violations(self.scene.store)) == []
