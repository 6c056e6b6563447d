"""A connection to a real printer that is cut, or held up, while the document goes out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from farhand.systems.printing.drivers.base import Cancelled, Failed, Printed, Unknown
from farhand.systems.printing.drivers.ipp import IppDriver
from tests.peers.printers import PDF, Cups, EvePrinter, SocketPrinter, until
from tests.systems.printing.ipp_server import talking
from tests.systems.printing.recorder import QUICK, Recorder, a_document

LARGE = PDF + b"%" + b"x" * 3_000_000


@dataclass(slots=True)
class Wire:
    """What happens to a document on its way: `through`, `cut` or `held`, after `passed` bytes."""

    manner: str
    passed: int = 200_000
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def wire_to(port: int, wire: Wire, path: str = "/ipp/print") -> AsyncIterator[str]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        back = asyncio.create_task(pump(far_reader, writer))
        try:
            seen = 0
            while data := await reader.read(65536):
                seen += len(data)
                if seen > wire.passed and wire.manner != "through":
                    wire.reached.set()
                    if wire.manner == "cut":
                        writer.transport.abort()
                        return
                    await wire.released.wait()
                    return
                far_writer.write(data)
                await far_writer.drain()
        finally:
            back.cancel()
            far_writer.transport.abort()

    async with talking(talk) as server:
        yield f"ipp://localhost:{server.port}{path}"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("passed", [1_000, 200_000])
async def test_a_document_cut_on_its_way_is_never_called_printed_or_printed_again(
    eve: EvePrinter, tmp_path: Path, passed: int
) -> None:
    wire = Wire("cut", passed)
    async with wire_to(eve.port, wire) as uri:
        driver = IppDriver(uri, timing=QUICK)
        outcome = await driver.print(a_document(tmp_path, LARGE, name="Cut [a-1]"), Recorder())
        assert wire.reached.is_set()
        # ippeveprinter takes what has arrived for the document, and may have begun to print it.
        assert isinstance(outcome, Unknown | Failed)
        if isinstance(outcome, Failed) and outcome.retryable:
            assert eve.started() == []
        wire.manner = "through"
        later = await driver.print(a_document(tmp_path, LARGE, name="Later [b-1]"), Recorder())
        assert later == Printed(evidence="printed")
    assert eve.printed()[-1].name == "Later [b-1]"
    assert eve.printed()[-1].content == LARGE


@pytest.mark.parametrize("passed", [1_000, 200_000, len(LARGE)])
async def test_cupsd_never_takes_a_part_of_a_document_for_the_whole(
    cups: Cups, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path, passed: int
) -> None:
    printer = make_socket_printer()
    cups.add_queue("labels", printer.uri, "-m", "raw")
    wire = Wire("cut", passed)
    async with wire_to(cups.port, wire, "/printers/labels") as uri:
        driver = IppDriver(uri, timing=QUICK)
        outcome = await driver.print(a_document(tmp_path, LARGE, name="Cut [a-1]"), Recorder())
        assert wire.reached.is_set()
        assert isinstance(outcome, Failed)
        assert outcome.retryable
        wire.manner = "through"
        again = await driver.print(a_document(tmp_path, LARGE, name="Cut [a-2]"), Recorder())
        assert again == Printed(evidence="delivered")
    await until(lambda: bool(printer.jobs()), "the document arrives")
    assert printer.jobs() == [LARGE]


async def test_a_cancel_while_the_document_is_held_up_ends_the_job(eve: EvePrinter, tmp_path: Path) -> None:
    wire = Wire("held")
    progress = Recorder()
    async with wire_to(eve.port, wire) as uri:
        driver = IppDriver(uri, timing=QUICK)
        printing = asyncio.create_task(driver.print(a_document(tmp_path, LARGE), progress))
        await wire.reached.wait()
        progress.cancelled.set()
        await until(lambda: "Cancel-Job" in eve.log(), "the printer gets the cancel")
        wire.released.set()
        outcome = await printing
        assert isinstance(outcome, Cancelled | Unknown)
        wire.manner = "through"
        later = await driver.print(a_document(tmp_path, name="Later [b-1]"), Recorder())
        assert later == Printed(evidence="printed")
    if outcome == Cancelled():
        assert [printed.name for printed in eve.printed()] == ["Later [b-1]"]
