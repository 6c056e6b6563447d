"""What a system needs from the server to turn a request into a job."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from farhand.egress.connect import tls_context
from farhand.egress.errors import EgressError
from farhand.egress.payload import fetch_payload
from farhand.egress.policy import EgressPolicy
from farhand.egress.resolve import SystemResolver
from farhand.engine.ports import Payloads, Store
from farhand.engine.registry import Device
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.job import Submission
from farhand.model.policy import Policy
from farhand.server.config import ServerConfig
from farhand.server.principal import Principal

DEVICES_MAX = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadUrl:
    """Where a payload has to be fetched from; with `json_body` by POST."""

    url: str
    json_body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A decoded and checked request. `canonical` makes what its fingerprint is made from."""

    submission: Submission
    canonical: Callable[[], bytes]
    payload_url: PayloadUrl | None = None


Decoder = Callable[[bytes, Principal, "Desk"], Awaitable[Prepared]]


class Desk:
    """Devices, policies and payload storage, as `submit` functions see them."""

    def __init__(
        self,
        *,
        store: Store,
        payloads: Payloads,
        config: ServerConfig,
        policies: dict[str, Policy],
        clock: Clock,
    ) -> None:
        self.clock = clock
        self._store = store
        self._payloads = payloads
        self._config = config
        self._policies = policies
        self._devices: dict[bytes, Device] = {}
        self._egress = EgressPolicy(
            ports=tuple(int(port) for port in config.payload_ports) or None,
            private_cidrs=config.payload_private_cidrs,
            loopback=config.payload_loopback,
            total_timeout_ms=config.payload_fetch_ms,
        )
        self._resolver = SystemResolver()
        self._tls = tls_context(self._egress)
        self._epoch = 0
        store.registry.changed.append(self._registry_changed)

    def _registry_changed(self) -> None:
        self._epoch += 1
        self._devices.clear()

    def policy(self, name: str) -> Policy:
        """The policy in force under a name. Raises LookupError for an unknown one."""
        return self._policies[name]

    @property
    def policies(self) -> dict[str, Policy]:
        """All policies in force, by name."""
        return self._policies

    async def device(self, org_id: int, device_id: bytes) -> Device | None:
        """A device of the caller's tenant."""
        known = self._devices.get(device_id)
        if known is None:
            epoch = self._epoch
            known = await self._store.registry.device(org_id, device_id)
            if known is None:
                return None
            if len(self._devices) >= DEVICES_MAX:
                self._devices.clear()
            if epoch == self._epoch:
                self._devices[device_id] = known
        return known if known.org_id == org_id else None

    def payload_limit(self, policy: Policy) -> int:
        """The largest payload in bytes that this kind may have here."""
        return min(policy.payload_bytes_max, self._config.payload_bytes_max)

    @property
    def body_limit(self) -> int:
        """The largest request body: base64 takes a third more than what it carries."""
        return self._config.payload_bytes_max * 4 // 3 + 256 * 1024

    def is_inline(self, size: int) -> bool:
        """Whether a payload of this size lies in the database."""
        return size <= self._config.payload_inline_max

    async def keep(self, body: bytes, limit: int) -> tuple[bytes, int]:
        """Put a payload into the payload store; its SHA-256 and size."""

        async def chunks() -> AsyncGenerator[bytes]:
            yield body

        return await self._payloads.put(chunks(), limit)

    async def fetch(self, source: PayloadUrl, limit: int) -> tuple[bytes, int]:
        """Fetch a payload through the egress guard into the payload store; its SHA-256 and size.

        Raises Problem `payload-fetch-failed` that says why and whose doing it was.
        """
        pipe = _Pipe()
        storing = asyncio.create_task(self._payloads.put(pipe.chunks(), limit))
        storing.add_done_callback(pipe.reader_gone)
        try:
            await fetch_payload(
                source.url,
                json_body=source.json_body,
                policy=self._egress,
                limit_bytes=limit,
                sink=pipe.write,
                resolver=self._resolver,
                clock=self.clock,
                context=self._tls,
            )
            await pipe.finish()
            return await storing
        except _ReaderGone:
            return await storing
        except EgressError as error:
            raise _fetch_failed(error, limit) from error
        except ValueError as error:
            raise Problem("bad-field", f"json: cannot be sent as JSON: {error}", field="json") from error
        finally:
            # Not cancelled: a thread that is opening a file would leave it behind.
            pipe.break_off()
            with contextlib.suppress(Exception):
                await storing


def _fetch_failed(error: EgressError, limit: int) -> Problem:
    if error.code == "too-large":
        message = f"the payload behind the URL is larger than the limit of {limit} bytes"
        return Problem("payload-too-large", message, limit_bytes=limit, field="url")
    return Problem(
        "payload-fetch-failed",
        f"url: {error.message}",
        field="url",
        fetch_code=error.code,
        failure_source=error.source,
        target_status=error.status,
    )


class _ReaderGone(Exception):
    """The store gave up before the fetch was over."""


class _WriterGone(Exception):
    """The fetch ended before the document did."""


class _Pipe:
    """From the fetch's writes to the store's reads, a few chunks at a time."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=4)
        self._broken = False

    def reader_gone(self, _task: object) -> None:
        """Let nobody wait for a reader that has ended."""
        self._broken = True
        while not self._queue.empty():
            self._queue.get_nowait()

    def break_off(self) -> None:
        """Tell the reader that the rest never comes; nothing happens when it has all of it."""
        self.reader_gone(None)
        self._queue.put_nowait(None)

    async def write(self, chunk: bytes) -> None:
        """Hand on one chunk; waits while the store is slower."""
        await self._queue.put(chunk)
        if self._broken:
            raise _ReaderGone

    async def finish(self) -> None:
        """No more chunks follow."""
        await self._queue.put(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks in order."""
        while (chunk := await self._queue.get()) is not None:
            yield chunk
        if self._broken:
            raise _WriterGone
