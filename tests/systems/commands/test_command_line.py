"""`farhand commands` against a real server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from farhand.cli.main import main
from tests.server.serving import ROOT, Server, serving
from tests.systems.commands.conftest import SECTIONS, Worker, command, issue, worker

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("cli") / "data", sections=SECTIONS) as running:
        yield running


@pytest.fixture
def agent(server: Server) -> Worker:
    return worker(server)


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in this process; `code` is what it has to exit with."""
    monkeypatch.setenv("FARHAND_SERVER", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("FARHAND_TOKEN", ROOT)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run_command(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["commands", *arguments])
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        return result

    return run_command


@pytest.fixture
def read(run: Run) -> Callable[..., Any]:
    return lambda *arguments, **more: json.loads(run(*arguments, "--json", **more).stdout)


def test_issue_says_the_uuid_and_how_to_follow_it(server: Server, run: Run, agent: Worker) -> None:
    result = run("issue", "whatsapp.status", agent.name, "--param", "instance=shop", "--params", '{"n": 1}')
    uuid = result.stdout.strip()
    assert command(server, uuid)["params"] == {"n": 1, "instance": "shop"}
    assert f"farhand commands show {uuid} --wait" in result.stderr


def test_params_come_from_a_file(
    server: Server, read: Callable[..., Any], agent: Worker, tmp_path: Path
) -> None:
    (tmp_path / "params.json").write_text('{"deep": {"er": [1]}}')
    made = read("issue", "whatsapp.status", agent.id, "--params", f"@{tmp_path / 'params.json'}")
    assert made["params"] == {"deep": {"er": [1]}}


def test_the_same_idempotency_key_makes_one_command(read: Callable[..., Any], agent: Worker) -> None:
    line = ("issue", "whatsapp.status", agent.name, "--idempotency-key", f"of {agent.name}")
    assert read(*line)["uuid"] == read(*line)["uuid"]


@pytest.mark.parametrize(
    "options", [("--params", "[1]"), ("--params", "{"), ("--params", "@nowhere"), ("-p", "x")]
)
def test_params_that_cannot_be_read_are_refused(run: Run, agent: Worker, options: tuple[str, ...]) -> None:
    assert "param" in run("issue", "whatsapp.status", agent.name, *options, code=2).stderr.replace(
        "nowhere", "param"
    )


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        ({"status": "completed", "result": {"state": "open"}}, 0, "completed"),
        ({"status": "failed", "error": "no such number"}, 1, "failed: no such number"),
    ],
)
def test_waiting_ends_with_the_commands_outcome(
    server: Server, run: Run, agent: Worker, message: dict[str, Any], code: int, words: str
) -> None:
    uuid = issue(server, agent)["uuid"]
    waits = server.later(run, "show", uuid, "--wait", code=code)
    server.await_held(1)
    agent.report(agent.collect(), **message).ok()
    result = waits.result(timeout=30)
    assert words in result.stdout
    assert ('{"state":"open"}' in result.stdout) == (code == 0)


def test_a_wait_that_runs_out_says_so(server: Server, run: Run, agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    assert "Still pending" in run("show", uuid, "--timeout", "1s", code=6).stderr


def test_show_and_events_tell_the_story(server: Server, run: Run, agent: Worker) -> None:
    uuid = issue(server, agent, params={"instance": "shop"})["uuid"]
    agent.report(agent.collect(), status="failed", error="Evolution was unreachable", retryable=True).ok()
    shown = run("show", uuid).stdout
    assert "pending until" in shown
    assert "Evolution was unreachable" in shown
    assert '{"instance":"shop"}' in shown
    told = run("events", uuid).stdout
    assert "in_progress → pending" in told
    assert "Attempt 1 failed: Evolution was unreachable; it will be tried again at" in told


def test_lists_filter_and_page(server: Server, run: Run, read: Callable[..., Any], agent: Worker) -> None:
    uuids = [issue(server, agent, "many.at-once")["uuid"] for _ in range(3)]
    page = read("list", "--agent", agent.name, "--status", "pending", "-n", "2")
    assert [item["uuid"] for item in page["items"]] == [uuids[2], uuids[1]]
    rest = run("list", "--agent", agent.name, "-n", "2", "--cursor", page["next"]).stdout
    assert uuids[0] in rest
    assert uuids[1] not in rest
    assert "no such commands" in run("list", "--agent", agent.name, "--status", "expired").stderr
    assert "unknown" not in run("list", "--agent", "nobody", code=1).stdout


def test_cancel_and_retry(server: Server, run: Run, read: Callable[..., Any], agent: Worker) -> None:
    uuid = issue(server, agent)["uuid"]
    assert "cancelled: closed the page" in run("cancel", uuid, "--reason", "closed the page").stdout
    again = read("retry", uuid)
    assert again["retry_of"] == uuid
    collected = agent.collect()
    assert collected["uuid"] == again["uuid"]
    result = run("cancel", again["uuid"])
    assert "in_progress, to be cancelled" in result.stdout
    assert "at work on it" in result.stderr
    agent.report(collected, status="completed").ok()
    assert run("cancel", again["uuid"], code=1).stderr


def test_a_refusal_is_one_message(run: Run, agent: Worker) -> None:
    assert "did you mean 'whatsapp.status'?" in run("issue", "whatsapp.stats", agent.name, code=1).stderr
