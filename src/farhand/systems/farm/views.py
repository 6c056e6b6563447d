"""Farms and printers as the wire shows them."""

import difflib
from typing import Final

import msgspec

from farhand.engine.farms import Farm, FarmPrinter, Gateway, Sighting
from farhand.engine.registry import online
from farhand.model.clock import to_rfc3339
from farhand.model.ids import id_text
from farhand.protocol.farm import (
    FarmPrinterView,
    FarmView,
    PrinterReport,
    UnclaimedView,
)
from farhand.server.views import maybe_id, moment
from farhand.systems.farm.fit import seen_now, unready, view_of
from farhand.systems.farm.rules import SILENT

NEAR: Final = 0.6
NEAR_MAX: Final = 3


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a printer that nobody claimed."""

    state: str
    declared: dict[str, object] | None = None


_about = msgspec.json.Decoder(About)


def about_text(report: PrinterReport) -> str:
    """What is kept of a report about a printer that nobody claimed."""
    declared = None if report.declared is None else msgspec.to_builtins(report.declared)
    return msgspec.json.encode(About(state=report.state, declared=declared)).decode()


def farm_view(farm: Farm) -> FarmView:
    """A farm for everybody."""
    return FarmView(
        id=id_text(farm.id), name=farm.name, paused=farm.paused, created_at=to_rfc3339(farm.created_at)
    )


def printer_status(printer: FarmPrinter, now: int) -> FarmPrinterView:
    """A printer with what it shows and what holds it."""
    view, seen = view_of(printer), seen_now(printer, now)
    silent = seen in SILENT
    return FarmPrinterView(
        id=id_text(printer.id),
        name=printer.name,
        farm_id=id_text(printer.farm_id),
        gateway_id=id_text(printer.agent_id),
        gateway_printer_id=printer.gateway_printer_id,
        online=not silent,
        state=seen,
        bed_clear=printer.hold is None,
        hold=printer.hold,
        job_id=maybe_id(printer.hold_job),
        percent=view.percent if view is not None and not silent else None,
        remaining_ms=view.remaining_ms if view is not None and not silent else None,
        temperatures=view.temperatures if view is not None and not silent else {},
        reason=view.reason if printer.hold == "job" and view is not None else unready(printer, now),
        paused=bool(printer.paused),
        self_clearing=bool(printer.self_clearing),
        observed_at=moment(printer.observed_at),
        declared=msgspec.Raw(printer.declared.encode()),
    )


def unclaimed_view(
    sighting: Sighting, gateway: Gateway | None, missing: list[FarmPrinter], now: int
) -> UnclaimedView:
    """A printer that nobody claimed; `missing` are claimed ones that were never seen."""
    about = _about.decode(sighting.about)
    names = [one.gateway_printer_id for one in missing]
    return UnclaimedView(
        gateway_id=id_text(sighting.agent_id),
        gateway=gateway.name if gateway is not None else "",
        gateway_online=gateway is not None and online(gateway.seen_at, now),
        gateway_printer_id=sighting.gateway_printer_id,
        state=about.state,
        declared=about.declared,
        did_you_mean=near(sighting.gateway_printer_id, names),
        first_seen_at=to_rfc3339(sighting.first_seen_at),
        last_seen_at=to_rfc3339(sighting.last_seen_at),
    )


def near(word: str, known: list[str]) -> list[str]:
    """Names that a typing mistake could have made of this one."""
    return difflib.get_close_matches(word, known, n=NEAR_MAX, cutoff=NEAR)
