"""Figures and the log: readable by the tools they are for, and without secrets."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.child import process
from tests.server.serving import ROOT, Server


def figures(server: Server) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    reply = server.call("GET", "/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(reply.body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_figures_count_what_is_there(fresh: Server) -> None:
    machine = fresh.machine()
    for _ in range(3):
        fresh.submit(machine.printers[0])
    machine.act(machine.take(), "result", ok=True).ok()
    fresh.call("GET", "/nothing/such")
    poll = fresh.later(fresh.machine().poll, 20)
    fresh.await_held(1)
    found = figures(fresh)

    def jobs(state: str) -> float:
        return found["farhand_jobs", (("kind", "print.raw"), ("state", state))]

    assert (jobs("queued"), jobs("done")) == (2, 1)
    assert found["farhand_agents", (("online", "true"), ("state", "active"))] == 2
    assert found["farhand_held_polls", ()] == 1
    submitted = (("method", "POST"), ("route", "/jobs"), ("status", "201"))
    assert found["farhand_http_requests_total", submitted] == 3
    unknown = (("method", "-"), ("route", "(none)"), ("status", "404"))
    assert found["farhand_http_requests_total", unknown] == 1
    assert found["farhand_commits_total", ()] >= 1
    assert found["farhand_writes_total", ()] >= found["farhand_commits_total", ()]
    assert not any("nothing" in str(key) for key in found)
    fresh.loop.call_soon_threadsafe(fresh.context.close)
    poll.result(timeout=10)


def test_figures_need_their_grant(shared: Server) -> None:
    shared.call("GET", "/metrics", key=None).problem(401, "unauthorized")
    shared.call("GET", "/metrics", key=shared.new_key("jobs.read")).problem(403, "forbidden")
    assert shared.call("GET", "/metrics", key=shared.new_key("metrics.read")).status == 200


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_log_holds_no_secret(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    more = {} if kind == "sqlite" else {"database": request.getfixturevalue("postgres_url")}
    log = tmp_path / "log"
    secrets = [ROOT, "the-key-of-the-desk-agent", "a-key-that-nobody-knows"]
    with process(tmp_path / "data", log=log, **more) as child:
        message = {"name": "desk", "printers": [{"name": "p"}]}
        made = child.call("POST", "/agent/register", key=secrets[1], json_body=message).ok()
        secrets.append(child.call("POST", "/agents", json_body={"name": "issued"}).ok(201)["key"])
        grants = {"name": "shop", "grants": ["jobs.submit"]}
        secrets.append(child.call("POST", "/keys", json_body=grants).ok(201)["key"])
        pending = child.call(
            "POST", "/agent/register", key="a-key-of-one-who-waits", json_body={"name": "x"},
            headers={"Via": "x"},
        )  # fmt: skip
        secrets += ["a-key-of-one-who-waits", pending.problem(403, "agent-pending")["user_code"]]
        child.call("GET", "/jobs", key=secrets[2]).problem(401, "unauthorized")
        submit = {"printer_id": made["printer_ids"][0], "type": "raw_base64", "content": "c2VjcmV0LXBhcGVy"}
        child.call("POST", "/jobs", json_body=submit, headers={"Idempotency-Key": "order"}).ok(201)
        secrets += ["secret-paper", "c2VjcmV0LXBhcGVy"]
        url = {**submit, "type": "raw_uri", "url": "http://127.0.0.1:1/path?sig=presigned-secret"}
        del url["content"]
        child.call("POST", "/jobs", json_body=url).problem(422, "payload-fetch-failed")
        secrets.append("presigned-secret")
        job = child.call("GET", "/agent/jobs", key=secrets[1]).ok()
        secrets.append(job["lease_token"])
        child.call("GET", f"/agent/jobs/{job['job_id']}/payload", key=secrets[1])
        assert child.call("GET", "/metrics").status == 200
        assert child.stop() == 0
    said = log.read_text(errors="replace") + "".join(child.said)
    assert [secret for secret in secrets if secret in said] == []
