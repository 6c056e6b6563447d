"""Every pair of job status, observed state and identity, and the incidents that the rules are for."""

import itertools
from dataclasses import replace

import pytest

from farhand.model.job import UPLOAD_TIMEOUT
from farhand.systems.farm.rules import (
    ACTIVE,
    ENDED,
    NEARLY_DONE,
    UPLOAD_STALL_MS,
    Decision,
    Gate,
    Kind,
    Observation,
    Seen,
    Status,
    Whose,
    decide,
    gate,
    status_of,
    table,
)

# Per observed state: what becomes of the job when the print is ours, foreign, nameless, and
# nameless but seen at work by the same run of the gateway.
# = keep, ~ stale, q requeue, S P Z starting printing paused, D F C done failed cancelled,
# U uncertain, + adopt.
KEPT = "idle ==== preparing ==== printing ==== paused ==== finished ==== cancelled ==== failed ==== "
KEPT += "error ==== busy ==== offline ==== unknown ===="
WORK = "idle UUUU preparing PUPP printing PUPP paused ZUZZ finished DUUD cancelled CUUC failed FUUF "
WORK += "error FUUF busy ==== offline ~~~~ unknown ~~~~"
GIVEN_UP = "idle ==== preparing +S=== printing +P=== paused +Z=== finished +D=== "
TABLE = {
    (Status.QUEUED, False): KEPT,
    (Status.OVER, False): KEPT,
    (Status.ASSIGNED, False): "idle ==== preparing Sqqq printing Pqqq paused Zqqq finished ==== "
    "cancelled ==== failed ==== error qqqq busy ==== offline ~~~~ unknown ~~~~",
    (Status.UPLOADING, False): "idle ==== preparing Sqqq printing Pqqq paused Zqqq finished ==== "
    "cancelled C=== failed F=== error FFFF busy ==== offline ~~~~ unknown ~~~~",
    (Status.UPLOADING, True): "idle ==== preparing SUUS printing PUUP paused ZUUZ finished D=== "
    "cancelled C=== failed F=== error FFFF busy ==== offline ~~~~ unknown ~~~~",
    (Status.STARTING, True): "idle ==== preparing SU=S printing PU=P paused ZU=Z finished D=== "
    "cancelled C=== failed F==F error FFFF busy ==== offline ~~~~ unknown ~~~~",
    (Status.PRINTING, True): WORK,
    (Status.PAUSED, True): WORK,
    (Status.UNCERTAIN, True): GIVEN_UP
    + "cancelled +C=== failed +F=== error ==== busy ==== offline ==== unknown ====",
    (Status.REAPED, False): GIVEN_UP
    + "cancelled ==== failed ==== error ==== busy ==== offline ==== unknown ====",
}
SIGNS = {
    Kind.KEEP: "=",
    Kind.STALE: "~",
    Kind.REQUEUE: "q",
    Kind.DONE: "D",
    Kind.FAILED: "F",
    Kind.CANCELLED: "C",
    Kind.UNCERTAIN: "U",
}
PHASES = {"starting": "S", "printing": "P", "paused": "Z"}


def sign(decision: Decision) -> str:
    found = PHASES[decision.phase or ""] if decision.kind == Kind.ADVANCE else SIGNS[decision.kind]
    return f"+{found}" if decision.adopt else found


def cells() -> list[tuple[Status, bool, Seen, Whose, bool, str]]:
    found: list[tuple[Status, bool, Seen, Whose, bool, str]] = []
    for (status, sent), text in TABLE.items():
        words = text.split()
        assert words[::2] == [str(seen) for seen in Seen]
        for name, row in zip(words[::2], words[1::2], strict=True):
            ours, rest = (row[:2], row[2:]) if row.startswith("+") else (row[0], row[1:])
            foreign, nameless, seen_at_work = rest
            for whose, proof, expected in (
                (Whose.OURS, False, ours),
                (Whose.OURS, True, ours),
                (Whose.FOREIGN, False, foreign),
                (Whose.FOREIGN, True, foreign),
                (Whose.NONE, False, nameless),
                (Whose.NONE, True, seen_at_work),
            ):
                found.append((status, sent, Seen(name), whose, proof, expected))
    return found


@pytest.mark.parametrize(("status", "sent", "seen", "whose", "proof", "expected"), cells())
def test_every_pair_of_the_table_is_decided_as_it_stands_there(
    status: Status, sent: bool, seen: Seen, whose: Whose, proof: bool, expected: str
) -> None:
    observed = Observation(seen=seen, whose=whose, start_sent=sent, edge=proof, was_active=proof)
    assert sign(decide(status, observed)) == expected


def test_the_table_walks_every_status_state_and_identity() -> None:
    walked = {(status, seen, whose) for status, _, seen, whose, _, _ in cells()}
    assert walked == set(itertools.product(Status, Seen, Whose))


def test_nothing_is_decided_before_a_gateway_has_looked_at_the_machine() -> None:
    for status, seen, whose in itertools.product(Status, Seen, Whose):
        observed = Observation(seen=seen, whose=whose, full=False, unchanged_ms=10 * UPLOAD_STALL_MS)
        assert decide(status, observed).kind == Kind.KEEP


