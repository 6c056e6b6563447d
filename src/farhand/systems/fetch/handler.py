"""What the agent does with a fetch job, in the native words."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from farhand.agent.handler import Handler, PayloadError, ResultDraft, Setup, Tools, Unfinished, Unwilling
from farhand.egress import Resolver
from farhand.model.clock import Clock
from farhand.protocol.agent import ClaimedJob, PrinterInfo
from farhand.protocol.fetch import KIND, FetchParams
from farhand.systems.fetch.execute import Answer, Executor, Failure, agent_failure, is_safe
from farhand.systems.fetch.settings import FetchSettings, read_settings

TABLE: Final = "fetch"
REQUESTING: Final = "requesting"
UNKNOWN: Final = "the target may have carried the request out"


def from_setup(setup: Setup) -> Handler:
    """What the `[fetch]` table of agent.toml asks for; without one, nothing. Raises ConfigError."""
    agent = setup.agent
    if agent is None or TABLE not in agent.sections:
        return FetchHandler(None, setup.clock)
    settings = read_settings(setup.section, setup.folder, agent.server)
    if settings.dialect == "native":
        return FetchHandler(settings, setup.clock)
    from farhand.systems.fetch.device import Device

    return Device(settings, agent, setup.clock)


class FetchHandler:
    """Fetches what the owners of this agent submit, as many requests at once as the settings say."""

    def __init__(
        self, settings: FetchSettings | None, clock: Clock, resolver: Resolver | None = None
    ) -> None:
        self._settings = settings or FetchSettings()
        self._executor = Executor(self._settings, clock, resolver)
        self.kinds: Sequence[str] = () if settings is None else (KIND,)
        self.owners_lane = 0 if settings is None else settings.concurrency
        self.capabilities: Sequence[str] = () if settings is None else settings.capabilities

    async def describe(self) -> Sequence[PrinterInfo]:
        """Fetching needs no device."""
        return ()

    async def run(self, job: ClaimedJob, tools: Tools) -> ResultDraft:
        """Carries one request out. What may not be made twice passes a point of no return first."""
        try:
            request = msgspec.convert(job.params, type=FetchParams)
        except msgspec.ValidationError as error:
            return _draft(agent_failure("bad-request", f"the job cannot be read: {error}"), safe=False)
        refusal = self._settings.unwilling(request)
        if refusal is not None:
            raise Unwilling(refusal)
        body = await _body(job, tools)
        crowded = await self._executor.turn(request)
        if crowded is not None:
            return _draft(crowded, safe=True)
        if is_safe(request):
            return await self._done(request, tools, await self._executor.run(request, body, tools.scratch))
        await tools.no_return(REQUESTING, KIND)
        return await self._once(request, body, tools)

    async def recover(self, work: Unfinished, tools: Tools) -> ResultDraft:
        """Nobody knows what the target did with a request that was cut off."""
        return ResultDraft(ok=False, uncertain=True, error=f"the agent stopped in mid-request; {UNKNOWN}")

    async def aclose(self) -> None:
        """Nothing is held between jobs."""

    async def _once(self, request: FetchParams, body: bytes | None, tools: Tools) -> ResultDraft:
        """A request that is not made again; a wish to stop ends it at once."""
        sent = asyncio.Event()
        working = asyncio.create_task(self._executor.run(request, body, tools.scratch, sent.set))
        stopped = asyncio.create_task(tools.cancelled.wait())
        try:
            await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait((working,))
        if not working.cancelled():
            return await self._done(request, tools, working.result())
        if not sent.is_set():
            return ResultDraft(ok=False, cancelled=True)
        return ResultDraft(ok=False, uncertain=True, error=f"stopped on request in mid-request; {UNKNOWN}")

    async def _done(self, request: FetchParams, tools: Tools, outcome: Answer | Failure) -> ResultDraft:
        safe = is_safe(request)
        if isinstance(outcome, Failure) or outcome.path is None:
            return _draft(outcome, safe=safe)
        try:
            sha256 = await tools.keep_body(outcome.path)
        except PayloadError as error:
            message = (
                f"the target answered {outcome.result.status}, but its body cannot be handed on: {error}"
            )
            return _draft(agent_failure("result-body", message), safe=safe)
        result = msgspec.structs.replace(outcome.result, body_sha256=sha256)
        return _draft(Answer(result=result, path=None), safe=safe)


async def _body(job: ClaimedJob, tools: Tools) -> bytes | None:
    if job.payload is None:
        return None
    return await asyncio.to_thread((await tools.payload()).read_bytes)


def _draft(outcome: Answer | Failure, *, safe: bool) -> ResultDraft:
    """The words of the wire. What can be had again needs no disk to be kept on."""
    if isinstance(outcome, Answer):
        return ResultDraft(ok=True, evidence="response", result=outcome.result, durable=not safe)
    error = outcome.error
    return ResultDraft(
        ok=False,
        error=f"{error.code}: {error.message}",
        retryable=safe and outcome.retryable,
        result=error,
        durable=not safe,
    )
