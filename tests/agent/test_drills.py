"""The real agent as a process, the real server on SQLite, and printers that count what came out."""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.agent.real import RealAgent, Server
from tests.peers.printers import PDF, Cups, EvePrinter, SocketPrinter, find_program, wait_until

LABEL = b"^XA^FDhello^FS^XZ"


class Drill:
    """One server and one agent, which end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack

    def server(self, **wanted: object) -> Server:
        server = Server(self._folder / "server", **wanted)  # type: ignore[arg-type]  (its keywords)
        self._stack.callback(server.end)
        return server

    def agent(self, server: str, *printers: tuple[str, str], printing: str | None = None) -> RealAgent:
        entries = ", ".join(f'{{name = "{name}", uri = "{uri}"}}' for name, uri in printers)
        inside = printing or f"discover = false\nprinters = [{entries}]"
        agent = RealAgent(self._folder / "agent", server, inside)
        self._stack.callback(agent.end)
        return agent


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Drill]:
    with ExitStack() as stack:
        yield Drill(tmp_path, stack)


@pytest.fixture
def tray(tmp_path: Path) -> Path:
    """A folder that is a printer."""
    folder = tmp_path / "tray"
    folder.mkdir()
    return folder


def printed(tray: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(tray.iterdir()) if not path.name.startswith(".")]


class Dam:
    """A TCP way to a printer or server that lets so many bytes of a connection through, and then
    no more: towards the target, or with `back` from it.
    """

    def __init__(self, port: int, limit: int, back: bool) -> None:
        self._target = port
        self._back = back
        self._open = threading.Event()
        self._ended = threading.Event()
        self._limit = limit
        self.reached = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._run(self._accept)

    def open(self) -> None:
        """Lets everything through from now on."""
        self._open.set()

    def close(self) -> None:
        """Ends the way."""
        self._ended.set()
        self._open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)
        for end in self._sockets:
            end.close()

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with suppress(OSError):
                near, _ = self._listener.accept()
                self._sockets.append(near)
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets.append(far)
                near.settimeout(0.1)
                far.settimeout(0.1)
                self._run(self._pump, near, far, None if self._back else self._limit)
                self._run(self._pump, far, near, self._limit if self._back else None)

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while not self._ended.is_set():
                wanted = 65536
                if limit is not None and not self._open.is_set():
                    wanted = min(wanted, limit - passed)
                    if wanted <= 0:
                        self.reached.set()
                        self._open.wait()
                        continue
                try:
                    part = source.recv(wanted)
                except TimeoutError:
                    continue
                if not part:
                    break
                passed += len(part)
                sink.sendall(part)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def make_dam() -> Iterator[Callable[..., Dam]]:
    with ExitStack() as stack:

        def make(port: int, limit: int, back: bool = False) -> Dam:
            dam = Dam(port, limit, back)
            stack.callback(dam.close)
            return dam

        yield make


def wait_for_phase(server: Server, job_id: str, phase: str) -> None:
    wait_until(lambda: server.job(job_id)["phase"] == phase, f"phase {phase}:\n{server.trail(job_id)}")


# --- round trips


def test_a_label_goes_through_server_and_agent_into_the_folder(drill: Drill, tray: Path) -> None:
    server = drill.server()
    drill.agent(server.url, ("tray", f"file://{tray}"))
    job_id = server.submit("tray", LABEL, title="Label 7")
    job = server.wait_for_job(job_id, "done")
    assert (job["evidence"], job["attempt"]) == ("delivered", 1)
    assert printed(tray) == [LABEL]
    (file,) = tray.iterdir()
    assert file.name.startswith("Label 7 [")


def test_a_large_payload_takes_the_way_by_url(drill: Drill, tray: Path) -> None:
    server = drill.server()
    agent = drill.agent(server.url, ("tray", f"file://{tray}"))
    content = bytes(range(256)) * 8_000
    server.wait_for_job(server.submit("tray", content), "done")
    assert printed(tray) == [content]
    wait_until(lambda: list((agent.data / "payloads").iterdir()) == [], "the payload is gone")


def test_a_pdf_comes_out_of_a_real_printer_with_its_options(drill: Drill, eve: EvePrinter) -> None:
    server = drill.server()
    drill.agent(server.url, ("eve", eve.uri))
    options = {"duplex": "long-edge", "paper": "A4"}
    job_id = server.submit("eve", PDF, "pdf_base64", title="Invoice", copies=2, options=options)
    assert server.wait_for_job(job_id, "done")["evidence"] == "printed"
    (document,) = eve.printed()
    assert document.content == PDF
    assert (document.env["IPP_COPIES"], document.env["IPP_SIDES"]) == ("2", "two-sided-long-edge")


def test_out_of_paper_keeps_the_job_running_with_the_reason_until_paper_returns(
    drill: Drill, eve: EvePrinter
) -> None:
    eve.set_mode("media-empty")
    server = drill.server()
    drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: "out of paper" in (server.job(job_id)["reason"] or ""), "the reason", 25)
    assert server.job(job_id)["state"] == "running"
    eve.add_paper()
    assert server.wait_for_job(job_id, "done")["reason"] is None


def test_an_aborted_job_fails_with_the_printers_reason(drill: Drill, eve: EvePrinter) -> None:
    eve.set_mode("abort")
    server = drill.server()
    drill.agent(server.url, ("eve", eve.uri))
    job = server.wait_for_job(server.submit("eve", PDF, "pdf_base64"), "failed")
    assert job["error"]
    assert eve.printed() == []
    assert job["attempt"] == 1


def test_a_running_print_is_cancelled_at_the_printer(drill: Drill, eve: EvePrinter) -> None:
    eve.set_mode("slow")
    server = drill.server(lease_ms=2_000)
    drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: bool(eve.started()), "the printer begins")
    server.call("DELETE", f"/jobs/{job_id}")
    wait_until(lambda: "Cancel-Job successful-ok" in eve.log(), "the printer gets the cancel")
    # ippeveprinter ends a cancelled job when its command ends.
    eve.let_go()
    server.wait_for_job(job_id, "cancelled")


def test_a_pdf_for_a_printer_that_turns_out_not_to_take_it_fails_with_the_reason(
    drill: Drill, make_eve: Callable[..., EvePrinter]
) -> None:
    """The printer is off when the job is submitted, so that nobody can know."""
    eve = make_eve(formats="image/pwg-raster,application/octet-stream")
    eve.kill()
    server = drill.server()
    drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    eve.start()
    job = server.wait_for_job(job_id, "failed")
    assert "PDF" in job["error"]
    assert eve.started() == []


# --- lanes and devices


def test_a_stuck_printer_does_not_hold_up_another(
    drill: Drill, tray: Path, make_socket_printer: Callable[..., SocketPrinter]
) -> None:
    stuck = make_socket_printer("deaf")
    server = drill.server()
    drill.agent(server.url, ("stuck", stuck.uri), ("tray", f"file://{tray}"))
    blocked = server.submit("stuck", b"x" * 20_000_000)
    wait_until(lambda: "takes no data" in (server.job(blocked)["reason"] or ""), "it is stuck", 25)
    for number in range(5):
        server.wait_for_job(server.submit("tray", b"%d" % number), "done")
    assert server.job(blocked)["state"] == "running"
    stuck.wake()
    server.wait_for_job(blocked, "done")
    assert [len(job) for job in stuck.jobs()] == [20_000_000]


def test_a_printer_that_appears_is_offered_and_one_that_vanishes_is_gone(drill: Drill, cups: Cups) -> None:
    server = drill.server()
    cups.add_queue("one", "file:///dev/null")
    drill.agent(server.url, printing=f'cups = "localhost:{cups.port}"')
    server.printer_id("one")
    cups.add_queue("two", "file:///dev/null")
    server.printer_id("two")
    command = [find_program("lpadmin"), "-h", f"127.0.0.1:{cups.port}", "-x", "one"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)

    def gone() -> bool:
        items = server.call("GET", "/printers?gone=true")["items"]
        return [item["name"] for item in items if item["gone_at"] is not None] == ["one"]

    wait_until(gone, "printer one is gone, not deleted")


# --- the agent is killed


def test_killed_while_it_downloads_the_job_is_printed_once_by_the_next_run(
    drill: Drill, tray: Path, make_dam: Callable[..., Dam]
) -> None:
    server = drill.server()
    dam = make_dam(server.port, limit=200_000, back=True)
    agent = drill.agent(f"http://127.0.0.1:{dam.port}", ("tray", f"file://{tray}"))
    content = b"y" * 3_000_000
    job_id = server.submit("tray", content)
    assert dam.reached.wait(20)
    wait_for_phase(server, job_id, "downloading")
    assert list((agent.data / "payloads").iterdir()) != []
    agent.kill()
    dam.open()
    agent.start()
    server.wait_for_job(job_id, "done")
    assert printed(tray) == [content]
    wait_until(lambda: list((agent.data / "payloads").iterdir()) == [], "the payload is gone")
    trail = [line.split()[0] for line in server.trail(job_id)]
    assert trail.count("release") == 1
    assert trail.count("claim") == 2


def test_killed_while_bytes_flow_to_a_raw_printer_the_job_is_uncertain_and_not_sent_again(
    drill: Drill, make_socket_printer: Callable[..., SocketPrinter], make_dam: Callable[..., Dam]
) -> None:
    printer = make_socket_printer("take")
    dam = make_dam(printer.port, limit=100_000)
    server = drill.server()
    agent = drill.agent(server.url, ("raw", f"socket://127.0.0.1:{dam.port}"))
    job_id = server.submit("raw", b"z" * 20_000_000)
    assert dam.reached.wait(20)
    agent.kill()
    dam.open()
    agent.start()
    job = server.wait_for_job(job_id, "uncertain")
    assert "cannot be asked" in job["reason"]
    server.call("POST", f"/jobs/{job_id}/resolve", {"outcome": "failed"})
    server.wait_for_job(server.submit("raw", LABEL), "done")
    wait_until(lambda: len(printer.jobs()) == 2, "the label")
    begun, label = printer.jobs()
    assert 0 < len(begun) < 20_000_000
    assert label == LABEL


def test_killed_while_the_printer_waits_the_job_is_followed_to_its_end_by_the_next_run(
    drill: Drill, eve: EvePrinter
) -> None:
    eve.set_mode("media-empty")
    server = drill.server()
    agent = drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: "out of paper" in (server.job(job_id)["reason"] or ""), "the reason", 25)
    agent.kill()
    agent.start()
    agent.wait_for("job_recovering")
    assert server.job(job_id)["state"] == "running"
    eve.add_paper()
    job = server.wait_for_job(job_id, "done")
    assert (job["evidence"], job["attempt"]) == ("printed", 1)
    assert len(eve.printed()) == len(eve.started()) == 1


def test_killed_and_printed_meanwhile_the_next_run_reports_what_happened(
    drill: Drill, eve: EvePrinter
) -> None:
    eve.set_mode("slow")
    server = drill.server()
    agent = drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: bool(eve.started()), "the printer begins")
    agent.kill()
    eve.let_go()
    wait_until(lambda: len(eve.printed()) == 1, "it comes out")
    agent.start()
    assert server.wait_for_job(job_id, "done")["evidence"] == "printed"
    assert len(eve.started()) == 1


def test_killed_while_the_document_is_on_its_way_to_the_printer_nothing_is_printed_twice(
    drill: Drill, eve: EvePrinter, make_dam: Callable[..., Dam]
) -> None:
    """The printer has the job's name and half of the document."""
    dam = make_dam(eve.port, limit=400_000)
    server = drill.server()
    agent = drill.agent(server.url, ("eve", f"ipp://localhost:{dam.port}/ipp/print"))
    content = PDF + b"%" + b"x" * 3_000_000
    job_id = server.submit("eve", content, "pdf_base64")
    assert dam.reached.wait(25)
    agent.kill()
    dam.open()
    agent.start()
    wait_until(
        lambda: server.job(job_id)["final"] or server.job(job_id)["state"] == "uncertain",
        f"an end:\n{server.trail(job_id)}",
        45,
    )
    whole = [document for document in eve.printed() if document.content == content]
    state = server.job(job_id)["state"]
    assert len(whole) == (1 if state == "done" else 0), (state, server.trail(job_id))


