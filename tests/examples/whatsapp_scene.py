"""The example with everything that it talks to: server, agent, provider and CMS as processes."""

import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx2

from farhand.client import Client
from tests.client.server import FARHAND, clean_environment, farhand_server, read_line, wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROVIDER_KEY = "the key of the provider, a secret"
AGENT = "shop"
# A retry after 30 s is right for a shop and long for a test.
SETTINGS = (
    (EXAMPLES / "whatsapp" / "farhand.toml")
    .read_text()
    .replace("start_by_ms", "backoff_base_ms = 100\nstart_by_ms")
)


class Scene:
    """All of it, gone afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self.server = stack.enter_context(farhand_server(self._place("server"), SETTINGS))
            self.root = stack.enter_context(Client(self.server.url, self.server.token))
            issued = self.root.issue_agent(AGENT)
            self.agent_id, self.agent_key = issued.id, issued.key
            self.root.grants(issued.id, ["agent.work", "commands.process"])
            key = self.root.create_key("cms", ["jobs.submit", "jobs.read"]).key
            provider = self._module("standin", "--port", "0", "--key", PROVIDER_KEY)
            self.provider_url = self._address(provider)
            cms = self._module(
                "cms", "--server", self.server.url, "--agent", AGENT, "--port", "0", FARHAND_KEY=key
            )
            self.cms_url = self._address(cms)
            self.cms = stack.enter_context(httpx2.Client(base_url=self.cms_url, timeout=40))
            self.provider = stack.enter_context(httpx2.Client(base_url=self.provider_url, timeout=10))
            self.start_agent()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_agent(signal.SIGKILL)
        self._stack.close()

    def start_agent(self, provider_key: str = PROVIDER_KEY) -> None:
        """Starts the agent (again)."""
        environment = clean_environment(
            self._place("agent"),
            FARHAND_AGENT_KEY=self.agent_key,
            EVOLUTION_URL=self.provider_url,
            EVOLUTION_KEY=provider_key,
            EVOLUTION_INSTANCE=AGENT,
        )
        with (self.folder / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(
                [FARHAND, "agent", "run", "--server", self.server.url, "--name", AGENT,
                 "--commands", "whatsapp.handlers:build"],
                cwd=EXAMPLES, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def end_agent(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it in order, or not."""
        with suppress(ProcessLookupError):
            self.agent.send_signal(number)
        self.agent.wait(20)

    def clear(self) -> None:
        """Nothing is linked, nothing is under way, and the agent is there."""
        self.provider.post("/outage/0")
        self.provider.delete(f"/instance/logout/{AGENT}", headers={"apikey": PROVIDER_KEY})
        for command in self.root.commands().items:
            if not command.final:
                with suppress(Exception):
                    self.root.cancel_command(command.uuid)
        wait_until(lambda: all(c.final for c in self.root.commands().items), "no command is live")

    def press(self, path: str, **body: Any) -> dict[str, Any]:
        """What a button of the page does."""
        reply = self.cms.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def connect(self) -> str:
        """Presses Connect; the command."""
        return self.press("/connect", click=str(uuid4()))["command"]

    def code(self) -> dict[str, Any]:
        """What the page gets once the command is over."""
        deadline = time.monotonic() + 30
        while True:
            said = self.press("/code")
            if said["status"] not in ("pending", "in_progress"):
                return said
            assert time.monotonic() < deadline, f"{said}\n{self.log()}"

    def scan(self, picture: str) -> httpx2.Response:
        """The customer's phone, held in front of the screen."""
        return self.provider.post("/phone/scan", content=picture)

    def asked(self) -> list[str]:
        """What the provider was asked."""
        return self.provider.get("/log").json()

    def log(self) -> str:
        """The agent's log."""
        return (self.folder / "agent.log").read_text(errors="replace")

    def written(self, *names: str) -> dict[str, bytes]:
        """Everything on disk below some of the scene's folders and files."""
        places = [self.folder / name for name in names]
        files = [path for place in places for path in ([place] if place.is_file() else place.rglob("*"))]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files if path.is_file()}

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return place

    def _module(self, name: str, *options: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", f"whatsapp.{name}", *options],
            cwd=EXAMPLES,
            env=clean_environment(self._place(name), **environment),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(_end, process)
        return process

    def _address(self, process: "subprocess.Popen[str]") -> str:
        line = read_line(process)
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        return found.group()


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()
