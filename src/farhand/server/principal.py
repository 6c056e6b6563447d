"""Who is calling, and what the caller may do."""

from dataclasses import dataclass
from typing import Final, Self

from farhand.engine.registry import CLIENT_GRANTS, Agent
from farhand.model.errors import Problem
from farhand.model.job import Actor

COMMANDS: Final = "commands.process"
ROOT_GRANTS = frozenset(CLIENT_GRANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller: nobody, the root token, an API key of some user, or an agent with its lanes.

    `lanes` are the agent's devices, `owner_lanes` the users that own it.
    """

    kind: str
    org_id: int = 1
    id: bytes | None = None
    grants: frozenset[str] = frozenset()
    agent: Agent | None = None
    lanes: tuple[bytes, ...] = ()
    owner_lanes: tuple[bytes, ...] = ()
    user_id: bytes = b""

    @classmethod
    def root(cls, user_id: bytes = b"") -> Self:
        """The holder of the root token, who acts for the tenant's first user."""
        return cls(kind="root", grants=ROOT_GRANTS, user_id=user_id)

    @property
    def actor(self) -> Actor:
        """How events and the audit log name the caller."""
        return Actor(kind=self.kind, id=self.id)

    def require(self, grant: str) -> None:
        """Raise Problem `forbidden`, naming the grant, when the caller lacks it."""
        if grant not in self.grants:
            raise Problem(
                "forbidden", f"this needs the grant {grant!r}, which the key does not hold", grant=grant
            )

    def must_be_agent(self) -> Agent:
        """The calling agent. Raises Problem when the caller is none."""
        if self.agent is None:
            raise Problem("unauthorized", "this route takes an agent's key; register the agent first")
        return self.agent
