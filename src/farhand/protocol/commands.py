"""Messages about commands: those who issue them, and the agents of the command queue's own dialect."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from farhand.protocol.agent import Name, Reason, Token
from farhand.protocol.wire import Message, Reply

STATUSES: Final = ("pending", "in_progress", "completed", "failed", "expired", "cancelled")
"""The words for where a command is; the last four are final."""

EXPIRES_MAX_S: Final = 24 * 3600
TypeName = Annotated[str, Meta(min_length=1, max_length=100)]
Key = Annotated[str, Meta(min_length=1, max_length=255)]


class CommandRequest(Message, frozen=True):
    """`POST /commands`, and `POST /jobs` with the type written `command.<type>`.

    `agent` is a name or an id. `expires_in` (seconds) is how long the command may wait to be
    collected; its limits depend on the type.
    """

    type: TypeName
    agent: Name
    params: dict[str, Any] = {}
    idempotency_key: Key | None = None
    expires_in: Annotated[int, Meta(ge=1, le=EXPIRES_MAX_S)] | None = None


class CommandView(Reply, frozen=True):
    """A command as its issuer sees it. Times are RFC 3339 with milliseconds and Z.

    `status` is one of six words, `state` what the server itself calls it. `attempt` numbers the
    newest attempt, `attempts` counts those that were taken and not given back.
    """

    id: str
    uuid: str
    type: str
    agent: str | None
    agent_id: str
    status: str
    state: str
    final: bool
    phase: str | None
    reason: str | None
    error: str | None
    params: Any
    attempt: int
    attempts: int
    next_attempt_at: str | None
    expires_at: str | None
    created_at: str
    collected_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None
    retry_of: str | None
    result: Any


class CommandEvent(Reply, frozen=True):
    """One entry of a command's trail. `actor` is `kind` or `kind:id`, `text` the entry in a sentence.

    `from` and `to` are statuses; `retry_at` is when a failed attempt is followed by the next.
    """

    seq: int
    at: str
    actor: str
    verb: str
    from_: str | None = msgspec.field(name="from")
    to: str
    attempt: int | None
    reason: str | None
    retry_at: str | None
    text: str


class CommandCancel(Message, frozen=True):
    """Optional body of `POST /commands/{uuid}/cancel`."""

    reason: Reason | None = None


class CommandClaim(Reply, frozen=True):
    """`POST /api/agent/v1/commands/claim`: one command to carry out.

    `secret_fields` names the members of a result that are secrets.
    """

    uuid: str
    type: str
    params: Any
    attempt: int
    expires_at: str | None
    lease_token: str
    secret_fields: list[str]


class CommandResult(Message, frozen=True):
    """`POST /api/agent/v1/commands/{uuid}/result`: how the attempt ended.

    `retryable` says whether another attempt could help; left out, it could not. A long `error`
    is cut.
    """

    status: Annotated[str, Meta(pattern=r"^(completed|failed)$(?!\n)")]
    result: Any = None
    error: str | None = None
    retryable: bool = False
    lease_token: Token | None = None


class CommandResultReply(Reply, frozen=True):
    """Where the command stands after its result."""

    uuid: str
    status: str
    state: str
