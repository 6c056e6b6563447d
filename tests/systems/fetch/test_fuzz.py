"""Whatever a device sends, it is answered in the words of the seed; and large callbacks share their room."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farhand.protocol.pulsar import ERRORS, STATES
from farhand.systems.fetch.dialects import words
from farhand.systems.fetch.dialects.words import Refused, Room
from tests.server.serving import Server
from tests.systems.fetch.conftest import API, RESULT, Device, device, submit

ODD = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), database=None)
TEXT = st.text(max_size=20) | st.sampled_from(["\0", "\ud7ff", "accept", "refuse", "timeout", "é" * 9])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def members(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these members, of whatever value."""
    return st.dictionaries(st.sampled_from(names), VALUES, max_size=len(names))


def answered(server: Server, route: str, message: dict[str, Any]) -> dict[str, Any]:
    """The document of an answer, which must be in the seed's shape whatever it says."""
    reply = server.call("POST", f"{API}/{route}", key=None, body=json.dumps(message).encode())
    document = reply.json()
    assert reply.headers["content-type"] == "application/json"
    if reply.status == 200:
        assert set(document) == {"status", "data"}
        assert document["status"] == "ok"
        return document["data"]
    assert reply.status == ERRORS[document["code"]]
    assert reply.status < 500, document
    assert document["status"] == "error"
    return document


@pytest.fixture(scope="module")
def known(server: Server) -> Device:
    """An approved device."""
    return device(server)


@ODD
@given(capabilities=members("insecureTLS", "privateIP", "tags", "more"),
       more=members("sessionId", "userAgent", "capabilities", "batch", "more"))  # fmt: skip
def test_no_session_or_claim_makes_the_server_fail(
    server: Server, known: Device, capabilities: dict[str, Any], more: dict[str, Any]
) -> None:
    message = {"bid": known.bid, "sessionId": known.session_id, "capabilities": capabilities, **more}
    answered(server, "session", message)
    answered(server, "claim", message)


@ODD
@given(result=members(*RESULT, "remoteAddress", "tls", "redirects", "timings", "range", "url", "headerPairs"),
       error=st.none() | VALUES)  # fmt: skip
def test_no_callback_makes_the_server_fail_or_leaves_a_job_in_between(
    server: Server, known: Device, result: dict[str, Any], error: Any
) -> None:
    job_id = submit(server)
    job = known.take()
    assert job["jobId"] == job_id
    message = {
        "bid": known.bid,
        "sessionId": known.session_id,
        "jobId": job_id,
        "result": {**RESULT, **result},
    }
    if error is not None:
        message["error"] = error
    document = answered(server, "callback", message)
    if "state" in document:
        assert document["state"] in STATES
    else:
        assert known.callback(job) == "done"
    found = server.job(job_id)
    assert found["state"] in ("done", "failed")
    reply = server.call("GET", f"/jobs/{job_id}/result")
    assert reply.status == (200 if found["state"] == "done" else 409)


@ODD
@given(bid=st.text(max_size=600), session=TEXT)
def test_no_bid_makes_the_server_fail(server: Server, bid: str, session: str) -> None:
    found = answered(server, "claim", {"bid": bid, "sessionId": session})
    assert found["code"] in ("bid-required", "device-pending")


async def test_large_callbacks_wait_for_room() -> None:
    room = Room(10)
    order: list[str] = []

    entered, free = asyncio.Event(), asyncio.Event()

    async def taker(name: str, size: int, until: asyncio.Event) -> None:
        async with room.taken(size):
            order.append(name)
            entered.set()
            await until.wait()

    first = asyncio.create_task(taker("first", 7, free))
    await entered.wait()
    second = asyncio.create_task(taker("second", 7, free))
    async with room.taken(3):
        assert order == ["first"]
    free.set()
    await asyncio.gather(first, second)
    assert order == ["first", "second"]
    async with room.taken(10):
        pass


async def test_who_finds_no_room_in_time_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ROOM_WAIT_S", 0.01)
    room = Room(10)
    async with room.taken(10):
        with pytest.raises(Refused) as refused:
            async with room.taken(1):
                raise AssertionError("there was no room")
        assert refused.value.word == "busy"
    async with room.taken(10):
        pass
