"""The `[fetch]` table of agent.toml."""

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal, cast, get_args
from urllib.parse import urlsplit

from farhand.agent.config import ConfigError
from farhand.egress import EgressPolicy, opens_nothing
from farhand.model.policy import suggest
from farhand.protocol.fetch import CAPABILITY, INSECURE_TLS, PRIVATE_IP, TAG_PREFIX, FetchParams

Word = Literal["ignore", "accept", "refuse"]
Dialect = Literal["native", "pulsar"]
TAG_LENGTH_MAX: Final = 60
TAGS_MAX: Final = 20
CONCURRENCY_MAX: Final = 64
FRAMING_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """What this agent fetches for others, and how.

    `insecure_tls` and `private_ip` are the words of seed 002: `accept` takes such jobs, `ignore`
    and `refuse` do not. `ports` without an entry means every port; `per_host_per_second` 0 means
    no limit.
    """

    dialect: Dialect = "native"
    bid: Path | None = None
    tags: tuple[str, ...] = ()
    concurrency: int = 8
    per_host_per_second: int = 10
    insecure_tls: Word = "ignore"
    private_ip: Word = "ignore"
    private_cidrs: tuple[str, ...] = ()
    ports: tuple[int, ...] = (80, 443)
    denied_names: tuple[str, ...] = ()
    denied_cidrs: tuple[str, ...] = ()
    nat64: bool = False
    ca_file: Path | None = None
    loopback: bool = False

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What a native agent declares when it registers."""
        accepted = {INSECURE_TLS: self.insecure_tls, PRIVATE_IP: self.private_ip}
        return (
            CAPABILITY,
            *(name for name, word in accepted.items() if word == "accept"),
            *(f"{TAG_PREFIX}{tag}" for tag in self.tags),
        )

    def unwilling(self, request: FetchParams) -> str | None:
        """Why this agent does not carry the request out; None when it does."""
        if request.allow_insecure_tls and self.insecure_tls != "accept":
            return f"this agent has insecure_tls = {self.insecure_tls}; it verifies every certificate"
        if request.allow_private_ip and self.private_ip != "accept":
            return f"this agent has private_ip = {self.private_ip}; it contacts public addresses only"
        return None

    def policy(self, request: FetchParams) -> EgressPolicy:
        """What the guard lets this request do. A body past the limit is cropped, not refused."""
        private = self.private_cidrs if request.allow_private_ip and self.private_ip == "accept" else ()
        return EgressPolicy(
            ports=self.ports or None,
            private_cidrs=private,
            denied_names=self.denied_names,
            denied_cidrs=self.denied_cidrs,
            loopback=self.loopback,
            nat64=self.nat64,
            follow_redirects=request.follow_redirects,
            total_timeout_ms=request.timeout_ms,
            wire_bytes_max=request.max_response_bytes + FRAMING_BYTES,
            decoded_bytes_max=request.max_response_bytes,
            allow_insecure_tls=request.allow_insecure_tls and self.insecure_tls == "accept",
            ca_file=None if self.ca_file is None else str(self.ca_file),
        )


def read_settings(table: Mapping[str, object], folder: Path, server: str) -> FetchSettings:
    """Settings from the table; relative paths start in `folder`. The server is no target.

    Raises ConfigError naming the setting, and the nearest known one, when it does not fit.
    """
    known = [field.name for field in fields(FetchSettings)]
    for key in table:
        if key not in known:
            raise ConfigError(f"[fetch] has no setting {key!r}{suggest(key, known)}")
    found = FetchSettings(
        dialect=cast("Dialect", _one_of(table, "dialect", "native", get_args(Dialect))),
        bid=_path(table, "bid", folder),
        tags=_tags(table),
        concurrency=_number(table, "concurrency", 8, low=1, high=CONCURRENCY_MAX),
        per_host_per_second=_number(table, "per_host_per_second", 10, low=0, high=10_000),
        insecure_tls=cast("Word", _one_of(table, "insecure_tls", "ignore", get_args(Word))),
        private_ip=cast("Word", _one_of(table, "private_ip", "ignore", get_args(Word))),
        private_cidrs=_networks(table, "private_cidrs"),
        ports=_ports(table),
        denied_names=(*_texts(table, "denied_names"), *_name_of(server)),
        denied_cidrs=(*_networks(table, "denied_cidrs"), *_network_of(server)),
        nat64=_flag(table, "nat64"),
        ca_file=_path(table, "ca_file", folder),
        loopback=_flag(table, "loopback"),
    )
    _check_together(found, server)
    return found


def _check_together(found: FetchSettings, server: str) -> None:
    if found.private_ip == "accept" and not found.private_cidrs:
        raise ConfigError(
            '[fetch] private_ip = "accept" opens only what private_cidrs lists; '
            'list your ranges there, such as ["10.1.0.0/16"]'
        )
    for network in found.private_cidrs:
        if opens_nothing(network):
            raise ConfigError(
                f"[fetch] private_cidrs: {network} is loopback, link-local, metadata or no "
                "address of one machine, and is never opened; leave it out"
            )
    if found.loopback and not _is_loopback(server):
        raise ConfigError(
            "[fetch] loopback opens this machine to whoever may submit jobs, and is for development "
            f"with a server on this machine; {server} is none, so leave it out"
        )
    if found.ca_file is not None:
        _check_certificates(found.ca_file)
    if found.bid is not None and found.dialect != "pulsar":
        raise ConfigError('[fetch] bid is for dialect = "pulsar"; leave it out')


def _check_certificates(path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[fetch] ca_file {path} cannot be read as PEM certificates: {error}") from error


def _host(server: str) -> str:
    return (urlsplit(server).hostname or "").rstrip(".")


def _address(server: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(_host(server))
    except ValueError:
        return None


def _is_loopback(server: str) -> bool:
    address = _address(server)
    host = _host(server)
    return address.is_loopback if address else host == "localhost" or host.endswith(".localhost")


def _name_of(server: str) -> tuple[str, ...]:
    return () if _address(server) or _is_loopback(server) else (_host(server),)


def _network_of(server: str) -> tuple[str, ...]:
    address = _address(server)
    return () if address is None or address.is_loopback else (str(address),)


def _one_of(table: Mapping[str, object], key: str, default: str, words: tuple[str, ...]) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or value not in words:
        raise ConfigError(
            f"[fetch] {key} must be {' or '.join(words)}, got {value!r}{suggest(str(value), words)}"
        )
    return value


def _flag(table: Mapping[str, object], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"[fetch] {key} must be true or false, got {value!r}")
    return value


def _number(table: Mapping[str, object], key: str, default: int, *, low: int, high: int) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"[fetch] {key} must be a whole number from {low} to {high}, got {value!r}")
    return value


def _path(table: Mapping[str, object], key: str, folder: Path) -> Path | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"[fetch] {key} must be the path of a file, got {value!r}")
    return folder / Path(value).expanduser()


def _list(table: Mapping[str, object], key: str) -> list[object]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise ConfigError(f"[fetch] {key} must be a list, got {value!r}")
    return cast("list[object]", value)


def _texts(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    entries = _list(table, key)
    for entry in entries:
        if not isinstance(entry, str) or not entry.strip():
            raise ConfigError(f"[fetch] {key} must be a list of texts that are not empty, got {entry!r}")
    return tuple(str(entry).strip() for entry in entries)


def _tags(table: Mapping[str, object]) -> tuple[str, ...]:
    tags = _texts(table, "tags")
    for tag in tags:
        if len(tag) > TAG_LENGTH_MAX or not tag.isprintable():
            raise ConfigError(f"[fetch] tags: {tag!r} must be at most {TAG_LENGTH_MAX} printable characters")
    if len(tags) > TAGS_MAX:
        raise ConfigError(f"[fetch] tags: {len(tags)} are too many; keep to {TAGS_MAX}")
    return tags


def _networks(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    texts = _texts(table, key)
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise ConfigError(
                f"[fetch] {key}: {text!r} is no network ({error}); write it like 10.1.0.0/16"
            ) from error
    return texts


def _ports(table: Mapping[str, object]) -> tuple[int, ...]:
    if "ports" not in table:
        return (80, 443)
    ports = _list(table, "ports")
    for port in ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise ConfigError(f"[fetch] ports must be a list of numbers from 1 to 65535, got {port!r}")
    return tuple(cast("list[int]", ports))
