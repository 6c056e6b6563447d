"""What the engine needs of the outside about agents and keys: a registry."""

from collections.abc import Callable, Mapping
from typing import Protocol

from farhand.engine.enrolment import Pending, Registered, Registration
from farhand.engine.registry import Agent, AgentSession, ApiKey, Device
from farhand.model.errors import Problem
from farhand.model.job import Actor


class Registry(Protocol):
    """Agents, their keys and devices. `changed` callbacks run when any of it may have changed."""

    changed: list[Callable[[], None]]

    async def register(self, request: Registration) -> Registered | Pending | Problem:
        """An agent presents itself: known, let in, put into the inbox or refused."""
        ...

    async def present_bid(
        self, bid: str, *, address: str | None, runtime: str | None, user_agent: str | None = None
    ) -> Agent | Pending | Problem:
        """A device presents its identifier: it is known, waits for approval, or was shut out."""
        ...

    async def open_session(
        self,
        org_id: int,
        agent_id: bytes,
        session_id: bytes | None,
        capabilities: Mapping[str, str],
        user_agent: str | None,
        *,
        names: frozenset[str] = frozenset(),
    ) -> AgentSession | Problem:
        """The agent's own live session of this id, refreshed, or a new one; `names` it can do now."""
        ...

    async def session(self, agent_id: bytes, session_id: bytes) -> AgentSession | None:
        """A live session of this agent; None for any other."""
        ...

    async def refresh_session(
        self, session: AgentSession, capabilities: Mapping[str, str], *, names: frozenset[str] = frozenset()
    ) -> AgentSession | Problem:
        """A session alive for another day, with what its device says it can do now."""
        ...

    async def owners(self, agent_id: bytes) -> tuple[bytes, ...]:
        """The users that own an agent, the first one first."""
        ...

    async def owner_names(self, org_id: int, first: str, last: str) -> dict[bytes, list[str]]:
        """The names of the owners of all agents whose own names lie between two."""
        ...

    async def first_user(self, org_id: int) -> bytes | None:
        """The user that stands for whoever holds the root token."""
        ...

    async def issue(self, org_id: int, name: str, key_digest: bytes, actor: Actor) -> Agent | Problem:
        """Make an agent that is never pending."""
        ...

    async def approve(
        self, org_id: int, agent_id: bytes, actor: Actor, *, code: str | None
    ) -> Agent | Problem:
        """Let a pending agent in, by its code or, with None, marked as approved without one.

        An agent that is in gets the approver as one more owner.
        """
        ...

    async def revoke(self, org_id: int, agent_id: bytes, actor: Actor) -> Agent | Problem:
        """Throw an agent out at once."""
        ...

    async def set_grants(
        self, org_id: int, agent_id: bytes, grants: list[str], actor: Actor
    ) -> Agent | Problem:
        """Replace an agent's grants."""
        ...

    async def set_signing(
        self, org_id: int, agent_id: bytes, actor: Actor, *, public_key: bytes | None, required: bool
    ) -> Agent | Problem:
        """Set the key that an agent signs with, and whether it has to."""
        ...

    async def set_state(self, org_id: int, agent_id: bytes, state: str, actor: Actor) -> Agent | Problem:
        """Pause, drain or resume an agent."""
        ...

    async def agent_by_key(self, digest: bytes) -> Agent | None:
        """The agent behind a key, revoked and pending ones included."""
        ...

    async def signer(self, agent_id: bytes) -> Agent | None:
        """The agent of this id, of whatever tenant: who signs is known by id alone."""
        ...

    async def agent(self, org_id: int, agent_id: bytes) -> Agent | None:
        """One agent."""
        ...

    async def agent_by_name(self, org_id: int, name: str) -> Agent | None:
        """The agent in force that has this name."""
        ...

    async def agents(self, org_id: int, after: tuple[str, bytes] | None, limit: int) -> list[Agent]:
        """Agents by name, without the inbox."""
        ...

    async def pending(self, org_id: int) -> list[Agent]:
        """The inbox, oldest first."""
        ...

    async def seen(self, moments: dict[bytes, int]) -> None:
        """Write down when agents were last seen, many at a time."""
        ...

    async def devices_of(self, agent_id: bytes) -> list[Device]:
        """The devices behind an agent, gone ones included."""
        ...

    async def device(self, org_id: int, device_id: bytes) -> Device | None:
        """One device."""
        ...

    async def devices(
        self, org_id: int, after: tuple[str, bytes] | None, limit: int, *, with_gone: bool
    ) -> list[tuple[Device, str, int | None, str]]:
        """Devices by name, each with its agent's name, when that was last seen, and its state."""
        ...


class ApiKeys(Protocol):
    """Client keys."""

    async def create(
        self,
        org_id: int,
        name: str,
        digest: bytes,
        grants: list[str],
        actor: Actor,
        *,
        user: str | None = None,
    ) -> ApiKey | Problem:
        """Store a new key by its digest, for a user by name, who may be new."""
        ...

    async def of_user(self, org_id: int, user_id: bytes) -> list[bytes]:
        """The ids of all keys of a user, revoked ones included."""
        ...

    async def find(self, digest: bytes) -> ApiKey | None:
        """The key in force behind a digest."""
        ...

    async def list(self, org_id: int) -> list[ApiKey]:
        """All keys by name, revoked ones included."""
        ...

    async def revoke(self, org_id: int, key_id: bytes, actor: Actor) -> ApiKey | Problem:
        """Stop a key from working, at once."""
        ...
