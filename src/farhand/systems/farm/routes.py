"""The owners' and operators' routes about farms, and the gateways' telemetry."""

from typing import Final

import msgspec

from farhand.engine.farms import ClaimPrinter, Farm, FarmPrinter
from farhand.engine.registry import Agent, online
from farhand.engine.requests import Order, PutFirst
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import HELD, Job
from farhand.protocol.client import JobView
from farhand.protocol.farm import (
    ClaimPrinterRequest,
    FarmPrinterView,
    FarmRequest,
    FarmStatusView,
    FarmView,
    TelemetryReply,
    TelemetryRequest,
    UnclaimedReply,
    UploadedReply,
    UploadReply,
)
from farhand.protocol.wire import decode
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.job_routes import job_id
from farhand.server.routes import Route
from farhand.server.text import refuse_nul
from farhand.server.views import job_view
from farhand.server.waiting import not_found
from farhand.systems.farm import upload
from farhand.systems.farm.dispatch import dispatch
from farhand.systems.farm.fit import declared_text, seen_now, view_of
from farhand.systems.farm.observe import print_key
from farhand.systems.farm.rules import ACTIVE
from farhand.systems.farm.submit import unknown_farm
from farhand.systems.farm.telemetry import telemetry
from farhand.systems.farm.views import farm_view, near, printer_status, unclaimed_view

BODY_MAX: Final = 64 * 1024
MANAGE: Final = "agents.manage"
_farm = msgspec.json.Decoder(FarmRequest)
_claim = msgspec.json.Decoder(ClaimPrinterRequest)


def routes() -> list[Route]:
    """All routes of the farm system."""
    farm, printer, job = "/farms/{id}", "/printers/{id}", "/jobs/{id}"
    one, shown = {200: FarmPrinterView}, {200: JobView}
    return [
        Route(method="POST", path="/farms", handler=create, grant=MANAGE, tag="farms",
              summary="Make a farm", request=FarmRequest, replies={201: FarmView}),
        Route(method="GET", path="/farms", handler=listing, grant="printers.read", tag="farms",
              summary="List farms", replies={200: [FarmView]}),
        Route(method="GET", path=f"{farm}/status", handler=status, grant="printers.read", tag="farms",
              summary="A farm and its printers as they are now", replies={200: FarmStatusView}),
        Route(method="POST", path=f"{farm}/pause", handler=pause_farm, grant="jobs.manage", tag="farms",
              summary="Dispatch nothing to a farm", replies={200: FarmView}),
        Route(method="POST", path=f"{farm}/resume", handler=resume_farm, grant="jobs.manage", tag="farms",
              summary="Dispatch to a farm again", replies={200: FarmView}),
        Route(method="GET", path=f"{farm}/unclaimed-printers", handler=unclaimed, grant="printers.read",
              tag="farms", summary="Printers that gateways report and nobody claimed",
              replies={200: UnclaimedReply}),
        Route(method="POST", path="/printers", handler=claim, grant=MANAGE, tag="farms",
              summary="Claim a printer behind a gateway", request=ClaimPrinterRequest,
              replies={201: FarmPrinterView}),
        Route(method="POST", path=f"{printer}/bed-cleared", handler=bed_cleared, grant="jobs.manage",
              tag="farms", summary="Say that a printer's bed is clear", replies=one),
        Route(method="POST", path=f"{printer}/pause", handler=pause_printer, grant="jobs.manage",
              tag="farms", summary="Give a farm printer no new work", replies=one),
        Route(method="POST", path=f"{printer}/resume", handler=resume_printer, grant="jobs.manage",
              tag="farms", summary="Give a farm printer work again", replies=one),
        Route(method="POST", path=f"{job}/upload", handler=upload.renew, grant="jobs.submit", tag="farms",
              summary="A fresh address for a job's file", replies={200: UploadReply}),
        Route(method="PUT", path=upload.PATH, handler=upload.put, grant=None, tag="farms",
              summary="Put a job's file, by its signed address", query=upload.QUERY,
              replies={200: UploadedReply}),
        Route(method="POST", path=f"{job}/pause", handler=pause_job, grant="jobs.manage", tag="farms",
              summary="Pause a print", replies=shown),
        Route(method="POST", path=f"{job}/resume", handler=resume_job, grant="jobs.manage", tag="farms",
              summary="Let a paused print go on", replies=shown),
        Route(method="POST", path=f"{job}/top", handler=to_top, grant="jobs.manage", tag="farms",
              summary="Let a waiting print go first", replies=shown),
        Route(method="POST", path="/agent/telemetry", handler=telemetry, grant="agent.work", tag="agent",
              summary="Tell what the printers of a gateway show", request=TelemetryRequest,
              replies={200: TelemetryReply}),
    ]  # fmt: skip


