"""Agents, devices and keys as the engine holds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_ORG: Final = 1
"""The tenant of whoever names none."""

ONLINE_MS: Final = 60_000
AGENT_STATES: Final = ("pending", "active", "paused", "draining", "revoked")
AGENT_GRANTS: Final = ("agent.work", "commands.process")
DEFAULT_AGENT_GRANTS: Final = ("agent.work",)
CLIENT_GRANTS: Final = (
    "jobs.submit",
    "jobs.read",
    "jobs.manage",
    "printers.read",
    "agents.read",
    "agents.manage",
    "keys.manage",
    "metrics.read",
    "audit.read",
    "results.secret",
)


@dataclass(slots=True)
class Agent:
    """One agent row. Field order is the column order of the `{agent_columns}` token.

    `signing` is 1 where every request must be signed under `public_key` (Ed25519, 32 bytes).
    `bid` is the mask of the identifier of an agent that has one; `owner_id` its first owner.
    """

    id: bytes
    org_id: int
    name: str
    live_name: str | None
    dialect: str
    state: str
    approved_by: str | None
    version: str | None
    runtime: str | None
    address: str | None
    grants: str
    capabilities: int
    owner_id: bytes | None
    code_digest: bytes | None
    code_expires_at: int | None
    code_tries: int
    first_seen_at: int
    last_seen_at: int | None
    created_at: int
    public_key: bytes | None = None
    signing: int = 0
    bid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """A device's time of polling: `capabilities` are the words it said, alive until `expires_at`."""

    id: bytes
    agent_id: bytes
    org_id: int
    user_agent: str | None
    capabilities: Mapping[str, str]
    created_at: int
    expires_at: int


@dataclass(slots=True)
class Device:
    """One device row. Field order is the column order of the `{device_columns}` token."""

    id: bytes
    org_id: int
    agent_id: bytes
    number: int
    name: str
    kind: str
    capabilities: str
    state: str
    reason: str | None
    gone_at: int | None
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One API key without the secret."""

    id: bytes
    name: str
    grants: tuple[str, ...]
    created_at: int
    revoked_at: int | None = None
    org_id: int = 1
    user_id: bytes | None = None
    user: str | None = None


def online(last_seen_at: int | None, now: int) -> bool:
    """Whether an agent was seen within the last minute."""
    return last_seen_at is not None and now - last_seen_at <= ONLINE_MS
