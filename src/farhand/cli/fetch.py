"""`farhand fetch`: a URL through an agent, with the manners of curl."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from farhand.cli.connection import Session, api_options
from farhand.cli.fetch_exits import (
    PARTIAL,
    TIMEOUT,
    TOO_LARGE,
    UNWELCOME,
    UNWRITTEN,
    exit_of_code,
    exit_of_failure,
)
from farhand.cli.interrupt import HeldInterrupt
from farhand.cli.mistakes import Mistake
from farhand.cli.output import show_json
from farhand.cli.print_file import Duration
from farhand.cli.words import clean, next_step
from farhand.model.errors import FarhandError

if TYPE_CHECKING:
    from farhand.client import Client, Fetched, FetchFailed, FetchOptions
    from farhand.protocol.client import SubmitReply

FORM: Final = "application/x-www-form-urlencoded"


@click.command("fetch")
@click.argument("url")
@click.option("-X", "--request", "method", metavar="METHOD", help="Method [GET, or POST with --data].")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header; repeat it."
)
@click.option(
    "-d", "--data", "data", multiple=True, metavar="DATA|@FILE", help="The body; @- is standard input."
)
@click.option("--via", metavar="AGENT|TAG", help="The agent, by name or id, or a tag that it has.")
@click.option("-r", "--range", "part", metavar="A-B", help="Only these bytes.")
@click.option("-o", "--output", metavar="FILE", help="Write there; - is standard output.")
@click.option("-i", "--include", is_flag=True, help="Show status and headers before the body.")
@click.option("-L", "--location/--no-location", default=True, help="Follow redirects [yes].")
@click.option("-k", "--insecure", is_flag=True, help="Take any certificate, where the agent may.")
@click.option("--private", is_flag=True, help="Private addresses, where the agent may.")
@click.option(
    "-m",
    "--timeout",
    "seconds",
    type=click.FloatRange(0.1, 120),
    metavar="S",
    help="Time for the request [10].",
)
@click.option(
    "--max-bytes", type=click.IntRange(1, 64 << 20), metavar="N", help="Crop the body there [2 MiB]."
)
@click.option("--idempotent", is_flag=True, help="This POST may be made twice.")
@click.option("--wait", "wait_s", type=Duration(), metavar="TIME", help="Give up after this, agent or not.")
@click.option("-f", "--fail", is_flag=True, help="No body and exit code 22 from status 400 on.")
@click.option("--idempotency-key", metavar="KEY", help="The same key never makes a second request.")
@api_options
def fetch_url(
    session: Session, url: str, output: str | None, include: bool, wait_s: int | None, fail: bool, **said: Any
) -> int:
    """Have an agent request a URL, and write out the body.

    Nothing else goes to standard output. Ctrl-C cancels the request.

    \b
    Exit codes as curl's: 3 malformed URL, 6 name not resolved, 7 no connection,
    8 no valid answer, 18 damaged on the way, 22 --fail, 23 cannot write,
    28 timeout, 33 bad range, 35 and 60 TLS, 47 redirects, 56 other failure of
    the target, 61 coding, 63 too large or cropped. Ours: 1 farhand server,
    2 wrong command line, 110 refused by a rule, 111 no agent took it,
    112 uncertain, 113 cancelled, 114 failure of the agent.
    """
    from farhand.client import FetchFailed, StillOpen

    via = said.pop("via")
    options = parse_request(**said)
    with session.client() as client:
        held = HeldInterrupt()
        try:
            with held:
                made, route = _submit(client, url, via, options)
        except FarhandError as error:
            return _refused(error, session)
        try:
            held.obey()
            found = _wait(session, client, made.id, wait_s, route)
        except FetchFailed as failure:
            return _failed(session, failure)
        except StillOpen:
            _say(f"({TIMEOUT}) no answer within {wait_s} s")
            _cancel(client, made.id)
            return TIMEOUT
        except KeyboardInterrupt:
            _cancel(client, made.id)
            raise
        return _deliver(session, client, found, output, include=include, fail=fail)


def parse_request(
    *,
    method: str | None,
    headers: Sequence[str],
    data: Sequence[str],
    part: str | None,
    location: bool,
    insecure: bool,
    private: bool,
    seconds: float | None,
    max_bytes: int | None,
    idempotent: bool,
    idempotency_key: str | None,
) -> "FetchOptions":
    """A request from a command line. Raises Mistake saying which option cannot be read."""
    from farhand.client.plan import new_idempotency_key

    named = _headers(headers)
    if data and not any(name.lower() == "content-type" for name in named):
        named["Content-Type"] = FORM
    options: FetchOptions = {
        "method": method.upper() if method else None,
        "headers": named,
        "body": b"&".join(_read(entry) for entry in data) if data else None,
        "range": part if part is None or "=" in part else f"bytes={part}",
        "follow_redirects": location,
        "allow_insecure_tls": insecure,
        "allow_private_ip": private,
        "idempotent": idempotent,
        "source": "farhand fetch",
        "idempotency_key": idempotency_key or new_idempotency_key(),
    }
    if seconds is not None:
        options["timeout_ms"] = round(seconds * 1000)
    if max_bytes is not None:
        options["max_response_bytes"] = max_bytes
    return options


def _headers(lines: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.strip()
        if not colon or not name:
            raise Mistake(f"write --header '{line}: VALUE'")
        if name.lower() in (known.lower() for known in found):
            raise Mistake(f"--header {name} is given twice; join the values with a comma")
        found[name] = value.strip()
    return found


def _read(entry: str) -> bytes:
    if not entry.startswith("@"):
        return entry.encode("utf-8", "surrogateescape")
    if entry == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(entry[1:]).read_bytes()
    except OSError as error:
        raise Mistake(f"cannot read {entry[1:]}: {error.strerror}") from error


def _submit(
    client: "Client", url: str, via: str | None, options: "FetchOptions"
) -> "tuple[SubmitReply, str | None]":
    """Submits for any agent, for the one called `via`, or for those with that tag; and which it was."""
    from farhand.client import ApiError

    if via is None:
        return client.submit_fetch(url, **options), None
    try:
        return client.submit_fetch(url, **{**options, "agent": via}), f"the agent {via}"
    except ApiError as error:
        if error.problem.code != "unknown-agent":
            raise
        nobody = error
    try:
        return client.submit_fetch(url, **{**options, "tags": [via]}), f"an agent with the tag {via}"
    except ApiError as error:
        if not str(error.problem.extra.get("field")).startswith("tags"):
            raise
        said = nobody.message.removeprefix("agent: ")
        raise Mistake(f"--via {via}: {said}; and no agent has such a tag") from error


def _refused(error: FarhandError, session: Session) -> int:
    """A request that every agent would refuse was refused at once; other errors are raised."""
    from farhand.client import ApiError, Unreachable

    code = error.problem.extra.get("fetch_code") if isinstance(error, ApiError) else None
    if isinstance(code, str) and not session.as_json:
        number = exit_of_code(code, "policy")
        _say(f"({number}) {error.message}")
        return number
    if isinstance(error, Unreachable) and error.maybe_taken:
        raise FarhandError(
            f"{error.message}\n"
            "The request may have been taken all the same: farhand jobs list --kind fetch.http"
        ) from error
    raise error


def _wait(
    session: Session, client: "Client", job_id: str, wait_s: int | None, route: str | None
) -> "Fetched":
    from farhand.cli.fetch_progress import Progress

    limit_ms = None if wait_s is None else wait_s * 1000
    if session.as_json:
        return client.wait_fetch(job_id, timeout_ms=limit_ms, load=False)
    with Progress(client, route) as progress:
        return client.wait_fetch(job_id, timeout_ms=limit_ms, on_change=progress.change, load=False)


def _cancel(client: "Client", job_id: str) -> None:
    from farhand.client import ApiError

    try:
        job = client.cancel(job_id, reason="farhand fetch ended")
    except ApiError as error:
        if error.problem.code == "state-conflict":
            return
        click.echo(f"It could not be cancelled: {clean(error.message)}", err=True)
    except FarhandError as error:
        click.echo(f"It goes on, the server cannot be asked to stop it: {clean(error.message)}", err=True)
    else:
        words = "Cancelled." if job.final else f"The agent is asked to stop: farhand jobs show {job_id}"
        click.echo(words, err=True)


def _failed(session: Session, failure: "FetchFailed") -> int:
    number = exit_of_failure(failure)
    if session.as_json:
        show_json(failure.job)
        return number
    _say(f"({number}) {failure.message}")
    if failure.job.state == "uncertain":
        click.echo(next_step(failure.job), err=True)
    if failure.job.state == "expired":
        click.echo("Who could have taken it: farhand agents list", err=True)
    return number


def _deliver(
    session: Session, client: "Client", found: "Fetched", output: str | None, *, include: bool, fail: bool
) -> int:
    from farhand.cli.fetch_output import Damaged, Unwelcome, Writer

    if session.as_json:
        show_json(found.job)
    if fail and not found.ok:
        _say(f"({UNWELCOME}) the target answered {found.status} {clean(found.result.status_text)}".rstrip())
        return UNWELCOME
    if session.as_json and output in (None, "-"):
        return _cropped(found)
    writer = Writer(output, found.result, include=include)
    try:
        writer.take(client, found)
    except BrokenPipeError:
        raise
    except (Unwelcome, OSError) as error:
        why = (
            str(error)
            if isinstance(error, Unwelcome)
            else f"cannot write {output or 'the body'}: {error.strerror}"
        )
        _say(f"({UNWRITTEN}) {why}")
        return UNWRITTEN
    except Damaged as error:
        _say(f"({PARTIAL}) {error}")
        return PARTIAL
    return _cropped(found)


def _cropped(found: "Fetched") -> int:
    result = found.result
    if not result.cropped:
        return 0
    whole = "" if result.crop_original_size is None else f" of {result.crop_original_size}"
    _say(f"({TOO_LARGE}) cropped: the first {result.bytes_written}{whole} bytes; --max-bytes allows more")
    return TOO_LARGE


def _say(message: str) -> None:
    click.echo(f"farhand: {clean(message)}", err=True)
