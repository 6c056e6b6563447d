"""Commands: one backend asks another to act, without ever calling it."""

from typing import Final

from farhand.model.system import System

SYSTEM: Final = System(
    name="commands",
    kinds=(),
    submit="farhand.systems.commands.submit:decode",
    routes="farhand.systems.commands.routes:routes",
    configure="farhand.systems.commands.declare:configure",
)
"""Its kinds are the types that `configure` finds declared."""
