"""Every call of the client API, as plans without I/O.

Ids are the server's UUIDs; texts for people (names, numbers) are not accepted here.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from farhand.client.errors import ProblemDocument, StillOpen
from farhand.client.plan import Call, Plan, ask, new_idempotency_key, problem_of, reads
from farhand.client.requests import Page, everything, get, listing, members, path_of, post
from farhand.client.waiting import HOLD_S, watch
from farhand.model.clock import Clock
from farhand.protocol.client import (
    AgentView,
    ApproveRequest,
    CancelRequest,
    EventView,
    GrantsRequest,
    IssueReply,
    IssueRequest,
    JobView,
    KeyReply,
    KeyRequest,
    KeyView,
    PendingView,
    PrinterView,
    PrintOptions,
    ResolveRequest,
    SigningRequest,
    SubmitPrint,
    SubmitReply,
)
from farhand.protocol.wire import Reply, encode

# The server may have to fetch a payload from its URL first.
SUBMIT_S: Final = 90


class Health(Reply, frozen=True):
    """Whether the server says that it is well."""

    ok: bool


def health() -> Plan[Health]:
    """Whether the server is there; needs no key."""
    return ask(Call(method="GET", path="/health", parse=reads(Health), repeatable=True))


def submit(
    job: Mapping[str, Any] | msgspec.Struct, *, idempotency_key: str | None = None
) -> Plan[SubmitReply]:
    """Submits a job of any kind, given as the body of `POST /jobs`.

    The idempotency key is made up when there is none, so that a try after a lost reply makes
    no second job.
    """
    return ask(
        Call(
            method="POST",
            path="/jobs",
            parse=reads(SubmitReply),
            headers={"Idempotency-Key": idempotency_key or new_idempotency_key()},
            body=encode(members(job)),
            repeatable=True,
            work_s=SUBMIT_S,
        )
    )


def submit_batch(
    jobs: Sequence[Mapping[str, Any] | msgspec.Struct], *, idempotency_key: str | None = None
) -> Plan[list[SubmitReply | ProblemDocument]]:
    """Submits several jobs in one request; each is taken or refused by itself, in this order."""
    return ask(
        Call(
            method="POST",
            path="/jobs/batch",
            parse=_read_batch,
            headers={"Idempotency-Key": idempotency_key or new_idempotency_key()},
            body=encode({"jobs": [members(job) for job in jobs]}),
            repeatable=True,
            work_s=SUBMIT_S,
        )
    )


def submit_print(
    printer_id: str,
    content: bytes | None = None,
    *,
    type: str | None = None,
    url: str | None = None,
    json: object = None,
    title: str | None = None,
    source: str | None = None,
    copies: int = 1,
    options: PrintOptions | None = None,
    priority: int = 0,
    run_at: str | None = None,
    expires_in: int | None = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Plan[SubmitReply]:
    """Prints bytes, or what the server fetches from `url`.

    `type` is a printing client's word; without it, content that begins as a PDF is printed as
    one, other content goes raw, and a URL is taken for a PDF. `run_at` is RFC 3339,
    `expires_in` seconds.
    """
    message = SubmitPrint(
        printer_id=printer_id,
        type=type or guess_type(content),
        content=None if content is None else base64.b64encode(content).decode("ascii"),
        url=url,
        title=title,
        source=source,
        copies=copies,
        options=options,
        priority=priority,
        run_at=run_at,
        expires_in=expires_in,
        tags=list(tags),
        metadata=None if metadata is None else dict(metadata),
    )
    body = {**members(message), **({} if json is None else {"json": json})}
    return submit(body, idempotency_key=idempotency_key)


def is_pdf(content: bytes) -> bool:
    """Whether bytes begin as a PDF does; a PDF inside a printer language is raw."""
    return content[:64].lstrip(b"\xef\xbb\xbf \t\r\n\f\0").startswith(b"%PDF-")


def guess_type(content: bytes | None) -> str:
    """A printing client's word for content; None stands for a URL."""
    if content is None:
        return "pdf_uri"
    return "pdf_base64" if is_pdf(content) else "raw_base64"


def job(job_id: str, *, wait_s: int = 0) -> Plan[JobView]:
    """One job. With `wait_s` the server answers when it changes, or after that time."""
    return ask(_job(job_id, wait_s=wait_s))


def wait(
    job_id: str,
    *,
    timeout_ms: int | None = None,
    on_change: Callable[[JobView], None] | None = None,
    hold_s: int = HOLD_S,
    clock: Clock | None = None,
) -> Plan[JobView]:
    """Waits until a job is final, or uncertain, which only a person or a late report ends.

    `on_change` is called with what is first seen and with every change. Raises StillOpen when
    `timeout_ms` passed before. A server that is away for a while is waited for.
    """
    return watch(
        lambda wait_s, patience_ms: _job(job_id, wait_s=wait_s, patience_ms=patience_ms),
        lambda seen: seen.final or seen.state == "uncertain",
        StillOpen,
        timeout_ms=timeout_ms,
        on_change=on_change,
        hold_s=hold_s,
        clock=clock,
    )


