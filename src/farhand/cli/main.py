"""`farhand`: the commands by name, loaded when they are called, and how errors end them."""

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from farhand import __version__
from farhand.model.errors import FarhandError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

COMMANDS: Final = {
    "serve": ("farhand.cli.serve:serve", "Run a server."),
    "agent": ("farhand.cli.agent:agent", "Run or enrol the agent of this machine."),
    "print": ("farhand.cli.print_file:print_file", "Print a file."),
    "farm": ("farhand.cli.farm:farm", "Print on farms of 3D printers."),
    "fetch": ("farhand.cli.fetch:fetch_url", "Fetch a URL through an agent."),
    "jobs": ("farhand.cli.jobs:jobs", "Look at jobs and act on them."),
    "commands": ("farhand.cli.commands:commands", "Issue commands to agents and follow them."),
    "printers": ("farhand.cli.printers:printers", "List the printers."),
    "agents": ("farhand.cli.agents:agents", "List, approve and revoke agents."),
    "keys": ("farhand.cli.keys:keys", "Make and revoke client keys."),
    "demo": ("farhand.cli.demo:demo", "See a server, an agent and printers at work."),
}


class Commands(click.Group):
    """Loads a command's module when it is called, and turns every error into one message."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command behind a name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(import_module(module), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, or says which name comes near."""
        from farhand.model.policy import suggest

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}{suggest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text, without loading a single one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Runs the command; ends with its exit code, never with a traceback."""
        extra["standalone_mode"] = False
        given = list(sys.argv[1:] if args is None else args)
        code: Any
        try:
            code = super().main(given, *rest, **extra)
        except Exception as error:
            code = _report(error, as_json="--json" in given)
        except KeyboardInterrupt:
            click.echo("", err=True)
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception, *, as_json: bool) -> int:
    """Says what went wrong and what to do; returns the exit code."""
    if isinstance(error, click.Abort):
        click.echo("", err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # Whoever read the output has gone; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, click.ClickException):
        return _report_click(error, as_json=as_json)
    if os.environ.get("FARHAND_DEBUG"):
        raise error
    if isinstance(error, FarhandError):
        from farhand.cli.words import advice

        message = advice(error)
        _say(message, as_json=as_json, members=_members(error))
        return FAILED
    if isinstance(error, OSError) and error.filename is not None:
        _say(f"{error.filename}: {error.strerror}", as_json=as_json)
        return FAILED
    _say(
        f"unexpected {type(error).__name__}: {error}\n"
        "This is a fault of farhand; FARHAND_DEBUG=1 shows where it happened.",
        as_json=as_json,
    )
    return FAILED


def _report_click(error: click.ClickException, *, as_json: bool) -> int:
    if isinstance(error, click.UsageError) and not as_json:
        error.show()
    else:
        _say(error.format_message(), as_json=as_json)
    return error.exit_code


def _members(error: FarhandError) -> dict[str, Any]:
    problem = getattr(error, "problem", None)
    if problem is None or isinstance(problem, str):
        return {"code": problem} if problem else {}
    return {"code": problem.code, "status": problem.status, "retryable": problem.retryable, **problem.extra}


def _say(message: str, *, as_json: bool, members: dict[str, Any] | None = None) -> None:
    if as_json:
        click.echo(json.dumps({"error": {"detail": message, **(members or {})}}), err=True)
        return
    click.echo(f"farhand: {message}", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="farhand", message="%(prog)s %(version)s")
def main() -> None:
    """A self-hosted control plane for machines nobody can call.

    A server writes down what should happen; an agent at the edge dials out, does it and
    reports what happened.

    \b
    farhand demo           see it all at work on this machine
    farhand serve          run a server
    farhand agent join URL let this machine's printers take part
    """
