"""The IPP operations a print needs, on one printer (RFC 8011 section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farhand.systems.printing.drivers.ipp_attributes import PRINTER_ATTRIBUTES
from farhand.systems.printing.drivers.ipp_client import IppClient, IppError
from farhand.systems.printing.drivers.ipp_values import Attribute, Group, GroupTag, Message, Tag, attribute
from farhand.systems.printing.drivers.ipp_words import (
    GONE,
    NOT_FOUND,
    VERSION_NOT_SUPPORTED,
    is_ok,
    is_passing,
    status_words,
)

PRINT_JOB, VALIDATE_JOB, CREATE_JOB, SEND_DOCUMENT = 0x0002, 0x0004, 0x0005, 0x0006
CANCEL_JOB, GET_JOB_ATTRIBUTES, GET_JOBS, GET_PRINTER_ATTRIBUTES = 0x0008, 0x0009, 0x000A, 0x000B
CUPS_GET_PRINTERS = 0x4002

PENDING, HELD, PROCESSING, STOPPED, CANCELED, ABORTED, COMPLETED = range(3, 10)
_JOB_ATTRIBUTES = (
    "job-id", "job-uuid", "job-name", "job-state", "job-state-reasons", "job-state-message",
    "job-printer-state-message", "number-of-documents", "time-at-processing", "job-k-octets",
)  # fmt: skip


class StatusError(IppError):
    """The printer answered with an IPP error status."""

    def __init__(self, reply: Message, *, sent: bool):
        operation = reply.group(GroupTag.OPERATION)
        message = operation.first("status-message")
        names = [item.name for item in reply.group(GroupTag.UNSUPPORTED).attributes]
        words = status_words(reply.code, message if isinstance(message, str) else "", names)
        super().__init__(words, sent=sent)
        self.status = reply.code
        self.passing = is_passing(reply.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the printer says of a job; None where it does not say. `kibibytes` are rounded up."""

    id: int
    name: str | None
    uuid: str | None
    state: int
    reasons: tuple[str, ...]
    message: str
    printer_message: str
    documents: int | None
    began: bool | None
    kibibytes: int | None = None

    @property
    def is_final(self) -> bool:
        """Canceled, aborted or completed."""
        return self.state >= CANCELED

    @property
    def lacks_document(self) -> bool:
        """Whether the document has not arrived, or not wholly."""
        waits = bool({"job-incoming", "job-data-insufficient"} & set(self.reasons))
        return not self.is_final and (waits or (self.documents == 0 and self.state in (PENDING, HELD)))


def job_of(group: Group) -> Job:
    """Reads a job-attributes group."""

    def text(name: str) -> str:
        value = group.first(name)
        return value if isinstance(value, str) else ""

    # Present without a value (no-value) says "never"; absent says nothing.
    timed = any(item.name == "time-at-processing" for item in group.attributes)
    return Job(
        id=group.number("job-id") or 0,
        name=text("job-name") or None,
        uuid=text("job-uuid") or None,
        state=group.number("job-state") or PENDING,
        reasons=tuple(group.words("job-state-reasons")),
        message=text("job-state-message"),
        printer_message=text("job-printer-state-message"),
        documents=group.number("number-of-documents"),
        began=group.number("time-at-processing") is not None if timed else None,
        kibibytes=group.number("job-k-octets"),
    )


