"""`POST /jobs` for printing: what a request becomes."""

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.serving import FakeClock, Machine, Server, serving

HOUR = 3_600_000


@pytest.fixture(scope="module")
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: FakeClock) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("submit") / "data", clock=clock) as running:
        yield running


@pytest.fixture
def machine(server: Server) -> Machine:
    return server.machine()


def moment(clock: FakeClock, ms: int, zone: datetime.timezone = datetime.UTC) -> str:
    return datetime.datetime.fromtimestamp((clock.now_ms() + ms) / 1000, zone).isoformat()


def test_everything_said_about_a_job_is_shown_again(server: Server, machine: Machine) -> None:
    said: dict[str, Any] = {
        "title": "Invoice 7",
        "source": "shop",
        "tags": ["red", "two words"],
        "metadata": {"order": 7, "nested": {"empty": []}},
        "priority": 5,
    }
    options = {
        "paper": "A4",
        "duplex": "long-edge",
        "color": False,
        "pages": "1-3, 5",
        "nup": 2,
        "rotate": 90,
    }
    made = server.submit(
        machine.printers[0], b"%PDF-1.4", type="pdf_base64", copies=2, options=options, **said
    )
    job = server.job(made["id"])
    assert {name: job[name] for name in said} == said
    assert job["params"] == {"copies": 2, "options": options}
    assert (job["kind"], job["mode"], job["payload_size"]) == ("print.pdf", "pdf", 8)
    assert (job["printer_id"], job["agent_id"]) == (machine.printers[0], machine.id)
    assert machine.take()["params"] == job["params"]


def test_what_is_left_out_is_null_and_not_missing(server: Server, machine: Machine) -> None:
    job = server.job(server.submit(machine.printers[0])["id"])
    assert job["tags"] == []
    for name in ("title", "source", "metadata", "params", "run_at", "error", "result", "retry_of"):
        assert job[name] is None


@pytest.mark.parametrize("empty", [{"options": {}}, {"copies": 1}, {"options": {"paper": None}}])
def test_options_that_say_nothing_are_no_options(server: Server, machine: Machine, empty: Any) -> None:
    assert server.job(server.submit(machine.printers[0], **empty)["id"])["params"] is None


def test_the_more_important_job_goes_first_and_equals_by_age(server: Server, machine: Machine) -> None:
    made = [server.submit(machine.printers[0], priority=priority)["id"] for priority in (0, 10, -1, 10)]
    jobs = machine.claim(max=4)["jobs"]
    assert [job["job_id"] for job in jobs] == [made[1], made[3], made[0], made[2]]


def test_a_job_for_later_waits_for_its_time(server: Server, machine: Machine, clock: FakeClock) -> None:
    made = server.submit(machine.printers[0], run_at=moment(clock, HOUR))
    assert made["state"] == "scheduled"
    assert machine.claim()["jobs"] == []
    clock.advance(HOUR)
    assert machine.take()["job_id"] == made["id"]


def test_a_time_in_any_zone_means_the_same(server: Server, machine: Machine, clock: FakeClock) -> None:
    tokyo = datetime.timezone(datetime.timedelta(hours=9))
    made = server.submit(machine.printers[0], run_at=moment(clock, HOUR, tokyo))
    assert server.job(made["id"])["run_at"][:19] == moment(clock, HOUR)[:19]


def test_a_time_that_has_passed_means_now(server: Server, machine: Machine, clock: FakeClock) -> None:
    assert server.submit(machine.printers[0], run_at=moment(clock, -HOUR))["state"] == "queued"


def test_a_time_beyond_a_year_is_refused(server: Server, machine: Machine, clock: FakeClock) -> None:
    reply = server.try_submit(machine.printers[0], run_at=moment(clock, 367 * 24 * HOUR))
    assert reply.problem(422, "bad-field")["field"] == "run_at"


@pytest.mark.parametrize("word", ["expires_in", "expire_after"])
def test_a_job_that_nobody_took_in_time_expires(
    server: Server, machine: Machine, clock: FakeClock, word: str
) -> None:
    made = server.submit(machine.printers[0], **{word: 60})
    assert server.job(made["id"])["expires_at"][:19] == moment(clock, 60_000)[:19]
    clock.advance(59_999)
    assert server.job(made["id"])["state"] == "queued"
    clock.advance(1)
    job = server.job(made["id"])
    assert (job["state"], job["final"]) == ("expired", True)
    assert machine.claim()["jobs"] == []


def test_a_job_that_was_taken_in_time_does_not_expire(
    server: Server, machine: Machine, clock: FakeClock
) -> None:
    made = server.submit(machine.printers[0], expires_in=60)
    job = machine.take()
    clock.advance(30_000)
    machine.act(job, "start").ok()
    clock.advance(40_000)
    assert server.job(made["id"])["state"] == "running"
    assert machine.act(job, "result", ok=True).ok()["state"] == "done"


def test_expiry_counts_from_the_time_a_job_is_for(server: Server, machine: Machine, clock: FakeClock) -> None:
    made = server.submit(machine.printers[0], run_at=moment(clock, HOUR), expires_in=60)
    clock.advance(HOUR + 59_000)
    assert server.job(made["id"])["state"] == "queued"
    clock.advance(1_001)
    assert server.job(made["id"])["state"] == "expired"


@pytest.mark.parametrize(
    ("printer", "word", "taken"),
    [
        ({"can_pdf": True}, "pdf_base64", True),
        ({"can_pdf": False}, "pdf_base64", False),
        ({}, "pdf_base64", False),
        ({"can_pdf": False}, "raw_base64", True),
        ({"can_pdf": True, "capabilities": {"raw": False}}, "raw_base64", False),
        ({"capabilities": {"raw": True, "pdf": True}}, "pdf_base64", True),
        ({"can_pdf": True, "capabilities": {"pdf": False}}, "pdf_base64", False),
        ({"capabilities": {"pdf": None}}, "pdf_base64", True),
    ],
)
def test_a_document_goes_to_printers_that_can_take_it(
    server: Server, printer: dict[str, Any], word: str, taken: bool
) -> None:
    machine = server.machine(printers=[{"name": "p", **printer}])
    reply = server.try_submit(machine.printers[0], b"%PDF-1.4", type=word)
    if taken:
        reply.ok(201)
    else:
        assert "'p'" in reply.problem(422, "cannot-print")["detail"]


def test_a_change_of_capabilities_counts_at_once(server: Server) -> None:
    machine = server.machine(printers=[{"name": "p", "can_pdf": False}])
    server.try_submit(machine.printers[0], type="pdf_base64").problem(422, "cannot-print")
    server.register(machine.name, key=machine.key, printers=[{"name": "p", "can_pdf": True}]).ok()
    server.submit(machine.printers[0], type="pdf_base64")


def test_a_job_for_a_printer_that_is_gone_waits_for_it(server: Server) -> None:
    machine = server.machine()
    server.register(machine.name, key=machine.key, printers=[]).ok()
    made = server.submit(machine.printers[0])
    assert machine.poll().status == 204
    server.register(machine.name, key=machine.key).ok()
    assert machine.poll().ok()["job_id"] == made["id"]
