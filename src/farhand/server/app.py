"""The ASGI application: find the route, know the caller, answer or explain."""

import logging
from typing import Final

from farhand.engine.ports import StoreFault, StoreGone
from farhand.engine.registry import AGENT_GRANTS
from farhand.model.errors import Problem
from farhand.protocol import PROTOCOL, PROTOCOL_HEADER, PROTOCOL_OLDEST
from farhand.server.call import Call, Gone, Receive, Scope, Send
from farhand.server.context import Context
from farhand.server.routes import Route

log = logging.getLogger("farhand.server")
_PROTOCOL: Final = PROTOCOL_HEADER.lower().encode()


class App:
    """The application of one running server."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other(scope["type"], receive, send)
            return
        call = Call(scope, receive, send, ())
        route: Route | None = None
        try:
            route, call.params = self._context.table.find(scope["method"], scope["path"])
            await self._admit(route, call)
            await route.handler(self._context, call)
        except Problem as problem:
            await self._explain(call, problem)
        except Gone:
            return
        except RecursionError:
            await self._explain(call, Problem("bad-json", "the body is nested too deeply"))
        except StoreGone as error:
            log.error("database_gone", extra={"error": str(error)})
            await self._explain(
                call, Problem("busy", "the database cannot be reached just now", retry_after=2)
            )
        except StoreFault as error:
            await self._fault(call, route, error)
        except Exception as error:
            await self._fault(call, route, error)
        finally:
            name = route.path if route is not None else "(none)"
            self._context.requests[scope["method"] if route is not None else "-", name, call.status] += 1

    async def _admit(self, route: Route, call: Call) -> None:
        if route.grant == "any key":
            _check_protocol(call)
        if route.grant is None or route.grant == "any key":
            return
        await self._context.auth.admit(call, route.grant)
        agent = call.principal.agent
        if agent is not None and route.grant in AGENT_GRANTS:
            _check_protocol(call)
            self._context.saw(agent.id)

    async def _explain(self, call: Call, problem: Problem) -> None:
        if call.status == 0:
            await call.problem(problem)

    async def _fault(self, call: Call, route: Route | None, error: Exception) -> None:
        where = route.path if route is not None else call.scope["path"]
        log.exception("request_failed", extra={"route": where}, exc_info=error)
        if call.status:
            raise error
        await call.problem(Problem("internal", "something went wrong on the server; its log says what"))


def _check_protocol(call: Call) -> None:
    """An agent that says which protocol it speaks must speak one that is still understood."""
    raw = call.header(_PROTOCOL)
    if raw is None:
        return
    if not raw.isdigit():
        raise Problem("bad-request", f"{PROTOCOL_HEADER} is a whole number, for example {PROTOCOL}")
    if int(raw[:9]) < PROTOCOL_OLDEST:
        raise Problem(
            "upgrade-required",
            f"this server speaks protocol {PROTOCOL} back to {PROTOCOL_OLDEST}; "
            "upgrade the agent: pip install -U farhand",
            protocol=PROTOCOL,
            oldest=PROTOCOL_OLDEST,
        )


async def _other(kind: str, receive: Receive, send: Send) -> None:
    """What a server may ask besides HTTP requests: its own beginning and end, and web sockets."""
    if kind != "lifespan":
        await send({"type": "websocket.close", "code": 1000})
        return
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
