"""Payload URLs at the edges: closed addresses, slow targets, large documents, a full disk."""

import shutil
import time
from pathlib import Path

import pytest

from tests.server.serving import serving
from tests.server.target import listening


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8/a", "http://localhost/a", "http://[::1]/a", "http://169.254.169.254/latest",
     "http://10.1.2.3/", "http://192.168.1.1/", "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/", "http://2130706433/"],
)  # fmt: skip
def test_addresses_inside_are_closed_unless_opened(tmp_path: Path, url: str) -> None:
    with serving(tmp_path / "data", payload_loopback=False) as server:
        machine = server.machine()
        document = server.try_submit(machine.printers[0], type="raw_uri", url=url).problem(
            422, "payload-fetch-failed"
        )
        assert document["failure_source"] == "policy"


def test_ports_that_are_not_listed_are_closed(tmp_path: Path) -> None:
    with serving(tmp_path / "data", payload_ports=("80", "443")) as server, listening() as target:
        machine = server.machine()
        reply = server.try_submit(machine.printers[0], type="raw_uri", url=target.url())
        assert reply.problem(422, "payload-fetch-failed")["fetch_code"] == "blocked-port"
        assert target.asked == []


def test_a_target_that_is_too_slow_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path / "data", payload_fetch_ms=500) as server, listening() as target:
        target.open.clear()
        machine = server.machine()
        began = time.monotonic()
        reply = server.try_submit(machine.printers[0], type="raw_uri", url=target.url())
        assert reply.problem(422, "payload-fetch-failed")["fetch_code"] == "timeout"
        assert time.monotonic() - began < 5


def test_a_document_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, payload_bytes_max=100_000) as server, listening() as target:
        machine = server.machine()
        target.body = b"x" * 100_000
        server.submit(machine.printers[0], type="raw_uri", url=target.url())
        target.body = b"x" * 100_001
        reply = server.try_submit(machine.printers[0], type="raw_uri", url=target.url())
        document = reply.problem(413, "payload-too-large")
        assert (document["limit_bytes"], document["field"]) == (100_000, "url")
        assert list((data / "payloads" / "incoming").iterdir()) == []


def test_a_store_that_cannot_write_ends_the_fetch_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, payload_fetch_ms=60_000) as server, listening() as target:
        machine = server.machine()
        target.body = b"x" * 8_000_000
        shutil.rmtree(data / "payloads" / "incoming")
        began = time.monotonic()
        message = {"type": "raw_uri", "url": target.url()}
        headers = {"Idempotency-Key": "once"}
        server.try_submit(machine.printers[0], headers=headers, **message).problem(500, "internal")
        assert time.monotonic() - began < 10
        (data / "payloads" / "incoming").mkdir()
        server.try_submit(machine.printers[0], headers=headers, **message).ok(201)
