"""Both faces of the SDK against a real server."""

import threading
import time

import pytest

from farhand.client import ApiError, Client, ProblemDocument, StillOpen, Unreachable, UnreadableReply
from farhand.model.errors import FarhandError
from farhand.protocol.client import JobView, PrintOptions, SubmitReply
from tests.client.conftest import Ask
from tests.client.server import FarhandServer, HandAgent, farhand_server


def test_a_print_is_made_and_followed_to_its_end(ask: Ask, shop: HandAgent) -> None:
    made = ask("submit_print", shop.printer_ids[0], b"%PDF-1.4", title="Invoice", copies=2, tags=["a"])
    assert ask("job", made.id).kind == "print.pdf"
    seen: list[str] = []
    worker = threading.Thread(target=lambda: shop.do(ok=True))
    worker.start()
    job = ask("wait", made.id, timeout_ms=20_000, on_change=lambda job: seen.append(job.state))
    worker.join()
    assert (job.state, job.final, job.title, job.tags) == ("done", True, "Invoice", ["a"])
    assert seen[-1] == "done"
    assert [event.verb for event in ask("events", made.id)][-1] == "settle"


def test_the_bytes_that_arrive_are_the_bytes_that_were_sent(ask: Ask, shop: HandAgent) -> None:
    content = bytes(range(256)) * 400
    made = ask("submit_print", shop.printer_ids[1], content)
    assert shop.claim() == made.id
    assert shop.fetch(made.id) == content
    shop.report(made.id, ok=False, error="out of ribbon")
    job = ask("wait", made.id, timeout_ms=20_000)
    assert (job.state, job.error) == ("failed", "out of ribbon")
    again = ask("retry", made.id)
    assert ask("job", again.id).retry_of == made.id
    assert ask("cancel", again.id, reason="enough").state == "cancelled"


def test_the_same_idempotency_key_makes_one_job(ask: Ask, shop: HandAgent) -> None:
    first = ask("submit_print", shop.printer_ids[1], b"x", idempotency_key=f"once-{shop.name}")
    second = ask("submit_print", shop.printer_ids[1], b"x", idempotency_key=f"once-{shop.name}")
    assert first == second
    with pytest.raises(ApiError) as caught:
        ask("submit_print", shop.printer_ids[1], b"other", idempotency_key=f"once-{shop.name}")
    assert caught.value.problem.code == "idempotency-mismatch"


def test_a_batch_is_answered_item_by_item(ask: Ask, shop: HandAgent) -> None:
    good = {"type": "raw_base64", "printer_id": shop.printer_ids[1], "content": "eA=="}
    made, refused = ask("submit_batch", [good, good | {"printer_id": "nobody"}])
    assert isinstance(made, SubmitReply)
    assert isinstance(refused, ProblemDocument)
    assert refused.code == "unknown-printer"


def test_lists_are_filtered_and_paged(ask: Ask, shop: HandAgent) -> None:
    made = [ask("submit_print", shop.printer_ids[1], b"x", tags=["paged"]).id for _ in range(3)]
    page = ask("jobs", printer=shop.printer_ids[1], limit=2)
    assert [job.id for job in page.items] == made[:0:-1]
    rest = ask("jobs", printer=shop.printer_ids[1], limit=2, cursor=page.next)
    assert ([job.id for job in rest.items], rest.next) == (made[:1], None)
    assert ask("jobs", printer=shop.printer_ids[1], state="done").items == []


def test_printers_and_agents_are_listed(ask: Ask, shop: HandAgent) -> None:
    printers = {printer.id: printer for printer in ask("printers")}
    assert printers[shop.printer_ids[0]].agent == shop.name
    assert ask("printer", shop.printer_ids[0]).can_pdf
    assert shop.id in {agent.id for agent in ask("agents")}
    assert ask("agent", shop.id).online


def test_an_agent_is_paused_drained_resumed_granted_and_revoked(ask: Ask, shop: HandAgent) -> None:
    assert ask("pause", shop.id).state == "paused"
    assert ask("drain", shop.id).state == "draining"
    assert ask("resume", shop.id).state == "active"
    granted = ask("grants", shop.id, ["agent.work", "commands.process"])
    assert granted.grants == ["agent.work", "commands.process"]
    assert ask("revoke", shop.id).state == "revoked"


