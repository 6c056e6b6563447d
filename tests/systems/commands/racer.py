"""One of two processes that issue the same commands at the same time over one database.

usage: python -m tests.systems.commands.racer URL
For each line on standard input, the number of a round, it issues that round's commands all at
once and prints what each of them was answered, in one line of JSON.
"""

import asyncio
import hashlib
import json
import sys

from farhand.engine.requests import Submit
from farhand.model.clock import SystemClock
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.model.job import Submission
from farhand.model.policy import COMMAND
from farhand.storage.store import Store
from farhand.systems.commands.kind import kind_of
from tests.storage.conftest import connect

KIND = kind_of("whatsapp.connect")
COMMANDS_PER_ROUND = 3


def agent_of(name: str) -> bytes:
    """The agent that a command is for."""
    return hashlib.sha256(name.encode()).digest()[:16]


def request(agent: bytes, key: str | None) -> Submit:
    """A command as the system writes it down."""
    assert COMMAND.active_key is not None
    submission = Submission(
        org_id=1,
        kind=KIND,
        lane=agent,
        agent_id=agent,
        params="{}",
        active_key=COMMAND.active_key.format(agent=id_text(agent), kind=KIND),
    )
    fingerprint = None if key is None else b"f" * 32
    return Submit(submission=submission, policy=COMMAND, idempotency_key=key, fingerprint=fingerprint)


async def ask(store: Store, kind: str, number: int, place: int) -> dict[str, object]:
    """Issue one command; what came of it."""
    name = f"{kind} {number} {place}"
    answer = await store.submit(request(agent_of(name), name if kind == "keyed" else None))
    if isinstance(answer, Problem):
        return {"name": name, "code": answer.problem, "live": answer.extra.get("job_id")}
    return {"name": name, "uuid": id_text(answer.job_id), "created": answer.created}


async def race(store: Store, number: int) -> list[dict[str, object]]:
    """Some commands under keys that the other process uses too, and some under none."""
    places = range(COMMANDS_PER_ROUND)
    return await asyncio.gather(
        *(ask(store, kind, number, place) for place in places for kind in ("keyed", "active"))
    )


async def main(url: str) -> None:
    """Open the store, then race round by round."""
    store = Store(connect(url), SystemClock())
    await store.open()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await race(store, int(line))) + "\n")
        sys.stdout.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
