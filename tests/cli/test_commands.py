"""jobs, printers, agents and keys, for people and with --json."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.client.server import FarhandServer, HandAgent

Read = Callable[..., Any]


@pytest.fixture
def job_id(read: Read, shop: HandAgent) -> str:
    """A queued job of this test's own label printer."""
    return read("print", "-", "-p", shop.printer_ids[1], input=b"x")["id"]


def test_a_job_is_shown_with_its_printer_and_its_trail(run: Run, shop: HandAgent, job_id: str) -> None:
    shop.do(ok=True, evidence="printed")
    shown = run("jobs", "show", job_id).stdout
    assert f"label {shop.name} on {shop.name}" in shown
    assert "done (printed)" in shown
    trail = run("jobs", "events", job_id).stdout.splitlines()
    assert [line.split()[1] for line in trail[1:]][0] == "submit"
    assert trail[-1].split()[1:5] == ["settle", "running", "→", "done"]


def test_events_come_as_json_too(read: Read, job_id: str) -> None:
    assert [event["verb"] for event in read("jobs", "events", job_id)["items"]] == ["submit"]


def test_jobs_are_listed_by_printer_state_and_agent(
    run: Run, read: Read, shop: HandAgent, job_id: str
) -> None:
    found = read("jobs", "list", "--printer", f"label {shop.name}", "--state", "queued", "--agent", shop.name)
    assert [job["id"] for job in found["items"]] == [job_id]
    assert (
        "There are no such jobs." in run("jobs", "list", "-p", shop.printer_ids[1], "--state", "done").stderr
    )
    assert "did you mean" in run("jobs", "list", "--agent", f"{shop.name}x", code=2).stderr


def test_a_long_list_says_how_to_go_on(run: Run, shop: HandAgent, job_id: str) -> None:
    second = run("print", "-", "-p", shop.printer_ids[1], input=b"x").stdout.strip()
    page = run("jobs", "list", "-p", shop.printer_ids[1], "-n", "1")
    assert second in page.stdout
    cursor = page.stderr.rpartition(" ")[2].strip()
    rest = run("jobs", "list", "-p", shop.printer_ids[1], "-n", "1", "--cursor", cursor)
    assert job_id in rest.stdout
    assert second not in rest.stdout


def test_a_job_is_cancelled_and_retried(run: Run, read: Read, job_id: str) -> None:
    cancelled = run("jobs", "cancel", job_id, "--reason", "wrong one")
    assert "cancelled" in cancelled.stdout
    again = run("jobs", "retry", job_id).stdout.strip()
    assert read("jobs", "show", again)["retry_of"] == job_id
    refused = run("jobs", "retry", job_id, code=1)
    assert refused.stderr.startswith("farhand: ")


def test_an_uncertain_job_is_resolved(run: Run, shop: HandAgent, job_id: str) -> None:
    shop.do(ok=False, uncertain=True, error="the cable fell out")
    assert f"farhand jobs resolve {job_id} done" in run("jobs", "show", job_id).stderr
    assert "done (person)" in run("jobs", "resolve", job_id, "done", "--note", "in the tray").stdout
    assert "only an uncertain job" in run("jobs", "resolve", job_id, "failed", code=1).stderr


def test_cancelling_what_is_in_hand_is_a_request(run: Run, read: Read, shop: HandAgent, job_id: str) -> None:
    shop.claim()
    shop.fetch(job_id)
    shown = run("jobs", "cancel", job_id)
    assert "to be cancelled" in shown.stdout
    assert "The agent is told" in shown.stderr
    shop.report(job_id, ok=False, cancelled=True)
    assert read("jobs", "show", job_id)["state"] == "cancelled"


@pytest.mark.parametrize("verb", [["show"], ["events"], ["cancel"], ["retry"], ["resolve", "done"]])
def test_a_job_that_is_none_is_said_so(run: Run, verb: list[str]) -> None:
    result = run("jobs", verb[0], "nonsense", *verb[1:], code=1)
    assert "there is no job with this id" in result.stderr


