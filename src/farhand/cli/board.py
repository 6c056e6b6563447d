"""Live progress of jobs: spinners on a terminal, a line per change in a pipe."""

from types import TracebackType
from typing import Any, Self

import click

from farhand.cli.output import make_console
from farhand.cli.words import CALM, STYLES, clean, local_time, sentence
from farhand.model.clock import Clock, to_rfc3339
from farhand.protocol.client import JobView


class Board:
    """Shows, on standard error, where some jobs stand. Call `change` for each new view.

    A `passing` one leaves nothing on the terminal when it ends.
    """

    def __init__(self, clock: Clock, *, passing: bool = False) -> None:
        self._clock = clock
        self._said: dict[str, str] = {}
        self._tasks: dict[str, Any] = {}
        console = make_console(stderr=True)
        self._live: Any = _spinners(console, passing=passing) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def change(self, job: JobView) -> None:
        """Shows a job as it stands now."""
        text = sentence(job)
        if self._said.get(job.id) == text:
            return
        self._said[job.id] = text
        title = clean(job.title or job.id)
        if self._live is None:
            now = local_time(to_rfc3339(self._clock.now_ms())).split(" ")[1]
            click.echo(f"{now}  {title}: {text}", err=True)
            return
        ended = job.final or job.state == "uncertain"
        fields = {"title": title, "now": text, "style": STYLES.get(job.state, CALM)}
        if job.id not in self._tasks:
            self._tasks[job.id] = self._live.add_task(title, total=1, **fields)
        self._live.update(self._tasks[job.id], completed=int(ended), **fields)


def _spinners(console: Any, *, passing: bool) -> Any:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class NowColumn(TextColumn):
        """The job's state, in its colour and on one line."""

        def render(self, task: Any) -> Text:
            return Text(task.fields["now"], style=task.fields["style"], no_wrap=True, overflow="ellipsis")

    title = TextColumn("{task.fields[title]}", markup=False, table_column=Column(no_wrap=True, max_width=30))
    now = NowColumn("", table_column=Column(no_wrap=True, ratio=1))
    return Progress(
        SpinnerColumn(finished_text=" "),
        title,
        TimeElapsedColumn(),
        now,
        console=console,
        expand=True,
        transient=passing,
    )
