"""From a submit to a printed part: a real server, a real gateway, and virtual printers that go wrong."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand.model.clock import SystemClock
from farhand.systems.farm.drivers import machine as rules
from farhand.systems.farm.drivers.machine import Machine
from tests.server.serving import Server, serving
from tests.systems.farm.conftest import GCODE, new_farm
from tests.systems.farm.shop import Shop, eventually

LONG = b"; virtual-ms: 600000\nG28\n"
SLOW = b"G1\n" * 10_000
"""Hours of an upload at a byte a second."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Server]:
    """A server whose time is the real one."""
    with serving(tmp_path / "data", sections={"commands": {}}) as running:
        yield running


@pytest.fixture
def shop(live: Server, tmp_path: Path) -> Shop:
    """A farm with one printer, not yet claimed."""
    folder = tmp_path / "gateway"
    folder.mkdir()
    key = live.call("POST", "/agents", json_body={"name": "gateway"}).ok(201)["key"]
    shop = Shop(server=live, farm=new_farm(live), folder=folder, key=key)
    shop.write_printers(a={})
    return shop


def started(machine: Machine) -> list[str]:
    return list(machine.started)


def finish(machine: Machine) -> None:
    """The print is over with the next look."""
    assert machine.print is not None
    machine.print.duration_ms = 0


async def test_a_print_goes_from_submit_to_done_and_the_next_waits_for_the_bed(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        first = await shop.print()
        done = await shop.until(first, "done")
        assert done["evidence"] == "telemetry"
        await shop.held("a", "bed")
        second = await shop.print()
        assert shop.server.job(second)["state"] == "queued"
        assert shop.server.job(second)["reason"] == "A: bed not cleared"
        await shop.clear("a")
        await shop.until(second, "done")
        ran = await shop.at("a", started)
        assert [name[2:14] for name in ran] == [job.replace("-", "")[-12:] for job in (first, second)]
        await eventually("the files are gone", lambda: not shop.machine("a").change(lambda m: m.files))


async def test_printers_of_one_gateway_print_beside_each_other(shop: Shop) -> None:
    shop.write_printers(a={"bytes_per_second": 1}, b={}, c={})
    async with shop.gateway():
        await shop.claim_all()
        slow = await shop.print(SLOW, printer=shop.printers["a"])
        await shop.until(slow, "uploading")
        others = [await shop.print(printer=shop.printers[name]) for name in ("b", "c")]
        for job in others:
            await shop.until(job, "done")
        assert shop.server.job(slow)["phase"] == "uploading"
        shop.server.call("DELETE", f"/jobs/{slow}").ok()
        await shop.until(slow, "cancelled")
        assert await shop.at("a", started) == []
        await shop.held("a", None)


async def test_a_runout_is_paused_with_its_reason_and_goes_on_when_a_person_resumes_it(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "runout_at", 40.0))
        job = await shop.print()
        paused = await shop.until(job, "paused")
        assert (paused["state"], paused["reason"]) == ("running", "filament runout")
        await shop.machine("a").resume()
        await shop.until(job, "done")


async def test_a_print_that_fails_at_the_machine_has_failed_for_its_reason(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "fail_at", 40.0))
        job = await shop.print()
        failed = await shop.until(job, "failed")
        assert "thermal runaway" in failed["error"]
        await shop.held("a", "bed")


