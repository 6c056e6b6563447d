"""The journal after crashes of all kinds."""

import asyncio
from pathlib import Path

import pytest

from farhand.agent import journal as module
from farhand.agent.journal import Entry, Journal

KEY = ("job-1", 2)


def entry(job_id: str = "job-1") -> Entry:
    return Entry(job_id, 2, "0" * 32, "print.pdf", "Office")


def reopened(path: Path) -> Journal:
    journal = Journal(path)
    journal.close()
    return journal


async def test_what_was_in_hand_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry())
    await journal.begun(KEY, "a memo")
    await journal.handed(KEY, "42")
    journal.close()
    (left,) = reopened(path).left_behind
    assert left == Entry("job-1", 2, "0" * 32, "print.pdf", "Office", begun=True, memo="a memo", handle="42")


async def test_what_has_ended_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry())
    await journal.taken(entry("job-2"))
    await journal.ended(KEY)
    journal.close()
    assert [left.job_id for left in reopened(path).left_behind] == ["job-2"]


async def test_what_was_not_sent_after_all_counts_as_taken(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry())
    await journal.begun(KEY, "a memo")
    await journal.unsent(KEY)
    journal.close()
    assert [left.begun for left in reopened(path).left_behind] == [False]


async def write(path: Path) -> None:
    journal = Journal(path)
    await journal.taken(entry())
    await journal.begun(KEY, "a memo")
    await journal.handed(KEY, "42")
    journal.close()


async def test_every_way_of_tearing_the_last_line_keeps_the_lines_before(tmp_path: Path) -> None:
    await write(tmp_path / "journal")
    whole = (tmp_path / "journal").read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole)):
        path = tmp_path / f"torn-{cut}"
        path.write_bytes(whole[:cut])
        journal = reopened(path)
        (left,) = journal.left_behind
        assert (left.begun, left.handle, journal.damaged) == (True, None, False)


async def test_a_last_line_of_zeros_is_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    await write(path)
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    (left,) = reopened(path).left_behind
    assert left.handle == "42"


async def test_after_a_bad_line_in_the_middle_everything_open_may_have_begun(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry())
    await journal.begun(KEY, "a memo")
    await journal.taken(entry("job-2"))
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"begun", b"unsnt") + lines[2])
    journal = reopened(path)
    assert journal.damaged
    assert [(left.job_id, left.begun, left.memo) for left in journal.left_behind] == [
        ("job-1", True, None),
        ("job-2", True, None),
    ]


async def test_a_start_leaves_only_what_is_open_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry("job-2"))
    for number in range(100):
        await journal.taken(entry(f"other-{number}"))
        await journal.ended((f"other-{number}", 2))
    journal.close()
    reopened(path)
    assert path.read_bytes().count(b"\n") == 1
    assert [left.job_id for left in reopened(path).left_behind] == ["job-2"]


async def test_a_long_run_does_not_let_the_file_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 2_000)
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry("kept"))

    async def one(number: int) -> None:
        key = (f"other-{number}", 2)
        await journal.taken(entry(key[0]))
        await journal.begun(key, "a memo")
        await journal.ended(key)

    await asyncio.gather(*(one(number) for number in range(40)))
    await journal.begun(("kept", 2), "the memo")
    journal.close()
    assert path.stat().st_size < 3_000
    (left,) = reopened(path).left_behind
    assert (left.job_id, left.begun, left.memo) == ("kept", True, "the memo")


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    await write(path)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_full_disk_raises_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    await journal.taken(entry())

    def short(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:10])

    real = module.os.write
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", short)
        with pytest.raises(OSError, match="full"):
            await journal.taken(entry("job-2"))
    await journal.taken(entry("job-3"))
    journal.close()
    again = reopened(path)
    assert not again.damaged
    assert [left.job_id for left in again.left_behind] == ["job-1", "job-3"]
