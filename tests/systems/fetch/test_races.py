"""Two devices at one job at the same time, one server or two: one word decides, and counters are exact."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.peers.postgres import PostgresServer
from tests.server.child import process
from tests.server.serving import serving, until
from tests.systems.fetch.conftest import RESULT, SECTIONS, Device, device, okay, submit, user_key

# Processes take their time to start on a machine with other things to do.
pytestmark = pytest.mark.timeout(300)

AT_ONCE = {"fetch.http": {"hedge_after_ms": 1}}
UNHURRIED = {"fetch.http": {"hedge_after_ms": "none", "start_by_ms": 600_000, "deadline_ms": 600_000}}
"""However slow the machine, no job is given to a second device, and none expires."""

LONG = {"timeoutMs": 120_000}
ROUNDS = 30
BATCH = 5
WORDS = ("done", "failed", "refused")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=32) as pool:
        yield pool


def collect(found: Device, wanted: set[str]) -> dict[str, Any]:
    """Claim until this device has all of these jobs."""
    jobs: dict[str, Any] = {}

    def more() -> bool:
        jobs.update({job["jobId"]: job for job in found.claim(batch=BATCH)["jobs"]})
        return jobs.keys() >= wanted

    until("the device has all jobs", more, deadline_s=30)
    return jobs


def say(found: Device, word: str, job_id: str) -> str:
    """Report an end in this word."""
    if word == "done":
        return found.callback(job_id, result={**RESULT, "body": "12345"})
    return found.refuse(job_id) if word == "refused" else found.fail(job_id)


def race(
    first: Device, second: Device, key: str, threads: ThreadPoolExecutor, rounds: int
) -> tuple[Counter[str], Counter[str]]:
    """What each device was answered when both report on the same jobs at the same time."""
    answers: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    pairs = itertools.cycle([("done", "done"), ("failed", "failed"), ("done", "failed"), ("failed", "done")])
    for _ in range(rounds):
        ids = {submit(first.server, key=key, **LONG) for _ in range(BATCH)}
        collect(first, ids)
        collect(second, ids)
        words = {job_id: next(pairs) for job_id in ids}
        calls: list[tuple[int, str, Any]] = []
        for job_id, said in words.items():
            for place, found in enumerate((first, second)):
                calls.append((place, job_id, threads.submit(say, found, said[place], job_id)))
        got: dict[str, list[str]] = {}
        for place, job_id, call in calls:
            state = call.result(timeout=60)
            answers[place][state] += 1
            got.setdefault(job_id, []).append(state)
        for job_id, states in got.items():
            end = "done" if "done" in words[job_id] else "failed"
            assert sorted(states) == sorted([end, "noop"]), (words[job_id], states)
            assert first.server.job(job_id)["state"] == end
    return answers


def check_counters(found: Device, answers: Counter[str]) -> None:
    """The session's figures are exactly what it was answered."""
    stats = found.stats()
    assert stats["jobsDone"] == answers["done"]
    assert stats["jobsFailed"] == answers["failed"]
    assert stats["jobsRefused"] == 0
    assert stats["bytesOut"] == 5 * answers["done"]


def test_of_two_reports_at_the_same_time_one_decides(
    tmp_path: Path, database: str | None, threads: ThreadPoolExecutor
) -> None:
    with serving(tmp_path / "data", database=database, sections=SECTIONS, policies=AT_ONCE) as server:
        key = user_key(server)
        first, second = device(server, key=key), device(server, key=key)
        answers = race(first, second, key, threads, ROUNDS)
        check_counters(first, answers[0])
        check_counters(second, answers[1])
        assert answers[0]["done"] + answers[1]["done"] + answers[0]["failed"] + answers[1]["failed"] == (
            ROUNDS * BATCH
        )


def test_of_two_reports_to_two_servers_one_decides(
    tmp_path: Path, postgres_server: PostgresServer, threads: ThreadPoolExecutor
) -> None:
    name = postgres_server.create()
    url = postgres_server.url(name)
    more = {"database": url, "sections": SECTIONS, "policies": AT_ONCE}
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(process(tmp_path / place, log=tmp_path / f"{place}.log", **more))
            for place in ("one", "other")
        )
        here, there = (_Remote(child) for child in (one, other))
        key = user_key(here)  # type: ignore[arg-type]  (all that is used of a server)
        first, second = device(here, key=key), device(there, key=key)  # type: ignore[arg-type]  (the same)
        answers = race(first, second, key, threads, 10)
        check_counters(first, answers[0])
        check_counters(second, answers[1])
    postgres_server.drop(name)


class _Remote:
    """A server in another process, as far as devices need it."""

    def __init__(self, child: Any) -> None:
        self.call: Callable[..., Any] = child.call

    def job(self, job_id: str) -> Any:
        """A job as clients see it."""
        return self.call("GET", f"/jobs/{job_id}").ok()


def test_a_device_approved_at_one_server_works_at_the_other_and_is_revoked_at_both(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    name = postgres_server.create()
    more = {"database": postgres_server.url(name), "sections": SECTIONS}
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(process(tmp_path / place, log=tmp_path / f"{place}.log", **more))
            for place in ("one", "other")
        )
        here, there = _Remote(one), _Remote(other)
        found = device(here)  # type: ignore[arg-type]  (all that is used of a server)
        elsewhere = Device(server=there, bid=found.bid, session_id=found.session_id)  # type: ignore[arg-type]  (the same)
        assert okay(elsewhere.try_claim())["jobs"] == []
        here.call("POST", f"/agents/{found.agent_id()}/revoke").ok()
        assert found.try_claim().json()["code"] == "device-not-approved"
        until("the other server has heard", lambda: elsewhere.try_claim().status == 403)
    postgres_server.drop(name)


def test_five_hundred_devices_poll_and_each_job_goes_to_one_of_them(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with serving(tmp_path / "data", sections=SECTIONS, policies=UNHURRIED) as server:
        with ThreadPoolExecutor(max_workers=8) as few:
            # The inbox has room for ten devices of one address.
            devices: list[Device] = [
                call.result() for call in [few.submit(device, server) for _ in range(500)]
            ]
        for _ in range(2):
            idle = list(threads.map(lambda found: found.claim(batch=5), devices))
            assert all(data == {"jobs": [], "retryAfterMs": 3000} for data in idle)
        ids = {submit(server, **LONG) for _ in range(200)}
        taken = [
            (found, job["jobId"])
            for found, data in zip(devices, threads.map(lambda found: found.claim(), devices), strict=True)
            for job in data["jobs"]
        ]
        assert Counter(job_id for _, job_id in taken) == Counter(ids)
        assert set(threads.map(lambda pair: pair[0].callback(pair[1]), taken)) == {"done"}
        assert {server.job(job_id)["state"] for job_id in ids} == {"done"}