def test_printers_are_listed_and_shown(run: Run, read: Read, shop: HandAgent) -> None:
    lines = run("printers").stdout.splitlines()
    assert lines[0].split() == ["PRINTER", "AGENT", "STATE", "TAKES", "REASON"]
    (laser,) = [line for line in lines if line.startswith(f"laser {shop.name} ")]
    assert laser.split()[-3:] == ["idle", "pdf", "raw"]
    shown = run("printers", f"LASER {shop.name}").stdout
    assert shop.printer_ids[0] in shown
    number = read("printers", shop.printer_ids[0])["number"]
    assert read("printers", str(number))["id"] == shop.printer_ids[0]


def test_two_printers_of_one_name_need_their_agents(run: Run, read: Read, server: FarhandServer) -> None:
    agents = [HandAgent(server.url, f"twin {place}", [{"name": "same"}]) for place in ("a", "b")]
    assert "say which: twin a/same, twin b/same" in run("printers", "same", code=2).stderr
    assert read("printers", "twin b/same")["id"] == agents[1].printer_ids[0]
    for agent in agents:
        agent.close()


def test_a_printer_that_vanished_is_shown_when_asked_for(run: Run, server: FarhandServer) -> None:
    for printers in ([{"name": "brief"}], []):
        HandAgent(server.url, "vanishing", printers).close()
    assert "brief" not in run("printers").stdout
    assert "gone" in run("printers", "--all").stdout
    assert "gone since" in run("printers", "brief").stdout


def test_agents_are_listed_paused_drained_resumed_granted_and_revoked(
    run: Run, read: Read, shop: HandAgent
) -> None:
    assert any(
        line.startswith(shop.name) and " online " in line
        for line in run("agents", "list").stdout.splitlines()
    )
    for verb, state in [("pause", "paused"), ("drain", "draining"), ("resume", "active")]:
        run("agents", verb, shop.name)
        assert read("agents", verb, shop.id)["state"] == state
    granted = run("agents", "grant", shop.name, "agent.work", "commands.process")
    assert "may: agent.work, commands.process" in granted.stdout
    assert "did you mean" in run("agents", "grant", shop.name, "agent.wrok", code=1).stderr
    assert "is shut out" in run("agents", "revoke", shop.name).stdout


def test_an_issued_agent_gets_in_with_its_key(run: Run, server: FarhandServer) -> None:
    made = run("agents", "issue", "issued-here")
    agent = HandAgent(server.url, "issued-here", [], made.stdout.strip())
    assert agent.reply.status_code == 200
    agent.close()
    assert "--key-file" in made.stderr


def test_keys_are_made_used_listed_and_revoked(run: Run, read: Read) -> None:
    key = run("keys", "create", "till", "--grant", "printers.read").stdout.strip()
    run("printers", env={"FARHAND_TOKEN": key})
    refused = run("agents", "list", env={"FARHAND_TOKEN": key}, code=1)
    assert "agents.read" in refused.stderr
    listed = [line.split()[1:4] for line in run("keys", "list").stdout.splitlines()]
    assert ["till", "owner", "valid"] in listed
    run("keys", "revoke", "till")
    gone = run("printers", env={"FARHAND_TOKEN": key}, code=1)
    assert "FARHAND_TOKEN" in gone.stderr
    assert "there is no key 'till'" in run("keys", "revoke", "till", code=2).stderr
    assert "did you mean 'jobs.submit'" in run("keys", "create", "x", "-g", "jobs.sumbit", code=1).stderr
    assert "secret" not in str(read("keys", "list"))


def test_errors_are_json_where_json_was_asked_for(run: Run, server: FarhandServer, tmp_path: Path) -> None:
    import json

    error = json.loads(run("jobs", "show", "nonsense", "--json", code=1).stderr)["error"]
    assert (error["code"], error["status"], error["retryable"]) == ("not-found", 404, False)
    error = json.loads(run("printers", "nobody", "--json", code=2).stderr)["error"]
    assert "nobody" in error["detail"]
    error = json.loads(run("jobs", "list", "--state", "odd", "--json", code=2).stderr)["error"]
    assert "odd" in error["detail"]


def test_titles_of_others_cannot_reach_the_terminal(run: Run, read: Read, shop: HandAgent) -> None:
    made = run("print", "-", "-p", shop.printer_ids[1], "-t", "\x1b[2Jgone", input=b"x").stdout.strip()
    for shown in (run("jobs", "show", made), run("jobs", "list", "-p", shop.printer_ids[1])):
        assert "\x1b" not in shown.output
        assert "[2Jgone" in shown.output
    assert read("jobs", "show", made)["title"] == "\x1b[2Jgone"
