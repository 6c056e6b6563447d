"""Rows of secrets: read by their issuer, dropped when they are over, their keys destroyed after them."""

from typing import Any, Final

import msgspec

from farhand.engine.requests import Order
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.job import TERMINAL, Job
from farhand.storage.audit import note
from farhand.storage.database import Database
from farhand.storage.vault import Sealed, Vault

BATCH: Final = 500
AHEAD_MS: Final = 60_000


class SecretRows:
    """The secrets of finished jobs."""

    def __init__(self, database: Database, clock: Clock, vault: Vault) -> None:
        self._database = database
        self._clock = clock
        self._vault = vault
        self._last_now = 0

    async def read(self, org_id: int, job_id: bytes) -> dict[str, Any] | None:
        """The secret fields of a job; None when it has none, or has them no longer."""
        async with self._database.read() as reader:
            row = await reader.one("secret_of", {"org_id": org_id, "id": job_id})
        if row is None:
            return None
        epoch, nonce, ciphertext, expires_at, created_at = row
        now = self._clock.now_ms()
        if expires_at <= now or created_at > now + AHEAD_MS:
            return None
        text = await self._vault.unseal(job_id, Sealed(epoch=epoch, nonce=nonce, ciphertext=ciphertext))
        return None if text is None else msgspec.json.decode(text, type=dict[str, Any])

    async def ack(self, order: Order) -> str | Problem:
        """The issuer needs the secret no longer: it is gone when this returns; the job's state.

        Asking again changes nothing. Problem `state-conflict` while the job has not ended.
        """
        now = self._clock.now_ms()
        async with self._database.transaction() as tx:
            row = await tx.one("job_by_id", {"org_id": order.org_id, "id": order.job_id})
            if row is None:
                return Problem("not-found", "there is no job with this id, or it is not yours")
            job = Job(*row)
            if job.state not in TERMINAL:
                return Problem(
                    "state-conflict",
                    f"the job is {job.state}; there is nothing to acknowledge before it has ended",
                    job_state=job.state,
                )
            if await tx.run("drop_secret", {"job_seq": job.seq}):
                await note(
                    tx, org_id=order.org_id, now=now, actor=order.actor,
                    action="results.ack", subject=order.job_id, data=None,
                )  # fmt: skip
        await self._destroy_keys()
        return job.state

    async def sweep(self) -> int:
        """Drop what is past its time and destroy the keys that no secret needs; how many went."""
        now = self._clock.now_ms()
        gone = await self._drop_future(now)
        while await self._any_expired(now):
            async with self._database.transaction() as tx:
                gone += await tx.run("drop_expired_secrets", {"now": now, "limit": BATCH})
        await self._destroy_keys()
        return gone

    async def _any_expired(self, now: int) -> bool:
        async with self._database.read() as reader:
            return await reader.one("expired_secret", {"now": now}) is not None

    async def _drop_future(self, now: int) -> int:
        """A clock that was set back must not lengthen a secret's life."""
        before, self._last_now = self._last_now, now
        if before and now >= before - AHEAD_MS:
            return 0
        async with self._database.transaction() as tx:
            return await tx.run("drop_future_secrets", {"now": now + AHEAD_MS})

    async def _destroy_keys(self) -> None:
        doubtful = await self._vault.doubtful()
        if not doubtful:
            return
        async with self._database.read() as reader:
            empty = [
                (name, used)
                for name, used in doubtful
                if await reader.one("epoch_in_use", {"epoch": name}) is None
            ]
        for name, used in empty:
            await self._vault.destroy(name, used)
