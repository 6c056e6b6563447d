"""A command's trail in sentences, for those who ask why something did not work."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from farhand.model.clock import to_rfc3339
from farhand.model.job import Event, State, Verb

_Sentence = Callable[[Event, str], str]


def sentence(event: Event, actor: str) -> str:
    """One entry of the trail in plain words; `actor` is what people call whoever did it."""
    text = _WORDS[Verb(event.verb)](event, actor)
    return text[:1].upper() + text[1:]


def retry_at(event: Event) -> int | None:
    """When the next attempt follows, for an entry that says so (milliseconds UTC)."""
    moment = _data(event).get("run_at")
    return moment if isinstance(moment, int) else None


def _data(event: Event) -> Mapping[str, Any]:
    found: Any = json.loads(event.data) if event.data is not None else None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _because(event: Event) -> str:
    return f": {event.reason}" if event.reason else ""


def _attempt(event: Event) -> str:
    return "the attempt" if event.attempt is None else f"attempt {event.attempt}"


def _submit(event: Event, actor: str) -> str:
    again = f" ({event.reason})" if event.reason else ""
    if event.to_state == State.SCHEDULED:
        return f"{actor} issued it for later{again}"
    return f"{actor} issued it{again}"


def _promote(_event: Event, _actor: str) -> str:
    return "the wait before the next attempt is over; the agent may collect it"


def _claim(event: Event, actor: str) -> str:
    return f"{actor} collected it: {_attempt(event)}"


def _start(event: Event, actor: str) -> str:
    return f"{actor} began {_attempt(event)}"


def _progress(event: Event, actor: str) -> str:
    return f"{actor} reported on {_attempt(event)}{_because(event)}"


def _settle(event: Event, actor: str) -> str:
    match event.to_state:
        case State.DONE:
            return f"{actor} completed it in {_attempt(event)}"
        case State.SCHEDULED:
            return f"{_attempt(event)} failed{_because(event)}; {_next_try(event)}"
        case State.FAILED:
            return f"{_attempt(event)} failed for good{_because(event)}"
        case State.CANCELLED:
            return f"{actor} ended {_attempt(event)} and the command is cancelled{_because(event)}"
        case _:
            return f"{actor} reported the end of {_attempt(event)}; another one is still at work"


def _next_try(event: Event) -> str:
    moment = retry_at(event)
    return "it will be tried again" if moment is None else f"it will be tried again at {to_rfc3339(moment)}"


def _release(event: Event, actor: str) -> str:
    return _back(event, f"{actor} gave {_attempt(event)} back")


def _refuse(event: Event, actor: str) -> str:
    return _back(event, f"{actor} refused it")


def _back(event: Event, what: str) -> str:
    ends: dict[str, str] = {
        State.QUEUED: "it can be collected again",
        State.CANCELLED: "the command is cancelled",
        State.FAILED: "the command has failed",
        State.SCHEDULED: _next_try(event),
    }
    end = ends.get(event.to_state)
    return f"{what}{_because(event)}" + (f"; {end}" if end else "")


def _reclaim(event: Event, _actor: str) -> str:
    what = f"{_attempt(event)} was taken back{_because(event)}"
    if event.to_state == State.UNCERTAIN:
        return f"{what}; whether it happened is not known, and a person has to say"
    ends: dict[str, str] = {
        State.QUEUED: "the agent may collect it again",
        State.FAILED: "the command has failed",
        State.CANCELLED: "the command is cancelled",
        State.SCHEDULED: _next_try(event),
    }
    end = ends.get(event.to_state)
    return what + (f"; {end}" if end else "")


def _expire(event: Event, _actor: str) -> str:
    match event.to_state:
        case State.EXPIRED:
            return f"it expired{_because(event)}; no agent had collected it"
        case State.FAILED:
            return f"the command failed{_because(event)}"
        case _:
            return f"the agent is to stop{_because(event)}"


def _cancel(event: Event, actor: str) -> str:
    if event.to_state == State.CANCELLED:
        return f"{actor} cancelled it{_because(event)}"
    return f"{actor} asked for its end while the agent was at work{_because(event)}"


def _retry(_event: Event, actor: str) -> str:
    return f"{actor} issued it again as a new command"


def _resolve(event: Event, actor: str) -> str:
    how = "it was completed" if event.to_state == State.DONE else "it failed"
    return f"{actor} said that {how}{_because(event)}"


def _adopt(event: Event, actor: str) -> str:
    return f"{actor} found that {_attempt(event)} goes on after all{_because(event)}"


def _late(event: Event, actor: str) -> str:
    said = _data(event).get("said", "an end")
    return f"{actor} reported {said} for {_attempt(event)}, which was no longer its own; that changed nothing"


def _prune(_event: Event, _actor: str) -> str:
    return "its time in the records is over"


_WORDS: Final[Mapping[Verb, _Sentence]] = {
    Verb.SUBMIT: _submit,
    Verb.PROMOTE: _promote,
    Verb.CLAIM: _claim,
    Verb.START: _start,
    Verb.HEARTBEAT: _progress,
    Verb.REPORT: _progress,
    Verb.SETTLE: _settle,
    Verb.RELEASE: _release,
    Verb.REFUSE: _refuse,
    Verb.RECLAIM: _reclaim,
    Verb.EXPIRE: _expire,
    Verb.CANCEL: _cancel,
    Verb.RETRY: _retry,
    Verb.RESOLVE: _resolve,
    Verb.ADOPT: _adopt,
    Verb.PRUNE: _prune,
    Verb.LATE_RESULT: _late,
}
