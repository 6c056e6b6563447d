"""Messages between the server and those who submit and manage work."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from farhand.protocol.agent import Name, Reason
from farhand.protocol.wire import Message, Reply

Id = Annotated[str, Meta(max_length=64)]
SECONDS_MAX = 366 * 24 * 3600


class PrintOptions(Message, frozen=True):
    """How a document is printed; what is left out is the printer's own choice. Ignored for raw."""

    paper: Annotated[str, Meta(max_length=100)] | None = None
    bin: Annotated[str, Meta(max_length=100)] | None = None
    media: Annotated[str, Meta(max_length=100)] | None = None
    color: bool | None = None
    duplex: Annotated[str, Meta(pattern=r"^(one-sided|long-edge|short-edge)$(?!\n)")] | None = None
    dpi: Annotated[str, Meta(max_length=20, pattern=r"^[0-9]{2,5}(x[0-9]{2,5})?$(?!\n)")] | None = None
    fit_to_page: bool | None = None
    pages: Annotated[str, Meta(max_length=200, pattern=r"^[0-9,\- ]+$(?!\n)")] | None = None
    nup: Annotated[int, Meta(ge=1, le=16)] | None = None
    rotate: Annotated[int, Meta(ge=0, le=270)] | None = None
    collate: bool | None = None


class SubmitPrint(Message, frozen=True):
    """`POST /jobs` for printing. One of `content` (base64) and `url`, as `type` asks for.

    `json` is the body POSTed to `url` by the `*_uri_post` types. `expires_in` (seconds, also
    spelled `expire_after`) bounds how long the job may wait, counted from `run_at` if set.
    """

    printer_id: Id
    type: Annotated[str, Meta(max_length=64)]
    content: str | None = None
    url: Annotated[str, Meta(max_length=8192)] | None = None
    json: Any = None
    title: Annotated[str, Meta(max_length=500)] | None = None
    source: Annotated[str, Meta(max_length=200)] | None = None
    copies: Annotated[int, Meta(ge=1, le=999)] = 1
    options: PrintOptions | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    run_at: Annotated[str, Meta(max_length=40)] | None = None
    expires_in: Annotated[int, Meta(ge=1, le=SECONDS_MAX)] | None = None
    expire_after: Annotated[int, Meta(ge=1, le=SECONDS_MAX)] | None = None
    tags: Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=20)] = []
    metadata: dict[str, Any] | None = None


class SubmitReply(Reply, frozen=True):
    """The job that was made, or that already stood for the idempotency key."""

    id: str
    job_id: str
    state: str


class JobView(Reply, frozen=True):
    """A job as everybody sees it. Times are RFC 3339 with milliseconds and Z."""

    id: str
    kind: str
    state: str
    final: bool
    reason: str | None
    phase: str | None
    evidence: str | None
    error: str | None
    printer_id: str | None
    agent_id: str | None
    title: str | None
    source: str | None
    tags: list[str]
    metadata: Any
    params: Any
    priority: int
    mode: str | None
    payload_size: int | None
    attempt: int
    tries: int
    created_at: str
    run_at: str | None
    expires_at: str | None
    accepted_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None
    retry_of: str | None
    result: Any


class EndedReply(JobView, frozen=True):
    """`POST /jobs` with `Prefer: wait=N`, when the job ended in that time: all of it."""

    job_id: str


class EventView(Reply, frozen=True):
    """One entry of a job's trail. `actor` is `kind` or `kind:id`."""

    seq: int
    at: str
    actor: str
    verb: str
    from_: str | None = msgspec.field(name="from")
    to: str
    attempt: int | None
    reason: str | None
    data: Any


class ResolveRequest(Message, frozen=True):
    """`POST /jobs/{id}/resolve`: what really happened to an uncertain job."""

    outcome: Annotated[str, Meta(pattern=r"^(done|failed)$(?!\n)")]
    note: Reason | None = None


class CancelRequest(Message, frozen=True):
    """Optional body of `DELETE /jobs/{id}`."""

    reason: Reason | None = None


class PrinterView(Reply, frozen=True):
    """A printer, the agent it hangs on and whether that is online."""

    id: str
    number: int
    name: str
    agent_id: str
    agent: str
    online: bool
    state: str
    reason: str | None
    can_pdf: bool
    capabilities: msgspec.Raw
    gone_at: str | None
    created_at: str


class AgentView(Reply, frozen=True):
    """An agent. `approved_by` is code, without_code, issued or open; `signing` off, optional or required.

    `bid` is the mask of a device's identifier, `owners` are the names of the users it works for.
    """

    id: str
    name: str
    state: str
    online: bool
    dialect: str
    approved_by: str | None
    version: str | None
    runtime: str | None
    address: str | None
    grants: list[str]
    signing: str
    public_key: str | None
    bid: str | None
    owners: list[str]
    last_seen_at: str | None
    created_at: str


class PendingView(Reply, frozen=True):
    """An entry of the inbox; the code is shown by the device alone."""

    id: str
    dialect: str
    name: str
    bid: str | None
    runtime: str | None
    address: str | None
    first_seen_at: str
    last_seen_at: str | None


class IssueRequest(Message, frozen=True):
    """`POST /agents`: make an agent with a key that is shown once."""

    name: Name


class IssueReply(Reply, frozen=True):
    """The only time the agent's key is shown."""

    id: str
    name: str
    key: str


class ApproveRequest(Message, frozen=True):
    """`POST /agents/{id}/approve`: the code that the device shows, or the marked way without it."""

    code: Annotated[str, Meta(min_length=1, max_length=40)] | None = None
    without_code: bool = False


class GrantsRequest(Message, frozen=True):
    """`PUT /agents/{id}/grants`: replaces the agent's grants."""

    grants: Annotated[list[Name], Meta(max_length=20)]


class SigningRequest(Message, frozen=True):
    """`PUT /agents/{id}/signing`: an agent's public key (raw Ed25519, base64), and whether it has to sign."""

    public_key: Annotated[str, Meta(max_length=100)] | None
    required: bool = False


class KeyRequest(Message, frozen=True):
    """`POST /keys`: make a client key with some grants, for a user, who may be new."""

    name: Name
    grants: Annotated[list[Name], Meta(max_length=20)]
    user: Name | None = None


class KeyReply(Reply, frozen=True):
    """The only time a client key is shown."""

    id: str
    name: str
    grants: list[str]
    user: str | None
    key: str


class KeyView(Reply, frozen=True):
    """A client key without its secret."""

    id: str
    name: str
    grants: list[str]
    user: str | None
    created_at: str
    revoked_at: str | None


class AuditView(Reply, frozen=True):
    """Who changed what. `actor` is `kind` or `kind:id`, `subject` the id of what was changed."""

    seq: int
    at: str
    actor: str
    action: str
    subject: str
    data: str | None


class HealthReply(Reply, frozen=True):
    """`GET /health`: the server answers."""

    ok: bool
    version: str


class CodeView(Reply, frozen=True):
    """What an error code means."""

    code: str
    status: int
    title: str
    retryable: bool


class BatchRequest(Message, frozen=True):
    """`POST /jobs/batch`: up to 100 bodies of `POST /jobs`, each answered by itself."""

    jobs: Annotated[list[SubmitPrint], Meta(max_length=100)]
