"""The commands, run in this process or as real ones, against a real server."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from farhand.cli.main import main
from tests.client.conftest import server, shop  # noqa: F401  (fixtures)
from tests.client.server import FARHAND, FarhandServer, clean_environment

Run = Callable[..., Result]
Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def environment(server: FarhandServer, tmp_path: Path) -> dict[str, str]:  # noqa: F811  (a fixture)
    """What a user of this server has in the environment."""
    return clean_environment(tmp_path, FARHAND_SERVER=server.url, FARHAND_TOKEN=server.token)


@pytest.fixture
def run(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process; `code` is what it has to exit with, `env` replaces settings."""

    def run_command(
        *arguments: str, code: int = 0, env: dict[str, str | None] | None = None, **more: Any
    ) -> Result:
        for name, value in {**environment, **(env or {})}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        result = CliRunner().invoke(main, list(arguments), **more)
        assert result.exit_code == code, (
            f"{arguments}: {result.exit_code}\n{result.output}\n{result.exception}"
        )
        assert "Traceback" not in result.output
        return result

    return run_command


@pytest.fixture
def read(run: Run) -> Callable[..., Any]:
    """Runs a command with --json; what it answers."""
    return lambda *arguments, **more: json.loads(run(*arguments, "--json", **more).stdout)


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts commands as real processes with their outputs caught; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, env: dict[str, str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(FARHAND), *map(str, arguments)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)
