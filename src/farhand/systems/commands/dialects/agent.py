"""The command queue's own dialect: collect one command, and later report how it ended."""

from typing import Final

import msgspec

from farhand.engine.requests import Act, Claim, Settle
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import Dialect
from farhand.protocol.agent import ResultRequest
from farhand.protocol.commands import CommandClaim, CommandResult, CommandResultReply
from farhand.protocol.wire import bad_field, decode
from farhand.server.agent_routes import WAIT_MAX_MS, report_of
from farhand.server.call import Call
from farhand.server.collecting import await_jobs, working
from farhand.server.context import Context
from farhand.server.principal import COMMANDS
from farhand.server.routes import Route
from farhand.server.text import refuse_deep, refuse_nul
from farhand.systems.commands.kind import FAMILY
from farhand.systems.commands.status import status_of
from farhand.systems.commands.views import command_claim

PATH: Final = "/api/agent/v1/commands"
CLAIM_BODY_MAX: Final = 64 * 1024
ERROR_MAX: Final = 4000
ROOM: Final = 64 * 1024
"""What a result's body may hold besides the result itself."""

NOBODY: Final = bytes(16)
_result = msgspec.json.Decoder(CommandResult)


def routes() -> list[Route]:
    """The two routes that agents call."""
    return [
        Route(method="POST", path=f"{PATH}/claim", handler=claim, grant=COMMANDS, tag="commands",
              held=True, summary="Collect a command", replies={200: CommandClaim, 204: None}),
        Route(method="POST", path=f"{PATH}/{{uuid}}/result", handler=result, grant=COMMANDS, tag="commands",
              summary="Report how a command ended", request=CommandResult,
              replies={200: CommandResultReply}),
    ]  # fmt: skip


def not_found() -> Problem:
    """The one answer for commands that are not there, are another's, or whose id is none."""
    return Problem("not-found", "there is no command with this id, or it is not yours")


async def claim(context: Context, call: Call) -> None:
    """`POST …/commands/claim`: one command, which has begun with this reply, or 204.

    The dialect says nothing of a body, so that whatever comes is read and left alone.
    """
    agent = call.principal.must_be_agent()
    call.query(frozenset())
    await call.body(CLAIM_BODY_MAX)
    wait_ms = call.prefer_wait_ms(WAIT_MAX_MS)
    request = Claim(
        org_id=agent.org_id,
        agent_id=agent.id,
        lanes=(agent.id,) if working(call) else (),
        dialect=Dialect.SEED,
        capabilities=agent.capabilities,
        begin=True,
    )
    jobs = await await_jobs(context, call, context.store.claim_or_park(request), wait_ms, COMMANDS)
    if jobs is None:
        return
    if not jobs:
        await call.reply(204)
        return
    await call.json(command_claim(jobs[0]))


async def result(context: Context, call: Call) -> None:
    """`POST …/commands/{uuid}/result`: how it ended.

    A result over the type's limit ends the command as failed: it would be no smaller next time.
    """
    call.query(frozenset())
    body = await call.body(_body_max(context))
    message = decode(_result, body)
    refuse_nul(body, message)
    refuse_deep("result", message.result)
    if message.status == "completed" and message.error is not None:
        raise bad_field("error", "goes with status failed only")
    if message.status == "completed" and message.retryable:
        raise bad_field("retryable", "goes with status failed only")
    act = _act(call, message.lease_token)
    answer = await context.store.settle(Settle(act=act, report=report_of(_native(message))))
    if isinstance(answer, Problem) and answer.problem == "result-too-large":
        await _fail(context, act, answer.message)
    if isinstance(answer, Problem):
        raise not_found() if answer.problem == "not-found" else answer
    reply = CommandResultReply(uuid=id_text(act.job_id), status=status_of(answer.state), state=answer.state)
    await call.json(reply)


def _body_max(context: Context) -> int:
    """Room for the largest result of any declared type."""
    policies = context.desk.policies
    sizes = (policy.result_bytes_max for kind, policy in policies.items() if kind.startswith(FAMILY))
    return max(sizes, default=0) + ROOM


def _act(call: Call, token: str | None) -> Act:
    agent = call.principal.must_be_agent()
    # What is no id is looked for like any other, so that its answer takes as long.
    return Act(
        org_id=agent.org_id,
        job_id=parse_id(call.params[0]) or NOBODY,
        agent_id=agent.id,
        token=bytes.fromhex(token) if token is not None else None,
        family=FAMILY,
    )


def _native(message: CommandResult) -> ResultRequest:
    error = message.error
    if error is not None and len(error) > ERROR_MAX:
        error = error[: ERROR_MAX - 1] + "…"
    return ResultRequest(
        ok=message.status == "completed", error=error, retryable=message.retryable, result=message.result
    )


async def _fail(context: Context, act: Act, why: str) -> None:
    report = report_of(ResultRequest(ok=False, error=f"the agent reported an end, but {why}"))
    await context.store.settle(Settle(act=act, report=report))
