"""TLS speaks to the name in the URL, whatever address it was pinned to."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.egress import EgressError, EgressPolicy, request, tls_context
from tests.egress.authority import Authority, make_authority
from tests.egress.targets import LOCAL, Names, Target, ok, reply, serving


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


@pytest.fixture
def trusting(authority: Authority) -> EgressPolicy:
    return replace(LOCAL, ca_file=authority.ca_file)


@asynccontextmanager
async def _files(
    authority: Authority, answer: bytes, san: str = "DNS:files.example"
) -> AsyncIterator[Target]:
    async with serving(answer, tls=authority.issue("files", san)) as target:
        yield target


async def test_the_server_sees_the_name_and_the_name_is_looked_up_once(
    authority: Authority, trusting: EgressPolicy
) -> None:
    names = Names(files_example=["127.0.0.1"])
    async with _files(authority, ok(b"hi")) as target:
        response = await request(
            "GET", target.url(host="files.example.", scheme="https"), policy=trusting, resolver=names
        )
    assert response.body == b"hi"
    assert authority.server_names == ["files.example"]
    assert names.asked == ["files.example"]
    assert target.requests[0].header("host") == f"files.example:{target.port}"
    assert response.tls is not None
    assert (response.tls.verified, response.tls.reason) == (True, None)
    assert response.tls.version.startswith("TLSv1.")
    der = ssl.PEM_cert_to_DER_cert((authority.folder / "files.pem").read_text())
    assert response.tls.fingerprint == hashlib.sha256(der).hexdigest()
    assert response.timings.tls is not None


async def test_a_certificate_for_another_name_is_refused(
    authority: Authority, trusting: EgressPolicy
) -> None:
    names = Names(other_example=["127.0.0.1"])
    async with _files(authority, ok(b"hi")) as target:
        with pytest.raises(EgressError) as refusal:
            await request(
                "GET",
                target.url(host="other.example", scheme="https"),
                policy=trusting,
                resolver=names,
            )
    assert (refusal.value.code, refusal.value.source) == ("certificate", "target")
    assert "other.example" in refusal.value.message
    assert target.requests == []


async def test_a_literal_address_is_verified_against_the_certificate(
    authority: Authority, trusting: EgressPolicy
) -> None:
    async with _files(authority, ok(b"hi"), "IP:127.0.0.1") as target:
        assert (await request("GET", target.url(scheme="https"), policy=trusting)).body == b"hi"
    assert authority.server_names == [None]
    async with _files(authority, ok(b"hi")) as target:
        with pytest.raises(EgressError, match="does not verify"):
            await request("GET", target.url(scheme="https"), policy=trusting)


async def test_an_unknown_authority_is_refused_whatever_the_environment_says(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    names = Names(files_example=["127.0.0.1"])
    async with _files(authority, ok(b"hi")) as target:
        with pytest.raises(EgressError) as refusal:
            await request(
                "GET", target.url(host="files.example", scheme="https"), policy=LOCAL, resolver=names
            )
    assert refusal.value.code == "certificate"
    assert target.requests == []


async def test_unverified_tls_takes_both_the_policy_and_the_caller(authority: Authority) -> None:
    names = Names(files_example=["127.0.0.1"])
    allowing = replace(LOCAL, allow_insecure_tls=True)
    async with _files(authority, ok(b"hi")) as target:
        url = target.url(host="files.example", scheme="https")
        with pytest.raises(EgressError, match="ask the operator") as refusal:
            await request("GET", url, policy=LOCAL, resolver=names, insecure_tls=True)
        assert refusal.value.source == "policy"
        with pytest.raises(EgressError, match="does not verify"):
            await request("GET", url, policy=allowing, resolver=names)
        names.asked.clear()
        response = await request("GET", url, policy=allowing, resolver=names, insecure_tls=True)
    assert response.body == b"hi"
    assert response.tls is not None
    assert response.tls.verified is False
    assert response.tls.reason
    assert response.tls.fingerprint
    assert names.asked == ["files.example"]
    assert len(target.requests) == 1


async def test_a_good_certificate_stays_verified_when_unverified_was_permitted(
    authority: Authority, trusting: EgressPolicy
) -> None:
    policy = replace(trusting, allow_insecure_tls=True)
    names = Names(files_example=["127.0.0.1"])
    async with _files(authority, ok(b"hi")) as target:
        response = await request(
            "GET",
            target.url(host="files.example", scheme="https"),
            policy=policy,
            resolver=names,
            insecure_tls=True,
            context=tls_context(policy),
        )
    assert response.tls is not None
    assert response.tls.verified is True
    assert target.connections == 1


async def test_a_redirect_from_https_to_http_is_refused(authority: Authority, trusting: EgressPolicy) -> None:
    names = Names(files_example=["127.0.0.1"])
    async with serving(ok(b"plain")) as plain:
        answer = reply("302 Found", b"", f"Location: http://files.example:{plain.port}/")
        async with _files(authority, answer) as target:
            with pytest.raises(EgressError) as refusal:
                await request(
                    "GET",
                    target.url(host="files.example", scheme="https"),
                    policy=trusting,
                    resolver=names,
                )
    assert refusal.value.code == "refused-redirect"
    assert plain.connections == 0


async def test_a_server_without_tls_is_a_tls_error() -> None:
    async with serving(ok(b"plain")) as target:
        with pytest.raises(EgressError) as failure:
            await request(
                "GET",
                target.url(scheme="https"),
                policy=replace(LOCAL, connect_timeout_ms=500),
            )
    assert failure.value.code in ("tls", "timeout")


async def test_an_unreadable_ca_file_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "missing.pem"):
        with pytest.raises(EgressError, match="ca_file"):
            tls_context(replace(LOCAL, ca_file=str(path)))


def test_the_guard_works_on_uvloop_too(authority: Authority, trusting: EgressPolicy) -> None:
    uvloop = pytest.importorskip("uvloop")
    names = Names(files_example=["127.0.0.9", "127.0.0.1"])

    async def fetch() -> bytes:
        async with _files(authority, ok(b"hi")) as target:
            url = target.url(host="files.example", scheme="https")
            response = await request("GET", url, policy=trusting, resolver=names)
            assert response.remote_address == "127.0.0.1"
            with pytest.raises(EgressError, match="does not verify"):
                await request("GET", target.url(scheme="https"), policy=trusting)
            return response.body

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(fetch()) == b"hi"
