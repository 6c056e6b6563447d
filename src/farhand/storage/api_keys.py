"""Rows of API keys: what clients authenticate with."""

import json
from collections.abc import Callable

from farhand.engine.registry import ApiKey
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.ids import new_id
from farhand.model.job import Actor
from farhand.storage.audit import note
from farhand.storage.database import Database, Row
from farhand.storage.owners import named_user
from farhand.storage.registry_rows import REGISTRY_CHANGED


class ApiKeyRows:
    """API keys; `announce` is called after each change."""

    def __init__(self, database: Database, clock: Clock, announce: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._announce = announce

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
        """Store a new key by its digest, for a user by name; without one for the tenant's first."""
        now = self._clock.now_ms()
        key_id = new_id(now)
        async with self._database.transaction() as tx:
            user_id = await named_user(tx, org_id, user, now)
            params: dict[str, object] = {
                "id": key_id,
                "org_id": org_id,
                "user_id": user_id,
                "name": name,
                "digest": digest,
                "grants": json.dumps(grants),
                "now": now,
            }
            if not await tx.each("insert_api_key", [params]):
                return Problem(
                    "name-conflict", f"there is already a key called {name!r}; revoke it or choose another"
                )
            await note(
                tx,
                org_id=org_id,
                now=now,
                actor=actor,
                action="keys.create",
                subject=key_id,
                data=str(params["grants"]),
            )
            await tx.notify(REGISTRY_CHANGED)
            row = await tx.one("api_key_by_id", {"id": key_id, "org_id": org_id})
        self._announce()
        return _listed(row) if row is not None else Problem("not-found", "the key is gone again")

    async def find(self, digest: bytes) -> ApiKey | None:
        """The key in force behind a digest."""
        async with self._database.read() as reader:
            row = await reader.one("api_key", {"digest": digest})
        if row is None:
            return None
        return ApiKey(
            id=row[0],
            org_id=row[1],
            user_id=row[2],
            name=row[3],
            grants=tuple(json.loads(row[4])),
            created_at=row[5],
        )

    async def of_user(self, org_id: int, user_id: bytes) -> list[bytes]:
        """The ids of all keys of a user, revoked ones included."""
        async with self._database.read() as reader:
            rows = await reader.all("user_keys", {"org_id": org_id, "user_id": user_id})
        return [row[0] for row in rows]

    async def list(self, org_id: int) -> list[ApiKey]:
        """All keys by name, revoked ones included."""
        async with self._database.read() as reader:
            rows = await reader.all("list_api_keys", {"org_id": org_id})
        return [_listed(row) for row in rows]

    async def revoke(self, org_id: int, key_id: bytes, actor: Actor) -> ApiKey | Problem:
        """Stop a key from working, at once; one that is revoked already stays as it is."""
        now = self._clock.now_ms()
        async with self._database.transaction() as tx:
            changed = await tx.run("revoke_api_key", {"id": key_id, "org_id": org_id, "now": now})
            row = await tx.one("api_key_by_id", {"id": key_id, "org_id": org_id})
            if row is None:
                return Problem("not-found", "there is no key with this id, or it is not yours")
            if changed:
                await note(
                    tx,
                    org_id=org_id,
                    now=now,
                    actor=actor,
                    action="keys.revoke",
                    subject=key_id,
                    data=row[1],
                )
                await tx.notify(REGISTRY_CHANGED)
        self._announce()
        return _listed(row)


def _listed(row: Row) -> ApiKey:
    return ApiKey(
        id=row[0],
        name=row[1],
        grants=tuple(json.loads(row[2])),
        created_at=row[3],
        revoked_at=row[4],
        user=row[5],
    )
