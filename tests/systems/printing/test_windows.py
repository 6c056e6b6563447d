"""The Windows driver: a stand-in for winspool.drv fills real structures, a real program is SumatraPDF."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farhand.systems.printing.drivers import winspool
from farhand.systems.printing.drivers.base import Cancelled, Failed, Printed, PrintOptions, Unknown
from farhand.systems.printing.drivers.windows import (
    WindowsDriver,
    WindowsTiming,
    print_settings,
    windows_uri,
)
from farhand.systems.printing.drivers.winspool import JobInfo1, PrinterInfo2, Spooler, SpoolError
from tests.peers.printers import PDF
from tests.systems.printing.recorder import Recorder, a_document

NAME = "Invoice 12 [3f9c2a1b-1]"
QUICK = WindowsTiming(poll_ms=10, call_ms=500, pdf_ms=3_000)
PRINTER = "Zebra ZD420 (Lager)"


class StandIn:
    """winspool.drv as far as it is used: sizes asked for first, structures filled in place."""

    def __init__(self) -> None:
        self.error = 0
        self.queue: dict[int, list[Any]] = {}
        self.data: dict[int, bytes] = {}
        self.looks: list[int] = []
        self.calls: list[str] = []
        self.fail: dict[str, int] = {}
        self.block: dict[str, threading.Event] = {}
        self.printers = [("Office", 0, 0), (PRINTER, 0, 0)]
        self.current = 0
        self.texts: list[Any] = []

    def _point(self, row: ctypes.Structure, field: str, text: str) -> None:
        # Like the real one: a pointer to memory that ctypes does not own.
        memory = ctypes.create_unicode_buffer(text)
        self.texts.append(memory)
        offset = getattr(type(row), field).offset
        ctypes.c_void_p.from_buffer(row, offset).value = ctypes.addressof(memory)

    def last_error(self) -> int:
        return self.error

    def call(self, function: str, *arguments: Any) -> int:
        self.calls.append(function)
        if function in self.block:
            self.block[function].wait(10)
        if function in self.fail:
            self.error = self.fail[function]
            return 0
        return getattr(self, function)(*arguments)

    def _enough(self, kind: type[ctypes.Structure], count: int, size: Any, needed: Any) -> bool:
        wanted = ctypes.sizeof(kind) * count
        needed._obj.value = wanted
        if size.value < wanted:
            self.error = 122
            return False
        return True

    def EnumPrintersW(
        self, flags: Any, _name: None, level: Any, buffer: Any, size: Any, needed: Any, count: Any
    ) -> int:
        assert (flags.value, level.value) == (6, 2)
        if not self._enough(PrinterInfo2, len(self.printers), size, needed):
            return 0
        rows = (PrinterInfo2 * len(self.printers)).from_buffer(buffer)
        for row, (name, status, attributes) in zip(rows, self.printers, strict=True):
            row.status, row.attributes = status, attributes
            self._point(row, "name", name)
        count._obj.value = len(self.printers)
        return 1

    def OpenPrinterW(self, name: Any, handle: Any, _defaults: None) -> int:
        if name.value not in [printer[0] for printer in self.printers]:
            self.error = 1801
            return 0
        handle._obj.value = 77
        return 1

    def ClosePrinter(self, handle: Any) -> int:
        assert handle.value == 77
        return 1

    def StartDocPrinterW(self, _handle: Any, level: Any, info: Any) -> int:
        document = info._obj
        assert (level.value, document.output, document.datatype) == (1, None, "RAW")
        self.current = len(self.data) + 1
        self.data[self.current] = b""
        self.queue[self.current] = [document.name, winspool.JOB_SPOOLING, ""]
        return self.current

    def WritePrinter(self, _handle: Any, data: bytes, size: Any, written: Any) -> int:
        assert size.value == len(data)
        self.data[self.current] += data
        written._obj.value = len(data)
        return 1

    def EndDocPrinter(self, _handle: Any) -> int:
        self.queue[self.current][1] = winspool.JOB_PRINTING
        return 1

    def _advance(self, job_id: int) -> None:
        if self.looks and job_id in self.queue:
            status = self.looks.pop(0)
            self.queue[job_id][1] = status
            if status < 0:
                del self.queue[job_id]

    def _fill(self, row: JobInfo1, job_id: int) -> None:
        document, status, words = self.queue[job_id]
        row.job_id, row.status = job_id, status
        self._point(row, "document", document)
        self._point(row, "status_text", words)

    def GetJobW(self, _handle: Any, job_id: Any, level: Any, buffer: Any, size: Any, needed: Any) -> int:
        if size.value:
            self._advance(job_id.value)
        if job_id.value not in self.queue:
            self.error = 87
            return 0
        if not self._enough(JobInfo1, 1, size, needed):
            return 0
        self._fill(JobInfo1.from_buffer(buffer), job_id.value)
        return 1

    def EnumJobsW(
        self,
        _handle: Any,
        _first: Any,
        _most: Any,
        _level: Any,
        buffer: Any,
        size: Any,
        needed: Any,
        count: Any,
    ) -> int:
        count._obj.value = len(self.queue)
        if not self._enough(JobInfo1, len(self.queue), size, needed):
            return 0
        if self.queue:
            rows = (JobInfo1 * len(self.queue)).from_buffer(buffer)
            for row, job_id in zip(rows, self.queue, strict=True):
                self._fill(row, job_id)
        return 1

    def SetJobW(self, _handle: Any, job_id: Any, level: Any, _info: None, command: Any) -> int:
        assert (level.value, command.value) == (0, 5)
        self.queue.pop(job_id.value, None)
        self.looks.clear()
        return 1


@pytest.fixture
def dll() -> StandIn:
    return StandIn()


def is_gone(path: str) -> bool:
    return not Path(path).exists()


def driver(dll: StandIn, sumatra: Path | None = None) -> WindowsDriver:
    return WindowsDriver(windows_uri(PRINTER), spooler=Spooler(dll), sumatra=sumatra, timing=QUICK)


async def test_raw_bytes_reach_the_spooler_and_the_end_of_the_job_is_delivery(
    dll: StandIn, tmp_path: Path
) -> None:
    dll.looks = [winspool.JOB_SPOOLING, winspool.JOB_PRINTING, -1]
    content = bytes(range(256)) * 3_000
    progress = Recorder()
    outcome = await driver(dll).print(a_document(tmp_path, content, mode="raw", copies=2), progress)
    assert outcome == Printed(evidence="delivered")
    assert dll.data == {1: content * 2}
    assert progress.calls == ["spooling", "handed"]
    assert dll.calls[-1] == "ClosePrinter"


async def test_the_queues_reasons_are_reported_and_go_away(dll: StandIn, tmp_path: Path) -> None:
    dll.looks = [
        winspool.JOB_PRINTING | winspool.JOB_PAPEROUT,
        winspool.JOB_PRINTING,
        winspool.JOB_PRINTED,
    ]
    progress = Recorder()
    outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), progress)
    assert outcome == Printed(evidence="delivered")
    assert progress.reports == [("paused", "the printer is out of paper"), ("printing", None)]


async def test_a_job_deleted_in_the_queue_fails(dll: StandIn, tmp_path: Path) -> None:
    dll.looks = [winspool.JOB_PRINTING, winspool.JOB_DELETING, -1]
    outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), Recorder())
    assert outcome == Failed(reason="cancelled in the Windows queue")


async def test_a_cancel_deletes_the_job(dll: StandIn, tmp_path: Path) -> None:
    class Cancelling(Recorder):
        async def report(self, phase: str, reason: str | None) -> None:
            self.cancelled.set()

    outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), Cancelling())
    assert outcome == Cancelled()
    assert dll.queue == {}


async def test_a_cancel_while_data_is_written_deletes_the_job(dll: StandIn, tmp_path: Path) -> None:
    class Cancelling(Recorder):
        async def handed(self, handle: str) -> None:
            await super().handed(handle)
            self.cancelled.set()

    outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), Cancelling())
    assert outcome == Cancelled()
    assert dll.data == {1: b""}
    assert dll.queue == {}


async def test_a_printer_windows_does_not_know_is_retryable(dll: StandIn, tmp_path: Path) -> None:
    dll.printers = []
    progress = Recorder()
    outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), progress)
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "1801" in outcome.reason
    assert progress.calls == []
    assert (await driver(dll).status()).state == "offline"


async def test_a_write_that_fails_is_unknown_and_the_job_is_deleted(dll: StandIn, tmp_path: Path) -> None:
    dll.fail["WritePrinter"] = 5
    outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), Recorder())
    assert isinstance(outcome, Unknown)
    assert dll.queue == {}


async def test_a_spooler_that_hangs_is_given_up(dll: StandIn, tmp_path: Path) -> None:
    dll.block["OpenPrinterW"] = threading.Event()
    try:
        outcome = await driver(dll).print(a_document(tmp_path, b"x", mode="raw"), Recorder())
    finally:
        dll.block["OpenPrinterW"].set()
    assert outcome == Failed(reason="the Windows spooler does not answer", retryable=True)


async def test_fate_follows_a_job_that_is_still_queued_and_knows_nothing_of_one_that_is_not(
    dll: StandIn,
) -> None:
    dll.queue = {4: ["Other", winspool.JOB_PRINTING, ""], 5: [f"{NAME}.pdf", winspool.JOB_PRINTING, ""]}
    dll.looks = [winspool.JOB_PRINTING, winspool.JOB_PRINTED]
    progress = Recorder()
    assert await driver(dll).fate(NAME, None, progress) == Printed(evidence="delivered")
    assert progress.handles == ["5"]
    assert isinstance(await driver(dll).fate("Never [a-1]", "9", Recorder()), Unknown)


async def test_the_status_follows_the_spoolers_bits(dll: StandIn) -> None:
    cases = [
        (0, 0, "idle"),
        (0x400, 0, "printing"),
        (0x1, 0, "stopped"),
        (0x80, 0, "offline"),
        (0, 0x400, "offline"),
    ]
    for status, attributes, state in cases:
        dll.printers = [(PRINTER, status, attributes)]
        assert (await driver(dll).status()).state == state
    dll.printers = [(PRINTER, 0x10 | 0x400000, 0)]
    assert (await driver(dll).status()).reasons == ("the printer is out of paper", "a door is open")


def test_a_failed_call_carries_the_windows_error(dll: StandIn) -> None:
    dll.fail["EnumPrintersW"] = 1722
    with pytest.raises(SpoolError, match="1722"):
        Spooler(dll).printers()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has winspool.drv")
def test_without_windows_there_is_no_spooler() -> None:
    with pytest.raises(RuntimeError, match="Windows only"):
        WindowsDriver("winspool://local/Office")


@pytest.fixture
def make_sumatra(tmp_path: Path) -> Callable[[str], Path]:
    """A program in SumatraPDF's place: notes its arguments and its file, then does as told."""

    def make(then: str) -> Path:
        path = tmp_path / "SumatraPDF"
        path.write_text(
            "#!/bin/sh\n"
            f'for word in "$@"; do echo "$word"; last="$word"; done > "{tmp_path}/arguments"\n'
            f'cp "$last" "{tmp_path}/seen.pdf"\n'
            f'echo $$ > "{tmp_path}/pid"\n{then}\n'
        )
        path.chmod(0o755)
        return path

    return make


