"""Turning a key into a principal."""

import hashlib
import hmac
import json
from collections import OrderedDict
from typing import Final

from farhand.engine.registry import Agent
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.server.call import Call
from farhand.server.principal import Principal
from farhand.storage.store import Store

KEY_MIN: Final = 16
KEY_MAX: Final = 512
CACHE_MS: Final = 2_000
CACHE_MAX: Final = 50_000
FAILURES_PER_MINUTE: Final = 120


def bearer(call: Call) -> bytes:
    """The presented key. Raises Problem `unauthorized` when there is none of a usable form."""
    value = call.header(b"authorization")
    if value is None:
        raise Problem("unauthorized", "send the key as 'Authorization: Bearer KEY'")
    scheme, _, key = value.partition(b" ")
    key = key.strip()
    if scheme.lower() != b"bearer" or not key:
        raise Problem("unauthorized", "send the key as 'Authorization: Bearer KEY'")
    if not KEY_MIN <= len(key) <= KEY_MAX:
        raise Problem("unauthorized", f"a key has {KEY_MIN} to {KEY_MAX} characters")
    return key


def digest(key: bytes) -> bytes:
    """What is stored of a key: keys carry 256 random bits, so a plain SHA-256 is enough."""
    return hashlib.sha256(key).digest()


class Authenticator:
    """Principals by key, remembered for two seconds and forgotten when the registry changes."""

    def __init__(self, store: Store, root_token: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._root = digest(root_token.encode())
        self._known: OrderedDict[bytes, tuple[int, Principal]] = OrderedDict()
        self._failures: dict[str, list[int]] = {}
        store.registry.changed.append(self._known.clear)

    async def principal(self, call: Call) -> Principal:
        """Who calls. Raises Problem when the key is missing, unknown, revoked or pending."""
        key_digest = digest(bearer(call))
        now = self._clock.now_ms()
        known = self._known.get(key_digest)
        if known is not None and known[0] > now:
            return known[1]
        principal = await self._look_up(key_digest, call.address, now)
        self._known[key_digest] = (now + CACHE_MS, principal)
        while len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
        return principal

    async def _look_up(self, key_digest: bytes, address: str | None, now: int) -> Principal:
        if hmac.compare_digest(key_digest, self._root):
            return Principal.root()
        self._check_failures(address, now)
        agent = await self._store.registry.agent_by_key(key_digest)
        if agent is not None:
            return await self._of_agent(agent)
        key = await self._store.keys.find(key_digest)
        if key is None:
            self._failures.setdefault(address or "", []).append(now)
            raise Problem("unauthorized", "this key is not known; check it, or register the agent first")
        return Principal(kind="key", org_id=key.org_id, id=key.id, grants=frozenset(key.grants))

    async def _of_agent(self, agent: Agent) -> Principal:
        if agent.state == "revoked":
            raise Problem("agent-revoked", "this agent has been revoked; ask the owner to issue a new one")
        if agent.state == "pending":
            raise Problem("agent-pending", "the agent waits for approval; register again to see its code")
        devices = await self._store.registry.devices_of(agent.id)
        return Principal(
            kind="agent",
            org_id=agent.org_id,
            id=agent.id,
            grants=frozenset(json.loads(agent.grants)),
            agent=agent,
            lanes=tuple(d.id for d in devices if d.gone_at is None),
        )

    def _check_failures(self, address: str | None, now: int) -> None:
        """Guessing keys is slow: after many failures in a minute an address has to wait."""
        recent = [at for at in self._failures.get(address or "", ()) if at > now - 60_000]
        if recent:
            self._failures[address or ""] = recent
        else:
            self._failures.pop(address or "", None)
        if len(recent) >= FAILURES_PER_MINUTE:
            raise Problem(
                "too-many-waits", "too many requests with unknown keys; wait a minute", retry_after=60
            )
