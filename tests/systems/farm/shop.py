"""A real server, a real gateway and virtual printers that people stand in front of."""

import asyncio
import tomllib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from farhand.agent.config import AgentConfig
from farhand.agent.runner import build
from farhand.model.clock import SystemClock
from farhand.systems.farm.drivers.machine import Machine
from farhand.systems.farm.drivers.virtual import VirtualPrinter
from farhand.systems.handlers import build_handlers
from tests.server.serving import Server
from tests.systems.farm.conftest import GCODE, Farm

DEADLINE_S = 30.0
T = TypeVar("T")


async def eventually(what: str, condition: Callable[[], T]) -> T:
    """The condition's first true value; it may block. Fails the test when the deadline passes."""
    end = asyncio.get_running_loop().time() + DEADLINE_S
    while asyncio.get_running_loop().time() < end:
        found = await asyncio.to_thread(condition)
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {DEADLINE_S} s in vain until {what}")


@dataclass(slots=True, kw_only=True)
class Shop:
    """A farm with one gateway; `options` are what its printers have beside their id."""

    server: Server
    farm: Farm
    folder: Path
    key: str
    printers: dict[str, str] = field(default_factory=dict[str, str])

    def write_printers(self, **printers: dict[str, Any]) -> None:
        """Write printers.toml."""
        lines: list[str] = []
        for name, options in printers.items():
            given = {"prepare_ms": 20, "duration_ms": 200, **options}
            lines += ["[[printer]]", f'id = "{name}"', 'driver = "virtual"']
            lines += [f"{key} = {_toml(value)}" for key, value in given.items()]
        text = "\n".join(lines) + "\n"
        tomllib.loads(text)
        (self.folder / "printers.toml").write_text(text)

    @property
    def settings(self) -> dict[str, object]:
        """The `[farm]` table."""
        return {"farm": self.farm.name, "look_ms": 20, "telemetry_ms": 50}

    @asynccontextmanager
    async def gateway(self) -> AsyncGenerator[None]:
        """The gateway runs until the block ends."""
        config = AgentConfig(
            server=f"http://127.0.0.1:{self.server.port}",
            name="gateway",
            data=self.folder / "agent",
            folder=self.folder,
            key=self.key,
            stop_grace_ms=10_000,
            sections={"farm": self.settings},
        )
        handlers = [one for one in build_handlers(config) if "farm.print" in one.kinds]
        agent = build(config, handlers, clock=SystemClock())
        running = asyncio.create_task(agent.run())
        try:
            yield
        finally:
            agent.stop()
            await running
            await agent.aclose()

    async def claim_all(self) -> None:
        """Claim every printer once the gateway has told of them all."""
        table = tomllib.loads((self.folder / "printers.toml").read_text())
        names = {entry["id"] for entry in table["printer"]}
        await eventually("all printers are seen", lambda: names <= set(self._unclaimed()))
        for name in sorted(names):
            made = await asyncio.to_thread(self.farm.claim, name)
            self.printers[name] = made["id"]

    def _unclaimed(self) -> list[str]:
        return [item["gateway_printer_id"] for item in self.farm.unclaimed()["items"]]

    def machine(self, name: str) -> VirtualPrinter:
        """The printer itself, for whoever stands in front of it."""
        return VirtualPrinter(self.folder / name, SystemClock())

    async def at(self, name: str, action: Callable[[Machine], T]) -> T:
        """Do something at the machine."""
        return await asyncio.to_thread(self.machine(name).change, action)

    async def print(self, content: bytes = GCODE, **more: Any) -> str:
        """A print with its file; its id."""
        return await asyncio.to_thread(lambda: self.farm.ready(content, **more))

    async def until(self, job_id: str, *states: str) -> Any:
        """The job once it is in one of these states or phases."""

        def there() -> Any:
            job = self.server.job(job_id)
            return job if job["state"] in states or job["phase"] in states else None

        return await eventually(f"the job is {' or '.join(states)}", there)

    async def clear(self, name: str) -> None:
        """A person clears a bed."""
        (await asyncio.to_thread(self.farm.bed_cleared, self.printers[name])).ok()

    async def held(self, name: str, hold: str | None) -> Any:
        """The printer once this, and nothing else, holds it."""

        def there() -> Any:
            (found,) = [one for one in self.farm.status().values() if one["gateway_printer_id"] == name]
            return found if found["hold"] == hold else None

        return await eventually(f"{name} is held by {hold}", there)


def _toml(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, int | float)
        else f'"{value}"'
    )
