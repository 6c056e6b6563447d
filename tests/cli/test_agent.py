"""`farhand agent`: from a machine nobody knows to the first print."""

import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farhand.client import Client
from tests.cli.conftest import Launch
from tests.client.server import FARHAND, FarhandServer, clean_environment, farhand_server, wait_until

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarhandServer]:
    """A server on which unknown agents wait for approval."""
    folder = tmp_path_factory.mktemp("closed")
    settings = "[server]\nopen_enrolment = false\npoll_wait_ms = 2000\n"
    with farhand_server(folder, settings) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with an agent; it knows of no server."""
    return clean_environment(tmp_path)


@pytest.fixture
def command(machine: dict[str, str]) -> Command:
    """Runs a command on that machine."""

    def run(*arguments: object, code: int = 0, **more: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [str(FARHAND), *map(str, arguments)],
            env=machine | more, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, out + errors


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_machine_joins_by_its_code_and_prints(
    launch: Launch, closed_server: FarhandServer, machine: dict[str, str], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "tray").mkdir()
    owner = {"FARHAND_SERVER": closed_server.url, "FARHAND_TOKEN": closed_server.token}
    joining = launch(
        "agent", "join", closed_server.url, "--name", "shop", "--no-discover",
        "--printer", f"tray={(tmp_path / 'tray').as_uri()}", env=machine,
    )  # fmt: skip
    assert joining.stderr is not None
    found = re.search(r"with the code (\S+) \(valid", joining.stderr.readline())
    assert found is not None

    pending = command("agents", "pending", **owner)
    assert pending.stdout.splitlines()[1].split()[0] == "shop"
    assert found.group(1) not in pending.stdout
    wrong = command("agents", "approve", "shop", "--code", "BBBB-BBBB", code=1, **owner)
    assert "does not match" in wrong.stderr or "code" in wrong.stderr
    assert "1 waiting for approval" in command("agents", "list", **owner).stderr
    approved = command("agents", "approve", "shop", "--code", found.group(1), **owner)
    assert approved.stdout == "shop is in.\n"
    out, errors = joining.communicate(timeout=30)
    assert joining.returncode == 0, errors
    assert "Its printers: tray" in out
    assert "shop is approved." in errors

    settings = tmp_path / ".config" / "farhand" / "agent.toml"
    key = tmp_path / ".local" / "state" / "farhand-agent" / "agent.key"
    assert (mode(settings), mode(settings.parent), mode(key)) == (0o600, 0o700, 0o600)
    assert key.read_text().strip() not in settings.read_text() + out + errors

    running = launch("agent", "run", env=machine)
    label = tmp_path / "label.zpl"
    label.write_text("^XA^XZ")
    printed = command("print", label, "-p", "tray", "--wait", **owner)
    assert "done (delivered)" in printed.stdout
    (file,) = [path for path in (tmp_path / "tray").iterdir() if not path.name.startswith(".")]
    assert file.read_text() == "^XA^XZ"
    stop(running)


def test_an_agent_that_is_not_let_in_yet_shows_its_code_when_run(
    launch: Launch, closed_server: FarhandServer, machine: dict[str, str], tmp_path: Path
) -> None:
    running = launch(
        "agent", "run", "--server", closed_server.url, "--name", "unasked", "--log", "error", env=machine
    )
    assert running.stderr is not None
    assert "'unasked' with the code" in running.stderr.readline()
    stop(running)


def test_an_issued_agent_joins_with_its_key_and_needs_no_code(
    closed_server: FarhandServer, command: Command, tmp_path: Path
) -> None:
    owner = {"FARHAND_SERVER": closed_server.url, "FARHAND_TOKEN": closed_server.token}
    key = tmp_path / "issued.key"
    key.touch(0o600)
    key.write_text(command("agents", "issue", "issued", **owner).stdout)
    joined = command(
        "agent", "join", closed_server.url, "--name", "issued", "--key-file", key, "--no-discover"
    )
    assert "issued takes part" in joined.stdout
    with Client(closed_server.url, closed_server.token) as client:
        assert "issued" in {agent.name for agent in client.agents()}


def test_joining_again_keeps_and_another_server_needs_force(
    server: FarhandServer, command: Command, tmp_path: Path
) -> None:
    settings = tmp_path / "agent.toml"
    arguments = ("agent", "join", server.url, "--config", settings, "--no-discover", "--name")
    command(*arguments, "first")
    command(*arguments, "first")
    kept = settings.read_text()
    assert "--force" in command(*arguments, "second", code=1).stderr
    assert settings.read_text() == kept


def test_a_name_that_is_taken_does_not_stand_in_the_way_of_another(
    server: FarhandServer, command: Command, tmp_path: Path
) -> None:
    def join(home: str, name: str, code: int = 0) -> str:
        place = ("--config", tmp_path / home / "agent.toml", "--data", tmp_path / home)
        (tmp_path / home).mkdir(exist_ok=True)
        done = command("agent", "join", server.url, *place, "--no-discover", "--name", name, code=code)
        return done.stderr

    join("here", "taken-desk")
    assert "bound to another key" in join("there", "taken-desk", code=1)
    join("there", "free-desk")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://127.0.0.1:1"], "does not answer"),
        (["localhost"], "is no server address"),
        (["SERVER", "--printer", "lpt1"], "is no printer address"),
        (["SERVER", "--printer", "a=file:///tmp", "--printer", "a=file:///var"], "stands twice"),
    ],
)
def test_a_join_that_cannot_work_leaves_nothing_behind(
    server: FarhandServer, command: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    arguments = [server.url if argument == "SERVER" else argument for argument in arguments]
    assert message in command("agent", "join", *arguments, code=1).stderr
    assert not [path for path in (tmp_path / ".config").rglob("*") if path.is_file()]


def test_settings_with_quotes_and_odd_letters_are_read_back(
    server: FarhandServer, command: Command, tmp_path: Path
) -> None:
    name = 'sh"op \\ ünï 漢字'
    joined = command(
        "agent", "join", server.url, "--name", name, "--config", tmp_path / "a.toml", "--no-discover"
    )
    assert f"{name} takes part" in joined.stdout
    with Client(server.url, server.token) as client:
        assert name in {agent.name for agent in client.agents()}


def test_printers_are_listed_without_a_server(command: Command, tmp_path: Path) -> None:
    (tmp_path / "tray").mkdir()
    settings = tmp_path / "agent.toml"
    table = f'[printing]\ndiscover = false\nprinters = ["{(tmp_path / "tray").as_uri()}"]\n'
    settings.write_text(f'server = "http://nowhere.invalid"\n{table}')
    shown = command("agent", "printers", "--config", settings)
    assert shown.stdout.splitlines()[1].split()[:2] == ["tray", "idle"]
    assert '"can_pdf": true' in command("agent", "printers", "--config", settings, "--json").stdout


def test_running_without_settings_says_how_to_get_some(command: Command) -> None:
    assert "farhand agent join URL" in command("agent", "run", code=1).stderr


def test_a_table_that_no_system_has_is_refused(command: Command, tmp_path: Path) -> None:
    settings = tmp_path / "agent.toml"
    settings.write_text('server = "http://127.0.0.1:1"\n[prnting]\ndiscover = false\n')
    assert "did you mean 'printing'" in command("agent", "run", "--config", settings, code=1).stderr


def test_a_revoked_agent_ends_loudly(
    launch: Launch, closed_server: FarhandServer, machine: dict[str, str], command: Command, tmp_path: Path
) -> None:
    owner = {"FARHAND_SERVER": closed_server.url, "FARHAND_TOKEN": closed_server.token}
    key = command("agents", "issue", "outcast", **owner).stdout.strip()
    (tmp_path / "outcast.key").touch(0o600)
    (tmp_path / "outcast.key").write_text(key)
    command(
        "agent", "join", closed_server.url, "--name", "outcast", "--key-file", tmp_path / "outcast.key",
        "--no-discover", "--printer", tmp_path.as_uri(),
    )  # fmt: skip
    running = launch("agent", "run", env=machine)
    assert running.stderr is not None
    assert "registered" in running.stderr.readline()
    command("agents", "revoke", "outcast", **owner)
    wait_until(lambda: running.poll() is not None, "the agent ends")
    out, errors = running.communicate(timeout=10)
    assert running.returncode == 1
    assert "farhand: agent-revoked" in errors
    assert "Traceback" not in out + errors
    assert key not in out + errors
