"""Farms on a real server, with gateways that speak plain HTTP."""

from typing import Any

import pytest

from farhand.testing.clock import FakeClock
from tests.server.serving import Server
from tests.systems.farm.conftest import (
    GCODE,
    Farm,
    Gateway,
    Printing,
    identity,
    new_gateway,
    put_file,
    sha256,
    work,
)

MINUTE = 60_000


def one_printer(farm: Farm, gateway: Gateway, name: str = "a", **more: Any) -> str:
    """A claimed printer that is idle; its id."""
    gateway.show(name, "idle", **more)
    printer = farm.claim(name)["id"]
    gateway.tell()
    return printer


def test_a_farm_has_one_name_and_is_found_by_it(server: Server, farm: Farm) -> None:
    server.call("POST", "/farms", json_body={"name": farm.name}).problem(409, "name-conflict")
    assert farm.name in [one["name"] for one in server.call("GET", "/farms").ok()["items"]]
    assert server.call("GET", f"/farms/{farm.name}/status").ok()["printers"] == []


def test_telemetry_of_an_unknown_printer_creates_none_and_shows_it_as_unclaimed(
    farm: Farm, gateway: Gateway
) -> None:
    assert farm.unclaimed() == {"items": [], "gatewayOnline": False, "next": None}
    order = gateway.show("mk4-left", "idle", declared={"model": "MK4", "nozzle": 0.4})
    assert order["printer_id"] is None
    assert farm.status() == {}
    found = farm.unclaimed()
    assert found["gatewayOnline"] is True
    (item,) = found["items"]
    assert (item["gateway_printer_id"], item["gateway"], item["state"]) == ("mk4-left", gateway.name, "idle")
    assert item["declared"] == {"model": "MK4", "nozzle": 0.4}
    made = farm.claim("mk4-left")
    assert (made["state"], made["declared"]) == ("unknown", {"model": "MK4", "nozzle": 0.4})
    assert farm.unclaimed()["items"] == []
    farm.try_claim("mk4-left", name="another").problem(409, "printer-claimed")


def test_a_gateway_that_went_away_is_told_from_one_that_never_came(
    farm: Farm, gateway: Gateway, clock: FakeClock
) -> None:
    gateway.show("a", "idle")
    clock.advance(2 * MINUTE)
    found = farm.unclaimed()
    assert found["gatewayOnline"] is False
    assert [item["gateway_printer_id"] for item in found["items"]] == ["a"]


def test_a_mistyped_printer_is_answered_with_what_was_perhaps_meant(
    server: Server, farm: Farm, gateway: Gateway
) -> None:
    new_gateway(server, farm).show("other", "idle")
    gateway.show("prusa-01", "idle")
    problem = farm.try_claim("pursa-01").problem(422, "unknown-printer")
    assert problem["did_you_mean"] == ["prusa-01"]
    farm.claim("pursa-01", gateway=gateway.name)
    (item,) = [one for one in farm.unclaimed()["items"] if one["gateway_printer_id"] == "prusa-01"]
    assert item["did_you_mean"] == ["pursa-01"]


def test_a_printer_that_two_gateways_report_needs_to_be_named_with_its_gateway(
    server: Server, farm: Farm, gateway: Gateway
) -> None:
    other = new_gateway(server, farm)
    gateway.show("a", "idle")
    other.show("a", "idle")
    problem = farm.try_claim("a").problem(422, "bad-field")
    assert gateway.name in problem["detail"]
    assert other.name in problem["detail"]
    farm.claim("a", gateway=other.name)


def test_claiming_is_for_owners_alone(server: Server, farm: Farm, gateway: Gateway) -> None:
    gateway.show("a", "idle")
    key = server.new_key("jobs.submit", "jobs.read", "jobs.manage", "printers.read")
    message = {"farm": farm.name, "gateway_printer_id": "a", "name": "A"}
    server.call("POST", "/printers", key=key, json_body=message).problem(403, "forbidden")
    server.call("POST", "/farms", key=key, json_body={"name": "x"}).problem(403, "forbidden")


def test_a_job_waits_for_its_file_and_says_so(server: Server, farm: Farm, gateway: Gateway) -> None:
    printer = one_printer(farm, gateway)
    made = farm.submit()
    assert made["state"] == "queued"
    assert made["upload"]["method"] == "PUT"
    assert gateway.poll(printer) == []
    assert server.job(made["job_id"])["reason"] == "waits for its file: PUT it to the upload address"
    reply = farm.put(made).ok()
    assert (reply["sha256"], reply["size"], reply["copies"]) == (sha256(GCODE), len(GCODE), [made["job_id"]])
    (job,) = gateway.poll(printer)
    assert job["job_id"] == made["job_id"]


