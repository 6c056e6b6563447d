"""agent.toml and the key."""

from pathlib import Path

import pytest

from farhand.agent.config import ConfigError, default_data, load_config, read_key
from farhand.agent.enrol import find_key
from farhand.model.system import System
from farhand.systems.handlers import build_handlers

KEY = "0123456789abcdef"


def write(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_settings_are_read_and_paths_start_beside_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'server = "https://prints.example/farhand/"\nname = "shop"\ndata = "state"\nkey_file = "key"\n'
        'ca_file = "/etc/ca.pem"\n[printing]\ndiscover = false\n',
    )
    config = load_config(path, environ={})
    assert (config.server, config.name) == ("https://prints.example/farhand", "shop")
    assert (config.data, config.key_file) == (tmp_path / "state", tmp_path / "key")
    assert config.ca_file == Path("/etc/ca.pem")
    assert config.sections == {"printing": {"discover": False}}


def test_the_command_line_wins_over_the_file_and_the_environment_over_both(tmp_path: Path) -> None:
    path = write(tmp_path, f'server = "http://a"\nname = "file"\nkey = "{KEY}"\n')
    overrides = {"name": "flag", "server": None}
    config = load_config(path, environ={"FARHAND_AGENT_KEY": "from the environment"}, overrides=overrides)
    assert (config.name, config.server, config.key) == ("flag", "http://a", "from the environment")


def test_without_a_file_a_server_and_the_host_name_are_enough() -> None:
    config = load_config(None, environ={"HOME": "/home/x"}, overrides={"server": "http://localhost:8631"})
    assert config.name
    assert config.data == Path("/home/x/.local/state/farhand-agent")


def test_the_data_folder_follows_the_systems_custom() -> None:
    assert default_data({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/farhand-agent")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('sever = "http://a"', "'sever'; did you mean 'server'"),
        ('server = "http://a"\nprintng = 1', "'printng'; did you mean 'printing'"),
        ("", "server is missing"),
        ('server = "ftp://a"', "http:// or https://"),
        ('server = "http://a?x=1"', "http:// or https://"),
        ('server = "http://user:secret@a"', "must not hold a name or password"),
        ('server = "http://a"\nname = ""', "name must be a text"),
        ('server = "http://a"\ndescribe_every_ms = "1"', "describe_every_ms must be a whole number"),
        ('server = "http://a"\nkey = "short"', "at least 16"),
        ("server = ", "not valid TOML"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), environ={})
    assert words in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml cannot be read"):
        load_config(tmp_path / "nothing.toml", environ={})


def test_a_file_with_a_key_must_be_its_owners_alone(tmp_path: Path) -> None:
    path = write(tmp_path, f'server = "http://a"\nkey = "{KEY}"\n', mode=0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_config(path, environ={})
    path.chmod(0o600)
    assert load_config(path, environ={}).key == KEY


def test_a_file_without_a_key_may_be_read_by_all(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, 'server = "http://a"\n', mode=0o644), environ={}).key is None


def test_a_key_file_must_be_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key(path)
    path.chmod(0o600)
    assert read_key(path) == KEY


def test_the_key_is_not_shown_with_the_settings(tmp_path: Path) -> None:
    path = write(tmp_path, f'server = "http://a"\nkey = "{KEY}"\n')
    assert KEY not in repr(load_config(path, environ={}))


def test_a_key_of_its_own_is_made_once_and_kept_private(tmp_path: Path) -> None:
    config = load_config(
        None, environ={}, overrides={"server": "http://a", "data": tmp_path / "new" / "data"}
    )
    key = find_key(config)
    assert len(key) == 43
    assert find_key(config) == key
    assert (config.data / "agent.key").stat().st_mode & 0o777 == 0o600


def test_a_table_of_no_system_is_named(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, 'server = "http://a"\n[printng]\n'), environ={})
    with pytest.raises(ConfigError, match=r"\[printng\]; did you mean 'printing'"):
        build_handlers(config)


def test_a_system_without_work_for_agents_has_no_handler(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, 'server = "http://a"\n'), environ={})
    assert build_handlers(config, systems=[System(name="pages", kinds=())]) == ()
