"""The errors of the pulsar dialect, in the seed's own shape and never another."""

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from farhand.engine.ports import StoreFault, StoreGone
from farhand.model.errors import FarhandError, Problem
from farhand.protocol.pulsar import ERRORS, PulsarProblem
from farhand.protocol.wire import encode
from farhand.server.call import Call, Gone
from farhand.server.context import Context

log = logging.getLogger("farhand.server")
RETRY_AFTER_S: Final = 2
ROOM_WAIT_S: Final = 20
Handler = Callable[[Context, Call], Awaitable[None]]
_BUSY: Final = frozenset({"busy", "shutting-down", "too-many-waits", "too-many-keys", "inbox-full"})
_UNREADABLE: Final = frozenset({"bad-request", "bad-json", "bad-field"})


class Refused(FarhandError):
    """A request of a device that gets an error, by the code of the dialect."""

    def __init__(self, word: str, message: str, **extra: object) -> None:
        super().__init__(message, **extra)
        if word not in ERRORS:
            raise LookupError(f"{word!r} is not among the codes of the dialect")
        self.word = word


def answered(handler: Handler) -> Handler:
    """The handler with all that can go wrong said in the dialect's words."""

    @functools.wraps(handler)
    async def wrapped(context: Context, call: Call) -> None:
        try:
            await handler(context, call)
        except Refused as refused:
            await _refuse(call, refused)
        except Problem as problem:
            await _refuse(call, _in_words(problem))
        except Gone:
            raise
        except RecursionError:
            await _refuse(call, Refused("bad-request", "the body is nested too deeply"))
        except StoreGone as error:
            log.error("database_gone", extra={"error": str(error)})
            await _refuse(call, Refused("busy", "the database cannot be reached just now"))
        except (StoreFault, Exception) as error:
            log.exception("request_failed", extra={"route": call.scope["path"]}, exc_info=error)
            if call.status:
                raise
            await _refuse(
                call, Refused("internal-error", "something went wrong on the server; its log says what")
            )

    return wrapped


def _in_words(problem: Problem) -> Refused:
    code = problem.problem
    if code in _UNREADABLE:
        return Refused("bad-request", problem.message)
    if code == "payload-too-large":
        return Refused("too-large", problem.message)
    if code == "agent-revoked":
        return Refused("device-not-approved", "an owner has revoked this device")
    if code in _BUSY:
        return Refused("busy", problem.message)
    log.error("request_failed", extra={"code": code, "error": problem.message})
    return Refused("internal-error", "something went wrong on the server; its log says what")


async def _refuse(call: Call, refused: Refused) -> None:
    if call.status:
        return
    status = ERRORS[refused.word]
    extra: dict[str, Any] = dict(refused.extra)
    body = encode(PulsarProblem(status="error", code=refused.word, message=refused.message, **extra))
    again = ((b"retry-after", b"%d" % RETRY_AFTER_S),) if status == 503 else ()
    await call.reply(status, body, headers=again)


class Room:
    """Memory for large bodies that are read at once; who finds none waits a while.

    Sizes are bytes; what is asked for must fit at all.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncGenerator[None]:
        """Have room while the block runs. Raises Refused `busy` when none becomes free in time."""
        async with self._changed:
            try:
                async with asyncio.timeout(ROOM_WAIT_S):
                    await self._changed.wait_for(lambda: self._left >= size)
            except TimeoutError:
                raise Refused("busy", "too many large results at once; send it again") from None
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            async with self._changed:
                self._changed.notify_all()
