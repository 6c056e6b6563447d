"""What the routes share: the parts of one running server."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from farhand.engine.ports import Payloads, Store
from farhand.engine.wakeups import Ticket
from farhand.model.clock import Clock
from farhand.model.errors import Problem
from farhand.model.system import System
from farhand.server.auth import Authenticator
from farhand.server.config import ServerConfig
from farhand.server.desk import Decoder, Desk
from farhand.server.hooks import Hooks
from farhand.server.routes import Table


@dataclass(slots=True, kw_only=True)
class Context:
    """One running server. `submitters` maps a client's `type` to the system that decodes it."""

    config: ServerConfig
    store: Store
    payloads: Payloads
    clock: Clock
    auth: Authenticator
    desk: Desk
    systems: tuple[System, ...]
    submitters: dict[str, Decoder]
    hooks: Hooks = field(default_factory=Hooks)
    table: Table = field(default_factory=lambda: Table(()))
    held: "HeldPolls"
    seen: dict[bytes, int] = field(default_factory=dict[bytes, int])
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter[tuple[str, str, int]])
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def saw(self, agent_id: bytes) -> None:
        """Note that an agent is there; written down in batches."""
        self.seen[agent_id] = self.clock.now_ms()

    def close(self) -> None:
        """Answer held requests so that the server can go."""
        self.closing.set()
        self.store.hub.close()


class HeldPolls:
    """Bounds on held requests: per agent the newest win, in total a ceiling, per key a ceiling."""

    def __init__(self, *, total: int, per_agent: int, per_key: int) -> None:
        self.count = 0
        self._total = total
        self._per_agent = per_agent
        self._per_key = per_key
        self._agents: dict[bytes, deque[Ticket]] = {}
        self._waits: Counter[bytes | None] = Counter()

    def enter(self, agent_id: bytes, ticket: Ticket) -> None:
        """Hold one more poll of an agent; its oldest is answered when it has too many.

        The same poll asked again ends the one before it, whose caller can only have hung up.
        Raises Problem `busy` when the server holds as many as it may.
        """
        self._check_total()
        self.count += 1
        mine = self._agents.setdefault(agent_id, deque())
        poll_id = ticket.request.poll_id
        for older in [t for t in mine if poll_id is not None and t.request.poll_id == poll_id]:
            mine.remove(older)
            older.dismiss()
        mine.append(ticket)
        if len(mine) > self._per_agent:
            mine.popleft().dismiss()

    def leave(self, agent_id: bytes, ticket: Ticket) -> None:
        """The poll is answered."""
        self.count -= 1
        mine = self._agents.get(agent_id)
        if mine is None:
            return
        with contextlib.suppress(ValueError):
            mine.remove(ticket)
        if not mine:
            del self._agents[agent_id]

    def dismiss(self, agent_id: bytes) -> None:
        """Answer the polls of an agent that shall get nothing more, or be told so."""
        for ticket in self._agents.pop(agent_id, ()):
            ticket.dismiss()

    @property
    def agents(self) -> Iterable[bytes]:
        """The agents whose polls are held."""
        return self._agents.keys()

    @property
    def full(self) -> bool:
        """Whether the server holds as many requests as it may."""
        return self.count >= self._total

    def _check_total(self) -> None:
        if self.full:
            raise Problem(
                "busy", "the server holds as many requests as it may; ask again shortly", retry_after=5
            )

    @contextlib.contextmanager
    def waiting(self, key: bytes | None) -> Generator[None]:
        """Hold one more client request while the block runs.

        Raises Problem `too-many-waits` beyond the key's bound, `busy` beyond the server's.
        """
        self._check_total()
        if self._waits[key] >= self._per_key:
            message = f"this key already holds {self._per_key} waiting requests; let one return first"
            raise Problem("too-many-waits", message, retry_after=1)
        self.count += 1
        self._waits[key] += 1
        try:
            yield
        finally:
            self.count -= 1
            self._waits[key] -= 1
            if self._waits[key] <= 0:
                del self._waits[key]
