"""Commands: one backend asks another to act, without ever calling it."""

from typing import Final

from farhand.model.secret import Secret
from farhand.model.system import System
from farhand.systems.commands.sdk import Cancelled, Commands, Context, Fatal, RegistryError, Retryable

__all__ = [
    "SYSTEM",
    "Cancelled",
    "Commands",
    "Context",
    "Fatal",
    "RegistryError",
    "Retryable",
    "Secret",
]

SYSTEM: Final = System(
    name="commands",
    kinds=(),
    submit="farhand.systems.commands.submit:decode",
    routes="farhand.systems.commands.routes:routes",
    handler="farhand.systems.commands.handler:from_setup",
    configure="farhand.systems.commands.declare:configure",
)
"""Its kinds are the types that `configure` finds declared."""
