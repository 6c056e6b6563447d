"""Printers that know less than the rest: no Create-Job, only IPP 1.1, replies that get lost.

ippeveprinter and cupsd know everything, so that these answer from a script over real sockets.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from farhand.systems.printing.drivers.base import Failed, Printed, Unknown
from farhand.systems.printing.drivers.ipp import IppDriver
from farhand.systems.printing.drivers.ipp_session import (
    CANCEL_JOB,
    CREATE_JOB,
    GET_JOB_ATTRIBUTES,
    GET_JOBS,
    GET_PRINTER_ATTRIBUTES,
    PRINT_JOB,
    SEND_DOCUMENT,
)
from farhand.systems.printing.drivers.ipp_values import Attribute, Group, GroupTag, Message, Tag, attribute
from tests.peers.printers import PDF, until
from tests.systems.printing.ipp_server import Server, answering
from tests.systems.printing.recorder import QUICK, Recorder, a_document

NAME = "Invoice 12 [3f9c2a1b-1]"
OLD = (PRINT_JOB, CANCEL_JOB, GET_JOB_ATTRIBUTES, GET_JOBS, GET_PRINTER_ATTRIBUTES)


@dataclass(slots=True)
class OldPrinter:
    """State of a scripted printer; `states` are what a job shows at each look, the last one stays."""

    operations: tuple[int, ...] = OLD
    states: list[int] = field(default_factory=lambda: [5, 9])
    version: tuple[int, int] = (2, 0)
    accepting: bool = True
    lose: Callable[[Message], bool] = lambda _message: False
    refuse: dict[int, int] = field(default_factory=dict)
    jobs: dict[int, str] = field(default_factory=dict)
    documents: list[bytes] = field(default_factory=list)
    forgets: bool = False
    kibibytes: int | None = None

    def answer(self, message: Message, document: bytes) -> Message:
        if message.version != self.version:
            return self.reply(message, 0x0503)
        if message.code in self.refuse:
            return self.reply(message, self.refuse[message.code])
        reply = self.act(message, document)
        if self.lose(message):
            raise ConnectionAbortedError
        return reply

    def act(self, message: Message, document: bytes) -> Message:
        operation = message.group(GroupTag.OPERATION)
        match message.code:
            case 0x000B:
                return self.reply(message, 0, Group(GroupTag.PRINTER, self.attributes()))
            case 0x0002 | 0x0005:
                number = len(self.jobs) + 1
                self.jobs[number] = str(operation.first("job-name"))
                if document:
                    self.documents.append(document)
                return self.reply(message, 0, self.job(number))
            case 0x0006:
                self.documents.append(document)
                return self.reply(message, 0)
            case 0x0009:
                number = operation.number("job-id") or 0
                if self.forgets or number not in self.jobs:
                    return self.reply(message, 0x0406)
                return self.reply(message, 0, self.job(number, look=True))
            case 0x000A:
                wanted = operation.first("which-jobs") == "completed" and not self.forgets
                return self.reply(message, 0, *(self.job(number) for number in self.jobs if wanted))
            case _:
                return self.reply(message, 0)

    def attributes(self) -> tuple[Attribute, ...]:
        return (
            attribute("printer-state", Tag.ENUM, 3),
            attribute("printer-is-accepting-jobs", Tag.BOOLEAN, self.accepting),
            attribute("operations-supported", Tag.ENUM, *self.operations),
            attribute("document-format-supported", Tag.MIME, "application/pdf"),
        )

    def job(self, number: int, *, look: bool = False) -> Group:
        state = self.states.pop(0) if look and len(self.states) > 1 else self.states[0]
        return Group(
            GroupTag.JOB,
            (
                attribute("job-id", Tag.INTEGER, number),
                attribute("job-name", Tag.NAME, self.jobs[number]),
                attribute("job-state", Tag.ENUM, state),
                attribute("job-state-reasons", Tag.KEYWORD, "none"),
                *([attribute("job-k-octets", Tag.INTEGER, self.kibibytes)] if self.kibibytes else []),
            ),
        )

    def reply(self, message: Message, code: int, *groups: Group) -> Message:
        head = Group(GroupTag.OPERATION, (attribute("attributes-charset", Tag.CHARSET, "utf-8"),))
        return Message(code=code, request_id=message.request_id, groups=(head, *groups), version=self.version)


@asynccontextmanager
async def serving(printer: OldPrinter) -> AsyncIterator[tuple[IppDriver, Server]]:
    async with answering(printer.answer) as server:
        yield IppDriver(server.uri, timing=QUICK), server


def asked(server: Server) -> list[int]:
    return [message.code for message, _ in server.asked]


async def test_without_create_job_the_document_goes_with_print_job(tmp_path: Path) -> None:
    printer = OldPrinter()
    progress = Recorder()
    async with serving(printer) as (driver, server):
        assert await driver.print(a_document(tmp_path), progress) == Printed(evidence="printed")
    assert printer.documents == [PDF]
    assert CREATE_JOB not in asked(server)
    assert progress.calls == ["spooling", "handed", "handed"]
    assert progress.handles == [f"- sending {len(PDF)}", "1"]


@pytest.mark.parametrize(("kibibytes", "whole"), [(1, True), (2, False), (None, False)])
async def test_a_lost_reply_to_print_job_is_looked_up_by_name_and_believed_if_the_size_fits(
    tmp_path: Path, kibibytes: int | None, whole: bool
) -> None:
    printer = OldPrinter(lose=lambda message: message.code == PRINT_JOB, kibibytes=kibibytes)
    async with serving(printer) as (driver, _):
        outcome = await driver.print(a_document(tmp_path), Recorder())
    assert isinstance(outcome, Printed) is whole
    assert isinstance(outcome, Unknown) is not whole
    assert printer.documents == [PDF]


async def test_a_lost_reply_and_a_printer_without_memory_is_unknown(tmp_path: Path) -> None:
    printer = OldPrinter(lose=lambda message: message.code == PRINT_JOB, forgets=True)
    async with serving(printer) as (driver, _):
        assert isinstance(await driver.print(a_document(tmp_path), Recorder()), Unknown)
    assert printer.documents == [PDF]


async def test_fate_without_a_trace_is_unknown_once_the_document_was_on_its_way() -> None:
    async with serving(OldPrinter()) as (driver, _):
        assert isinstance(await driver.fate(NAME, "- sending 500", Recorder()), Unknown)
        never = await driver.fate(NAME, None, Recorder())
    assert isinstance(never, Failed)
    assert never.retryable


async def test_a_job_forgotten_at_its_end_is_unknown_and_not_done(tmp_path: Path) -> None:
    printer = OldPrinter(states=[5])
    progress = Recorder()
    async with serving(printer) as (driver, _):
        printing = asyncio.create_task(driver.print(a_document(tmp_path), progress))
        await until(lambda: ("printing", None) in progress.reports, "a look at the job")
        printer.forgets = True
        assert isinstance(await printing, Unknown)


async def test_a_printer_of_ipp_1_1_is_spoken_to_in_1_1(tmp_path: Path) -> None:
    printer = OldPrinter(version=(1, 1))
    async with serving(printer) as (driver, server):
        assert await driver.print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert [message.version for message, _ in server.asked].count((2, 0)) == 1


async def test_a_printer_that_accepts_no_jobs_is_left_alone(tmp_path: Path) -> None:
    progress = Recorder()
    async with serving(OldPrinter(accepting=False)) as (driver, server):
        outcome = await driver.print(a_document(tmp_path), progress)
        assert not (await driver.status()).accepting
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert progress.calls == []
    assert set(asked(server)) == {GET_PRINTER_ATTRIBUTES}


async def test_a_passing_refusal_is_retryable_and_a_lasting_one_is_not(tmp_path: Path) -> None:
    for status, retryable in ((0x0505, True), (0x040A, False)):
        async with serving(OldPrinter(refuse={PRINT_JOB: status})) as (driver, _):
            outcome = await driver.print(a_document(tmp_path), Recorder())
        assert isinstance(outcome, Failed)
        assert outcome.retryable is retryable


async def test_a_lost_reply_to_create_job_may_be_tried_again(tmp_path: Path) -> None:
    printer = OldPrinter(
        operations=(*OLD, CREATE_JOB, SEND_DOCUMENT), lose=lambda message: message.code == CREATE_JOB
    )
    async with serving(printer) as (driver, _):
        outcome = await driver.print(a_document(tmp_path), Recorder())
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert printer.documents == []


async def test_a_lost_reply_to_the_document_is_settled_by_the_jobs_own_end(tmp_path: Path) -> None:
    printer = OldPrinter(
        operations=(*OLD, CREATE_JOB, SEND_DOCUMENT),
        lose=lambda message: message.code == SEND_DOCUMENT,
        kibibytes=1,
    )
    async with serving(printer) as (driver, server):
        assert await driver.print(a_document(tmp_path), Recorder()) == Printed(evidence="printed")
    assert printer.documents == [PDF]
    assert CANCEL_JOB not in asked(server)
