"""`farhand fetch`: through a real server and a real agent, to a target of the test's own."""

import hashlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from farhand.cli.fetch_exits import exit_of_failure
from farhand.client import Client, FetchFailed
from farhand.protocol.client import JobView
from farhand.protocol.fetch import FetchError
from tests.cli.conftest import Launch, Run
from tests.cli.terminal import Terminal, without_styles
from tests.client.server import FARHAND, FarhandServer, clean_environment, farhand_server, wait_until
from tests.client.test_plan import view

Read = Callable[..., Any]
LARGE = hashlib.sha256(b"seed").digest() * 40_000
SERVER = "[fetch]\nloopback = true\n"
AGENT = """
server = "{url}"
name = "{name}"
data = "state"
[fetch]
loopback = true
ports = []
per_host_per_second = 0
tags = ["lab"]
"""


class Target(ThreadingHTTPServer):
    """Answers by the path; `/slow` when `open` is set."""

    daemon_threads = True

    def __init__(self, answers: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), answers)
        self.open = threading.Event()
        self.arrived = threading.Event()

    def url(self, path: str) -> str:
        """The address of a path here."""
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Answers(BaseHTTPRequestHandler):
    """One request."""

    server: Target
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/slow":
            self.server.arrived.set()
            self.server.open.wait(60)
        if path == "/nonsense":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            self.close_connection = True
            return
        answers = {
            "/binary": (200, "application/octet-stream", b"\x00\x01\x1b[2J"),
            "/large": (200, "application/octet-stream", LARGE),
            "/gone": (404, "text/plain", b"nothing here"),
            "/round": (302, "text/plain", b""),
            "/once": (302, "text/plain", b""),
            "/digits": (200, "text/plain", b"0123456789"),
        }
        status, kind, content = answers.get(path, (200, "text/plain", b"hello\n"))
        if path == "/echo":
            seen = {"method": self.command, "headers": dict(self.headers.items()), "body": body.hex()}
            kind, content = "application/json", json.dumps(seen).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 302:
            self.send_header("Location", "/round" if path == "/round" else "/digits")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_POST = do_PUT = do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(web: Target) -> Generator[Target]:
    """A target that answers meanwhile."""
    with web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield web
        finally:
            web.open.set()
            web.shutdown()
            thread.join()


@pytest.fixture
def target() -> Iterator[Target]:
    """A target of this test's own."""
    with serving(Target(Answers)) as web:
        yield web


@contextmanager
def fetch_agent(server: FarhandServer, folder: Path, name: str) -> Generator["subprocess.Popen[bytes]"]:
    """A real agent that fetches from this machine, once it is in."""
    folder.mkdir()
    (folder / "agent.toml").write_text(AGENT.format(url=server.url, name=name))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [FARHAND, "agent", "run", "--config", folder / "agent.toml"],
            env=clean_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        with Client(server.url, server.token) as client:
            wait_until(
                lambda: [agent for agent in client.agents() if agent.name == name and agent.online],
                f"agent {name} is in",
                seconds=60,
            )
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarhandServer]:
    """A server with one agent, called here, that has the tag lab."""
    folder = tmp_path_factory.mktemp("server")
    with farhand_server(folder, SERVER) as running, fetch_agent(running, folder / "agent", "here"):
        yield running


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarhandServer]:
    """A server without agents, where nothing waits for long."""
    settings = '[policy."fetch.http"]\nstart_by_ms = 1000\n'
    with farhand_server(tmp_path_factory.mktemp("lonely"), settings) as running:
        yield running


def at(server: FarhandServer) -> dict[str, str | None]:
    """The settings that lead to another server."""
    return {"FARHAND_SERVER": server.url, "FARHAND_TOKEN": server.token}


def test_the_body_and_nothing_else_is_written(run: Run, target: Target) -> None:
    shown = run("fetch", target.url("/"))
    assert shown.stdout_bytes == b"hello\n"
    assert shown.stderr == ""


def test_status_and_headers_come_first_when_they_are_wanted(run: Run, target: Target) -> None:
    shown = run("fetch", target.url("/gone"), "-i").stdout_bytes
    head, _, body = shown.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 404 Not Found"
    assert b"content-type: text/plain" in head.lower().splitlines()
    assert body == b"nothing here"


