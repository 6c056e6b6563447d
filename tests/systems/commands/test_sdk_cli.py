"""`farhand agent run --commands`: which handlers run, and whether printing does."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from farhand.agent.config import AgentConfig
from farhand.cli.agent import _handlers, _with_commands
from farhand.cli.main import main
from farhand.systems.commands.handler import CommandsHandler
from farhand.systems.printing.handler import PrintingHandler

MODULE = """
from farhand.systems.commands import Commands
commands = Commands()
@commands.on("shop.open", concurrency=4)
def opened(params, ctx): ...
"""


@pytest.fixture(autouse=True)
def _forget_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_handlers", raising=False)


def parts(config: AgentConfig) -> tuple[CommandsHandler, PrintingHandler]:
    made = {type(handler): handler for handler in _handlers(config)}
    commands, printing = made[CommandsHandler], made[PrintingHandler]
    assert isinstance(commands, CommandsHandler)
    assert isinstance(printing, PrintingHandler)
    return commands, printing


def config(folder: Path, **sections: dict[str, object]) -> AgentConfig:
    (folder / "shop_handlers.py").write_text(MODULE)
    return AgentConfig(
        server="http://127.0.0.1:1", name="a", data=folder / "data", folder=folder, sections=sections
    )


def test_handlers_named_on_the_command_line_run_without_lending_the_machines_printers(tmp_path: Path) -> None:
    commands, printing = parts(_with_commands(config(tmp_path), ["shop_handlers:commands"]))
    assert commands.own_lane == 4
    assert printing._settings.discover is False


def test_printing_takes_part_when_the_settings_have_it(tmp_path: Path) -> None:
    settings = config(
        tmp_path, printing={"printers": ["file:///srv/labels"]}, commands={"handlers": "nothing"}
    )
    commands, printing = parts(_with_commands(settings, ["shop_handlers"]))
    assert commands.own_lane == 4
    assert [printer.uri for printer in printing._settings.printers] == ["file:///srv/labels"]


def test_the_settings_alone_are_enough_and_without_them_there_are_no_commands(tmp_path: Path) -> None:
    assert parts(config(tmp_path, commands={"handlers": ["shop_handlers"]}))[0].own_lane == 4
    assert parts(config(tmp_path))[0].own_lane == 0


def test_a_module_that_is_not_there_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    arguments = ["agent", "run", "--server", "http://127.0.0.1:1", "--commands", "no_such_handlers"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code != 0
    assert "there is no module no_such_handlers" in done.output + str(done.exception)
