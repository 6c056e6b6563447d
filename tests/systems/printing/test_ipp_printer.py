"""The IPP driver against a real ippeveprinter."""

import asyncio
import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from farhand.systems.printing.drivers.base import (
    Cancelled,
    Failed,
    Printed,
    PrintOptions,
    Unknown,
)
from farhand.systems.printing.drivers.ipp import IppDriver
from tests.peers.printers import PDF, EvePrinter, free_port, until
from tests.systems.printing.recorder import QUICK, Recorder, a_document

NAME = "Invoice 12 [3f9c2a1b-1]"


def driver(printer: EvePrinter) -> IppDriver:
    return IppDriver(printer.uri, timing=QUICK)


async def started(printer: EvePrinter) -> None:
    await until(lambda: bool(printer.started()), "the printer begins the document")


async def test_a_pdf_comes_out_once_and_unchanged(eve: EvePrinter, tmp_path: Path) -> None:
    progress = Recorder()
    outcome = await driver(eve).print(a_document(tmp_path), progress)
    assert outcome == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert (printed.content, printed.content_type, printed.name) == (PDF, "application/pdf", NAME)
    assert progress.calls == ["spooling", "handed", "handed"]
    assert progress.handles == [f"{printed.job_id} sending {len(PDF)}", str(printed.job_id)]


async def test_a_large_document_is_streamed_whole(eve: EvePrinter, tmp_path: Path) -> None:
    content = PDF + b"%" + bytes(range(1, 256)).replace(b"\n", b"") * 40_000
    assert await driver(eve).print(a_document(tmp_path, content), Recorder()) == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert hashlib.sha256(printed.content).digest() == hashlib.sha256(content).digest()


async def test_the_device_knows_the_handle_before_the_document_arrives(
    eve: EvePrinter, tmp_path: Path
) -> None:
    class Checking(Recorder):
        async def handed(self, handle: str) -> None:
            if not self.handles:
                assert eve.started() == []
                assert list((eve.folder / "spool").iterdir()) == []
            await super().handed(handle)

    progress = Checking()
    assert await driver(eve).print(a_document(tmp_path), progress) == Printed(evidence="printed")
    assert progress.handles


@pytest.mark.parametrize("name", ["Ünïcødé & 日本語 📄 [ab-1]", "x" * 300 + " [ab-2]", "tab\there\n [ab-3]"])
async def test_any_name_reaches_the_device_and_is_found_again(
    eve: EvePrinter, tmp_path: Path, name: str
) -> None:
    printer = driver(eve)
    assert await printer.print(a_document(tmp_path, name=name), Recorder()) == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert printed.name.endswith(name[-6:])
    assert await printer.fate(name, str(printed.job_id), Recorder()) == Printed(evidence="printed")
    (job,) = eve.printed()
    assert job == printed


async def test_options_reach_the_printer_as_ipp_attributes(eve: EvePrinter, tmp_path: Path) -> None:
    options = PrintOptions(
        paper="a4", duplex="short-edge", color=False, bin="main", media="stationery", rotate=180
    )
    outcome = await driver(eve).print(a_document(tmp_path, copies=2, options=options), Recorder())
    assert outcome == Printed(evidence="printed")
    (printed,) = eve.printed()
    assert printed.env["IPP_COPIES"] == "2"
    assert printed.env["IPP_SIDES"] == "two-sided-short-edge"
    assert printed.env["IPP_PRINT_COLOR_MODE"] == "monochrome"
    assert printed.env["IPP_ORIENTATION_REQUESTED"] == "reverse-portrait"
    media = printed.env["IPP_MEDIA_COL"]
    for part in ("x-dimension=21000", "y-dimension=29700", "media-source=main", "media-type=stationery"):
        assert part in media


async def test_an_option_the_printer_lacks_fails_before_anything_is_sent(
    eve: EvePrinter, tmp_path: Path
) -> None:
    progress = Recorder()
    options = PrintOptions(paper="A0")
    outcome = await driver(eve).print(a_document(tmp_path, options=options), progress)
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "A4" in outcome.reason
    assert progress.calls == []
    assert eve.started() == []


async def test_out_of_paper_waits_with_the_reason_and_completes_when_paper_returns(
    eve: EvePrinter, tmp_path: Path
) -> None:
    eve.set_mode("media-empty")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve).print(a_document(tmp_path), progress))
    await progress.waits_for("media-empty: the printer is out of paper")
    assert progress.reports[-1][0] == "paused"
    assert not printing.done()
    status = await driver(eve).status()
    assert status.reasons == ("media-empty: the printer is out of paper",)
    eve.add_paper()
    assert await printing == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_a_job_the_printer_aborts_fails_with_its_reason(eve: EvePrinter, tmp_path: Path) -> None:
    eve.set_mode("abort")
    outcome = await driver(eve).print(a_document(tmp_path), Recorder())
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "jammed for good" in outcome.reason
    assert eve.printed() == []


