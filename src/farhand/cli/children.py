"""Processes that end with their owner, whatever ends it."""

import atexit
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

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
    """Several of them; all end, the last one first, when the block does.

    SIGTERM leaves the block with SystemExit 143, SIGINT with KeyboardInterrupt, but neither
    while a process is being started or ended: one that nobody knows of would stay.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str], clock: Clock) -> None:
        self._logs, self._environment, self._clock = logs, environment, clock
        self._running: list[Child] = []
        self._busy = False
        self._signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # For a signal that comes when the block has just been left.
        atexit.register(self._end_all)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._busy = True
        self._end_all()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        atexit.unregister(self._end_all)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            self._signal = number
            return
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _end_all(self) -> None:
        while self._running:
            child = self._running[-1]
            child.end()
            self._running.pop()

    def start(self, name: str, command: Sequence[str | Path], **more: str) -> Child:
        """Starts one; `more` is added to its environment."""
        self._busy = True
        try:
            child = Child(name, command, self._logs / f"{name}.log", {**self._environment, **more})
            self._running.append(child)
        finally:
            self._busy = False
        if self._signal is not None:
            self._on_signal(self._signal, None)
        return child

    def finish(self, child: Child, seconds: int) -> None:
        """Waits for one that ends by itself. Raises FarhandError when it fails or takes too long."""
        others = [other for other in self._running if other is not child]
        self.wait(lambda: not child.runs, f"{child.name!r}", seconds, watched=others)
        if child.code != 0:
            child.check()
        self._running.remove(child)

    def check(self) -> None:
        """Raises FarhandError when one has ended by itself."""
        for child in self._running:
            child.check()

    def wait(
        self, holds: Callable[[], bool], what: str, seconds: int, *, watched: Sequence[Child] | None = None
    ) -> None:
        """Waits for a condition. Raises FarhandError when it takes too long or a watched child ends."""
        until = self._clock.monotonic_ms() + seconds * 1000
        while not holds():
            for child in self._running if watched is None else watched:
                child.check()
            if self._clock.monotonic_ms() > until:
                raise FarhandError(f"{what} took longer than {seconds} s; look into {self._logs}")
            threading.Event().wait(LOOK_S)
