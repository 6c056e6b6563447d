"""Options before environment before profile, and keys that stay where they belong."""

from pathlib import Path

import pytest

from farhand.cli import connection
from farhand.cli.connection import ProfileError, choose_session, profile_path
from farhand.client import DEFAULT_SERVER
from farhand.model.errors import FarhandError


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write_profile(environment: dict[str, str], text: str, mode: int = 0o600) -> Path:
    path = profile_path(environment)
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_anything_it_is_this_machine_and_no_key(environment: dict[str, str]) -> None:
    session = choose_session(None, None, environment)
    assert (session.server, session.key) == (DEFAULT_SERVER, None)
    assert connection.DEFAULT_SERVER == DEFAULT_SERVER
    with pytest.raises(FarhandError, match="FARHAND_TOKEN"):
        session.client()


def test_options_win_over_the_environment_and_that_over_the_profile(environment: dict[str, str]) -> None:
    write_profile(environment, 'server = "http://profile"\nkey = "from-profile"')
    assert choose_session(None, None, environment).key == "from-profile"
    more = environment | {"FARHAND_SERVER": "http://environment", "FARHAND_TOKEN": "from-environment"}
    found = choose_session(None, None, more)
    assert (found.server, found.key) == ("http://environment", "from-environment")
    found = choose_session("http://option", "from-option", more)
    assert (found.server, found.key) == ("http://option", "from-option")


def test_the_profiles_key_is_not_sent_to_another_server(environment: dict[str, str]) -> None:
    write_profile(environment, 'server = "http://profile"\nkey = "from-profile"')
    assert choose_session("http://elsewhere", None, environment).key is None
    assert choose_session("http://profile/", None, environment).key == "from-profile"
    assert choose_session(None, None, environment | {"FARHAND_SERVER": "http://elsewhere"}).key is None


def test_a_profile_may_name_a_file_with_the_key(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    write_profile(environment, f'key_file = "{tmp_path / "token"}"')
    assert choose_session(None, None, environment).key == "from-file"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_profile_that_others_can_touch_is_refused(environment: dict[str, str], mode: int) -> None:
    path = write_profile(environment, 'key = "k"', mode)
    with pytest.raises(ProfileError, match=f"chmod 600 {path}"):
        choose_session(None, None, environment)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('sever = "x"', "did you mean 'server'"),
        ("server = 3", "write server as"),
        ("server", "not valid TOML"),
        ('key_file = "/nowhere/at/all"', "cannot read the profile's key_file"),
    ],
)
def test_a_profile_with_a_mistake_says_what_to_change(
    environment: dict[str, str], text: str, message: str
) -> None:
    write_profile(environment, text)
    with pytest.raises(ProfileError, match=message):
        choose_session(None, None, environment)
