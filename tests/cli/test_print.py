"""`farhand print`: what is sent, and exit codes by how it ends."""

import json
import select
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Launch, Run
from tests.cli.terminal import Terminal, without_styles
from tests.client.server import HandAgent, wait_until

Read = Callable[..., Any]


@pytest.fixture
def label(tmp_path: Path) -> Path:
    path = tmp_path / "label.zpl"
    path.write_bytes(b"^XA^FDhello^FS^XZ")
    return path


def test_a_file_arrives_as_it_is(run: Run, read: Read, shop: HandAgent, label: Path) -> None:
    made = run("print", str(label), "--printer", f"label {shop.name}")
    job_id = made.stdout.strip()
    assert f"farhand jobs show {job_id} --wait" in made.stderr
    job = read("jobs", "show", job_id)
    assert (job["kind"], job["title"], job["state"]) == ("print.raw", "label.zpl", "queued")
    assert shop.claim() == job_id
    assert shop.fetch(job_id) == label.read_bytes()
    shop.report(job_id, ok=True)


def test_a_pdf_is_known_by_its_content_and_options_travel(
    run: Run, read: Read, shop: HandAgent, tmp_path: Path
) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(b"%PDF-1.4\n")
    made = run(
        "print", str(path), "-p", shop.printer_ids[0], "-n", "3", "-t", "Invoice", "-o", "color=false",
        "-o", "nup=2", "--tag", "a", "--tag", "b", "--expires-in", "2h", "--priority", "7",
    )  # fmt: skip
    job = read("jobs", "show", made.stdout.strip())
    assert (job["kind"], job["title"], job["tags"], job["priority"]) == (
        "print.pdf",
        "Invoice",
        ["a", "b"],
        7,
    )
    assert job["params"]["copies"] == 3
    assert {name: value for name, value in job["params"]["options"].items() if value is not None} == {
        "color": False,
        "nup": 2,
    }


def test_the_type_can_be_forced(run: Run, read: Read, shop: HandAgent, label: Path) -> None:
    forced = read("print", str(label), "-p", shop.printer_ids[0], "--type", "pdf")
    assert read("jobs", "show", forced["id"])["kind"] == "print.pdf"


def test_standard_input_is_printed(read: Read, shop: HandAgent) -> None:
    made = read("print", "-", "-p", shop.printer_ids[1], input=b"\x1b@raw\xff")
    assert shop.claim() == made["id"]
    assert shop.fetch(made["id"]) == b"\x1b@raw\xff"


def test_the_same_idempotency_key_prints_once(read: Read, shop: HandAgent, label: Path) -> None:
    arguments = ("print", str(label), "-p", shop.printer_ids[1], "--idempotency-key", f"k-{shop.name}")
    assert read(*arguments) == read(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "papr=A4"], "did you mean 'paper'"),
        (["-o", "paper"], "write --option paper=VALUE"),
        (["-o", "nup=many"], "print option nup"),
        (["--expires-in", "soon"], "write it like 90s"),
        (["--copies", "0"], "1<=x<=999"),
        (["--type", "postscript"], "'raw', 'pdf'"),
    ],
)
def test_wrong_options_are_explained(
    run: Run, shop: HandAgent, label: Path, arguments: list[str], message: str
) -> None:
    result = run("print", str(label), "-p", shop.printer_ids[1], *arguments, code=2)
    assert message in result.stderr


def test_a_name_that_is_nearly_right_gets_a_hint(run: Run, shop: HandAgent, label: Path) -> None:
    result = run("print", str(label), "-p", f"lable {shop.name}", code=2)
    assert f"did you mean 'label {shop.name}'" in result.stderr
    assert "Usage" not in result.stderr
    assert f"label {shop.name}" in run("print", str(label), "-p", "zzz", code=2).stderr


def test_a_file_that_cannot_be_printed_is_refused(run: Run, shop: HandAgent, tmp_path: Path) -> None:
    missing = run("print", str(tmp_path / "none"), "-p", shop.printer_ids[1], code=2)
    assert "No such file" in missing.stderr
    (tmp_path / "empty").touch()
    assert "is empty" in run("print", str(tmp_path / "empty"), "-p", shop.printer_ids[1], code=2).stderr


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        ({"ok": True, "evidence": "printed"}, 0, "done (printed)"),
        ({"ok": False, "error": "out of ribbon"}, 1, "failed: out of ribbon"),
        ({"ok": False, "uncertain": True, "error": "cable"}, 5, "uncertain"),
    ],
)
def test_waiting_ends_with_the_code_of_the_outcome(
    run: Run, shop: HandAgent, label: Path, result: dict[str, Any], code: int, words: str
) -> None:
    worker = threading.Thread(target=lambda: shop.do(**result))
    worker.start()
    shown = run("print", str(label), "-p", shop.printer_ids[1], "--wait", code=code)
    worker.join()
    assert words in shown.stdout
    if code == 5:
        assert "jobs resolve" in shown.stderr


