"""The README's commands and the example system, run as they stand."""

import json
import os
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from farhand.client import Client
from scripts.docs import ROOT
from tests.client.server import FARHAND, FarhandServer, clean_environment, farhand_server, wait_until
from tests.docs.pages import doc, page
from tests.peers.printers import free_port

EXAMPLE = re.compile(r"<!-- run: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


@pytest.fixture
def port() -> int:
    """In place of the default one, which somebody may use here."""
    return free_port()


@pytest.fixture
def shell(tmp_path: Path, port: int) -> Iterator["subprocess.Popen[str]"]:
    """A shell as a reader would have it, in a folder and a home of its own; ends with all it started."""
    path = f"{FARHAND.parent}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "errors.log").open("w") as errors:
        process = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=tmp_path,
            env=clean_environment(tmp_path, PATH=path),
            start_new_session=True,
        )
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=30)


@pytest.mark.timeout(90)
def test_the_commands_of_the_readme_print_a_label(
    shell: "subprocess.Popen[str]", tmp_path: Path, port: int
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    examples = dict(EXAMPLE.findall(page(ROOT / "README.md").text))
    assert list(examples) == ["start", "print"]
    ready = f"until curl -sf http://127.0.0.1:{port}/health >health.json; do sleep 0.1; done"
    start = examples["start"].replace("farhand serve &", f"farhand serve --port {port} >serve.log &\n{ready}")
    script = (start + examples["print"]).replace("8631", str(port))
    script = script.replace("farhand agent run &", "farhand agent run >agent.log &")
    assert shell.stdin is not None
    shell.stdin.write(script + "\ntouch finished\n")
    shell.stdin.flush()

    wait_until((tmp_path / "finished").exists, "the end of the README's commands", seconds=60)
    ended = json.loads((tmp_path / "job.json").read_text())
    assert (ended["state"], ended["evidence"], ended["title"]) == ("done", "delivered", "Hello")
    (printed,) = tmp_path.glob("*.prn")
    assert printed.read_bytes() == b"^XA^FO50,50^A0N,60,60^FDHello^FS^XZ"

    again = script.partition("curl -s -H")[2].partition("curl -s -H")[2].partition("| tee")[0]
    shell.stdin.write(f"curl -s -H{again} >again.json; touch repeated\n")
    shell.stdin.flush()
    wait_until((tmp_path / "repeated").exists, "the repeated submit")
    assert json.loads((tmp_path / "again.json").read_text())["id"] == ended["id"]


@pytest.mark.timeout(120)
def test_the_door_of_the_documentation_gives_out_its_code(
    shell: "subprocess.Popen[str]", tmp_path: Path, port: int
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = doc("systems/commands").text
    files = dict(FILE.findall(text))
    assert list(files) == ["farhand.toml", "door.py", "issue.py"]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    script = dict(EXAMPLE.findall(text))["door"].replace("8631", str(port))
    script = script.replace("--config farhand.toml &", f"--config farhand.toml --port {port} >serve.log &")
    script = script.replace("door:build &", "door:build >agent.log 2>&1 &")
    script = script.replace("issue.py 17", "issue.py 17 >code.txt")
    script = script.replace("issue.py mine", "issue.py mine 2>refused.txt").replace("list", "list >list.txt")
    assert shell.stdin is not None
    shell.stdin.write(script + "\ntouch finished\n")
    shell.stdin.flush()

    wait_until((tmp_path / "finished").exists, "the end of the commands", seconds=90)
    code = re.fullmatch(r"Booking 17, front door: (\d{6})\n", (tmp_path / "code.txt").read_text())
    assert code is not None, (tmp_path / "errors.log").read_text()
    refused = (tmp_path / "refused.txt").read_text()
    assert "Attempt 1 failed for good: the lock knows no such booking" in refused
    listed = (tmp_path / "list.txt").read_text()
    assert listed.count("door.code") == 2
    assert "completed" in listed
    assert "failed" in listed
    assert code[1] not in (tmp_path / "serve.log").read_text() + (tmp_path / "agent.log").read_text()


def test_every_metric_has_a_row(tmp_path: Path) -> None:
    with farhand_server(tmp_path) as server:
        wait_until(lambda: "farhand_commits" in metrics(server), "the figures")
        names = set(re.findall(r"^# TYPE (\S+)", metrics(server), re.MULTILINE))
    rows = doc("operations").rows
    assert names == {name for name in rows if name.startswith("farhand_") and "/" not in name}


def metrics(server: FarhandServer) -> str:
    """What `/metrics` shows."""
    return httpx2.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.token}"}).text


@pytest.fixture
def plotter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The package of docs/extending.md, installed where new processes find it."""
    files: dict[str, str] = dict(FILE.findall(doc("extending").text))
    site = tmp_path / "site"
    project: dict[str, Any] = tomllib.loads(files.pop("pyproject.toml"))["project"]
    (entry,) = project["entry-points"].items()
    info = site / f"farhand_plotter-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = "".join(f"{name} = {value}\n" for name, value in entry[1].items())
    (info / "entry_points.txt").write_text(f"[{entry[0]}]\n{lines}")
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return files


@pytest.mark.timeout(90)
def test_the_system_of_the_documentation_plots_a_drawing(plotter: dict[str, str], tmp_path: Path) -> None:
    assert len(plotter) == 4
    drawings = tmp_path / "drawings"
    drawings.mkdir()
    (tmp_path / "server").mkdir()
    with farhand_server(tmp_path / "server") as server:
        settings = tmp_path / "agent.toml"
        settings.write_text(
            f'server = "{server.url}"\ndata = "state"\n[printing]\ndiscover = false\n'
            f'[plotter]\nfolder = "{drawings}"\n'
        )
        agent = subprocess.Popen(
            [FARHAND, "agent", "run", "--config", settings],
            env=clean_environment(tmp_path),
            stderr=subprocess.DEVNULL,
        )
        try:
            job = plot(server, drawings)
        finally:
            agent.terminate()
            agent.wait(30)
    assert (job.kind, job.state, job.evidence) == ("plot.svg", "done", "delivered")


def plot(server: FarhandServer, drawings: Path) -> Any:
    """Submits a drawing and waits until it is drawn; the job."""
    with Client(server.url, server.token) as client:
        wait_until(client.printers, "the plotter")
        (device,) = client.printers()
        made = client.submit({"type": "svg", "plotter_id": device.id, "svg": "<svg/>", "title": "A line"})
        job = client.wait(made.id, timeout_ms=30_000)
    (drawn,) = drawings.iterdir()
    assert drawn.read_text() == "<svg/>"
    headers = {"Authorization": f"Bearer {server.token}"}
    assert httpx2.get(f"{server.url}/plots/waiting", headers=headers).json() == {"queued": 0}
    assert "/plots/waiting" in httpx2.get(f"{server.url}/openapi.json").json()["paths"]
    refused = httpx2.post(
        f"{server.url}/jobs", headers=headers, json={"type": "svg", "plotter_id": device.id, "svg": "no"}
    )
    assert (refused.status_code, refused.json()["field"]) == (422, "svg")
    return job
