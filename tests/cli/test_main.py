"""The group itself: what is loaded when, and how errors end a command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farhand.cli.main import COMMANDS, main
from tests.cli.conftest import Launch, Run
from tests.client.server import FARHAND, FarhandServer, clean_environment

SHOW_LOADED = """
import sys
from farhand.cli.main import main
try:
    main(sys.argv[1:])
finally:
    heavy = ("httpx2", "rich", "starlette", "uvicorn", "apsw", "farhand.server", "farhand.agent.runner")
    print("LOADED", *[name for name in heavy if name in sys.modules])
"""
WITHOUT_SERVER = """
import sys
for name in ("starlette", "uvicorn", "uvloop", "httptools", "apsw", "asyncpg"):
    sys.modules[name] = None
from farhand.cli.main import main
main(sys.argv[1:])
"""


def python(code: str, *arguments: object, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment without a server."""
    return clean_environment(tmp_path)


def test_every_command_of_the_table_is_there() -> None:
    import click

    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["print", "--help"], ["jobs", "list", "--help"]]
)
def test_help_loads_neither_http_nor_a_server(arguments: list[str], bare: dict[str, str]) -> None:
    shown = python(SHOW_LOADED, *arguments, env=bare)
    assert shown.stdout.splitlines()[-1] == "LOADED", shown.stderr


def test_each_command_has_help_that_fits_80_columns(run: Run) -> None:
    import click

    def walk(command: click.Command, path: list[str]) -> None:
        lines = run(*path, "--help").output.splitlines()
        assert all(len(line) <= 80 for line in lines), path
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk(child, [*path, name])

    walk(main, [])


def test_without_the_servers_packages_the_rest_works(server: FarhandServer, tmp_path: Path) -> None:
    env = clean_environment(tmp_path, FARHAND_SERVER=server.url, FARHAND_TOKEN=server.token)
    assert python(WITHOUT_SERVER, "agents", "list", env=env).returncode == 0
    assert python(WITHOUT_SERVER, "agent", "run", "--help", env=env).returncode == 0
    for command in ("serve", "demo"):
        refused = python(WITHOUT_SERVER, command, env=env)
        assert refused.returncode == 1
        assert "pip install 'farhand[server]'" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_command_that_is_misspelt_gets_a_hint(run: Run) -> None:
    assert "did you mean 'printers'" in run("printer", code=2).stderr
    assert "there is no command 'xyzzy'" in run("xyzzy", code=2).stderr


def test_no_server_and_no_key_say_what_to_do(run: Run) -> None:
    assert "farhand serve" in run("printers", env={"FARHAND_SERVER": "http://127.0.0.1:1"}, code=1).stderr
    nothing = {"FARHAND_TOKEN": None}
    assert "--key or FARHAND_TOKEN" in run("printers", env=nothing, code=1).stderr
    assert "root-token" in run("printers", env={"FARHAND_TOKEN": "wrong" * 5}, code=1).stderr
    assert "is no server address" in run("printers", "--server", "localhost:8631", code=1).stderr


def test_a_fault_of_ours_is_one_message_and_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farhand.client.Client.printers", None)
    shown = run("printers", code=1)
    assert "This is a fault of farhand" in shown.stderr
    assert "FARHAND_DEBUG=1" in shown.stderr


def test_a_reader_that_hangs_up_is_no_error(launch: Launch, environment: dict[str, str]) -> None:
    with launch("printers", "--json", env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(20) == 1


def test_the_root_token_is_for_its_owner_alone(server: FarhandServer) -> None:
    assert len(server.token) >= 32
    assert os.stat(server.data / "root-token").st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--database", "mysql://x"], "database must be"),
        (["--config", "none.toml"], "cannot read"),
        (["--port", "70000"], "0<=x<=65535"),
    ],
)
def test_serve_refuses_settings_that_cannot_work(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    shown = run(
        "serve", "--data", str(tmp_path / "data"), *arguments, code=1 if "--port" not in arguments else 2
    )
    assert message in shown.stderr


def test_a_port_in_use_and_a_folder_in_use_are_said_so(server: FarhandServer, tmp_path: Path) -> None:
    env = clean_environment(tmp_path)
    for arguments, message in [
        (["--port", str(server.port), "--data", str(tmp_path / "d")], "another --port"),
        (["--port", "0", "--data", str(server.data)], "another server already runs"),
    ]:
        done = subprocess.run(
            [FARHAND, "serve", *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
