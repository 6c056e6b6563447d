"""The calls about farms, as plans without I/O, and the one transfer that is none: a file's."""

import hashlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final

import httpx2
import msgspec

from farhand.client.errors import ApiError, Unreachable, UnreadableReply, read_problem
from farhand.client.plan import Call, Plan, ask, new_idempotency_key, reads
from farhand.client.requests import Page, everything, get, members, path_of, post
from farhand.protocol.client import JobView
from farhand.protocol.farm import (
    ClaimPrinterRequest,
    FarmNeeds,
    FarmPrinterView,
    FarmRequest,
    FarmStatusView,
    FarmSubmitReply,
    FarmView,
    SubmitFarmPrint,
    UnclaimedReply,
    UploadedReply,
    UploadReply,
    UploadView,
)
from farhand.protocol.wire import encode

CHUNK: Final = 256 * 1024
STALL_S: Final = 60.0


def farms() -> Plan[list[FarmView]]:
    """All farms, by name."""
    return everything("/farms", Page[FarmView])


def create_farm(name: str) -> Plan[FarmView]:
    """Makes a farm."""
    return ask(post("/farms", FarmView, FarmRequest(name=name)))


def farm_status(farm: str) -> Plan[FarmStatusView]:
    """A farm, by name or id, with its printers as they are now."""
    return ask(get(path_of("/farms", farm, "status"), FarmStatusView))


def pause_farm(farm: str) -> Plan[FarmView]:
    """Dispatches nothing to a farm; what prints goes on."""
    return ask(post(path_of("/farms", farm, "pause"), FarmView, repeatable=True))


def resume_farm(farm: str) -> Plan[FarmView]:
    """Dispatches to a farm again."""
    return ask(post(path_of("/farms", farm, "resume"), FarmView, repeatable=True))


def unclaimed_printers(farm: str) -> Plan[UnclaimedReply]:
    """Printers that the farm's gateways report and nobody claimed."""
    return ask(get(path_of("/farms", farm, "unclaimed-printers"), UnclaimedReply))


def claim_printer(
    farm: str,
    gateway_printer_id: str,
    name: str,
    *,
    gateway: str | None = None,
    self_clearing: bool = False,
) -> Plan[FarmPrinterView]:
    """Makes a printer behind a gateway one of the farm."""
    request = ClaimPrinterRequest(
        farm=farm,
        gateway_printer_id=gateway_printer_id,
        name=name,
        gateway=gateway,
        self_clearing=self_clearing,
    )
    return ask(post("/printers", FarmPrinterView, request))


def bed_cleared(printer_id: str) -> Plan[FarmPrinterView]:
    """Says that a printer's bed is clear."""
    return ask(post(path_of("/printers", printer_id, "bed-cleared"), FarmPrinterView, repeatable=True))


def pause_printer(printer_id: str) -> Plan[FarmPrinterView]:
    """Gives a farm printer no new work."""
    return ask(post(path_of("/printers", printer_id, "pause"), FarmPrinterView, repeatable=True))


def resume_printer(printer_id: str) -> Plan[FarmPrinterView]:
    """Gives a farm printer work again."""
    return ask(post(path_of("/printers", printer_id, "resume"), FarmPrinterView, repeatable=True))


def submit_farm_print(
    farm: str,
    filename: str,
    *,
    size: int | None = None,
    sha256: str | None = None,
    requirements: FarmNeeds | None = None,
    printer: str | None = None,
    copies: int = 1,
    title: str | None = None,
    source: str | None = None,
    priority: int = 0,
    run_at: str | None = None,
    tags: Sequence[str] = (),
    idempotency_key: str | None = None,
) -> Plan[FarmSubmitReply]:
    """Writes down a print for a farm; its file goes to `upload` of the reply (see `put_file`).

    `printer` (an id) pins it to one printer. The idempotency key is made up when there is none.
    """
    request = SubmitFarmPrint(
        type="farm.print",
        farm=farm,
        filename=filename,
        size=size,
        sha256=sha256,
        requirements=requirements or FarmNeeds(),
        printer=printer,
        copies=copies,
        title=title,
        source=source,
        priority=priority,
        run_at=run_at,
        tags=list(tags),
    )
    body = {"type": "farm.print", **members(request)}
    return ask(
        Call(
            method="POST",
            path="/jobs",
            parse=reads(FarmSubmitReply),
            body=encode(body),
            headers={"Idempotency-Key": idempotency_key or new_idempotency_key()},
            repeatable=True,
        )
    )


def upload_address(job_id: str) -> Plan[UploadReply]:
    """A fresh address for the file of a job that waits for it."""
    return ask(post(path_of("/jobs", job_id, "upload"), UploadReply, repeatable=True))


def pause_job(job_id: str) -> Plan[JobView]:
    """Asks the machine to pause a print; its phase says when it has."""
    return ask(post(path_of("/jobs", job_id, "pause"), JobView, repeatable=True))


def resume_job(job_id: str) -> Plan[JobView]:
    """Asks the machine to go on with a paused print."""
    return ask(post(path_of("/jobs", job_id, "resume"), JobView, repeatable=True))


def job_to_top(job_id: str) -> Plan[JobView]:
    """Lets a waiting print go before all others of its farm."""
    return ask(post(path_of("/jobs", job_id, "top"), JobView, repeatable=True))


def digest_of(path: Path) -> str:
    """A file's SHA-256 in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put_file(upload: UploadView, path: Path, progress: Callable[[int, int], None]) -> UploadedReply | None:
    """Puts a file where the server, or its payload store, wants it; `progress` gets sent and whole.

    The reply is None where a store answers in words of its own. Raises ApiError, Unreachable,
    UnreadableReply, OSError.
    """
    size = path.stat().st_size
    headers = {**upload.headers, "Content-Length": str(size)}
    try:
        with httpx2.Client(timeout=STALL_S) as client:
            reply = client.request(
                upload.method, upload.url, content=_chunks(path, size, progress), headers=headers
            )
    except httpx2.HTTPError as error:
        raise Unreachable(
            f"the file could not be sent: {error or type(error).__name__}", maybe_taken=True
        ) from error
    if reply.status_code >= 400:
        problem = read_problem(reply.content)
        if problem is None:
            raise UnreadableReply(
                f"the place for the file answered {reply.status_code}, but not in our words"
            )
        raise ApiError(problem)
    try:
        return msgspec.json.decode(reply.content, type=UploadedReply)
    except msgspec.DecodeError:
        return None


def _chunks(path: Path, size: int, progress: Callable[[int, int], None]) -> Generator[bytes]:
    sent = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
            sent += len(chunk)
            progress(sent, size)