def test_an_agent_is_issued_with_a_key_that_lets_it_in(
    ask: Ask, server: FarhandServer, shop: HandAgent
) -> None:
    issued = ask("issue_agent", f"issued {shop.name}")
    agent = HandAgent(server.url, f"issued {shop.name}", [], issued.key)
    assert agent.id == issued.id
    agent.close()


def test_a_key_does_what_it_was_granted_until_it_is_revoked(
    ask: Ask, server: FarhandServer, shop: HandAgent
) -> None:
    made = ask("create_key", f"key {shop.name}", ["printers.read"])
    with Client(server.url, made.key) as limited:
        assert limited.printers()
        with pytest.raises(ApiError) as caught:
            limited.agents()
        assert caught.value.problem.code == "forbidden"
        assert made.id in {key.id for key in ask("keys")}
        ask("revoke_key", made.id)
        with pytest.raises(ApiError) as caught:
            limited.printers()
        assert caught.value.problem.status == 401


def test_an_uncertain_job_is_resolved(ask: Ask, shop: HandAgent) -> None:
    made = ask("submit_print", shop.printer_ids[1], b"x")
    assert shop.claim() == made.id
    shop.fetch(made.id)
    shop.report(made.id, ok=False, uncertain=True, error="the cable fell out")
    assert ask("wait", made.id, timeout_ms=20_000).state == "uncertain"
    resolved: JobView = ask("resolve", made.id, "done", note="it lies in the tray")
    assert (resolved.state, resolved.evidence) == ("done", "person")


def test_wait_gives_up_with_the_job_as_it_is(ask: Ask, shop: HandAgent) -> None:
    made = ask("submit_print", shop.printer_ids[1], b"x")
    began = time.monotonic()
    with pytest.raises(StillOpen) as caught:
        ask("wait", made.id, timeout_ms=1_000)
    assert caught.value.job.state == "queued"
    assert 0.9 < time.monotonic() - began < 10


def test_refusals_carry_code_and_field(ask: Ask, shop: HandAgent) -> None:
    with pytest.raises(ApiError) as caught:
        ask("submit_print", shop.printer_ids[0], b"%PDF-1.4", options=PrintOptions(paper="A4", nup=99))
    assert caught.value.problem.code == "bad-field"
    assert caught.value.problem.extra["field"] == "options.nup"
    with pytest.raises(ApiError) as caught:
        ask("job", "../keys")
    assert caught.value.problem.code == "not-found"


def test_health_needs_no_key(server: FarhandServer) -> None:
    with Client(server.url) as client:
        assert client.health().ok
        with pytest.raises(ApiError) as caught:
            client.jobs()
        assert caught.value.problem.code == "unauthorized"


def test_a_wait_lives_through_a_restart_of_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    with farhand_server(tmp_path_factory.mktemp("restarted")) as server:
        shop = HandAgent(server.url, "shop", [{"name": "label"}])
        seen = threading.Event()
        ended: list[JobView] = []

        def wait() -> None:
            with Client(server.url, server.token) as client:
                made = client.submit_print(shop.printer_ids[0], b"x")
                ended.append(client.wait(made.id, on_change=lambda _: seen.set()))

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert seen.wait(20)
        server.kill()
        server.start()
        shop.do(ok=True)
        waiter.join(30)
        shop.close()
        assert [job.state for job in ended] == ["done"]


def test_nobody_at_the_address_is_unreachable() -> None:
    with (
        Client("http://127.0.0.1:1", "k" * 16, patience_ms=0) as client,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer"),
    ):
        client.health()


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8631", "ftp://host", "http://", "http://a:b@host", "http://[", ""]
)
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(FarhandError, match="is no server address"):
        Client(address, "k" * 16)


@pytest.mark.parametrize("key", ["", "two words", "naïve-key", "line\nbreak"])
def test_a_key_that_cannot_be_one_is_refused_at_once(key: str) -> None:
    with pytest.raises(FarhandError, match="copy it again"):
        Client("http://127.0.0.1:8631", key)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    server: FarhandServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Client(server.url, server.token, patience_ms=0) as client:
        assert client.printers() is not None


def test_another_web_server_is_told_from_a_farhand_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    import http.server

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802  (the name http.server asks for)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "12")
            self.end_headers()
            self.wfile.write(b"<h1>Hi!</h1>")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        with (
            Client(f"http://127.0.0.1:{other.server_port}", "k" * 16) as client,
            pytest.raises(UnreadableReply, match=r"200, text/html.*<h1>Hi!</h1>"),
        ):
            client.printers()
        other.shutdown()
        thread.join()
