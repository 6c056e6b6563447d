"""The route table: one entry serves dispatch, authorisation, OpenAPI and the docs tests."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from farhand.model.errors import Problem
from farhand.server.call import Call

Handler = Callable[[Any, Call], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method on one path. `grant` None means that no key is needed; "agent key" any agent's.

    `request` and `replies` are the message types behind the bodies (`bytes` for bytes, Any for
    a content type that depends), `query` the parameters; `failure` is the message of errors where
    a dialect has its own. `held` routes obey `Prefer: wait=N`, `keyed` ones take an Idempotency-Key.
    """

    method: str
    path: str
    handler: Handler
    grant: str | None
    summary: str
    request: type | None = None
    failure: type | None = None
    request_optional: bool = False
    replies: dict[int, Any] = field(default_factory=dict[int, Any])
    query: tuple[str, ...] = ()
    tag: str = "jobs"
    held: bool = False
    keyed: bool = False


class Table:
    """Routes found by exact path first, then by the places of their parameters."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        self._exact: dict[str, dict[str, Route]] = {}
        self._shaped: dict[tuple[str | None, ...], dict[str, Route]] = {}
        self._places: dict[int, list[tuple[int, ...]]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            self._exact.setdefault(route.path, {})[route.method] = route
            return
        parts = route.path.split("/")[1:]
        places = tuple(place for place, part in enumerate(parts) if part.startswith("{"))
        shape = tuple(None if place in places else part for place, part in enumerate(parts))
        self._shaped.setdefault(shape, {})[route.method] = route
        known = self._places.setdefault(len(parts), [])
        if places not in known:
            known.append(places)
            known.sort(key=len)

    def find(self, method: str, path: str) -> tuple[Route, tuple[str, ...]]:
        """The route and its path parameters. Raises Problem `not-found` or `method-not-allowed`."""
        methods = self._exact.get(path)
        params: tuple[str, ...] = ()
        if methods is None:
            methods, params = self._by_shape(path)
        if methods is None:
            raise Problem("not-found", f"there is no route {path[:200]!r}; /openapi.json lists what there is")
        route = methods.get(method)
        if route is None:
            allow = ", ".join(sorted(methods))
            raise Problem("method-not-allowed", f"{path} knows only {allow}", allow=allow)
        return route, params

    def _by_shape(self, path: str) -> tuple[dict[str, Route] | None, tuple[str, ...]]:
        parts = path.split("/")[1:]
        for places in self._places.get(len(parts), ()):
            shape: list[str | None] = [*parts]
            for place in places:
                shape[place] = None
            methods = self._shaped.get(tuple(shape))
            if methods is not None:
                return methods, tuple([parts[place] for place in places])
        return None, ()
