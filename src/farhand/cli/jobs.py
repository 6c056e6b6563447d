"""`farhand jobs`: look at jobs and act on them."""

import click

from farhand.cli.connection import Session, api_options
from farhand.cli.output import Cell, Column, show_facts, show_json, show_table
from farhand.cli.print_file import Duration, follow, show_end
from farhand.cli.words import (
    CALM,
    EXIT_CODES,
    STYLES,
    age,
    change,
    clean,
    json_line,
    local_time,
    moment,
    next_step,
    sentence,
    state_words,
)
from farhand.model.clock import SystemClock
from farhand.model.job import State
from farhand.protocol.client import JobView

JOB_COLUMNS = (
    Column(title="ID"),
    Column(title="STATE"),
    Column(title="PRINTER", shrink=True),
    Column(title="AGE"),
    Column(title="TITLE", shrink=True),
)


@click.group()
def jobs() -> None:
    """Look at jobs and act on them."""


@jobs.command("list")
@click.option(
    "--state", type=click.Choice([str(state) for state in State]), metavar="STATE", help="Only in this state."
)
@click.option("--printer", "-p", metavar="NAME", help="Only of this printer: name, number or id.")
@click.option("--agent", metavar="NAME", help="Only of this agent: name or id.")
@click.option("--kind", help="Only of this kind, such as print.pdf.")
@click.option("--tag", help="Only with this tag.")
@click.option("--source", help="Only from this source.")
@click.option("--limit", "-n", type=click.IntRange(1, 200), default=20, show_default=True, help="How many.")
@click.option("--cursor", help="Go on where a list ended.")
@api_options
def list_jobs(
    session: Session,
    state: str | None,
    printer: str | None,
    agent: str | None,
    kind: str | None,
    tag: str | None,
    source: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """The newest jobs first."""
    from farhand.cli.names import agent_id, printer_id

    with session.client() as client:
        page = client.jobs(
            state=state,
            kind=kind,
            printer=printer_id(client, printer) if printer else None,
            agent=agent_id(client, agent) if agent else None,
            tag=tag,
            source=source,
            limit=limit,
            cursor=cursor,
        )
        if session.as_json:
            show_json(page)
            return
        shows_printers = any(job.printer_id for job in page.items)
        printers = (
            {found.id: found.name for found in client.printers(with_gone=True)} if shows_printers else {}
        )
    now = SystemClock().now_ms()
    rows = [
        (
            job.id,
            Cell(text=state_words(job), style=STYLES.get(job.state, CALM)),
            printers.get(job.printer_id or "", job.printer_id),
            age(job.created_at, now),
            job.title or job.kind,
        )
        for job in page.items
    ]
    show_table(JOB_COLUMNS, rows, empty="There are no such jobs.")
    if page.next is not None:
        click.echo(f"There are more: --cursor {page.next}", err=True)


@jobs.command("show")
@click.argument("job_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Stay until it has ended; the exit code says how.")
@click.option("--timeout", type=Duration(), metavar="TIME", help="Stop waiting after this; implies --wait.")
@api_options
def show_job(session: Session, job_id: str, wait: bool, timeout: int | None) -> int:
    """One job, and what can be done about it."""
    with session.client() as client:
        if wait or timeout:
            return follow(session, client, job_id, timeout)
        job = client.job(job_id)
        if session.as_json:
            show_json(job)
            return 0
        printers = {found.id: f"{found.name} on {found.agent}" for found in client.printers(with_gone=True)}
    show_facts(_facts(job, printers))
    advice = next_step(job)
    if advice is not None:
        click.echo(advice, err=True)
    return 0


def _facts(job: JobView, printers: dict[str, str]) -> dict[str, Cell | str | None]:
    return {
        "job": job.id,
        "state": Cell(text=sentence(job), style=STYLES.get(job.state, CALM)),
        "title": job.title,
        "kind": job.kind,
        "printer": printers.get(job.printer_id or "", job.printer_id),
        "payload": None if job.payload_size is None else f"{job.payload_size} bytes",
        "params": json_line(job.params),
        "source": job.source,
        "tags": ", ".join(job.tags) or None,
        "tries": str(job.tries) if job.tries > 1 else None,
        "last error": job.error if job.state != "failed" else None,
        "created": moment(job.created_at),
        "runs at": moment(job.run_at) if job.state == "scheduled" else None,
        "accepted": moment(job.accepted_at),
        "expires": None if job.final or job.accepted_at else moment(job.expires_at),
        "finished": moment(job.finished_at),
        "retry of": job.retry_of,
        "result": json_line(job.result),
    }


@jobs.command("events")
@click.argument("job_id", metavar="ID")
@api_options
def show_events(session: Session, job_id: str) -> None:
    """What happened to a job, oldest first."""
    with session.client() as client:
        found = client.events(job_id)
    if session.as_json:
        show_json({"items": found})
        return
    columns = (
        Column(title="TIME"),
        Column(title="VERB"),
        Column(title="STATE"),
        Column(title="BY", shrink=True),
        Column(title="REASON", shrink=True),
    )
    rows = [
        (
            f"{local_time(event.at).split(' ')[1]}.{event.at[20:23]}",
            event.verb,
            Cell(text=change(event), style=STYLES.get(event.to, CALM)),
            event.actor.partition(":")[0],
            event.reason,
        )
        for event in found
    ]
    show_table(columns, rows, empty="Nothing is known to have happened.")


@jobs.command("cancel")
@click.argument("job_id", metavar="ID")
@click.option("--reason", help="Why, for the trail.")
@click.option("--wait", is_flag=True, help="Stay until it has ended; the exit code says how.")
@api_options
def cancel_job(session: Session, job_id: str, reason: str | None, wait: bool) -> int:
    """Ask for a job to be cancelled. What really happens wins: it may still be printed."""
    with session.client() as client:
        job = client.cancel(job_id, reason=reason)
        if wait and not job.final:
            return follow(session, client, job_id, None)
    show_end(session, job)
    if not session.as_json and not job.final:
        click.echo("The agent is told; whether it could stop shows in the job's end.", err=True)
    return EXIT_CODES[job.state] if wait else 0


@jobs.command("retry")
@click.argument("job_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Stay until the new job has ended; the exit code says how.")
@api_options
def retry_job(session: Session, job_id: str, wait: bool) -> int:
    """Submit a finished or uncertain job again, as a new job."""
    with session.client() as client:
        made = client.retry(job_id)
        if wait:
            return follow(session, client, made.id, None)
    if session.as_json:
        show_json(made)
        return 0
    click.echo(made.id)
    click.echo(f"{clean(made.state)}; follow it with: farhand jobs show {made.id} --wait", err=True)
    return 0


@jobs.command("resolve")
@click.argument("job_id", metavar="ID")
@click.argument("outcome", type=click.Choice(["done", "failed"]))
@click.option("--note", help="How you know, for the trail.")
@api_options
def resolve_job(session: Session, job_id: str, outcome: str, note: str | None) -> None:
    """Say what really happened to an uncertain job."""
    with session.client() as client:
        job = client.resolve(job_id, outcome, note=note)
    show_end(session, job)
