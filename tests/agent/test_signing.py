"""An agent that signs: its key, its requests, and what becomes of it against the real server."""

import base64
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from farhand.agent.config import AgentConfig, ConfigError, load_config
from farhand.agent.errors import NoAnswer, ShutOut
from farhand.agent.link import Link
from farhand.agent.signing import Signer, find_signer, make_key
from farhand.model.clock import SystemClock
from farhand.protocol.agent import ClaimRequest, HeldRequest, RegisterRequest
from farhand.protocol.signing import content_digest, signed_text
from tests.agent.conftest import KEY, Bench, Worker
from tests.agent.fake_server import FakeServer, Request, problem
from tests.agent.real import Server
from tests.peers.printers import until

SEED = bytes(range(32))
SEED_TEXT = base64.b64encode(SEED).decode()
PUBLIC = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="


def config_of(tmp_path: Path, **changes: object) -> AgentConfig:
    settings = {"server": "http://127.0.0.1:9", "name": "a", "data": tmp_path, "folder": tmp_path}
    return AgentConfig(**(settings | changes))  # type: ignore[arg-type]  (the fields of the class)


def key_file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "signing.pem"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_made_key_is_for_its_owner_alone_and_never_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "signing.pem"
    public = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    signer = find_signer(config_of(tmp_path, signing_key_file=path), SystemClock())
    assert signer is not None
    assert signer.public_key == public
    with pytest.raises(ConfigError, match="there already"):
        make_key(path)
    assert find_signer(config_of(tmp_path, signing_key_file=path), SystemClock()) is not None


def test_a_key_is_read_in_every_form_it_comes_in(tmp_path: Path) -> None:
    pem = Ed25519PrivateKey.from_private_bytes(SEED).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    for changes in (
        {"signing_key": SEED_TEXT},
        {"signing_key": pem.decode()},
        {"signing_key_file": key_file(tmp_path, SEED_TEXT + "\n")},
    ):
        signer = find_signer(config_of(tmp_path, **changes), SystemClock())
        assert signer is not None
        assert signer.public_key == PUBLIC
    assert find_signer(config_of(tmp_path), SystemClock()) is None


@pytest.mark.parametrize("text", ["", "short", SEED_TEXT[:-4], "-----BEGIN PRIVATE KEY-----\nAA==\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="signing_key_file .*private key"):
        find_signer(config_of(tmp_path, signing_key_file=key_file(tmp_path, text)), SystemClock())


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    pem = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ConfigError, match="not an Ed25519 key"):
        find_signer(config_of(tmp_path, signing_key=pem.decode()), SystemClock())


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        find_signer(config_of(tmp_path, signing_key_file=key_file(tmp_path, SEED_TEXT, 0o644)), SystemClock())
    with pytest.raises(ConfigError, match="cannot be read"):
        find_signer(config_of(tmp_path, signing_key_file=tmp_path / "none"), SystemClock())
    settings = tmp_path / "agent.toml"
    settings.write_text(f'server = "http://a"\nsigning_key = "{SEED_TEXT}"\n')
    settings.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_config(settings, environ={})
    settings.chmod(0o600)
    assert SEED_TEXT not in repr(load_config(settings, environ={}))


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"farhand\[signing\]"):
        make_key(tmp_path / "key")
    with pytest.raises(ConfigError, match=r"farhand\[signing\]"):
        find_signer(config_of(tmp_path, signing_key=SEED_TEXT), SystemClock())
    assert find_signer(config_of(tmp_path), SystemClock()) is None


@pytest.fixture
async def signing(server: FakeServer) -> AsyncIterator[Link]:
    """A link that signs."""
    signer = Signer(Ed25519PrivateKey.from_private_bytes(SEED), SystemClock())
    link = Link(server.url, KEY, signer=signer, answer_ms=300, stall_ms=300)
    yield link
    await link.aclose()


