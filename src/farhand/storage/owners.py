"""Who owns agents: the users behind the keys that let them in."""

from farhand.engine.registry import Agent
from farhand.model.ids import new_id
from farhand.model.job import Actor
from farhand.storage.database import Reader, Tx


async def user_of(reader: Reader, org_id: int, actor: Actor) -> bytes | None:
    """The user behind an actor; whoever is no key stands for the tenant's first user."""
    if actor.kind == "key" and actor.id is not None:
        row = await reader.one("key_user", {"id": actor.id, "org_id": org_id})
        if row is not None and row[0] is not None:
            return row[0]
    row = await reader.one("org_user", {"org_id": org_id})
    return row[0] if row is not None else None


async def named_user(tx: Tx, org_id: int, name: str | None, now: int) -> bytes | None:
    """The user of a name, made when it is new; without a name the tenant's first user."""
    if name is None:
        row = await tx.one("org_user", {"org_id": org_id})
        return row[0] if row is not None else None
    await tx.run("insert_user", {"id": new_id(now), "org_id": org_id, "name": name, "now": now})
    row = await tx.one("user_by_name", {"org_id": org_id, "name": name})
    return row[0] if row is not None else None


async def own(tx: Tx, agent: Agent, user_id: bytes | None, now: int) -> bool:
    """Make a user an owner of an agent; whether it was none before."""
    if user_id is None:
        return False
    owner = {"agent_id": agent.id, "user_id": user_id, "org_id": agent.org_id, "now": now}
    return bool(await tx.each("insert_owner", [owner]))
