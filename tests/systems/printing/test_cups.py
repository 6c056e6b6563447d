"""The IPP driver and discovery against a real, private cupsd."""

import asyncio
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfReader

from farhand.systems.printing.discover import ListedPrinter, cups_queues, discover, driver_for
from farhand.systems.printing.drivers.base import (
    Cancelled,
    Failed,
    Printed,
    PrintOptions,
)
from farhand.systems.printing.drivers.ipp import IppDriver
from farhand.systems.printing.drivers.ipp_client import IppError
from farhand.systems.printing.drivers.ipp_session import HELD
from tests.peers.printers import PDF, Cups, EvePrinter, SocketPrinter, free_port, until
from tests.systems.printing.recorder import QUICK, Recorder, a_document

NAME = "Invoice 12 [3f9c2a1b-1]"
LABEL = b"^XA^FO50,50^FDhello^FS^XZ" + bytes(range(256))


def driver(uri: str) -> IppDriver:
    return IppDriver(uri, timing=QUICK)


@pytest.fixture
def eve_queue(cups: Cups, eve: EvePrinter) -> str:
    """A driverless queue in front of a virtual printer."""
    return cups.add_queue("eve", eve.uri, "-m", "everywhere")


@pytest.fixture
def ppd() -> Path:
    """A classic driver."""
    path = Path("/usr/share/ppd/cups-pdf/CUPS-PDF_noopt.ppd")
    if not path.exists():
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("printer-driver-cups-pdf is not installed")
    return path


async def test_a_pdf_goes_through_a_queue_once_and_unchanged(
    cups: Cups, eve: EvePrinter, tmp_path: Path
) -> None:
    queue = cups.add_queue("raweve", eve.uri, "-m", "raw")
    progress = Recorder()
    outcome = await driver(queue).print(a_document(tmp_path, name="Ünï 日本 [a-1]"), progress)
    assert outcome == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert (printed.content, printed.name) == (PDF, "Ünï 日本 [a-1]")
    assert progress.calls == ["spooling", "handed", "handed"]


async def test_a_driverless_queue_prints_a_pdf_once_after_its_own_filter(
    eve: EvePrinter, eve_queue: str, tmp_path: Path
) -> None:
    assert await driver(eve_queue).print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert (printed.name, printed.content_type) == (NAME, "application/pdf")
    assert len(PdfReader(BytesIO(printed.content)).pages) == 1


async def test_options_go_through_a_queue(eve: EvePrinter, eve_queue: str, tmp_path: Path) -> None:
    options = PrintOptions(paper="Letter", duplex="long-edge", color=False)
    outcome = await driver(eve_queue).print(a_document(tmp_path, options=options, copies=2), Recorder())
    assert outcome == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert printed.env["IPP_SIDES"] == "two-sided-long-edge"
    assert printed.env["IPP_COPIES"] == "2"


async def test_out_of_paper_is_seen_through_a_queue(eve: EvePrinter, eve_queue: str, tmp_path: Path) -> None:
    eve.set_mode("media-empty")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve_queue).print(a_document(tmp_path), progress))
    await progress.waits_for("media-empty: the printer is out of paper")
    assert not printing.done()
    eve.add_paper()
    assert await printing == Printed(evidence="printed")
    assert len(eve.printed()) == 1


@pytest.mark.parametrize("model", ["everywhere", "raw"])
async def test_an_abort_behind_a_queue_fails_with_the_devices_reason_whatever_cups_says(
    cups: Cups, eve: EvePrinter, tmp_path: Path, model: str
) -> None:
    eve.set_mode("abort")
    queue = driver(cups.add_queue("eve", eve.uri, "-m", model))
    # cupsd calls some of these completed and some cancelled.
    for number in range(4):
        outcome = await queue.print(a_document(tmp_path, name=f"Bad [{number}-1]"), Recorder())
        assert isinstance(outcome, Failed)
        assert not outcome.retryable
        assert "jammed for good" in outcome.reason
    assert eve.printed() == []


