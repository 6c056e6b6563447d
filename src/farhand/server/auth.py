"""Turning a key into a principal."""

import hashlib
import hmac
import json
from collections import OrderedDict
from typing import Final

from farhand.engine.enrolment import replayed, signature_required
from farhand.engine.ports import Store
from farhand.engine.registry import AGENT_GRANTS, DEFAULT_ORG, Agent
from farhand.engine.requests import Nonce
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.ids import parse_id
from farhand.server import signature
from farhand.server.call import Call
from farhand.server.principal import Principal

KEY_MIN: Final = 16
KEY_MAX: Final = 512
CACHE_MS: Final = 2_000
CACHE_MAX: Final = 50_000
FAILURES_PER_MINUTE: Final = 120
ADDRESSES_MAX: Final = 10_000


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
    """Principals by key, remembered for two seconds or until the registry changes.

    `epoch` counts those changes: what was looked up in an earlier one may have changed since.
    """

    def __init__(self, store: Store, root_token: str, clock: Clock, *, skew_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._skew_ms = skew_ms
        self._root = digest(root_token.encode())
        self.epoch = 0
        self._known: OrderedDict[bytes, tuple[int, int, Principal]] = OrderedDict()
        self._signers: OrderedDict[bytes, tuple[int, int, Agent, Principal | None]] = OrderedDict()
        self._failures: dict[str, list[int]] = {}
        self._users: dict[int, bytes] = {}
        store.registry.changed.append(self._changed)

    def _changed(self) -> None:
        self.epoch += 1

    async def admit(self, call: Call, grant: str) -> None:
        """Note on the call who calls, and since when that is known.

        Raises Problem when the caller is nobody, or may not.
        """
        call.epoch = self.epoch
        if call.signer is not None or call.header(signature.HEADER) is not None:
            call.principal = await self._signed(call)
        else:
            call.principal = await self.principal(call)
        if grant in AGENT_GRANTS:
            call.principal.must_be_agent()
        call.principal.require(grant)

    async def principal(self, call: Call) -> Principal:
        """Who calls. Raises Problem when the key is missing, unknown, revoked or pending."""
        presented = call.header(b"authorization") or b""
        now, epoch = self._clock.monotonic_ms(), self.epoch
        known = self._known.get(presented)
        if known is not None and known[0] == epoch and known[1] > now:
            return known[2]
        key_digest = digest(bearer(call))
        if hmac.compare_digest(key_digest, self._root):
            root = Principal.root(await self._first_user(DEFAULT_ORG))
            self._known[presented] = (epoch, now + CACHE_MS, root)
            return root
        if known is None:
            self._check_failures(call.address, now)
        try:
            principal = await self._look_up(key_digest, call.address, now)
        except Problem:
            self._known.pop(presented, None)
            raise
        self._known[presented] = (epoch, now + CACHE_MS, principal)
        while len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
        return principal

    async def _look_up(self, key_digest: bytes, address: str | None, now: int) -> Principal:
        agent = await self._store.registry.agent_by_key(key_digest)
        if agent is not None:
            principal = await self.principal_of(agent)
            if agent.signing:
                raise signature_required()
            return principal
        key = await self._store.keys.find(key_digest)
        if key is None:
            self._note_failure(address or "", now)
            raise Problem("unauthorized", "this key is not known; check it, or register the agent first")
        user_id = key.user_id or await self._first_user(key.org_id)
        return Principal(
            kind="key", org_id=key.org_id, id=key.id, grants=frozenset(key.grants), user_id=user_id
        )

    async def _first_user(self, org_id: int) -> bytes:
        known = self._users.get(org_id)
        if known is None:
            known = self._users[org_id] = await self._store.registry.first_user(org_id) or b""
        return known

    async def principal_of(self, agent: Agent) -> Principal:
        """An agent as a caller. Raises Problem when it is shut out, or not yet in."""
        if agent.state == "revoked":
            raise Problem("agent-revoked", "this agent has been revoked; ask the owner to issue a new one")
        if agent.state == "pending":
            raise Problem("agent-pending", "the agent waits for approval; register again to see its code")
        registry = self._store.registry
        devices = await registry.devices_of(agent.id)
        # Work for owners asks for a capability: an agent that only prints has no need to know them.
        owners = await registry.owners(agent.id) if agent.capabilities else ()
        return Principal(
            kind="agent",
            org_id=agent.org_id,
            id=agent.id,
            grants=frozenset(json.loads(agent.grants)),
            agent=agent,
            lanes=tuple(d.id for d in devices if d.gone_at is None),
            owner_lanes=owners,
        )

    async def _signed(self, call: Call) -> Principal:
        """Who signed the request. One that was held asks again later, and is not signed again.

        Raises Problem with the reason when the signature is not to be trusted.
        """
        if call.signer is not None:
            agent, principal = await self._signer(call.signer)
            return principal or await self.principal_of(agent)
        signed = signature.read(call)
        signature.check_time(signed, self._clock.now_ms(), self._skew_ms)
        now = self._clock.monotonic_ms()
        agent_id = parse_id(signed.agent)
        try:
            agent, principal = await self._signer(agent_id)
        except Problem:
            self._check_failures(call.address, now)
            self._note_failure(call.address or "", now)
            raise
        signature.check(signed, agent.public_key or b"")
        if not await self._store.first_use(Nonce(org_id=agent.org_id, agent_id=agent.id, nonce=signed.nonce)):
            raise replayed()
        call.signer, call.body_digest = agent.id, signed.body_digest
        return principal or await self.principal_of(agent)

    async def _signer(self, agent_id: bytes | None) -> tuple[Agent, Principal | None]:
        """An agent with a signing key, and its principal while it is let in.

        Raises Problem `unknown-signer` when there is no such agent.
        """
        now, epoch = self._clock.monotonic_ms(), self.epoch
        known = self._signers.get(agent_id or b"")
        if known is not None and known[0] == epoch and known[1] > now:
            return known[2], known[3]
        agent = await self._store.registry.signer(agent_id) if agent_id is not None else None
        if agent is None or agent.public_key is None:
            raise Problem(
                "unknown-signer",
                f"no agent signs under this {signature.AGENT_NAME}; register with the signing key first",
            )
        principal = await self.principal_of(agent) if agent.state not in ("revoked", "pending") else None
        self._signers[agent.id] = (epoch, now + CACHE_MS, agent, principal)
        while len(self._signers) > CACHE_MAX:
            self._signers.popitem(last=False)
        return agent, principal

    def _note_failure(self, address: str, now: int) -> None:
        if address not in self._failures and len(self._failures) >= ADDRESSES_MAX:
            self._failures.clear()
        self._failures.setdefault(address, []).append(now)

    def _check_failures(self, address: str | None, now: int) -> None:
        """Guessing keys is slow: after many failures in a minute an address has to wait.

        Keys that have been seen to be good do not: others may share the address behind a proxy.
        """
        recent = [at for at in self._failures.get(address or "", ()) if at > now - 60_000]
        if recent:
            self._failures[address or ""] = recent
        else:
            self._failures.pop(address or "", None)
        if len(recent) >= FAILURES_PER_MINUTE:
            raise Problem(
                "too-many-keys", "too many requests with unknown keys; wait a minute", retry_after=60
            )
