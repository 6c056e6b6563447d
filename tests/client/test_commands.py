"""Issuing commands on both faces, against a real server and an agent that is moved by hand."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from rich.pretty import pretty_repr

from farhand.client import ApiError, Client, Command, CommandOpen
from farhand.client import commands as calls
from farhand.client.plan import Answer, Lost
from tests.client.conftest import Ask
from tests.client.server import FarhandServer, farhand_server
from tests.client.test_plan import answer, carry_out, script

SETTINGS = """
[commands."shop.open"]
start_by_ms = 60_000
backoff_base_ms = 0
[commands."shop.close"]
start_by_ms = 60_000
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarhandServer]:
    """A server that knows two types of commands."""
    with farhand_server(tmp_path_factory.mktemp("server"), SETTINGS) as running:
        yield running


class Hand:
    """An agent of the test's own, over the real wire."""

    def __init__(self, server: FarhandServer, name: str) -> None:
        self.name = name
        with Client(server.url, server.token) as root:
            issued = root.issue_agent(name)
            root.grants(issued.id, ["agent.work", "commands.process"])
        self.http = httpx2.Client(
            base_url=f"{server.url}/api/agent/v1/commands",
            headers={"Authorization": f"Bearer {issued.key}"},
            timeout=30,
        )

    def claim(self) -> dict[str, Any]:
        reply = self.http.post("/claim", headers={"Prefer": "wait=10"})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def report(self, command: dict[str, Any], **said: Any) -> None:
        body = {"lease_token": command["lease_token"], **said}
        reply = self.http.post(f"/{command['uuid']}/result", json=body)
        assert reply.status_code == 200, reply.text


@pytest.fixture
def hand(server: FarhandServer, request: pytest.FixtureRequest) -> Iterator[Hand]:
    hand = Hand(server, f"agent of {request.node.name}")
    with hand.http:
        yield hand


def test_a_command_is_issued_awaited_and_its_trail_read(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name, {"door": 7})
    assert isinstance(made, Command)
    assert (made.status, made.type, made.agent, made.params) == (
        "pending",
        "shop.open",
        hand.name,
        {"door": 7},
    )
    claimed = hand.claim()
    assert (claimed["uuid"], claimed["params"]) == (made.uuid, {"door": 7})
    hand.report(claimed, status="completed", result={"opened": 7})
    seen: list[str] = []
    done = ask("wait_command", made.uuid, timeout_ms=20_000, on_change=lambda now: seen.append(now.status))
    assert (done.status, done.result, seen) == ("completed", {"opened": 7}, ["completed"])
    assert ask("command", made.uuid).uuid == made.uuid
    trail = ask("command_events", made.uuid)
    assert [(event.from_, event.to) for event in trail][0] == (None, "pending")
    assert trail[-1].to == "completed"
    assert all(event.text for event in trail)
    page = ask("commands", agent=hand.name, status="completed", limit=1)
    assert [command.uuid for command in page.items] == [made.uuid]


def test_a_wait_is_held_and_answered_when_the_result_is_there(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name)
    claimed = threading.Event()

    def work() -> None:
        command = hand.claim()
        claimed.set()
        hand.report(command, status="completed", result={"opened": True})

    worker = threading.Thread(target=work)
    worker.start()
    done = ask("wait_command", made.uuid, timeout_ms=20_000)
    worker.join(20)
    assert claimed.is_set()
    assert done.result == {"opened": True}


def test_the_same_key_is_the_same_command_and_another_body_under_it_is_refused(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name, {"door": 1}, idempotency_key=f"key {hand.name}")
    again = ask("issue_command", "shop.open", hand.name, {"door": 1}, idempotency_key=f"key {hand.name}")
    assert again.uuid == made.uuid
    with pytest.raises(ApiError) as refused:
        ask("issue_command", "shop.open", hand.name, {"door": 2}, idempotency_key=f"key {hand.name}")
    assert refused.value.problem.code == "idempotency-mismatch"


def test_a_second_command_of_a_live_type_is_refused_with_the_live_one(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name)
    with pytest.raises(ApiError) as refused:
        ask("issue_command", "shop.open", hand.name)
    assert refused.value.problem.code == "active-conflict"
    assert refused.value.problem.extra["uuid"] == made.uuid
    assert ask("issue_command", "shop.close", hand.name).status == "pending"


def test_a_command_is_cancelled_twice_and_retried_once(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name, {"door": 3})
    assert ask("cancel_command", made.uuid, reason="a person changed their mind").status == "cancelled"
    assert ask("cancel_command", made.uuid).status == "cancelled"
    again = ask("retry_command", made.uuid)
    assert (again.status, again.retry_of, again.params) == ("pending", made.uuid, {"door": 3})
    assert again.uuid != made.uuid


def test_a_failed_command_says_why(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name)
    hand.report(hand.claim(), status="failed", error="the door is bricked up", retryable=False)
    done = ask("wait_command", made.uuid, timeout_ms=20_000)
    assert (done.status, done.error, done.attempts) == ("failed", "the door is bricked up", 1)


def test_wait_gives_up_with_the_command_as_it_is(ask: Ask, hand: Hand) -> None:
    made = ask("issue_command", "shop.open", hand.name, expires_in=60)
    with pytest.raises(CommandOpen, match=f"{made.uuid} is still pending") as open_still:
        ask("wait_command", made.uuid, timeout_ms=300)
    assert open_still.value.command.uuid == made.uuid


def test_an_unknown_type_is_refused_with_the_known_ones(ask: Ask, hand: Hand) -> None:
    with pytest.raises(ApiError, match=r"shop\.open"):
        ask("issue_command", "shop.burn", hand.name)


COMMAND: dict[str, Any] = {
    "id": "c", "uuid": "c", "type": "whatsapp.connect", "agent": "shop", "agent_id": "a",
    "status": "completed", "state": "done", "final": True, "phase": None, "reason": None, "error": None,
    "params": {"name": "only for the agent"}, "attempt": 1, "attempts": 1, "next_attempt_at": None,
    "expires_at": None, "created_at": "t", "collected_at": "t", "finished_at": "t",
    "cancel_requested_at": None, "retry_of": None, "result": {"qr": "a credential"},
}  # fmt: skip


def test_a_command_shows_neither_params_nor_result_in_its_repr() -> None:
    seen, _, _ = carry_out(calls.command("c"), script(answer(COMMAND)))
    assert seen.result == {"qr": "a credential"}
    for shown in (repr(seen), str([seen]), pretty_repr(seen), str(CommandOpen(seen))):
        assert "a credential" not in shown
        assert "only for the agent" not in shown
    assert "type='whatsapp.connect'" in repr(seen)


def test_a_command_whose_reply_was_lost_is_issued_again_under_the_same_key() -> None:
    lost = Lost(why="cut off", sent=True)
    made, sent, _ = carry_out(
        calls.issue_command("t", "a"),
        script(lost, Answer(status=503, headers={}, body=b"x"), answer(COMMAND, 201)),
    )
    assert made.uuid == "c"
    keys = {msgspec.json.decode(call.body or b"")["idempotency_key"] for call in sent}
    assert (len(sent), len(keys)) == (3, 1)


def test_an_acknowledgement_may_be_sent_again_and_a_retry_may_not() -> None:
    lost = Lost(why="cut off", sent=True)
    _, sent, _ = carry_out(calls.ack_command("c"), script(lost, answer(COMMAND)))
    assert [call.path for call in sent] == ["/commands/c/ack"] * 2
    with pytest.raises(Exception, match="cut off"):
        carry_out(calls.retry_command("c"), script(lost, answer(COMMAND)))
