"""Retention: finished jobs go in small batches, their events and payload rows with them."""

from collections import Counter

from farhand.storage.database import Database, Params

KEY_MEMORY_MS = 24 * 3_600_000
RESERVED_MS = 600_000


async def prune(database: Database, now: int, limit: int) -> tuple[int, list[bytes]]:
    """Delete up to `limit` jobs in one transaction.

    Returns how many went and which stored payloads no job needs any more; the caller removes
    those from the payload store, so that a crash between the two leaves bytes, never a hole.
    """
    async with database.transaction() as tx:
        rows = await tx.all("prunable", {"now": now, "limit": limit})
        going: list[Params] = [{"job_seq": row[0]} for row in rows]
        stored = await tx.each("stored_of", going) + await tx.each("result_bodies_of", going)
        await tx.bulk("delete_job", [{"seq": row[0]} for row in rows])
        gone = Counter((row[3], row[2], row[1]) for row in rows)
        counts = [
            {"slot": database.slot, "org_id": org, "kind": kind, "state": state, "delta": -n, "now": now}
            for (org, kind, state), n in sorted(gone.items())
        ]
        await tx.bulk("add_count", counts)
        unused: list[bytes] = []
        for sha256 in {row[0] for row in stored if row[0] is not None}:
            if await tx.one("stored_uses", {"sha256": sha256}) is None:
                unused.append(sha256)
    return len(rows), unused


async def forget_keys(database: Database, now: int) -> int:
    """Drop idempotency keys past their memory; how many."""
    async with database.transaction() as tx:
        horizons = {"horizon": now - KEY_MEMORY_MS, "reserved_horizon": now - RESERVED_MS}
        return await tx.run("old_keys", horizons)


async def forget_nonces(database: Database, horizon: int) -> int:
    """Drop nonces used before a moment; how many."""
    async with database.read() as reader:
        if await reader.one("old_nonce", {"horizon": horizon}) is None:
            return 0
    async with database.transaction() as tx:
        return await tx.run("drop_nonces", {"horizon": horizon})
