"""The seed's own design as a baseline: a thread per connection, a database poll every second, one write lock.

Written from seed 000. Where the seed leaves a choice, the faster one is taken, so that the comparison
favours the baseline: an index for the claim, `last_seen_at` and the claim in one transaction, head and body
of a reply in one send. Payload types that need a fetch are left out, because no measurement uses them.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

POLL_S = 1.0
HOLD_S = 25.0
CLAIM_TIMEOUT_S = 600.0
MAX_TRIES = 3

SCHEMA = """
CREATE TABLE IF NOT EXISTS orgs(id INTEGER PRIMARY KEY, name TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS users(id INTEGER PRIMARY KEY, org_id INTEGER NOT NULL REFERENCES orgs(id),
  name TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS agents(id INTEGER PRIMARY KEY, org_id INTEGER NOT NULL REFERENCES orgs(id),
  name TEXT NOT NULL UNIQUE, api_key_hash TEXT NOT NULL UNIQUE, last_seen_at REAL, created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS printers(id INTEGER PRIMARY KEY, org_id INTEGER NOT NULL REFERENCES orgs(id),
  agent_id INTEGER NOT NULL REFERENCES agents(id), name TEXT NOT NULL, can_pdf INTEGER NOT NULL,
  state TEXT NOT NULL, created_at REAL NOT NULL, UNIQUE(agent_id, name));
CREATE TABLE IF NOT EXISTS jobs(id INTEGER PRIMARY KEY, org_id INTEGER NOT NULL REFERENCES orgs(id),
  user_id INTEGER NOT NULL REFERENCES users(id), printer_id INTEGER NOT NULL REFERENCES printers(id),
  agent_id INTEGER NOT NULL REFERENCES agents(id), type TEXT NOT NULL, mode TEXT NOT NULL,
  state TEXT NOT NULL, payload BLOB, error TEXT, tries INTEGER NOT NULL DEFAULT 0,
  created_at REAL NOT NULL, claimed_at REAL, finished_at REAL);
CREATE INDEX IF NOT EXISTS jobs_by_agent ON jobs(agent_id, state);
INSERT OR IGNORE INTO orgs VALUES(1, 'default', 0);
INSERT OR IGNORE INTO users VALUES(1, 1, 'default', 0);
"""

FIND = "SELECT id FROM jobs WHERE agent_id = ? AND state = 'queued' LIMIT 1"
CLAIM = f"""
UPDATE jobs SET state = 'claimed', claimed_at = ?, tries = tries + 1
WHERE id = ({FIND}) AND state = 'queued' RETURNING id, printer_id, mode
"""


class Unauthorized(Exception):
    """A bearer token or agent key that is not the right one."""


class Store:
    """SQLite in WAL mode; one lock around every write, a connection per thread, reads without the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._write = threading.Lock()
        self._connection().executescript(SCHEMA)

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            self._local.connection = connection
        return connection

    def one(self, sql: str, *values: Any) -> Any:
        return self._connection().execute(sql, values).fetchone()

    def write(self, *statements: tuple[str, tuple[Any, ...]]) -> Any:
        """Run the statements in one transaction; return the first row of the last one."""
        connection = self._connection()
        with self._write:
            connection.execute("BEGIN IMMEDIATE")
            try:
                row = None
                for sql, values in statements:
                    row = next(iter(connection.execute(sql, values).fetchall()), None)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            return row

    def register(self, name: str, key_hash: str, printers: list[dict[str, Any]]) -> tuple[int, list[int]]:
        now = time.time()
        known = self.one("SELECT api_key_hash FROM agents WHERE name = ?", name)
        if known is not None and not hmac.compare_digest(known[0], key_hash):
            raise Unauthorized("this name is bound to another key")
        (agent_id,) = self.write(
            (
                "INSERT INTO agents(org_id, name, api_key_hash, last_seen_at, created_at)"
                " VALUES(1, ?, ?, ?, ?)"
                " ON CONFLICT(name) DO UPDATE SET last_seen_at = excluded.last_seen_at RETURNING id",
                (name, key_hash, now, now),
            )
        )
        upsert = (
            "INSERT INTO printers(org_id, agent_id, name, can_pdf, state, created_at)"
            " VALUES(1, ?, ?, ?, 'online', ?)"
            " ON CONFLICT(agent_id, name) DO UPDATE SET can_pdf = excluded.can_pdf RETURNING id"
        )
        ids: list[int] = []
        for printer in printers:
            values = (agent_id, printer["name"], int(bool(printer.get("can_pdf"))), now)
            ids.append(self.write((upsert, values))[0])
        return agent_id, ids

    def enqueue(self, printer_id: int, kind: str, mode: str, payload: bytes) -> int | None:
        owner = self.one("SELECT agent_id FROM printers WHERE id = ?", printer_id)
        if owner is None:
            return None
        insert = (
            "INSERT INTO jobs(org_id, user_id, printer_id, agent_id, type, mode, state, payload, created_at)"
            " VALUES(1, 1, ?, ?, ?, ?, 'queued', ?, ?) RETURNING id"
        )
        row = self.write((insert, (printer_id, owner[0], kind, mode, payload, time.time())))
        return int(row[0])

    def claim(self, agent_id: int, *, seen: bool) -> Any:
        now = time.time()
        claim = (CLAIM, (now, agent_id))
        if seen:
            return self.write(("UPDATE agents SET last_seen_at = ? WHERE id = ?", (now, agent_id)), claim)
        if self.one(FIND, agent_id) is None:
            return None
        return self.write(claim)

    def finish(self, job_id: int, agent_id: int, ok: bool, error: str | None) -> Any:
        update = (
            "UPDATE jobs SET state = ?, error = ?, finished_at = ?"
            " WHERE id = ? AND agent_id = ? AND state = 'claimed' RETURNING id"
        )
        return self.write((update, ("done" if ok else "failed", error, time.time(), job_id, agent_id)))

    def reap(self) -> None:
        before = time.time() - CLAIM_TIMEOUT_S
        self.write(
            (
                "UPDATE jobs SET state = CASE WHEN tries < ? THEN 'queued' ELSE 'failed' END"
                " WHERE state = 'claimed' AND claimed_at < ?",
                (MAX_TRIES, before),
            )
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store
    token: str

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        match parts:
            case ["health"]:
                return self._answer(200, {"ok": True})
            case ["agent", "jobs"]:
                return self._as_agent(self._poll)
            case ["agent", "jobs", job_id, "payload"]:
                return self._as_agent(lambda agent_id: self._payload(agent_id, int(job_id)))
            case ["jobs", job_id]:
                return self._as_client(lambda: self._status(int(job_id)))
            case ["printers"]:
                return self._as_client(self._printers)
            case _:
                return self._answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        match self.path.strip("/").split("/"):
            case ["jobs"]:
                return self._as_client(lambda: self._submit(body))
            case ["agent", "register"]:
                return self._register(body)
            case ["agent", "jobs", job_id, "result"]:
                return self._as_agent(lambda agent_id: self._result(agent_id, int(job_id), body))
            case _:
                return self._answer(404, {"error": "not found"})

    def _bearer(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _as_client(self, act: Callable[[], None]) -> None:
        if not hmac.compare_digest(self._bearer(), self.token):
            return self._answer(401, {"error": "unauthorized"})
        return act()

    def _as_agent(self, act: Callable[[int], None]) -> None:
        digest = hashlib.sha256(self._bearer().encode()).hexdigest()
        row = self.store.one("SELECT id, api_key_hash FROM agents WHERE api_key_hash = ?", digest)
        if row is None or not hmac.compare_digest(row[1], digest):
            return self._answer(401, {"error": "unauthorized"})
        return act(row[0])

    def _register(self, body: dict[str, Any]) -> None:
        digest = hashlib.sha256(self._bearer().encode()).hexdigest()
        try:
            agent_id, ids = self.store.register(body["name"], digest, body["printers"])
        except Unauthorized as error:
            return self._answer(401, {"error": str(error)})
        return self._answer(200, {"computer_id": agent_id, "printer_ids": ids})

    def _submit(self, body: dict[str, Any]) -> None:
        kind = body["type"]
        if kind not in ("raw_base64", "pdf_base64"):
            return self._answer(422, {"error": f"type {kind} is not part of the baseline"})
        payload = base64.b64decode(body["content"], validate=True)
        mode = "pdf" if kind == "pdf_base64" else "raw"
        job_id = self.store.enqueue(body["printer_id"], kind, mode, payload)
        if job_id is None:
            return self._answer(404, {"error": "unknown printer"})
        return self._answer(200, {"job_id": job_id})

    def _poll(self, agent_id: int) -> None:
        until = time.monotonic() + HOLD_S
        row = self.store.claim(agent_id, seen=True)
        while row is None:
            if time.monotonic() >= until:
                return self._send(204, b"", "")
            time.sleep(POLL_S)
            row = self.store.claim(agent_id, seen=False)
        return self._answer(200, {"job_id": row[0], "printer_id": row[1], "mode": row[2]})

    def _payload(self, agent_id: int, job_id: int) -> None:
        row = self.store.one("SELECT payload FROM jobs WHERE id = ? AND agent_id = ?", job_id, agent_id)
        if row is None:
            return self._answer(404, {"error": "not found"})
        return self._send(200, row[0], "application/octet-stream")

    def _result(self, agent_id: int, job_id: int, body: dict[str, Any]) -> None:
        if self.store.finish(job_id, agent_id, bool(body["ok"]), body.get("error")) is None:
            return self._answer(404, {"error": "not found"})
        return self._answer(200, {"ok": True})

    def _status(self, job_id: int) -> None:
        sql = "SELECT state, error, printer_id, created_at, finished_at FROM jobs WHERE id = ?"
        row = self.store.one(sql, job_id)
        if row is None:
            return self._answer(404, {"error": "not found"})
        names = ("state", "error", "printer_id", "created_at", "finished_at")
        return self._answer(200, dict(zip(names, row, strict=True)))

    def _printers(self) -> None:
        sql = (
            "SELECT json_group_array(json_object('id', printers.id, 'name', printers.name,"
            " 'agent_id', agent_id, 'online', last_seen_at > ?))"
            " FROM printers JOIN agents ON agents.id = agent_id"
        )
        self._send(200, self.store.one(sql, time.time() - 60)[0].encode(), "application/json")

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        head: list[bytes] = getattr(self, "_headers_buffer", [])
        self._headers_buffer = []
        try:
            self.wfile.write(b"".join(head) + b"\r\n" + body)
        except OSError:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    Handler.store = Store(options.data / "seed.db")
    Handler.token = os.environ["FARHAND_TOKEN"]

    def reap_for_ever() -> None:
        while True:
            time.sleep(30)
            Handler.store.reap()

    threading.Thread(target=reap_for_ever, daemon=True).start()
    Server((options.host, options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