async def test_a_cancel_while_printing_ends_the_job_at_the_printer(eve: EvePrinter, tmp_path: Path) -> None:
    eve.set_mode("slow")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve).print(a_document(tmp_path), progress))
    await started(eve)
    progress.cancelled.set()
    await until(lambda: "Cancel-Job successful-ok" in eve.log(), "the printer gets the cancel")
    assert not printing.done()
    # ippeveprinter ends a cancelled job when its command ends.
    eve.let_go()
    assert await printing == Cancelled()


async def test_a_job_cancelled_at_the_printer_fails_and_says_so(eve: EvePrinter, tmp_path: Path) -> None:
    eve.set_mode("slow")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve).print(a_document(tmp_path), progress))
    await started(eve)
    await driver(eve)._session.cancel(int(progress.handles[-1]))
    eve.let_go()
    outcome = await printing
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert outcome.reason.startswith("cancelled at the printer")


async def test_a_cancel_before_spooling_sends_nothing(eve: EvePrinter, tmp_path: Path) -> None:
    progress = Recorder()
    progress.cancelled.set()
    assert await driver(eve).print(a_document(tmp_path), progress) == Cancelled()
    assert progress.calls == []


async def test_a_refused_connection_is_retryable_and_nothing_was_spooled(tmp_path: Path) -> None:
    progress = Recorder()
    nobody = IppDriver(f"ipp://127.0.0.1:{free_port()}/ipp/print", timing=QUICK)
    outcome = await nobody.print(a_document(tmp_path), progress)
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert progress.calls == []
    assert (await nobody.status()).state == "offline"


async def test_a_refusal_to_spool_leaves_the_printer_untouched(eve: EvePrinter, tmp_path: Path) -> None:
    class Refusing(Recorder):
        async def spooling(self) -> None:
            raise RuntimeError("the lease is gone")

    with pytest.raises(RuntimeError, match="the lease is gone"):
        await driver(eve).print(a_document(tmp_path), Refusing())
    assert await driver(eve).print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_a_handle_that_cannot_be_journalled_takes_the_empty_job_back(
    eve: EvePrinter, tmp_path: Path
) -> None:
    class Full(Recorder):
        async def handed(self, handle: str) -> None:
            raise OSError("disk full")

    outcome = await driver(eve).print(a_document(tmp_path), Full())
    assert outcome == Failed(reason="the agent cannot write its journal: disk full", retryable=True)
    # An empty job left behind would keep this printer busy for ever.
    assert await driver(eve).print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_a_printer_that_dies_mid_print_is_unknown(eve: EvePrinter, tmp_path: Path) -> None:
    eve.set_mode("slow")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve).print(a_document(tmp_path), progress))
    await started(eve)
    eve.kill()
    outcome = await printing
    assert isinstance(outcome, Unknown)
    assert ("paused", "the printer does not answer") in progress.reports


async def test_a_printer_that_forgot_its_jobs_over_a_restart_is_unknown(
    eve: EvePrinter, tmp_path: Path
) -> None:
    eve.set_mode("slow")
    progress = Recorder()
    patient = IppDriver(eve.uri, timing=QUICK)
    printing = asyncio.create_task(patient.print(a_document(tmp_path), progress))
    await started(eve)
    eve.kill()
    eve.set_mode("ok")
    await asyncio.to_thread(eve.start)
    assert isinstance(await printing, Unknown)
    assert eve.printed() == []


async def test_an_id_reused_after_a_restart_is_not_mistaken_for_the_old_job(
    eve: EvePrinter, tmp_path: Path
) -> None:
    printer = driver(eve)
    await printer.print(a_document(tmp_path, name="Old [aa-1]"), Recorder())
    old = eve.printed()[0].job_id
    eve.kill()
    await asyncio.to_thread(eve.start)
    progress = Recorder()
    await printer.print(a_document(tmp_path, name="New [bb-1]"), progress)
    assert progress.handles[-1] == str(old)
    assert isinstance(await printer.fate("Old [aa-1]", str(old), Recorder()), Unknown)


async def crash_while_printing(eve: EvePrinter, folder: Path) -> Recorder:
    """An agent that ends while the printer works on its document; what it had journalled."""
    eve.set_mode("slow")
    progress = Recorder()
    printing = asyncio.create_task(driver(eve).print(a_document(folder), progress))
    await until(lambda: bool(eve.started()) and len(progress.handles) == 2, "the printer confirms")
    printing.cancel()
    await asyncio.wait((printing,))
    return progress


async def test_after_a_crash_the_job_is_found_by_its_id_and_its_end_reported(
    eve: EvePrinter, tmp_path: Path
) -> None:
    before, after = await crash_while_printing(eve, tmp_path), Recorder()
    asking = asyncio.create_task(driver(eve).fate(NAME, before.handles[-1], after))
    await until(lambda: ("printing", None) in after.reports, "the job is followed again")
    eve.let_go()
    assert await asking == Printed(evidence="printed")
    assert len(eve.printed()) == 1


