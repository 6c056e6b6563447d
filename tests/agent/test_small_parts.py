"""Backoff, waking, lanes, work files and the folder."""

import asyncio
from pathlib import Path

import pytest

from farhand.agent import suspend
from farhand.agent.backoff import Backoff
from farhand.agent.config import ConfigError
from farhand.agent.datadir import DataDir
from farhand.agent.handler import Abandoned, PayloadError
from farhand.agent.lanes import OWN, OWNERS, Lanes
from farhand.agent.link import Link
from farhand.agent.suspend import Waker
from farhand.agent.workfiles import WorkFiles
from farhand.model.clock import SystemClock
from farhand.protocol.agent import PayloadRef
from farhand.testing.clock import FakeClock
from tests.agent.fake_server import FakeServer, lost_reply, page
from tests.peers.printers import until

KEY = ("job-1", 1)
TOKEN = "0" * 32


def test_waits_double_up_to_the_cap_and_never_pass_it() -> None:
    backoff = Backoff(first_ms=1_000, cap_ms=60_000)
    waits = [backoff.next_ms() for _ in range(40)]
    for number, wait in enumerate(waits):
        window = min(60_000, 1_000 << number)
        assert window // 2 <= wait <= window
    backoff.reset()
    assert backoff.next_ms() <= 1_000


def test_even_the_first_wait_differs_between_agents() -> None:
    assert len({Backoff().next_ms() for _ in range(50)}) > 10


def test_the_servers_wish_is_a_minimum() -> None:
    backoff = Backoff(first_ms=1_000)
    assert all(7_000 <= backoff.next_ms(7_000) <= 8_000 for _ in range(50))


class WatchedClock(FakeClock):
    """Counts how often it was looked at."""

    looks = 0

    def monotonic_ms(self) -> int:
        self.looks += 1
        return super().monotonic_ms()


async def test_a_jump_of_the_boot_clock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspend, "TICK_MS", 10)
    clock = WatchedClock()
    noticing = asyncio.create_task(Waker(clock).next_jump())
    await until(lambda: clock.looks > 6, "the clock is watched")
    assert not noticing.done()
    clock.advance(6 * 3_600_000)
    assert 6 * 3_600_000 - 100 <= await noticing <= 6 * 3_600_000


async def test_a_set_wall_clock_is_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspend, "TICK_MS", 10)
    clock = WatchedClock()
    noticing = asyncio.create_task(Waker(clock).next_jump())
    await until(lambda: clock.looks > 2, "the clock is watched")
    clock.jump(-3_600_000)
    seen = clock.looks
    await until(lambda: clock.looks > seen + 4, "the clock is watched on")
    assert not noticing.done()
    noticing.cancel()


async def test_a_wake_ends_every_wait() -> None:
    waker = Waker(SystemClock())
    waits = [asyncio.create_task(waker.sleep(60_000)) for _ in range(3)]
    await asyncio.sleep(0)
    waker.wake()
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)


async def test_a_lane_at_work_is_not_free_until_its_work_has_ended() -> None:
    lanes, over = Lanes(), asyncio.Event()

    async def work() -> None:
        await over.wait()

    lanes.assign({"id-1": "first", "id-2": "second"})
    lanes.occupy("first", work())
    assert lanes.free() == ["id-2"]
    lanes.changed.clear()
    over.set()
    await lanes.changed.wait()
    assert lanes.free() == ["id-1", "id-2"]


async def test_a_lane_keeps_its_work_while_its_device_gets_a_new_id() -> None:
    lanes, over = Lanes(), asyncio.Event()

    async def work() -> None:
        await over.wait()

    lanes.occupy("first", work())
    lanes.assign({"id-9": "first"})
    assert lanes.free() == []
    over.set()
    await until(lambda: lanes.free() == ["id-9"], "the lane is free")


async def test_a_lane_without_a_device_is_as_wide_as_its_handlers_say() -> None:
    lanes, over = Lanes({OWN: 1, OWNERS: 2}), asyncio.Event()
    lanes.assign({"me": OWN, "owners": OWNERS})
    for _ in range(2):
        assert "owners" in lanes.free()
        lanes.occupy(OWNERS, asyncio.wait_for(over.wait(), None))
    assert not lanes.is_free(OWNERS)
    assert lanes.is_free(OWN)
    over.set()
    await until(lambda: sorted(lanes.free()) == ["me", "owners"], "there is room again")


