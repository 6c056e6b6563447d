"""The demo, whole: it has to work where there is nothing but this package."""

import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pypdf
import pytest

from farhand.cli.demo_pages import LABEL, welcome_page
from tests.cli.conftest import Launch
from tests.client.server import clean_environment, wait_until
from tests.peers.printers import find_program, open_folder


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the virtual printer may use."""
    with open_folder() as folder:
        yield folder
        for process in processes_of(folder):
            os.kill(process, signal.SIGKILL)


@pytest.fixture
def without_printer(tmp_path: Path) -> dict[str, str]:
    """An environment in which no ippeveprinter is to be found."""
    return clean_environment(tmp_path, PATH=str(tmp_path))


def processes_of(folder: Path) -> list[int]:
    """What still runs and was started for this folder."""
    others = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for process in others if str(folder).encode() in command_line(process)]


def command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_page_is_a_valid_pdf_that_says_what_was_printed(tmp_path: Path) -> None:
    page = welcome_page([("Server", "http://(here)\\ünï"), ("Agent", "demo")])
    reader = pypdf.PdfReader(BytesIO(page), strict=True)
    assert len(reader.pages) == 1
    text = reader.pages[0].extract_text()
    assert "Farhand" in text
    assert "http://(here)\\ünï" in text
    (tmp_path / "page.pdf").write_bytes(page)
    drawn = subprocess.run(
        [find_program("pdftoppm"), "-r", "30", "-png", tmp_path / "page.pdf", tmp_path / "page"],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert drawn.stderr == b""
    assert (tmp_path / "page-1.png").stat().st_size > 1000


def test_the_label_is_one_whole_zpl_format() -> None:
    assert LABEL.startswith("^XA\n")
    assert LABEL.endswith("^XZ\n")
    fields = [line for line in LABEL.splitlines() if line.startswith("^FO")]
    assert fields
    assert all(line.endswith("^FS") for line in fields)


@pytest.mark.timeout(120)
def test_once_prints_on_a_real_ipp_printer_and_in_a_folder(
    launch: Launch, place: Path, tmp_path: Path
) -> None:
    find_program("ippeveprinter")
    find_program("dbus-daemon")
    done = launch("demo", "--once", "--data", place, env=clean_environment(tmp_path))
    out, errors = done.communicate(timeout=100)
    assert done.returncode == 0, errors
    assert "Welcome (office): done (printed)" in out
    assert "Welcome (folder): done (delivered)" in out
    assert "Shipping label: done (delivered)" in out
    assert "media-empty" in errors
    page = (place / "welcome.pdf").read_bytes()
    printed = {path.read_bytes() for path in (place / "printed").iterdir()}
    assert printed == {page, LABEL.encode()}
    assert page in {path.read_bytes() for path in (place / "office").iterdir()}
    assert not processes_of(place)


@pytest.mark.timeout(120)
def test_it_stays_with_things_to_try_until_ctrl_c(
    launch: Launch, place: Path, without_printer: dict[str, str]
) -> None:
    staying = launch("demo", "--data", place, env=without_printer)
    shown = read_until(staying, "Ctrl-C ends it.")
    server = re.search(r"export FARHAND_SERVER=(\S+)", shown)
    token = re.search(r"export FARHAND_TOKEN=\$\(cat (\S+)\)", shown)
    assert server is not None
    assert token is not None
    curl = shutil.which("curl")
    if curl is not None:
        answer = subprocess.run(
            [curl, "-sf", "-H", f"Authorization: Bearer {Path(token.group(1)).read_text().strip()}",
             f"{server.group(1)}/jobs?limit=3"],
            capture_output=True, timeout=30, check=True,
        )  # fmt: skip
        assert answer.stdout.count(b'"state":"done"') == 2
    staying.send_signal(signal.SIGINT)
    _, errors = staying.communicate(timeout=60)
    assert staying.returncode == 0, errors
    assert "Traceback" not in errors
    assert not processes_of(place)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", ["Starting a server", "Starting an agent", "Printing through"])
def test_sigterm_at_any_moment_leaves_no_process_behind(
    launch: Launch, place: Path, without_printer: dict[str, str], moment: str
) -> None:
    ending = launch("demo", "--data", place, env=without_printer)
    read_until(ending, moment, stderr=True)
    ending.send_signal(signal.SIGTERM)
    out, errors = ending.communicate(timeout=60)
    assert ending.returncode == 143, out + errors
    assert "Traceback" not in errors
    assert not processes_of(place)


@pytest.mark.timeout(120)
def test_a_server_that_dies_ends_the_demo_with_its_last_words(
    launch: Launch, place: Path, without_printer: dict[str, str]
) -> None:
    staying = launch("demo", "--data", place, env=without_printer)
    read_until(staying, "Ctrl-C ends it.")
    (serving,) = [process for process in processes_of(place) if b"\0serve\0" in command_line(process)]
    os.kill(serving, signal.SIGKILL)
    _, errors = staying.communicate(timeout=60)
    assert staying.returncode == 1
    assert "the server ended (-9)" in errors
    assert not processes_of(place)


def test_a_second_demo_on_the_same_folder_says_so(
    launch: Launch, place: Path, without_printer: dict[str, str]
) -> None:
    first = launch("demo", "--data", place, env=without_printer)
    read_until(first, "Ctrl-C ends it.")
    second = launch("demo", "--once", "--data", place, env=without_printer)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "another server already runs" in errors
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    wait_until(lambda: not processes_of(place), "all processes end")


def read_until(process: "subprocess.Popen[str]", text: str, *, stderr: bool = False) -> str:
    """The output up to a text."""
    stream = process.stderr if stderr else process.stdout
    assert stream is not None
    written = ""
    while text not in written:
        ready, _, _ = select.select([stream], [], [], 60)
        assert ready, f"nothing more came: {written}"
        chunk = os.read(stream.fileno(), 65_536).decode()
        assert chunk, f"it ended: {written} {process.stderr.read() if process.stderr else ''}"
        written += chunk
    return written
