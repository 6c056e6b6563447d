"""The raw TCP driver against real listeners: good, deaf, breaking off."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from farhand.systems.printing.drivers.base import Cancelled, Failed, Printed, Unknown
from farhand.systems.printing.drivers.raw9100 import RawDriver, RawTiming
from tests.peers.printers import SocketPrinter, free_port, until
from tests.systems.printing.recorder import Recorder, a_document

LABEL = b"^XA^FDhello^FS^XZ" + bytes(range(256))
LARGE = LABEL * 20_000
QUICK = RawTiming(connect_ms=2_000, quiet_ms=100, stall_ms=1_000, close_ms=300)
PATIENT = RawTiming(connect_ms=2_000, quiet_ms=100, stall_ms=30_000, close_ms=300)


@pytest.mark.parametrize("manner", ["take", "keep-open"])
async def test_every_byte_arrives_and_delivery_is_all_that_is_claimed(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path, manner: str
) -> None:
    printer = make_socket_printer(manner)
    progress = Recorder()
    outcome = await RawDriver(printer.uri, timing=QUICK).print(
        a_document(tmp_path, LARGE, mode="raw"), progress
    )
    assert outcome == Printed(evidence="delivered")
    await until(lambda: printer.jobs() == [LARGE], "the printer has it all")
    assert progress.calls == ["spooling", "handed"]


async def test_copies_of_raw_data_go_out_one_after_the_other(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer()
    document = a_document(tmp_path, LABEL, mode="raw", copies=3)
    assert await RawDriver(printer.uri, timing=QUICK).print(document, Recorder()) == Printed(
        evidence="delivered"
    )
    await until(lambda: printer.jobs() == [LABEL * 3], "three labels arrive")


async def test_a_connection_that_breaks_after_the_first_byte_is_unknown(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer("reset")
    progress = Recorder()
    outcome = await RawDriver(printer.uri, timing=QUICK).print(
        a_document(tmp_path, LARGE, mode="raw"), progress
    )
    assert isinstance(outcome, Unknown)
    assert "broke" in outcome.reason
    assert progress.calls == ["spooling"]


@pytest.mark.parametrize("content", [LARGE, LABEL * 100])
async def test_a_printer_that_never_reads_meets_the_write_limit(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path, content: bytes
) -> None:
    printer = make_socket_printer("deaf")
    progress = Recorder()
    outcome = await RawDriver(printer.uri, timing=QUICK).print(
        a_document(tmp_path, content, mode="raw"), progress
    )
    assert isinstance(outcome, Unknown)
    assert "stopped taking data" in outcome.reason
    assert progress.reports[-1] == ("paused", "the printer takes no data; look at its paper")


async def test_a_printer_that_pauses_is_waited_for_and_the_reason_goes_away(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer("deaf")
    progress = Recorder()
    driver = RawDriver(printer.uri, timing=PATIENT)
    printing = asyncio.create_task(driver.print(a_document(tmp_path, LARGE, mode="raw"), progress))
    await progress.waits_for("takes no data")
    assert (await driver.status()).state == "printing"
    printer.wake()
    assert await printing == Printed(evidence="delivered")
    assert progress.reports[-1] == ("printing", None)
    assert printer.jobs() == [LARGE]


async def test_a_cancel_while_the_printer_takes_nothing_ends_the_print_as_unknown(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer("deaf")
    progress = Recorder()
    driver = RawDriver(printer.uri, timing=PATIENT)
    printing = asyncio.create_task(driver.print(a_document(tmp_path, LARGE, mode="raw"), progress))
    await progress.waits_for("takes no data")
    progress.cancelled.set()
    outcome = await printing
    assert isinstance(outcome, Unknown)
    assert "cancelled" in outcome.reason


async def test_a_cancel_before_the_first_byte_sends_nothing(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer()
    progress = Recorder()
    progress.cancelled.set()
    driver = RawDriver(printer.uri, timing=QUICK)
    assert await driver.print(a_document(tmp_path, LABEL, mode="raw"), progress) == Cancelled()
    progress.cancelled.clear()
    await driver.print(a_document(tmp_path, b"after", mode="raw"), progress)
    await until(lambda: bool(printer.jobs()), "the next job arrives")
    assert printer.jobs() == [b"after"]


async def test_a_refused_connection_is_retryable_and_nothing_was_spooled(tmp_path: Path) -> None:
    progress = Recorder()
    nobody = RawDriver(f"socket://127.0.0.1:{free_port()}", timing=QUICK)
    outcome = await nobody.print(a_document(tmp_path, LABEL, mode="raw"), progress)
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert progress.calls == []
    assert (await nobody.status()).state == "offline"


async def test_a_refusal_to_spool_sends_nothing(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    class Refusing(Recorder):
        async def spooling(self) -> None:
            raise RuntimeError("the lease is gone")

    printer = make_socket_printer()
    driver = RawDriver(printer.uri, timing=QUICK)
    with pytest.raises(RuntimeError, match="the lease is gone"):
        await driver.print(a_document(tmp_path, LABEL, mode="raw"), Refusing())
    await driver.print(a_document(tmp_path, b"after", mode="raw"), Recorder())
    await until(lambda: bool(printer.jobs()), "the next job arrives")
    assert printer.jobs() == [b"after"]


async def test_a_pdf_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    driver = RawDriver(f"socket://127.0.0.1:{free_port()}", timing=QUICK)
    outcome = await driver.print(a_document(tmp_path), Recorder())
    assert isinstance(outcome, Failed)
    assert not outcome.retryable


async def test_fate_is_known_only_when_the_delivery_was_journalled(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    driver = RawDriver(make_socket_printer().uri, timing=QUICK)
    progress = Recorder()
    await driver.print(a_document(tmp_path, LABEL, mode="raw"), progress)
    assert await driver.fate("x", progress.handles[0], Recorder()) == Printed(evidence="delivered")
    assert isinstance(await driver.fate("x", None, Recorder()), Unknown)
    assert (await driver.status()).state == "idle"