def test_a_checked_upload_is_pinned_and_a_replay_changes_nothing(server: Server, farm: Farm) -> None:
    made = farm.submit()
    first = farm.put(made).ok()
    assert farm.put(made, b"something else").ok() == first
    assert server.job(made["job_id"])["payload_size"] == len(GCODE)


@pytest.mark.parametrize(
    ("given", "content", "words"),
    [
        ({}, b"", "the uploaded file is empty"),
        ({"size": 7}, GCODE, f"the uploaded file has {len(GCODE)} bytes, not the 7 that were announced"),
        ({"sha256": sha256(b"x")}, GCODE, "is not the one that was announced"),
    ],
)
def test_a_file_that_can_never_be_printed_fails_its_job_at_once(
    server: Server, farm: Farm, given: dict[str, Any], content: bytes, words: str
) -> None:
    made = farm.submit(**given)
    farm.put(made, content).problem(422, "bad-field")
    job = server.job(made["job_id"])
    assert job["state"] == "failed"
    assert words in job["error"]


def test_an_upload_address_is_good_for_its_job_and_its_day_alone(
    server: Server, farm: Farm, clock: FakeClock
) -> None:
    made, other = farm.submit(), farm.submit()
    url = made["upload"]["url"]
    put_file(server, url.replace(made["job_id"], other["job_id"]), GCODE).problem(403, "upload-expired")
    put_file(server, url.replace("expires=1", "expires=2"), GCODE).problem(403, "upload-expired")
    put_file(server, url.partition("?")[0] + "?expires=1", GCODE).problem(403, "upload-expired")
    clock.advance(24 * 60 * MINUTE)
    put_file(server, url, GCODE).problem(403, "upload-expired")
    fresh = server.call("POST", f"/jobs/{made['job_id']}/upload").ok()
    farm.put(fresh).ok()
    server.call("POST", f"/jobs/{made['job_id']}/upload").problem(409, "state-conflict")


def test_the_same_submit_again_is_the_same_job_with_an_address(farm: Farm) -> None:
    headers = {"Idempotency-Key": "once"}
    first = farm.try_submit(headers=headers).ok(201)
    again = farm.try_submit(headers=headers).ok(200)
    assert again["job_id"] == first["job_id"]
    farm.put(again).ok()
    farm.try_submit(headers=headers, farm=farm.id).ok(200)
    farm.try_submit(headers=headers, filename="other.gcode").problem(422, "idempotency-mismatch")


def test_copies_are_jobs_of_their_own_with_one_file(server: Server, farm: Farm, gateway: Gateway) -> None:
    printers = [one_printer(farm, gateway, name) for name in ("a", "b", "c")]
    made = farm.submit(copies=3)
    copies = farm.put(made).ok()["copies"]
    assert farm.put(made).ok()["copies"] == copies
    jobs = gateway.poll(*printers)
    assert {job["job_id"] for job in jobs} == set(copies)
    assert {job["printer_id"] for job in jobs} == set(printers)
    assert all(job["payload"]["size"] == len(GCODE) for job in jobs)


def test_one_printer_gets_one_job_and_the_oldest_that_fits(
    server: Server, farm: Farm, gateway: Gateway
) -> None:
    wrong = farm.ready(requirements={"nozzle": 0.6})
    first, second = farm.ready(), farm.ready()
    printer = one_printer(farm, gateway, declared={"nozzle": 0.4})
    (job,) = gateway.poll(printer)
    assert job["job_id"] == first
    gateway.tell()
    assert [one["job_id"] for one in gateway.poll(printer)] == [first]
    assert server.job(wrong)["reason"] == "A: wrong nozzle 0.4 ≠ 0.6"
    assert server.job(second)["reason"] == "A: busy with another job"