def test_the_seed_s_own_incident_a_print_paused_on_a_broken_filament_is_paused_and_not_printing() -> None:
    """Accepted, uploaded byte-perfect, RUNNING, then paused by itself on a broken filament."""
    sent = Observation(seen=Seen.IDLE, start_sent=True, edge=True)
    assert decide(Status.STARTING, sent).kind == Kind.KEEP
    running = replace(sent, seen=Seen.PRINTING, whose=Whose.OURS)
    assert decide(Status.STARTING, running).phase == "printing"
    broken = replace(running, seen=Seen.PAUSED, was_active=True, reason="filament broken")
    found = decide(Status.PRINTING, broken)
    assert (found.kind, found.phase, found.reason) == (Kind.ADVANCE, "paused", "filament broken")
    for _ in range(3):
        assert decide(Status.PAUSED, broken).phase == "paused"


def test_an_idle_printer_never_completes_an_upload() -> None:
    for sent, percent, waited in itertools.product((False, True), (None, 0.0, 100.0), (0, 19 * 60_000)):
        observed = Observation(
            seen=Seen.IDLE, start_sent=sent, was_active=True, edge=True, percent=percent, unchanged_ms=waited
        )
        assert decide(Status.UPLOADING, observed).kind == Kind.KEEP


def test_a_finish_left_over_from_an_earlier_job_never_completes_the_next() -> None:
    for status, whose in itertools.product(
        (Status.ASSIGNED, Status.UPLOADING, Status.STARTING), (Whose.FOREIGN, Whose.NONE)
    ):
        observed = Observation(seen=Seen.FINISHED, whose=whose, start_sent=status == Status.STARTING)
        assert decide(status, observed).kind == Kind.KEEP


def test_a_human_s_own_print_never_completes_ours() -> None:
    for status, seen in itertools.product(Status, Seen):
        for sent, active in itertools.product((False, True), (False, True)):
            observed = Observation(
                seen=seen, whose=Whose.FOREIGN, start_sent=sent, was_active=active, edge=active, percent=100.0
            )
            assert decide(status, observed).kind != Kind.DONE, (status, seen)


def test_a_foreign_print_before_the_start_sends_the_job_back_and_after_it_is_uncertain() -> None:
    seen = Observation(seen=Seen.PRINTING, whose=Whose.FOREIGN)
    back = decide(Status.UPLOADING, seen)
    assert back.kind == Kind.REQUEUE
    assert back.reason is not None
    assert "another print" in back.reason
    for status in (Status.UPLOADING, Status.STARTING, Status.PRINTING):
        assert decide(status, replace(seen, start_sent=True)).kind == Kind.UNCERTAIN


def test_an_upload_without_progress_for_twenty_minutes_fails_and_is_not_queued_again() -> None:
    for seen in (Seen.IDLE, Seen.BUSY, Seen.OFFLINE, Seen.FINISHED):
        observed = Observation(seen=seen, unchanged_ms=UPLOAD_STALL_MS)
        found = decide(Status.UPLOADING, observed)
        assert (found.kind, found.reason) == (Kind.FAILED, UPLOAD_TIMEOUT)
        almost = replace(observed, unchanged_ms=UPLOAD_STALL_MS - 1)
        assert decide(Status.UPLOADING, almost).kind in (Kind.KEEP, Kind.STALE)
        assert decide(Status.UPLOADING, replace(observed, start_sent=True)).kind == Kind.UNCERTAIN


def test_a_job_that_the_reaper_failed_is_adopted_when_its_own_name_turns_up_printing() -> None:
    found = decide(Status.REAPED, Observation(seen=Seen.PRINTING, whose=Whose.OURS))
    assert (found.kind, found.phase, found.adopt) == (Kind.ADVANCE, "printing", True)
    for whose in (Whose.FOREIGN, Whose.NONE):
        assert decide(Status.REAPED, Observation(seen=Seen.PRINTING, whose=whose)).kind == Kind.KEEP


def test_a_start_that_the_printer_never_follows_becomes_uncertain_in_its_own_time() -> None:
    for seen in (Seen.IDLE, Seen.FINISHED, Seen.BUSY):
        observed = Observation(seen=seen, start_sent=True, edge=True, watch_ms=270_000, unchanged_ms=269_999)
        assert decide(Status.STARTING, observed).kind == Kind.KEEP
        assert decide(Status.STARTING, replace(observed, unchanged_ms=270_000)).kind == Kind.UNCERTAIN
    silent = Observation(seen=Seen.OFFLINE, start_sent=True, unchanged_ms=3_600_000)
    assert decide(Status.STARTING, silent).kind == Kind.STALE


def test_a_short_print_that_was_missed_as_a_whole_is_done_by_its_name() -> None:
    observed = Observation(seen=Seen.FINISHED, whose=Whose.OURS, start_sent=True)
    assert decide(Status.STARTING, observed).kind == Kind.DONE


