"""Ctrl-C while something is under way that could not be taken back without its reply."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self


class HeldInterrupt:
    """Keeps one Ctrl-C until the block has ended; a second one is obeyed at once."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def obey(self) -> None:
        """Raises the KeyboardInterrupt that was kept, if there was one."""
        if self._asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
