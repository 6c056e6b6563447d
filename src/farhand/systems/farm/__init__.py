"""Farms of 3D printers whose job states come from telemetry."""

from typing import Final

from farhand.model.policy import FARM
from farhand.model.system import System

SYSTEM: Final = System(
    name="farm",
    kinds=("farm.print",),
    types={"farm.print": "farm.print"},
    policies={"farm.print": FARM},
    submit="farhand.systems.farm.submit:decode",
    routes="farhand.systems.farm.routes:routes",
    handler="farhand.systems.farm.handler:FarmHandler",
    explain="farhand.systems.farm.why:explain",
    ticks={"farhand.systems.farm.dispatch:tick": 5_000},
)
