"""A server whose page runs in a real Chromium, and a target that lets pages read its answers."""

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from farhand.testing.clock import FakeClock
from tests.peers.chromium import Profile, Tab
from tests.server.serving import Server, serving, until

SECTIONS: dict[str, dict[str, object]] = {"fetch": {"loopback": True}}
BINARY = bytes(range(256)) * 4
TEXT = "grüße " * 500


@dataclass(slots=True)
class Target:
    """A site that allows every page to read it, but for `/closed`. `/slow` answers once `go` is set."""

    port: int = 0
    go: threading.Event = field(default_factory=threading.Event)
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(
        default_factory=list[tuple[str, str, dict[str, str], bytes]]
    )

    def url(self, path: str = "/data") -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def asked(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(1 for _, found, _, _ in self.seen if found == path)


def _handler(target: Target) -> type[BaseHTTPRequestHandler]:
    answers: dict[str, tuple[str, bytes]] = {
        "/data": ("application/json", b'{"ok":true}'),
        "/closed": ("text/plain", b"secret"),
        "/binary": ("application/octet-stream", BINARY),
        "/text": ("text/plain; charset=utf-8", TEXT.encode()),
        "/slow": ("text/plain", b"at last"),
    }

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            target.seen.append((self.command, self.path, dict(self.headers), body))
            if self.path == "/slow":
                target.go.wait(60)
            if self.path.startswith("/away?"):
                self.send_response(302)
                self.send_header("Location", self.path.partition("?")[2])
            elif self.path in answers:
                self.send_response(200)
            else:
                self.send_response(404)
            kind, content = answers.get(self.path, ("text/plain", b"nothing here"))
            if self.path != "/closed":
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Access-Control-Allow-Headers", "*")
                self.send_header("Access-Control-Allow-Methods", "*")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = _answer

        def do_OPTIONS(self) -> None:
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Allow-Headers", "*")
            self.send_header("Access-Control-Allow-Methods", "*")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Site(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A page that stops reading is what some tests are about.
        pass


@pytest.fixture
def target() -> Iterator[Target]:
    """The site."""
    found = Target()
    site = _Site(("127.0.0.1", 0), _handler(found))
    found.port = site.server_port
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    found.go.set()
    site.shutdown()
    thread.join()
    site.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test alone."""
    with serving(tmp_path / "data", sections=SECTIONS) as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    """A clock of the test's own."""
    return FakeClock()


@pytest.fixture
def timed(tmp_path: Path, clock: FakeClock) -> Iterator[Server]:
    """A server whose time stands still until the test moves it."""
    with serving(tmp_path / "data", clock=clock, sections=SECTIONS) as running:
        yield running


def page(server: Server, profile: Profile, **more: Any) -> Tab:
    """The agent's page in a new tab."""
    return profile.tab(f"http://127.0.0.1:{server.port}/pulsar/agent/ui", **more)


def phase(tab: Tab, *wanted: str) -> str:
    """What the page is in, once it is one of these."""
    return until(
        f"the page is {wanted}",
        lambda: found if (found := tab.evaluate("document.body?.dataset.phase")) in wanted else None,
    )


def reload(tab: Tab) -> None:
    """Load the page again; the new one is there when this returns."""
    tab.evaluate("globalThis.before = true")
    tab.reload()
    until("the page is another", lambda: tab.evaluate("globalThis.before !== true"))


def approve(server: Server, tab: Tab) -> str:
    """Type the code that the page shows; the id of the device."""
    phase(tab, "pending")
    code = tab.text("#code")
    (entry,) = server.call("GET", "/agents/pending").ok()["items"]
    server.call("POST", f"/agents/{entry['id']}/approve", json_body={"code": code}).ok()
    phase(tab, "working")
    return str(entry["id"])


def ready(server: Server, profile: Profile) -> Tab:
    """The page of a device that was let in before."""
    bid = "browser-" + secrets.token_hex(16)
    message = {"bid": bid, "userAgent": "before"}
    said = server.call("POST", "/pulsar/agent/api/session", key=None, json_body=message).ok(403)
    (entry,) = server.call("GET", "/agents/pending").ok()["items"]
    code = {"code": said["user_code"]}
    server.call("POST", f"/agents/{entry['id']}/approve", json_body=code).ok()
    tab = page(server, profile, script=f"localStorage.setItem('pulsar.identity', '{bid}')")
    phase(tab, "working")
    return tab


def submit(server: Server, url: str, **request: Any) -> str:
    """The id of a fetch that must be taken."""
    message = {"type": "fetch", "request": {"url": url, **request}}
    return server.call("POST", "/jobs", json_body=message).ok(201)["id"]


def ended(server: Server, job_id: str) -> Any:
    """The job once it is over."""
    return server.await_state(job_id, "done", "failed", "expired", "cancelled", "uncertain")
