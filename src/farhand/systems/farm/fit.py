"""What a job needs of its printer, as it is kept with the job, and which printers can take it now."""

from typing import Final

import msgspec

from farhand.engine.farms import FarmPrinter
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.protocol.farm import DeclaredPrinter, FarmNeeds, View
from farhand.systems.farm.matching import Declared, Requirements, misfits
from farhand.systems.farm.rules import READY, Seen

FRESH_MS: Final = 60_000
FIT_MAX: Final = 2000


class Fit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mode of a farm job: jobs with the same one can be printed by the same printers."""

    needs: Requirements = Requirements()
    printer: str | None = None


_fit = msgspec.json.Decoder(Fit)
_declared = msgspec.json.Decoder(Declared)
_view = msgspec.json.Decoder(View)


def fit_text(needs: FarmNeeds, printer_id: bytes | None) -> str:
    """What a job needs, in one spelling. Raises Problem `bad-field` when it is too much."""
    plain = msgspec.to_builtins(needs)
    plain["tags"] = sorted(set(needs.tags))
    fit = Fit(
        needs=msgspec.convert(plain, Requirements),
        printer=None if printer_id is None else id_text(printer_id),
    )
    text = msgspec.json.encode(fit, order="sorted").decode()
    if len(text) > FIT_MAX:
        raise Problem("bad-field", "requirements: are longer than 2000 characters", field="requirements")
    return text


def declared_text(declared: DeclaredPrinter | None) -> str:
    """What a printer declares, in one spelling."""
    return msgspec.json.encode(declared or DeclaredPrinter(), order="sorted").decode()


def view_of(printer: FarmPrinter) -> View | None:
    """What a printer was last seen to be."""
    return None if printer.view is None else _view.decode(printer.view)


def seen_now(printer: FarmPrinter, now: int) -> Seen:
    """Its state; offline when its gateway has been silent for a minute."""
    view = view_of(printer)
    if view is None or printer.observed_at is None or not view.full:
        return Seen.UNKNOWN
    return Seen.OFFLINE if now - printer.observed_at > FRESH_MS else Seen(view.state)


def unready(printer: FarmPrinter, now: int) -> str | None:
    """Why a printer takes no print just now, whatever the job; None when it does."""
    holds = {
        "bed": "bed not cleared",
        "foreign": "busy with a print that was not started here",
        "job": "busy with another job",
    }
    if printer.hold is not None:
        return holds.get(printer.hold, printer.hold)
    if printer.paused:
        return "paused"
    if printer.agent_state != "active":
        return f"its gateway is {printer.agent_state}"
    seen = seen_now(printer, now)
    if seen in READY:
        return None
    view = view_of(printer)
    why = f": {view.reason}" if view is not None and view.reason else ""
    if seen == Seen.OFFLINE and view is not None and view.state != Seen.OFFLINE:
        why = ": its gateway has not been heard for a minute"
    if view is None:
        return "not seen yet"
    return f"{seen}{why}"


def refusals(fit: str, printer: FarmPrinter) -> list[str]:
    """Why a job with this fit can never be printed there as it is now; empty when it can."""
    wanted = _fit.decode(fit)
    if wanted.printer is not None and wanted.printer != id_text(printer.id):
        return ["the job is for another printer"]
    return misfits(wanted.needs, _declared.decode(printer.declared))
