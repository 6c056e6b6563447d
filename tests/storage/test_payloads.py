"""The folder of payloads."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from farhand.model.errors import Problem
from farhand.storage.folder import YOUNG_NS, FolderPayloads
from farhand.storage.store import Store
from farhand.testing.factories import Scene

BODY = b"%PDF-1.7 and so on" * 1000
SHA = hashlib.sha256(BODY).digest()


@pytest.fixture
def payloads(tmp_path: Path) -> FolderPayloads:
    folder = FolderPayloads(tmp_path / "payloads")
    folder.open_root()
    return folder


async def chunks(body: bytes = BODY, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read(payloads: FolderPayloads, sha256: bytes = SHA) -> bytes:
    return b"".join([chunk async for chunk in payloads.open(sha256)])


def files(payloads: FolderPayloads) -> list[str]:
    return sorted(path.name for path in payloads._root.rglob("*") if path.is_file())


def grow_old(payloads: FolderPayloads, sha256: bytes = SHA) -> None:
    path = payloads._path(sha256)
    then = path.stat().st_mtime_ns - YOUNG_NS
    os.utime(path, ns=(then, then))


async def test_what_was_put_comes_back(payloads: FolderPayloads) -> None:
    assert await payloads.put(chunks(), len(BODY)) == (SHA, len(BODY))
    assert await payloads.head(SHA) == len(BODY)
    assert await read(payloads) == BODY
    assert files(payloads) == [SHA.hex()]


async def test_the_same_bytes_lie_there_once(payloads: FolderPayloads) -> None:
    answers = await asyncio.gather(*(payloads.put(chunks(), len(BODY)) for _ in range(8)))
    assert set(answers) == {(SHA, len(BODY))}
    assert files(payloads) == [SHA.hex()]


async def test_too_many_bytes_leave_nothing_behind(payloads: FolderPayloads) -> None:
    with pytest.raises(Problem, match=str(len(BODY) - 1)):
        await payloads.put(chunks(), len(BODY) - 1)
    assert files(payloads) == []


async def test_a_stream_that_breaks_off_leaves_nothing_behind(payloads: FolderPayloads) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await payloads.put(broken(), 100)
    assert files(payloads) == []


async def test_what_a_crash_left_half_written_is_cleared_away(payloads: FolderPayloads) -> None:
    (payloads._root / "incoming" / "half").write_bytes(b"half")
    await payloads.put(chunks(), len(BODY))
    payloads.open_root()
    assert files(payloads) == [SHA.hex()]


async def test_what_is_not_there_says_so(payloads: FolderPayloads) -> None:
    assert await payloads.head(SHA) is None
    with pytest.raises(FileNotFoundError):
        await read(payloads)
    await payloads.delete(SHA)


async def test_an_old_payload_is_deleted_and_a_young_one_is_not(payloads: FolderPayloads) -> None:
    await payloads.put(chunks(), len(BODY))
    await payloads.delete(SHA)
    assert await read(payloads) == BODY
    grow_old(payloads)
    await payloads.delete(SHA)
    assert files(payloads) == []


async def test_a_payload_put_again_is_young_again(payloads: FolderPayloads) -> None:
    await payloads.put(chunks(), len(BODY))
    grow_old(payloads)
    await payloads.put(chunks(), len(BODY))
    await payloads.delete(SHA)
    assert await read(payloads) == BODY


async def test_bytes_that_no_job_needs_are_found(
    payloads: FolderPayloads, store: Store, scene: Scene
) -> None:
    await payloads.put(chunks(), len(BODY))
    orphan, _ = await payloads.put(chunks(b"orphan"), 100)
    await scene.submit(scene.id(), payload_sha256=SHA, payload_size=len(BODY))
    parts = [await payloads.aged(part) for part in range(256)]
    assert parts == [[]] * 256
    grow_old(payloads)
    grow_old(payloads, orphan)
    aged = [sha for part in range(256) for sha in await payloads.aged(part)]
    assert sorted(aged) == sorted([SHA, orphan])
    assert await store.unneeded(aged) == [orphan]
