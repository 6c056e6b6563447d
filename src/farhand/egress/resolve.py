"""Names to addresses: looked up once, every answer checked, and no name used after that."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Protocol

from farhand.egress.addresses import check_address, check_name
from farhand.egress.errors import EgressError
from farhand.egress.policy import EgressPolicy
from farhand.egress.url import Address, Url


class Resolver(Protocol):
    """Where names are looked up."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Every IPv4 and IPv6 address of the name, preferred first.

        Raises OSError (socket.gaierror) when there is no answer.
        """
        ...


class SystemResolver:
    """The machine's own resolver.

    Each look-up has a daemon thread: the event loop's shared pool would be used up by slow name
    servers that an attacker runs, and a hung look-up must not hold up the end of the process.
    `lookups_max` bounds those threads for all who share this object.
    """

    def __init__(self, *, lookups_max: int = 64) -> None:
        self._lookups_max = lookups_max
        self._lookups = 0

    async def resolve(self, host: str) -> Sequence[str]:
        """Every address that getaddrinfo knows. Raises OSError, or EgressError `dns` when busy."""
        if self._lookups >= self._lookups_max:
            raise EgressError("dns", "too many names are being looked up; try again shortly", source="agent")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def deliver(found: list[str] | OSError) -> None:
            self._lookups -= 1
            if answer.done():
                return
            if isinstance(found, OSError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def look_up() -> None:
            found = _addresses_of(host)
            try:
                loop.call_soon_threadsafe(deliver, found)
            except RuntimeError:
                return  # the loop closed while the name server was thinking

        self._lookups += 1
        threading.Thread(target=look_up, name="egress-dns", daemon=True).start()
        return await answer


def _addresses_of(host: str) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError as error:
        return OSError(str(error))
    return [str(entry[4][0]) for entry in found]


def check_target(url: Url, policy: EgressPolicy) -> None:
    """Everything that can be said about a URL without asking the network.

    Raises EgressError `blocked-port`, `blocked-name` or `blocked-address`.
    """
    if policy.ports is not None and url.port not in policy.ports:
        allowed = ", ".join(str(port) for port in policy.ports)
        raise EgressError(
            "blocked-port",
            f"port {url.port} may not be contacted; use one of {allowed}",
            source="policy",
        )
    if url.address is not None:
        check_address(str(url.address), policy, host=url.authority)
    else:
        check_name(url.host, policy)


async def resolve_target(url: Url, policy: EgressPolicy, resolver: Resolver) -> tuple[Address, ...]:
    """The addresses that may be connected to for this URL, in the order to try them.

    One bad answer refuses the whole name: public and private answers together are what a
    rebinding attack looks like. Raises EgressError as `check_target` does, or `dns`.
    """
    check_target(url, policy)
    if url.address is not None:
        return (check_address(str(url.address), policy, host=url.authority),)
    answers = await _look_up(url.host, policy, resolver)
    checked = [check_address(answer, policy, host=url.host) for answer in answers]
    return _order(checked)[: policy.addresses_max]


async def _look_up(host: str, policy: EgressPolicy, resolver: Resolver) -> Sequence[str]:
    limit = asyncio.timeout(policy.dns_timeout_ms / 1000)
    try:
        async with limit:
            answers = await resolver.resolve(host)
    except TimeoutError as error:
        if not limit.expired():
            raise _no_answer(host) from error
        raise EgressError(
            "dns", f"the name server did not answer for {host} in time", source="resolver"
        ) from None
    except OSError as error:
        raise _no_answer(host) from error
    if not answers:
        raise _no_answer(host)
    return answers


def _no_answer(host: str) -> EgressError:
    return EgressError("dns", f"{host} has no address; check the spelling and its DNS", source="resolver")


def _order(addresses: list[Address]) -> tuple[Address, ...]:
    # Families take turns, so that a machine without IPv6 still reaches an IPv4 address within
    # the few that are tried.
    unique = list(dict.fromkeys(addresses))
    first = [a for a in unique if a.version == unique[0].version]
    other = [a for a in unique if a.version != unique[0].version]
    turns = chain.from_iterable(zip_longest(first, other))
    return tuple(address for address in turns if address is not None)
