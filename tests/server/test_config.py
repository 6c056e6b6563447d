"""Settings: what does not fit stops the start and says what would."""

import stat
from pathlib import Path
from typing import Any

import pytest

from farhand.model.errors import FarhandError
from farhand.server.config import ConfigError, ServerConfig, load, policies, root_token
from farhand.server.serve import system_policies
from farhand.systems.printing import SYSTEM as PRINTING
from tests.server.child import process
from tests.server.serving import ROOT, FakeClock, Machine, call, serving

IN_FORCE = system_policies((PRINTING,))


def written(tmp_path: Path, text: str) -> ServerConfig:
    path = tmp_path / "farhand.toml"
    path.write_text(text)
    return load(path, {})


def test_settings_are_read_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "farhand.toml"
    path.write_text(
        '[server]\nport = 9000\naccept_ms = 5000\ndata = "there"\npayload_ports = [8080]\n'
        'public_url = "https://print.example"\npayload_loopback = true\n'
    )
    config = load(path, {"port": 9001, "host": None})
    assert (config.port, config.accept_ms, config.data) == (9001, 5000, Path("there"))
    assert (config.payload_ports, config.host) == (("8080",), "127.0.0.1")
    assert (config.public_url, config.payload_loopback) == ("https://print.example", True)
    assert config.database_url.endswith("there/farhand.db")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nprot = 1", ["[server]", "'prot'", "did you mean 'port'"]),
        ("[sever]\nport = 1", ["[sever]", "did you mean 'server'"]),
        ("[server]\nport = '1'", ["port", "whole number"]),
        ("[server]\nport = true", ["port", "whole number"]),
        ("[server]\nport = -1", ["port"]),
        ("[server]\nport = 70000", ["port", "65535"]),
        ("[server]\nhost = 1", ["host", "wrong kind"]),
        ("[server]\npayload_loopback = 1", ["payload_loopback"]),
        ("[server]\npayload_ports = ['x']", ["payload_ports", "'x'"]),
        ("[server]\npayload_ports = [0]", ["payload_ports"]),
        ("[server]\npayload_private_cidrs = ['10.0.0.0/99']", ["payload_private_cidrs", "10.0.0.0/99"]),
        ("[server]\npublic_url = 'print.example'", ["public_url", "https://"]),
        ("[server]\nsweep_ms = 0", ["sweep_ms"]),
        ("[server]\npoll_wait_ms = 60000", ["poll_wait_ms", "55000"]),
        ("[server]\nheld_polls_per_agent = 0", ["held_polls_per_agent"]),
        ("server = 1", ["[server]", "table"]),
        ("policy = 1", ["policy"]),
        ("[policy]\nx = 1", ["x", "table"]),
        ("[server", ["not valid TOML"]),
        ("[server]\nport = 99999999999999999999", ["port"]),
    ],
)
def test_a_setting_that_does_not_fit_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        written(tmp_path, text)
    for word in words:
        assert word in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml"):
        load(tmp_path / "nothing.toml", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[policy."print.rwa"]\nlease_ms = 1', ["print.rwa", "did you mean 'print.raw'"]),
        ('[policy."print.raw"]\nleese_ms = 1', ["leese_ms", "did you mean 'lease_ms'"]),
        ('[policy."print.raw"]\nlease_ms = "long"', ["lease_ms", "whole number"]),
        ('[policy."print.raw"]\nlease_ms = -1', ["lease_ms", "negative"]),
        ('[policy."print.raw"]\non_lost_running = "reprint"', ["on_lost_running", "'queued'"]),
        ('[policy."print.raw"]\nmax_attempts = true', ["max_attempts"]),
    ],
)
def test_a_policy_that_does_not_fit_stops_the_start(tmp_path: Path, text: str, words: list[str]) -> None:
    config = written(tmp_path, text)
    with pytest.raises(FarhandError) as caught:
        policies(IN_FORCE, config)
    for word in words:
        assert word in caught.value.message
    with pytest.raises(FarhandError), serving(tmp_path / "data", policies=config.policies):
        pass


def test_a_limit_can_be_lifted(tmp_path: Path) -> None:
    config = written(tmp_path, '[policy."print.raw"]\nstart_by_ms = "none"\nlease_ms = 90000')
    merged = policies(IN_FORCE, config)
    assert (merged["print.raw"].start_by_ms, merged["print.raw"].lease_ms) == (None, 90_000)
    assert merged["print.pdf"] == IN_FORCE["print.pdf"]


def test_a_job_keeps_the_policy_it_was_submitted_under(tmp_path: Path, database: str | None) -> None:
    clock = FakeClock()
    short = {"print.raw": {"seed_lease_ms": 60_000, "max_attempts": 1}}
    with serving(tmp_path / "data", database=database, clock=clock) as server:
        machine = server.machine("desk")
        old = server.submit(machine.printers[0])["id"]
    with serving(tmp_path / "data", database=database, clock=clock, policies=short) as server:
        machine = Machine(
            server=server, name=machine.name, key=machine.key, id=machine.id, printers=machine.printers
        )
        new = server.submit(machine.printers[0])["id"]
        assert [machine.poll().ok()["job_id"] for _ in range(2)] == [old, new]
        clock.advance(60_000)
        assert server.await_state(new, "failed")["error"]
        assert server.job(old)["state"] == "claimed"
        clock.advance(540_000)
        server.await_state(old, "queued")


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    token, path = root_token(tmp_path / "data", {})
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 40
    assert root_token(tmp_path / "data", {}) == (token, path)
    assert root_token(tmp_path / "data", {"FARHAND_TOKEN": "x" * 16}) == ("x" * 16, None)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        root_token(tmp_path / "data", {})
    path.chmod(0o600)
    path.write_text("")
    with pytest.raises(ConfigError, match="holds no token"):
        root_token(tmp_path / "data", {})
    with pytest.raises(ConfigError, match="16 characters"):
        root_token(tmp_path / "data", {"FARHAND_TOKEN": "x" * 15})


def test_the_first_start_makes_a_token_and_says_where_it_lies(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process(tmp_path / "data", log=log, token=None) as child:
        path = tmp_path / "data" / "root-token"
        token = path.read_text().strip()
        assert any(str(path) in line for line in child.said)
        call(child.port, "GET", "/jobs", key=token).ok()
        assert child.stop() == 0
    assert token not in log.read_text() + "".join(child.said)


def failing(data: Path, log: Path, **more: Any) -> str:
    """What a server says that does not start."""
    with pytest.raises(RuntimeError) as caught, process(data, log=log, **more):
        pass
    return str(caught.value)


def test_a_second_server_on_the_same_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with process(data, log=tmp_path / "first") as child:
        half_written = data / "payloads" / "incoming" / "half-written"
        half_written.write_bytes(b"x")
        assert "another server already runs" in failing(data, tmp_path / "second")
        assert half_written.exists()
        assert child.call("GET", "/health").status == 200


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as server:
        said = failing(tmp_path / "two", tmp_path / "log", port=server.port)
    assert f"127.0.0.1:{server.port}" in said


@pytest.mark.parametrize("url", ["mysql://x/y", "farhand.db", "postgresql://nobody@127.0.0.1:1/x"])
def test_a_database_that_is_none_is_named(tmp_path: Path, url: str) -> None:
    said = failing(tmp_path / "data", tmp_path / "log", database=url)
    assert "database" in said.lower()
    assert ROOT not in said