def test_a_binary_body_goes_into_a_pipe_as_it_is(run: Run, target: Target) -> None:
    assert run("fetch", target.url("/binary")).stdout_bytes == b"\x00\x01\x1b[2J"


def test_a_large_body_goes_into_a_file_and_into_a_pipe(run: Run, target: Target, tmp_path: Path) -> None:
    place = tmp_path / "large"
    place.write_bytes(b"x" * (len(LARGE) + 1000))
    assert run("fetch", target.url("/large"), "-o", str(place)).stdout_bytes == b""
    assert place.read_bytes() == LARGE
    assert run("fetch", target.url("/large")).stdout_bytes == LARGE


def test_a_request_is_made_as_it_is_said(run: Run, target: Target, tmp_path: Path) -> None:
    def echo(*arguments: str, **more: Any) -> dict[str, Any]:
        return json.loads(run("fetch", target.url("/echo"), *arguments, **more).stdout)

    seen = echo("-d", "a=1", "-d", "b=2", "-H", "X-Own: yes")
    assert (seen["method"], bytes.fromhex(seen["body"])) == ("POST", b"a=1&b=2")
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["x-own"] == "yes"
    (tmp_path / "body").write_bytes(b"\x00\xffbinary\r\n")
    seen = echo("-X", "put", "-d", f"@{tmp_path / 'body'}", "-H", "Content-Type: text/x", "--idempotent")
    assert (seen["method"], bytes.fromhex(seen["body"])) == ("PUT", b"\x00\xffbinary\r\n")
    assert {n.lower(): v for n, v in seen["headers"].items()}["content-type"] == "text/x"
    assert bytes.fromhex(echo("-d", "@-", input=b"from a pipe")["body"]) == b"from a pipe"
    assert run("fetch", target.url("/digits"), "-X", "HEAD").stdout_bytes == b""


def test_a_part_is_cut_out_where_the_target_sends_all(run: Run, target: Target) -> None:
    assert run("fetch", target.url("/digits"), "--range", "2-4").stdout_bytes == b"234"
    assert run("fetch", target.url("/digits"), "-r", "-3").stdout_bytes == b"789"


def test_redirects_are_followed_unless_they_are_not_wanted(run: Run, target: Target) -> None:
    assert run("fetch", target.url("/once")).stdout_bytes == b"0123456789"
    assert "HTTP/1.1 302" in run("fetch", target.url("/once"), "--no-location", "-i").stdout


def test_a_body_beyond_the_limit_is_cropped_and_said_to_be(run: Run, target: Target) -> None:
    shown = run("fetch", target.url("/digits"), "--max-bytes", "4", code=63)
    assert shown.stdout_bytes == b"0123"
    assert "the first 4 of 10 bytes" in shown.stderr


@pytest.mark.parametrize("more", [[], ["-o", "never-made"]])
def test_fail_ends_with_22_and_writes_no_body(
    run: Run, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("fetch", target.url("/gone")).stdout_bytes == b"nothing here"
    shown = run("fetch", target.url("/gone"), "--fail", *more, code=22)
    assert shown.stdout_bytes == b""
    assert "(22) the target answered 404 Not Found" in shown.stderr
    assert not (tmp_path / "never-made").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nonsense"], 3, "(3)"),
        (["http://user:secret@example.com/"], 3, "(3)"),
        (["http://no-such-host.invalid/"], 6, "no-such-host.invalid"),
        (["TARGET/nonsense"], 8, "(8)"),
        (["TARGET/slow", "--timeout", "0.2"], 28, "(28)"),
        (["TARGET/", "--range", "9-3"], 33, "(33)"),
        (["TARGET/round"], 47, "(47)"),
        (["http://10.1.2.3/"], 110, "(110)"),
        (["TARGET/", "-H", "X-Forwarded-For: 10.0.0.1"], 110, "(110)"),
    ],
)
def test_exit_codes_are_those_of_curl(
    run: Run, target: Target, arguments: list[str], code: int, words: str
) -> None:
    url = arguments[0].replace("TARGET", target.url("").rstrip("/"))
    shown = run("fetch", url, *arguments[1:], code=code)
    assert words in shown.stderr
    assert shown.stdout_bytes == b""
    assert "secret" not in shown.stderr