class IppSession:
    """Operations on one printer. All raise IppError; StatusError is the printer's own no."""

    def __init__(self, client: IppClient, user: str):
        self._client, self._user = client, user
        self._version = (2, 0)
        self._request_id = 0

    async def printer(self) -> Group:
        """The printer's attributes."""
        wanted = attribute("requested-attributes", Tag.KEYWORD, *PRINTER_ATTRIBUTES)
        reply = await self.ask(GET_PRINTER_ATTRIBUTES, wanted)
        return reply.group(GroupTag.PRINTER)

    async def validate(self, name: str, form: str, job: Sequence[Attribute]) -> None:
        """Asks whether the printer would take a job with these attributes."""
        await self.ask(VALIDATE_JOB, *_naming(name, job), _format(form), job=job)

    async def create(self, name: str, job: Sequence[Attribute]) -> int:
        """A job without a document; its id."""
        return _job_id(await self.ask(CREATE_JOB, *_naming(name, job), job=job))

    async def send_document(self, job_id: int, name: str, form: str, path: Path) -> None:
        """The only document of a created job."""
        await self.ask(
            SEND_DOCUMENT,
            attribute("job-id", Tag.INTEGER, job_id),
            attribute("document-name", Tag.NAME, name),
            _format(form),
            attribute("last-document", Tag.BOOLEAN, True),
            document=path,
        )

    async def print_job(self, name: str, form: str, path: Path, job: Sequence[Attribute]) -> int:
        """Job and document in one request; its id."""
        return _job_id(await self.ask(PRINT_JOB, *_naming(name, job), _format(form), job=job, document=path))

    async def cancel(self, job_id: int) -> None:
        """Asks the printer to cancel a job."""
        await self.ask(CANCEL_JOB, attribute("job-id", Tag.INTEGER, job_id))

    async def job(self, job_id: int) -> Job | None:
        """A job, None when the printer no longer knows it."""
        wanted = attribute("requested-attributes", Tag.KEYWORD, *_JOB_ATTRIBUTES)
        try:
            reply = await self.ask(GET_JOB_ATTRIBUTES, attribute("job-id", Tag.INTEGER, job_id), wanted)
        except StatusError as error:
            if error.status in (NOT_FOUND, GONE):
                return None
            raise
        found = reply.group(GroupTag.JOB)
        return job_of(found) if found.number("job-state") is not None else None

    async def find(self, name: str) -> Job | None:
        """The newest job of this name, waiting or ended."""
        wanted = attribute("requested-attributes", Tag.KEYWORD, "job-id", "job-name")
        ids: list[int] = []
        for which in ("not-completed", "completed"):
            try:
                reply = await self.ask(GET_JOBS, attribute("which-jobs", Tag.KEYWORD, which), wanted)
            except StatusError as error:
                # Some printers answer "not found" where there is no job.
                if error.status not in (NOT_FOUND, GONE):
                    raise
                continue
            ids += [
                number
                for job in reply.each(GroupTag.JOB)
                if job.first("job-name") == name and (number := job.number("job-id")) is not None
            ]
        return await self.job(max(ids)) if ids else None

    async def ask(
        self, operation: int, *more: Attribute, job: Sequence[Attribute] = (), document: Path | None = None
    ) -> Message:
        """One operation; StatusError unless it succeeded."""
        reply = await self._send(operation, more, job, document)
        if reply.code == VERSION_NOT_SUPPORTED and self._version != (1, 1):
            self._version = (1, 1)
            reply = await self._send(operation, more, job, document)
        if not is_ok(reply.code):
            raise StatusError(reply, sent=document is not None)
        return reply

    async def _send(
        self, operation: int, more: Sequence[Attribute], job: Sequence[Attribute], document: Path | None
    ) -> Message:
        self._request_id += 1
        # RFC 8011 section 4.1.4 fixes the order of the first three, section 4.2.1.1 of the user.
        head = [
            attribute("attributes-charset", Tag.CHARSET, "utf-8"),
            attribute("attributes-natural-language", Tag.LANGUAGE, "en"),
            attribute("printer-uri", Tag.URI, self._client.where.printer_uri),
        ]
        rest = list(more)
        if rest and rest[0].name == "job-id":
            head.append(rest.pop(0))
        head.append(attribute("requesting-user-name", Tag.NAME, self._user))
        groups = [Group(GroupTag.OPERATION, (*head, *rest))]
        if job:
            groups.append(Group(GroupTag.JOB, tuple(job)))
        message = Message(
            code=operation, request_id=self._request_id, groups=tuple(groups), version=self._version
        )
        return await self._client.send(message, document)


def _naming(name: str, job: Sequence[Attribute]) -> list[Attribute]:
    found = [attribute("job-name", Tag.NAME, name)]
    if job:
        # Every attribute we send matters, so that a printer that ignores one must say no.
        found.append(attribute("ipp-attribute-fidelity", Tag.BOOLEAN, True))
    return found


def _format(form: str) -> Attribute:
    return attribute("document-format", Tag.MIME, form)


def _job_id(reply: Message) -> int:
    number = reply.group(GroupTag.JOB).number("job-id")
    if number is None:
        raise IppError("the printer took the job but gave it no id", sent=True)
    return number