async def create(context: Context, call: Call) -> None:
    """`POST /farms`: make a farm."""
    body = await call.body(BODY_MAX)
    message = decode(_farm, body)
    refuse_nul(body, message)
    made = await context.store.farms.create(call.principal.org_id, message.name, call.principal.actor)
    if isinstance(made, Problem):
        raise made
    await call.json(farm_view(made), 201, headers=((b"location", b"/farms/" + id_text(made.id).encode()),))


async def listing(context: Context, call: Call) -> None:
    """`GET /farms`: farms by name."""
    call.query(frozenset())
    farms = await context.store.farms.all(call.principal.org_id)
    await call.json({"items": [farm_view(farm) for farm in farms], "next": None})


async def _of_path(context: Context, call: Call) -> Farm:
    call.query(frozenset())
    farm = await context.store.farms.find(call.principal.org_id, call.params[0])
    if farm is None:
        raise Problem("not-found", "there is no farm with this id, or it is not yours")
    return farm


async def status(context: Context, call: Call) -> None:
    """`GET /farms/{id}/status`: a farm with its printers."""
    farm = await _of_path(context, call)
    now = context.clock.now_ms()
    printers = [printer_status(one, now) for one in await context.store.farms.printers(farm.id)]
    await call.json(FarmStatusView(farm=farm_view(farm), printers=printers))


async def pause_farm(context: Context, call: Call) -> None:
    """`POST /farms/{id}/pause`: what prints goes on, nothing new is started."""
    await _set_farm(context, call, paused=True)


async def resume_farm(context: Context, call: Call) -> None:
    """`POST /farms/{id}/resume`: the queue moves again."""
    await _set_farm(context, call, paused=False)


async def _set_farm(context: Context, call: Call, *, paused: bool) -> None:
    farm = await _of_path(context, call)
    await call.body(BODY_MAX)
    org_id, actor = farm.org_id, call.principal.actor
    await context.store.farms.set_paused(org_id, farm.id, paused=paused, actor=actor)
    farm = await _of_path(context, call)
    await dispatch(context, farm)
    await call.json(farm_view(farm))


async def unclaimed(context: Context, call: Call) -> None:
    """`GET /farms/{id}/unclaimed-printers`: what was seen and nobody claimed."""
    farm = await _of_path(context, call)
    now, farms = context.clock.now_ms(), context.store.farms
    gateways = {one.agent_id: one for one in await farms.gateways(farm.id)}
    missing = [one for one in await farms.printers(farm.id) if one.observed_at is None]
    items = [
        unclaimed_view(one, gateways.get(one.agent_id), missing, now)
        for one in await farms.unclaimed(farm.id)
    ]
    there = any(online(one.seen_at, now) for one in gateways.values())
    await call.json(UnclaimedReply(items=items, gateway_online=there))


async def claim(context: Context, call: Call) -> None:
    """`POST /printers`: a printer that a gateway reports becomes one of the farm."""
    body = await call.body(BODY_MAX)
    message = decode(_claim, body)
    refuse_nul(body, message)
    farm = await context.store.farms.find(call.principal.org_id, message.farm)
    if farm is None:
        raise unknown_farm(message.farm)
    agent, declared = await _gateway(context, farm, message)
    made = await context.store.farms.claim(
        ClaimPrinter(
            farm=farm,
            agent_id=agent,
            gateway_printer_id=message.gateway_printer_id,
            name=message.name,
            declared=declared,
            self_clearing=message.self_clearing,
            actor=call.principal.actor,
        )
    )
    if isinstance(made, Problem):
        raise made
    location = (b"location", b"/printers/" + id_text(made.id).encode())
    await call.json(printer_status(made, context.clock.now_ms()), 201, headers=(location,))


async def _gateway(context: Context, farm: Farm, message: ClaimPrinterRequest) -> tuple[bytes, str]:
    """Which gateway is meant, and what the printer declares. Raises Problem that says how to say it."""
    farms = context.store.farms
    wanted: Agent | None = None
    if message.gateway is not None:
        wanted = await context.desk.find_agent(farm.org_id, message.gateway)
        if wanted is None:
            raise Problem(
                "unknown-agent", "gateway: there is no such agent; GET /agents lists them", field="gateway"
            )
    gateways = await farms.gateways(farm.id)
    known = [one.agent_id for one in gateways]
    seen = await farms.unclaimed(farm.id)
    hits = [one for one in seen if one.gateway_printer_id == message.gateway_printer_id]
    if wanted is not None:
        hits = [one for one in hits if one.agent_id == wanted.id]
    if len(hits) > 1:
        names = ", ".join(sorted(one.name for one in gateways if one.agent_id in {h.agent_id for h in hits}))
        raise Problem(
            "bad-field", f"gateway: several gateways report this printer, say which: {names}", field="gateway"
        )
    if hits:
        declared = msgspec.json.decode(hits[0].about).get("declared")
        return hits[0].agent_id, msgspec.json.encode(
            declared, order="sorted"
        ).decode() if declared else declared_text(None)
    only = [wanted.id] if wanted is not None else known
    if len(only) == 1:
        return only[0], declared_text(None)
    close = near(message.gateway_printer_id, [one.gateway_printer_id for one in seen])
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise Problem(
        "unknown-printer",
        f"gateway_printer_id: no gateway of the farm reports {message.gateway_printer_id!r}{hint}",
        field="gateway_printer_id",
        did_you_mean=close,
    )


