"""Statuses and sentences: every state has a word, every transition a sentence."""

import itertools

import pytest

from farhand.model.job import TERMINAL, Actor, Event, State, Verb
from farhand.model.transitions import TRANSITIONS
from farhand.protocol.commands import STATUSES
from farhand.systems.commands.status import STATUS_OF, states_of, status_of
from farhand.systems.commands.words import retry_at, sentence

STEPS = [
    (source, verb, target) for (source, verb), targets in TRANSITIONS.items() for target in sorted(targets)
]


def event(source: State | None, verb: Verb, target: State, **more: object) -> Event:
    fields: dict[str, object] = {"attempt": 2, "reason": "the reason", **more}
    return Event(
        job_seq=1, number=1, org_id=1, at=0, actor=Actor(kind="agent"), verb=verb,
        from_state=source, to_state=target, **fields,
    )  # fmt: skip  # type: ignore[arg-type]  (fields of an event)


def test_every_state_has_a_status_and_every_status_a_state() -> None:
    assert set(STATUS_OF) == set(State)
    assert set(STATUS_OF.values()) == set(STATUSES)
    found = list(itertools.chain.from_iterable(states_of(status) for status in STATUSES))
    assert sorted(found) == sorted(State)
    assert states_of("done") == ()


def test_only_what_is_over_has_a_final_status() -> None:
    final = {"completed", "failed", "expired", "cancelled"}
    assert {state for state in State if status_of(state) in final} == TERMINAL


@pytest.mark.parametrize(("source", "verb", "target"), STEPS)
def test_every_transition_has_a_sentence(source: State | None, verb: Verb, target: State) -> None:
    for more in ({}, {"attempt": None, "reason": None}):
        text = sentence(event(source, verb, target, **more), "the agent ai")
        assert text[0].isupper()
        assert "None" not in text
        assert "{" not in text
        assert len(text) > 10


@pytest.mark.parametrize("verb", list(Verb))
def test_every_verb_has_a_sentence(verb: Verb) -> None:
    assert sentence(event(State.DONE, verb, State.DONE), "the agent ai")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (event(None, Verb.SUBMIT, State.QUEUED, reason=None), "The key cms issued it"),
        (event(State.QUEUED, Verb.CLAIM, State.CLAIMED, reason=None), "The key cms collected it: attempt 2"),
        (
            event(State.RUNNING, Verb.SETTLE, State.SCHEDULED, reason="down", data='{"run_at":30000}'),
            "Attempt 2 failed: down; it will be tried again at 1970-01-01T00:00:30.000Z",
        ),
        (
            event(State.RUNNING, Verb.SETTLE, State.FAILED, reason="no such number"),
            "Attempt 2 failed for good: no such number",
        ),
        (
            event(State.RUNNING, Verb.SETTLE, State.DONE, reason="reported"),
            "The key cms completed it in attempt 2",
        ),
        (
            event(State.RUNNING, Verb.RECLAIM, State.QUEUED, reason="the agent did not report in time"),
            "Attempt 2 was taken back: the agent did not report in time; the agent may collect it again",
        ),
        (
            event(State.QUEUED, Verb.EXPIRE, State.EXPIRED, reason="nobody took the job in time"),
            "It expired: nobody took the job in time; no agent had collected it",
        ),
        (
            event(State.QUEUED, Verb.CANCEL, State.CANCELLED, reason="closed"),
            "The key cms cancelled it: closed",
        ),
        (
            event(State.FAILED, Verb.LATE_RESULT, State.FAILED, data='{"digest":"00","said":"success"}'),
            "The key cms reported success for attempt 2, which was no longer its own; that changed nothing",
        ),
    ],
)
def test_sentences_say_what_happened(given: Event, text: str) -> None:
    assert sentence(given, "the key cms") == text


@pytest.mark.parametrize("data", [None, "[]", '{"run_at":"soon"}', '{"digest":"00"}', "7"])
def test_without_a_moment_there_is_no_next_attempt(data: str | None) -> None:
    assert retry_at(event(State.RUNNING, Verb.SETTLE, State.FAILED, data=data)) is None
