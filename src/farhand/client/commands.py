"""The calls of those who issue commands, as plans without I/O; `command_id` is the UUID."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from farhand.client.errors import CommandOpen
from farhand.client.plan import Call, Plan, ask, new_idempotency_key, reads
from farhand.client.requests import Page, everything, listing, members, path_of, post
from farhand.client.waiting import HOLD_S, watch
from farhand.model.clock import Clock
from farhand.model.secret import MASK
from farhand.protocol.commands import CommandCancel, CommandEvent, CommandRequest, CommandView
from farhand.protocol.wire import encode

PATH: Final = "/commands"


class Command(CommandView, frozen=True):
    """A command. What it was given and what came of it are in `params` and `result`, but never
    in its repr: a result may hold a secret, and a repr ends in a log.
    """

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        hidden = {name: MASK for name in ("params", "result") if said[name] is not None}
        return [*(said | hidden).items()]

    def __repr__(self) -> str:
        return f"Command({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


def issue_command(
    type: str,
    agent: str,
    params: Mapping[str, Any] | None = None,
    *,
    idempotency_key: str | None = None,
    expires_in: int | None = None,
) -> Plan[Command]:
    """Writes down a command for an agent, by its name or id.

    The idempotency key is made up when there is none, so that a try after a lost reply makes
    no second command. `expires_in` (seconds) is how long it may wait to be collected. Raises
    ApiError `active-conflict`, which names the live one, while the agent has a command of this
    type that is not over.
    """
    request = CommandRequest(
        type=type,
        agent=agent,
        params=dict(params or {}),
        idempotency_key=idempotency_key or new_idempotency_key(),
        expires_in=expires_in,
    )
    return ask(
        Call(
            method="POST",
            path=PATH,
            parse=reads(Command),
            body=encode(members(request)),
            repeatable=True,
        )
    )


def command(command_id: str, *, wait_s: int = 0) -> Plan[Command]:
    """One command, with its result. With `wait_s` the server answers when it changes, or after
    that time.
    """
    return ask(_look(command_id, wait_s))


def wait_command(
    command_id: str,
    *,
    timeout_ms: int | None = None,
    on_change: Callable[[Command], None] | None = None,
    hold_s: int = HOLD_S,
    clock: Clock | None = None,
) -> Plan[Command]:
    """Waits until a command is over: completed, with its result, or failed, expired, cancelled.

    One whose outcome nobody knows (`state` uncertain) ends the wait, too. `on_change` is called
    with what is first seen and with every change. Raises CommandOpen when `timeout_ms` passed
    before. A server that is away for a while is waited for.
    """
    return watch(
        lambda wait_s, patience_ms: _look(command_id, wait_s, patience_ms),
        lambda seen: seen.final or seen.state == "uncertain",
        CommandOpen,
        timeout_ms=timeout_ms,
        on_change=on_change,
        hold_s=hold_s,
        clock=clock,
    )


def commands(
    *,
    status: str | None = None,
    type: str | None = None,
    agent: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Plan[Page[Command]]:
    """A page of the newest commands; `agent` is a name or an id."""
    query = {
        "status": status, "type": type, "agent": agent,
        "limit": None if limit is None else str(limit), "cursor": cursor,
    }  # fmt: skip
    return ask(listing(PATH, Page[Command], query))


def command_events(command_id: str) -> Plan[list[CommandEvent]]:
    """A command's whole trail, oldest first: what happened, when and why, in words."""
    return everything(path_of(PATH, command_id, "events"), Page[CommandEvent])


def cancel_command(command_id: str, *, reason: str | None = None) -> Plan[Command]:
    """Asks for a command to be cancelled; one in progress may still end otherwise."""
    message = None if reason is None else CommandCancel(reason=reason)
    return ask(post(path_of(PATH, command_id, "cancel"), Command, message, repeatable=True))


def retry_command(command_id: str) -> Plan[Command]:
    """Issues a finished or uncertain command again, as a new one linked to it."""
    return ask(post(path_of(PATH, command_id, "retry"), Command))


def ack_command(command_id: str) -> Plan[Command]:
    """Says that the result has served its purpose; the secrets in it are destroyed."""
    return ask(post(path_of(PATH, command_id, "ack"), Command, repeatable=True))


def _look(command_id: str, wait_s: int, patience_ms: int | None = None) -> Call[Command]:
    return Call(
        method="GET",
        path=path_of(PATH, command_id),
        parse=reads(Command),
        repeatable=True,
        wait_s=wait_s,
        patience_ms=patience_ms,
    )
