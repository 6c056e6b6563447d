"""Farms, their gateways and printers as the engine holds them."""

from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmPrinter:
    """A claimed printer and what is known of it.

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
    self_clearing: bool
    paused: bool
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
