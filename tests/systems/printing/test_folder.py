"""The folder driver: whole files or none, and an exact answer after a crash."""

import os
from pathlib import Path

import pytest

from farhand.systems.printing.drivers.base import Cancelled, Failed, Printed, Unknown, device_name
from farhand.systems.printing.drivers.folder import FolderDriver, file_name, folder_of
from tests.peers.printers import PDF
from tests.systems.printing.recorder import Recorder, a_document

NAME = "Invoice 12 [3f9c2a1b-1]"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out put"
    folder.mkdir()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_pdf_becomes_one_file_and_leaves_no_marks(out: Path, tmp_path: Path) -> None:
    progress = Recorder()
    driver = FolderDriver(out.as_uri())
    assert await driver.print(a_document(tmp_path, copies=2), progress) == Printed(evidence="delivered")
    assert names(out) == [f"{NAME}.pdf"]
    assert (out / f"{NAME}.pdf").read_bytes() == PDF
    assert progress.calls == ["spooling", "handed"]


async def test_raw_data_is_repeated_for_copies(out: Path, tmp_path: Path) -> None:
    document = a_document(tmp_path, b"^XA^XZ", mode="raw", copies=3)
    assert await FolderDriver(out.as_uri()).print(document, Recorder()) == Printed(evidence="delivered")
    assert (out / f"{NAME}.prn").read_bytes() == b"^XA^XZ" * 3


@pytest.mark.parametrize("name", ["../../etc/passwd [a-1]", 'a/b\\c:d*e?"<>| [a-1]', "Ünï 日本 [a-1]", "."])
async def test_no_name_leaves_the_folder(out: Path, tmp_path: Path, name: str) -> None:
    driver = FolderDriver(out.as_uri())
    assert await driver.print(a_document(tmp_path, name=name), Recorder()) == Printed(evidence="delivered")
    assert len(names(out)) == 1
    assert names(tmp_path) == ["out put", "payload"]
    assert await driver.fate(name, None, Recorder()) == Printed(evidence="delivered")


async def test_a_file_of_the_same_name_is_never_overwritten(out: Path, tmp_path: Path) -> None:
    driver = FolderDriver(out.as_uri())
    await driver.print(a_document(tmp_path), Recorder())
    outcome = await driver.print(a_document(tmp_path, b"other"), Recorder())
    assert isinstance(outcome, Failed)
    assert (out / f"{NAME}.pdf").read_bytes() == PDF


async def test_fate_of_a_print_that_never_began_may_be_tried_again(out: Path) -> None:
    outcome = await FolderDriver(out.as_uri()).fate(NAME, None, Recorder())
    assert isinstance(outcome, Failed)
    assert outcome.retryable


async def crash_at(call: str, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Crash

    class Dying(Recorder):
        async def handed(self, handle: str) -> None:
            raise Crash

    with monkeypatch.context() as patch:
        if call == "rename":
            patch.setattr(Path, "rename", die)
        elif call == "fsync":
            patch.setattr(os, "fsync", die)
        progress = Dying() if call == "handed" else Recorder()
        with pytest.raises(Crash):
            await FolderDriver(out.as_uri()).print(a_document(tmp_path), progress)


@pytest.mark.parametrize("call", ["fsync", "rename"])
async def test_a_crash_before_the_file_is_in_place_may_be_tried_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await crash_at(call, out, tmp_path, monkeypatch)
    assert names(out) != []
    outcome = await FolderDriver(out.as_uri()).fate(NAME, None, Recorder())
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert names(out) == []


@pytest.mark.parametrize("collected", [False, True])
async def test_a_crash_after_the_file_was_in_place_is_a_delivery_even_if_somebody_took_it(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: bool
) -> None:
    await crash_at("handed", out, tmp_path, monkeypatch)
    if collected:
        (out / f"{NAME}.pdf").unlink()
    driver = FolderDriver(out.as_uri())
    assert await driver.fate(NAME, None, Recorder()) == Printed(evidence="delivered")
    assert names(out) == ([] if collected else [f"{NAME}.pdf"])


async def test_a_journalled_delivery_stays_one_after_the_file_was_taken(out: Path, tmp_path: Path) -> None:
    progress = Recorder()
    driver = FolderDriver(out.as_uri())
    await driver.print(a_document(tmp_path), progress)
    (out / f"{NAME}.pdf").unlink()
    assert await driver.fate(NAME, progress.handles[0], Recorder()) == Printed(evidence="delivered")


async def test_a_missing_folder_is_retryable_before_and_unknown_after(tmp_path: Path) -> None:
    driver = FolderDriver((tmp_path / "missing").as_uri())
    progress = Recorder()
    outcome = await driver.print(a_document(tmp_path), progress)
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert progress.calls == []
    assert isinstance(await driver.fate(NAME, None, Recorder()), Unknown)
    assert (await driver.status()).state == "offline"


async def test_a_write_that_fails_leaves_nothing_and_is_retryable(out: Path, tmp_path: Path) -> None:
    document = a_document(tmp_path)
    document.path.unlink()
    outcome = await FolderDriver(out.as_uri()).print(document, Recorder())
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert names(out) == []


async def test_a_cancel_before_the_write_writes_nothing(out: Path, tmp_path: Path) -> None:
    progress = Recorder()
    progress.cancelled.set()
    assert await FolderDriver(out.as_uri()).print(a_document(tmp_path), progress) == Cancelled()
    assert names(out) == []


@pytest.mark.parametrize("uri", ["file://server/share", "file:///", "ipp://h/", "file:"])
def test_what_is_no_local_folder_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="folder of this machine"):
        folder_of(uri)


def test_long_names_keep_their_unique_tail() -> None:
    one, two = (file_name("Lieferschein " * 40 + f"[3f9c2a1b-{number}]") for number in (1, 2))
    assert one != two
    assert one.endswith("[3f9c2a1b-1]")
    assert len(one.encode()) <= 200


def test_names_without_a_tail_stay_apart_by_a_digest() -> None:
    one, two = (device_name("ä" * 300 + letter, 127) for letter in "ab")
    assert one != two
    assert len(one.encode()) <= 127
    assert device_name("\n\x00", 127) == "document"
    assert device_name("lone \ud800 surrogate", 127) == "lone ? surrogate"
