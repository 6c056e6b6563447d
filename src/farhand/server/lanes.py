"""The lanes of an agent: what it may claim from, and under which names it asks for them."""

import hashlib
from collections.abc import Iterable
from typing import Final

from farhand.model.ids import parse_id
from farhand.server.principal import COMMANDS, Principal

OWNERS: Final = "owners"
"""The word by which a native claim names the lanes of the agent's owners."""


def pinned_lane(agent_id: bytes) -> bytes:
    """The lane of work that is for one agent alone, but is no command.

    Commands have the agent's id as lane and need a grant of their own, which this work does not.
    """
    return hashlib.sha256(b"farhand pinned lane\0" + agent_id).digest()[:16]


def lanes_of(principal: Principal) -> tuple[bytes, ...]:
    """All lanes that an agent may claim from."""
    return (*principal.lanes, *_owners(principal), *_own(principal))


def named_lanes(principal: Principal, words: Iterable[str]) -> tuple[bytes, ...]:
    """The lanes of a claim that names them: devices, the agent itself, its owners.

    What is nobody's, or another's, is left out.
    """
    devices = frozenset(principal.lanes)
    agent_id = principal.id
    found: dict[bytes, None] = {}
    for word in words:
        if word == OWNERS:
            found.update(dict.fromkeys(_owners(principal)))
            continue
        lane = parse_id(word)
        if lane is None:
            continue
        if lane == agent_id:
            found.update(dict.fromkeys(_own(principal)))
        elif lane in devices:
            found[lane] = None
    return tuple(found)


def _owners(principal: Principal) -> tuple[bytes, ...]:
    return principal.owner_lanes if _is_capable(principal) else ()


def _own(principal: Principal) -> tuple[bytes, ...]:
    if principal.agent is None:
        return ()
    commands = (principal.agent.id,) if COMMANDS in principal.grants else ()
    return (*commands, pinned_lane(principal.agent.id)) if _is_capable(principal) else commands


def _is_capable(principal: Principal) -> bool:
    """Whether there may be work in lanes that are no device's: all of it asks for a capability.

    Agents that only print declare none, and their claims need not look there.
    """
    return principal.agent is not None and principal.agent.capabilities != 0
