"""The payload store in a folder."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from farhand.model.errors import Problem
from farhand.storage.folder import LEFTOVER_MS, FolderPayloads
from farhand.testing.clock import FakeClock


async def _bytes(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _read(payloads: FolderPayloads, sha256: bytes) -> bytes:
    return b"".join([piece async for piece in payloads.open(sha256)])


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def payloads(tmp_path: Path, clock: FakeClock) -> FolderPayloads:
    store = FolderPayloads(tmp_path / "payloads", clock)
    store.open_root()
    return store


async def test_what_was_put_is_read_back_under_its_address(payloads: FolderPayloads) -> None:
    sha256, size = await payloads.put(_bytes(b"one ", b"label"), 100)
    assert (size, await _read(payloads, sha256), await payloads.head(sha256)) == (9, b"one label", 9)


async def test_a_payload_over_the_limit_leaves_nothing(payloads: FolderPayloads, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="limit of 8 bytes"):
        await payloads.put(_bytes(b"12345", b"6789"), 8)
    assert _files(tmp_path) == []


async def test_bytes_put_again_meanwhile_are_not_discarded(
    payloads: FolderPayloads, clock: FakeClock
) -> None:
    sha256, _ = await payloads.put(_bytes(b"label"), 100)
    clock.advance(10_000)
    limit = clock.now_ms()
    await payloads.put(_bytes(b"label"), 100)
    assert not await payloads.discard(sha256, limit)
    assert await _read(payloads, sha256) == b"label"


async def test_old_bytes_are_discarded_and_then_not_there(payloads: FolderPayloads, clock: FakeClock) -> None:
    sha256, _ = await payloads.put(_bytes(b"label"), 100)
    clock.advance(1)
    assert await payloads.stored(clock.now_ms()) == [sha256]
    assert await payloads.discard(sha256, clock.now_ms())
    assert await payloads.discard(sha256, clock.now_ms())
    assert await payloads.head(sha256) is None
    with pytest.raises(FileNotFoundError):
        await _read(payloads, sha256)


async def test_a_crash_between_leaving_and_gone_loses_nothing(
    payloads: FolderPayloads, clock: FakeClock, tmp_path: Path
) -> None:
    sha256, _ = await payloads.put(_bytes(b"label"), 100)
    root = tmp_path / "payloads"
    (root / sha256.hex()[:2] / sha256.hex()).rename(root / "leaving" / f"{sha256.hex()}-00")
    FolderPayloads(root, clock).open_root()
    assert await _read(payloads, sha256) == b"label"


async def test_another_server_at_its_start_leaves_an_upload_under_way_alone(
    payloads: FolderPayloads, clock: FakeClock, tmp_path: Path
) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"first "
        FolderPayloads(tmp_path / "payloads", clock).open_root()
        yield b"second"

    sha256, _ = await payloads.put(slow(), 100)
    assert await _read(payloads, sha256) == b"first second"


async def test_what_a_crash_left_half_written_goes_after_a_day(
    payloads: FolderPayloads, clock: FakeClock, tmp_path: Path
) -> None:
    part = tmp_path / "payloads" / "incoming" / "deadbeef"
    part.write_bytes(b"half")
    os.utime(part, ns=(clock.now_ms() * 1_000_000,) * 2)
    clock.advance(LEFTOVER_MS + 1)
    FolderPayloads(tmp_path / "payloads", clock).open_root()
    assert not part.exists()
