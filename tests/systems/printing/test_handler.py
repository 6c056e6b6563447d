"""What the agent does with a print job, on real drivers."""

import asyncio
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from farhand.agent.config import ConfigError
from farhand.agent.handler import PayloadError, ResultDraft, Setup, Unfinished, Withdrawn
from farhand.model.clock import SystemClock
from farhand.protocol.agent import ClaimedJob, PayloadRef
from farhand.systems.printing.handler import PrintingHandler
from farhand.systems.printing.settings import read_settings
from tests.peers.printers import PDF, Cups, EvePrinter, SocketPrinter, free_port, until

JOB = "01a22e35-51e6-7122-8615-a9146551d836"


@dataclass(slots=True)
class Bench:
    """The tools of an attempt, as a test sees them."""

    folder: Path
    content: bytes = b"^XA^XZ"
    device: str | None = "tray"
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)
    memos: list[str] = field(default_factory=list)
    reports: list[tuple[str, str | None]] = field(default_factory=list)
    withdraws: bool = False

    async def payload(self) -> Path:
        self.calls.append("payload")
        path = self.folder / "payload"
        await asyncio.to_thread(path.write_bytes, self.content)
        return path

    async def report(self, phase: str, reason: str | None) -> None:
        self.reports.append((phase, reason))

    async def no_return(self, phase: str, memo: str) -> None:
        if self.withdraws:
            raise Withdrawn("the server wants the job stopped")
        self.calls.append(phase)
        self.memos.append(memo)

    async def handed(self, handle: str) -> None:
        self.calls.append("handed")


def a_job(kind: str = "print.raw", **changes: object) -> ClaimedJob:
    fields: dict[str, object] = {
        "job_id": JOB,
        "kind": kind,
        "printer_id": "some-id",
        "mode": None,
        "title": "Label 7",
        "attempt": 3,
        "lease_token": "0" * 32,
        "lease_ms": 60_000,
        "accepted": False,
        "params": None,
        "payload": PayloadRef(size=6, base64=b64encode(b"^XA^XZ").decode()),
    }
    return ClaimedJob(**(fields | changes))  # type: ignore[arg-type]  (the fields of the message)


def handler(*printers: object, **settings: object) -> PrintingHandler:
    section = {"discover": False, "printers": list(printers)} | settings
    return PrintingHandler(Setup(clock=SystemClock(), folder=Path("/"), section=section))


@pytest.fixture
def tray(tmp_path: Path) -> Path:
    folder = tmp_path / "tray"
    folder.mkdir()
    return folder


def files(tray: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in tray.iterdir()}


async def test_a_job_is_printed_under_a_name_of_its_attempt(tray: Path, tmp_path: Path) -> None:
    printing, bench = handler(f"file://{tray}"), Bench(tmp_path)
    await printing.describe()
    assert await printing.run(a_job(), bench) == ResultDraft(ok=True, evidence="delivered")
    assert files(tray) == {"Label 7 [6551d836-3].prn": b"^XA^XZ"}
    assert bench.calls == ["payload", "spooling", "handed"]


async def test_copies_come_from_the_params(tray: Path, tmp_path: Path) -> None:
    printing, bench = handler(f"file://{tray}"), Bench(tmp_path)
    await printing.describe()
    await printing.run(a_job(params={"copies": 3}), bench)
    assert list(files(tray).values()) == [b"^XA^XZ" * 3]


async def test_options_of_a_pdf_reach_the_printer(eve: EvePrinter, tmp_path: Path) -> None:
    printing = handler({"uri": eve.uri, "name": "eve"})
    bench = Bench(tmp_path, content=PDF, device="eve")
    await printing.describe()
    params = {"copies": 2, "options": {"duplex": "long-edge", "paper": "A4"}}
    assert await printing.run(a_job("print.pdf", params=params), bench) == ResultDraft(
        ok=True, evidence="printed"
    )
    (document,) = eve.printed()
    assert (document.env["IPP_COPIES"], document.env["IPP_SIDES"]) == ("2", "two-sided-long-edge")
    assert document.name == "Label 7 [6551d836-3]"