async def test_a_cancel_takes_a_job_out_of_a_queue(eve: EvePrinter, eve_queue: str, tmp_path: Path) -> None:
    eve.set_mode("media-empty")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve_queue).print(a_document(tmp_path), progress))
    await progress.waits_for("media-empty")
    progress.cancelled.set()
    assert await printing == Cancelled()
    session = driver(eve_queue)._session
    job = await session.job(int(progress.handles[-1]))
    assert job is not None
    assert job.is_final


async def test_a_job_survives_a_killed_cupsd_and_an_agent_that_starts_again(
    cups: Cups, eve: EvePrinter, eve_queue: str, tmp_path: Path
) -> None:
    progress = Recorder()
    assert await driver(eve_queue).print(a_document(tmp_path), progress) == Printed(evidence="printed")
    await asyncio.to_thread(cups.stop)
    await asyncio.to_thread(cups.start)
    for handle in (*progress.handles, None):
        assert await driver(eve_queue).fate(NAME, handle, Recorder()) == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_a_raw_queue_passes_every_byte_and_claims_delivery_only(
    cups: Cups, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer()
    queue = driver(cups.add_queue("labels", printer.uri, "-m", "raw"))
    status = await queue.status()
    assert status.capabilities is not None
    assert status.capabilities.raw
    assert await queue.print(a_document(tmp_path, LABEL, mode="raw"), Recorder()) == Printed(
        evidence="delivered"
    )
    # What looks like a PDF is raw data all the same.
    assert await queue.print(a_document(tmp_path, PDF, name="Two [b-1]", mode="raw"), Recorder()) == Printed(
        evidence="delivered"
    )
    await until(lambda: len(printer.jobs()) == 2, "both labels arrive")
    assert printer.jobs() == [LABEL, PDF]


async def test_copies_of_raw_data_are_made_by_the_queue(
    cups: Cups, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer()
    queue = driver(cups.add_queue("labels", printer.uri, "-m", "raw"))
    outcome = await queue.print(a_document(tmp_path, LABEL, mode="raw", copies=3), Recorder())
    assert outcome == Printed(evidence="delivered")
    await until(lambda: b"".join(printer.jobs()) == LABEL * 3, "three labels arrive")


async def test_a_queue_with_a_driver_passes_raw_data_by(
    cups: Cups, ppd: Path, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer()
    queue = driver(cups.add_queue("office", printer.uri, "-P", str(ppd)))
    outcome = await queue.print(a_document(tmp_path, PDF, mode="raw"), Recorder())
    assert outcome == Printed(evidence="delivered")
    await until(lambda: bool(printer.jobs()), "the data arrives")
    assert printer.jobs() == [PDF]


async def test_a_document_that_the_queues_filter_cannot_read_fails(
    cups: Cups, ppd: Path, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer()
    queue = driver(cups.add_queue("office", printer.uri, "-P", str(ppd)))
    outcome = await queue.print(a_document(tmp_path, b"this is no PDF"), Recorder())
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "it ended with errors" in outcome.reason
    assert printer.jobs() == []


async def test_a_driverless_queue_does_not_claim_to_take_raw_data(
    eve: EvePrinter, eve_queue: str, tmp_path: Path
) -> None:
    status = await driver(eve_queue).status()
    assert status.capabilities is not None
    assert (status.capabilities.raw, status.capabilities.pdf) == (False, True)
    progress = Recorder()
    outcome = await driver(eve_queue).print(a_document(tmp_path, LABEL, mode="raw"), progress)
    assert isinstance(outcome, Failed)
    assert progress.calls == []


async def test_a_document_the_device_refused_is_no_success_although_cups_says_completed(
    cups: Cups, eve: EvePrinter, tmp_path: Path
) -> None:
    queue = driver(cups.add_queue("raweve", eve.uri, "-m", "raw"))
    outcome = await queue.print(a_document(tmp_path, LABEL, mode="raw"), Recorder())
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert eve.printed() == []


async def test_a_queue_whose_device_is_away_waits_until_it_comes_back(
    cups: Cups, eve: EvePrinter, eve_queue: str, tmp_path: Path
) -> None:
    eve.kill()
    progress = Recorder()
    printing = asyncio.create_task(driver(eve_queue).print(a_document(tmp_path), progress))
    await progress.waits_for("the device behind the queue does not answer")
    assert not printing.done()
    await asyncio.to_thread(eve.start)
    assert await asyncio.wait_for(printing, 50) == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_a_job_without_its_document_is_seen_as_such(eve_queue: str) -> None:
    session = driver(eve_queue)._session
    number = await session.create("Empty [e-1]", ())
    job = await session.job(number)
    assert job is not None
    assert (job.state, job.lacks_document) == (HELD, True)
    outcome = await driver(eve_queue).fate("Empty [e-1]", f"{number} sending 9", Recorder())
    assert isinstance(outcome, Failed)
    assert outcome.retryable


async def test_queues_are_found_over_tcp_and_over_the_socket(
    cups: Cups, eve: EvePrinter, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    assert await cups_queues(f"localhost:{cups.port}") == []
    cups.add_queue("eve", eve.uri, "-m", "everywhere")
    cups.add_queue("labels", make_socket_printer().uri, "-m", "raw")
    over_tcp = await cups_queues(f"localhost:{cups.port}")
    assert {printer.name: printer.uri for printer in over_tcp} == {
        "eve": cups.queue_uri("eve"),
        "labels": cups.queue_uri("labels"),
    }
    by_socket = {printer.name: printer for printer in await cups_queues(cups.socket)}
    assert by_socket.keys() == {"eve", "labels"}
    found = by_socket["eve"]
    assert found.status.capabilities is not None
    assert (found.status.capabilities.raw, found.status.capabilities.pdf) == (False, True)
    assert "A4" in found.status.capabilities.papers
    same = driver_for(found.uri, timing=QUICK)
    assert await same.print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_discovery_takes_listed_printers_and_the_queues_the_patterns_admit(
    cups: Cups, eve: EvePrinter, make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    cups.add_queue("Office-1", eve.uri, "-m", "everywhere")
    for name in ("office-2", "labels", "secret-office"):
        cups.add_queue(name, make_socket_printer().uri, "-m", "raw")
    label_printer = make_socket_printer()
    found = await discover(
        listed=[
            ListedPrinter(uri=label_printer.uri, name="Labels by the door"),
            ListedPrinter(uri=tmp_path.as_uri()),
            ListedPrinter(uri=f"ipp://localhost:{free_port()}/ipp/print", name="Away"),
        ],
        cups=f"localhost:{cups.port}",
        include=["office*", "secret*"],
        exclude=["SECRET*"],
        timing=QUICK,
    )
    states = {printer.name: printer.status.state for printer in found}
    assert states == {
        "Labels by the door": "idle",
        tmp_path.name: "idle",
        "Away": "offline",
        "Office-1": "idle",
        "office-2": "idle",
    }


async def test_a_cupsd_that_is_not_there_offers_nothing(tmp_path: Path) -> None:
    with pytest.raises(IppError):
        await cups_queues(f"localhost:{free_port()}", timing=QUICK)
    assert await discover(cups=f"localhost:{free_port()}", timing=QUICK) == []
    assert await discover(cups=tmp_path / "no.sock", timing=QUICK) == []


async def test_equal_names_and_addresses_are_offered_once(
    cups: Cups, eve: EvePrinter, eve_queue: str
) -> None:
    found = await discover(
        listed=[ListedPrinter(uri=eve_queue, name="Mine"), ListedPrinter(uri=eve.uri, name="Mine")],
        cups=f"localhost:{cups.port}",
        timing=QUICK,
    )
    assert [(printer.name, printer.uri) for printer in found] == [("Mine", eve_queue)]


@pytest.mark.parametrize("uri", ["lpd://host/queue", "http://host/", "printer"])
def test_an_address_nobody_speaks_is_refused_with_the_known_ones(uri: str) -> None:
    with pytest.raises(ValueError, match="socket://host:9100"):
        driver_for(uri)
