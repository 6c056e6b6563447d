"""Who is at it, on a terminal, while `farhand fetch` waits."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from farhand.cli.output import make_console
from farhand.cli.words import clean, sentence
from farhand.model.errors import FarhandError
from farhand.protocol.client import JobView

if TYPE_CHECKING:
    from farhand.client import Client


class Progress:
    """One line on standard error that leaves nothing behind; nothing at all in a pipe."""

    def __init__(self, client: "Client", route: str | None) -> None:
        self._client = client
        self._waiting = f"waiting for {route or 'an agent'}"
        self._names: dict[str, str] = {}
        console = make_console(stderr=True)
        self._line: Any = console.status(clean(self._waiting)) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._line is not None:
            self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.stop()

    def change(self, job: JobView) -> None:
        """Shows where the job stands."""
        if self._line is not None:
            from rich.text import Text

            self._line.update(Text(clean(self._words(job)), no_wrap=True, overflow="ellipsis"))

    def _words(self, job: JobView) -> str:
        if job.state in ("claimed", "running"):
            return f"{' and '.join(self._at_it(job.id)) or 'an agent'} is at it"
        if job.state == "queued":
            return self._waiting if job.reason is None else f"{self._waiting}: {job.reason}"
        return sentence(job)

    def _at_it(self, job_id: str) -> list[str]:
        """The agents that have the job now, by name where the key may read those."""
        try:
            found = self._client.events(job_id)
        except FarhandError:
            return []
        having: dict[str, None] = {}
        for event in found:
            who = event.actor.removeprefix("agent:")
            if event.verb == "claim":
                having[who] = None
            elif event.verb in ("refuse", "release", "settle"):
                having.pop(who, None)
        return [self._name(agent_id) for agent_id in having]

    def _name(self, agent_id: str) -> str:
        if agent_id not in self._names:
            try:
                self._names[agent_id] = self._client.agent(agent_id).name
            except FarhandError:
                self._names[agent_id] = f"agent {agent_id}"
        return self._names[agent_id]
