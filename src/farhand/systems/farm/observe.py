"""From what gateways tell to what becomes of jobs: the rules decide, the engine's verbs carry it out."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from farhand.engine.attempt import Progress
from farhand.engine.farms import FarmPrinter, Observed
from farhand.engine.report import Report
from farhand.engine.requests import Act, JobFilter, Order, Release, Settle
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import HELD, TERMINAL, Actor, Evidence, Job, State
from farhand.model.policy import DAY, HOUR
from farhand.protocol.farm import PrinterOrder, PrinterReport, TelemetryRequest, View, WorkReport
from farhand.server.context import Context
from farhand.systems.farm.fit import declared_text, seen_now, view_of
from farhand.systems.farm.names import mark, mark_in, tail_of
from farhand.systems.farm.rules import (
    Decision,
    Gate,
    Kind,
    Observation,
    Seen,
    Whose,
    decide,
    gate,
    status_of,
)

WRITE_MS: Final = 15_000
LOOK_BACK: Final = 10
_STARTED: Final = ("starting", "printing", "paused")
log = logging.getLogger("farhand.farm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One report about one claimed printer, and what it means.

    `changed`: the printer may be free now that was not before. `row` is what is to be kept.
    """

    printer: FarmPrinter
    report: PrinterReport
    view: View
    job: Job | None
    decision: Decision
    gate: Gate
    changed: bool
    row: Observed | None = None


async def look_at(
    context: Context, printer: FarmPrinter, report: PrinterReport, message: TelemetryRequest
) -> Step | None:
    """What one report means; None when it is older than what is known. Nothing is changed yet."""
    now, old = context.clock.now_ms(), view_of(printer)
    if old is not None and old.boot == message.boot_id and message.seq <= old.seq:
        return None
    job = await _job_of(context, printer, report.identity)
    step = _decide(printer, report, message, job, old, now)
    declared = declared_text(report.declared) if report.declared is not None else printer.declared
    if not _worth_writing(printer, old, step.view, now) and declared == printer.declared:
        return step
    row = Observed(
        device_id=printer.id,
        view=msgspec.json.encode(step.view).decode(),
        observed_at=now,
        declared=declared if declared != printer.declared else None,
    )
    return replace(step, row=row)


async def observe(context: Context, steps: Sequence[Step]) -> list[PrinterOrder]:
    """Take in what was seen, in one step for all printers, and carry out what follows from it.

    It is written down first: whoever looks for free printers meanwhile must not see the state
    of before.
    """
    await context.store.farms.observe([step.row for step in steps if step.row is not None])
    orders: list[PrinterOrder] = []
    for step in steps:
        if step.view.full:
            await _carry_out(context, step)
        orders.append(await _order(context, step))
    return orders


def _decide(
    printer: FarmPrinter,
    report: PrinterReport,
    message: TelemetryRequest,
    job: Job | None,
    old: View | None,
    now: int,
) -> Step:
    """What the report means; nothing is read or written here."""
    seen, decision = Seen(report.state), Decision(kind=Kind.KEEP)
    view = _next_view(report, message, old, now)
    if job is not None:
        expected = mark(job.id, job.attempt)
        observed = _observation(job, expected, view, report, now)
        decision = decide(status_of(job.state, job.phase, job.reason), observed)
        if decision.kind == Kind.ADVANCE:
            view = msgspec.structs.replace(view, active=expected, active_boot=message.boot_id)
    found = Gate.KEEP
    if report.full and not decision.adopt:
        found = gate(
            printer.hold,
            seen,
            print_key=print_key(view),
            cleared_key=printer.cleared_key,
            self_clearing=bool(printer.self_clearing),
        )
    ended = decision.kind not in (Kind.KEEP, Kind.STALE, Kind.ADVANCE)
    news = old is None or old.state != view.state or old.full != view.full
    changed = ended or news or found == Gate.FREE
    return Step(
        printer=printer,
        report=report,
        view=view,
        job=job,
        decision=decision,
        gate=found,
        changed=changed,
    )


