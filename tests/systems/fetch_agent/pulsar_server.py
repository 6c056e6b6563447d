"""A small server of the pulsar dialect over real sockets, which goes wrong when it is told to."""

import json
import secrets
from typing import Any

from tests.agent.fake_server import FakeServer, Fault, Reply, Request

SEED_REQUEST = {
    "method": "GET",
    "headers": {"User-Agent": "my-tool/1.0"},
    "body": None,
    "bodyBase64": False,
    "timeoutMs": 10_000,
    "maxResponseBytes": 2_097_152,
    "allowInsecureTLS": False,
    "allowPrivateIP": False,
    "rangeRequest": None,
    "followRedirects": True,
}


def ok(**data: Any) -> Reply:
    """A reply of the seed."""
    return Reply(body=json.dumps({"status": "ok", "data": data}).encode())


def error(status: int, code: str, **more: Any) -> Reply:
    """An error of the seed."""
    document = {"status": "error", "code": code, "message": f"so it is: {code}", **more}
    return Reply(status=status, body=json.dumps(document).encode())


def failing(status: int, code: str, **more: Any) -> Fault:
    """One request that ends in this error."""

    async def fault(request: Request, answer: Any) -> Reply:
        return error(status, code, **more)

    return fault


class PulsarServer(FakeServer):
    """Keeps to the seed: jobs are never offered twice, a callback names its job and session."""

    def __init__(self) -> None:
        super().__init__()
        self.approved = True
        self.revoked = False
        self.code = "BCDF-GHJK"
        self.retry_ms = 10
        self.sessions: list[str] = []
        self.waiting: list[dict[str, Any]] = []
        self.cancel: list[str] = []
        self.callbacks: list[dict[str, Any]] = []

    def ask(self, url: str, **more: Any) -> str:
        """A job that waits; its id."""
        job_id = f"job-{secrets.token_hex(4)}"
        self.waiting.append({"jobId": job_id, "request": {**SEED_REQUEST, "url": url, **more}})
        return job_id

    def forget_sessions(self) -> None:
        """As if a day had passed."""
        self.sessions = []

    async def _answer(self, request: Request) -> Reply | None:
        said = request.json
        if self.revoked:
            return error(403, "device-not-approved")
        if not self.approved:
            return error(403, "device-pending", user_code=self.code, expires_in=600)
        verb = request.path.removeprefix("/pulsar/agent/api/")
        if verb == "session":
            return self._session(said)
        if said["sessionId"] not in self.sessions:
            return error(403, "session-unknown")
        return self._claim_jobs(said) if verb == "claim" else self._callback(said)

    def _session(self, said: dict[str, Any]) -> Reply:
        session_id = said["sessionId"]
        if session_id not in self.sessions:
            session_id = secrets.token_hex(16)
            self.sessions.append(session_id)
        return ok(sessionId=session_id, capabilities=said["capabilities"])

    def _claim_jobs(self, said: dict[str, Any]) -> Reply:
        jobs, self.waiting = self.waiting[: said["batch"]], self.waiting[said["batch"] :]
        cancel = {"cancel": self.cancel} if self.cancel else {}
        return ok(jobs=jobs, retryAfterMs=self.retry_ms, **cancel)

    def _callback(self, said: dict[str, Any]) -> Reply:
        self.callbacks.append(said)
        return ok(state="done" if "result" in said else "failed")
