"""Connections to checked addresses and to nothing else."""
# ruff: noqa: ASYNC109 (the timeout parameters are httpcore2's interface)

import asyncio
import hashlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import httpcore2
import httpx2

from farhand.egress.addresses import own_address_refused
from farhand.egress.errors import CertificateRefused, EgressError
from farhand.egress.meter import Meter, too_slow
from farhand.egress.policy import EgressPolicy
from farhand.egress.url import Address, Url


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsInfo:
    """How the connection is protected.

    `reason` says why it is not verified; `fingerprint` is the SHA-256 of the target's
    certificate in hexadecimal.
    """

    version: str
    verified: bool
    reason: str | None
    fingerprint: str | None


def tls_context(policy: EgressPolicy) -> ssl.SSLContext:
    """The system's trust store plus the policy's `ca_file`, regardless of the environment.

    Costs some milliseconds: callers with many requests keep it and hand it to `request`. Raises
    EgressError `tls` when `ca_file` cannot be read.
    """
    context = httpx2.create_ssl_context(verify=True, trust_env=False)
    if policy.ca_file is None:
        return context
    try:
        context.load_verify_locations(policy.ca_file)
    except OSError as error:
        raise EgressError(
            "tls", f"ca_file {policy.ca_file} cannot be read as PEM certificates", source="agent"
        ) from error
    return context


def unverified_context() -> ssl.SSLContext:
    """A context that accepts any certificate, for one connection that was asked for as such."""
    return httpx2.create_ssl_context(verify=False, trust_env=False)


class Dial:
    """What one attempt to connect may use, and what it found out. Times are milliseconds."""

    def __init__(
        self,
        *,
        url: Url,
        addresses: tuple[Address, ...],
        policy: EgressPolicy,
        meter: Meter,
        unverified_reason: str | None = None,
        on_send: Callable[[], None] | None = None,
    ) -> None:
        self.url = url
        self.addresses = addresses
        self.policy = policy
        self.meter = meter
        self.unverified_reason = unverified_reason
        self.on_send = on_send
        self.remote_address: str | None = None
        self.tls: TlsInfo | None = None
        self.connect_ms = 0
        self.tls_ms: int | None = None


class MeteredStream(httpcore2.AsyncNetworkStream):
    """A connection whose reads are counted and must keep moving."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, dial: Dial) -> None:
        self._inner = inner
        self._dial = dial

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; empty at the end. Raises EgressError `timeout` or `too-large`."""
        meter = self._dial.meter
        patience_ms = meter.patience_ms()
        began_ms = meter.now_ms()
        limit = asyncio.timeout(patience_ms and patience_ms / 1000)
        try:
            async with limit:
                data = await self._inner.read(max_bytes, timeout)
        except TimeoutError as error:
            raise (too_slow(self._dial.policy) if limit.expired() else _broken()) from error
        except (ssl.SSLError, OSError) as error:
            raise _broken() from error
        meter.arrived(data, waited_ms=meter.now_ms() - began_ms)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all bytes. Raises httpcore2.WriteError when the target has hung up."""
        if self._dial.on_send is not None:
            self._dial.on_send()
        try:
            await self._inner.write(buffer, timeout)
        except (ssl.SSLError, OSError) as error:
            raise httpcore2.WriteError(error) from error

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """The handshake, for the name in the URL. Raises EgressError `tls` or `timeout`."""
        dial = self._dial
        began_ms = dial.meter.now_ms()
        try:
            stream = await self._inner.start_tls(ssl_context, dial.url.host, timeout)
        except BaseException as error:
            await self._inner.aclose()
            if not isinstance(error, Exception):
                raise
            raise _tls_error(error, dial.url.host) from error
        dial.tls_ms = dial.meter.now_ms() - began_ms
        dial.tls = _tls_info(stream, dial.unverified_reason)
        return MeteredStream(stream, dial)

    def get_extra_info(self, info: str) -> Any:
        """What the connection underneath knows."""
        return self._inner.get_extra_info(info)


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses of its `Dial`; the name it is asked for is never looked up."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._tcp = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """The first address that accepts.

        Raises EgressError `connect` or `timeout` when none does, `blocked-address` when the
        other end is not the address that was checked or is this machine.
        """
        url = self._dial.url
        if (host, port) != (url.host, url.port):
            raise EgressError(
                "protocol", f"a connection to {host} was not checked beforehand", source="agent"
            )
        failures: list[Exception] = []
        for address in self._dial.addresses:
            try:
                return await self._connect(address, port)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failures.append(error)
        timed_out = all(isinstance(error, httpcore2.ConnectTimeout) for error in failures)
        raise EgressError(
            "timeout" if timed_out else "connect",
            f"no address of {url.authority} accepted a connection; check that it is up",
            source="target",
        ) from failures[-1]

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Always refused: local sockets are no targets."""
        raise EgressError("protocol", "local sockets cannot be requested", source="policy")

    async def sleep(self, seconds: float) -> None:
        """Wait, for the library's own retries (which are off)."""
        await asyncio.sleep(seconds)

    async def _connect(self, address: Address, port: int) -> httpcore2.AsyncNetworkStream:
        dial = self._dial
        if not dial.policy.loopback and is_own_address(address):
            raise own_address_refused(dial.url.host)
        began_ms = dial.meter.now_ms()
        stream = await self._tcp.connect_tcp(
            str(address), port, timeout=dial.policy.connect_timeout_ms / 1000
        )
        try:
            check_peer(stream.get_extra_info("socket"), address, dial)
        except BaseException:
            await stream.aclose()
            raise
        dial.connect_ms = dial.meter.now_ms() - began_ms
        dial.remote_address = str(address)
        return MeteredStream(stream, dial)


def check_peer(connected: socket.socket, address: Address, dial: Dial) -> None:
    """Compare what the kernel connected to with what was checked.

    Raises EgressError `blocked-address` when they differ, or when both ends are this machine.
    """
    peer = ipaddress.ip_address(str(connected.getpeername()[0]))
    here = ipaddress.ip_address(str(connected.getsockname()[0]))
    if peer != address or (peer == here and not dial.policy.loopback):
        raise own_address_refused(dial.url.host)


def is_own_address(address: Address) -> bool:
    """Whether this machine would talk to itself at this address. Sends nothing.

    The kernel chooses the target address as source exactly when the target is local; asking it
    with an unconnected datagram socket tells so before any port is touched.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(str(probe.getsockname()[0])) == address
    except OSError:
        return False  # no route or no such family: connecting will say so


def _broken() -> EgressError:
    return EgressError(
        "protocol", "the connection broke before the whole answer had arrived", source="target"
    )


def _tls_error(error: Exception, host: str) -> EgressError:
    if isinstance(error, httpcore2.ConnectTimeout):
        return EgressError("timeout", f"the TLS handshake with {host} took too long", source="target")
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = cause.verify_message
        return CertificateRefused(f"the certificate of {host} does not verify: {reason}", reason=reason)
    return EgressError("tls", f"{host} does not complete a TLS handshake", source="target")


def _tls_info(stream: httpcore2.AsyncNetworkStream, unverified_reason: str | None) -> TlsInfo:
    session: ssl.SSLObject = stream.get_extra_info("ssl_object")
    certificate = session.getpeercert(binary_form=True)
    return TlsInfo(
        version=session.version() or "unknown",
        verified=unverified_reason is None,
        reason=unverified_reason,
        fingerprint=hashlib.sha256(certificate).hexdigest() if certificate else None,
    )
