"""One lane per device: a device does one thing at a time, and a stuck one blocks only itself.

Work without a device has lanes of its own, as wide as their handlers say: one for what is
meant for this agent, one for what any agent of the same owners may do.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

OWN: Final = ""
OWNERS: Final = "\x00"
"""The names of the lanes without a device; no device has them."""

OWNERS_WORD: Final = "owners"
"""What the server calls the lanes of this agent's owners, taken together."""


class Lanes:
    """Which devices there are and which of them are at work. `widths` says how many jobs the
    lanes without a device take at once.

    Lanes go by the device's name, because work left behind by an earlier run must hold its
    lane before the server has given ids. `changed` is set when a lane appears or falls free,
    `left` whenever work ends.
    """

    def __init__(self, widths: Mapping[str, int] | None = None) -> None:
        self._widths = {name: width for name, width in (widths or {}).items() if width}
        self.changed = asyncio.Event()
        self.left = asyncio.Event()
        self._names: dict[str, str] = {}
        self._busy: dict[str, set[asyncio.Task[None]]] = {}

    def name(self, device_id: str) -> str | None:
        """The device's name, None when it is not, or no longer, there."""
        return self._names.get(device_id)

    def assign(self, names: Mapping[str, str]) -> None:
        """The devices that there are now, id to name."""
        appeared = {*names.items()} - {*self._names.items()}
        self._names = dict(names)
        if appeared:
            self.changed.set()

    def free(self) -> Sequence[str]:
        """Ids of the devices that could work now."""
        return [device_id for device_id, name in self._names.items() if self._may_bring(name)]

    def is_free(self, name: str) -> bool:
        """Whether one more job has room in this lane."""
        return len(self._busy.get(name, ())) < self._width(name)

    def _width(self, name: str) -> int:
        return self._widths.get(name, 0) if name in (OWN, OWNERS) else 1

    def _may_bring(self, name: str) -> bool:
        """What is meant for this agent can be work for either lane without a device."""
        return all(map(self.is_free, self._widths)) if name == OWN else self.is_free(name)

    def occupy(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs work in a lane until it ends."""
        task = asyncio.create_task(work)
        self._busy.setdefault(name, set()).add(task)
        task.add_done_callback(lambda done: self._leave(name, done))

    async def finish(self, grace_ms: int) -> None:
        """Waits for the work in all lanes, then cancels what is left."""
        tasks = self._tasks()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_ms / 1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._busy.values() for task in tasks]

    def _leave(self, name: str, task: asyncio.Task[None]) -> None:
        tasks = self._busy[name]
        was_free = self.is_free(name)
        tasks.discard(task)
        if not tasks:
            del self._busy[name]
        self.left.set()
        if self.is_free(name) and not was_free:
            self.changed.set()
