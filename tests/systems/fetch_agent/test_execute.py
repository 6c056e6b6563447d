"""One request through the guard: what it ends with, how much memory it takes, what is told about it."""

import asyncio
import gc
import gzip
import hashlib
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farhand.egress import EgressPolicy
from farhand.model.clock import SystemClock
from farhand.protocol.fetch import INLINE_BYTES_MAX, FetchParams
from farhand.systems.fetch.execute import Answer, Executor, Failure, is_safe
from farhand.systems.fetch.pace import PATIENCE_MS, Crowded, Pace
from farhand.systems.fetch.settings import FetchSettings
from tests.egress.authority import make_authority
from tests.egress.nameserver import UdpResolver, name_server
from tests.egress.targets import Names, Seen, by_path, ok, reply, serving
from tests.systems.fetch_agent.hostile import CASES, MIB, Case, answer

LOCAL = FetchSettings(loopback=True, ports=(), per_host_per_second=0)
PEAK = 24 * MIB


def asked(url: str, **more: Any) -> FetchParams:
    """The params of a job."""
    plain: dict[str, Any] = {
        "url": url,
        "method": "GET",
        "headers": {},
        "body_base64": False,
        "timeout_ms": 30_000,
        "max_response_bytes": 2 * MIB,
        "allow_insecure_tls": False,
        "allow_private_ip": False,
        "range_request": None,
        "follow_redirects": True,
        "idempotent": False,
    }
    return FetchParams(**(plain | more))


