"""One batch of requests in one transaction: verbs on jobs, submits, what is due, then claims."""

import logging
from collections import Counter
from dataclasses import dataclass, field

from farhand.engine.requests import Claim, Claimed, Nonce, Reserve, Retry, Submit, Submitted
from farhand.engine.sweep import sweep
from farhand.engine.wakeups import Hub, Ticket
from farhand.model.errors import Problem
from farhand.model.ids import id_text
from farhand.model.job import Dialect
from farhand.storage.capabilities import Capabilities
from farhand.storage.claiming import claim_all
from farhand.storage.database import Params
from farhand.storage.session import Session
from farhand.storage.submitting import insert_many, reserve
from farhand.storage.verbs import Answer, act_key, on_case, retry

log = logging.getLogger("farhand.storage")
SWEEP_LIMIT = 200
INLINE_WITH_CLAIM = 256 * 1024


@dataclass(slots=True, eq=False)
class Work:
    """One request in the queue of the writer.

    `ticket` waits for the claim that this is, or for the claim to make in the same step as
    another verb, whatever becomes of that one.
    """

    verb: str
    request: object
    ticket: Ticket | None = None


@dataclass(slots=True)
class Results:
    """What a batch came to; handed to the callers after the commit."""

    answers: dict[int, object] = field(default_factory=dict[int, object])
    claims: dict[int, list[Claimed]] = field(default_factory=dict[int, list[Claimed]])
    handed: list[tuple[Ticket, list[Claimed]]] = field(default_factory=list[tuple[Ticket, list[Claimed]]])
    swept: int = 0


async def run_batch(
    session: Session,
    works: list[Work],
    results: Results,
    *,
    hub: Hub,
    capabilities: Capabilities,
    due: bool,
) -> None:
    """Run every request. Verbs on one job run in the order they came; claims see all of it.

    `results` is filled on the way: when a statement fails, the parked claims taken so far are in it.
    """
    await _run_nonces(session, works, results)
    await _run_on_cases(session, works, results, capabilities)
    await _run_submits(session, works, results, capabilities)
    for work in works:
        if isinstance(work.request, Reserve):
            results.answers[id(work)] = await _run_reserve(session, work.request)
    await session.flush()
    if due or any(work.verb == "sweep" for work in works):
        results.swept = await _run_sweep(session)
        for work in works:
            if work.verb == "sweep":
                results.answers[id(work)] = results.swept
    await _run_claims(session, works, results)
    await _hand_off(session, hub, results)
    await _attach_bodies(session, results)
    await session.finish()


async def _run_nonces(session: Session, works: list[Work], results: Results) -> None:
    asked = [(work, work.request) for work in works if isinstance(work.request, Nonce)]
    rows: list[Params] = [
        {"agent_id": n.agent_id, "nonce": n.nonce, "org_id": n.org_id, "now": session.now} for _, n in asked
    ]
    fresh = {(row[0], row[1]) for row in await session.tx.each("insert_nonce", rows)}
    for work, nonce in asked:
        key = (nonce.agent_id, nonce.nonce)
        results.answers[id(work)] = key in fresh
        # Of two equal ones in a batch one is the replay.
        fresh.discard(key)


async def _run_on_cases(
    session: Session, works: list[Work], results: Results, capabilities: Capabilities
) -> None:
    mine = [work for work in works if work.verb not in ("submit", "claim", "sweep", "reserve", "nonce")]
    if not mine:
        return
    await session.load(act_key(work.request) for work in mine)
    for work in mine:
        if isinstance(work.request, Retry):
            answer: Answer = await retry(session, work.request, capabilities.names)
        else:
            answer = on_case(session, work.verb, work.request)
        results.answers[id(work)] = answer
    await session.flush()


async def _run_submits(
    session: Session, works: list[Work], results: Results, capabilities: Capabilities
) -> None:
    mine = [work for work in works if isinstance(work.request, Submit)]
    if not mine:
        return
    taken: list[Work] = []
    requests: list[tuple[Submit, int]] = []
    for work in mine:
        request = work.request
        if isinstance(request, Submit):
            given = request.submission
            names = given.requires.union(request.policy.requires)
            try:
                bits = await capabilities.bits(
                    session.tx, names, session.learned, org_id=given.org_id, now=session.now
                )
            except OverflowError as error:
                results.answers[id(work)] = Problem("bad-field", f"requires: {error}", field="requires")
                continue
            taken.append(work)
            requests.append((request, bits))
    for work, answer in zip(taken, await insert_many(session, requests), strict=True):
        results.answers[id(work)] = answer


async def _run_reserve(session: Session, request: Reserve) -> Submitted | Problem | None:
    if request.drop:
        key = {"org_id": request.org_id, "key": request.key, "fingerprint": request.fingerprint}
        await session.tx.run("drop_key", key)
        return None
    return await reserve(session, request)


async def _run_sweep(session: Session) -> int:
    rows = await session.tx.all("lock_due", {"now": session.now, "limit": SWEEP_LIMIT})
    for case in await session.adopt_rows(rows):
        try:
            sweep(case)
        except AssertionError:
            # One job that the rules cannot decide must not keep every other from being swept.
            log.exception("sweep_failed", extra={"job": id_text(case.job.id)})
            session.drop(case)
            continue
        if case.job.hedge_at is not None and case.job.hedge_at <= session.now:
            session.ready[case.job.lane] += 1
    await session.flush()
    return len(rows)


async def _run_claims(session: Session, works: list[Work], results: Results) -> None:
    asked: list[tuple[Work, Claim]] = []
    for work in works:
        if isinstance(work.request, Claim):
            asked.append((work, work.request))
        elif work.ticket is not None:
            asked.append((work, work.ticket.request))
    answers = await claim_all(session, [request for _, request in asked])
    for (work, _), claimed in zip(asked, answers, strict=True):
        results.claims[id(work)] = claimed
    await session.flush()


async def _hand_off(session: Session, hub: Hub, results: Results) -> None:
    """Answer parked claims of lanes that got work in this very transaction."""
    ready = Counter({lane: n for lane, n in session.ready.items() if n > 0})
    while ready:
        tickets = hub.take(ready)
        if not tickets:
            return
        first = len(results.handed)
        results.handed += [(ticket, []) for ticket in tickets]
        answers = await claim_all(session, [ticket.request for ticket in tickets])
        for place, (ticket, jobs) in enumerate(zip(tickets, answers, strict=True), first):
            results.handed[place] = (ticket, jobs)
            for claimed in jobs:
                ready[claimed.job.lane] -= 1
        await session.flush()
        ready = Counter({lane: n for lane, n in ready.items() if n > 0})


async def _attach_bodies(session: Session, results: Results) -> None:
    """Put small inline payloads beside the jobs handed out, sparing the agent a request."""
    claimed = [c for jobs in results.claims.values() for c in jobs]
    claimed += [c for _, jobs in results.handed for c in jobs]
    wanted: list[Claimed] = []
    for entry in claimed:
        if _goes_inline(entry):
            entry.body = session.body(entry.job.seq)
            if entry.body is None:
                wanted.append(entry)
    asked: list[Params] = [{"job_seq": c.job.seq} for c in wanted]
    bodies = {row[0]: row[1] for row in await session.tx.each("payload_body", asked)}
    for entry in wanted:
        entry.body = bodies.get(entry.job.seq)


def _goes_inline(claimed: Claimed) -> bool:
    size = claimed.job.payload_size
    return claimed.attempt.dialect == Dialect.NATIVE and size is not None and size <= INLINE_WITH_CLAIM
