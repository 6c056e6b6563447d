"""Rows of agents, devices and keys."""

import json
from collections.abc import Callable

from farhand.engine.enrolment import (
    CODE_MS,
    PENDING_MS,
    Pending,
    Registered,
    Registration,
    check_code,
    code_digest,
    inbox_bounds,
    name_taken,
    replayed,
    revoked,
    signing_refused,
    user_code,
)
from farhand.engine.registry import DEFAULT_AGENT_GRANTS, Agent, Device
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.ids import new_id
from farhand.model.job import Actor
from farhand.storage.audit import note
from farhand.storage.capabilities import Capabilities
from farhand.storage.database import Database, GuardFailed, Tx
from farhand.storage.devices import upsert_devices
from farhand.storage.owners import own, user_of
from farhand.storage.registry_reads import RegistryReads
from farhand.storage.statements import columns

AGENT_COLUMNS = tuple(columns(Agent))
REGISTRY_CHANGED = ";;r"
COLLISIONS_MAX = 5


def agent_params(agent: Agent) -> dict[str, object]:
    """An agent as statement parameters."""
    return {name: getattr(agent, name) for name in AGENT_COLUMNS}


class RegistryRows(RegistryReads):
    """Agents, their keys, devices and owners.

    `changed` callbacks run after each commit here, and when another process says so.
    """

    def __init__(self, database: Database, clock: Clock, capabilities: Capabilities) -> None:
        super().__init__(database, clock)
        self.changed: list[Callable[[], None]] = []
        self._capabilities = capabilities

    def announce(self) -> None:
        """Tell whoever caches registry rows that they may be out of date."""
        for callback in self.changed:
            callback()

    async def register(self, request: Registration) -> Registered | Pending | Problem:
        """An agent presents itself: known, let in, put into the inbox or refused."""
        for _ in range(COLLISIONS_MAX):
            learned: dict[str, int] = {}
            try:
                async with self._database.transaction() as tx:
                    answer = await self._register(tx, request, learned)
                    # Who waits is nobody yet: what is cached of others stays as it is.
                    if isinstance(answer, Registered):
                        await tx.notify(REGISTRY_CHANGED)
            except GuardFailed:
                # Another process took the name or the key just now: look again.
                continue
            except OverflowError as error:
                return Problem("bad-field", f"capabilities: {error}", field="capabilities")
            self._capabilities.keep(learned)
            if isinstance(answer, Registered):
                self.announce()
            return answer
        return Problem("busy", "the same agent registers in many places at once; try again in a moment")

    async def _register(
        self, tx: Tx, request: Registration, learned: dict[str, int]
    ) -> Registered | Pending | Problem:
        now = self._clock.now_ms()
        row = await tx.one("agent_by_key", {"digest": request.key_digest})
        if row is not None:
            row = await tx.one("lock_agent", {"id": row[0], "org_id": request.org_id})
        holder = await tx.one("agent_by_name", {"org_id": request.org_id, "name": request.name})
        agent = Agent(*row) if row is not None else None
        if holder is not None and (agent is None or holder[0] != agent.id):
            return name_taken(request.name)
        if agent is not None and agent.state == "pending" and now - agent.created_at > PENDING_MS:
            await self._drop(tx, agent)
            agent = None
        if agent is None:
            if not request.open_enrolment:
                return await self._enqueue(tx, request, now)
            agent = self._new_agent(request, now, state="active", approved_by="open")
            await self._insert_or_look_again(tx, agent, request.key_digest, now)
            await self._give(tx, agent, Actor(kind="server"), now)
        refused = _misfit(agent, request) or await self._refuse_signature(tx, agent, request, now)
        if refused is not None:
            return refused
        if agent.state == "pending":
            return await self._still_pending(tx, agent, request, now)
        await self._refresh(tx, agent, request, learned, now)
        devices: list[Device] = []
        if request.devices is not None:
            devices = await upsert_devices(tx, agent, request.devices, now)
        return Registered(agent=agent, devices=devices)

    async def _refuse_signature(
        self, tx: Tx, agent: Agent, request: Registration, now: int
    ) -> Problem | None:
        """Why the registration's signature is not taken; otherwise its nonce is used up and its key bound."""
        refused = signing_refused(agent, request)
        if refused is not None or request.public_key is None:
            return refused
        nonce = {"agent_id": agent.id, "nonce": request.nonce, "org_id": agent.org_id, "now": now}
        if not await tx.each("insert_nonce", [nonce]):
            return replayed()
        if agent.public_key is None:
            agent.public_key = request.public_key
            actor = Actor(kind="agent", id=agent.id)
            await self._audit(tx, agent.org_id, actor, "agents.signing", agent.id, "presented")
        return None

    def _new_agent(self, request: Registration, now: int, *, state: str, approved_by: str | None) -> Agent:
        return Agent(
            id=new_id(now),
            org_id=request.org_id,
            name=request.name,
            live_name=request.name if state == "active" else None,
            dialect=request.dialect,
            state=state,
            approved_by=approved_by,
            version=request.version,
            runtime=request.runtime,
            address=request.address,
            grants=json.dumps(DEFAULT_AGENT_GRANTS),
            capabilities=0,
            owner_id=None,
            code_digest=None,
            code_expires_at=None,
            code_tries=0,
            first_seen_at=now,
            last_seen_at=now,
            created_at=now,
            public_key=request.public_key,
            bid=request.bid,
        )

    async def _give(self, tx: Tx, agent: Agent, actor: Actor, now: int) -> bool:
        """Make the user behind an actor an owner of the agent; whether that is news."""
        user_id = await user_of(tx, agent.org_id, actor)
        if agent.owner_id is None and user_id is not None:
            agent.owner_id = user_id
            await tx.run("save_agent", agent_params(agent))
        return await own(tx, agent, user_id, now)

    async def _insert(self, tx: Tx, agent: Agent, key_digest: bytes, now: int) -> bool:
        if not await tx.each("insert_agent", [agent_params(agent)]):
            return False
        key = {"digest": key_digest, "org_id": agent.org_id, "agent_id": agent.id, "now": now}
        return bool(await tx.each("insert_agent_key", [key]))

    async def _insert_or_look_again(self, tx: Tx, agent: Agent, key_digest: bytes, now: int) -> None:
        if not await self._insert(tx, agent, key_digest, now):
            raise GuardFailed("insert_agent")

    async def _enqueue(self, tx: Tx, request: Registration, now: int) -> Pending | Problem:
        rows = await tx.all("pending_agents", {"org_id": request.org_id, "limit": 1000})
        waiting: list[Agent] = []
        for entry in (Agent(*row) for row in rows):
            if now - entry.created_at > PENDING_MS:
                await self._drop(tx, entry)
            else:
                waiting.append(entry)
        full = inbox_bounds(waiting, request.address)
        if full is not None:
            return full
        agent = self._new_agent(request, now, state="pending", approved_by=None)
        await self._insert_or_look_again(tx, agent, request.key_digest, now)
        await self._refuse_signature(tx, agent, request, now)
        return await self._still_pending(tx, agent, request, now)

    async def _still_pending(self, tx: Tx, agent: Agent, request: Registration, now: int) -> Pending:
        if agent.code_expires_at is None or agent.code_expires_at <= now:
            agent.code_expires_at = now + CODE_MS
            agent.code_digest = code_digest(user_code(request.key_digest, agent.code_expires_at))
            agent.code_tries = 0
        agent.last_seen_at = now
        await tx.run("save_agent", agent_params(agent))
        return Pending(
            agent=agent,
            user_code=user_code(request.key_digest, agent.code_expires_at),
            expires_in_ms=agent.code_expires_at - now,
        )

    async def _drop(self, tx: Tx, agent: Agent) -> None:
        await tx.run("drop_agent_keys", {"agent_id": agent.id})
        await tx.run("drop_agent_nonces", {"agent_id": agent.id})
        await tx.run("drop_pending", {"id": agent.id})

    async def _refresh(
        self, tx: Tx, agent: Agent, request: Registration, learned: dict[str, int], now: int
    ) -> None:
        agent.version, agent.runtime = request.version, request.runtime
        agent.address, agent.last_seen_at = request.address, now
        agent.dialect = request.dialect
        if request.capabilities is not None:
            bits = await self._capabilities.bits(
                tx, request.capabilities, learned, org_id=agent.org_id, now=now
            )
            if bits != agent.capabilities:
                agent.capabilities = bits
                await tx.run("forget_refusals", {"agent_id": agent.id})
        await tx.run("save_agent", agent_params(agent))

    async def issue(self, org_id: int, name: str, key_digest: bytes, actor: Actor) -> Agent | Problem:
        """Make an agent that is never pending; its key is the caller's to show once."""
        now = self._clock.now_ms()
        request = Registration(org_id=org_id, key_digest=key_digest, name=name, dialect="native")
        agent = self._new_agent(request, now, state="active", approved_by="issued")
        agent.last_seen_at = None
        async with self._database.transaction() as tx:
            if not await tx.each("insert_agent", [agent_params(agent)]):
                return Problem("name-conflict", f"there is already an agent called {name!r}")
            key = {"digest": key_digest, "org_id": agent.org_id, "agent_id": agent.id, "now": now}
            if not await tx.each("insert_agent_key", [key]):
                raise GuardFailed("insert_agent_key")
            await self._give(tx, agent, actor, now)
            await self._audit(tx, org_id, actor, "agents.issue", agent.id, name)
            await tx.notify(REGISTRY_CHANGED)
        self.announce()
        return agent

    async def approve(
        self, org_id: int, agent_id: bytes, actor: Actor, *, code: str | None
    ) -> Agent | Problem:
        """Let a pending agent in, by its code or, with None, marked as approved without one.

        An agent that is in gets the approver as one more owner; it shows no code any more.
        """
        now = self._clock.now_ms()
        async with self._database.transaction() as tx:
            row = await tx.one("lock_agent", {"id": agent_id, "org_id": org_id})
            agent = Agent(*row) if row is not None else None
            if agent is None:
                return Problem("not-found", "there is no such agent")
            decide = self._let_in if agent.state == "pending" else self._share
            refused = await decide(tx, agent, actor, code, now)
            if refused is not None:
                return refused
            await tx.notify(REGISTRY_CHANGED)
        self.announce()
        return agent

    async def _let_in(self, tx: Tx, agent: Agent, actor: Actor, code: str | None, now: int) -> Problem | None:
        wrong = check_code(agent, code, now) if code is not None else None
        if wrong is not None:
            agent.code_tries += 1
            await tx.run("save_agent", agent_params(agent))
            return wrong
        if await tx.one("agent_by_name", {"org_id": agent.org_id, "name": agent.name}) is not None:
            return Problem(
                "name-conflict", f"there is already an agent called {agent.name!r}; revoke one first"
            )
        agent.state, agent.live_name = "active", agent.name
        agent.approved_by = "code" if code is not None else "without_code"
        agent.code_digest = agent.code_expires_at = None
        await tx.run("save_agent", agent_params(agent))
        await self._give(tx, agent, actor, now)
        await self._audit(tx, agent.org_id, actor, "agents.approve", agent.id, agent.approved_by)
        return None

    async def _share(self, tx: Tx, agent: Agent, actor: Actor, code: str | None, now: int) -> Problem | None:
        if agent.state == "revoked":
            return Problem("state-conflict", "the agent is revoked, it does not wait for approval")
        if code is not None:
            return Problem(
                "state-conflict",
                f"the agent is {agent.state} and shows no code; to own it too, approve it without the code",
            )
        if not await self._give(tx, agent, actor, now):
            return Problem(
                "state-conflict", f"the agent is {agent.state} and yours, it does not wait for approval"
            )
        await self._audit(tx, agent.org_id, actor, "agents.share", agent.id, None)
        return None

    async def revoke(self, org_id: int, agent_id: bytes, actor: Actor) -> Agent | Problem:
        """Throw an agent out at once: its keys stop working and its name is free. The keys' digests
        stay, so that it is told so. What it holds goes back by its leases."""
        return await self._change(org_id, agent_id, actor, "agents.revoke", _revoke)

    async def set_grants(
        self, org_id: int, agent_id: bytes, grants: list[str], actor: Actor
    ) -> Agent | Problem:
        """Replace an agent's grants."""

        def change(agent: Agent) -> None:
            agent.grants = json.dumps(grants)

        return await self._change(org_id, agent_id, actor, "agents.grant", change)

    async def set_signing(
        self, org_id: int, agent_id: bytes, actor: Actor, *, public_key: bytes | None, required: bool
    ) -> Agent | Problem:
        """Set the key that an agent signs with, and whether it has to."""

        def change(agent: Agent) -> None:
            agent.public_key, agent.signing = public_key, int(required)

        said = "off" if public_key is None else "required" if required else "optional"
        return await self._change(org_id, agent_id, actor, "agents.signing", change, data=said)

    async def set_state(self, org_id: int, agent_id: bytes, state: str, actor: Actor) -> Agent | Problem:
        """Pause, drain or resume an agent."""

        def change(agent: Agent) -> None:
            agent.state = state

        return await self._change(org_id, agent_id, actor, f"agents.{state}", change)

    async def _change(
        self,
        org_id: int,
        agent_id: bytes,
        actor: Actor,
        action: str,
        change: Callable[[Agent], None],
        *,
        data: str | None = None,
    ) -> Agent | Problem:
        async with self._database.transaction() as tx:
            row = await tx.one("lock_agent", {"id": agent_id, "org_id": org_id})
            agent = Agent(*row) if row is not None else None
            if agent is None:
                return Problem("not-found", "there is no such agent")
            if agent.state == "revoked":
                return Problem("state-conflict", "the agent has been revoked; issue or approve a new one")
            if agent.state == "pending" and action != "agents.revoke":
                return Problem("state-conflict", "the agent still waits for approval; approve it first")
            change(agent)
            await tx.run("save_agent", agent_params(agent))
            await self._audit(tx, org_id, actor, action, agent_id, data or agent.grants)
            await tx.notify(REGISTRY_CHANGED)
        self.announce()
        return agent

    async def _audit(
        self, tx: Tx, org_id: int, actor: Actor, action: str, subject: bytes, data: str | None
    ) -> None:
        now = self._clock.now_ms()
        await note(tx, org_id=org_id, now=now, actor=actor, action=action, subject=subject, data=data)

    async def seen(self, moments: dict[bytes, int]) -> None:
        """Write down when agents were last seen, many at a time."""
        async with self._database.transaction() as tx:
            await tx.bulk("see_agent", [{"id": agent, "at": at} for agent, at in moments.items()])


def _misfit(agent: Agent, request: Registration) -> Problem | None:
    if agent.state == "revoked":
        return revoked()
    if agent.state == "pending" or agent.live_name == request.name:
        return None
    return Problem("name-taken", f"this key belongs to the agent {agent.name!r}; register under that name")


def _revoke(agent: Agent) -> None:
    agent.state = "revoked"
    agent.live_name = None
    agent.code_digest = None