def test_a_target_where_nobody_listens_is_7_and_one_without_tls_is_35(run: Run, target: Target) -> None:
    tls = target.url("/").replace("http:", "https:")
    assert "(35)" in run("fetch", tls, code=35).stderr
    with Target(Answers) as closed:
        url = closed.url("/")
    assert "(7)" in run("fetch", url, code=7).stderr


@pytest.mark.parametrize(
    ("state", "why", "code"),
    [
        ("failed", FetchError(code="certificate", source="target"), 60),
        ("failed", FetchError(code="news", source="target"), 56),
        ("failed", FetchError(code="news", source="resolver"), 6),
        ("failed", FetchError(code="agent-disk", source="agent"), 114),
        ("failed", None, 114),
        ("uncertain", None, 112),
        ("cancelled", None, 113),
    ],
)
def test_other_ends_have_their_codes(state: str, why: FetchError | None, code: int) -> None:
    job = JobView(**view(state))  # pyright: ignore[reportArgumentType]  (the members of a job)
    assert exit_of_failure(FetchFailed(job, why)) == code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-H", "no colon"], "--header"),
        (["-H", "A: 1", "-H", "a: 2"], "given twice"),
        (["-d", "@no-such-file"], "cannot read no-such-file"),
        (["--timeout", "0"], "timeout"),
        (["--max-bytes", "0"], "max-bytes"),
        (["--via", "nobody-at-all"], "no agent has such a tag"),
    ],
)
def test_a_wrong_command_line_is_2(run: Run, target: Target, arguments: list[str], words: str) -> None:
    assert words in run("fetch", target.url("/"), *arguments, code=2).stderr


def test_via_takes_a_name_an_id_and_a_tag(run: Run, read: Read, target: Target) -> None:
    (agent,) = [entry for entry in read("agents", "list")["items"] if entry["name"] == "here"]
    for word in ("here", agent["id"]):
        assert read("fetch", target.url("/"), "--via", word)["agent_id"] == agent["id"]
    assert read("fetch", target.url("/"), "--via", "lab")["tags"] == ["lab"]


def test_json_is_the_job_and_the_body_still_goes_to_a_file(
    read: Read, target: Target, tmp_path: Path
) -> None:
    job = read("fetch", target.url("/"), "-o", str(tmp_path / "body"))
    assert (job["kind"], job["state"], job["evidence"]) == ("fetch.http", "done", "response")
    assert (job["result"]["status"], job["result"]["body"]) == (200, "hello\n")
    assert (tmp_path / "body").read_bytes() == b"hello\n"


def test_a_failure_in_json_is_the_job_too(run: Run, target: Target) -> None:
    shown = run("fetch", target.url("/round"), "--json", code=47)
    assert json.loads(shown.stdout)["result"]["code"] == "too-many-redirects"


def test_a_file_that_cannot_be_written_is_23(run: Run, target: Target, tmp_path: Path) -> None:
    shown = run("fetch", target.url("/"), "-o", str(tmp_path / "no" / "such" / "folder"), code=23)
    assert "(23) cannot write" in shown.stderr


def test_the_same_idempotency_key_makes_one_request(read: Read, target: Target) -> None:
    first, again = (read("fetch", target.url("/"), "--idempotency-key", "one") for _ in range(2))
    assert first["id"] == again["id"]


def test_nobody_to_do_it_is_111(run: Run, lonely: FarhandServer) -> None:
    shown = run("fetch", "https://example.com/", code=111, env=at(lonely))
    assert "(111)" in shown.stderr
    assert "farhand agents list" in shown.stderr


