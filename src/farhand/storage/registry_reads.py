"""What is read of agents, devices and owners."""

from typing import Any

from farhand.engine.enrolment import PENDING_MS
from farhand.engine.registry import Agent, Device
from farhand.model.clock import Clock
from farhand.storage.database import Database


class RegistryReads:
    """The reading half of the registry."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def agent_by_key(self, digest: bytes) -> Agent | None:
        """The agent behind a key, revoked and pending ones included."""
        return await self._agent("agent_by_key", {"digest": digest})

    async def signer(self, agent_id: bytes) -> Agent | None:
        """The agent of this id, of whatever tenant: who signs is known by id alone."""
        return await self._agent("signer", {"id": agent_id})

    async def agent(self, org_id: int, agent_id: bytes) -> Agent | None:
        """One agent."""
        return await self._agent("agent_by_id", {"id": agent_id, "org_id": org_id})

    async def agent_by_name(self, org_id: int, name: str) -> Agent | None:
        """The live agent of this name."""
        return await self._agent("agent_by_name", {"org_id": org_id, "name": name})

    async def _agent(self, statement: str, params: dict[str, object]) -> Agent | None:
        async with self._database.read() as reader:
            row = await reader.one(statement, params)
        return Agent(*row) if row is not None else None

    async def agents(self, org_id: int, after: tuple[str, bytes] | None, limit: int) -> list[Agent]:
        """Agents by name and id, without the inbox; `after` is the name and id of the last one seen."""
        name, agent_id = after or (None, None)
        params = {"org_id": org_id, "after": name, "after_id": agent_id, "limit": limit}
        async with self._database.read() as reader:
            return [Agent(*row) for row in await reader.all("list_agents", params)]

    async def pending(self, org_id: int) -> list[Agent]:
        """The inbox, oldest first, without entries past their day."""
        now = self._clock.now_ms()
        async with self._database.read() as reader:
            rows = await reader.all("pending_agents", {"org_id": org_id, "limit": 1000})
        return [agent for agent in (Agent(*row) for row in rows) if now - agent.created_at <= PENDING_MS]

    async def owners(self, agent_id: bytes) -> tuple[bytes, ...]:
        """The users that own an agent, the first one first."""
        async with self._database.read() as reader:
            rows = await reader.all("agent_owners", {"agent_id": agent_id})
        return tuple(row[0] for row in rows)

    async def owner_names(self, org_id: int, first: str, last: str) -> dict[bytes, list[str]]:
        """The names of the owners of all agents whose own names lie between two."""
        names: dict[bytes, list[str]] = {}
        async with self._database.read() as reader:
            for row in await reader.all("owner_names", {"org_id": org_id, "first": first, "last": last}):
                names.setdefault(row[0], []).append(row[1])
        return names

    async def first_user(self, org_id: int) -> bytes | None:
        """The user that stands for whoever holds the root token."""
        async with self._database.read() as reader:
            row = await reader.one("org_user", {"org_id": org_id})
        return row[0] if row is not None else None

    async def devices_of(self, agent_id: bytes) -> list[Device]:
        """The devices behind an agent, gone ones included."""
        async with self._database.read() as reader:
            return [Device(*row) for row in await reader.all("agent_devices", {"agent_id": agent_id})]

    async def device(self, org_id: int, device_id: bytes) -> Device | None:
        """One device."""
        async with self._database.read() as reader:
            row = await reader.one("device_by_id", {"id": device_id, "org_id": org_id})
        return Device(*row) if row is not None else None

    async def devices(
        self, org_id: int, after: tuple[str, bytes] | None, limit: int, *, with_gone: bool
    ) -> list[tuple[Device, str, int | None, str]]:
        """Devices by name and id, each with its agent's name, when that was last seen, and its state."""
        name, device_id = after or (None, None)
        params = {
            "org_id": org_id,
            "after": name,
            "after_id": device_id,
            "limit": limit,
            "with_gone": int(with_gone),
        }
        async with self._database.read() as reader:
            rows: Any = await reader.all("list_devices", params)
        return [(Device(*row[:-3]), row[-3], row[-2], row[-1]) for row in rows]