@pytest.mark.parametrize("handle", [None, "- sending 500"])
async def test_after_a_crash_the_job_is_found_by_name_but_may_have_been_cut(
    eve: EvePrinter, tmp_path: Path, handle: str | None
) -> None:
    await crash_while_printing(eve, tmp_path)
    after = Recorder()
    asking = asyncio.create_task(driver(eve).fate(NAME, handle, after))
    await until(lambda: ("printing", None) in after.reports, "the job is followed again")
    eve.let_go()
    # This printer prints what a cut connection left it, and does not say how much that was.
    outcome = await asking
    assert isinstance(outcome, Unknown)
    assert "completed the job" in outcome.reason


async def test_after_a_crash_before_the_document_left_the_print_may_be_tried_again(
    eve: EvePrinter, tmp_path: Path
) -> None:
    class Crashing(Recorder):
        async def handed(self, handle: str) -> None:
            await super().handed(handle)
            # The process ends here: nothing after this line happens, no clean-up either.
            reached.set()
            await asyncio.Event().wait()

    reached = asyncio.Event()
    progress = Crashing()
    crashing = driver(eve)

    async def no_cancel(_: int) -> None:
        return None

    crashing._session.cancel = no_cancel  # type: ignore[method-assign]  (a dead process cancels nothing)
    printing = asyncio.create_task(crashing.print(a_document(tmp_path), progress))
    await reached.wait()
    printing.cancel()
    await asyncio.wait((printing,))
    session = driver(eve)._session
    number, _, size = progress.handles[0].partition(" sending ")
    assert int(size) == len(PDF)
    job = await session.job(int(number))
    assert job is not None
    assert job.lacks_document
    outcome = await driver(eve).fate(NAME, progress.handles[0], Recorder())
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert await driver(eve).print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert len(eve.printed()) == 1


async def test_a_job_that_was_never_created_may_be_tried_again(eve: EvePrinter) -> None:
    outcome = await driver(eve).fate("Never [cc-1]", None, Recorder())
    assert outcome == Failed(reason="the agent stopped before the document was sent", retryable=True)


async def test_fate_of_an_unreachable_printer_is_unknown() -> None:
    nobody = IppDriver(f"ipp://127.0.0.1:{free_port()}/ipp/print", timing=QUICK)
    assert isinstance(await nobody.fate(NAME, "7", Recorder()), Unknown)


async def test_a_busy_printer_is_waited_for(eve: EvePrinter, tmp_path: Path) -> None:
    eve.set_mode("slow")
    first = asyncio.create_task(driver(eve).print(a_document(tmp_path, name="One [a-1]"), Recorder()))
    await started(eve)
    progress = Recorder()
    second = asyncio.create_task(driver(eve).print(a_document(tmp_path, name="Two [a-1]"), progress))
    await progress.waits_for("busy with another job")
    eve.let_go()
    assert await first == Printed(evidence="printed")
    assert await second == Printed(evidence="printed")
    assert [printed.name for printed in eve.printed()] == ["One [a-1]", "Two [a-1]"]


async def test_data_the_printer_cannot_recognise_fails_and_frees_the_printer(
    eve: EvePrinter, tmp_path: Path
) -> None:
    label = b"^XA^FDhello^FS^XZ" + bytes(range(256))
    outcome = await driver(eve).print(a_document(tmp_path, label, mode="raw"), Recorder())
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert await driver(eve).print(a_document(tmp_path, mode="raw"), Recorder()) == Printed(
        evidence="printed"
    )
    (printed,) = eve.printed()
    assert printed.content == PDF


async def test_the_status_tells_what_the_printer_can_do(eve: EvePrinter) -> None:
    status = await driver(eve).status()
    assert (status.state, status.accepting, status.reasons) == ("idle", True, ())
    found = status.capabilities
    assert found is not None
    assert (found.raw, found.pdf, found.duplex) == (True, True, True)
    assert "A4" in found.papers
    assert "Letter" in found.papers
    assert "main" in found.bins
    assert "600x600" in found.resolutions
    assert found.copies_max
    assert found.copies_max >= 2
    assert "application/pdf" in found.formats


async def test_ipps_needs_the_certificates_fingerprint(
    make_eve: Callable[..., EvePrinter], tmp_path: Path
) -> None:
    printer = make_eve(secure=True)
    stranger = await IppDriver(printer.secure_uri, timing=QUICK).status()
    assert stranger.state == "offline"
    assert "fingerprint" in stranger.reasons[0]
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("localhost", printer.port))
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    known = IppDriver(printer.secure_uri, timing=QUICK, fingerprint=fingerprint)
    assert await known.print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert printer.printed()[0].content == PDF
    wrong = IppDriver(printer.secure_uri, timing=QUICK, fingerprint="00" * 32)
    assert fingerprint in (await wrong.status()).reasons[0]