async def test_raw_data_is_passed_on_as_it_is_whatever_the_options(eve: EvePrinter, tmp_path: Path) -> None:
    printing = handler({"uri": eve.uri, "name": "eve"})
    # A virtual printer takes only what it recognises, under whatever name it comes.
    bench = Bench(tmp_path, content=PDF, device="eve")
    await printing.describe()
    params = {"options": {"paper": "no such paper", "duplex": "long-edge"}}
    assert (await printing.run(a_job(params=params), bench)).ok
    (document,) = eve.printed()
    assert document.content == PDF
    assert "IPP_SIDES" not in document.env


async def test_a_pdf_never_goes_raw_to_a_printer_that_cannot_take_it(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    printer = make_socket_printer("take")
    printing = handler({"uri": printer.uri, "name": "raw"})
    bench = Bench(tmp_path, content=PDF, device="raw")
    await printing.describe()
    draft = await printing.run(a_job("print.pdf"), bench)
    assert draft == ResultDraft(ok=False, error="raw takes no PDF; send the job to another printer")
    assert bench.calls == []
    assert printer.jobs() == []


async def test_a_printer_that_is_gone_fails_its_job_retryably(tmp_path: Path) -> None:
    printing, bench = handler(), Bench(tmp_path, device="nowhere")
    await printing.describe()
    draft = await printing.run(a_job(), bench)
    assert (draft.ok, draft.retryable) == (False, True)


async def test_an_unreachable_printer_fails_its_job_retryably(tmp_path: Path) -> None:
    printing = handler({"uri": f"socket://127.0.0.1:{free_port()}", "name": "off"})
    bench = Bench(tmp_path, device="off")
    await printing.describe()
    draft = await printing.run(a_job(), bench)
    assert (draft.ok, draft.retryable, draft.uncertain) == (False, True, False)
    assert "spooling" not in bench.calls


async def test_a_withdrawn_job_sends_nothing(tray: Path, tmp_path: Path) -> None:
    printing, bench = handler(f"file://{tray}"), Bench(tmp_path, withdraws=True)
    await printing.describe()
    with pytest.raises(Withdrawn):
        await printing.run(a_job(), bench)
    assert files(tray) == {}


async def test_a_payload_that_cannot_be_had_is_the_agents_to_judge(tray: Path, tmp_path: Path) -> None:
    class Missing(Bench):
        async def payload(self) -> Path:
            raise PayloadError("it is gone", retryable=False)

    printing = handler(f"file://{tray}")
    await printing.describe()
    with pytest.raises(PayloadError):
        await printing.run(a_job(), Missing(tmp_path))


async def test_recovery_needs_nothing_but_the_memo(eve: EvePrinter, tmp_path: Path) -> None:
    printing = handler({"uri": eve.uri, "name": "eve"})
    bench = Bench(tmp_path, content=PDF, device="eve")
    await printing.describe()
    await printing.run(a_job("print.pdf"), bench)
    (document,) = eve.printed()
    work = an_unfinished(memo=bench.memos[0], handle=str(document.job_id))
    # Another handler, which has not looked for printers and has none in its settings.
    assert await handler().recover(work, Bench(tmp_path)) == ResultDraft(ok=True, evidence="printed")
    assert len(eve.printed()) == 1


def an_unfinished(memo: str | None, handle: str | None) -> Unfinished:
    return Unfinished(
        job_id=JOB,
        attempt=3,
        lease_token="0" * 32,
        kind="print.pdf",
        device="eve",
        memo=memo,
        handle=handle,
    )


@pytest.mark.parametrize("memo", [None, "", "{}", "[1]", '{"name": "n", "uri": "nonsense"}'])
async def test_recovery_without_a_memo_is_uncertain(memo: str | None, tmp_path: Path) -> None:
    draft = await handler().recover(an_unfinished(memo, None), Bench(tmp_path))
    assert (draft.ok, draft.uncertain) == (False, True)
    assert draft.error


async def test_recovery_at_a_device_that_cannot_say_is_uncertain(tmp_path: Path) -> None:
    memo = '{"name": "Label 7 [6551d836-3]", "uri": "socket://127.0.0.1:9"}'
    draft = await handler().recover(an_unfinished(memo, None), Bench(tmp_path))
    assert draft.uncertain
    assert "cannot be asked" in (draft.error or "")


async def test_printers_are_described_with_what_they_can(eve: EvePrinter, tray: Path) -> None:
    printing = handler({"uri": eve.uri, "name": "eve"}, {"uri": f"file://{tray}", "name": "tray"})
    described = {info.name: info for info in await printing.describe()}
    assert described["tray"].can_pdf
    assert described["tray"].capabilities == {"raw": True, "pdf": True}
    capabilities = described["eve"].capabilities
    assert capabilities is not None
    assert (capabilities["pdf"], described["eve"].state) == (True, "idle")
    assert capabilities["papers"]


async def test_of_an_unreachable_printer_nothing_is_claimed_to_be_known(eve: EvePrinter) -> None:
    printing = handler({"uri": eve.uri, "name": "eve"})
    eve.kill()
    (info,) = await printing.describe()
    assert (info.state, info.can_pdf, info.capabilities) == ("offline", False, {"raw": None, "pdf": None})
    assert info.reason


async def test_what_was_known_of_a_printer_is_kept_while_it_is_away(eve: EvePrinter) -> None:
    printing = handler({"uri": eve.uri, "name": "eve"})
    (before,) = await printing.describe()
    eve.kill()
    (after,) = await printing.describe()
    assert (after.state, after.can_pdf) == ("offline", True)
    assert after.capabilities == before.capabilities


async def test_a_raw_printer_at_work_is_not_disturbed_by_a_look_at_it(
    make_socket_printer: Callable[..., SocketPrinter], tmp_path: Path
) -> None:
    """It takes one connection at a time: a second one would wait, and time out as offline."""
    printer = make_socket_printer("deaf")
    printing = handler({"uri": printer.uri, "name": "raw"})
    await printing.describe()
    bench = Bench(tmp_path, content=b"x" * 20_000_000, device="raw")
    job = asyncio.create_task(printing.run(a_job(payload=PayloadRef(size=20_000_000)), bench))
    await until(lambda: "spooling" in bench.calls, "it prints")
    (info,) = await printing.describe()
    assert info.state == "printing"
    printer.wake()
    assert (await job).ok
    assert [len(taken) for taken in printer.jobs()] == [20_000_000]


async def test_queues_of_the_machine_are_found_by_pattern(cups: Cups) -> None:
    for name in ("office", "label", "attic"):
        cups.add_queue(name, "file:///dev/null")
    printing = handler(
        discover=True, cups=f"localhost:{cups.port}", include=["office", "a*"], exclude=["att*"]
    )
    assert [info.name for info in await printing.describe()] == ["office"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"discovr": True}, "'discovr'; did you mean 'discover'"),
        ({"discover": "yes"}, "discover must be true or false"),
        ({"include": "office*"}, "include must be a list"),
        ({"include": [1]}, "include must be a list"),
        ({"printers": "ipp://x"}, "printers must be a list"),
        ({"printers": [7]}, "neither an address nor a table"),
        ({"printers": [{"name": "x"}]}, "has no uri"),
        ({"printers": [{"uri": "ipp://x", "nme": "x"}]}, "'nme'; did you mean 'name'"),
        ({"printers": [{"uri": "ipp://x", "name": 3}]}, "name must be a text"),
        ({"printers": ["lpd://x"]}, "is no printer address"),
        (
            {"printers": [{"uri": "ipp://x", "name": "a"}, {"uri": "ipp://y", "name": "a"}]},
            "'a' stands twice",
        ),
        ({"cups": 3}, "cups must be a text"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(table: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(table, Path("/"))
    assert words in caught.value.message