def verify(request: Request) -> dict[str, str]:
    """The lower-case headers of a request that its agent signed. Raises InvalidSignature."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["content-digest"] == content_digest(request.body)
    names = ("farhand-agent", "farhand-timestamp", "farhand-nonce", "content-digest")
    agent, timestamp, nonce, digest = (headers[name].encode() for name in names)
    text = signed_text(
        agent=agent,
        method=request.method.encode(),
        target=request.path.encode(),
        timestamp=timestamp,
        nonce=nonce,
        digest=digest,
    )
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(PUBLIC))
    key.verify(base64.b64decode(headers["farhand-signature"]), text)
    return headers


async def test_every_request_is_signed_and_the_key_registers_alone(signing: Link, server: FakeServer) -> None:
    reply = await signing.register(RegisterRequest(name="a"))
    server.add()
    (job,) = (await signing.claim(ClaimRequest(poll_id="p", lanes=["lane-1"]))).jobs
    await signing.heartbeat(job.job_id, HeldRequest(lease_token=job.lease_token))
    registered, *others = [verify(request) for request in server.requests]
    assert registered["farhand-agent"] == "new"
    assert registered["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].json["public_key"] == PUBLIC
    assert len(others) == 2
    for headers in others:
        assert headers["farhand-agent"] == reply.computer_id
        assert "authorization" not in headers
    assert len({headers["farhand-nonce"] for headers in (registered, *others)}) == 3
    server.requests[1].body += b" "
    with pytest.raises(AssertionError):
        verify(server.requests[1])
    server.requests[2].path += "?x=1"
    with pytest.raises(InvalidSignature):
        verify(server.requests[2])


async def test_a_body_that_is_streamed_is_signed_by_its_digest(
    signing: Link, server: FakeServer, tmp_path: Path
) -> None:
    await signing.register(RegisterRequest(name="a"))
    job_id = server.add()
    path = tmp_path / "body"
    path.write_bytes(bytes(range(256)) * 4000)
    await signing.upload(job_id, server._tokens[job_id], path)
    headers = verify(server.requests[-1])
    assert headers["content-length"] == str(256 * 4000)
    assert server.kept[job_id] == path.read_bytes()


async def test_nothing_is_sent_before_the_registration_said_who_we_are(
    signing: Link, server: FakeServer
) -> None:
    with pytest.raises(NoAnswer, match="not registered yet"):
        await signing.claim(ClaimRequest(poll_id="p", lanes=[]))
    assert server.requests == []


async def test_a_clock_that_is_off_and_a_replay_on_the_way_do_not_end_the_agent(
    signing: Link, server: FakeServer
) -> None:
    await signing.register(RegisterRequest(name="a"))
    for code in ("clock-skew", "replayed"):
        server.fault("/agent/claim", problem(401, code))
        with pytest.raises(NoAnswer, match=code):
            await signing.claim(ClaimRequest(poll_id="p", lanes=[]))
    for code in ("signature-required", "bad-signature", "unknown-signer"):
        server.fault("/agent/claim", problem(401, code))
        with pytest.raises(ShutOut, match=code):
            await signing.claim(ClaimRequest(poll_id="p", lanes=[]))


async def test_an_agent_that_has_to_sign_works_and_one_that_does_not_is_shut_out(
    tmp_path: Path, bench: Bench
) -> None:
    real = Server(tmp_path / "server")
    path = tmp_path / "signing.pem"
    public = make_key(path)
    bench.worker = Worker(kinds=("print.raw", "print.pdf"))
    try:
        async with bench.running(server=real.url, signing_key_file=path):
            await until(lambda: bool(real.call("GET", "/agents")["items"]), "the agent is in")
            (agent,) = real.call("GET", "/agents")["items"]
            assert (agent["signing"], agent["public_key"]) == ("optional", public)
            message = {"public_key": public, "required": True}
            real.call("PUT", f"/agents/{agent['id']}/signing", message)
            job = real.submit("first", b"x" * 100_000)
            await until(lambda: real.job(job)["state"] == "done", "the job is done")
        async with bench.started(server=real.url) as (_, task):
            with pytest.raises(ShutOut, match="signature-required"):
                await task
    finally:
        real.end()