async def test_the_own_lane_is_named_only_while_there_is_room_for_either_kind_of_work() -> None:
    lanes, over = Lanes({OWN: 1, OWNERS: 1}), asyncio.Event()
    lanes.assign({"me": OWN, "owners": OWNERS})
    lanes.occupy(OWN, asyncio.wait_for(over.wait(), None))
    assert lanes.free() == ["owners"]
    over.set()
    await until(lambda: "me" in lanes.free(), "the command is done")
    over.clear()
    lanes.occupy(OWNERS, asyncio.wait_for(over.wait(), None))
    assert lanes.free() == []
    over.set()
    await lanes.finish(1000)


async def test_an_agent_that_only_fetches_takes_what_is_pinned_to_it() -> None:
    lanes = Lanes({OWN: 0, OWNERS: 1})
    lanes.assign({"me": OWN, "owners": OWNERS})
    assert sorted(lanes.free()) == ["me", "owners"]


async def test_a_stuck_lane_is_cancelled_when_the_grace_is_over() -> None:
    lanes = Lanes()
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    lanes.occupy("first", work())
    await lanes.finish(10)
    assert stopped.is_set()


@pytest.fixture
async def workfiles(link: Link, tmp_path: Path) -> WorkFiles:
    return WorkFiles(tmp_path / "payloads", link, Waker(SystemClock()))


def by_url(server: FakeServer, content: bytes) -> PayloadRef:
    job_id = server.add(content=content, by_url=True)
    server._tokens[job_id] = TOKEN
    return PayloadRef(size=len(content), url=f"/agent/jobs/{job_id}/payload")


async def test_an_inline_payload_becomes_a_file_and_goes_away(workfiles: WorkFiles, tmp_path: Path) -> None:
    path = await workfiles.payload(KEY, TOKEN, PayloadRef(size=3, base64="YWJj"))
    assert path.read_bytes() == b"abc"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    await workfiles.remove(KEY)
    assert list((tmp_path / "payloads").iterdir()) == []


async def test_a_payload_by_url_is_downloaded(workfiles: WorkFiles, server: FakeServer) -> None:
    content = bytes(range(256)) * 1_000
    path = await workfiles.payload(KEY, TOKEN, by_url(server, content))
    assert path.read_bytes() == content


async def test_a_broken_download_begins_anew(workfiles: WorkFiles, server: FakeServer) -> None:
    ref = by_url(server, b"x" * 1_000)
    server.fault("/payload", lost_reply, page(502))
    path = await workfiles.payload(KEY, TOKEN, ref)
    assert path.read_bytes() == b"x" * 1_000
    assert server.count("/payload") == 3


async def test_a_payload_of_another_size_is_an_error(workfiles: WorkFiles) -> None:
    with pytest.raises(PayloadError, match="has 3 bytes, not 4"):
        await workfiles.payload(KEY, TOKEN, PayloadRef(size=4, base64="YWJj"))


async def test_a_payload_of_a_lost_attempt_is_abandoned(workfiles: WorkFiles, server: FakeServer) -> None:
    ref = by_url(server, b"x")
    with pytest.raises(Abandoned):
        await workfiles.payload(KEY, "1" * 32, ref)


def test_what_a_killed_agent_left_is_removed_at_the_start(tmp_path: Path) -> None:
    left = tmp_path / "payloads" / "job-1-1"
    left.mkdir(parents=True)
    (left / "payload").write_bytes(b"secret")
    WorkFiles(tmp_path / "payloads", None, None)  # type: ignore[arg-type]  (not reached)
    assert list((tmp_path / "payloads").iterdir()) == []


def test_two_agents_do_not_share_a_folder(tmp_path: Path) -> None:
    first = DataDir(tmp_path / "data")
    with pytest.raises(ConfigError, match="another agent runs"):
        DataDir(tmp_path / "data")
    first.release()
    DataDir(tmp_path / "data").release()