def end_while_the_server_is_away(server: Server, agent: RealAgent, eve: EvePrinter) -> str:
    """A print whose result cannot be delivered; the server is down afterwards."""
    eve.set_mode("slow")
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: bool(eve.started()), "the printer begins")
    server.kill()
    eve.let_go()
    wait_until(lambda: outbox(agent) != [], f"the result is kept:\n{agent.tail()}")
    return job_id


def outbox(agent: RealAgent) -> list[Path]:
    return list((agent.data / "outbox").glob("*.json"))


def test_a_result_is_delivered_when_the_server_is_back(drill: Drill, eve: EvePrinter) -> None:
    server = drill.server()
    agent = drill.agent(server.url, ("eve", eve.uri))
    job_id = end_while_the_server_is_away(server, agent, eve)
    server.start()
    assert server.wait_for_job(job_id, "done")["evidence"] == "printed"
    wait_until(lambda: outbox(agent) == [], "the outbox is empty")
    assert len(eve.started()) == 1


def test_a_result_that_waited_through_a_kill_and_a_lapsed_lease_still_counts(
    drill: Drill, eve: EvePrinter
) -> None:
    server = drill.server(lease_ms=1_000)
    agent = drill.agent(server.url, ("eve", eve.uri))
    job_id = end_while_the_server_is_away(server, agent, eve)
    agent.kill()
    server.start()
    server.wait_for_job(job_id, "uncertain")
    agent.start()
    job = server.wait_for_job(job_id, "done")
    assert (job["evidence"], job["attempt"]) == ("printed", 1)
    assert len(eve.started()) == len(eve.printed()) == 1