def test_the_end_of_the_waiting_is_28_and_leaves_nothing_behind(run: Run, lonely: FarhandServer) -> None:
    # A POST waits for a minute, as the settings leave it.
    shown = run("fetch", "https://example.com/", "-d", "x", "--wait", "1s", code=28, env=at(lonely))
    assert "Cancelled." in shown.stderr
    with Client(lonely.url, lonely.token) as client:
        states = {job.state for job in client.jobs(kind="fetch.http").items}
    assert states <= {"cancelled", "expired"}


def test_a_server_that_does_not_answer_is_1(run: Run) -> None:
    with Target(Answers) as closed:
        url = closed.url("").rstrip("/")
    assert "does not answer" in run("fetch", "https://example.com/", "--server", url, code=1).stderr


def test_ctrl_c_cancels_the_request(
    launch: Launch, environment: dict[str, str], read: Read, target: Target
) -> None:
    waiting = launch("fetch", target.url("/slow"), env=environment)
    assert target.arrived.wait(60)
    waiting.send_signal(signal.SIGINT)
    out, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, ""), errors
    assert "Traceback" not in errors
    # Whether the agent had said yet that it began decides which of the two it is.
    assert "Cancelled." in errors or "The agent is asked to stop" in errors

    def state() -> str:
        return read("jobs", "list", "--kind", "fetch.http", "--limit", "1")["items"][0]["state"]

    wait_until(lambda: state() == "cancelled", "the job ends", seconds=60)


def test_ctrl_c_before_the_server_has_answered_leaves_nothing_behind(
    launch: Launch, environment: dict[str, str]
) -> None:
    submitted, interrupted, cancelled = (threading.Event() for _ in range(3))
    job = view("cancelled", kind="fetch.http")

    class Server(Answers):
        def do_POST(self) -> None:
            submitted.set()
            interrupted.wait(60)
            self.answer(201, {"id": "j", "job_id": "j", "state": "queued"})

        def do_DELETE(self) -> None:
            cancelled.set()
            self.answer(200, job)

        def answer(self, status: int, members: object) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = json.dumps(members).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(Target(Server)) as web:
        waiting = launch(
            "fetch", "https://example.com/", "--server", web.url("").rstrip("/"), env=environment
        )
        assert submitted.wait(60)
        waiting.send_signal(signal.SIGINT)
        interrupted.set()
        out, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, ""), errors
    assert cancelled.is_set()
    assert "Cancelled." in errors


def test_a_reader_that_goes_away_causes_no_noise(environment: dict[str, str], target: Target) -> None:
    command = f"{FARHAND} fetch {target.url('/large')} | head -c 10 >/dev/null"
    ended = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, timeout=120)
    assert ended.stderr == b""


def test_a_terminal_sees_who_is_at_it_and_then_the_body(environment: dict[str, str], target: Target) -> None:
    terminal = Terminal("fetch", target.url("/slow"), env=environment)
    terminal.read_until("here is at it")
    target.open.set()
    written, code = terminal.end()
    assert code == 0
    assert without_styles(written).rstrip().splitlines()[-1].strip() == "hello"


def test_a_terminal_is_not_messed_up_unless_that_is_wanted(
    environment: dict[str, str], target: Target
) -> None:
    written, code = Terminal("fetch", target.url("/binary"), env=environment).end()
    assert code == 23
    assert "could upset the terminal" in without_styles(written)
    assert "\x1b[2J" not in written
    written, code = Terminal("fetch", target.url("/binary"), "-o", "-", env=environment).end()
    assert code == 0
    assert "\x1b[2J" in written


def test_an_agent_joins_to_fetch_and_lends_no_printers(
    run: Run, server: FarhandServer, tmp_path: Path
) -> None:
    settings = tmp_path / "agent.toml"
    joined = run(
        "agent", "join", server.url, "--name", "joined", "--fetch", "--tag", "a \"word\"", "--config",
        str(settings), "--data", str(tmp_path / "data"),
    )  # fmt: skip
    assert "It requests URLs for its owners" in joined.stdout
    assert "printers" not in joined.stdout
    assert "[printing]" not in settings.read_text()
    assert os.stat(settings).st_mode & 0o077 == 0
    assert "--tag is for an agent with --fetch" in run(
        "agent", "join", server.url, "--tag", "x", "--config", str(settings), code=2
    ).stderr  # fmt: skip
