"""One look-up, every answer checked, and only checked addresses connected to."""

import asyncio
import ipaddress
import socket
import threading
from dataclasses import replace

import pytest

from farhand.egress import EgressError, EgressPolicy, Resolver, SystemResolver, parse_url, request
from farhand.egress.connect import Dial, GuardedBackend, check_peer, is_own_address
from farhand.egress.meter import Meter
from farhand.egress.resolve import resolve_target
from farhand.model.clock import SystemClock
from tests.egress.nameserver import UdpResolver, name_server
from tests.egress.targets import LOCAL, Names, by_path, ok, reply, serving

CLOSED = EgressPolicy()
URL = parse_url("http://rebind.example/")


async def _refused(url: str, policy: EgressPolicy, resolver: Resolver) -> EgressError:
    with pytest.raises(EgressError) as refusal:
        await resolve_target(parse_url(url), policy, resolver)
    return refusal.value


async def test_a_name_that_turns_to_metadata_is_refused_when_it_is_looked_up_again() -> None:
    rounds = [["93.184.216.34"], ["169.254.169.254"]]
    async with name_server(rebind_example=rounds) as server:
        resolver = UdpResolver(server.port)
        first = await resolve_target(URL, CLOSED, resolver)
        assert first == (ipaddress.ip_address("93.184.216.34"),)
        assert (await _refused(str(URL), CLOSED, resolver)).code == "blocked-address"


async def test_a_request_looks_its_name_up_once_and_stays_with_the_answer() -> None:
    rounds = [["127.0.0.1"], ["169.254.169.254"]]
    async with name_server(rebind_example=rounds) as server, serving(ok(b"hi")) as target:
        resolver = UdpResolver(server.port)
        response = await request("GET", target.url(host="rebind.example"), policy=LOCAL, resolver=resolver)
        assert response.body == b"hi"
        assert response.remote_address == "127.0.0.1"
        assert resolver.lookups == 1
        assert target.requests[0].header("host") == f"rebind.example:{target.port}"


async def test_a_redirect_to_the_same_name_is_looked_up_and_checked_again() -> None:
    rounds = [["127.0.0.1"], ["169.254.169.254"]]
    answer = by_path(a=reply("302 Found", b"", "Location: /b"), b=ok(b"hi"))
    async with name_server(rebind_example=rounds) as server, serving(answer) as target:
        resolver = UdpResolver(server.port)
        with pytest.raises(EgressError) as refusal:
            await request("GET", target.url("/a", host="rebind.example"), policy=LOCAL, resolver=resolver)
        assert refusal.value.code == "blocked-address"
        assert target.connections == 1


@pytest.mark.parametrize(
    "answers",
    [
        ["93.184.216.34", "169.254.169.254"],
        ["10.0.0.1", "93.184.216.34"],
        ["93.184.216.34", "::1"],
        ["2606:4700::1", "fe80::1"],
        ["::ffff:169.254.169.254"],
        ["93.184.216.34", "::ffff:7f00:1"],
        ["64:ff9b::a9fe:a9fe"],
    ],
)
async def test_one_bad_answer_refuses_the_name(answers: list[str]) -> None:
    async with name_server(rebind_example=[answers]) as server:
        error = await _refused(str(URL), CLOSED, UdpResolver(server.port))
    assert error.code == "blocked-address"
    assert not any(answer in error.message for answer in answers)


async def test_a_scope_id_in_an_answer_refuses_the_name() -> None:
    for answer in ("fe80::1%2", "2606:4700::1%2"):
        error = await _refused(str(URL), CLOSED, Names(rebind_example=[answer]))
        assert error.code == "blocked-address"


async def test_a_mapped_public_answer_is_used_as_ipv4() -> None:
    async with name_server(rebind_example=[["::ffff:93.184.216.34"]]) as server:
        found = await resolve_target(URL, CLOSED, UdpResolver(server.port))
    assert found == (ipaddress.ip_address("93.184.216.34"),)


async def test_a_literal_address_is_not_looked_up() -> None:
    names = Names()
    assert await resolve_target(parse_url("http://8.8.8.8/"), CLOSED, names)
    assert (await _refused("http://[::ffff:7f00:1]/", CLOSED, names)).code == "blocked-address"
    assert names.asked == []


async def test_a_name_without_an_address_is_a_dns_error() -> None:
    async with name_server() as server:
        error = await _refused("http://gone.example/", CLOSED, UdpResolver(server.port))
    assert (error.code, error.source) == ("dns", "resolver")
    assert "no address" in error.message


async def test_a_silent_name_server_is_a_dns_error_in_time() -> None:
    policy = replace(CLOSED, dns_timeout_ms=100)
    async with name_server(rebind_example=[["silence"]]) as server:
        error = await _refused(str(URL), policy, UdpResolver(server.port))
    assert (error.code, error.source) == ("dns", "resolver")
    assert "in time" in error.message