def jobs(
    *,
    state: str | None = None,
    kind: str | None = None,
    printer: str | None = None,
    agent: str | None = None,
    tag: str | None = None,
    source: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Plan[Page[JobView]]:
    """A page of the newest jobs; `printer` and `agent` are ids."""
    query = {
        "state": state, "kind": kind, "printer": printer, "agent": agent, "tag": tag,
        "source": source, "limit": None if limit is None else str(limit), "cursor": cursor,
    }  # fmt: skip
    return ask(listing("/jobs", Page[JobView], query))


def events(job_id: str) -> Plan[list[EventView]]:
    """A job's whole trail, oldest first."""
    return everything(path_of("/jobs", job_id, "events"), Page[EventView])


def cancel(job_id: str, *, reason: str | None = None) -> Plan[JobView]:
    """Asks for a job to be cancelled; one that is running may still end otherwise."""
    body = None if reason is None else encode(CancelRequest(reason=reason))
    return ask(
        Call(method="DELETE", path=path_of("/jobs", job_id), parse=reads(JobView), body=body, repeatable=True)
    )


def retry(job_id: str) -> Plan[SubmitReply]:
    """Submits a finished or uncertain job again, as a new job."""
    return ask(post(path_of("/jobs", job_id, "retry"), SubmitReply))


def resolve(job_id: str, outcome: str, *, note: str | None = None) -> Plan[JobView]:
    """Says what really happened to an uncertain job: `done` or `failed`."""
    return ask(post(path_of("/jobs", job_id, "resolve"), JobView, ResolveRequest(outcome=outcome, note=note)))


def printers(*, with_gone: bool = False) -> Plan[list[PrinterView]]:
    """All printers; those that their agents no longer see only when asked for."""
    return everything("/printers", Page[PrinterView], {"gone": "true"} if with_gone else {})


def printer(printer_id: str) -> Plan[PrinterView]:
    """One printer."""
    return ask(get(path_of("/printers", printer_id), PrinterView))


def agents() -> Plan[list[AgentView]]:
    """All agents."""
    return everything("/agents", Page[AgentView])


def agent(agent_id: str) -> Plan[AgentView]:
    """One agent."""
    return ask(get(path_of("/agents", agent_id), AgentView))


def pending() -> Plan[list[PendingView]]:
    """The agents that wait for approval."""
    return everything("/agents/pending", Page[PendingView])


def issue_agent(name: str) -> Plan[IssueReply]:
    """Makes an agent that needs no approval; its key is shown this once."""
    return ask(post("/agents", IssueReply, IssueRequest(name=name)))


def approve(agent_id: str, *, code: str | None = None, without_code: bool = False) -> Plan[AgentView]:
    """Lets an agent in, with the code that the device shows."""
    message = ApproveRequest(code=code, without_code=without_code)
    return ask(post(path_of("/agents", agent_id, "approve"), AgentView, message))


def revoke(agent_id: str) -> Plan[AgentView]:
    """Shuts an agent out."""
    return ask(post(path_of("/agents", agent_id, "revoke"), AgentView, repeatable=True))


def pause(agent_id: str) -> Plan[AgentView]:
    """An agent is given no more work for now."""
    return ask(post(path_of("/agents", agent_id, "pause"), AgentView, repeatable=True))


def drain(agent_id: str) -> Plan[AgentView]:
    """An agent ends what it has and is given nothing more."""
    return ask(post(path_of("/agents", agent_id, "drain"), AgentView, repeatable=True))


def resume(agent_id: str) -> Plan[AgentView]:
    """Ends `pause` and `drain`."""
    return ask(post(path_of("/agents", agent_id, "resume"), AgentView, repeatable=True))


def grants(agent_id: str, grants: Sequence[str]) -> Plan[AgentView]:
    """Replaces what an agent may do."""
    return ask(
        Call(
            method="PUT",
            path=path_of("/agents", agent_id, "grants"),
            parse=reads(AgentView),
            body=encode(GrantsRequest(grants=list(grants))),
            repeatable=True,
        )
    )


def sign(agent_id: str, public_key: str | None, *, required: bool = False) -> Plan[AgentView]:
    """Sets the key that an agent signs its requests with, and whether it has to; None ends signing."""
    return ask(
        Call(
            method="PUT",
            path=path_of("/agents", agent_id, "signing"),
            parse=reads(AgentView),
            body=encode(SigningRequest(public_key=public_key, required=required)),
            repeatable=True,
        )
    )


def keys() -> Plan[list[KeyView]]:
    """All client keys, without their secrets."""
    return everything("/keys", Page[KeyView])


def create_key(name: str, grants: Sequence[str], *, user: str | None = None) -> Plan[KeyReply]:
    """Makes a client key, for a user where one is named; it is shown this once."""
    return ask(post("/keys", KeyReply, KeyRequest(name=name, grants=list(grants), user=user)))


def revoke_key(key_id: str) -> Plan[None]:
    """Ends a client key."""
    return ask(Call(method="DELETE", path=path_of("/keys", key_id), parse=_read_nothing, repeatable=True))


def _job(job_id: str, *, wait_s: int = 0, patience_ms: int | None = None) -> Call[JobView]:
    return Call(
        method="GET",
        path=path_of("/jobs", job_id),
        parse=reads(JobView),
        repeatable=True,
        wait_s=wait_s,
        patience_ms=patience_ms,
    )


class _Batch(Reply, frozen=True):
    items: list[dict[str, Any]]


def _read_nothing(body: bytes) -> None:
    """What a reply without content says."""


def _read_batch(body: bytes) -> list[SubmitReply | ProblemDocument]:
    return [
        problem_of(item) or msgspec.convert(item, SubmitReply)
        for item in msgspec.json.decode(body, type=_Batch).items
    ]