class Bench:
    """Runs requests with bodies in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "body"

    async def run(
        self, request: FetchParams, *, settings: FetchSettings = LOCAL, body: bytes | None = None, **more: Any
    ) -> Answer | Failure:
        async def place() -> Path:
            return self.path

        executor = Executor(settings, SystemClock(), more.pop("resolver", None))
        return await executor.run(request, body, place, **more)

    async def answer(self, request: FetchParams, **more: Any) -> Answer:
        outcome = await self.run(request, **more)
        assert isinstance(outcome, Answer), outcome
        return outcome

    async def failure(self, request: FetchParams, **more: Any) -> Failure:
        outcome = await self.run(request, **more)
        assert isinstance(outcome, Failure), outcome
        return outcome


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def request_of(case: Case) -> dict[str, Any]:
    words = {"timeoutMs": "timeout_ms", "rangeRequest": "range_request"}
    return {words[key]: value for key, value in case.request.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_hostile_target_ends_in_its_code_within_bounded_memory(case: Case, bench: Bench) -> None:
    async with serving(answer) as target:
        request = asked(target.url(f"/{case.name}"), **request_of(case))
        gc.collect()
        tracemalloc.start()
        try:
            outcome = await bench.run(request)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < PEAK
    if case.code is None:
        assert isinstance(outcome, Answer), outcome
        return
    assert isinstance(outcome, Failure), outcome
    assert outcome.error.code == case.code
    assert outcome.error.message
    assert outcome.error.source in ("target", "policy")
    assert not outcome.retryable


async def test_a_body_without_end_is_cropped_and_says_so(bench: Bench) -> None:
    async with serving(answer) as target:
        found = await bench.answer(asked(target.url("/without-end"), max_response_bytes=300_000))
    assert found.result.cropped
    assert found.result.crop_original_size is None
    assert found.result.bytes_written == 300_000
    assert found.path is not None
    assert found.path.stat().st_size == 300_000


async def test_a_cropped_body_of_known_size_tells_it(bench: Bench) -> None:
    async with serving(answer) as target:
        found = await bench.answer(asked(target.url("/huge-length"), max_response_bytes=10))
    assert (found.result.body, found.result.crop_original_size) == ("y" * 10, 999_999_999_999)


async def test_text_is_cropped_before_a_torn_character_in_memory_and_in_a_file(bench: Bench) -> None:
    text = "ä" * INLINE_BYTES_MAX
    async with serving(ok(text.encode(), "Content-Type: text/plain")) as target:
        small = await bench.answer(asked(target.url(), max_response_bytes=11))
        large = await bench.answer(asked(target.url(), max_response_bytes=INLINE_BYTES_MAX + 101))
    assert (small.result.body, small.result.bytes_written) == ("ä" * 5, 10)
    assert large.path is not None
    assert large.path.read_text() == "ä" * ((INLINE_BYTES_MAX + 100) // 2)
    assert large.result.bytes_written == INLINE_BYTES_MAX + 100


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b'{"ok":true}', "application/json", '{"ok":true}'),
        (b"<a/>", "image/svg+xml", "<a/>"),
        ("ä".encode(), "text/html; charset=utf-8", "ä"),
        (b"plain", None, "plain"),
        (b"", "image/png", ""),
        (b"\xff", "text/plain", None),
        (b"a\x00b", "text/plain", None),
        (b"a", "image/png", None),
        (b"\x80", None, None),
    ],
)
async def test_a_body_is_text_when_it_is_and_base64_otherwise(
    body: bytes, kind: str | None, text: str | None, bench: Bench
) -> None:
    fields = () if kind is None else (f"Content-Type: {kind}",)
    async with serving(ok(body, *fields)) as target:
        result = (await bench.answer(asked(target.url()))).result
    if text is None:
        assert result.body_base64
    else:
        assert (result.body, result.body_base64) == (text, False)
    assert result.bytes_written == len(body)


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1])
async def test_a_body_leaves_the_memory_when_it_outgrows_the_result(size: int, bench: Bench) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with serving(ok(body)) as target:
        found = await bench.answer(asked(target.url()))
    if size == INLINE_BYTES_MAX:
        assert found.path is None
        assert found.result.body_base64
        return
    assert found.path is not None
    assert hashlib.sha256(found.path.read_bytes()).digest() == hashlib.sha256(body).digest()
    assert (found.result.body, found.result.body_base64) == (None, False)


async def test_the_result_tells_the_whole_story(bench: Bench) -> None:
    pages = by_path(
        a=reply("302 Found", b"", "Location: /b"),
        b=ok(
            gzip.compress(b"hello"), "Content-Encoding: gzip", "Set-Cookie: a=1", "Set-Cookie: b=2", "X-A: é"
        ),
    )
    async with serving(pages) as target:
        result = (await bench.answer(asked(target.url("/a")))).result
    assert (result.status, result.status_text, result.body) == (200, "OK", "hello")
    assert result.url == target.url("/b")
    assert [(step.status, step.url) for step in result.redirects] == [(302, target.url("/a"))]
    assert result.headers["set-cookie"] == "a=1, b=2"
    assert result.headers["x-a"] == "\\xe9"
    assert result.header_pairs is not None
    assert [value for name, value in result.header_pairs if name == "Set-Cookie"] == ["a=1", "b=2"]
    assert result.remote_address == "127.0.0.1"
    assert result.tls is None
    assert result.timings is not None
    assert result.timings.total_ms == result.elapsed_ms
    assert result.timings.tls_ms is None
    assert result.bytes_written == 5


async def test_a_range_is_cut_here_when_the_target_does_not(bench: Bench) -> None:
    async with serving(ok(b"0123456789")) as target:
        result = (await bench.answer(asked(target.url(), range_request="bytes=2-4"))).result
    assert result.body == "234"
    assert result.range is not None
    assert (result.range.honoured, result.range.first, result.range.last) == (False, 2, 4)


async def test_secrets_do_not_follow_a_redirect_to_another_origin(bench: Bench) -> None:
    headers = {"Authorization": "Bearer x", "X-Api-Key": "k", "X-Auth-Token": "t", "Accept": "text/x"}
    async with serving(ok(b"there")) as other:
        async with serving(reply("307 Moved", b"", f"Location: {other.url()}")) as first:
            await bench.answer(asked(first.url(), headers=headers))
        assert first.requests[0].header("x-api-key") == "k"
    seen = other.requests[0]
    assert [seen.header(name) for name in headers] == [None, None, None, "text/x"]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1/", "blocked-address"),
        ("http://[::1]/", "blocked-address"),
        ("http://[::ffff:127.0.0.1]/", "blocked-address"),
        ("http://localhost/", "blocked-name"),
        ("http://2130706433/", "bad-url"),
        ("http://0x7f.1/", "bad-url"),
        ("http://①②⑦.⓪.⓪.①/", "bad-url"),
        ("http://127。0。0。1/", "bad-url"),
        ("http://169.254.169.254/", "blocked-address"),
        ("http://[64:ff9b::a9fe:a9fe]/", "blocked-address"),
        ("http://metadata.google.internal/", "blocked-name"),
        ("http://farhand.example/", "blocked-name"),
        ("http://example.com:22/", "blocked-port"),
        ("http://user:pass@example.com/", "bad-url"),
    ],
)
async def test_what_is_no_target_is_refused_by_policy(url: str, code: str, bench: Bench) -> None:
    settings = FetchSettings(denied_names=("farhand.example",))
    failure = await bench.failure(asked(url), settings=settings, resolver=Names())
    assert (failure.error.code, failure.error.source) == (code, "policy")


async def test_a_private_address_takes_the_operators_range_and_the_jobs_wish(bench: Bench) -> None:
    settings = FetchSettings(private_ip="accept", private_cidrs=("10.1.0.0/16",))
    quick = {"timeout_ms": 300}
    shut = [asked("http://10.1.0.1/", **quick), asked("http://10.2.0.1/", allow_private_ip=True, **quick)]
    for request in shut:
        assert (await bench.failure(request, settings=settings)).error.code == "blocked-address"
    policy = settings.policy(asked("http://10.1.0.1/", allow_private_ip=True))
    assert policy.private_cidrs == ("10.1.0.0/16",)
    assert settings.policy(asked("http://10.1.0.1/")).private_cidrs == ()


@pytest.mark.parametrize("word", ["127.0.0.1", "169.254.169.254", "100.100.100.200", "[fd00:ec2::254]"])
async def test_no_range_opens_this_machine_or_metadata(word: str, bench: Bench) -> None:
    settings = FetchSettings(private_ip="accept", private_cidrs=("0.0.0.0/0", "::/0"))
    failure = await bench.failure(asked(f"http://{word}/", allow_private_ip=True), settings=settings)
    assert (failure.error.code, failure.error.source) == ("blocked-address", "policy")


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1", "10.0.0.1"],
        ["127.0.0.1", "::ffff:169.254.169.254"],
        ["127.0.0.1", "::ffff:a00:1"],
        ["127.0.0.1", "64:ff9b::a9fe:a9fe"],
        ["127.0.0.1", "fe80::1"],
        ["169.254.169.254"],
    ],
)
async def test_one_bad_answer_of_the_name_server_refuses_the_name(answers: list[str], bench: Bench) -> None:
    async with name_server(two_example=[answers]) as names, serving(ok(b"no")) as target:
        url = target.url(host="two.example")
        failure = await bench.failure(asked(url), resolver=UdpResolver(names.port))
    assert (failure.error.code, failure.error.source) == ("blocked-address", "policy")
    assert target.connections == 0
    assert not any(text in failure.error.message for text in answers)


async def test_a_name_that_is_bound_anew_is_not_followed(bench: Bench) -> None:
    async def back(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(reply("302 Found", b"", f"Location: {url}second"))
        await writer.drain()

    async with (
        name_server(turn_example=[["127.0.0.1"], ["169.254.169.254"]]) as names,
        serving(back) as target,
    ):
        url = target.url(host="turn.example")
        resolver = UdpResolver(names.port)
        failure = await bench.failure(asked(url), resolver=resolver)
    assert failure.error.code == "blocked-address"
    assert (resolver.lookups, target.connections) == (2, 1)


async def test_a_name_is_looked_up_once_and_its_answer_kept(bench: Bench) -> None:
    async with (
        name_server(turn_example=[["127.0.0.1"], ["169.254.169.254"]]) as names,
        serving(ok(b"first")) as target,
    ):
        resolver = UdpResolver(names.port)
        found = await bench.answer(asked(target.url(host="turn.example")), resolver=resolver)
    assert (found.result.body, resolver.lookups) == ("first", 1)


async def test_a_resolver_that_fails_is_said_to_have_failed(bench: Bench) -> None:
    failure = await bench.failure(asked("http://nowhere.example/"), resolver=Names())
    assert (failure.error.code, failure.error.source) == ("dns", "resolver")


async def test_a_disk_that_fails_is_this_agents_fault(tmp_path: Path) -> None:
    async with serving(ok(bytes(INLINE_BYTES_MAX + 1))) as target:
        failure = await Bench(tmp_path / "missing").failure(asked(target.url()))
    assert (failure.error.code, failure.error.source, failure.retryable) == ("agent-disk", "agent", True)


async def test_nothing_is_sent_before_it_is_announced(bench: Bench) -> None:
    seen: list[int] = []
    async with serving(ok(b"x")) as target:
        await bench.answer(
            asked(target.url(), method="POST"), body=b"b", on_send=lambda: seen.append(len(target.requests))
        )
        await bench.failure(asked("http://127.0.0.1:1/"), on_send=lambda: seen.append(-1))
    assert seen
    assert set(seen) == {0}


async def test_a_certificate_is_verified_unless_the_operator_and_the_job_agree(
    bench: Bench, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path)
    files = authority.issue("files", "DNS:files.example")
    names = {"resolver": Names(files_example=["127.0.0.1"])}
    lenient = replace(LOCAL, insecure_tls="accept")
    trusting = replace(LOCAL, ca_file=Path(authority.ca_file))
    async with serving(ok(b"x"), tls=files) as target:
        url = target.url(scheme="https", host="files.example")
        strict = await bench.failure(asked(url), **names)
        unasked = await bench.failure(asked(url), settings=lenient, **names)
        unopened = await bench.failure(asked(url, allow_insecure_tls=True), **names)
        agreed = await bench.answer(asked(url, allow_insecure_tls=True), settings=lenient, **names)
        trusted = await bench.answer(asked(url), settings=trusting, **names)
    assert (strict.error.code, unasked.error.code) == ("certificate", "certificate")
    assert (unopened.error.code, unopened.error.source) == ("tls", "policy")
    assert agreed.result.tls is not None
    assert (agreed.result.tls.verified, bool(agreed.result.tls.reason)) == (False, True)
    assert trusted.result.tls is not None
    assert (trusted.result.tls.verified, trusted.result.tls.version) == (True, "TLSv1.3")
    assert len(trusted.result.tls.fingerprint or "") == 64
    assert trusted.result.timings is not None
    assert trusted.result.timings.tls_ms is not None


def test_a_policy_keeps_what_the_operator_did_not_open() -> None:
    policy = FetchSettings().policy(
        asked("http://example.com/", allow_insecure_tls=True, allow_private_ip=True)
    )
    assert policy == replace(
        EgressPolicy(),
        total_timeout_ms=30_000,
        decoded_bytes_max=2 * MIB,
        wire_bytes_max=policy.wire_bytes_max,
    )


@pytest.mark.parametrize(
    ("method", "idempotent", "safe"),
    [
        ("GET", False, True),
        ("head", False, True),
        ("OPTIONS", False, True),
        ("POST", False, False),
        ("DELETE", True, True),
    ],
)
def test_a_request_is_safe_by_its_method_or_by_word(method: str, idempotent: bool, safe: bool) -> None:
    assert is_safe(asked("http://a.example/", method=method, idempotent=idempotent)) is safe


class Hand:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


async def test_a_host_gets_a_seconds_worth_at_once_and_then_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds * 1000))

    monkeypatch.setattr("farhand.systems.fetch.pace.asyncio.sleep", sleep)
    clock = Hand()
    pace = Pace(4, clock)
    for _ in range(6):
        await pace.turn("a.example")
    await pace.turn("b.example")
    assert slept == [250, 500]
    clock.ms = 60_000
    await pace.turn("a.example")
    assert len(slept) == 2


async def test_a_host_that_everybody_wants_is_crowded() -> None:
    pace = Pace(1, Hand())
    waits = [pace._wait_ms("a.example") for _ in range(1 + PATIENCE_MS // 1000)]
    assert waits[-1] == PATIENCE_MS
    with pytest.raises(Crowded):
        await pace.turn("a.example")