@pytest.mark.timeout(180)
def test_killed_over_and_over_nothing_is_lost_and_nothing_printed_twice(drill: Drill, tray: Path) -> None:
    """Kills at whatever moment; a folder can always say what became of a job."""
    server = drill.server()
    agent = drill.agent(server.url, ("tray", f"file://{tray}"))
    server.printer_id("tray")
    jobs: list[str] = []
    for kills in range(1, 7):
        jobs += [server.submit("tray", b"%d-%d" % (kills, number)) for number in range(10)]
        wait_until(partial(has, tray, 6 * kills), f"some come out:\n{agent.tail()}")
        agent.kill()
        agent.start()
    for job_id in jobs:
        server.wait_for_job(job_id, "done", 60)
    contents = printed(tray)
    assert len(contents) == len(set(contents)) == len(jobs)


def has(tray: Path, count: int) -> bool:
    return len(printed(tray)) >= count


# --- the agent stands still


def test_suspended_past_its_lease_at_the_printer_it_reports_late_what_really_happened(
    drill: Drill, eve: EvePrinter
) -> None:
    eve.set_mode("slow")
    server = drill.server(lease_ms=1_000)
    agent = drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: bool(eve.started()), "the printer begins")
    wait_for_phase(server, job_id, "printing")
    agent.suspend()
    server.wait_for_job(job_id, "uncertain")
    eve.let_go()
    wait_until(lambda: len(eve.printed()) == 1, "it comes out")
    agent.resume()
    job = server.wait_for_job(job_id, "done")
    assert (job["evidence"], job["attempt"]) == ("printed", 1)
    assert len(eve.started()) == 1


