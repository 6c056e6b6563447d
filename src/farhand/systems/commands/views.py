"""Commands and their trails as the wire shows them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from farhand.engine.registry import Agent, online
from farhand.engine.requests import Claimed
from farhand.model.clock import to_rfc3339
from farhand.model.ids import id_text
from farhand.model.job import TERMINAL, Event, Job, State
from farhand.protocol.commands import CommandClaim, CommandEvent, CommandView
from farhand.server.principal import COMMANDS
from farhand.server.views import actor_text, maybe_id, moment, raw
from farhand.systems.commands.kind import type_of
from farhand.systems.commands.status import status_of
from farhand.systems.commands.words import retry_at, sentence


def command_view(
    job: Job,
    agent: Agent | None,
    last_seen_at: int | None,
    now: int,
    secrets: Mapping[str, Any] | None = None,
) -> CommandView:
    """A command; `secrets` are members of the result that this caller alone may see."""
    uuid = id_text(job.id)
    return CommandView(
        id=uuid,
        uuid=uuid,
        type=type_of(job.kind),
        agent=agent.name if agent is not None else None,
        agent_id=id_text(job.lane),
        status=status_of(job.state),
        state=job.state,
        final=job.state in TERMINAL,
        phase=job.phase,
        reason=job.reason or _why_it_waits(job, agent, last_seen_at, now),
        error=job.error,
        params=raw(job.params),
        attempt=job.attempt,
        attempts=job.tries,
        next_attempt_at=moment(job.run_at) if job.state == State.SCHEDULED else None,
        expires_at=moment(job.start_by),
        created_at=to_rfc3339(job.created_at),
        collected_at=moment(job.accepted_at),
        finished_at=moment(job.finished_at),
        cancel_requested_at=moment(job.cancel_requested_at),
        retry_of=maybe_id(job.retry_of),
        result=_result(job.result, secrets),
    )


def _why_it_waits(job: Job, agent: Agent | None, last_seen_at: int | None, now: int) -> str | None:
    """What keeps a queued command from being collected, where that can be known."""
    if job.state != State.QUEUED or agent is None:
        return None
    if agent.state != "active":
        return f"the agent is {agent.state}"
    if COMMANDS not in json.loads(agent.grants):
        return f"the agent does not hold the grant {COMMANDS}"
    if not online(last_seen_at, now):
        since = "yet" if last_seen_at is None else f"since {to_rfc3339(last_seen_at)}"
        return f"the agent has not been seen {since}"
    return None


def _result(stored: str | None, secrets: Mapping[str, Any] | None) -> Any:
    if not secrets:
        return raw(stored)
    public: Any = msgspec.json.decode(stored) if stored is not None else {}
    return {**public, **secrets}


def command_event(event: Event, names: Mapping[bytes, str]) -> CommandEvent:
    """One entry of the trail; `names` are what agents and keys are called."""
    at = retry_at(event)
    return CommandEvent(
        seq=event.number,
        at=to_rfc3339(event.at),
        actor=actor_text(event.actor),
        verb=event.verb,
        from_=None if event.from_state is None else status_of(event.from_state),
        to=status_of(event.to_state),
        attempt=event.attempt,
        reason=event.reason,
        retry_at=moment(at),
        text=sentence(event, _called(event, names)),
    )


def _called(event: Event, names: Mapping[bytes, str]) -> str:
    kind, actor_id = event.actor.kind, event.actor.id
    if actor_id is None:
        return {"root": "the holder of the root token"}.get(kind, "the server")
    name = names.get(actor_id)
    what = f"the {kind}"
    return f"{what} {name}" if name is not None else f"{what} {id_text(actor_id)}"


def command_claim(claimed: Claimed) -> CommandClaim:
    """One command handed out to an agent of the command queue's dialect."""
    job = claimed.job
    return CommandClaim(
        uuid=id_text(job.id),
        type=type_of(job.kind),
        params=raw(job.params),
        attempt=claimed.attempt.number,
        expires_at=moment(job.start_by),
        lease_token=claimed.attempt.token.hex(),
        secret_fields=list(claimed.policy.secret_fields),
    )