async def test_a_cancel_by_a_person_ends_the_print_at_the_machine(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        shop.server.call("DELETE", f"/jobs/{job}").ok()
        await shop.until(job, "cancelled")
        ended = await shop.at("a", lambda machine: [how for _, how in machine.ended])
        assert ended == ["cancelled"]
        await shop.held("a", "bed")


async def test_a_cancel_at_the_machine_ends_the_job(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        await shop.machine("a").cancel()
        cancelled = await shop.until(job, "cancelled")
        assert cancelled["reason"] == "cancelled at the printer"


async def test_pause_and_resume_reach_the_machine(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        shop.server.call("POST", f"/jobs/{job}/pause").ok()
        await shop.until(job, "paused")
        shop.server.call("POST", f"/jobs/{job}/resume").ok()
        await shop.until(job, "printing")


async def test_a_print_that_a_human_started_keeps_ours_waiting_and_its_bed_to_be_cleared(shop: Shop) -> None:
    now = SystemClock().now_ms

    def by_hand(machine: Machine) -> None:
        machine.files["benchy.gcode"] = 600_000
        rules.start(machine, "benchy.gcode", now(), prepare_ms=0, duration_ms=600_000)

    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", by_hand)
        await shop.held("a", "foreign")
        job = await shop.print()
        assert "not started here" in shop.server.job(job)["reason"]
        await shop.machine("a").cancel()
        await shop.held("a", "bed")
        assert shop.server.job(job)["state"] == "queued"
        await shop.clear("a")
        await shop.until(job, "done")


async def test_a_power_cycle_in_mid_print_is_for_a_person_to_judge(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        await shop.at("a", rules.power_cycle)
        await shop.until(job, "uncertain")
        await shop.held("a", "job")


async def test_a_start_that_the_machine_loses_is_uncertain_and_never_sent_again(shop: Shop) -> None:
    shop.write_printers(a={"watch_ms": 1000})
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "lose_start", True))
        job = await shop.print()
        uncertain = await shop.until(job, "uncertain")
        assert "the printer has shown nothing of it" in uncertain["reason"]
        assert await shop.at("a", started) == []


async def test_a_start_whose_answer_is_lost_is_followed_by_what_the_machine_shows(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "lose_reply", True))
        job = await shop.print()
        await shop.until(job, "done")
        assert len(await shop.at("a", started)) == 1


async def test_a_machine_that_refuses_the_start_fails_the_job_in_its_words(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "refuse_start", True))
        job = await shop.print()
        failed = await shop.until(job, "failed")
        assert "refuses commands from outside" in failed["error"]


async def test_an_upload_that_breaks_is_tried_again_and_a_third_time_fails_the_job(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "upload_errors", 1))
        await shop.until(await shop.print(), "done")
        await shop.clear("a")
        await shop.at("a", lambda machine: setattr(machine.faults, "upload_errors", 3))
        failed = await shop.until(await shop.print(), "failed")
        assert "in 3 tries" in failed["error"]
        await shop.held("a", None)


async def test_a_machine_without_names_is_believed_by_the_run_that_saw_the_print(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        await shop.at("a", lambda machine: setattr(machine.faults, "nameless", True))
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        await shop.at("a", finish)
        await shop.until(job, "done")


async def test_a_gateway_that_is_stopped_finds_its_print_again(shop: Shop) -> None:
    async with shop.gateway():
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
    assert shop.server.job(job)["state"] == "running"
    async with shop.gateway():
        await shop.at("a", finish)
        await shop.until(job, "done")
        assert len(await shop.at("a", started)) == 1
        journal = shop.folder / "agent" / "journal"
        await eventually("the journal lets go", lambda: b'"ended"' in journal.read_bytes())


async def test_a_file_that_was_announced_otherwise_is_not_printed(shop: Shop) -> None:
    made = shop.farm.submit(sha256="0" * 64)
    shop.farm.put(made, GCODE).problem(422, "bad-field")
    assert shop.server.job(made["job_id"])["state"] == "failed"


async def test_a_farm_of_ten_printers_prints_fifty_jobs_each_once(shop: Shop) -> None:
    shop.write_printers(**{f"p{number}": {"duration_ms": 100} for number in range(10)})
    async with shop.gateway():
        await shop.claim_all()
        jobs = [await shop.print() for _ in range(50)]
        clearing = asyncio.create_task(_keep_clear(shop))
        try:
            for job in jobs:
                await shop.until(job, "done")
        finally:
            clearing.cancel()
        ran = [name for printer in shop.printers for name in await shop.at(printer, started)]
        assert len(ran) == len(set(ran)) == 50
        assert {name[2:14] for name in ran} == {job.replace("-", "")[-12:] for job in jobs}


async def _keep_clear(shop: Shop) -> None:
    while True:
        full = await asyncio.to_thread(
            lambda: [one["id"] for one in shop.farm.status().values() if one["hold"] == "bed"]
        )
        for printer in full:
            (await asyncio.to_thread(shop.farm.bed_cleared, printer)).ok()
        await asyncio.sleep(0.02)
