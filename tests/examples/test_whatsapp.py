"""The WhatsApp example from the button to the linked phone, with nothing in it pretended but the phone."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand.client import ApiError
from tests.client.server import wait_until
from tests.examples.whatsapp_scene import AGENT, EXAMPLES, PROVIDER_KEY, Scene


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("whatsapp")) as scene:
        yield scene


@pytest.fixture
def scene(running: Scene) -> Scene:
    running.clear()
    return running


@pytest.fixture
def text_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """The text that a picture carries."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from whatsapp.picture import read

    yield read
    for name in [name for name in sys.modules if name.split(".")[0] == "whatsapp"]:
        del sys.modules[name]


def test_from_the_button_to_the_code_on_the_screen_to_the_linked_phone(scene: Scene) -> None:
    page = scene.cms.get("/")
    assert "Connect WhatsApp" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]

    command = scene.connect()
    said = scene.code()
    assert (said["status"], said["state"]) == ("completed", "scan")
    assert said["qr"].startswith("data:image/png;base64,")
    assert scene.press("/linked")["state"] == "connecting"

    assert scene.scan(said["qr"]).json() == {"linked": AGENT}
    assert scene.press("/linked")["state"] == "open"
    shown = scene.root.command(command)
    assert shown.status == "completed"
    assert "qr" not in (shown.result or {}), "acknowledged, it is gone"
    assert scene.code() == {"status": "none"}

    assert scene.press("/disconnect")["state"] == "close"
    assert scene.scan(said["qr"]).status_code == 400


def test_the_code_is_nowhere_but_on_the_screen(scene: Scene, text_of: object) -> None:
    assert callable(text_of)
    command = scene.connect()
    picture = scene.code()["qr"]
    for shown in (scene.root.job(command), scene.root.command_events(command), scene.root.commands()):
        assert picture not in str(shown)
    places = ("agent", "agent.log", "server")
    assert any(name.endswith(".db-wal") for name in scene.written("server"))
    assert "job_settled" in scene.log()
    needles = [picture[-200:-100].encode(), text_of(picture).encode(), PROVIDER_KEY.encode()]
    for name, content in scene.written(*places).items():
        assert not any(needle in content for needle in needles), f"{name} holds it before"
    assert scene.scan(picture).status_code == 200
    assert scene.press("/linked")["state"] == "open"
    for name, content in scene.written(*places).items():
        assert not any(needle in content for needle in needles), f"{name} holds it after"


def test_a_double_click_and_a_second_tab_are_one_command_and_one_code(scene: Scene) -> None:
    scene.end_agent()
    first = scene.press("/connect", click="the same click")["command"]
    assert scene.press("/connect", click="the same click")["command"] == first
    assert scene.press("/connect", click="another tab")["command"] == first
    with pytest.raises(ApiError, match=first) as refused:
        scene.root.issue_command("whatsapp.connect", AGENT)
    assert refused.value.problem.status == 409
    scene.start_agent()
    assert scene.code()["status"] == "completed"


def test_a_provider_that_is_away_for_a_while_is_asked_again_and_the_trail_says_why(scene: Scene) -> None:
    scene.provider.post("/outage/1")
    command = scene.connect()
    assert scene.code()["status"] == "completed"
    shown = scene.root.command(command)
    assert shown.attempts == 2
    trail = [f"{event.from_} {event.to} {event.reason}" for event in scene.root.command_events(command)]
    assert any("the WhatsApp service is out of order (503)" in entry for entry in trail), trail
    retried = [event.retry_at for event in scene.root.command_events(command) if event.retry_at]
    assert len(retried) == 1


def test_what_can_never_work_fails_at_once_and_the_page_says_why(scene: Scene) -> None:
    scene.end_agent()
    scene.start_agent(provider_key="not the key")
    try:
        command = scene.connect()
        said = scene.code()
        assert said["status"] == "failed"
        assert said["why"] == "the WhatsApp service does not know the key in EVOLUTION_KEY"
        assert scene.root.command(command).attempts == 1
    finally:
        scene.end_agent()
        scene.start_agent()


def test_an_agent_killed_at_work_gets_its_own_work_back_at_once(scene: Scene) -> None:
    asked = len(scene.asked())
    command = scene.connect()
    wait_until(
        lambda: any("connect/" in line for line in scene.asked()[asked:]), "the provider is being asked"
    )
    scene.end_agent(signal.SIGKILL)
    assert scene.root.command(command).status == "in_progress"
    scene.start_agent()
    began = time.monotonic()
    assert scene.code()["status"] == "completed"
    # Its lease would have lasted for a minute.
    assert time.monotonic() - began < 15
    assert scene.asked()[asked:].count("POST /instance/create") == 2


def test_the_settings_in_the_readme_are_those_that_were_tested() -> None:
    readme = (Path(EXAMPLES) / "whatsapp" / "README.md").read_text()
    for line in (
        "farhand serve --config whatsapp/farhand.toml",
        "farhand agent run --server http://127.0.0.1:8631 --name shop --commands whatsapp.handlers:build",
        "python -m whatsapp.standin --key",
        "python -m whatsapp.cms --agent shop",
    ):
        assert line in readme
