"""`farhand farm` against a real server, and the client's calls behind it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from farhand.cli.main import main
from farhand.client import ApiError, Client, put_file
from tests.server.serving import ROOT, Server, serving
from tests.systems.farm.conftest import GCODE, Farm, Gateway, identity, new_farm, new_gateway, work

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("cli") / "data", sections={"commands": {}}) as running:
        yield running


@pytest.fixture
def farm(server: Server) -> Farm:
    return new_farm(server)


@pytest.fixture
def gateway(server: Server, farm: Farm) -> Gateway:
    return new_gateway(server, farm)


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in this process; `code` is what it has to exit with."""
    monkeypatch.setenv("FARHAND_SERVER", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("FARHAND_TOKEN", ROOT)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run_command(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["farm", *arguments])
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        return result

    return run_command


@pytest.fixture
def read(run: Run) -> Callable[..., Any]:
    return lambda *arguments, **more: json.loads(run(*arguments, "--json", **more).stdout)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "part.gcode"
    path.write_bytes(GCODE)
    return path


def test_a_farm_is_made_and_listed(run: Run) -> None:
    made = run("create", "attic")
    assert made.stdout.strip() in run("list").stdout
    assert 'farm = "attic"' in made.stderr
    assert "already a farm" in run("create", "attic", code=1).stderr


def test_print_submits_a_file_and_sends_it(server: Server, run: Run, farm: Farm, file: Path) -> None:
    made = run(
        "print", str(file), "--farm", farm.name, "--nozzle", "0.4", "--material", "PLA", "--copies", "2"
    )
    first, second = made.stdout.split()
    job = server.job(first)
    assert job["payload_size"] == len(GCODE)
    assert job["params"]["requirements"] == {"nozzle": 0.4, "material": "PLA"}
    assert server.job(second)["params"]["copy_of"] == first
    assert f"farhand jobs show {first} --wait" in made.stderr


def test_an_empty_file_is_not_even_submitted(run: Run, farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "empty.gcode").touch()
    refused = run("print", str(tmp_path / "empty.gcode"), "--farm", farm.name, code=2)
    assert "nothing to print" in refused.stderr


def test_printers_are_claimed_shown_and_their_beds_cleared(
    server: Server, run: Run, read: Callable[..., Any], farm: Farm, gateway: Gateway, file: Path
) -> None:
    assert "No gateway of this farm is connected." in run("unclaimed", farm.name).stderr
    gateway.show("mk4-1", "idle")
    assert "mk4-1" in run("unclaimed", farm.name).stdout
    run("claim", farm.name, "mk4-1", "Left")
    assert "All printers that are reported are claimed." in run("unclaimed", farm.name).stderr
    gateway.tell()
    run("print", str(file), "--farm", farm.name, "--printer", "left")
    (job,) = gateway.poll(read("status", farm.name)["printers"][0]["id"])
    gateway.start(job, "starting")
    gateway.show(
        "mk4-1", "printing", identity=identity(job), percent=42.0, remaining_ms=5_400_000, work=work(job)
    )
    shown = run("status", farm.name).stdout
    assert "printing" in shown
    assert "42 %" in shown
    assert "1:30" in shown
    run("pause-print", job["job_id"])
    assert gateway.show("mk4-1", "printing", identity=identity(job), work=work(job))["directive"] == "pause"
    gateway.show("mk4-1", "paused", identity=identity(job), work=work(job))
    run("resume-print", job["job_id"])
    gateway.show("mk4-1", "finished", identity=identity(job), work=work(job))
    assert "bed not cleared" in run("status", farm.name).stdout
    assert "its bed is clear" in run("clear", farm.name, "Left").stdout
    assert read("status", farm.name)["printers"][0]["bed_clear"] is True
    assert "did you mean" in run("clear", farm.name, "Leftt", code=2).stderr


def test_farms_and_printers_are_paused_and_resumed(
    run: Run, read: Callable[..., Any], farm: Farm, gateway: Gateway
) -> None:
    gateway.show("a", "idle")
    run("claim", farm.name, "a", "A")
    run("pause", farm.name)
    run("pause", farm.name, "--printer", "A")
    found = read("status", farm.name)
    assert (found["farm"]["paused"], found["printers"][0]["paused"]) == (True, True)
    run("resume", farm.name)
    run("resume", farm.name, "--printer", "A")
    found = read("status", farm.name)
    assert (found["farm"]["paused"], found["printers"][0]["paused"]) == (False, False)


def test_a_waiting_print_is_moved_to_the_top(server: Server, run: Run, farm: Farm) -> None:
    farm.ready(priority=7)
    last = farm.ready()
    assert "is next" in run("top", last).stdout
    assert server.job(last)["priority"] == 8


def test_a_fresh_address_takes_the_file_of_a_job_that_waits(server: Server, farm: Farm, file: Path) -> None:
    sent: list[tuple[int, int]] = []
    with Client(f"http://127.0.0.1:{server.port}", ROOT) as client:
        made = client.submit_farm_print(farm.name, "part.gcode")
        address = client.upload_address(made.job_id)
        kept = put_file(address.upload, file, lambda now, whole: sent.append((now, whole)))
        assert kept is not None
        assert kept.copies == [made.job_id]
        assert sent == [(len(GCODE), len(GCODE))]
        with pytest.raises(ApiError) as refused:
            client.upload_address(made.job_id)
    assert refused.value.problem.code == "state-conflict"
