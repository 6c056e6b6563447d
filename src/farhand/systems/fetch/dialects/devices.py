"""Who calls in the pulsar dialect: a device by its bid, and its session."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from msgspec import UNSET

from farhand.engine.enrolment import SESSION_MS, Pending
from farhand.engine.registry import AgentSession
from farhand.model.errors import Problem
from farhand.protocol.fetch import CAPABILITY, INSECURE_TLS, PRIVATE_IP, TAG_PREFIX
from farhand.protocol.pulsar import BID_MAX, BROWSER_PREFIX, PulsarCapabilities
from farhand.server.auth import CACHE_MAX, CACHE_MS
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.principal import Principal
from farhand.systems.fetch.dialects.words import Refused

REFRESH_MS: Final = 60_000
USER_AGENT_MAX: Final = 500
BID_MIN: Final = 16
SEPARATOR: Final = "\n"
_SESSION: Final = re.compile(r"[0-9a-f]{32}")
# Base64 as Android writes it may come in lines.
_BID: Final = re.compile(r"[\x20-\x7e\r\n]+")
V = TypeVar("V")


class _Known(Generic[V]):
    """What was looked up, for two seconds or until the registry changes."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[int, int, V]] = OrderedDict()

    def get(self, key: bytes, epoch: int, now: int) -> V | None:
        found = self._entries.get(key)
        return found[2] if found is not None and found[0] == epoch and found[1] > now else None

    def put(self, key: bytes, epoch: int, now: int, value: V) -> None:
        self._entries[key] = (epoch, now + CACHE_MS, value)
        if len(self._entries) > CACHE_MAX:
            self._entries.popitem(last=False)

    def drop(self, key: bytes) -> None:
        self._entries.pop(key, None)


class Devices:
    """The devices and sessions of one server."""

    def __init__(self) -> None:
        self._principals: _Known[Principal] = _Known()
        self._sessions: _Known[AgentSession] = _Known()

    async def admit(self, context: Context, call: Call, bid: str | None, user_agent: str | None) -> None:
        """Note on the call which device calls.

        Raises Refused: `bid-required`, `device-pending` with the code that the device is to show,
        `device-not-approved`.
        """
        given = _checked_bid(bid)
        key = hashlib.sha256(given.encode()).digest()
        now, epoch = context.clock.monotonic_ms(), context.auth.epoch
        principal = self._principals.get(key, epoch, now)
        if principal is None:
            self._principals.drop(key)
            principal = await self._present(context, call, given, user_agent)
            self._principals.put(key, epoch, now, principal)
        call.principal, call.epoch = principal, epoch
        context.saw(principal.must_be_agent().id)

    async def _present(self, context: Context, call: Call, bid: str, user_agent: str | None) -> Principal:
        answer = await context.store.registry.present_bid(
            bid,
            address=call.address,
            runtime=_runtime(bid),
            user_agent=None if user_agent is None else user_agent[:USER_AGENT_MAX],
        )
        if isinstance(answer, Pending):
            raise Refused(
                "device-pending",
                "the device waits for approval: have an owner type the code that it shows",
                user_code=answer.user_code,
                expires_in=answer.expires_in_ms // 1000,
            )
        if isinstance(answer, Problem):
            if answer.problem == "inbox-full":
                raise Refused("device-pending", f"the device waits for approval, but {answer.message}")
            raise answer
        return await context.auth.principal_of(answer)

    async def session(self, context: Context, call: Call, text: str | None) -> AgentSession:
        """The device's own live session of this id. Raises Refused `session-unknown`."""
        agent = call.principal.must_be_agent()
        session_id = session_bytes(text)
        now, epoch = context.clock.monotonic_ms(), context.auth.epoch
        key = agent.id + (session_id or b"")
        known = self._sessions.get(key, epoch, now)
        if known is not None and known.expires_at > context.clock.now_ms():
            return known
        found = None
        if session_id is not None:
            found = await context.store.registry.session(agent.id, session_id)
        if found is None:
            raise Refused(
                "session-unknown", "sessionId: is no open session of this device; open a session again"
            )
        self._sessions.put(key, epoch, now, found)
        return found

    async def refreshed(
        self, context: Context, session: AgentSession, said: PulsarCapabilities | None
    ) -> AgentSession:
        """The session with what its device says it can do now, alive for another day."""
        capabilities = session.capabilities if said is None else capabilities_of(said)
        fresh = context.clock.now_ms() - (session.expires_at - SESSION_MS) < REFRESH_MS
        if fresh and capabilities == dict(session.capabilities):
            return session
        found = await context.store.registry.refresh_session(
            session, capabilities, names=names_of(capabilities)
        )
        return self._known_anew(found)

    def _known_anew(self, session: AgentSession | Problem) -> AgentSession:
        if isinstance(session, Problem):
            raise session
        self._sessions.drop(session.agent_id + session.id)
        return session

    async def open(
        self,
        context: Context,
        call: Call,
        text: str | None,
        said: PulsarCapabilities | None,
        user_agent: str | None,
    ) -> AgentSession:
        """The live session of this id with these capabilities, or a new one."""
        agent = call.principal.must_be_agent()
        session_id = session_bytes(text)
        capabilities = capabilities_of(said or PulsarCapabilities())
        found = await context.store.registry.open_session(
            agent.org_id,
            agent.id,
            session_id,
            capabilities,
            None if user_agent is None else user_agent[:USER_AGENT_MAX],
            names=names_of(capabilities),
        )
        return self._known_anew(found)


def session_bytes(text: str | None) -> bytes | None:
    """The session id in a text; None when there is none in it."""
    return bytes.fromhex(text) if text is not None and _SESSION.fullmatch(text) else None


def capabilities_of(said: PulsarCapabilities) -> dict[str, str]:
    """Capabilities as the registry keeps them."""
    kept = {"insecureTLS": said.insecure_tls, "privateIP": said.private_ip}
    if isinstance(said.tags, list) and said.tags:
        kept["tags"] = SEPARATOR.join(sorted(set(said.tags)))
    return kept


def names_of(kept: Mapping[str, str]) -> frozenset[str]:
    """What jobs may ask of a session: several sessions of a device may differ."""
    names = {CAPABILITY}
    if kept.get("insecureTLS") == "accept":
        names.add(INSECURE_TLS)
    if kept.get("privateIP") == "accept":
        names.add(PRIVATE_IP)
    names.update(TAG_PREFIX + tag for tag in kept.get("tags", "").split(SEPARATOR) if tag)
    return frozenset(names)


def shown_capabilities(kept: Mapping[str, str]) -> PulsarCapabilities:
    """Capabilities as the device said them."""
    tags = kept.get("tags", "")
    return PulsarCapabilities(
        insecure_tls=kept.get("insecureTLS", "ignore"),
        private_ip=kept.get("privateIP", "ignore"),
        tags=tags.split(SEPARATOR) if tags else UNSET,
    )


def _checked_bid(bid: str | None) -> str:
    if bid is None or not bid:
        raise Refused("bid-required", "bid: is required: the identifier of the device")
    if not BID_MIN <= len(bid) <= BID_MAX or not _BID.fullmatch(bid):
        raise Refused("bid-required", f"bid: has {BID_MIN} to {BID_MAX} printable ASCII characters")
    return bid


def _runtime(bid: str) -> str:
    return "browser" if bid.startswith(BROWSER_PREFIX) else "android-bridge"
