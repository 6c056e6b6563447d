"""What agents' results leave apart from the job's row: bodies, and figures of who did how much."""

from collections.abc import Iterable

from farhand.engine.attempt import stale
from farhand.engine.requests import Act
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.job import TERMINAL, Attempt, Job
from farhand.storage.capabilities import Capabilities
from farhand.storage.database import Database

OVER_MS = 300_000
"""How long an agent is told that another was first: longer than any request may take."""


class Results:
    """Bodies of results, counters, and what agents may stop doing."""

    def __init__(self, database: Database, clock: Clock, capabilities: Capabilities) -> None:
        self._database = database
        self._clock = clock
        self._capabilities = capabilities

    async def keep_body(self, act: Act, sha256: bytes, size: int) -> Problem | None:
        """Note that a stored body belongs to an attempt's result.

        The attempt is open, or the newest of a job that still takes a late word of it.
        """
        async with self._database.transaction() as tx:
            row = await tx.one("lock_job", {"org_id": act.org_id, "id": act.job_id})
            job = Job(*row) if row is not None else None
            if job is None or (act.family is not None and not job.kind.startswith(act.family)):
                return Problem("not-found", "there is no job with this id, or it is not yours")
            rows = await tx.all("job_attempts", {"job_seq": job.seq})
            mine = [a for a in (Attempt(*found) for found in rows) if a.agent_id == act.agent_id]
            if not mine:
                return Problem("not-found", "there is no job with this id, or it is not yours")
            meant = [a for a in mine if act.token is None or a.token == act.token]
            newest = bool(meant) and meant[-1].number == job.attempt and job.state not in TERMINAL
            if not newest and not any(a.open for a in meant):
                return stale(job)
            body = {"job_seq": job.seq, "sha256": sha256, "org_id": job.org_id, "size": size}
            await tx.run("insert_result_body", {**body, "now": self._clock.now_ms()})
        return None

    async def body(self, job_seq: int, sha256: bytes) -> int | None:
        """The size of a body that belongs to a job's results, None when there is none."""
        async with self._database.read() as reader:
            row = await reader.one("result_body", {"job_seq": job_seq, "sha256": sha256})
        return row[0] if row is not None else None

    async def counters(self, org_id: int, subject: bytes) -> dict[str, int]:
        """What was counted for a session, an agent or a key."""
        async with self._database.read() as reader:
            rows = await reader.all("counters", {"org_id": org_id, "subject": subject})
        return {row[0]: row[1] for row in rows}

    async def over(self, agent_id: bytes) -> list[bytes]:
        """Jobs the agent may stop working on: another was first, or they are to be cancelled."""
        since = self._clock.now_ms() - OVER_MS
        async with self._database.read() as reader:
            asked = await reader.all("over_asked", {"agent_id": agent_id})
            late = await reader.all("over_overtaken", {"agent_id": agent_id, "since": since})
        return list(dict.fromkeys(row[0] for row in (*asked, *late)))

    async def bits(self, names: Iterable[str]) -> int:
        """The bits of those of the capability names that are known."""
        async with self._database.read() as reader:
            return (await self._capabilities.known(reader, names))[1]

    async def declared(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the capability names that are known."""
        async with self._database.read() as reader:
            return (await self._capabilities.known(reader, names))[0]
