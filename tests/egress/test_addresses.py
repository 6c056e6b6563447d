"""Default deny: the table, the operator's ranges, and what nobody can open."""

import ipaddress
from dataclasses import replace

import pytest

from farhand.egress import EgressError, EgressPolicy, check_address, check_url

DENIED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "1fff::1",
    "2001::1",
    "2001:0:4136:e378::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2620:4f:8000::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%2",
    "fe80::1%eth0",
    "2606:4700::1%1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "no address",
    "",
]

ALLOWED = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.1",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.17",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "198.17.255.255",
    "198.20.0.1",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2003::1",
    "2606:4700::1111",
    "2a00:1450::1",
    "3ffe::1",
    "::ffff:8.8.8.8",
]

# Every one of these lies inside 0.0.0.0/0 or ::/0, which an operator may have opened.
NEVER = [
    "0.0.0.0",
    "100.100.100.200",
    "127.0.0.1",
    "168.63.129.16",
    "169.254.169.254",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2001::1",
    "2002:7f00:1::",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fc00::1%2",
    "ff02::1",
]

CLOSED = EgressPolicy()
OPEN = EgressPolicy(private_cidrs=("0.0.0.0/0", "::/0"))


def _code(text: str, policy: EgressPolicy) -> str | None:
    try:
        check_address(text, policy, host="h.example")
    except EgressError as error:
        return error.code
    return None


def test_there_are_enough_vectors() -> None:
    assert len(set(DENIED)) >= 50
    assert len(set(ALLOWED)) >= 18


@pytest.mark.parametrize("text", DENIED)
def test_an_address_that_is_not_public_is_denied(text: str) -> None:
    assert _code(text, CLOSED) == "blocked-address"


@pytest.mark.parametrize("text", ALLOWED)
def test_a_public_address_is_allowed(text: str) -> None:
    assert _code(text, CLOSED) is None


@pytest.mark.parametrize("text", NEVER)
def test_no_range_opens_what_stays_shut(text: str) -> None:
    assert _code(text, OPEN) == "blocked-address"


@pytest.mark.parametrize("text", ["10.1.2.3", "192.168.7.7", "::ffff:10.1.2.3", "fd12::1"])
def test_a_listed_range_opens_its_addresses_and_no_others(text: str) -> None:
    policy = EgressPolicy(private_cidrs=("10.1.0.0/16", "192.168.7.0/24", "fd12::/32"))
    assert _code(text, policy) is None
    assert _code("10.2.0.1", policy) == "blocked-address"
    assert _code("fd13::1", policy) == "blocked-address"


@pytest.mark.parametrize("text", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_the_loopback_switch_opens_loopback_and_nothing_else(text: str) -> None:
    policy = EgressPolicy(loopback=True)
    assert _code(text, policy) is None
    for other in ("0.0.0.0", "::", "169.254.169.254", "10.0.0.1", "fe80::1", "64:ff9b::7f00:1"):
        assert _code(other, policy) == "blocked-address"


def test_a_denied_range_wins_over_everything() -> None:
    policy = EgressPolicy(
        loopback=True,
        private_cidrs=("10.0.0.0/8",),
        denied_cidrs=("10.0.0.0/8", "8.8.8.8/32", "127.0.0.2/32"),
    )
    for text in ("10.0.0.1", "8.8.8.8", "::ffff:8.8.8.8", "127.0.0.2"):
        assert _code(text, policy) == "blocked-address"
    assert _code("8.8.4.4", policy) is None


def test_nat64_opens_only_public_addresses_inside() -> None:
    policy = EgressPolicy(nat64=True, loopback=True, private_cidrs=("10.0.0.0/8",))
    assert _code("64:ff9b::808:808", policy) is None
    for inside in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "224.0.0.1"):
        text = f"64:ff9b::{ipaddress.IPv4Address(inside).packed.hex(':', 2)}"
        assert _code(text, policy) == "blocked-address"


def test_a_mapped_address_is_connected_to_as_ipv4() -> None:
    found = check_address("::ffff:8.8.8.8", CLOSED, host="h.example")
    assert found == ipaddress.ip_address("8.8.8.8")


def test_the_refusal_does_not_name_the_address() -> None:
    with pytest.raises(EgressError) as refusal:
        check_address("10.9.8.7", CLOSED, host="h.example")
    assert "10.9.8.7" not in refusal.value.message
    assert "h.example" in refusal.value.message
    assert refusal.value.source == "policy"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://localhost/", "blocked-name"),
        ("http://a.localhost/", "blocked-name"),
        ("http://LOCALHOST./", "blocked-name"),
        ("http://printer.local/", "blocked-name"),
        ("http://db.internal/", "blocked-name"),
        ("http://router.lan/", "blocked-name"),
        ("http://intranet/", "blocked-name"),
        ("http://metadata/", "blocked-name"),
        ("http://metadata.google.internal/", "blocked-name"),
        ("http://instance-data/", "blocked-name"),
        ("http://127.0.0.1/", "blocked-address"),
        ("http://[::1]/", "blocked-address"),
        ("http://[::ffff:169.254.169.254]/", "blocked-address"),
        ("http://169.254.169.254/latest/meta-data/", "blocked-address"),
        ("http://example.com:22/", "blocked-port"),
        ("https://example.com:8443/", "blocked-port"),
        ("http://u:p@example.com/", "bad-url"),
    ],
)
def test_a_url_is_refused_before_the_network_is_asked(url: str, code: str) -> None:
    with pytest.raises(EgressError) as refusal:
        check_url(url, CLOSED)
    assert refusal.value.code == code


def test_local_names_open_with_the_operators_ranges_but_metadata_names_do_not() -> None:
    policy = EgressPolicy(private_cidrs=("10.0.0.0/8",))
    assert check_url("http://nas.local/x", policy).host == "nas.local"
    assert check_url("http://intranet/", policy).host == "intranet"
    for host in ("localhost", "metadata", "metadata.google.internal", "instance-data"):
        with pytest.raises(EgressError, match="not a public name"):
            check_url(f"http://{host}/", policy)


def test_a_denied_name_covers_its_subdomains_only() -> None:
    policy = replace(CLOSED, denied_names=("Farhand.example",))
    for host in ("farhand.example", "api.farhand.example"):
        with pytest.raises(EgressError, match="not a public name"):
            check_url(f"https://{host}/", policy)
    assert check_url("https://notfarhand.example/", policy).host == "notfarhand.example"


@pytest.mark.parametrize("text", ["10.0.0.1/8", "ten", "10.0.0.0/33", ""])
def test_a_range_that_is_none_stops_the_policy(text: str) -> None:
    with pytest.raises(ValueError, match="is no network"):
        EgressPolicy(private_cidrs=(text,))


def test_numbers_that_make_no_sense_stop_the_policy() -> None:
    with pytest.raises(ValueError, match="total_timeout_ms"):
        EgressPolicy(total_timeout_ms=0)
    with pytest.raises(ValueError, match="max_redirects"):
        EgressPolicy(max_redirects=-1)