def test_suspended_past_its_lease_before_the_first_byte_it_prints_once_on_a_new_lease(
    drill: Drill, tray: Path, make_dam: Callable[..., Dam]
) -> None:
    server = drill.server(lease_ms=1_000)
    dam = make_dam(server.port, limit=200_000, back=True)
    agent = drill.agent(f"http://127.0.0.1:{dam.port}", ("tray", f"file://{tray}"))
    job_id = server.submit("tray", b"y" * 3_000_000)
    assert dam.reached.wait(20)
    agent.suspend()
    server.wait_for_job(job_id, "queued")
    dam.open()
    agent.resume()
    job = server.wait_for_job(job_id, "done")
    assert job["attempt"] == 2
    assert printed(tray) == [b"y" * 3_000_000]


# --- the agent is stopped


def test_a_stopped_agent_sees_its_print_through_and_exits_in_good_order(
    drill: Drill, eve: EvePrinter
) -> None:
    eve.set_mode("slow")
    server = drill.server()
    agent = drill.agent(server.url, ("eve", eve.uri))
    job_id = server.submit("eve", PDF, "pdf_base64")
    wait_until(lambda: bool(eve.started()), "the printer begins")
    agent.process.terminate()
    eve.let_go()
    assert agent.process.wait(20) == 0
    assert server.job(job_id)["state"] == "done"


def test_a_stopped_agent_gives_back_what_it_has_not_begun(
    drill: Drill, tray: Path, make_dam: Callable[..., Dam]
) -> None:
    server = drill.server()
    dam = make_dam(server.port, limit=200_000, back=True)
    agent = drill.agent(f"http://127.0.0.1:{dam.port}", ("tray", f"file://{tray}"))
    job_id = server.submit("tray", b"y" * 3_000_000)
    assert dam.reached.wait(20)
    assert agent.terminate() == 0
    job = server.job(job_id)
    assert (job["state"], job["tries"]) == ("queued", 0)


# --- who may come in


def test_an_agent_waits_for_approval_by_the_code_it_shows(drill: Drill, tray: Path) -> None:
    server = drill.server(settings="open_enrolment = false")
    agent = drill.agent(server.url, ("tray", f"file://{tray}"))
    agent.wait_for("with the code ")
    code = agent.log.read_text().partition("with the code ")[2].split()[0]
    (pending,) = server.call("GET", "/agents/pending")["items"]
    server.call("POST", f"/agents/{pending['id']}/approve", {"code": code})
    server.wait_for_job(server.submit("tray", LABEL), "done")
    assert agent.said("is approved")


def test_a_revoked_agent_stops_loudly(drill: Drill, tray: Path) -> None:
    server = drill.server(settings="poll_wait_ms = 500")
    agent = drill.agent(server.url, ("tray", f"file://{tray}"))
    server.printer_id("tray")
    (known,) = server.call("GET", "/agents")["items"]
    server.call("POST", f"/agents/{known['id']}/revoke")
    assert agent.process.wait(40) != 0
    assert agent.said("agent_ended")
