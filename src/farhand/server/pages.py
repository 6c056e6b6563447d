"""Health, the API description, figures, and what each error code means."""

from farhand import __version__
from farhand.model.errors import CODES, Problem
from farhand.protocol.client import CodeView, HealthReply
from farhand.server import openapi as description
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.metrics import exposition


async def health(context: Context, call: Call) -> None:
    """`GET /health`: the server answers."""
    await call.json(HealthReply(ok=True, version=__version__))


async def openapi(context: Context, call: Call) -> None:
    """`GET /openapi.json`: OpenAPI 3.1, made from the types that decode requests."""
    await call.json(description.document(context.table.routes))


async def metrics(context: Context, call: Call) -> None:
    """`GET /metrics`: figures in the Prometheus text format."""
    body = await exposition(context, call.principal.org_id)
    await call.reply(200, body, content=(b"content-type", b"text/plain; version=0.0.4; charset=utf-8"))


async def problem(context: Context, call: Call) -> None:
    """`GET /problems/{code}`: what an error code means."""
    code = CODES.get(call.params[0])
    if code is None:
        raise Problem("not-found", "there is no such error code; docs/protocol.md lists them")
    await call.json(
        CodeView(code=call.params[0], status=code.status, title=code.title, retryable=code.retryable)
    )
