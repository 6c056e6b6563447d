"""Run the measures, print the table, write the results. Fails on errors, never on a ratio.

- `python -m bench`: everything, some minutes. Only a whole run writes bench/results.json, the others leave
  theirs in bench/work.
- `python -m bench --short`, or `--length short`: a few seconds a measure, for CI.
- `python -m bench --only idle --only held`, `--list`, `--ours floor` (to try the bench itself).
"""

import argparse
import resource
import shutil
import sys
import traceback
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bench import report
from bench.measure import Context, LoadFailed, Measure, Options
from bench.measures import Entry, find_measures
from bench.proc import pin
from bench.servers import FLOOR, ROOT, SEED, NotRunning, product

STAND_INS = {"floor": FLOOR, "seed": SEED}


def parse(arguments: list[str], entries: list[Entry]) -> argparse.Namespace:
    """Read the command line; an unknown measure ends the run with the known ones."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Farhand against its baselines.")
    names = [entry.name for entry in entries]
    parser.add_argument("--short", action="store_true", help="a few seconds a measure, small counts")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help="one measure; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="name the measures and stop")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (5, or 1 with --short)")
    parser.add_argument("--seconds", type=float, help="measured part of a trial (3, or 1 with --short)")
    parser.add_argument("--database", help="postgresql://… for our server instead of SQLite; must be empty")
    parser.add_argument(
        "--extra-pid",
        type=int,
        action="append",
        default=[],
        help="another process whose CPU is ours (PostgreSQL)",
    )
    parser.add_argument(
        "--ours", choices=["farhand", *STAND_INS], default="farhand", help="to try the bench itself"
    )
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--length", choices=["short", "long"], default="long", help="short is --short")
    wanted = parser.parse_args(arguments)
    wanted.short = wanted.short or wanted.length == "short"
    return wanted


def options_of(wanted: argparse.Namespace) -> Options:
    return Options(
        short=wanted.short,
        rounds=wanted.rounds or (1 if wanted.short else 5),
        seconds=wanted.seconds or (1.0 if wanted.short else 3.0),
        ours=STAND_INS.get(wanted.ours) or product(wanted.database),
        database=wanted.database,
        extra_pids=tuple(wanted.extra_pid),
    )


def run_all(entries: list[Entry], context: Context, console: Console) -> tuple[list[Measure], dict[str, str]]:
    """Run the measures one after the other; an error ends only its own measure."""
    measures: list[Measure] = []
    errors: dict[str, str] = {}
    for entry in entries:
        console.print(f"[bold]{entry.name}[/] {entry.about}")
        try:
            measure = entry.run(context)
        except (LoadFailed, NotRunning) as error:
            errors[entry.name] = str(error)
        except Exception:
            errors[entry.name] = traceback.format_exc()
        else:
            measures.append(measure)
            context.measured[entry.name] = measure
    return measures, errors


def main() -> int:
    """Return 0 unless a measure ended with an error."""
    entries = find_measures()
    wanted = parse(sys.argv[1:], entries)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    if wanted.list:
        for entry in entries:
            console.print(f"{entry.name:12} {entry.about}")
        return 0
    pin(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options = options_of(wanted)
    work = ROOT / "bench" / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    context = Context(options=options, work=work, say=lambda text: console.print(f"  [dim]{text}[/]"))
    before = report.machine()
    if before["cores"] < 2:
        console.print(
            "[yellow]one core only: server and generator share it, the figures are not comparable[/]"
        )
    chosen = [entry for entry in entries if not wanted.only or entry.name in wanted.only]
    measures, errors = run_all(chosen, context, console)
    whole = not (options.short or wanted.only or wanted.ours in STAND_INS)
    out = wanted.out or (ROOT / "bench" if whole else work) / "results.json"
    report.write_results(out, options, measures, errors, before)
    report.show(console, options, measures)
    for name, message in errors.items():
        console.print(f"[red]{name} failed:[/] {escape(message)}")
    console.print(f"written to {out}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
