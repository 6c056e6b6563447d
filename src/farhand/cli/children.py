"""Processes that end with their owner, whatever ends it."""

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from farhand.model.clock import Clock
from farhand.model.errors import FarhandError

END_S: Final = 10
LOOK_S: Final = 0.05
TAIL: Final = 15


class Child:
    """One process, its output in a file. In a session of its own, so that Ctrl-C reaches its owner alone."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text("utf-8", "replace")

    def check(self) -> None:
        """Raises FarhandError, with the end of its output, when it has ended."""
        if not self.runs:
            last = "\n".join(self.output().splitlines()[-TAIL:])
            raise FarhandError(f"the {self.name} ended ({self._process.returncode}):\n{last}")

    def end(self) -> None:
        """Asks it to end, and makes it end when it does not."""
        if self.runs:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        if self.runs:
            self._process.kill()
        self._process.wait()


class Children:
    """Several of them; all end, the last one first, when the block does."""

    def __init__(self, logs: Path, environment: Mapping[str, str], clock: Clock) -> None:
        self._logs, self._environment, self._clock = logs, environment, clock
        self._running: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._running:
            child = self._running[-1]
            try:
                child.end()
            finally:
                self._running.pop()

    def start(self, name: str, command: Sequence[str | Path], **more: str) -> Child:
        """Starts one; `more` is added to its environment."""
        child = Child(name, command, self._logs / f"{name}.log", {**self._environment, **more})
        self._running.append(child)
        return child

    def finish(self, child: Child, seconds: int) -> None:
        """Waits for one that ends by itself. Raises FarhandError when it fails or takes too long."""
        self._running.remove(child)
        try:
            self.wait(lambda: not child.runs, f"{child.name!r}", seconds)
        finally:
            child.end()
        if child.code != 0:
            child.check()

    def check(self) -> None:
        """Raises FarhandError when one has ended by itself."""
        for child in self._running:
            child.check()

    def wait(self, holds: Callable[[], bool], what: str, seconds: int) -> None:
        """Waits for a condition. Raises FarhandError when it takes too long or a child ends."""
        until = self._clock.monotonic_ms() + seconds * 1000
        while not holds():
            self.check()
            if self._clock.monotonic_ms() > until:
                raise FarhandError(f"{what} took longer than {seconds} s; look into {self._logs}")
            threading.Event().wait(LOOK_S)
