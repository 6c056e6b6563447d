"""Programs that know nothing but the text of seed 000 work with this server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.seed_parts import SeedAgent, SeedClient, ask
from tests.server.serving import PDF, ROOT, Server, serving


@pytest.fixture
def seed_server(tmp_path: Path, database: str | None) -> Iterator[Server]:
    with serving(tmp_path / "data", database=database, poll_wait_ms=300) as running:
        yield running


def test_an_agent_and_a_client_of_the_seed_print_through_this_server(seed_server: Server) -> None:
    base = f"http://127.0.0.1:{seed_server.port}"
    printers = [{"name": "Zebra", "can_pdf": False}, {"name": "Office", "can_pdf": True}]
    agent = SeedAgent(base, "the-agents-own-key", "desk", printers)
    client = SeedClient(base, ROOT)
    computer = agent.register()
    assert agent.register() == computer
    zebra, office = agent.printer_ids

    assert agent.once() is False
    label = client.submit(zebra, "raw_base64", b"^XA^XZ")
    letter = client.submit(office, "pdf_base64", PDF)
    assert client.status(label)["state"] == "queued"
    assert agent.once()
    assert agent.once()
    assert agent.printed == [(zebra, "raw", b"^XA^XZ"), (office, "pdf", PDF)]
    for job_id in (label, letter):
        job = client.status(job_id)
        assert (job["state"], job["error"]) == ("done", None)
        assert job["created_at"] <= job["finished_at"]

    failed = client.submit(zebra, "raw_base64", b"^XA^XZ")
    assert agent.once(error="head open")
    assert {k: client.status(failed)[k] for k in ("state", "error", "printer_id")} == {
        "state": "failed",
        "error": "head open",
        "printer_id": zebra,
    }


def test_strangers_of_the_seed_are_kept_out(seed_server: Server) -> None:
    base = f"http://127.0.0.1:{seed_server.port}"
    agent = SeedAgent(base, "the-agents-own-key", "desk", [{"name": "p", "can_pdf": False}])
    agent.register()
    with pytest.raises(PermissionError, match="401"):
        SeedAgent(base, "another-agents-key", "desk", []).register()
    assert ask(base, "GET", "/agent/jobs", "a-key-nobody-knows")[0] == 401
    assert ask(base, "GET", "/printers", "a-token-nobody-knows")[0] == 401
    job_id = SeedClient(base, ROOT).submit(agent.printer_ids[0], "raw_base64", b"x")
    other = SeedAgent(base, "another-agents-key", "other", [])
    other.register()
    assert ask(base, "GET", f"/agent/jobs/{job_id}/payload", other.key)[0] in (403, 404)
    assert ask(base, "POST", f"/agent/jobs/{job_id}/result", other.key, {"ok": True})[0] in (403, 404)
    assert ask(base, "GET", "/health", "x")[0] == 200
