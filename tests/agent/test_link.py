"""What the link makes of replies that are not what they should be."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from farhand.agent.config import ConfigError
from farhand.agent.errors import LinkError, NoAnswer, Pending, Refused, ShutOut, Stale
from farhand.agent.link import Link
from farhand.protocol.agent import ClaimRequest, HeldRequest, RegisterRequest
from tests.agent.conftest import KEY
from tests.agent.fake_server import (
    FakeServer,
    Fault,
    Reply,
    Request,
    hang,
    lost_request,
    page,
    problem,
)
from tests.peers.printers import find_program, until


async def failing(link: Link, server: FakeServer, fault: Fault) -> LinkError:
    server.fault("/claim", fault)
    with pytest.raises(LinkError) as caught:
        await link.claim(ClaimRequest(poll_id="a"))
    return caught.value


async def test_requests_carry_the_key_and_the_protocol(link: Link, server: FakeServer) -> None:
    assert (await link.claim(ClaimRequest(poll_id="a", lanes=[]))).jobs == []
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["farhand-protocol"] == "1"


async def test_the_environments_proxy_is_the_way_to_the_server(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    link = Link("http://farhand.example", KEY)
    await link.claim(ClaimRequest(poll_id="a", lanes=[]))
    await link.aclose()
    assert server.proxied == 1


@pytest.mark.parametrize("status", [200, 301, 401, 403, 404, 409, 426, 502])
async def test_a_page_is_no_answer_whatever_its_status(link: Link, server: FakeServer, status: int) -> None:
    assert type(await failing(link, server, page(status))) is NoAnswer


@pytest.mark.parametrize("body", [b"{}", b"[", b'{"jobs": 7}', b"\xff\xfe", b'{"jobs": [{"job_id": 1}]}'])
async def test_a_reply_that_cannot_be_read_is_no_answer(link: Link, server: FakeServer, body: bytes) -> None:
    async def fault(request: Request, answer: object) -> Reply | None:
        return Reply(body=body)

    assert type(await failing(link, server, fault)) is NoAnswer


async def test_a_redirect_says_where_it_points(link: Link, server: FakeServer) -> None:
    async def fault(request: Request, answer: object) -> Reply | None:
        return Reply(status=308, body=b"", kind="text/html", headers={"Location": "https://elsewhere/"})

    assert "https://elsewhere/" in (await failing(link, server, fault)).message


@pytest.mark.parametrize("fault", [hang, lost_request])
async def test_silence_and_a_broken_connection_are_no_answer(
    link: Link, server: FakeServer, fault: Fault
) -> None:
    assert type(await failing(link, server, fault)) is NoAnswer


async def test_a_server_that_is_not_there_is_no_answer() -> None:
    link = Link("http://127.0.0.1:9", KEY)
    with pytest.raises(NoAnswer, match="cannot be reached"):
        await link.claim(ClaimRequest(poll_id="a"))
    await link.aclose()


async def test_a_page_that_looks_like_a_problem_shuts_nobody_out(link: Link, server: FakeServer) -> None:
    async def fault(request: Request, answer: object) -> Reply | None:
        return Reply(status=401, body=b'{"code": "unauthorized"}')

    assert type(await failing(link, server, fault)) is NoAnswer


@pytest.mark.parametrize(
    ("status", "code"), [(401, "name-taken"), (403, "agent-revoked"), (426, "upgrade-required")]
)
async def test_being_shut_out_is_said_in_the_servers_words(
    link: Link, server: FakeServer, status: int, code: str
) -> None:
    error = await failing(link, server, problem(status, code))
    assert isinstance(error, ShutOut)
    assert code in error.message


async def test_pending_brings_the_code_and_how_long_it_holds(link: Link, server: FakeServer) -> None:
    server.fault("/register", problem(403, "agent-pending", user_code="ABCD-EFGH", expires_in=600))
    with pytest.raises(Pending) as caught:
        await link.register(RegisterRequest(name="n"))
    assert (caught.value.user_code, caught.value.expires_in_ms) == ("ABCD-EFGH", 600_000)


@pytest.mark.parametrize(("status", "code"), [(429, "too-many-waits"), (503, "shutting-down")])
async def test_retry_after_is_passed_on(link: Link, server: FakeServer, status: int, code: str) -> None:
    error = await failing(link, server, problem(status, code, retry_after=7))
    assert isinstance(error, NoAnswer)
    assert error.retry_after_ms == 7_000


async def test_a_pages_retry_after_counts_too(link: Link, server: FakeServer) -> None:
    async def fault(request: Request, answer: object) -> Reply | None:
        return Reply(status=503, kind="text/html", headers={"Retry-After": "3"})

    error = await failing(link, server, fault)
    assert isinstance(error, NoAnswer)
    assert error.retry_after_ms == 3_000


async def test_a_lost_attempt_is_stale_and_brings_the_jobs_state(link: Link, server: FakeServer) -> None:
    job_id = server.add()
    server.lose(job_id, "cancelled")
    with pytest.raises(Stale) as caught:
        await link.heartbeat(job_id, HeldRequest(lease_token="0" * 32))
    assert caught.value.job_state == "cancelled"


async def test_another_problem_is_refused_by_its_code(link: Link, server: FakeServer) -> None:
    error = await failing(link, server, problem(422, "bad-field"))
    assert isinstance(error, Refused)
    assert error.problem == "bad-field"


async def test_reconnect_ends_what_is_under_way_and_the_next_request_works(
    link: Link, server: FakeServer
) -> None:
    held = asyncio.create_task(link.claim(ClaimRequest(poll_id="a", lanes=["lane-1"], wait_ms=50_000)))
    await until(lambda: server.count("/claim") == 1, "the poll is held")
    link.reconnect()
    with pytest.raises(NoAnswer):
        await held
    assert (await link.claim(ClaimRequest(poll_id="a", lanes=[]))).jobs == []


async def downloading(link: Link, server: FakeServer, path: str, size_max: int = 1_000_000) -> bytes:
    got = bytearray()
    await link.download(path, "0" * 32, got.extend, size_max)
    return bytes(got)


def a_payload(server: FakeServer, content: bytes) -> str:
    job_id = server.add(content=content, by_url=True)
    server._tokens[job_id] = "0" * 32
    return f"/agent/jobs/{job_id}/payload"


async def test_a_payload_is_streamed_as_it_is(link: Link, server: FakeServer) -> None:
    content = bytes(range(256)) * 2_000
    assert await downloading(link, server, a_payload(server, content)) == content


async def test_a_payload_larger_than_promised_is_refused(link: Link, server: FakeServer) -> None:
    with pytest.raises(Refused, match="exceeds 10 bytes"):
        await downloading(link, server, a_payload(server, b"x" * 11), 10)


async def test_a_page_instead_of_a_payload_is_no_answer(link: Link, server: FakeServer) -> None:
    path = a_payload(server, b"x")
    server.fault("/payload", page(200))
    with pytest.raises(NoAnswer):
        await downloading(link, server, path)


@pytest.mark.parametrize("path", ["http://elsewhere/payload", "//elsewhere/payload"])
async def test_the_key_goes_to_no_other_server(link: Link, server: FakeServer, path: str) -> None:
    with pytest.raises(Refused):
        await downloading(link, server, path)
    assert server.requests == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [find_program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return cert, key


Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _empty_claim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = b'{"jobs":[]}'
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


async def test_a_private_ca_is_trusted_when_the_settings_name_it(certificate: tuple[Path, Path]) -> None:
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    listener = await asyncio.start_server(_empty_claim, "127.0.0.1", 0, ssl=context)
    url = f"https://localhost:{listener.sockets[0].getsockname()[1]}"
    trusting, plain = Link(url, KEY, ca_file=certificate[0]), Link(url, KEY)
    assert (await trusting.claim(ClaimRequest(poll_id="a"))).jobs == []
    with pytest.raises(NoAnswer, match="certificate"):
        await plain.claim(ClaimRequest(poll_id="a"))
    await trusting.aclose()
    await plain.aclose()
    listener.close()


def test_a_ca_file_without_certificates_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("nothing here")
    with pytest.raises(ConfigError, match="ca_file"):
        Link("https://localhost", KEY, ca_file=path)


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readline())
        await _empty_claim(reader, writer)

    listener = await asyncio.start_server(proxy, "127.0.0.1", 0)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    monkeypatch.setenv("NO_PROXY", "")
    link = Link("http://farhand.invalid:8631", KEY)
    assert (await link.claim(ClaimRequest(poll_id="a"))).jobs == []
    assert seen == [b"POST http://farhand.invalid:8631/agent/claim HTTP/1.1\r\n"]
    await link.aclose()
    listener.close()
