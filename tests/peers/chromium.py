"""A real Chromium for tests, headless, spoken to over a pipe in the DevTools protocol."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.peers import require_peer

CALL_S = 60.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)


class Chromium:
    """One browser process. `new_context` makes a profile of its own, with its own storage."""

    def __init__(self, program: str, profile: Path) -> None:
        from_browser, to_us = os.pipe()
        from_us, to_browser = os.pipe()
        # The protocol is on the descriptors 3 and 4: ours must not stand in their way.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (from_us, to_us)]

        def place() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=place,
        )
        for end in (from_us, to_us, *ends):
            os.close(end)
        self._in = os.fdopen(to_browser, "wb", buffering=0)
        self._out = os.fdopen(from_browser, "rb", buffering=0)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, name="chromium", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rest = b""
        with suppress(OSError, ValueError):
            while piece := self._out.read(65_536):
                *whole, rest = (rest + piece).split(b"\0")
                for message in whole:
                    self._heard(json.loads(message))
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(RuntimeError("the browser is gone"))

    def _heard(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.pop(message.get("id", 0), None)
        if waiting is None:
            self.said.append(message)
        elif "error" in message:
            waiting.set_exception(RuntimeError(message["error"]["message"]))
        else:
            waiting.set_result(message["result"])

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """The result of one command. Raises RuntimeError with the browser's own words."""
        number, answer = next(self._numbers), Future[Any]()
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._waiting[number] = answer
        with self._lock:
            self._in.write(json.dumps(message).encode() + b"\0")
        return answer.result(CALL_S)

    def new_context(self) -> "Profile":
        """A profile that shares nothing with others."""
        made = self.call("Target.createBrowserContext", disposeOnDetach=True)
        return Profile(browser=self, id=made["browserContextId"])

    def close(self) -> None:
        """End the browser."""
        with suppress(RuntimeError, OSError, TimeoutError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._in.close()
        self._reader.join(10)
        self._out.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Tabs that share storage."""

    browser: Chromium
    id: str

    def tab(self, url: str, *, script: str | None = None) -> "Tab":
        """Open a page in a new tab; `script` runs before anything of the page does."""
        browser = self.browser
        made = browser.call("Target.createTarget", url="about:blank", browserContextId=self.id)
        attached = browser.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        tab = Tab(browser=browser, target=made["targetId"], session=attached["sessionId"])
        tab.call("Page.enable")
        tab.call("Runtime.enable")
        tab.call("Log.enable")
        if script is not None:
            tab.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        tab.call("Page.navigate", url=url)
        return tab

    def close(self) -> None:
        """Forget it all."""
        with suppress(RuntimeError):
            self.browser.call("Target.disposeBrowserContext", browserContextId=self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One page."""

    browser: Chromium
    target: str
    session: str

    def call(self, method: str, **params: Any) -> Any:
        """A command to this page."""
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of its promise. Raises RuntimeError with what it threw."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "it threw"))
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """What an element shows; nothing while it is not there or hidden."""
        quoted = json.dumps(selector)
        return self.evaluate(
            f"(() => {{ const e = document.querySelector({quoted});"
            " return e && e.checkVisibility() ? e.textContent : ''; })()"
        )

    def click(self, selector: str) -> None:
        """Press an element."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def reload(self) -> None:
        """Load the page again."""
        self.call("Page.reload")

    def close(self) -> None:
        """Close the tab."""
        self.browser.call("Target.closeTarget", targetId=self.target)

    def complaints(self) -> list[str]:
        """What the page's own code threw, and what its policy refused."""
        found: list[str] = []
        for event in list(self.browser.said):
            if event.get("sessionId") != self.session:
                continue
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
            if event["method"] == "Log.entryAdded" and params["entry"]["source"] == "security":
                found.append(params["entry"]["text"])
        return found

    def screenshot(self, path: Path, *, width: int = 1000, height: int = 1400) -> None:
        """A picture of the page at a size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium_running() -> Iterator[Chromium]:
    """A browser until the block ends."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    require_peer("Chromium", program is not None, "apt-get install chromium")
    assert program is not None
    profile = tempfile.mkdtemp(prefix="farhand-chromium-")
    browser = Chromium(program, Path(profile))
    try:
        yield browser
    finally:
        browser.close()
        shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The browser that all tests share."""
    with chromium_running() as browser:
        yield browser


@pytest.fixture
def profile(chromium: Chromium) -> Iterator[Profile]:
    """A profile of this test's own."""
    made = chromium.new_context()
    yield made
    made.close()