def test_every_waiting_job_says_why_printer_by_printer(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing, clock: FakeClock
) -> None:
    gateway.show("a", "finished", identity=printing.name)
    gateway.show("b", "idle", declared={"nozzle": 0.6})
    farm.claim("b")
    gateway.tell()
    waiting = farm.ready(requirements={"nozzle": 0.4})
    said = server.job(waiting)["reason"]
    assert said == "A: its nozzle is not declared, 0.4 is needed; B: wrong nozzle 0.6 ≠ 0.4"
    any_nozzle = farm.ready(printer=printing.printer)
    said = server.job(any_nozzle)["reason"]
    assert said == "A: bed not cleared; B: the job is for another printer"
    server.call("POST", f"/farms/{farm.id}/pause").ok()
    assert server.job(any_nozzle)["reason"] == f"the farm {farm.name} is paused"


def test_an_offer_that_nobody_takes_goes_back_uncounted_and_is_made_again(
    server: Server, farm: Farm, gateway: Gateway, clock: FakeClock
) -> None:
    printer = one_printer(farm, gateway)
    job = farm.ready()
    assert server.job(job)["state"] == "claimed"
    # Longer than the offer is good for, and than the printer counts as there: it is not made again.
    clock.advance(61_000)
    server.do(server.context.store.sweep())
    assert (server.job(job)["state"], server.job(job)["tries"]) == ("queued", 0)
    gateway.boot = "boot-2"
    gateway.tell()
    gateway.show("a", "busy")
    gateway.show("a", "idle")
    (again,) = gateway.poll(printer)
    assert (again["job_id"], again["attempt"]) == (job, 2)


def test_a_print_is_followed_from_upload_to_done_by_what_its_printer_shows(
    server: Server, farm: Farm, gateway: Gateway
) -> None:
    printer = one_printer(farm, gateway)
    job_id = farm.ready()
    (job,) = gateway.poll(printer)
    payload = gateway.call(
        "GET", f"/agent/jobs/{job_id}/payload", headers={"Farhand-Lease": job["lease_token"]}
    )
    assert payload.body == GCODE
    gateway.start(job, "uploading")
    gateway.show("a", "idle", work=work(job, "uploading", "no"))
    assert (server.job(job_id)["state"], server.job(job_id)["phase"]) == ("running", "uploading")
    gateway.start(job, "starting")
    gateway.show("a", "printing", identity=identity(job), percent=5.0, work=work(job))
    assert server.job(job_id)["phase"] == "printing"
    order = gateway.show("a", "finished", identity=identity(job), percent=100.0, work=work(job))
    assert order["over"] is True
    done = server.job(job_id)
    assert (done["state"], done["evidence"]) == ("done", "telemetry")
    assert (farm.status()["A"]["hold"], farm.status()["A"]["bed_clear"]) == ("bed", False)


