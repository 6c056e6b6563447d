"""The `[fetch]` table: what it takes, what it refuses, who takes part because of it."""

from pathlib import Path
from typing import Any

import pytest

from farhand.agent.config import AgentConfig, ConfigError
from farhand.systems.fetch.settings import FetchSettings, read_settings
from farhand.systems.handlers import build_handlers
from tests.egress.authority import make_authority

SERVER = "https://farhand.example"
LOCAL_SERVER = "http://127.0.0.1:8631"


def read(server: str = SERVER, **table: Any) -> FetchSettings:
    return read_settings(table, Path("/etc/farhand"), server)


def test_nothing_is_open_by_default() -> None:
    found = read()
    assert (found.insecure_tls, found.private_ip, found.private_cidrs) == ("ignore", "ignore", ())
    assert (found.ports, found.loopback, found.nat64) == ((80, 443), False, False)
    assert found.capabilities == ("fetch",)


def test_what_is_accepted_and_the_tags_are_declared() -> None:
    found = read(
        insecure_tls="accept", private_ip="accept", private_cidrs=["10.1.0.0/16"], tags=["lab", "eu"]
    )
    assert found.capabilities == ("fetch", "insecure-tls", "private-ip", "tag:lab", "tag:eu")
    assert read(insecure_tls="refuse").capabilities == ("fetch",)


def test_files_are_looked_for_beside_the_settings() -> None:
    assert read(dialect="pulsar", bid="device.bid").bid == Path("/etc/farhand/device.bid")
    assert read(dialect="pulsar", bid="/srv/device.bid").bid == Path("/srv/device.bid")


def test_certificates_that_cannot_be_read_are_noticed_at_once(tmp_path: Path) -> None:
    make_authority(tmp_path)
    assert read(ca_file=str(tmp_path / "ca.pem")).ca_file == tmp_path / "ca.pem"
    (tmp_path / "no.pem").write_text("no certificate")
    for name in ("no.pem", "missing.pem"):
        with pytest.raises(ConfigError, match="cannot be read as PEM"):
            read(ca_file=str(tmp_path / name))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"privat_ip": "accept"}, "did you mean 'private_ip'"),
        ({"private_ip": "yes"}, "ignore or accept or refuse"),
        ({"private_ip": "accepts"}, "did you mean 'accept'"),
        ({"private_ip": "accept"}, "private_cidrs"),
        ({"private_cidrs": ["10.0.0.1/8"]}, "'10.0.0.1/8' is no network"),
        ({"private_cidrs": "10.0.0.0/8"}, "must be a list"),
        ({"private_cidrs": ["127.0.0.0/8"]}, "never opened"),
        ({"private_cidrs": ["169.254.169.254"]}, "never opened"),
        ({"private_cidrs": ["fe80::/64"]}, "never opened"),
        ({"private_cidrs": ["64:ff9b::/96"]}, "never opened"),
        ({"denied_cidrs": ["nonsense"]}, "is no network"),
        ({"ports": [0]}, "1 to 65535"),
        ({"ports": 80}, "must be a list"),
        ({"ports": [True]}, "1 to 65535"),
        ({"concurrency": 0}, "from 1 to 64"),
        ({"concurrency": True}, "from 1 to 64"),
        ({"per_host_per_second": -1}, "from 0"),
        ({"dialect": "seed"}, "native or pulsar"),
        ({"bid": "b"}, 'dialect = "pulsar"'),
        ({"bid": 3, "dialect": "pulsar"}, "path of a file"),
        ({"tags": ["a" * 61]}, "60"),
        ({"tags": [""]}, "not empty"),
        ({"tags": [str(n) for n in range(21)]}, "20"),
        ({"nat64": 1}, "true or false"),
        ({"loopback": True}, "for development"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=r"\[fetch\]") as refusal:
        read(**table)
    assert words in str(refusal.value)


@pytest.mark.parametrize("server", [LOCAL_SERVER, "http://[::1]:80", "https://localhost:8631"])
def test_this_machine_is_opened_only_beside_a_server_on_it(server: str) -> None:
    assert read(server, loopback=True).loopback


@pytest.mark.parametrize(
    ("server", "names", "cidrs"),
    [
        ("https://farhand.example:8443/base", ("farhand.example",), ()),
        ("https://farhand.example.", ("farhand.example",), ()),
        ("https://192.0.2.7", (), ("192.0.2.7",)),
        ("https://[2001:db8::7]:1", (), ("2001:db8::7",)),
        (LOCAL_SERVER, (), ()),
        ("http://localhost:8631", (), ()),
    ],
)
def test_the_server_is_no_target(server: str, names: tuple[str, ...], cidrs: tuple[str, ...]) -> None:
    found = read(server)
    assert (found.denied_names, found.denied_cidrs) == (names, cidrs)


def config(folder: Path, **sections: dict[str, object]) -> AgentConfig:
    return AgentConfig(server=SERVER, name="a", data=folder, folder=folder, sections=sections)


def kinds(*arguments: Any, **sections: dict[str, object]) -> list[str]:
    return sorted(
        kind for handler in build_handlers(config(*arguments, **sections)) for kind in handler.kinds
    )


def test_an_agent_fetches_only_when_its_settings_say_so(tmp_path: Path) -> None:
    assert "fetch.http" not in kinds(tmp_path)
    assert "fetch.http" in kinds(tmp_path, fetch={})


def test_an_agent_that_fetches_prints_only_when_its_settings_say_so(tmp_path: Path) -> None:
    assert kinds(tmp_path, fetch={}) == ["fetch.http"]
    assert "print.pdf" in kinds(tmp_path, fetch={}, printing={"discover": False})
    assert "print.pdf" in kinds(tmp_path)


def test_a_pulsar_device_takes_nothing_the_native_way(tmp_path: Path) -> None:
    assert kinds(tmp_path, fetch={"dialect": "pulsar"}) == []
