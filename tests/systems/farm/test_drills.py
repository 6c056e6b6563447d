"""A gateway as a process that is killed: nothing is started twice, and nothing is lost."""

from pathlib import Path

import pytest

from farhand.systems.farm.rules import Seen
from tests.agent.real import Process
from tests.systems.farm.shop import Shop
from tests.systems.farm.test_gateway import LONG, SLOW, finish, live, shop, started

__all__ = ["live", "shop"]
"""Fixtures that these tests share with those of the gateway."""


def process(shop: Shop) -> Process:
    """The gateway as its own process."""
    settings = "\n".join(
        [
            f'server = "http://127.0.0.1:{shop.server.port}"',
            'name = "gateway"',
            f'key = "{shop.key}"',
            f'data = "{shop.folder / "agent"}"',
            "[farm]",
            f'farm = "{shop.farm.name}"',
            "look_ms = 20",
            "telemetry_ms = 50",
        ]
    )
    path = shop.folder / "agent.toml"
    path.write_text(settings + "\n")
    path.chmod(0o600)
    return Process(["agent", "run", "--config", str(path)], shop.folder / "log")


async def test_a_gateway_killed_while_its_printer_prints_finds_the_print_again(shop: Shop) -> None:
    running = process(shop)
    try:
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        running.kill()
        running.start()
        await shop.at("a", finish)
        await shop.until(job, "done")
        assert len(await shop.at("a", started)) == 1
        await shop.held("a", "bed")
    finally:
        running.end()


async def test_a_print_that_ends_while_its_gateway_is_dead_is_done_by_its_name(shop: Shop) -> None:
    running = process(shop)
    try:
        await shop.claim_all()
        job = await shop.print(LONG)
        await shop.until(job, "printing")
        running.kill()
        await shop.at("a", finish)
        assert (await shop.machine("a").snapshot()).state == Seen.FINISHED
        assert shop.server.job(job)["state"] == "running"
        running.start()
        await shop.until(job, "done")
    finally:
        running.end()


async def test_a_gateway_killed_in_an_upload_gives_it_back_and_the_print_happens_once(shop: Shop) -> None:
    shop.write_printers(a={"bytes_per_second": 1})
    running = process(shop)
    try:
        await shop.claim_all()
        job = await shop.print(SLOW)
        await shop.until(job, "uploading")
        running.kill()
        shop.write_printers(a={})
        running.start()
        done = await shop.until(job, "done")
        assert done["attempt"] > 1
        assert done["tries"] == 1
        assert len(await shop.at("a", started)) == 1
    finally:
        running.end()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
