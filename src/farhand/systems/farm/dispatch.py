"""The scheduler: which job goes to which printer, by a timer and whenever something changed.

A job becomes dispatchable when it is submitted or its file arrives, and when a printer falls
free; the second is seen by this server or another one. Whoever looks claims with a hold on the
printer, in one transaction, so that it does not matter how many look at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from farhand.engine.farms import Farm, FarmPrinter, Waiting
from farhand.engine.requests import Claim
from farhand.server.context import Context
from farhand.systems.farm.fit import refusals, unready
from farhand.systems.farm.observe import look_again

ACCEPT_MS: Final = 45_000
"""Longer than a poll is held: the offer comes with the gateway's next one."""

log = logging.getLogger("farhand.farm")


async def tick(context: Context) -> None:
    """Look at every farm: at prints that nobody hears of, then for work."""
    for farm in await context.store.farms.all():
        printers = await context.store.farms.printers(farm.id)
        await look_again(context, printers)
        await _dispatch(context, farm, printers)


async def dispatch(context: Context, farm: Farm) -> int:
    """Give idle printers the oldest jobs that fit them; how many were given."""
    return await _dispatch(context, farm, await context.store.farms.printers(farm.id))


async def _dispatch(context: Context, farm: Farm, printers: Sequence[FarmPrinter]) -> int:
    """What the printers were a moment ago is enough: the claim takes the hold, or gets nothing."""
    if farm.paused:
        return 0
    now = context.clock.now_ms()
    free = [one for one in printers if unready(one, now) is None]
    if not free:
        return 0
    heads = await context.store.farms.heads(farm, len(free))
    pairs = assign(heads, free)
    # At once, so that one commit carries many.
    answers = await asyncio.gather(
        *(context.store.claim(_claim(farm, job, printer)) for job, printer in pairs)
    )
    for (job, printer), claimed in zip(pairs, answers, strict=True):
        if claimed:
            log.info("farm_dispatched", extra={"job": job.id.hex(), "printer": printer.name})
    return sum(len(claimed) for claimed in answers)


def _claim(farm: Farm, job: Waiting, printer: FarmPrinter) -> Claim:
    return Claim(
        org_id=farm.org_id,
        agent_id=printer.agent_id,
        lanes=(farm.id,),
        accept_ms=ACCEPT_MS,
        device_id=printer.id,
        hold=True,
        job_id=job.id,
    )


def assign(heads: list[Waiting], free: list[FarmPrinter]) -> list[tuple[Waiting, FarmPrinter]]:
    """Each job in its order to the printer that fits and that fewest other jobs could use."""
    kinds = {job.fit for job in heads}
    fits = {fit: [one.id for one in free if not refusals(fit, one)] for fit in kinds}
    wanted = {one.id: sum(one.id in able for able in fits.values()) for one in free}
    left = {one.id: one for one in free}
    pairs: list[tuple[Waiting, FarmPrinter]] = []
    for job in sorted(heads, key=lambda job: (-job.priority, job.seq)):
        able = [place for place in fits[job.fit] if place in left]
        if not able:
            continue
        chosen = min(able, key=lambda place: wanted[place])
        pairs.append((job, left.pop(chosen)))
        if not left:
            break
    return pairs
