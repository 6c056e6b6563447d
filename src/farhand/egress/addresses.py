"""Which names and addresses may be contacted: nothing but the public Internet by default.

The tables follow the IANA special-purpose registries and the clouds' published metadata
addresses. The standard library's `is_global` is not used: its answers differ between patch
releases and let multicast, translated and metadata addresses through.
"""

import ipaddress

from farhand.egress.errors import EgressError
from farhand.egress.policy import EgressPolicy, Network, parse_networks
from farhand.egress.url import Address

_LOOPBACK = parse_networks(("127.0.0.0/8", "::1/128"))

# No list of ranges opens these: they are this machine, the link, everybody, or a way to spell
# another address; or they hand out the machine's cloud credentials.
_NEVER = parse_networks(
    (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "::/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
        "fd00:ec2::/32",
        "fd20:ce::/32",
        "fe80::/10",
        "ff00::/8",
    )
)
_NOT_PUBLIC_V4 = parse_networks(
    (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
    )
)
_PUBLIC_V6 = parse_networks(("2000::/3",))
_NOT_PUBLIC_V6 = parse_networks(("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_METADATA_NAMES = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
    }
)
_LOCAL_SUFFIXES = (".local", ".localdomain", ".internal", ".home.arpa", ".lan")


def check_name(host: str, policy: EgressPolicy) -> None:
    """Refuse names that only make sense inside somebody's network.

    Advice that gives an early answer; the control is `check_address`. Raises EgressError
    `blocked-name`.
    """
    denied = (name.lower().strip(".") for name in policy.denied_names)
    if host in _METADATA_NAMES or any(host == d or host.endswith(f".{d}") for d in denied):
        raise _blocked_name(host)
    if host == "localhost" or host.endswith(".localhost"):
        if not policy.loopback:
            raise _blocked_name(host)
        return
    local = "." not in host or host.endswith(_LOCAL_SUFFIXES)
    if local and not policy.private_cidrs:
        raise _blocked_name(host)


def check_address(text: str, policy: EgressPolicy, *, host: str) -> Address:
    """The address to connect to for this answer of the resolver (or literal host).

    An IPv4 address mapped into IPv6 is returned as IPv4. Raises EgressError `blocked-address`
    without naming the address, so that answers do not map somebody's network.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise _blocked_address(host) from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise _blocked_address(host)
        address = address.ipv4_mapped or address
    if not _is_open(address, policy):
        raise _blocked_address(host)
    return address


def opens_nothing(network: str) -> bool:
    """Whether a range that an operator lists holds nothing that a list can open.

    Raises ValueError when it is no network.
    """
    found = ipaddress.ip_network(network)
    return any(_is_part(found, shut) for shut in (*_LOOPBACK, *_NEVER))


def own_address_refused(host: str) -> EgressError:
    """The error for a target that turns out to be this very machine."""
    return _blocked_address(host)


def _is_open(address: Address, policy: EgressPolicy) -> bool:
    if _within(address, parse_networks(policy.denied_cidrs)):
        return False
    if _within(address, _LOOPBACK):
        return policy.loopback
    if policy.nat64 and isinstance(address, ipaddress.IPv6Address) and address in _NAT64:
        inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return not _within(inside, parse_networks(policy.denied_cidrs)) and _is_public(inside)
    if _within(address, _NEVER):
        return False
    return _within(address, parse_networks(policy.private_cidrs)) or _is_public(address)


def _is_public(address: Address) -> bool:
    if _within(address, _LOOPBACK) or _within(address, _NEVER):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not _within(address, _NOT_PUBLIC_V4)
    return _within(address, _PUBLIC_V6) and not _within(address, _NOT_PUBLIC_V6)


def _is_part(network: Network, whole: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(whole, ipaddress.IPv4Network) and network.subnet_of(whole)
    return isinstance(whole, ipaddress.IPv6Network) and network.subnet_of(whole)


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _blocked_name(host: str) -> EgressError:
    return EgressError(
        "blocked-name",
        f"{host} is not a public name; use one that resolves on the Internet,"
        " or ask the operator to open its range",
        source="policy",
    )


def _blocked_address(host: str) -> EgressError:
    return EgressError(
        "blocked-address",
        f"{host} leads to an address that must not be contacted from here;"
        " use a public address, or ask the operator to open its range",
        source="policy",
    )
