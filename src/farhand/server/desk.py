"""What a system needs from the server to turn a request into a job."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from farhand.egress.connect import tls_context
from farhand.egress.errors import EgressError
from farhand.egress.payload import fetch_payload
from farhand.egress.policy import EgressPolicy
from farhand.egress.resolve import SystemResolver
from farhand.engine.farms import Farm
from farhand.engine.ports import Payloads, Store
from farhand.engine.registry import Agent, Device
from farhand.engine.requests import Submitted
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.ids import parse_id
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
    """A decoded and checked request. `canonical` makes what its fingerprint is made from.

    `idempotency_key` is one that stands in the body; a header says the same. `policy` is one of
    this job's own, made from that in force. `more` tells what the reply says beside the job.
    """

    submission: Submission
    canonical: Callable[[], bytes]
    payload_url: PayloadUrl | None = None
    idempotency_key: str | None = None
    policy: Policy | None = None
    more: Callable[[Any, Any, Submitted], Awaitable[dict[str, Any]]] | None = None


Decoder = Callable[[bytes, Principal, "Desk"], Awaitable[Prepared]]


class Desk:
    """Agents, devices, policies and payload storage, as `submit` functions see them.

    `declared` is what each system's `configure` found, by the system's name.
    """

    def __init__(
        self,
        *,
        store: Store,
        payloads: Payloads,
        config: ServerConfig,
        policies: dict[str, Policy],
        clock: Clock,
        declared: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.clock = clock
        self.declared = declared or {}
        self._store = store
        self._payloads = payloads
        self._config = config
        self._policies = policies
        self._devices: dict[bytes, Device] = {}
        self._agents: dict[tuple[int, bytes | str], Agent] = {}
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
        self._agents.clear()

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

    async def farm(self, org_id: int, text: str) -> Farm | None:
        """A farm of the caller's tenant, by its id or its name."""
        return await self._store.farms.find(org_id, text)

    async def agent(self, org_id: int, agent_id: bytes) -> Agent | None:
        """An agent of the caller's tenant; when it was last seen may be out of date."""
        return await self._agent(org_id, agent_id, self._store.registry.agent)

    async def find_agent(self, org_id: int, text: str) -> Agent | None:
        """An agent by its id, or by the name of one in force."""
        agent_id = parse_id(text)
        found = await self.agent(org_id, agent_id) if agent_id is not None else None
        return found or await self._agent(org_id, text, self._store.registry.agent_by_name)

    async def _agent(
        self, org_id: int, key: Any, look_up: Callable[[int, Any], Awaitable[Agent | None]]
    ) -> Agent | None:
        known = self._agents.get((org_id, key))
        if known is not None:
            return known
        epoch = self._epoch
        found = await look_up(org_id, key)
        if len(self._agents) >= DEVICES_MAX:
            self._agents.clear()
        if found is not None and epoch == self._epoch:
            self._agents[org_id, key] = found
        return found

    async def owns(self, principal: Principal, agent: Agent) -> bool:
        """Whether work may be sent to this very agent: by its owners, and by the root token."""
        if principal.kind == "root":
            return True
        return principal.user_id in await self._store.registry.owners(agent.id)

    async def declared_capabilities(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the capability names that some agent has declared, or some job required."""
        return await self._store.declared(names)

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
