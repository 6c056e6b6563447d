"""Farms, their gateways and printers as the engine holds them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from farhand.model.errors import Problem
from farhand.model.job import Actor

DEVICE_KIND = "farm-printer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Farm:
    """A set of printers with one queue, whose lane is the farm's id.

    `upload_key` signs the addresses to which files are put.
    """

    id: bytes
    org_id: int
    name: str
    paused: bool
    upload_key: bytes = field(repr=False)
    created_at: int


@dataclass(slots=True)
class FarmPrinter:
    """A claimed printer and what is known of it. Field order is that of the statements' columns.

    `view` is what its gateway last said, as JSON of the farm system's own. `hold` is the reason
    of what occupies it, `hold_job` the job where one does. `wish` is what its print shall do.
    """

    id: bytes
    org_id: int
    farm_id: bytes
    agent_id: bytes
    agent_state: str
    gateway_printer_id: str
    name: str
    declared: str
    self_clearing: int
    paused: int
    view: str | None
    observed_at: int | None
    cleared_key: str | None
    wish: str | None
    hold: str | None
    hold_job: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPrinter:
    """A person claims a printer behind a gateway for a farm."""

    farm: Farm
    agent_id: bytes
    gateway_printer_id: str
    name: str
    declared: str
    self_clearing: bool
    actor: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is to be kept of a snapshot; without `declared` that stays as it is."""

    device_id: bytes
    view: str
    observed_at: int
    declared: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """An agent that said that it serves a farm."""

    agent_id: bytes
    org_id: int
    farm_id: bytes
    seen_at: int
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A printer that a gateway reports and nobody claimed."""

    agent_id: bytes
    gateway_printer_id: str
    about: str
    first_seen_at: int
    last_seen_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that is ready to be dispatched; `fit` says what it needs of a printer."""

    id: bytes
    seq: int
    priority: int
    fit: str


class Farms(Protocol):
    """Farms, the printers that were claimed for them, and printers that nobody claimed."""

    async def create(self, org_id: int, name: str, actor: Actor) -> Farm | Problem:
        """Make a farm. Problem `name-conflict` when there is one of this name."""
        ...

    async def find(self, org_id: int, text: str) -> Farm | None:
        """A farm by its id or its name."""
        ...

    async def all(self, org_id: int | None = None) -> list[Farm]:
        """Farms by name, of one tenant or of all."""
        ...

    async def set_paused(self, org_id: int, farm_id: bytes, *, paused: bool, actor: Actor) -> None:
        """Stop or resume dispatching to a whole farm."""
        ...

    async def claim(self, request: ClaimPrinter) -> FarmPrinter | Problem:
        """A printer behind a gateway becomes a printer of the farm. Problem `printer-claimed` when it is."""
        ...

    async def printers(self, farm_id: bytes) -> list[FarmPrinter]:
        """A farm's printers by name."""
        ...

    async def printer(self, org_id: int, device_id: bytes) -> FarmPrinter | None:
        """One claimed printer."""
        ...

    async def of_gateway(self, agent_id: bytes) -> list[FarmPrinter]:
        """The claimed printers behind a gateway."""
        ...

    async def observe(self, rows: Sequence[Observed]) -> None:
        """Write down what printers were seen to be."""
        ...

    async def hold(self, printer: FarmPrinter, change: str) -> bool:
        """Take a printer for a `foreign` print, raise its `bed` gate or `free` it; whether that applied."""
        ...

    async def clear_bed(self, printer: FarmPrinter, cleared_key: str, actor: Actor) -> bool:
        """Lower the bed gate; whether it was up."""
        ...

    async def set_printer(
        self, printer: FarmPrinter, actor: Actor, *, paused: bool | None = None, wish: str | None = None
    ) -> None:
        """Give a printer no work or work again, or note what its print shall do next."""
        ...

    async def sighted(self, gateway: Gateway, sightings: Sequence[Sighting]) -> None:
        """Write down that a gateway was heard, and the printers that nobody claimed."""
        ...

    async def unclaimed(self, farm_id: bytes) -> list[Sighting]:
        """Printers that the farm's gateways report and nobody claimed."""
        ...

    async def gateways(self, farm_id: bytes) -> list[Gateway]:
        """The gateways that said that they serve the farm."""
        ...

    async def heads(self, farm: Farm, limit: int) -> list[Waiting]:
        """Of each set of requirements that ready jobs have, the first of them, in no order."""
        ...

    async def top(self, farm: Farm) -> int:
        """The highest priority among the farm's waiting jobs."""
        ...
