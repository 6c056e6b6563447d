"""A whole agent against a server and a network that go wrong."""

import asyncio

import pytest

from farhand.agent import keeper, suspend
from farhand.agent.backoff import Backoff
from farhand.agent.errors import ShutOut
from farhand.agent.handler import Abandoned, ResultDraft, Tools, Withdrawn
from farhand.protocol.agent import ClaimedJob
from farhand.testing.clock import FakeClock
from tests.agent.conftest import Bench
from tests.agent.fake_server import (
    Answer,
    FakeServer,
    Fault,
    Reply,
    Request,
    hang,
    lost_reply,
    lost_request,
    page,
    problem,
)
from tests.peers.printers import until


async def settled(server: FakeServer, count: int = 1) -> None:
    await until(lambda: len(server.results) >= count, f"{count} results")


async def waiting(server: FakeServer, polls: int = 1) -> None:
    await until(lambda: server.count("/claim") >= polls, f"{polls} polls")


class Gate:
    """Work that stands still at a place of the test's choosing."""

    def __init__(self, before: bool) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.before = before
        self.cancelled = False

    async def __call__(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        if self.before:
            self.reached.set()
            await self.go.wait()
        await tools.no_return("spooling", "a memo")
        if not self.before:
            self.reached.set()
            going = asyncio.create_task(self.go.wait())
            stopping = asyncio.create_task(tools.cancelled.wait())
            await asyncio.wait((going, stopping), return_when=asyncio.FIRST_COMPLETED)
            going.cancel()
            stopping.cancel()
            if tools.cancelled.is_set():
                self.cancelled = True
                return ResultDraft(ok=False, cancelled=True)
        return ResultDraft(ok=True, evidence="delivered")


async def test_a_job_is_taken_done_and_reported_in_two_requests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine the start would else go out by itself first.
    monkeypatch.setattr(keeper, "START_AFTER_MS", 60_000)
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await settled(bench.server)
    ((settled_id, result),) = bench.server.results
    assert settled_id == job_id
    assert (result["ok"], result["evidence"]) == (True, "delivered")
    assert bench.server.count("/start") == 1
    assert bench.server.count("/heartbeat") == 0
    assert bench.server.phases[job_id] == ["spooling"]


async def test_a_result_brings_the_next_job_of_its_lane(bench: Bench) -> None:
    async with bench.running():
        await waiting(bench.server)
        jobs = [bench.server.add() for _ in range(5)]
        await settled(bench.server, 5)
    assert bench.worker.ran == jobs
    assert all(body["next"]["lanes"] == ["lane-1"] for body in bench.server.bodies("/result"))


@pytest.mark.parametrize("faults", [[lost_reply], [lost_request], [lost_reply, page(502), lost_reply]])
async def test_a_lost_claim_reply_costs_nothing(bench: Bench, faults: list[Fault]) -> None:
    job_id = bench.server.add()
    bench.server.fault("/claim", *faults)
    async with bench.running():
        await settled(bench.server)
    assert bench.worker.ran == [job_id]
    polls = [body["poll_id"] for body in bench.server.bodies("/claim")]
    assert len(set(polls[: len(faults) + 1])) == 1
    assert bench.server.released == []


@pytest.mark.parametrize(
    "fault", [page(200), page(502), page(401), problem(503, "busy"), problem(500, "internal")]
)
async def test_an_answer_that_is_not_the_servers_stops_nothing(bench: Bench, fault: Fault) -> None:
    for path in ("/register", "/claim", "/start", "/result"):
        bench.server.fault(path, fault)
    job_id = bench.server.add()
    async with bench.running():
        await settled(bench.server)
    assert bench.worker.ran == [job_id]


async def test_a_lost_result_reply_is_sent_again_the_same(bench: Bench) -> None:
    bench.server.fault("/result", lost_reply, lost_reply)
    job_id = bench.server.add()
    async with bench.running():
        await settled(bench.server, 3)
    assert bench.worker.ran == [job_id]
    first, *rest = bench.server.results
    assert all(again == first for again in rest)
    assert list((bench.data / "outbox").iterdir()) == []


async def test_a_result_survives_the_agent(bench: Bench) -> None:
    bench.server.fault("/result", *[lost_request] * 50)
    job_id = bench.server.add()
    async with bench.started() as (_, _task):
        await until(lambda: bench.server.count("/result") > 0, "a result is sent")
        await until(lambda: bool(list((bench.data / "outbox").iterdir())), "it is kept")
    assert bench.server.results == []
    bench.server._faults.clear()
    async with bench.running():
        await settled(bench.server)
    assert [(done, said["ok"]) for done, said in bench.server.results] == [(job_id, True)]
    assert bench.worker.ran == [job_id]
    assert bench.worker.recovered == []


async def test_a_crash_between_outbox_and_journal_asks_no_device_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crashed(*_: object) -> None:
        raise OSError("the power fails here")

    bench.server.fault("/result", *[lost_request] * 50)
    bench.server.add()
    async with bench.started():
        with monkeypatch.context() as patch:
            patch.setattr("farhand.agent.journal.Journal.ended", crashed)
            await until(lambda: bench.server.count("/result") > 0, "it is on its way")
    bench.server._faults.clear()
    async with bench.running():
        await settled(bench.server)
    assert bench.worker.recovered == []
    assert bench.server.results[0][1]["evidence"] == "delivered"


async def test_retry_after_is_honoured(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    bench.server.fault("/claim", problem(429, "too-many-waits", retry_after=1))
    async with bench.running():
        await waiting(bench.server, 1)
        began = loop.time()
        await waiting(bench.server, 2)
        assert loop.time() - began >= 0.95


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthorized"), (403, "agent-revoked"), (426, "upgrade-required")]
)
async def test_an_agent_that_is_shut_out_stops_loudly(bench: Bench, status: int, code: str) -> None:
    bench.server.fault("/claim", problem(status, code))
    async with bench.started() as (_, task):
        with pytest.raises(ShutOut, match=code):
            await task


async def test_a_401_midway_lets_the_device_finish_and_keeps_the_result(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.step = gate
    bench.server.lease_ms = 200
    job_id = bench.server.add()
    async with bench.started(stop_grace_ms=20_000) as (_, task):
        await gate.reached.wait()
        bench.server.fault("/heartbeat", problem(401, "unauthorized"))
        bench.server.fault("/result", problem(401, "unauthorized"))
        await until(lambda: bench.server._faults[0][0] == "/result", "the heartbeat met its 401")
        gate.go.set()
        with pytest.raises(ShutOut):
            await task
    (kept,) = (bench.data / "outbox").iterdir()
    assert kept.name.startswith(job_id)
    async with bench.running():
        await settled(bench.server)
    assert bench.worker.ran == [job_id]


async def test_a_401_before_the_point_of_no_return_leaves_the_work_undone(bench: Bench) -> None:
    gate = Gate(before=True)
    bench.worker.step = gate
    bench.server.lease_ms = 200
    job_id = bench.server.add()
    async with bench.started() as (_, task):
        await gate.reached.wait()
        await until(lambda: bench.server.count("/start") > 0, "it has started")
        bench.server.fault("/heartbeat", problem(401, "unauthorized"))
        with pytest.raises(ShutOut):
            await task
    assert bench.server.results == []
    async with bench.running():
        await until(lambda: bench.server.released == [job_id], "it goes back at the next start")
    assert bench.worker.recovered == []


async def test_a_stale_lease_before_the_point_of_no_return_abandons_the_work(bench: Bench) -> None:
    gate = Gate(before=True)
    bench.worker.step = gate
    bench.server.lease_ms = 200
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
        bench.server.lose(job_id)
        await waiting(bench.server, 2)
        bench.server.add()
        await until(lambda: len(bench.worker.ran) == 2, "the lane is free again")
        gate.go.set()
        await settled(bench.server)
    assert job_id not in [done for done, _ in bench.server.results]
    assert bench.server.released == []


async def test_a_stale_lease_after_it_is_followed_and_reported_all_the_same(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.step = gate
    bench.server.lease_ms = 200
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
        bench.server.lose(job_id, "uncertain")
        beats = bench.server.count("/heartbeat")
        await until(lambda: bench.server.count("/heartbeat") > beats, "the lease is found lost")
        gate.go.set()
        await until(lambda: bench.server.count("/result") == 1, "the outcome is reported late")
    assert bench.server.bodies("/result")[0]["ok"] is True
    assert not gate.cancelled


async def test_work_whose_job_was_given_up_is_taken_back_where_that_is_possible(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.step = gate
    bench.server.lease_ms = 200
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
        bench.server.lose(job_id, "failed")
        await until(lambda: gate.cancelled, "the device is told to stop")


@pytest.mark.parametrize("directive", ["cancel", "abort"])
async def test_a_directive_ends_the_work_and_what_happened_is_reported(bench: Bench, directive: str) -> None:
    gate = Gate(before=False)
    bench.worker.step = gate
    bench.server.lease_ms = 200
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
        bench.server.directives[job_id] = directive
        await settled(bench.server)
    assert bench.server.results[0][1]["cancelled"] is True


async def test_a_cancel_before_the_point_of_no_return_does_nothing_irreversible(bench: Bench) -> None:
    crossed: list[str] = []

    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        with pytest.raises(Withdrawn):
            await tools.no_return("spooling", "a memo")
        crossed.append("not")
        raise Withdrawn("stop")

    bench.worker.step = step
    job_id = bench.server.add()
    bench.server.directives[job_id] = "cancel"
    async with bench.running():
        await settled(bench.server)
    assert crossed in (["not"], [])
    assert bench.server.results[0][1]["cancelled"] is True


async def test_no_byte_leaves_before_the_server_has_acknowledged(bench: Bench) -> None:
    order: list[str] = []

    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        await tools.no_return("spooling", "a memo")
        order.append(f"starts answered: {len(bench.server.phases.get(job.job_id, []))}")
        return ResultDraft(ok=True)

    bench.worker.step = step
    bench.server.fault("/start", page(502), lost_request)
    bench.server.add()
    async with bench.running():
        await settled(bench.server)
    assert order == ["starts answered: 1"]


async def test_a_lost_lease_is_found_before_the_first_byte(bench: Bench) -> None:
    outcome: list[str] = []
    gate = asyncio.Event()

    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        await gate.wait()
        try:
            await tools.no_return("spooling", "a memo")
        except Abandoned:
            outcome.append("abandoned")
            raise
        outcome.append("sent")
        return ResultDraft(ok=True)

    bench.worker.step = step
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await until(lambda: bench.server.count("/start") == 1, "it has started")
        bench.server.lose(job_id)
        gate.set()
        await until(lambda: bool(outcome) or bench.server.count("/heartbeat") > 0, "it is noticed")
    assert "sent" not in outcome
    assert bench.server.results == []


async def test_a_stuck_device_blocks_only_its_own_lane(bench: Bench) -> None:
    stuck = Gate(before=False)

    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        if job.printer_id == "lane-1":
            return await stuck(job, tools)
        return ResultDraft(ok=True)

    bench.worker.devices, bench.worker.step = ["first", "second"], step
    async with bench.running():
        await waiting(bench.server)
        first = bench.server.add("lane-1")
        await stuck.reached.wait()
        others = [bench.server.add("lane-2") for _ in range(3)]
        await settled(bench.server, 3)
        assert [done for done, _ in bench.server.results] == others
        assert all("lane-1" not in body["lanes"] for body in bench.server.bodies("/claim")[1:])
        stuck.go.set()
        await settled(bench.server, 4)
    assert bench.server.results[-1][0] == first


async def test_the_held_poll_is_sent_anew_under_its_name_when_a_lane_falls_free(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.devices, bench.worker.step = ["first", "second"], gate
    async with bench.running():
        await waiting(bench.server)
        bench.server.add("lane-1")
        await gate.reached.wait()
        await waiting(bench.server, 2)
        gate.go.set()
        await waiting(bench.server, 3)
        again = bench.server.bodies("/claim")[-2:]
        assert again[0]["poll_id"] == again[1]["poll_id"]
        assert [len(body["lanes"]) for body in again] == [1, 2]
        bench.server.add("lane-1")
        bench.server.add("lane-2")
        await settled(bench.server, 3)


async def test_an_offer_that_comes_twice_is_done_once(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.devices, bench.worker.step = ["first", "second"], gate
    job_id = bench.server.add("lane-1")
    async with bench.running():
        await gate.reached.wait()
        await waiting(bench.server, 2)
        (first,) = {body["poll_id"] for body in bench.server.bodies("/claim")[:1]}
        offer = bench.server._answers[first]
        bench.server._queue += offer
        offer[0]["printer_id"] = "lane-2"
        bench.server._more.set()
        await waiting(bench.server, 3)
        gate.go.set()
        await settled(bench.server)
    assert bench.worker.ran == [job_id]
    assert bench.server.released == []


async def test_a_device_that_appears_gets_work_and_one_that_vanishes_gets_none(bench: Bench) -> None:
    async with bench.running():
        await waiting(bench.server)
        bench.worker.devices = ["first", "second"]
        await until(lambda: bench.server.count("/register") == 2, "it registers again")
        bench.server.add("lane-2")
        await settled(bench.server)
        bench.worker.devices = ["first"]
        await until(lambda: bench.server.count("/register") == 3, "it registers again")
        polls = bench.server.count("/claim")
        bench.server.add("lane-1")
        await settled(bench.server, 2)
        await waiting(bench.server, polls + 1)
        assert bench.server.bodies("/claim")[-1]["lanes"] == ["lane-1"]


async def test_devices_that_stay_the_same_are_not_registered_again(bench: Bench) -> None:
    looks: list[None] = []
    described = bench.worker.describe

    class Counting(type(bench.worker)):  # type: ignore[misc]  (the class of the bench's worker)
        async def describe(self) -> object:
            looks.append(None)
            return await described()

    bench.worker = Counting()
    async with bench.running(describe_every_ms=10):
        await until(lambda: len(looks) > 10, "it looks again and again")
    assert bench.server.count("/register") == 1


async def test_a_pending_agent_shows_its_code_once_and_goes_on_when_approved(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farhand.agent.enrol.PENDING_MS", 20)
    pending = problem(403, "agent-pending", user_code="ABCD-EFGH", expires_in=600)
    fresh = problem(403, "agent-pending", user_code="JKLM-NPQR", expires_in=600)
    bench.server.fault("/register", pending, pending, fresh)
    async with bench.running():
        await waiting(bench.server)
    codes = [text for text in bench.shown if "code" in text]
    assert len(codes) == 2
    assert "ABCD-EFGH" in codes[0]
    assert "JKLM-NPQR" in codes[1]
    assert "approved" in bench.shown[-1]


async def test_a_drained_agent_takes_no_work_and_does_not_hammer_the_server(bench: Bench) -> None:
    bench.server.directive, bench.server.wait_ms = "drain", 0
    async with bench.running():
        await until(lambda: bench.server.count("/claim") == 1, "it has asked")
        looks = bench.server.count("/register")
        bench.worker.devices = ["first", "second"]
        await until(lambda: bench.server.count("/register") > looks, "time passes")
        assert bench.server.count("/claim") == 1


async def test_a_server_that_answers_at_once_and_empty_is_not_hammered(bench: Bench) -> None:
    async def empty(request: Request, answer: Answer) -> Reply | None:
        return Reply(body=b'{"jobs":[]}')

    bench.server.fault("/claim", *[empty] * 100)
    loop = asyncio.get_running_loop()
    async with bench.running():
        await waiting(bench.server, 1)
        began = loop.time()
        await waiting(bench.server, 3)
        assert loop.time() - began >= 1.0


async def test_a_stop_gives_back_what_has_not_begun(bench: Bench) -> None:
    gate = Gate(before=True)
    bench.worker.step = gate
    async with bench.running():
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
    assert bench.server.released == [job_id]
    assert bench.server.results == []


async def test_a_stop_sees_through_what_has_begun(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.step = gate
    async with bench.started(stop_grace_ms=20_000) as (agent, task):
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
        agent.stop()
        gate.go.set()
        await task
    assert [(done, said["ok"]) for done, said in bench.server.results] == [(job_id, True)]
    assert bench.server.released == []


async def test_a_stop_midway_through_the_point_of_no_return_leaves_nothing_to_find_out(
    bench: Bench,
) -> None:
    """The journal had it as begun; the server does not answer; nothing was sent."""

    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        reached.set()
        await tools.no_return("spooling", "a memo")
        return ResultDraft(ok=True)

    async def long_ago(request: Request, answer: Answer) -> Reply | None:
        reply = await answer(request)
        clock.advance(bench.server.lease_ms)
        return reply

    reached, clock = asyncio.Event(), FakeClock()
    bench.worker.step = step
    job_id = bench.server.add()
    bench.server.fault("/start", long_ago)
    bench.server.fault("/heartbeat", hang)
    bench.server.fault("/release", lost_request)
    async with bench.running(clock=clock):
        await until(lambda: bench.server.count("/heartbeat") == 1, "the lease is looked at again")
    assert bench.server.results == []
    async with bench.running():
        await until(lambda: bench.server.released == [job_id], "it goes back")
    assert bench.worker.recovered == []


async def test_what_outlasts_the_grace_is_found_out_by_the_next_run(bench: Bench) -> None:
    gate = Gate(before=False)
    bench.worker.step = gate
    async with bench.running(stop_grace_ms=10):
        await waiting(bench.server)
        job_id = bench.server.add()
        await gate.reached.wait()
    assert bench.server.results == []
    async with bench.running():
        await settled(bench.server)
    (recovered,) = bench.worker.recovered
    assert (recovered.job_id, recovered.memo, recovered.device) == (job_id, "a memo", "first")
    assert bench.worker.ran == [job_id]
    assert bench.server.results[0][1]["evidence"] == "printed"


async def test_a_handler_that_breaks_fails_its_job_and_nothing_else(bench: Bench) -> None:
    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        raise RuntimeError("a mistake in a handler")

    bench.worker.step = step
    bench.server.add()
    bench.server.add()
    async with bench.running():
        await settled(bench.server, 2)
    for _, said in bench.server.results:
        assert "a mistake in a handler" in said["error"]
        assert not said["uncertain"]


async def test_a_handler_that_breaks_past_the_point_of_no_return_is_uncertain(bench: Bench) -> None:
    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        await tools.no_return("spooling", "a memo")
        raise RuntimeError("a mistake in a handler")

    bench.worker.step = step
    bench.server.add()
    async with bench.running():
        await settled(bench.server)
    assert bench.server.results[0][1]["uncertain"] is True


async def test_a_device_that_cannot_be_described_does_not_stop_the_others_work(bench: Bench) -> None:
    fails = True
    described = bench.worker.describe

    class Failing(type(bench.worker)):  # type: ignore[misc]  (the class of the bench's worker)
        async def describe(self) -> object:
            if fails and self.ran:
                raise OSError("no such bus")
            return await described()

    bench.worker = Failing()
    bench.server.add()
    async with bench.running(describe_every_ms=10):
        await settled(bench.server)
        bench.server.add()
        await settled(bench.server, 2)


async def test_a_result_that_is_too_large_ends_the_job_without_it(bench: Bench) -> None:
    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        return ResultDraft(ok=True, result={"large": True})

    bench.worker.step = step
    bench.server.fault("/result", problem(413, "result-too-large"))
    bench.server.add()
    async with bench.running():
        await settled(bench.server)
    ((_, said),) = bench.server.results
    assert (said["ok"], said["result"]) == (False, None)
    assert "result-too-large" in said["error"]


async def test_a_result_with_secrets_never_reaches_the_disk(bench: Bench) -> None:
    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        return ResultDraft(ok=True, result={"qr_code": "very secret"}, durable=False)

    bench.worker.step = step
    bench.server.fault("/result", lost_request, hang)
    bench.server.add()
    async with bench.started():
        await until(lambda: bench.server.count("/result") > 1, "it is on its way")
        files = [path for path in bench.data.rglob("*") if path.is_file()]
        assert files
        assert not any(b"very secret" in path.read_bytes() for path in files)


async def test_a_result_that_is_nowhere_on_disk_is_found_out_again_after_a_crash(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    bench.server.fault("/result", *[lost_request] * 50)
    bench.server.add()
    async with bench.started():
        with monkeypatch.context() as patch:
            patch.setattr("farhand.agent.outbox.write_flushed", full)
            await until(lambda: bench.server.count("/result") > 0, "it is on its way")
    bench.server._faults.clear()
    async with bench.running():
        await settled(bench.server)
    assert [work.memo for work in bench.worker.recovered] == ["a memo"]
    assert len(bench.worker.ran) == 1


async def test_payloads_are_gone_after_the_work(bench: Bench) -> None:
    bench.server.add(content=b"to print", by_url=True)
    async with bench.running():
        await settled(bench.server)
    assert list((bench.data / "payloads").iterdir()) == []


async def test_after_a_suspend_the_dead_poll_is_dropped_and_sent_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspend, "TICK_MS", 10)
    clock = FakeClock()
    bench.server.fault("/claim", hang)
    async with bench.running(clock=clock) as agent:
        # With waits like these nothing would ever happen again if it were not at once.
        agent._claims._backoff = Backoff(first_ms=3_600_000, cap_ms=3_600_000)
        await waiting(bench.server)
        clock.advance(6 * 3_600_000)
        bench.server.add()
        await settled(bench.server)
    first, second, *_ = bench.server.bodies("/claim")
    assert first["poll_id"] == second["poll_id"]


async def test_after_a_suspend_no_step_is_taken_on_the_old_lease(bench: Bench) -> None:
    clock = FakeClock()
    sent: list[str] = []

    async def step(job: ClaimedJob, tools: Tools) -> ResultDraft:
        await tools.no_return("spooling", "a memo")
        sent.append(job.job_id)
        return ResultDraft(ok=True)

    async def asleep(request: Request, answer: Answer) -> Reply | None:
        reply = await answer(request)
        clock.advance(bench.server.lease_ms)
        bench.server.lose(job_id)
        return reply

    bench.worker.step = step
    job_id = bench.server.add()
    bench.server.fault("/start", asleep)
    async with bench.running(clock=clock):
        await waiting(bench.server, 2)
        bench.server.add()
        await settled(bench.server)
    assert job_id not in sent
    asked_again = bench.server.count("/start") - 2 + bench.server.count("/heartbeat")
    assert asked_again >= 1
