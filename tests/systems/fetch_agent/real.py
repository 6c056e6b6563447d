"""The real server and real agents that fetch, as processes, with requests and memory to look at."""

import re
from pathlib import Path
from typing import Any

from tests.agent.real import Process, Server
from tests.peers.printers import wait_until

SECONDS = 60
FINAL = ("done", "failed", "cancelled", "expired", "uncertain")
SERVER = """accept_ms = 1500
[fetch]
loopback = true
[policy."fetch.http"]
lease_ms = 1500
[policy."fetch.http.unsafe"]
lease_ms = 1500
"""
FETCH = "loopback = true\nports = []\nper_host_per_second = 0\n"


class FetchServer(Server):
    """A real server whose fetch leases are short."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, settings=SERVER)

    def fetch(self, url: str, **request: Any) -> str:
        """A fetch job's id."""
        more = {key: request.pop(key) for key in ("agent", "tags", "expires_in") if key in request}
        message = {"type": "fetch", "request": {"url": url, **request}, **more}
        return str(self.call("POST", "/jobs", message)["id"])

    def ended(self, job_id: str) -> dict[str, Any]:
        """The job once it has ended, or nobody knows how."""
        found: dict[str, Any] = {}

        def over() -> bool:
            found.update(self.job(job_id))
            return found["state"] in FINAL

        wait_until(over, f"{found} ends\n{self.trail(job_id)}", SECONDS)
        return found

    def agent_id(self, name: str) -> str:
        """The id of the agent of this name, once it is in."""
        found: list[str] = []

        def there() -> bool:
            items = self.call("GET", "/agents")["items"]
            found[:] = [item["id"] for item in items if item["name"] == name]
            return bool(found)

        wait_until(there, f"agent {name}", SECONDS)
        return found[0]


class FetchAgent(Process):
    """A real agent with a `[fetch]` table."""

    def __init__(
        self, folder: Path, server: str, name: str, table: str = "", *, signing: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.data = folder / "data"
        lines = [
            f'server = "{server}"',
            f'name = "{name}"',
            f'data = "{self.data}"',
            "stop_grace_ms = 1000",
            "" if signing is None else f'signing_key_file = "{signing}"',
            "[fetch]",
            FETCH + table,
        ]
        config = folder / "agent.toml"
        config.write_text("\n".join(lines) + "\n")
        super().__init__(["agent", "run", "--config", str(config)], folder / "log")

    def peak_from_now(self) -> None:
        """Forgets how much memory it needed until now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def memory(self, word: str) -> int:
        """`VmRSS` or `VmHWM` in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"^{word}:\s+(\d+) kB$", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) * 1024

    def code(self) -> str:
        """The code that it shows while it waits for approval."""
        self.wait_for("with the code", seconds=SECONDS)
        match = re.search(r"with the code (\S+)", self.log.read_text())
        assert match is not None
        return match[1]


def approve(server: FetchServer, agent: FetchAgent) -> str:
    """Lets a waiting device in by its code; its id."""
    code = agent.code()
    (item,) = server.call("GET", "/agents/pending")["items"]
    server.call("POST", f"/agents/{item['id']}/approve", {"code": code})
    return str(item["id"])
