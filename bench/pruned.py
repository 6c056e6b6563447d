"""Submits to a server that deletes old jobs meanwhile, and to one that only keeps as many."""

import asyncio
import re
import time
from typing import Any

from bench import flows
from bench.parked import Target
from bench.wire import Refused, Session, accepted, connect

BLOCK = 50
START_S = 30.0
_DONE = re.compile(rb'^farhand_jobs\{[^}]*state="done"[^}]*\} ([0-9.e+]+)$', re.MULTILINE)


async def submit_beside(
    pruning: Target, keeping: Target, seconds: float
) -> tuple[list[float], list[float], dict[str, Any]]:
    """Submit one job after the other in alternating blocks from the first deletion to the last.

    Returns the milliseconds at each server, and how many jobs went in what time. Raises Refused when the
    deletions do not begin, or do not end in `seconds`.
    """
    sessions = [await connect(port, token) for port, token, _ in (pruning, keeping)]
    lanes = [flows.Lane(printer_id, 1) for _, _, printer_id in (pruning, keeping)]
    disturbed: list[float] = []
    undisturbed: list[float] = []
    try:
        before = await _finished(sessions[0])
        await _begun(sessions[0], before)
        started = time.perf_counter()
        while left := await _finished(sessions[0]):
            if time.perf_counter() - started > seconds:
                raise Refused(f"{left} of {before} jobs are still there after {seconds:g} s")
            for session, lane, took in zip(sessions, lanes, (disturbed, undisturbed), strict=True):
                for _ in range(BLOCK):
                    took.append(await _submit(session, lane))
        lasted = time.perf_counter() - started
    finally:
        for session in sessions:
            session.close()
    return disturbed, undisturbed, {"pruned": before, "seconds": round(lasted, 1)}


async def _submit(session: Session, lane: flows.Lane) -> float:
    sent = time.perf_counter()
    reply = await session.post("/jobs", lane.one)
    took = (time.perf_counter() - sent) * 1000
    accepted("POST /jobs", reply)
    return took


async def _begun(session: Session, before: int) -> None:
    deadline = time.perf_counter() + START_S
    while await _finished(session) >= before:
        if time.perf_counter() > deadline:
            raise Refused(f"no job was deleted within {START_S:g} s")
        await asyncio.sleep(0.02)


async def _finished(session: Session) -> int:
    found = _DONE.search(accepted("GET /metrics", await session.get("/metrics")))
    return int(float(found[1])) if found is not None else 0