def test_waiting_for_a_cancelled_job_ends_with_3(run: Run, shop: HandAgent, label: Path) -> None:
    made = run("print", str(label), "-p", shop.printer_ids[1]).stdout.strip()
    run("jobs", "cancel", made, "--reason", "wrong label")
    assert "cancelled" in run("jobs", "show", made, "--wait", code=3).stdout


def test_waiting_for_an_expired_job_ends_with_4(run: Run, shop: HandAgent, label: Path) -> None:
    shown = run("print", str(label), "-p", shop.printer_ids[1], "--expires-in", "1s", "--wait", code=4)
    assert "expired" in shown.stdout


def test_waiting_no_longer_than_asked_ends_with_6(run: Run, shop: HandAgent, label: Path) -> None:
    shown = run("print", str(label), "-p", shop.printer_ids[1], "--timeout", "1s", code=6)
    assert "It goes on: farhand jobs show" in shown.stderr


def test_ctrl_c_leaves_the_job_and_ends_with_130(
    launch: Launch, environment: dict[str, str], read: Read, shop: HandAgent, label: Path
) -> None:
    waiting = launch("print", label, "-p", shop.printer_ids[1], "--wait", env=environment)
    wait_until(lambda: read("jobs", "list", "--printer", shop.printer_ids[1])["items"], "the job is made")
    assert waiting.stderr is not None
    ready, _, _ = select.select([waiting.stderr], [], [], 20)
    assert ready
    waiting.send_signal(signal.SIGINT)
    out, errors = waiting.communicate(timeout=20)
    assert waiting.returncode == 130, errors
    assert "The job goes on. To stop it: farhand jobs cancel" in errors
    assert "Traceback" not in errors + out
    (job,) = read("jobs", "list", "--printer", shop.printer_ids[1])["items"]
    assert job["state"] == "queued"


def test_a_reply_that_is_lost_for_good_comes_with_the_key_to_send_it_again(
    run: Run, shop: HandAgent, label: Path
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def cut() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1024)

    cutter = threading.Thread(target=cut)
    cutter.start()
    where = f"http://127.0.0.1:{listener.getsockname()[1]}"
    shown = run("print", str(label), "-p", shop.printer_ids[1], "--server", where, code=1)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    cutter.join()
    assert "may have been taken" in shown.stderr
    key = shown.stderr.rpartition("--idempotency-key ")[2].strip()
    made = run("print", str(label), "-p", shop.printer_ids[1], "--idempotency-key", key).stdout
    assert run("print", str(label), "-p", shop.printer_ids[1], "--idempotency-key", key).stdout == made


def test_a_terminal_sees_live_progress_and_then_the_result(
    environment: dict[str, str], shop: HandAgent, label: Path
) -> None:
    terminal = Terminal("print", str(label), "-p", shop.printer_ids[1], "--wait", env=environment)
    assert "\x1b[" in terminal.read_until("queued")
    job_id = shop.claim()
    terminal.read_until("claimed")
    shop.fetch(job_id)
    terminal.read_until("running")
    shop.report(job_id, ok=True, evidence="printed")
    written, code = terminal.end()
    assert code == 0
    plain = without_styles(written)
    assert plain.rstrip().splitlines()[-1].endswith("done (printed)")


def test_a_table_fits_a_terminal_and_keeps_whole_ids(
    environment: dict[str, str], run: Run, read: Read, shop: HandAgent, label: Path
) -> None:
    title = "漢字 and a title that is far too long for any terminal " * 3
    made = run("print", str(label), "-p", shop.printer_ids[1], "--title", title).stdout.strip()
    written, code = Terminal("jobs", "list", "-p", shop.printer_ids[1], env=environment).end()
    from rich.cells import cell_len

    lines = without_styles(written).rstrip().splitlines()
    assert code == 0
    assert lines[0].split() == ["ID", "STATE", "PRINTER", "AGE", "TITLE"]
    assert lines[1].startswith(made)
    assert "…" in lines[1]
    assert all(cell_len(line) <= 80 for line in lines)
    piped = run("jobs", "list", "-p", shop.printer_ids[1]).stdout
    assert title.strip() in piped
    assert "\x1b" not in piped


def test_json_is_what_the_server_says(read: Read, run: Run, shop: HandAgent, label: Path) -> None:
    worker = threading.Thread(target=lambda: shop.do(ok=True))
    worker.start()
    shown = run("print", str(label), "-p", shop.printer_ids[1], "--wait", "--json")
    worker.join()
    job = json.loads(shown.stdout)
    assert (job["state"], job["final"]) == ("done", True)
    assert shown.stderr == ""