def test_a_power_cycle_in_mid_print_leaves_a_question_and_not_a_success() -> None:
    observed = Observation(seen=Seen.IDLE, was_active=True, percent=40.0)
    assert decide(Status.PRINTING, observed).kind == Kind.UNCERTAIN


def test_idle_after_the_last_percent_is_a_success_that_says_it_was_inferred() -> None:
    observed = Observation(seen=Seen.IDLE, was_active=True, percent=NEARLY_DONE)
    found = decide(Status.PRINTING, observed)
    assert (found.kind, found.inferred) == (Kind.DONE, True)
    assert decide(Status.PRINTING, replace(observed, was_active=False)).kind == Kind.UNCERTAIN
    assert decide(Status.PRINTING, replace(observed, whose=Whose.FOREIGN)).kind == Kind.UNCERTAIN


def test_silence_alone_never_ends_a_print() -> None:
    for status, seen in itertools.product(
        (Status.STARTING, Status.PRINTING, Status.PAUSED), (Seen.OFFLINE, Seen.UNKNOWN)
    ):
        observed = Observation(seen=seen, was_active=True, percent=100.0, unchanged_ms=10 * UPLOAD_STALL_MS)
        assert decide(status, observed).kind == Kind.STALE


def test_under_a_cancel_every_end_is_a_cancellation_but_a_finish_with_our_name() -> None:
    base = Observation(seen=Seen.IDLE, was_active=True, edge=True, start_sent=True, cancel_requested=True)
    for seen in (Seen.IDLE, Seen.CANCELLED, Seen.FAILED, Seen.ERROR, Seen.FINISHED):
        assert decide(Status.PRINTING, replace(base, seen=seen)).kind == Kind.CANCELLED, seen
    mine = replace(base, seen=Seen.FINISHED, whose=Whose.OURS)
    assert decide(Status.PRINTING, mine).kind == Kind.DONE


def test_any_end_of_any_print_raises_the_bed_gate() -> None:
    for seen in ENDED:
        assert gate(None, seen, print_key="a", cleared_key=None, self_clearing=False) == Gate.BED
    for seen in (*ENDED, Seen.IDLE, Seen.ERROR):
        assert gate("foreign", seen, print_key="a", cleared_key=None, self_clearing=False) == Gate.BED


def test_a_finish_that_stays_on_the_display_does_not_fill_a_cleared_bed_again() -> None:
    shown = {"print_key": "finished:a", "self_clearing": False}
    assert gate(None, Seen.FINISHED, cleared_key="finished:a", **shown) == Gate.KEEP
    assert gate(None, Seen.FINISHED, cleared_key="finished:b", **shown) == Gate.BED


def test_a_print_that_nobody_ordered_takes_the_printer_until_it_ends() -> None:
    for seen in ACTIVE:
        assert gate(None, seen, print_key="a", cleared_key=None, self_clearing=False) == Gate.FOREIGN
        assert gate("foreign", seen, print_key="a", cleared_key=None, self_clearing=False) == Gate.KEEP
    for silent in (Seen.OFFLINE, Seen.UNKNOWN):
        assert gate("foreign", silent, print_key="a", cleared_key=None, self_clearing=True) == Gate.KEEP


def test_only_a_self_clearing_printer_lowers_its_own_gate() -> None:
    for seen in Seen:
        kept = gate("bed", seen, print_key="a", cleared_key=None, self_clearing=False)
        assert kept == Gate.KEEP
    assert gate("bed", Seen.IDLE, print_key="a", cleared_key=None, self_clearing=True) == Gate.FREE
    assert gate("bed", Seen.PRINTING, print_key="a", cleared_key=None, self_clearing=True) == Gate.KEEP
    assert gate("job", Seen.IDLE, print_key="a", cleared_key=None, self_clearing=True) == Gate.KEEP


@pytest.mark.parametrize(
    ("state", "phase", "reason", "status"),
    [
        ("scheduled", None, None, Status.QUEUED),
        ("queued", None, None, Status.QUEUED),
        ("claimed", None, None, Status.ASSIGNED),
        ("running", None, None, Status.UPLOADING),
        ("running", "downloading", None, Status.UPLOADING),
        ("running", "uploading", None, Status.UPLOADING),
        ("running", "starting", None, Status.STARTING),
        ("running", "printing", None, Status.PRINTING),
        ("running", "paused", None, Status.PAUSED),
        ("uncertain", None, None, Status.UNCERTAIN),
        ("failed", None, UPLOAD_TIMEOUT, Status.REAPED),
        ("failed", None, "something else", Status.OVER),
        ("done", None, None, Status.OVER),
        ("cancelled", None, None, Status.OVER),
        ("expired", None, None, Status.OVER),
    ],
)
def test_each_job_has_one_place_in_the_table(
    state: str, phase: str | None, reason: str | None, status: Status
) -> None:
    assert status_of(state, phase, reason) == status


def test_the_table_for_readers_has_a_row_for_each_status_and_a_column_for_each_state() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + len(Status)
    assert {line.count("|") for line in lines} == {len(Seen) + 2}
