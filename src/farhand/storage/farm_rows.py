"""Rows of farms, gateways and their printers."""

import secrets
from collections.abc import Callable, Sequence

from farhand.engine.enrolment import DeviceSpec
from farhand.engine.farms import (
    DEVICE_KIND,
    ClaimPrinter,
    Farm,
    FarmPrinter,
    Gateway,
    Observed,
    Sighting,
    Waiting,
)
from farhand.engine.registry import Agent
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.ids import id_text, new_id, parse_id
from farhand.model.job import Actor
from farhand.storage.audit import note
from farhand.storage.database import Database, Params, Row, Tx
from farhand.storage.devices import insert_device
from farhand.storage.registry_rows import REGISTRY_CHANGED

KEY_BYTES = 32


class FarmRows:
    """Farms and printers; `announce` is called when devices have changed."""

    def __init__(self, database: Database, clock: Clock, announce: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._announce = announce

    async def create(self, org_id: int, name: str, actor: Actor) -> Farm | Problem:
        """Make a farm. Problem `name-conflict` when there is one of this name."""
        now = self._clock.now_ms()
        farm = Farm(
            id=new_id(now),
            org_id=org_id,
            name=name,
            paused=False,
            upload_key=secrets.token_bytes(KEY_BYTES),
            created_at=now,
        )
        row = {"id": farm.id, "org_id": org_id, "name": name, "upload_key": farm.upload_key, "now": now}
        async with self._database.transaction() as tx:
            if not await tx.each("insert_farm", [row]):
                return Problem("name-conflict", f"there is already a farm called {name!r}")
            await self._audit(tx, org_id, actor, "farms.create", farm.id, name)
        return farm

    async def find(self, org_id: int, text: str) -> Farm | None:
        """A farm by its id or its name."""
        farm_id = parse_id(text)
        async with self._database.read() as reader:
            row = None
            if farm_id is not None:
                row = await reader.one("farm_by_id", {"id": farm_id, "org_id": org_id})
            if row is None:
                row = await reader.one("farm_by_name", {"name": text, "org_id": org_id})
        return _farm(row) if row is not None else None

    async def all(self, org_id: int | None = None) -> list[Farm]:
        """Farms by name, of one tenant or of all."""
        async with self._database.read() as reader:
            return [_farm(row) for row in await reader.all("list_farms", {"org_id": org_id})]

    async def set_paused(self, org_id: int, farm_id: bytes, *, paused: bool, actor: Actor) -> None:
        """Stop or resume dispatching to a whole farm."""
        async with self._database.transaction() as tx:
            await tx.run("pause_farm", {"id": farm_id, "org_id": org_id, "paused": int(paused)})
            action = "farms.pause" if paused else "farms.resume"
            await self._audit(tx, org_id, actor, action, farm_id, None)

    async def claim(self, request: ClaimPrinter) -> FarmPrinter | Problem:
        """A printer behind a gateway becomes a printer of the farm."""
        farm, now = request.farm, self._clock.now_ms()
        async with self._database.transaction() as tx:
            row = await tx.one("lock_agent", {"id": request.agent_id, "org_id": farm.org_id})
            if row is None:
                return Problem("unknown-agent", "gateway: there is no such agent", field="gateway")
            for known in await tx.all("gateway_printers", {"agent_id": request.agent_id}):
                if known[5] == request.gateway_printer_id:
                    return _claimed(known[6], id_text(known[0]))
            for known in await tx.all("agent_devices", {"agent_id": request.agent_id}):
                if known[4] == request.name and known[5] == DEVICE_KIND:
                    return Problem("name-conflict", f"this gateway already has a printer {request.name!r}")
            spec = DeviceSpec(
                name=request.name,
                kind=DEVICE_KIND,
                capabilities=request.declared,
                state="unknown",
                reason=None,
            )
            device = await insert_device(tx, Agent(*row), spec, now)
            new: Params = {
                "device_id": device.id,
                "org_id": farm.org_id,
                "farm_id": farm.id,
                "agent_id": request.agent_id,
                "gateway_printer_id": request.gateway_printer_id,
                "self_clearing": int(request.self_clearing),
                "now": now,
            }
            await tx.each("insert_farm_printer", [new])
            what = f"{farm.name}: {request.gateway_printer_id}"
            await self._audit(tx, farm.org_id, request.actor, "printers.claim", device.id, what)
            await tx.notify(REGISTRY_CHANGED)
            found = await tx.one("farm_printer", {"device_id": device.id, "org_id": farm.org_id})
        self._announce()
        if found is None:
            raise LookupError("a printer that was just claimed is not there")
        return FarmPrinter(*found)

    async def printers(self, farm_id: bytes) -> list[FarmPrinter]:
        """A farm's printers by name."""
        async with self._database.read() as reader:
            return [FarmPrinter(*row) for row in await reader.all("farm_printers", {"farm_id": farm_id})]

    async def printer(self, org_id: int, device_id: bytes) -> FarmPrinter | None:
        """One claimed printer."""
        async with self._database.read() as reader:
            row = await reader.one("farm_printer", {"device_id": device_id, "org_id": org_id})
        return FarmPrinter(*row) if row is not None else None

    async def of_gateway(self, agent_id: bytes) -> list[FarmPrinter]:
        """The claimed printers behind a gateway."""
        async with self._database.read() as reader:
            return [FarmPrinter(*row) for row in await reader.all("gateway_printers", {"agent_id": agent_id})]

    async def observe(self, rows: Sequence[Observed]) -> None:
        """Write down what printers were seen to be, in one order everywhere."""
        if not rows:
            return
        async with self._database.transaction() as tx:
            for row in sorted(rows, key=lambda row: row.device_id):
                seen = {"device_id": row.device_id, "view": row.view, "observed_at": row.observed_at}
                await tx.run("observe_printer", seen)
                if row.declared is not None:
                    declared = {"device_id": row.device_id, "declared": row.declared}
                    await tx.run("declare_printer", declared)

    async def hold(self, printer: FarmPrinter, change: str) -> bool:
        """Take a printer for a `foreign` print, raise its `bed` gate or `free` it; whether that applied."""
        async with self._database.transaction() as tx:
            if change == "free":
                return bool(await tx.run("clear_hold", {"device_id": printer.id, "reason": "bed"}))
            if change == "bed" and await tx.run("turn_hold", {"device_id": printer.id}):
                return True
            row: Params = {
                "device_id": printer.id,
                "org_id": printer.org_id,
                "job_id": None,
                "reason": change,
                "now": self._clock.now_ms(),
            }
            return bool(await tx.each("insert_hold", [row]))

    async def clear_bed(self, printer: FarmPrinter, cleared_key: str, actor: Actor) -> bool:
        """Lower the bed gate; whether it was up."""
        async with self._database.transaction() as tx:
            lowered = await tx.run("clear_hold", {"device_id": printer.id, "reason": "bed"})
            await tx.run("clear_printer", {"device_id": printer.id, "cleared_key": cleared_key})
            if lowered:
                await self._audit(tx, printer.org_id, actor, "printers.bed_cleared", printer.id, None)
        return bool(lowered)

    async def set_printer(
        self, printer: FarmPrinter, actor: Actor, *, paused: bool | None = None, wish: str | None = None
    ) -> None:
        """Give a printer no work or work again, or note what its print shall do next ("" for nothing)."""
        async with self._database.transaction() as tx:
            row: Params = {
                "device_id": printer.id,
                "paused": None if paused is None else int(paused),
                "wish": wish,
            }
            await tx.run("set_farm_printer", row)
            if paused is not None:
                action = "printers.pause" if paused else "printers.resume"
                await self._audit(tx, printer.org_id, actor, action, printer.id, None)

    async def sighted(self, gateway: Gateway, sightings: Sequence[Sighting]) -> None:
        """Write down that a gateway was heard, and the printers that nobody claimed."""
        org_id, now = gateway.org_id, gateway.seen_at
        async with self._database.transaction() as tx:
            seen = {"agent_id": gateway.agent_id, "org_id": org_id, "farm_id": gateway.farm_id, "now": now}
            await tx.run("see_gateway", seen)
            for one in sightings:
                row = {
                    "agent_id": one.agent_id,
                    "gateway_printer_id": one.gateway_printer_id,
                    "org_id": org_id,
                    "about": one.about,
                    "now": now,
                }
                await tx.run("sight_printer", row)

    async def unclaimed(self, farm_id: bytes) -> list[Sighting]:
        """Printers that the farm's gateways report and nobody claimed."""
        async with self._database.read() as reader:
            rows = await reader.all("unclaimed_printers", {"farm_id": farm_id})
        return [
            Sighting(
                agent_id=row[0],
                gateway_printer_id=row[1],
                about=row[2],
                first_seen_at=row[3],
                last_seen_at=row[4],
            )
            for row in rows
        ]

    async def gateways(self, farm_id: bytes) -> list[Gateway]:
        """The gateways that said that they serve the farm."""
        async with self._database.read() as reader:
            rows = await reader.all("farm_gateways", {"farm_id": farm_id})
        return [
            Gateway(agent_id=row[0], org_id=row[1], farm_id=row[2], seen_at=row[3], name=row[4])
            for row in rows
        ]

    async def heads(self, farm: Farm, limit: int) -> list[Waiting]:
        """Of each set of requirements that ready jobs have, the first of them, in no order."""
        found: list[Waiting] = []
        async with self._database.read() as reader:
            for fit in await reader.all("farm_fits", {"lane": farm.id}):
                rows = await reader.all("farm_heads", {"lane": farm.id, "fit": fit[0], "limit": limit})
                found += [Waiting(id=row[0], seq=row[1], priority=row[2], fit=row[3]) for row in rows]
        return found

    async def top(self, farm: Farm) -> int:
        """The highest priority among the farm's waiting jobs."""
        async with self._database.read() as reader:
            row = await reader.one("farm_top", {"lane": farm.id, "org_id": farm.org_id})
        return row[0] if row is not None and row[0] is not None else 0

    async def _audit(
        self, tx: Tx, org_id: int, actor: Actor, action: str, subject: bytes, data: str | None
    ) -> None:
        now = self._clock.now_ms()
        await note(tx, org_id=org_id, now=now, actor=actor, action=action, subject=subject, data=data)


def _farm(row: Row) -> Farm:
    return Farm(
        id=row[0], org_id=row[1], name=row[2], paused=bool(row[3]), upload_key=row[4], created_at=row[5]
    )


def _claimed(name: str, device_id: str) -> Problem:
    return Problem(
        "printer-claimed",
        f"the printer is claimed already, as {name!r}",
        field="gateway_printer_id",
        id=device_id,
    )