def test_the_seed_s_incident_shows_as_paused_with_its_reason_and_nothing_else_is_started(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    gateway.show("a", "paused", identity=printing.name, reason="filament broken", work=work(printing.job))
    job = server.job(printing.job["job_id"])
    assert (job["state"], job["phase"], job["reason"]) == ("running", "paused", "filament broken")
    other = farm.ready()
    assert server.job(other)["state"] == "queued"


def test_no_print_is_started_on_a_bed_that_nobody_cleared(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    waiting = farm.ready()
    gateway.show("a", "finished", identity=printing.name)
    gateway.show("a", "idle")
    gateway.tell()
    assert server.job(waiting)["state"] == "queued"
    assert farm.status()["A"]["reason"] == "bed not cleared"
    farm.bed_cleared(printing.printer).ok()
    assert server.job(waiting)["state"] == "claimed"


def test_a_cleared_bed_stays_clear_under_a_finish_that_stays_on_the_display(
    farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    gateway.show("a", "finished", identity=printing.name)
    farm.bed_cleared(printing.printer).ok()
    gateway.tell()
    gateway.tell()
    assert farm.status()["A"]["bed_clear"] is True


def test_a_left_over_finish_does_not_complete_the_next_job(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    gateway.show("a", "finished", identity=printing.name)
    farm.bed_cleared(printing.printer).ok()
    job_id = farm.ready()
    (job,) = gateway.poll(printing.printer)
    assert job["job_id"] == job_id
    gateway.start(job, "uploading")
    gateway.show("a", "finished", identity=printing.name, work=work(job, "uploading", "no"))
    gateway.start(job, "starting")
    gateway.show("a", "finished", identity=printing.name, work=work(job, "starting"))
    assert (server.job(job_id)["state"], server.job(job_id)["phase"]) == ("running", "starting")
    gateway.show("a", "finished", identity=identity(job), work=work(job))
    assert server.job(job_id)["state"] == "done"


def test_a_print_started_by_a_human_sends_our_upload_back_and_fills_the_bed_when_it_ends(
    server: Server, farm: Farm, gateway: Gateway
) -> None:
    printer = one_printer(farm, gateway)
    job_id = farm.ready()
    (job,) = gateway.poll(printer)
    gateway.start(job, "uploading")
    order = gateway.show("a", "printing", identity="benchy.gcode", work=work(job, "uploading", "no"))
    assert order["over"] is True
    waiting = server.job(job_id)
    assert (waiting["state"], waiting["tries"]) == ("queued", 0)
    assert "taken by another print" in waiting["reason"]
    gateway.tell()
    assert farm.status()["A"]["hold"] == "foreign"
    farm.bed_cleared(printer).problem(409, "state-conflict")
    gateway.show("a", "idle")
    assert farm.status()["A"]["hold"] == "bed"
    assert server.job(job_id)["state"] == "queued"
    farm.bed_cleared(printer).ok()
    assert server.job(job_id)["state"] == "claimed"


def test_an_upload_without_progress_for_twenty_minutes_fails_holds_its_printer_and_is_adopted_back(
    server: Server, farm: Farm, gateway: Gateway, clock: FakeClock
) -> None:
    printer = one_printer(farm, gateway)
    job_id = farm.ready()
    (job,) = gateway.poll(printer)
    gateway.start(job, "uploading")
    stuck = {**work(job, "uploading", "no"), "sent": 5, "total": len(GCODE)}
    gateway.show("a", "idle", work=stuck)
    for _ in range(40):
        assert server.job(job_id)["state"] == "running"
        gateway.start(job, "uploading")
        clock.advance(MINUTE // 2)
        gateway.tell()
    failed = server.job(job_id)
    assert (failed["state"], failed["reason"]) == ("failed", "upload-timeout")
    assert farm.status()["A"]["hold"] == "bed"
    gateway.show("a", "printing", identity=identity(job))
    assert (server.job(job_id)["state"], server.job(job_id)["phase"]) == ("running", "printing")
    assert farm.status()["A"]["hold"] == "job"
    gateway.show("a", "finished", identity=identity(job))
    assert server.job(job_id)["state"] == "done"


def test_a_power_cycle_in_mid_print_waits_for_a_person(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    job_id = printing.job["job_id"]
    gateway.show("a", "offline", work=work(printing.job))
    assert server.job(job_id)["state"] == "running"
    gateway.show("a", "idle", work=work(printing.job))
    assert server.job(job_id)["state"] == "uncertain"
    waiting = farm.ready()
    farm.bed_cleared(printing.printer).problem(409, "state-conflict")
    server.call("POST", f"/jobs/{job_id}/resolve", json_body={"outcome": "failed"}).ok()
    assert server.job(waiting)["state"] == "queued"
    farm.bed_cleared(printing.printer).ok()
    assert server.job(waiting)["state"] == "claimed"


def test_an_uncertain_print_comes_back_by_its_name(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    job_id = printing.job["job_id"]
    gateway.show("a", "idle")
    assert server.job(job_id)["state"] == "uncertain"
    gateway.show("a", "printing", identity=printing.name)
    assert (server.job(job_id)["state"], server.job(job_id)["phase"]) == ("running", "printing")


def test_a_gateway_that_has_not_looked_yet_decides_nothing(
    server: Server, gateway: Gateway, printing: Printing
) -> None:
    gateway.boot, gateway.seq = "boot-2", 0
    gateway.show("a", "idle", full=False)
    assert server.job(printing.job["job_id"])["state"] == "running"
    gateway.show("a", "printing", identity=printing.name, work=work(printing.job, started="before"))
    assert server.job(printing.job["job_id"])["phase"] == "printing"


def test_a_word_of_an_older_moment_is_not_heard(server: Server, gateway: Gateway, printing: Printing) -> None:
    gateway.seq -= 2
    assert gateway.show("a", "idle") is None
    assert server.job(printing.job["job_id"])["state"] == "running"


def test_a_nameless_finish_counts_only_for_the_run_that_saw_the_print(
    server: Server, gateway: Gateway, printing: Printing
) -> None:
    gateway.boot, gateway.seq = "boot-2", 0
    gateway.show("a", "finished", work=work(printing.job, started="before"))
    assert server.job(printing.job["job_id"])["state"] == "uncertain"


def test_a_cancel_at_the_machine_is_a_cancelled_job(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing
) -> None:
    gateway.show("a", "cancelled", identity=printing.name)
    job = server.job(printing.job["job_id"])
    assert (job["state"], job["reason"]) == ("cancelled", "cancelled at the printer")
    assert farm.status()["A"]["hold"] == "bed"


def test_a_cancel_travels_with_the_next_word_of_the_gateway(
    server: Server, gateway: Gateway, printing: Printing
) -> None:
    job_id = printing.job["job_id"]
    server.call("DELETE", f"/jobs/{job_id}").ok()
    order = gateway.show("a", "printing", identity=printing.name, work=work(printing.job))
    assert (order["directive"], order["over"]) == ("cancel", False)
    order = gateway.show("a", "idle", work=work(printing.job))
    assert order["over"] is True
    assert server.job(job_id)["state"] == "cancelled"


def test_pause_and_resume_travel_until_the_machine_shows_them(
    server: Server, gateway: Gateway, printing: Printing
) -> None:
    path = f"/jobs/{printing.job['job_id']}"
    server.call("POST", f"{path}/resume").problem(409, "state-conflict")
    server.call("POST", f"{path}/pause").ok()
    shown = {"identity": printing.name, "work": work(printing.job)}
    assert gateway.show("a", "printing", **shown)["directive"] == "pause"
    assert gateway.show("a", "paused", **shown)["directive"] == "continue"
    server.call("POST", f"{path}/resume").ok()
    assert gateway.show("a", "paused", **shown)["directive"] == "resume"
    assert gateway.show("a", "printing", **shown)["directive"] == "continue"


def test_silence_is_borne_and_a_silent_gateway_gets_no_work(
    server: Server, farm: Farm, gateway: Gateway, printing: Printing, clock: FakeClock
) -> None:
    gateway.show("b", "idle")
    farm.claim("b")
    gateway.tell()
    clock.advance(2 * MINUTE)
    waiting = farm.ready()
    assert server.job(waiting)["state"] == "queued"
    assert "offline: its gateway has not been heard for a minute" in server.job(waiting)["reason"]
    server.do(server.context.store.sweep())
    assert server.job(printing.job["job_id"])["state"] == "running"
    clock.advance(24 * 60 * MINUTE)
    server.do(server.context.store.sweep())
    assert server.job(printing.job["job_id"])["state"] == "uncertain"


def test_a_paused_farm_and_a_paused_printer_get_nothing_until_they_are_resumed(
    server: Server, farm: Farm, gateway: Gateway
) -> None:
    printer = one_printer(farm, gateway)
    server.call("POST", f"/farms/{farm.id}/pause").ok()
    job = farm.ready()
    assert server.job(job)["state"] == "queued"
    server.call("POST", f"/printers/{printer}/pause").ok()
    server.call("POST", f"/farms/{farm.id}/resume").ok()
    assert server.job(job)["reason"] == "A: paused"
    server.call("POST", f"/printers/{printer}/resume").ok()
    assert server.job(job)["state"] == "claimed"


def test_a_job_moved_to_the_top_is_the_next_one(server: Server, farm: Farm, gateway: Gateway) -> None:
    farm.ready(priority=50)
    last = farm.ready()
    server.call("POST", f"/jobs/{last}/top").ok()
    printer = one_printer(farm, gateway)
    (job,) = gateway.poll(printer)
    assert job["job_id"] == last


def test_a_self_clearing_printer_goes_on_by_itself(server: Server, farm: Farm, gateway: Gateway) -> None:
    gateway.show("a", "idle")
    printer = farm.claim("a", self_clearing=True)["id"]
    gateway.tell()
    farm.ready()
    (job,) = gateway.poll(printer)
    gateway.start(job, "starting")
    gateway.show("a", "printing", identity=identity(job), work=work(job))
    following = farm.ready()
    gateway.show("a", "finished", identity=identity(job), work=work(job))
    gateway.show("a", "idle")
    gateway.tell()
    assert server.job(following)["state"] == "claimed"


def test_words_that_name_nothing_are_refused_with_what_to_do(farm: Farm, gateway: Gateway) -> None:
    farm.try_submit(farm="nowhere").problem(422, "unknown-farm")
    farm.try_submit(printer="nowhere").problem(422, "unknown-printer")
    farm.try_submit(filename="a/b.gcode").problem(422, "bad-field")
    message = {"farm": "nowhere", "boot_id": "b", "seq": 1, "printers": []}
    gateway.call("POST", "/agent/telemetry", json_body=message).problem(422, "unknown-farm")
