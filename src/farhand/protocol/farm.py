"""Messages of the farm system: farms and their printers, jobs with files, what gateways tell.

Durations are milliseconds and end in `_ms`; sizes are bytes or, of beds, millimetres.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from farhand.protocol.agent import Name, Reason
from farhand.protocol.client import SECONDS_MAX, Id, SubmitReply
from farhand.protocol.wire import Message, Reply

Word = Annotated[str, Meta(min_length=1, max_length=100)]
Mm = Annotated[float, Meta(gt=0, le=10_000)]
FileName = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^/\\\x00-\x1f\x7f]+$(?!\n)")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
MachineState = Literal[
    "idle",
    "preparing",
    "printing",
    "paused",
    "finished",
    "cancelled",
    "failed",
    "error",
    "busy",
    "offline",
    "unknown",
]


class SizeMm(Message, frozen=True, omit_defaults=True):
    """Width, depth and, where it matters, height."""

    x: Mm
    y: Mm
    z: Mm | None = None


class FarmNeeds(Message, frozen=True, omit_defaults=True):
    """What a job needs of a printer; what is left out may be anything."""

    model: Word | None = None
    nozzle: Mm | None = None
    material: Word | None = None
    color: Word | None = None
    bed: SizeMm | None = None
    tags: Annotated[list[Word], Meta(max_length=20)] = []


class LoadedSpool(Message, frozen=True, omit_defaults=True):
    """A spool in a printer."""

    material: Word
    color: Word | None = None


class DeclaredPrinter(Message, frozen=True, omit_defaults=True):
    """What a printer says that it is and has."""

    model: Word | None = None
    nozzle: Mm | None = None
    loaded: Annotated[list[LoadedSpool], Meta(max_length=32)] = []
    bed: SizeMm | None = None
    tags: Annotated[list[Word], Meta(max_length=20)] = []


class SubmitFarmPrint(Message, frozen=True):
    """`POST /jobs` with type `farm.print`; the file follows by PUT to the address in the reply.

    `size` and `sha256` are held against the file. `copies` are that many jobs, the others made
    once the file is there. `printer` pins the job to one printer.
    """

    type: Literal["farm.print"]
    farm: Id
    filename: FileName
    size: Annotated[int, Meta(ge=1)] | None = None
    sha256: Sha256 | None = None
    requirements: FarmNeeds = FarmNeeds()
    printer: Id | None = None
    copies: Annotated[int, Meta(ge=1, le=999)] = 1
    title: Annotated[str, Meta(max_length=500)] | None = None
    source: Annotated[str, Meta(max_length=200)] | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    run_at: Annotated[str, Meta(max_length=40)] | None = None
    expires_in: Annotated[int, Meta(ge=1, le=SECONDS_MAX)] | None = None
    tags: Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=20)] = []
    metadata: dict[str, Any] | None = None


class UploadView(Reply, frozen=True):
    """Where the file of a job goes, by which method, until when."""

    method: str
    url: str
    headers: dict[str, str]
    expires_at: str


class UploadReply(Reply, frozen=True):
    """A job's upload address."""

    job_id: str
    upload: UploadView


class UploadedReply(Reply, frozen=True):
    """The file is kept; `copies` are the jobs that print it."""

    job_id: str
    sha256: str
    size: int
    copies: list[str]


class FarmRequest(Message, frozen=True):
    """`POST /farms`: make a farm."""

    name: Name


class FarmView(Reply, frozen=True):
    """A farm."""

    id: str
    name: str
    paused: bool
    created_at: str


class ClaimPrinterRequest(Message, frozen=True):
    """`POST /printers`: a printer behind a gateway becomes one of the farm.

    `gateway` (an agent's name or id) is needed where several report the same printer id.
    """

    farm: Id
    gateway_printer_id: Name
    name: Name
    gateway: Id | None = None
    self_clearing: bool = False


