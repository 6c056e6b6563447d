"""What outgoing requests are allowed to do. Everything that is not opened here is shut."""

import ipaddress
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MIB = 1024 * 1024


def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """CIDR texts as networks. Raises ValueError naming the entry that is none."""
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is no network; write it like 10.1.0.0/16") from error
    return tuple(networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """The rules for requests to addresses that somebody else chose.

    Times are milliseconds, sizes are bytes. `ports=None` opens every port.

    `private_cidrs` opens ranges of the operator's own and, with them, local names such as
    `nas.local`; it never opens loopback, link-local, metadata, multicast or unspecified
    addresses, nor translation prefixes, nor this machine itself. `loopback` opens 127.0.0.0/8,
    ::1, `localhost` and this machine's own addresses: it is meant for local development only.
    `denied_cidrs` and `denied_names` (a name covers its subdomains) win over everything, and are
    where a control plane's own public address and name belong. `nat64` accepts 64:ff9b::/96
    when the address inside is public.

    `connect_timeout_ms` holds for each address tried; `total_timeout_ms` for everything, name
    look-up and redirects included. `wire_bytes_max` counts the body as it arrives,
    `decoded_bytes_max` what is delivered. `allow_insecure_tls` only permits a caller to ask for
    `insecure_tls`. `allowed_headers` lifts the refusal of `Forwarded` and its relatives by name.
    Raises ValueError when a network or a number makes no sense.
    """

    ports: tuple[int, ...] | None = (80, 443)
    private_cidrs: tuple[str, ...] = ()
    denied_cidrs: tuple[str, ...] = ()
    denied_names: tuple[str, ...] = ()
    loopback: bool = False
    nat64: bool = False
    follow_redirects: bool = True
    max_redirects: int = 5
    addresses_max: int = 4
    total_timeout_ms: int = 30_000
    dns_timeout_ms: int = 5_000
    connect_timeout_ms: int = 5_000
    wire_bytes_max: int = 10 * MIB
    decoded_bytes_max: int = 10 * MIB
    ratio_max: int = 100
    ratio_after_bytes: int = MIB
    min_rate_bytes_per_s: int = 1024
    min_rate_after_ms: int = 10_000
    allow_insecure_tls: bool = False
    ca_file: str | None = None
    allowed_headers: tuple[str, ...] = ()
    user_agent: str = "farhand"

    def __post_init__(self) -> None:
        parse_networks(self.private_cidrs)
        parse_networks(self.denied_cidrs)
        for field in _POSITIVE:
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1")
        if self.max_redirects < 0:
            raise ValueError("max_redirects must be at least 0")


_POSITIVE = (
    "addresses_max",
    "total_timeout_ms",
    "dns_timeout_ms",
    "connect_timeout_ms",
    "wire_bytes_max",
    "decoded_bytes_max",
    "ratio_max",
    "ratio_after_bytes",
    "min_rate_bytes_per_s",
    "min_rate_after_ms",
)
