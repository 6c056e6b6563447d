"""Schedulers that look at the same time, on one server and on two over one PostgreSQL."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand.engine.requests import Act, JobFilter, Settle
from farhand.model.job import Actor, State
from farhand.systems.farm.dispatch import dispatch
from farhand.testing.factories import granted, report
from tests.server.serving import Server, serving
from tests.systems.farm.conftest import Farm, Gateway, new_farm, new_gateway

PRINTERS = 10
ROUNDS = 50
ACTOR = Actor(kind="root")


@pytest.fixture
def servers(tmp_path: Path, postgres_url: str) -> Iterator[tuple[Server, Server]]:
    sections: dict[str, Any] = {"commands": {}}
    with (
        serving(tmp_path / "one", database=postgres_url, sections=sections) as one,
        serving(tmp_path / "two", database=postgres_url, sections=sections) as two,
    ):
        yield one, two


def idle_farm(server: Server) -> tuple[Farm, Gateway]:
    farm = new_farm(server)
    gateway = new_gateway(server, farm)
    for number in range(PRINTERS):
        gateway.shown[f"p{number}"] = {"id": f"p{number}", "state": "idle"}
    gateway.tell()
    for name in gateway.shown:
        farm.claim(name)
    gateway.tell()
    return farm, gateway


def look_at_once(servers: tuple[Server, ...], farm: Farm, looks: int) -> None:
    """Every server looks for work several times at the same moment."""

    async def many(server: Server) -> None:
        found = await server.context.store.farms.find(1, farm.id)
        assert found is not None
        await asyncio.gather(*(dispatch(server.context, found) for _ in range(looks)))

    for done in [asyncio.run_coroutine_threadsafe(many(server), server.loop) for server in servers]:
        done.result(timeout=60)


async def end_all(server: Server, farm: Farm) -> list[bytes]:
    """Every offered job is printed, every bed cleared; the printers that had one."""
    store = server.context.store
    used: list[bytes] = []
    for job in await store.jobs(JobFilter(org_id=1, kind="farm.print", state=State.CLAIMED, limit=200)):
        assert job.device_id is not None
        used.append(job.device_id)
        printer = await store.farms.printer(1, job.device_id)
        assert printer is not None
        assert printer.hold_job == job.id
        act = Act(org_id=1, job_id=job.id, agent_id=printer.agent_id)
        granted(await store.settle(Settle(act=act, report=report(ok=True, evidence="telemetry"))))
        assert await store.farms.clear_bed(printer, "", ACTOR)
    return used


def run_rounds(servers: tuple[Server, ...], looks: int) -> None:
    farm, gateway = idle_farm(servers[0])
    given: Counter[bytes] = Counter()
    left = PRINTERS * ROUNDS
    made = farm.submit(copies=left)
    copies = farm.put(made).ok()["copies"]
    assert len(copies) == left
    while left:
        gateway.tell()
        look_at_once(servers, farm, looks)
        used = servers[0].do(end_all(servers[0], farm))
        assert 0 < len(used) == len(set(used)) <= PRINTERS
        given.update(used)
        left -= len(used)
    assert sum(given.values()) == PRINTERS * ROUNDS
    for job_id in copies[::PRINTERS]:
        job = servers[-1].job(job_id)
        assert (job["state"], job["attempt"]) == ("done", 1)


def test_two_servers_never_give_one_printer_two_jobs_in_five_hundred_dispatches(
    servers: tuple[Server, Server],
) -> None:
    run_rounds(servers, looks=2)


def test_looks_of_one_server_never_give_one_printer_two_jobs(tmp_path: Path) -> None:
    with serving(tmp_path / "data", sections={"commands": {}}) as server:
        run_rounds((server,), looks=3)
