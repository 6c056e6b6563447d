"""What the agent does with the three commands.

    farhand agent run --commands whatsapp.handlers:build

Every one of them may run twice: what is done already is left as it is.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from farhand.systems.commands import Commands, Context, Fatal, Retryable, Secret
from whatsapp.evolution import Evolution, Refused, Unreachable

ASKED_TIMES = 20
BETWEEN_S = 0.5
CODE_LIVES_MS = 90_000


def build() -> Commands:
    """The handlers, bound to the service that the environment names."""
    evolution = Evolution(
        os.environ.get("EVOLUTION_URL", "http://127.0.0.1:8080"),
        Secret(os.environ["EVOLUTION_KEY"]),
        os.environ.get("EVOLUTION_INSTANCE", "shop"),
    )
    return bound_to(evolution)


def bound_to(evolution: Evolution) -> Commands:
    """The handlers of one provider. No command says which one to use: one installation speaks
    for one account.
    """
    commands = Commands()
    commands.on_close(evolution.close)

    @commands.on("whatsapp.connect")
    async def connect(params: Any, ctx: Context) -> dict[str, Any]:
        async with _spoken_to():
            ctx.report("creating")
            await evolution.create()
            for _ in range(ASKED_TIMES):
                ctx.report("connecting")
                link = await evolution.connect()
                if link.open:
                    return {"state": "open"}
                if link.picture is not None:
                    return {"state": "scan", "qr": link.picture, "valid_ms": CODE_LIVES_MS}
                ctx.report("waiting", "the service has no code yet")
                ctx.heartbeat()
                await asyncio.sleep(BETWEEN_S)
        raise Retryable("the WhatsApp service has made no code")

    @commands.on("whatsapp.status")
    async def status(params: Any, ctx: Context) -> dict[str, Any]:
        async with _spoken_to():
            return {"state": await evolution.state()}

    @commands.on("whatsapp.disconnect")
    async def disconnect(params: Any, ctx: Context) -> dict[str, Any]:
        async with _spoken_to():
            await evolution.logout()
            return {"state": await evolution.state()}

    return commands


@asynccontextmanager
async def _spoken_to() -> AsyncIterator[None]:
    """Only the agent knows the difference: away for a while, or it never will."""
    try:
        yield
    except Unreachable as error:
        raise Retryable(str(error)) from error
    except Refused as error:
        raise Fatal(str(error)) from error
