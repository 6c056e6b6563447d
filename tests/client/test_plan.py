"""Plans, retries and what replies mean, without a network."""

from collections.abc import Callable

import msgspec
import pytest

from farhand.client import ApiError, StillOpen, Unreachable, UnreadableReply, calls
from farhand.client.plan import Answer, Call, Lost, Pause, Plan, T, steps
from farhand.protocol.client import JobView, PrintOptions, SubmitPrint, SubmitReply


class TestClock:
    """Time that passes only while a plan pauses."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


World = Callable[[Call[object]], Answer | Lost]


def carry_out(
    plan: Plan[T], world: World, patience_ms: int = 30_000
) -> tuple[T, list[Call[object]], list[int]]:
    """Runs a plan against a function that answers; its result, its calls and its pauses."""
    clock = TestClock()
    made: list[Call[object]] = []
    pauses: list[int] = []
    running = steps(plan, clock, patience_ms)
    outcome: Answer | Lost | None = None
    while True:
        try:
            step = running.send(outcome)
        except StopIteration as stop:
            return stop.value, made, pauses
        if isinstance(step, Pause):
            clock.now += step.ms
            pauses.append(step.ms)
            outcome = None
            continue
        made.append(step)
        outcome = world(step)


def script(*outcomes: Answer | Lost) -> World:
    """A world that answers one after the other."""
    left = list(outcomes)
    return lambda _: left.pop(0)


def answer(value: object, status: int = 200, **headers: str) -> Answer:
    return Answer(
        status=status,
        headers={name.replace("_", "-"): text for name, text in headers.items()},
        body=msgspec.json.encode(value),
    )


def problem(code: str, status: int, *, retryable: bool = False, **more: object) -> Answer:
    body = {"code": code, "status": status, "detail": f"about {code}", "retryable": retryable, **more}
    headers = {"retry_after": "3"} if status in (429, 503) else {}
    return answer(body, status, content_type="application/problem+json", **headers)


MADE = answer({"id": "i", "job_id": "i", "state": "queued"}, 201)
LOST = Lost(why="connection reset", sent=True)
UNSENT = Lost(why="connection refused", sent=False)
HTML = Answer(status=502, headers={"content-type": "text/html"}, body=b"<h1>Bad gateway</h1>")


def view(state: str, **more: object) -> dict[str, object]:
    members: dict[str, object] = dict.fromkeys(JobView.__struct_fields__)
    members |= {"id": "j", "kind": "print.raw", "state": state, "tags": [], "attempt": 0, "tries": 0}
    members |= {"priority": 0, "created_at": "2026-01-01T00:00:00.000Z"}
    return members | {"final": state in ("done", "failed", "cancelled", "expired")} | more


def test_a_submit_is_repeated_with_the_same_idempotency_key() -> None:
    reply, made, _ = carry_out(
        calls.submit({"type": "x"}), script(LOST, HTML, problem("busy", 503, retryable=True), MADE)
    )
    assert reply.id == "i"
    keys = {call.headers["Idempotency-Key"] for call in made}
    assert len(made) == 4
    assert len(keys) == 1
    assert len(keys.pop()) >= 20


def test_two_submits_have_different_keys() -> None:
    _, first, _ = carry_out(calls.submit({"type": "x"}), script(MADE))
    _, second, _ = carry_out(calls.submit({"type": "x"}), script(MADE))
    assert first[0].headers["Idempotency-Key"] != second[0].headers["Idempotency-Key"]


def test_a_given_idempotency_key_is_used() -> None:
    _, made, _ = carry_out(calls.submit({"type": "x"}, idempotency_key="mine"), script(MADE))
    assert made[0].headers["Idempotency-Key"] == "mine"


def test_an_idempotency_key_in_flight_is_waited_for() -> None:
    in_flight = problem("idempotency-in-flight", 409, retryable=True)
    reply, made, _ = carry_out(calls.submit({"type": "x"}), script(in_flight, MADE))
    assert (reply.id, len(made)) == ("i", 2)


def test_retry_after_is_obeyed() -> None:
    _, _, pauses = carry_out(
        calls.job("j"), script(problem("busy", 503, retryable=True), answer(view("done")))
    )
    assert pauses == [3000]


def test_backoff_grows_and_patience_ends_it() -> None:
    with pytest.raises(Unreachable, match="refused"):
        carry_out(calls.job("j"), lambda _: UNSENT, patience_ms=2_000)
    clock_pauses: list[int] = []

    def world(_: Call[object]) -> Answer | Lost:
        clock_pauses.append(1)
        return UNSENT if len(clock_pauses) < 6 else answer(view("done"))

    _, _, pauses = carry_out(calls.job("j"), world)
    assert pauses == sorted(pauses)
    assert all(
        base <= pause <= base * 1.1 for base, pause in zip((200, 400, 800, 1600, 3200), pauses, strict=True)
    )


def test_a_write_the_server_would_not_recognise_is_not_repeated_once_it_may_have_left() -> None:
    with pytest.raises(Unreachable):
        carry_out(calls.create_key("k", ["jobs.read"]), script(LOST))
    with pytest.raises(UnreadableReply):
        carry_out(calls.create_key("k", ["jobs.read"]), script(HTML))


def test_unreachable_says_whether_the_request_may_have_been_taken() -> None:
    for outcomes, maybe_taken in [((UNSENT, UNSENT), False), ((LOST, UNSENT), True), ((LOST, LOST), True)]:
        with pytest.raises(Unreachable) as caught:
            carry_out(calls.submit({"type": "x"}), script(*outcomes), patience_ms=300)
        assert caught.value.maybe_taken is maybe_taken


def test_such_a_write_is_repeated_when_it_never_left_or_was_turned_away() -> None:
    made = answer({"id": "k", "name": "k", "grants": [], "user": None, "key": "secret"}, 201)
    reply, sent, _ = carry_out(
        calls.create_key("k", ["jobs.read"]), script(UNSENT, problem("busy", 503, retryable=True), made)
    )
    assert (reply.key, len(sent)) == ("secret", 3)


@pytest.mark.parametrize(("code", "status"), [("unauthorized", 401), ("not-found", 404), ("bad-field", 422)])
def test_a_refusal_is_final(code: str, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        carry_out(calls.job("j"), script(problem(code, status, field="printer_id")))
    assert caught.value.problem.code == code
    assert caught.value.problem.status == status
    assert caught.value.problem.extra == {"field": "printer_id"}
    assert str(caught.value) == f"about {code}"


@pytest.mark.parametrize(
    "page",
    [
        Answer(status=200, headers={"content-type": "text/html"}, body=b"<h1>Please log in</h1>"),
        Answer(status=404, headers={"content-type": "text/html"}, body=b"nothing here"),
        Answer(status=200, headers={"content-type": "application/json"}, body=b'{"id": 3}'),
        Answer(status=200, headers={}, body=b"\xff\xfe"),
        Answer(status=200, headers={}, body=b""),
    ],
)
def test_what_no_farhand_server_would_say_is_unreadable(page: Answer) -> None:
    with pytest.raises(UnreadableReply, match="is the address right"):
        carry_out(calls.job("j"), script(page))


def test_a_redirect_names_its_target_and_the_key_does_not_follow() -> None:
    moved = Answer(status=301, headers={"location": "https://else.example/"}, body=b"")
    with pytest.raises(UnreadableReply, match=r"https://else\.example/"):
        carry_out(calls.job("j"), script(moved))


def test_unknown_members_of_a_reply_do_not_matter() -> None:
    reply, _, _ = carry_out(calls.job("j"), script(answer(view("done", brand_new={"a": [1]}))))
    assert reply.state == "done"


def test_wait_reports_each_change_and_ends_with_the_final_state() -> None:
    seen: list[str] = []
    world = script(
        answer(view("queued")), answer(view("claimed")), answer(view("running")), answer(view("done"))
    )
    job, made, _ = carry_out(calls.wait("j", on_change=lambda job: seen.append(job.state)), world)
    assert (job.state, seen) == ("done", ["queued", "claimed", "running", "done"])
    assert [call.wait_s for call in made] == [0, 20, 20, 20]


def test_wait_ends_at_uncertain_which_only_a_person_can_end() -> None:
    job, _, _ = carry_out(calls.wait("j"), script(answer(view("running")), answer(view("uncertain"))))
    assert job.state == "uncertain"


def test_wait_asks_a_server_that_does_not_hold_only_now_and_then() -> None:
    replies = [answer(view("queued"))] * 10 + [answer(view("done"))]
    changes: list[str] = []
    _, _, pauses = carry_out(
        calls.wait("j", on_change=lambda job: changes.append(job.state)), script(*replies)
    )
    assert pauses == [500] * 9
    assert changes == ["queued", "done"]


def test_wait_gives_up_after_its_timeout_with_what_it_saw() -> None:
    clock = TestClock()

    def world(call: Call[object]) -> Answer:
        clock.now += call.wait_s * 1000
        return answer(view("queued"))

    with pytest.raises(StillOpen) as caught:
        carry_out(calls.wait("j", timeout_ms=45_000, clock=clock), world)
    assert caught.value.job.state == "queued"
    assert clock.now - 1_000_000 == 45_000


def test_wait_outlasts_a_server_that_is_away_longer_than_a_single_call_would() -> None:
    outage = [UNSENT] * 40
    job, _, pauses = carry_out(
        calls.wait("j"), script(answer(view("queued")), *outage, answer(view("done"))), patience_ms=5_000
    )
    assert job.state == "done"
    assert sum(pauses) > 100_000


def test_lists_are_read_to_their_end() -> None:
    pages = [{"items": [], "next": "a"}, {"items": [], "next": "b"}, {"items": [], "next": None}]
    found, made, _ = carry_out(calls.printers(with_gone=True), script(*map(answer, pages)))
    assert found == []
    assert [call.query for call in made] == [
        {"gone": "true"},
        {"gone": "true", "cursor": "a"},
        {"gone": "true", "cursor": "b"},
    ]


def body_of(plan: Plan[SubmitReply]) -> dict[str, object]:
    _, made, _ = carry_out(plan, script(MADE))
    assert made[0].body is not None
    return msgspec.json.decode(made[0].body)


def test_a_print_says_only_what_was_said() -> None:
    assert body_of(calls.submit_print("p", b"^XA^XZ")) == {
        "printer_id": "p",
        "type": "raw_base64",
        "content": "XlhBXlha",
    }


def test_a_print_says_all_that_was_said() -> None:
    plan = calls.submit_print(
        "p", url="https://e.example/a", type="pdf_uri_post", json={"a": [1, None]}, title="t", source="s",
        copies=2, options=PrintOptions(paper="A4", color=False), priority=-3, run_at="2026-01-01T00:00:00Z",
        expires_in=60, tags=["x"], metadata={"k": None},
    )  # fmt: skip
    body = body_of(plan)
    assert body == {
        "printer_id": "p", "type": "pdf_uri_post", "url": "https://e.example/a", "json": {"a": [1, None]},
        "title": "t", "source": "s", "copies": 2, "options": {"paper": "A4", "color": False},
        "priority": -3, "run_at": "2026-01-01T00:00:00Z", "expires_in": 60, "tags": ["x"],
        "metadata": {"k": None},
    }  # fmt: skip
    assert set(body) <= set(SubmitPrint.__struct_fields__)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"%PDF-1.7\n...", "pdf_base64"),
        (b"\xef\xbb\xbf\r\n%PDF-1.4", "pdf_base64"),
        (b"\x1b%-12345X@PJL ENTER LANGUAGE=PDF\n%PDF-1.7", "raw_base64"),
        (b"^XA^FD%PDF-^FS^XZ", "raw_base64"),
        (b"", "raw_base64"),
        (None, "pdf_uri"),
    ],
)
def test_the_type_is_seen_from_the_content(content: bytes | None, word: str) -> None:
    assert calls.guess_type(content) == word


def test_ids_cannot_leave_their_place_in_the_path() -> None:
    _, made, _ = carry_out(calls.job("../keys?x=1#y"), script(answer(view("done"))))
    assert made[0].path == "/jobs/..%2Fkeys%3Fx%3D1%23y"
