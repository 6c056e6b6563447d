"""Why a farm job waits, in words, as things are when somebody asks."""

from typing import Final

from farhand.model.clock import to_rfc3339
from farhand.model.ids import id_text
from farhand.model.job import Job, State
from farhand.server.context import Context
from farhand.systems.farm.fit import refusals, unready

NAMED_MAX: Final = 20


async def explain(context: Context, job: Job) -> str | None:
    """What keeps a waiting job from being printed, printer by printer."""
    if job.payload_size is None:
        return "waits for its file: PUT it to the upload address"
    if job.state == State.SCHEDULED:
        return f"waits until {to_rfc3339(job.run_at)}" if job.run_at is not None else None
    farm = await context.store.farms.find(job.org_id, id_text(job.lane))
    if farm is None:
        return None
    if farm.paused:
        return f"the farm {farm.name} is paused"
    now = context.clock.now_ms()
    words: list[str] = []
    for printer in await context.store.farms.printers(farm.id):
        never = refusals(job.mode or "{}", printer)
        now_not = unready(printer, now)
        reasons = never or ([now_not] if now_not is not None else ["free; it takes the next job that fits"])
        words.append(f"{printer.name}: {', '.join(reasons)}")
    if not words:
        return f"the farm {farm.name} has no printers; claim one with POST /printers"
    if len(words) > NAMED_MAX:
        words[NAMED_MAX:] = [f"and {len(words) - NAMED_MAX} more"]
    said = "; ".join(words)
    return f"{job.reason}. Now {said}" if job.reason else said
