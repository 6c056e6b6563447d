"""What a person reads."""

import msgspec
import pytest

from farhand.cli.words import EXIT_CODES, age, clean, next_step, sentence, state_words
from farhand.model.job import TERMINAL
from farhand.protocol.client import JobView

CREATED = "2026-01-01T00:00:00.000Z"


def job(state: str, **more: object) -> JobView:
    members: dict[str, object] = dict.fromkeys(JobView.__struct_fields__)
    members |= {"id": "j", "kind": "print.raw", "state": state, "tags": [], "attempt": 0, "tries": 0}
    members |= {"priority": 0, "created_at": CREATED, "final": state in TERMINAL}
    return msgspec.convert(members | more, JobView)


def test_every_way_to_end_has_an_exit_code_of_its_own() -> None:
    assert set(EXIT_CODES) == {*TERMINAL, "uncertain"}
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)
    assert not {2, 6} & set(EXIT_CODES.values())
    assert [state for state, code in EXIT_CODES.items() if code == 0] == ["done"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("two\nlines\tand tab", "two lines and tab"),
        ("\x1b[31mred\x1b]0;title\x07", "\ufffd[31mred\ufffd]0;title\ufffd"),
        ("right\u202eto left", "right\ufffdto left"),
        ("c1 \x9b31m", "c1 \ufffd31m"),
        ("\u2028", "\ufffd"),
        ("\ud800", "\ufffd"),
    ],
)
def test_texts_of_others_cannot_reach_the_terminal(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (3_599_999, "59m"),
        (3_600_000, "1h"),
        (86_400_000, "1d"),
        (-5, "0s"),
    ],
)
def test_ages_have_one_unit(ms: int, shown: str) -> None:
    assert age(CREATED, 1_767_225_600_000 + ms) == shown


def test_printed_and_delivered_read_differently() -> None:
    assert state_words(job("done", evidence="printed")) == "done (printed)"
    assert "cannot say" in sentence(job("done", evidence="delivered"))
    assert "cannot say" not in sentence(job("done", evidence="printed"))


def test_a_failure_says_its_error_and_a_wait_its_reason() -> None:
    assert sentence(job("failed", error="no\x1bpaper", reason="other")) == "failed: no\ufffdpaper"
    waiting = job("running", phase="paused", reason="media-empty: the printer is out of paper")
    assert sentence(waiting) == "running (paused): media-empty: the printer is out of paper"
    assert sentence(job("running", cancel_requested_at=CREATED)) == "running, to be cancelled"


def test_who_can_act_is_told_how() -> None:
    assert "jobs resolve j done" in (next_step(job("uncertain")) or "")
    assert "jobs retry j" in (next_step(job("failed")) or "")
    assert next_step(job("done")) is None
    assert next_step(job("running")) is None