async def test_a_pdf_goes_through_sumatra_with_its_settings(
    dll: StandIn, tmp_path: Path, make_sumatra: Callable[[str], Path]
) -> None:
    options = PrintOptions(
        paper="A4", duplex="long-edge", color=False, pages="1-3", fit_to_page=True, bin="2"
    )
    document = a_document(tmp_path, options=options, copies=3)
    outcome = await driver(dll, make_sumatra("exit 0")).print(document, Recorder())
    assert outcome == Printed(evidence="delivered")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:-1] == [
        "-print-to", PRINTER, "-silent", "-exit-when-done",
        "-print-settings", "1-3,fit,monochrome,duplexlong,paper=A4,bin=2,3x",
    ]  # fmt: skip
    assert Path(arguments[-1]).name == f"{NAME}.pdf"
    assert is_gone(arguments[-1])
    assert (tmp_path / "seen.pdf").read_bytes() == PDF


async def test_a_job_that_sumatra_left_in_the_queue_is_followed(
    dll: StandIn, tmp_path: Path, make_sumatra: Callable[[str], Path]
) -> None:
    dll.queue = {8: [f"C:\\Temp\\{NAME}.pdf", winspool.JOB_PRINTING, ""]}
    dll.looks = [winspool.JOB_PRINTING | winspool.JOB_OFFLINE, -1]
    progress = Recorder()
    outcome = await driver(dll, make_sumatra("exit 0")).print(a_document(tmp_path), progress)
    assert outcome == Printed(evidence="delivered")
    assert progress.handles == ["8"]
    assert ("paused", "the printer is offline") in progress.reports


