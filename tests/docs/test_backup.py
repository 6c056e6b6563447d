"""The commands for backup and restore, run as they stand in docs/operations.md."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from farhand.client import Client
from tests.client.server import FarhandServer, HandAgent, farhand_server
from tests.docs.pages import doc

RUN = re.compile(r"<!-- run: (\S+) -->\n *```sh\n(.*?)\n *```", re.DOTALL)
LARGE = b"^XA" + b"x" * 100_000 + b"^XZ"


def run_example(name: str, server: FarhandServer, backup: Path, url: str | None = None) -> str:
    """Runs the commands of that name, with the server's folder and the backup's in their places."""
    script = dict(RUN.findall(doc("operations").text))[name]
    needed = re.findall(r"^ *(sqlite3|pg_\w+)", script, re.MULTILINE)
    if any(shutil.which(program) is None for program in needed):
        pytest.skip(f"{needed[0]} is not installed")
    script = script.replace("/var/lib/farhand", str(server.data)).replace("/backup", str(backup))
    environment = os.environ if url is None else {**os.environ, "DATABASE_URL": url}
    done = subprocess.run(
        ["bash", "-eu"],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit(server: FarhandServer, agent: HandAgent, title: str) -> str:
    with Client(server.url, server.token) as client:
        return client.submit_print(agent.printer_ids[0], LARGE, title=title).id


def titles(server: FarhandServer) -> list[str | None]:
    with Client(server.url, server.token) as client:
        return [job.title for job in client.jobs().items]


def check_restored(server: FarhandServer, job_id: str) -> None:
    """What the backup knew is there, down to the bytes, and what came after it is not."""
    assert titles(server) == ["before"]
    agent = HandAgent(server.url, "desk", [{"name": "labels"}])
    try:
        assert agent.claim() == job_id
        assert agent.fetch(job_id) == LARGE
        agent.report(job_id, ok=True)
    finally:
        agent.close()


def test_a_sqlite_backup_of_a_running_server_can_be_restored(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    (tmp_path / "server").mkdir()
    with farhand_server(tmp_path / "server") as server:
        agent = HandAgent(server.url, "desk", [{"name": "labels"}])
        job_id = submit(server, agent, "before")
        assert run_example("backup-sqlite", server, backup).strip() == "ok"
        submit(server, agent, "after")
        agent.close()
        server.stop()
        run_example("restore-sqlite", server, backup)
        server.start()
        check_restored(server, job_id)


def test_a_postgres_backup_of_a_running_server_can_be_restored(tmp_path: Path, postgres_url: str) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    (tmp_path / "server").mkdir()
    settings = f'[server]\ndatabase = "{postgres_url}"\n'
    with farhand_server(tmp_path / "server", settings) as server:
        agent = HandAgent(server.url, "desk", [{"name": "labels"}])
        job_id = submit(server, agent, "before")
        run_example("backup-postgres", server, backup, postgres_url)
        submit(server, agent, "after")
        agent.close()
        server.stop()
        run_example("restore-postgres", server, backup, postgres_url)
        server.start()
        check_restored(server, job_id)
