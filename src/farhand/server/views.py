"""Rows as the wire shows them."""

import base64
import json

import msgspec

from farhand.engine.registry import Agent, Device, online
from farhand.engine.requests import Claimed
from farhand.model.clock import to_rfc3339
from farhand.model.ids import id_text
from farhand.model.job import TERMINAL, Actor, Event, Job
from farhand.protocol.agent import ClaimedJob, PayloadRef
from farhand.protocol.client import AgentView, EventView, JobView, PendingView, PrinterView
from farhand.protocol.signing import key_text

MASK_KEEPS = 4


def moment(at: int | None) -> str | None:
    """A time, or null."""
    return None if at is None else to_rfc3339(at)


def raw(text: str | None) -> msgspec.Raw | None:
    """Stored JSON as it is, or null."""
    return None if text is None else msgspec.Raw(text.encode())


def maybe_id(value: bytes | None) -> str | None:
    """An id, or null."""
    return None if value is None else id_text(value)


def job_view(job: Job) -> JobView:
    """A job for everybody. A job that waits under a passed limit is never shown: reads expire it first."""
    return JobView(
        id=id_text(job.id),
        kind=job.kind,
        state=job.state,
        final=job.state in TERMINAL,
        reason=job.reason,
        phase=job.phase,
        evidence=job.evidence,
        error=job.error,
        printer_id=maybe_id(job.device_id),
        agent_id=maybe_id(job.agent_id),
        title=job.title,
        source=job.source,
        tags=job.tags.split("\n") if job.tags else [],
        metadata=raw(job.metadata),
        params=raw(job.params),
        priority=job.priority,
        mode=job.mode,
        payload_size=job.payload_size,
        attempt=job.attempt,
        tries=job.tries,
        created_at=to_rfc3339(job.created_at),
        run_at=moment(job.run_at),
        expires_at=moment(job.start_by),
        accepted_at=moment(job.accepted_at),
        finished_at=moment(job.finished_at),
        cancel_requested_at=moment(job.cancel_requested_at),
        retry_of=maybe_id(job.retry_of),
        # While another attempt goes on, what a failed one came with is no result.
        result=raw(job.result) if job.state in TERMINAL else None,
    )


def actor_text(actor: Actor) -> str:
    """`kind` or `kind:id`."""
    return actor.kind if actor.id is None else f"{actor.kind}:{id_text(actor.id)}"


def event_view(event: Event) -> EventView:
    """One entry of the trail."""
    return EventView(
        seq=event.number,
        at=to_rfc3339(event.at),
        actor=actor_text(event.actor),
        verb=event.verb,
        from_=event.from_state,
        to=event.to_state,
        attempt=event.attempt,
        reason=event.reason,
        data=raw(event.data),
    )


def claimed_job(claimed: Claimed, now: int) -> ClaimedJob:
    """A job handed out, with its payload when that is small."""
    job, attempt = claimed.job, claimed.attempt
    payload: PayloadRef | None = None
    if claimed.body is not None:
        payload = PayloadRef(size=len(claimed.body), base64=base64.b64encode(claimed.body).decode("ascii"))
    elif job.payload_size is not None:
        payload = PayloadRef(size=job.payload_size, url=f"/agent/jobs/{id_text(job.id)}/payload")
    directive = "abort" if job.abort_at is not None else "continue"
    return ClaimedJob(
        job_id=id_text(job.id),
        kind=job.kind,
        printer_id=maybe_id(job.device_id),
        mode=job.mode,
        title=job.title,
        attempt=attempt.number,
        lease_token=attempt.token.hex(),
        lease_ms=max(0, attempt.lease_until - now),
        accepted=attempt.accepted_at is not None,
        params=raw(job.params),
        payload=payload,
        directive="cancel" if job.cancel_requested_at is not None else directive,
        secret_fields=list(claimed.policy.secret_fields) or msgspec.UNSET,
    )


def agent_view(agent: Agent, now: int, seen: dict[bytes, int], owners: dict[bytes, list[str]]) -> AgentView:
    """An agent; `seen` holds what is not written down yet, `owners` names by agent."""
    last = _last(agent.last_seen_at, seen.get(agent.id))
    return AgentView(
        id=id_text(agent.id),
        name=agent.name,
        state=agent.state,
        online=agent.state != "revoked" and online(last, now),
        dialect=agent.dialect,
        approved_by=agent.approved_by,
        version=agent.version,
        runtime=agent.runtime,
        address=agent.address,
        grants=json.loads(agent.grants),
        signing="off" if agent.public_key is None else "required" if agent.signing else "optional",
        public_key=key_text(agent.public_key) if agent.public_key is not None else None,
        bid=agent.bid,
        owners=owners.get(agent.id, []),
        last_seen_at=moment(last),
        created_at=to_rfc3339(agent.created_at),
    )


def pending_view(agent: Agent) -> PendingView:
    """An inbox entry, never with its code."""
    return PendingView(
        id=id_text(agent.id),
        dialect=agent.dialect,
        name=agent.name,
        bid=agent.bid,
        runtime=agent.runtime,
        address=agent.address,
        first_seen_at=to_rfc3339(agent.first_seen_at),
        last_seen_at=moment(agent.last_seen_at),
    )


def printer_view(
    device: Device,
    agent_name: str,
    last_seen_at: int | None,
    agent_state: str,
    now: int,
    seen: dict[bytes, int],
) -> PrinterView:
    """A printer with its agent."""
    last = _last(last_seen_at, seen.get(device.agent_id))
    capabilities = json.loads(device.capabilities)
    return PrinterView(
        id=id_text(device.id),
        number=device.number,
        name=device.name,
        agent_id=id_text(device.agent_id),
        agent=agent_name,
        online=agent_state != "revoked" and online(last, now) and device.gone_at is None,
        state=device.state,
        reason=device.reason,
        can_pdf=bool(capabilities.get("pdf")),
        capabilities=msgspec.Raw(device.capabilities.encode()),
        gone_at=moment(device.gone_at),
        created_at=to_rfc3339(device.created_at),
    )


def _last(written: int | None, fresh: int | None) -> int | None:
    moments = [at for at in (written, fresh) if at is not None]
    return max(moments, default=None)
