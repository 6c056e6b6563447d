"""`POST /agent/telemetry`: a gateway tells what its printers show, and hears what to do."""

from typing import Final

import msgspec

from farhand.engine.farms import Farm, Gateway, Sighting
from farhand.engine.registry import Agent
from farhand.protocol.farm import (
    PrinterOrder,
    PrinterReport,
    TelemetryReply,
    TelemetryRequest,
)
from farhand.protocol.wire import bad_field, decode
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.text import refuse_nul
from farhand.systems.farm.dispatch import dispatch
from farhand.systems.farm.observe import WRITE_MS, Step, look_at, observe
from farhand.systems.farm.submit import unknown_farm
from farhand.systems.farm.views import about_text

BODY_MAX: Final = 8 * 1024 * 1024
_telemetry = msgspec.json.Decoder(TelemetryRequest)


async def telemetry(context: Context, call: Call) -> None:
    """Take in the snapshots of a gateway's printers, one after the other."""
    agent = call.principal.must_be_agent()
    body = await call.body(BODY_MAX)
    message = decode(_telemetry, body)
    refuse_nul(body, message)
    _check_names(message)
    farm = await context.store.farms.find(agent.org_id, message.farm)
    if farm is None:
        raise unknown_farm(message.farm)
    context.saw(agent.id)
    claimed = {one.gateway_printer_id: one for one in await context.store.farms.of_gateway(agent.id)}
    strangers = [report for report in message.printers if report.id not in claimed]
    await _note(context, farm, agent, strangers)
    steps: list[Step] = []
    orders: dict[str, PrinterOrder] = {}
    for report in message.printers:
        printer = claimed.get(report.id)
        if printer is None:
            orders[report.id] = PrinterOrder(id=report.id, printer_id=None)
            continue
        step = await look_at(context, printer, report, message)
        if step is not None:
            steps.append(step)
    orders |= {order.id: order for order in await observe(context, steps)}
    if any(step.changed for step in steps):
        await dispatch(context, farm)
    replies = [orders[report.id] for report in message.printers if report.id in orders]
    await call.json(TelemetryReply(printers=replies))


def _check_names(message: TelemetryRequest) -> None:
    seen: set[str] = set()
    for index, report in enumerate(message.printers):
        if report.id in seen:
            raise bad_field(f"printers[{index}].id", f"{report.id!r} stands twice")
        seen.add(report.id)


async def _note(context: Context, farm: Farm, agent: Agent, strangers: list[PrinterReport]) -> None:
    """Write down that the gateway is there, now and then, and what it sees that nobody claimed."""
    farms, now = context.store.farms, context.clock.now_ms()
    known = next((one for one in await farms.gateways(farm.id) if one.agent_id == agent.id), None)
    fresh = known is not None and now - known.seen_at < WRITE_MS
    if fresh and strangers:
        listed = {
            one.gateway_printer_id for one in await farms.unclaimed(farm.id) if one.agent_id == agent.id
        }
        fresh = all(report.id in listed for report in strangers)
    if fresh:
        return
    sightings = [
        Sighting(
            agent_id=agent.id,
            gateway_printer_id=report.id,
            about=about_text(report),
            first_seen_at=now,
            last_seen_at=now,
        )
        for report in strangers
    ]
    gateway = Gateway(agent_id=agent.id, org_id=agent.org_id, farm_id=farm.id, seen_at=now)
    await farms.sighted(gateway, sightings)