async def test_a_resolver_that_fails_is_a_dns_error() -> None:
    class Failing:
        async def resolve(self, host: str) -> list[str]:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")

    assert (await _refused(str(URL), CLOSED, Failing())).code == "dns"


async def test_families_take_turns_and_only_a_few_addresses_are_tried() -> None:
    six = [f"2606:4700::{n}" for n in range(1, 7)]
    names = Names(rebind_example=[*six, "93.184.216.34", "93.184.216.34"])
    found = await resolve_target(URL, CLOSED, names)
    assert [str(address) for address in found] == [six[0], "93.184.216.34", six[1], six[2]]


async def test_the_system_resolver_knows_numbers_and_refuses_nonsense() -> None:
    resolver = SystemResolver()
    assert set(await resolver.resolve("127.0.0.1")) == {"127.0.0.1"}
    for host in ("no such name", "x" * 70 + ".example"):
        with pytest.raises(OSError):  # noqa: PT011 (the message is the C library's)
            await resolver.resolve(host)


async def test_the_system_resolver_bounds_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()

    def slow(*_: object, **__: object) -> list[object]:
        hold.wait(10)
        return [(2, 1, 6, "", ("93.184.216.34", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    resolver = SystemResolver(lookups_max=1)
    first = asyncio.create_task(resolver.resolve("slow.example"))
    await asyncio.sleep(0)
    with pytest.raises(EgressError, match="too many names"):
        await resolver.resolve("other.example")
    hold.set()
    assert await first == ["93.184.216.34"]
    assert await resolver.resolve("other.example") == ["93.184.216.34"]


async def test_a_dead_address_gives_way_to_the_next() -> None:
    async with serving(ok(b"hi")) as target:
        names = Names(two_example=["127.0.0.9", "127.0.0.1"])
        response = await request("GET", target.url(host="two.example"), policy=LOCAL, resolver=names)
    assert response.remote_address == "127.0.0.1"


async def test_nobody_listening_is_a_connect_error() -> None:
    async with serving(ok(b"hi")) as target:
        url = target.url()
    with pytest.raises(EgressError) as failure:
        await request("GET", url, policy=LOCAL)
    assert (failure.value.code, failure.value.source) == ("connect", "target")


def _dial(policy: EgressPolicy, *addresses: str) -> Dial:
    checked = tuple(ipaddress.ip_address(text) for text in addresses)
    return Dial(url=URL, addresses=checked, policy=policy, meter=Meter(policy, SystemClock()))


async def test_the_backend_connects_to_nothing_but_its_own_target() -> None:
    backend = GuardedBackend(_dial(LOCAL, "127.0.0.1"))
    for host, port in (("other.example", 80), ("rebind.example", 81)):
        with pytest.raises(EgressError, match="not checked"):
            await backend.connect_tcp(host, port)
    with pytest.raises(EgressError, match="local sockets"):
        await backend.connect_unix_socket("/run/docker.sock")


async def test_a_peer_that_is_not_the_checked_address_is_refused() -> None:
    async with serving(ok(b"")) as target:
        with socket.create_connection(("127.0.0.1", target.port)) as connected:
            other, same = ipaddress.ip_address("127.0.0.2"), ipaddress.ip_address("127.0.0.1")
            with pytest.raises(EgressError):
                check_peer(connected, other, _dial(LOCAL))
            with pytest.raises(EgressError):
                check_peer(connected, same, _dial(CLOSED))
            check_peer(connected, same, _dial(LOCAL))


def _outward_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


async def test_this_machines_own_address_is_refused_even_in_an_opened_range() -> None:
    own = _outward_address()
    if own is None or not ipaddress.ip_address(own).is_private:
        pytest.skip("this machine has no private address besides loopback")
    policy = EgressPolicy(private_cidrs=(f"{own}/32",), ports=None)
    async with serving(ok(b"secret"), host=own) as target:
        with pytest.raises(EgressError) as refusal:
            await request("GET", target.url(host=own), policy=policy)
        assert refusal.value.code == "blocked-address"
        assert target.connections == 0
        local = replace(policy, loopback=True)
        assert (await request("GET", target.url(host=own), policy=local)).body == b"secret"


def test_own_addresses_are_recognised() -> None:
    assert is_own_address(ipaddress.ip_address("127.0.0.1"))
    assert not is_own_address(ipaddress.ip_address("192.0.2.1"))


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(ok(b"proxy")) as proxy, serving(ok(b"target")) as target:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        response = await request("GET", target.url(), policy=LOCAL)
        assert response.body == b"target"
        assert proxy.connections == 0