async def test_a_sumatra_that_fails_is_a_failure(
    dll: StandIn, tmp_path: Path, make_sumatra: Callable[[str], Path]
) -> None:
    outcome = await driver(dll, make_sumatra("exit 3")).print(a_document(tmp_path), Recorder())
    assert isinstance(outcome, Failed)
    assert "exit code 3" in outcome.reason


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_sumatra_that_hangs_is_killed_and_the_print_is_unknown(
    dll: StandIn, tmp_path: Path, make_sumatra: Callable[[str], Path], cancel: bool
) -> None:
    program = make_sumatra("exec sleep 60")
    quick = WindowsTiming(poll_ms=10, call_ms=500, pdf_ms=60_000 if cancel else 500)
    hanging = WindowsDriver(windows_uri(PRINTER), spooler=Spooler(dll), sumatra=program, timing=quick)
    progress = Recorder()
    if cancel:

        class Cancelling(Recorder):
            async def spooling(self) -> None:
                self.cancelled.set()

        progress = Cancelling()
    outcome = await hanging.print(a_document(tmp_path), progress)
    assert isinstance(outcome, Unknown)
    assert "killed" in outcome.reason
    if not cancel:
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_without_sumatra_a_pdf_is_refused_and_the_capability_says_so(
    dll: StandIn, tmp_path: Path
) -> None:
    progress = Recorder()
    outcome = await driver(dll).print(a_document(tmp_path), progress)
    assert isinstance(outcome, Failed)
    assert progress.calls == []
    status = await driver(dll).status()
    assert status.capabilities is not None
    assert (status.capabilities.raw, status.capabilities.pdf) == (True, False)


@pytest.mark.parametrize(
    "options",
    [
        PrintOptions(nup=2),
        PrintOptions(dpi="600"),
        PrintOptions(media="labels"),
        PrintOptions(rotate=90),
        PrintOptions(paper="A4,duplex"),
    ],
)
def test_what_sumatra_cannot_set_is_refused(options: PrintOptions) -> None:
    with pytest.raises(ValueError, match="SumatraPDF"):
        print_settings(options, 1)