class FarmPrinterView(Reply, frozen=True):
    """A claimed printer: what it shows, what holds it, and in words why it takes no work."""

    id: str
    name: str
    farm_id: str
    gateway_id: str
    gateway_printer_id: str
    online: bool
    state: str
    bed_clear: bool
    hold: str | None
    job_id: str | None
    percent: float | None
    remaining_ms: int | None
    temperatures: dict[str, float]
    reason: str | None
    paused: bool
    self_clearing: bool
    observed_at: str | None
    declared: Any


class FarmStatusView(Reply, frozen=True):
    """A farm with its printers."""

    farm: FarmView
    printers: list[FarmPrinterView]


class UnclaimedView(Reply, frozen=True, rename={"gateway_online": "gatewayOnline"}):
    """A printer that a gateway reports and nobody claimed; `did_you_mean` are claimed names like it."""

    gateway_id: str
    gateway: str
    gateway_online: bool
    gateway_printer_id: str
    state: str
    declared: Any
    did_you_mean: list[str]
    first_seen_at: str
    last_seen_at: str


class UnclaimedReply(Reply, frozen=True, rename={"gateway_online": "gatewayOnline"}):
    """Unclaimed printers, and whether any gateway of the farm is there at all."""

    items: list[UnclaimedView]
    gateway_online: bool
    next: str | None = None


class WorkReport(Message, frozen=True, omit_defaults=True):
    """What a gateway has in hand for a printer.

    `started` says whether the start was sent, and by this run of the gateway.
    """

    job_id: Id
    attempt: int
    phase: Annotated[str, Meta(max_length=40)] = "downloading"
    started: Literal["no", "here", "before"] = "no"
    sent: int | None = None
    total: int | None = None


class PrinterReport(Message, frozen=True, omit_defaults=True):
    """One printer as its gateway sees it now.

    `full` is False until the gateway has looked at the machine. `identity` is the name of the
    print that the machine shows. `watch_ms` is how long the machine may take to react.
    """

    id: Name
    state: MachineState
    full: bool = True
    identity: Annotated[str, Meta(max_length=400)] | None = None
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    remaining_ms: Annotated[int, Meta(ge=0)] | None = None
    reason: Reason | None = None
    temperatures: Annotated[dict[Word, float], Meta(max_length=32)] = {}
    declared: DeclaredPrinter | None = None
    work: WorkReport | None = None
    watch_ms: Annotated[int, Meta(ge=1_000, le=3_600_000)] = 30_000


class TelemetryRequest(Message, frozen=True):
    """`POST /agent/telemetry`: all printers of a gateway. `boot_id` names its run, `seq` counts in it."""

    farm: Id
    boot_id: Annotated[str, Meta(min_length=1, max_length=64)]
    seq: Annotated[int, Meta(ge=0)]
    printers: Annotated[list[PrinterReport], Meta(max_length=2000)]


class PrinterOrder(Reply, frozen=True):
    """What a gateway shall do about a printer.

    `printer_id` is None while nobody claimed it. `over` says that the work in hand is decided.
    """

    id: str
    printer_id: str | None
    directive: Literal["continue", "cancel", "pause", "resume"] = "continue"
    over: bool = False


class TelemetryReply(Reply, frozen=True):
    """The answers in the order of the report."""

    printers: list[PrinterOrder]


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A printer as it was last reported, and what the server keeps in mind beside it.

    `work` is the mark of the attempt in hand; `active` that of the one last seen at work, by the
    run `active_boot`. `changed_at` is when phase or progress last changed.
    """

    state: str
    boot: str
    seq: int
    changed_at: int
    full: bool = True
    identity: str | None = None
    percent: float | None = None
    remaining_ms: int | None = None
    reason: str | None = None
    temperatures: dict[str, float] = {}
    work: str | None = None
    phase: str | None = None
    started: str = "no"
    sent: int | None = None
    active: str | None = None
    active_boot: str | None = None
    watch_ms: int = 30_000


class FarmSubmitReply(SubmitReply, frozen=True):
    """The job that was made, or stood already for the idempotency key, and where its file goes."""

    upload: UploadView