def _next_view(report: PrinterReport, message: TelemetryRequest, old: View | None, now: int) -> View:
    work = report.work
    name = None
    if work is not None:
        job_id = parse_id(work.job_id)
        name = mark(job_id, work.attempt) if job_id is not None else None
    view = View(
        state=report.state,
        boot=message.boot_id,
        seq=message.seq,
        changed_at=now,
        full=report.full,
        identity=report.identity,
        percent=report.percent,
        remaining_ms=report.remaining_ms,
        reason=report.reason,
        temperatures=report.temperatures,
        work=name,
        phase=work.phase if work is not None else None,
        started=work.started if work is not None else "no",
        sent=work.sent if work is not None else None,
        watch_ms=report.watch_ms,
    )
    if old is None:
        return view
    moved = (old.work, old.phase, old.sent, old.percent) != (view.work, view.phase, view.sent, view.percent)
    return msgspec.structs.replace(
        view,
        changed_at=now if moved else old.changed_at,
        active=old.active,
        active_boot=old.active_boot,
    )


def _observation(job: Job, expected: str, view: View, report: PrinterReport, now: int) -> Observation:
    mine = view.work == expected
    found = mark_in(view.identity)
    # A machine that shows no name, or an empty one, says nothing about whose its print is.
    whose = Whose.NONE if not view.identity else Whose.OURS if found == expected else Whose.FOREIGN
    return Observation(
        seen=Seen(view.state),
        whose=whose,
        full=view.full,
        was_active=view.active == expected and view.active_boot == view.boot,
        edge=mine and view.started == "here",
        start_sent=job.phase in _STARTED or (mine and view.started != "no"),
        percent=report.percent,
        unchanged_ms=now - view.changed_at,
        watch_ms=view.watch_ms,
        cancel_requested=job.cancel_requested_at is not None,
        reason=report.reason,
    )


def print_key(view: View) -> str:
    """What names the print that a machine shows, for telling a left-over finish from a new one."""
    return f"{view.state}:{view.identity or ''}"


def _worth_writing(printer: FarmPrinter, old: View | None, new: View, now: int) -> bool:
    if old is None or printer.observed_at is None or now - printer.observed_at >= WRITE_MS:
        return True
    return _gist(old) != _gist(new)


def _gist(view: View) -> tuple[object, ...]:
    percent = None if view.percent is None else int(view.percent)
    return (
        view.state,
        view.boot,
        view.full,
        view.identity,
        view.reason,
        view.work,
        view.phase,
        view.started,
        view.active,
        view.active_boot,
        view.changed_at if view.sent is not None else None,
        percent,
    )


async def _job_of(context: Context, printer: FarmPrinter, identity: str | None) -> Job | None:
    """The job that holds the printer; else one given up as lost whose name the machine shows."""
    if printer.hold_job is not None:
        return await context.store.job(printer.org_id, printer.hold_job)
    name = mark_in(identity)
    if name is None:
        return None
    tail, attempt = tail_of(name)
    query = JobFilter(org_id=printer.org_id, device_id=printer.id, limit=LOOK_BACK)
    for job in await context.store.jobs(query):
        if job.id.hex().endswith(tail) and job.attempt == attempt:
            return job
    return None


async def _carry_out(context: Context, step: Step) -> None:
    job = step.job
    if job is not None:
        await _apply(context, step.printer, job, step.decision)
    if step.gate != Gate.KEEP:
        # The job's own hold turned into what its end left, so that only others' prints are met here.
        await context.store.farms.hold(step.printer, step.gate)


async def _apply(context: Context, printer: FarmPrinter, job: Job, decision: Decision) -> None:
    store, act = context.store, Act(org_id=job.org_id, job_id=job.id, agent_id=printer.agent_id)
    if decision.kind in (Kind.KEEP, Kind.STALE):
        await _renew(context, job, decision, act)
        return
    log.info("farm_decided", extra={"job": job.id.hex(), "to": decision.kind, "reason": decision.reason})
    if decision.adopt:
        actor = Actor(kind="agent", id=printer.agent_id)
        note = "the printer shows this print by its name"
        answer = await store.adopt(Order(org_id=job.org_id, job_id=job.id, actor=actor, note=note))
        if isinstance(answer, Problem):
            _lost(job, answer)
            return
    if decision.kind == Kind.ADVANCE:
        await _advance(context, job, decision, act)
        return
    if decision.kind == Kind.REQUEUE:
        answer = await store.release(Release(act=act, reason=decision.reason))
    else:
        answer = await store.settle(Settle(act=act, report=_report(job, decision)))
    if isinstance(answer, Problem):
        _lost(job, answer)
    if printer.wish is not None:
        await store.farms.set_printer(printer, Actor(kind="server"), wish="")


