"""The audit log: who changed what, written with the change itself."""

from farhand.model.job import Actor
from farhand.storage.database import Tx


async def note(
    tx: Tx, *, org_id: int, now: int, actor: Actor, action: str, subject: bytes, data: str | None
) -> None:
    """Write one entry; `subject` is the id of what was changed."""
    params = {
        "org_id": org_id,
        "now": now,
        "actor_kind": actor.kind,
        "actor_id": actor.id,
        "action": action,
        "subject": subject.hex(),
        "data": data,
    }
    await tx.run("insert_audit", params)
