"""Devices that come with an identifier instead of a key, and their sessions."""

import hashlib
import json
import secrets
from collections.abc import Mapping

from farhand.engine.enrolment import (
    SESSION_MS,
    SESSIONS_PER_AGENT,
    Pending,
    Registered,
    Registration,
    bid_mask,
    bid_name,
    revoked,
)
from farhand.engine.registry import DEFAULT_ORG, Agent, AgentSession
from farhand.model.errors import Problem
from farhand.storage.database import Row, Tx
from farhand.storage.registry_rows import REGISTRY_CHANGED, RegistryRows, agent_params


class DeviceRegistry(RegistryRows):
    """The registry with devices of the pulsar dialect: each is an agent."""

    async def present_bid(
        self, bid: str, *, address: str | None, runtime: str | None, user_agent: str | None = None
    ) -> Agent | Pending | Problem:
        """A device presents its identifier: it is known, waits for approval, or was shut out."""
        digest = hashlib.sha256(bid.encode()).digest()
        known = await self.agent_by_key(digest)
        if known is not None and known.state != "pending":
            return revoked() if known.state == "revoked" else known
        request = Registration(
            org_id=DEFAULT_ORG,
            key_digest=digest,
            name=bid_name(runtime or "device", digest),
            dialect="pulsar",
            version=user_agent,
            runtime=runtime,
            address=address,
            bid=bid_mask(bid),
        )
        answer = await self.register(request)
        return answer.agent if isinstance(answer, Registered) else answer

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
        """The agent's own live session of this id, refreshed, or a new one.

        `names` are the capabilities that the words stand for; the agent has them from now on.
        """
        found = await self.session(agent_id, session_id) if session_id is not None else None
        now = self._clock.now_ms()
        session = AgentSession(
            id=found.id if found is not None else secrets.token_bytes(16),
            agent_id=agent_id,
            org_id=org_id,
            user_agent=user_agent or (found.user_agent if found is not None else None),
            capabilities=dict(capabilities),
            created_at=found.created_at if found is not None else now,
            expires_at=now + SESSION_MS,
        )
        return await self._keep(session, names, new=found is None)

    async def refresh_session(
        self, session: AgentSession, capabilities: Mapping[str, str], *, names: frozenset[str] = frozenset()
    ) -> AgentSession | Problem:
        """A session alive for another day, with what its device says it can do now."""
        fresh = AgentSession(
            id=session.id,
            agent_id=session.agent_id,
            org_id=session.org_id,
            user_agent=session.user_agent,
            capabilities=dict(capabilities),
            created_at=session.created_at,
            expires_at=self._clock.now_ms() + SESSION_MS,
        )
        return await self._keep(fresh, names, new=False)

    async def session(self, agent_id: bytes, session_id: bytes) -> AgentSession | None:
        """A live session of this agent; None for any other."""
        params = {"id": session_id, "agent_id": agent_id, "now": self._clock.now_ms()}
        async with self._database.read() as reader:
            row = await reader.one("session", params)
        return _session(row) if row is not None else None

    async def _keep(
        self, session: AgentSession, names: frozenset[str], *, new: bool
    ) -> AgentSession | Problem:
        learned: dict[str, int] = {}
        try:
            async with self._database.transaction() as tx:
                changed = await self._set_capabilities(tx, session, names, learned)
                if new:
                    await self._make_room(tx, session)
                await tx.run("insert_session" if new else "refresh_session", _params(session))
                if changed:
                    await tx.notify(REGISTRY_CHANGED)
        except OverflowError as error:
            return Problem("bad-field", f"capabilities: {error}", field="capabilities")
        self._capabilities.keep(learned)
        if changed:
            self.announce()
        return session

    async def _set_capabilities(
        self, tx: Tx, session: AgentSession, names: frozenset[str], learned: dict[str, int]
    ) -> bool:
        """Note on the agent what it can do now; whether that is news.

        What it refused before it may then be asked again.
        """
        row = await tx.one("lock_agent", {"id": session.agent_id, "org_id": session.org_id})
        if row is None:
            return False
        agent, now = Agent(*row), self._clock.now_ms()
        bits = await self._capabilities.bits(tx, names, learned, org_id=session.org_id, now=now)
        if bits == agent.capabilities:
            return False
        agent.capabilities = bits
        await tx.run("save_agent", agent_params(agent))
        await tx.run("forget_refusals", {"agent_id": agent.id})
        return True

    async def _make_room(self, tx: Tx, session: AgentSession) -> None:
        """Sessions past their day go, and the oldest of a device that opens one after the other."""
        old = await tx.all("expired_sessions", {"now": session.created_at})
        mine = await tx.all("agent_sessions", {"agent_id": session.agent_id})
        gone = {row[0] for row in old} | {row[0] for row in mine[SESSIONS_PER_AGENT - 1 :]}
        for session_id in sorted(gone):
            await tx.run("drop_session", {"id": session_id})
            await tx.run("drop_counters", {"org_id": session.org_id, "subject": session_id})


def _params(session: AgentSession) -> dict[str, object]:
    return {
        "id": session.id,
        "agent_id": session.agent_id,
        "org_id": session.org_id,
        "user_agent": session.user_agent,
        "capabilities": json.dumps(dict(session.capabilities), sort_keys=True),
        "now": session.created_at,
        "expires_at": session.expires_at,
    }


def _session(row: Row) -> AgentSession:
    return AgentSession(
        id=row[0],
        agent_id=row[1],
        org_id=row[2],
        user_agent=row[3],
        capabilities=json.loads(row[4]),
        created_at=row[5],
        expires_at=row[6],
    )