async def _advance(context: Context, job: Job, decision: Decision, act: Act) -> None:
    if (job.phase, job.reason) == (decision.phase, decision.reason) and not decision.adopt:
        await _renew(context, job, decision, act)
        return
    phases = [decision.phase] if job.phase in _STARTED else ["starting", decision.phase]
    for phase in dict.fromkeys(phases):
        progress = Progress(phase=phase, reason=decision.reason, says_reason=True)
        answer = await context.store.heartbeat(replace(act, progress=progress))
        if isinstance(answer, Problem):
            _lost(job, answer)
            return


async def _renew(context: Context, job: Job, decision: Decision, act: Act) -> None:
    """A print that is heard of is not silent: its day begins anew, now and then."""
    heard = decision.kind != Kind.STALE and job.state == State.RUNNING and job.phase in _STARTED
    if heard and job.due_at is not None and job.due_at < context.clock.now_ms() + DAY - HOUR:
        answer = await context.store.heartbeat(act)
        if isinstance(answer, Problem):
            _lost(job, answer)


def _report(job: Job, decision: Decision) -> Report:
    said = f"{mark(job.id, job.attempt)} {decision.kind} {decision.reason}"
    result = None
    if decision.inferred:
        result = msgspec.json.encode({"inferred": decision.reason}).decode()
    return Report(
        ok=decision.kind == Kind.DONE,
        digest=hashlib.sha256(said.encode()).digest(),
        cancelled=decision.kind == Kind.CANCELLED,
        uncertain=decision.kind == Kind.UNCERTAIN,
        error=None if decision.kind == Kind.DONE else decision.reason,
        evidence=Evidence.TELEMETRY if decision.kind == Kind.DONE else None,
        result=result,
    )


def _lost(job: Job, problem: Problem) -> None:
    """Somebody else changed the job meanwhile; the next snapshot is decided on what it is then."""
    log.info("farm_overtaken", extra={"job": job.id.hex(), "problem": problem.problem})


async def _order(context: Context, step: Step) -> PrinterOrder:
    printer, report = step.printer, step.report
    order = PrinterOrder(id=report.id, printer_id=id_text(printer.id))
    job = step.job
    if job is not None and step.decision.kind not in (Kind.KEEP, Kind.STALE):
        job = await context.store.job(job.org_id, job.id)
    if report.work is not None:
        order = msgspec.structs.replace(order, over=await _is_over(context, printer, report.work, job))
    if job is None or job.state not in HELD:
        return order
    if job.cancel_requested_at is not None:
        return msgspec.structs.replace(order, directive="cancel")
    return msgspec.structs.replace(order, directive=await _wished(context, printer, step.view.state))


async def _wished(context: Context, printer: FarmPrinter, state: str) -> str:
    """What a person wished for, until the machine shows that it is so."""
    if printer.wish is None:
        return "continue"
    reached = {"pause": state == Seen.PAUSED, "resume": state == Seen.PRINTING}
    if reached.get(printer.wish, True):
        await context.store.farms.set_printer(printer, Actor(kind="server"), wish="")
        return "continue"
    return printer.wish


async def _is_over(context: Context, printer: FarmPrinter, work: WorkReport, job: Job | None) -> bool:
    """Whether the gateway's work is decided, or another's."""
    job_id = parse_id(work.job_id)
    if job_id is None:
        return True
    if job is None or job.id != job_id:
        job = await context.store.job(printer.org_id, job_id)
    if job is None or job.state in TERMINAL or job.state == State.UNCERTAIN:
        return True
    return job.state not in HELD or job.attempt != work.attempt or job.device_id != printer.id


async def look_again(context: Context, printers: Sequence[FarmPrinter]) -> None:
    """Decide by the clock on prints that no report arrives for: what stands still, stands still."""
    now = context.clock.now_ms()
    for printer in printers:
        if printer.hold_job is None or printer.observed_at is None or now - printer.observed_at < WRITE_MS:
            continue
        view = view_of(printer)
        if view is None or not view.full:
            continue
        job = await context.store.job(printer.org_id, printer.hold_job)
        if job is None:
            continue
        seen = msgspec.structs.replace(view, state=seen_now(printer, now))
        report = PrinterReport(id=printer.gateway_printer_id, state="offline", percent=view.percent)
        observed = _observation(job, mark(job.id, job.attempt), seen, report, now)
        decision = decide(status_of(job.state, job.phase, job.reason), observed)
        if decision.kind in (Kind.FAILED, Kind.UNCERTAIN):
            await _apply(context, printer, job, decision)
