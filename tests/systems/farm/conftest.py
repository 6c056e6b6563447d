"""A server with a farm on each database, a clock of the test's own, and gateways that speak plain HTTP."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from farhand.systems.farm.names import mark
from farhand.testing.clock import FakeClock
from tests.server.serving import Reply, Server, serving

GCODE = b"G28\nG1 X10 Y10\n"
_names = itertools.count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty database: a file in the data folder, or a real PostgreSQL."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def clock() -> FakeClock:
    """A clock of the test's own."""
    return FakeClock()


@pytest.fixture
def server(tmp_path: Path, database: str | None, clock: FakeClock) -> Iterator[Server]:
    """A server whose time stands still until the test moves it."""
    with serving(tmp_path / "data", database=database, clock=clock, sections={"commands": {}}) as running:
        yield running


@dataclass(slots=True, kw_only=True)
class Farm:
    """A farm on a server, and short words for what people do with it."""

    server: Server
    id: str
    name: str

    def submit(self, **more: Any) -> Any:
        """The reply to a new print."""
        return self.try_submit(**more).ok(201)

    def try_submit(self, **more: Any) -> Reply:
        """Submit a print."""
        message = {"type": "farm.print", "farm": self.name, "filename": "part.gcode", **more}
        headers = message.pop("headers", None)
        return self.server.call("POST", "/jobs", json_body=message, headers=headers)

    def put(self, made: Any, content: bytes = GCODE) -> Reply:
        """Put a file to the address of a reply."""
        return put_file(self.server, made["upload"]["url"], content)

    def ready(self, content: bytes = GCODE, **more: Any) -> str:
        """A print with its file; its id."""
        made = self.submit(**more)
        self.put(made, content).ok()
        return made["job_id"]

    def status(self) -> dict[str, Any]:
        """The farm's printers by name."""
        found = self.server.call("GET", f"/farms/{self.id}/status").ok()
        return {printer["name"]: printer for printer in found["printers"]}

    def unclaimed(self) -> Any:
        """What nobody claimed."""
        return self.server.call("GET", f"/farms/{self.id}/unclaimed-printers").ok()

    def claim(self, printer: str, **more: Any) -> Any:
        """Claim a printer that was seen; its view."""
        return self.try_claim(printer, **more).ok(201)

    def try_claim(self, printer: str, **more: Any) -> Reply:
        """Claim a printer."""
        message = {"farm": self.name, "gateway_printer_id": printer, "name": printer.upper(), **more}
        return self.server.call("POST", "/printers", json_body=message)

    def bed_cleared(self, printer_id: str) -> Reply:
        """A person cleared the bed."""
        return self.server.call("POST", f"/printers/{printer_id}/bed-cleared")


def put_file(server: Server, url: str, content: bytes) -> Reply:
    """Put a file to a signed address, without any key."""
    parts = urlsplit(url)
    return server.call("PUT", f"{parts.path}?{parts.query}", key=None, body=content)


def new_farm(server: Server) -> Farm:
    """A farm of its own."""
    name = f"farm-{next(_names)}"
    made = server.call("POST", "/farms", json_body={"name": name}).ok(201)
    return Farm(server=server, id=made["id"], name=name)


@dataclass(slots=True, kw_only=True)
class Gateway:
    """A gateway that tells what it is told to tell."""

    server: Server
    farm: Farm
    key: str
    name: str
    boot: str = "boot-1"
    seq: int = 0
    shown: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def show(self, printer: str, state: str, **more: Any) -> Any:
        """A printer is in a state from now on; the order that comes back for it."""
        self.shown[printer] = {"id": printer, "state": state, **more}
        return {order["id"]: order for order in self.tell()}.get(printer)

    def tell(self) -> Any:
        """Send the snapshots of all printers."""
        self.seq += 1
        message = {
            "farm": self.farm.name,
            "boot_id": self.boot,
            "seq": self.seq,
            "printers": list(self.shown.values()),
        }
        return self.call("POST", "/agent/telemetry", json_body=message).ok()["printers"]

    def call(self, method: str, path: str, **more: Any) -> Reply:
        """A request with the gateway's key."""
        return self.server.call(method, path, key=self.key, **more)

    def poll(self, *printer_ids: str) -> list[Any]:
        """The offers for these printers."""
        message = {"poll_id": f"poll-{next(_names)}", "lanes": list(printer_ids), "max": 16}
        return self.call("POST", "/agent/claim", json_body=message).ok()["jobs"]

    def start(self, job: Any, phase: str) -> Any:
        """Begin, or go on to a phase."""
        message = {"lease_token": job["lease_token"], "phase": phase}
        return self.call("POST", f"/agent/jobs/{job['job_id']}/start", json_body=message).ok()


def new_gateway(server: Server, farm: Farm) -> Gateway:
    """A gateway that the server knows."""
    name = f"gateway-{next(_names)}"
    made = server.call("POST", "/agents", json_body={"name": name}).ok(201)
    return Gateway(server=server, farm=farm, key=made["key"], name=name)


def identity(job: Any) -> str:
    """The name under which a claimed job lies on its machine."""
    return f"{mark(bytes.fromhex(job['job_id'].replace('-', '')), job['attempt'])}-part.gcode"


def work(job: Any, phase: str = "printing", started: str = "here") -> dict[str, Any]:
    """What a gateway has in hand."""
    return {"job_id": job["job_id"], "attempt": job["attempt"], "phase": phase, "started": started}


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def farm(server: Server) -> Farm:
    """An empty farm."""
    return new_farm(server)


@pytest.fixture
def gateway(server: Server, farm: Farm) -> Gateway:
    """A gateway of the farm."""
    return new_gateway(server, farm)


@dataclass(slots=True, kw_only=True)
class Printing:
    """A job that was dispatched to the printer `a`, taken and started."""

    job: Any
    printer: str
    name: str


@pytest.fixture
def printing(farm: Farm, gateway: Gateway) -> Printing:
    """A print that goes on at the printer `a`."""
    gateway.show("a", "idle")
    printer = farm.claim("a")["id"]
    gateway.show("a", "idle")
    farm.ready()
    (job,) = gateway.poll(printer)
    gateway.start(job, "uploading")
    gateway.start(job, "starting")
    name = identity(job)
    gateway.show("a", "printing", identity=name, percent=1.0, work=work(job))
    return Printing(job=job, printer=printer, name=name)
