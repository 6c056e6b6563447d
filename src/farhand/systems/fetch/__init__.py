"""Fetch: HTTP requests that approved agents make, and what came back."""

from typing import Final

from farhand.model.system import System
from farhand.systems.fetch.policies import KIND, POLICIES

__all__ = ["SYSTEM"]

SYSTEM: Final = System(
    name="fetch",
    kinds=(KIND,),
    types={"fetch.http": KIND, "fetch": KIND},
    policies=POLICIES,
    submit="farhand.systems.fetch.submit:decode",
    routes="farhand.systems.fetch.routes:routes",
    handler="farhand.systems.fetch.handler:from_setup",
    configure="farhand.systems.fetch.declare:configure",
    policy_of="farhand.systems.fetch.kind:policy_of",
    results="farhand.systems.fetch.results:FetchResults",
)