async def _printer(context: Context, call: Call) -> FarmPrinter:
    call.query(frozenset())
    device_id = parse_id(call.params[0])
    found = (
        await context.store.farms.printer(call.principal.org_id, device_id) if device_id is not None else None
    )
    if found is None:
        raise Problem("not-found", "there is no farm printer with this id, or it is not yours")
    return found


async def bed_cleared(context: Context, call: Call) -> None:
    """`POST /printers/{id}/bed-cleared`: a person says that the bed is clear; asked again it stays so."""
    printer = await _printer(context, call)
    await call.body(BODY_MAX)
    now, view = context.clock.now_ms(), view_of(printer)
    if printer.hold == "job" and printer.hold_job is not None:
        raise Problem(
            "state-conflict",
            "a job has the printer; cancel it, or say how it ended (resolve), and clear the bed then",
            job_id=id_text(printer.hold_job),
        )
    if printer.hold == "foreign" and seen_now(printer, now) in ACTIVE:
        raise Problem("state-conflict", "the printer is at work on a print that was not started here")
    if printer.hold == "foreign":
        await context.store.farms.hold(printer, "bed")
    key = print_key(view) if view is not None else ""
    await context.store.farms.clear_bed(printer, key, call.principal.actor)
    await _nudge(context, printer)
    await _show(context, call)


async def pause_printer(context: Context, call: Call) -> None:
    """`POST /printers/{id}/pause`: maintenance; nothing new is started there."""
    printer = await _printer(context, call)
    await call.body(BODY_MAX)
    await context.store.farms.set_printer(printer, call.principal.actor, paused=True)
    await _show(context, call)


async def resume_printer(context: Context, call: Call) -> None:
    """`POST /printers/{id}/resume`: the printer takes work again."""
    printer = await _printer(context, call)
    await call.body(BODY_MAX)
    await context.store.farms.set_printer(printer, call.principal.actor, paused=False)
    await _nudge(context, printer)
    await _show(context, call)


async def _nudge(context: Context, printer: FarmPrinter) -> None:
    farm = await context.store.farms.find(printer.org_id, id_text(printer.farm_id))
    if farm is not None:
        await dispatch(context, farm)


async def _show(context: Context, call: Call) -> None:
    await call.json(printer_status(await _printer(context, call), context.clock.now_ms()))


async def _job(context: Context, call: Call) -> Job:
    call.query(frozenset())
    await call.body(BODY_MAX)
    job = await context.store.job(call.principal.org_id, job_id(call))
    if job is None or not job.kind.startswith("farm."):
        raise not_found()
    return job


async def pause_job(context: Context, call: Call) -> None:
    """`POST /jobs/{id}/pause`: the gateway pauses the print; its phase says when it has."""
    await _wish(context, call, "pause", "printing")


async def resume_job(context: Context, call: Call) -> None:
    """`POST /jobs/{id}/resume`: the gateway lets the print go on."""
    await _wish(context, call, "resume", "paused")


async def _wish(context: Context, call: Call, wish: str, phase: str) -> None:
    job = await _job(context, call)
    if job.state not in HELD or job.phase != phase or job.device_id is None:
        where = job.phase or job.state
        raise Problem("state-conflict", f"only a print that is {phase} can do that; this one is {where}")
    printer = await context.store.farms.printer(job.org_id, job.device_id)
    if printer is None or printer.hold_job != job.id:
        raise Problem("state-conflict", "the printer is no longer this job's")
    await context.store.farms.set_printer(printer, call.principal.actor, wish=wish)
    await call.json(job_view(job))


async def to_top(context: Context, call: Call) -> None:
    """`POST /jobs/{id}/top`: the job is the next that is dispatched to a printer that fits."""
    job = await _job(context, call)
    farm = await context.store.farms.find(job.org_id, id_text(job.lane))
    if farm is None:
        raise not_found()
    priority = await context.store.farms.top(farm) + 1
    order = Order(org_id=job.org_id, job_id=job.id, actor=call.principal.actor)
    answer = await context.store.put_first(PutFirst(order=order, priority=priority))
    if isinstance(answer, Problem):
        raise answer
    latest = await context.store.job(job.org_id, job.id)
    await call.json(job_view(latest or job))
