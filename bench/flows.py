"""The closed loop: submitters and agents that together take jobs through their whole life.

A submitter keeps `window` jobs (or batches) in flight at its own agent: it submits until that many are out,
then alternates between reading the state of a finished one and submitting the next. So every job costs the
same requests in every design, and an agent seldom finds its queue empty: what is measured is throughput, not
the pause of a design that looks for work once a second.
"""

import asyncio
import os
import time
from collections import deque
from dataclasses import dataclass, field

import msgspec

from bench import messages
from bench.messages import Id
from bench.wire import Refused, Session, accepted, connect

NATIVE_HEADERS = "farhand-protocol: 1\r\n"
CLAIM_WAIT_MS = 25_000
NEXT_WAIT_MS = 1_000

read_submitted = msgspec.json.Decoder(messages.Submitted).decode
read_submitted_many = msgspec.json.Decoder(messages.SubmittedMany).decode
read_claimed = msgspec.json.Decoder(messages.Claimed).decode
read_offers = msgspec.json.Decoder(messages.Offers).decode
read_settled = msgspec.json.Decoder(messages.Settled).decode
read_settled_many = msgspec.json.Decoder(messages.SettledMany).decode
read_status = msgspec.json.Decoder(messages.Status).decode
read_registered = msgspec.json.Decoder(messages.Registered).decode
encode = msgspec.json.encode


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened so far. `submit_ms` is filled only while `measuring`."""

    finished: int = 0
    claims: int = 0
    empty_claims: int = 0
    claimed: int = 0
    measuring: bool = False
    submitting: bool = True
    submit_ms: list[float] = field(default_factory=list[float])

    def submitted_after(self, seconds: float) -> None:
        if self.measuring:
            self.submit_ms.append(seconds * 1000)


class Lane:
    """The jobs that one submitter has in flight at one agent."""

    __slots__ = ("_done", "_wake", "in_flight", "many", "one")

    def __init__(self, printer_id: Id, batch: int) -> None:
        job = {"printer_id": printer_id, "type": "raw_base64", "content": messages.CONTENT}
        self.one = encode(job)
        self.many = encode({"jobs": [job] * batch})
        self.in_flight = 0
        self._done: deque[Id] = deque()
        self._wake: asyncio.Future[None] | None = None

    def finish(self, job_id: Id) -> None:
        """The agent's word that a job is settled."""
        self._done.append(job_id)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def finished(self, count: int) -> list[Id]:
        """Wait for `count` settled jobs and take them."""
        while len(self._done) < count:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self.in_flight -= count
        return [self._done.popleft() for _ in range(count)]


async def register(session: Session, name: str, printers: int = 1) -> list[Id]:
    """Register an agent under the session's key; return its printer ids in order."""
    names = [{"name": f"p{number}", "can_pdf": False} for number in range(printers)]
    reply = await session.post("/agent/register", encode({"name": name, "printers": names}))
    return read_registered(accepted("POST /agent/register", reply)).printer_ids


def fresh_key() -> str:
    """A key of the length that agents choose for themselves (43 characters)."""
    return os.urandom(22).hex()[:43]


async def require_done(session: Session, job_id: Id) -> None:
    """Read a job's state. Raises Refused if it is not done."""
    state = read_status(accepted("GET /jobs/{id}", await session.get(f"/jobs/{job_id}"))).state
    if state != "done":
        raise Refused(f"job {job_id} was settled but its state is {state}")


async def submitter(session: Session, lane: Lane, tally: Tally, window: int) -> None:
    """One job a request: submit, and read the state of each finished one."""
    while True:
        if tally.submitting and lane.in_flight < window:
            sent = time.perf_counter()
            reply = await session.post("/jobs", lane.one)
            tally.submitted_after(time.perf_counter() - sent)
            accepted("POST /jobs", reply)
            lane.in_flight += 1
        elif lane.in_flight:
            for job_id in await lane.finished(1):
                await require_done(session, job_id)
                tally.finished += 1
        else:
            return


async def batch_submitter(session: Session, lane: Lane, tally: Tally, window: int, batch: int) -> None:
    """`batch` jobs a request; the state of one job of each batch is read as a check."""
    while True:
        if tally.submitting and lane.in_flight < window * batch:
            sent = time.perf_counter()
            reply = await session.post("/jobs/batch", lane.many)
            tally.submitted_after(time.perf_counter() - sent)
            items = read_submitted_many(accepted("POST /jobs/batch", reply)).items
            lane.in_flight += len(items)
            if len(items) != batch:
                raise Refused(f"a batch of {batch} jobs was answered with {len(items)} items")
        elif lane.in_flight:
            finished = await lane.finished(batch)
            await require_done(session, finished[-1])
            tally.finished += batch
        else:
            return


async def seed_agent(session: Session, lane: Lane, tally: Tally) -> None:
    """The agent of seed 000: poll, payload, result."""
    while True:
        status, body = await session.get("/agent/jobs")
        tally.claims += 1
        if status == 204:
            tally.empty_claims += 1
            continue
        job_id = read_claimed(accepted("GET /agent/jobs", (status, body))).job_id
        tally.claimed += 1
        payload = accepted("GET payload", await session.get(f"/agent/jobs/{job_id}/payload"))
        if len(payload) != len(messages.LABEL):
            raise Refused(f"the payload of {job_id} has {len(payload)} bytes, not {len(messages.LABEL)}")
        accepted("POST result", await session.post(f"/agent/jobs/{job_id}/result", b'{"ok":true}'))
        lane.finish(job_id)


class Polls:
    """Claim requests with poll ids that nobody used before."""

    __slots__ = ("_count", "_most", "_prefix")

    def __init__(self, most: int) -> None:
        random = os.urandom(10).hex()
        self._prefix = f"{random[:8]}-{random[8:12]}-4{random[12:15]}-8{random[15:18]}-"
        self._count = 0
        self._most = most

    def claim(self, wait_ms: int = CLAIM_WAIT_MS) -> dict[str, object]:
        self._count += 1
        poll_id = f"{self._prefix}{self._count:012x}"
        return {"poll_id": poll_id, "max": self._most, "accept": True, "wait_ms": wait_ms}


def check_payload(offer: messages.Offer) -> None:
    """Raises Refused for a payload that is not inline or not the one submitted."""
    if offer.payload.base64 != messages.CONTENT:
        raise Refused(f"the offer of {offer.job_id} does not carry the small payload inline")


async def claim_some(session: Session, polls: Polls, tally: Tally) -> list[messages.Offer]:
    """One native claim, held by the server until there is work or the wait is over."""
    reply = await session.post("/agent/claim", encode(polls.claim()))
    tally.claims += 1
    offers = read_offers(accepted("POST /agent/claim", reply)).jobs
    tally.empty_claims += not offers
    return offers


async def native_agent(session: Session, lane: Lane, tally: Tally) -> None:
    """Steady state: the settle carries the next claim, the claim carries the payload.

    A settle whose next claim finds nothing may be held, and with it the news for the submitter; the submitter
    has other jobs to send meanwhile. The short wait bounds how long the last settle of a trial is held.
    """
    polls = Polls(1)
    offers: list[messages.Offer] = []
    while True:
        if not offers:
            offers = await claim_some(session, polls, tally)
            continue
        offer = offers[0]
        tally.claimed += 1
        check_payload(offer)
        body = encode(
            {
                "lease_token": offer.lease_token,
                "ok": True,
                "evidence": "delivered",
                "next": polls.claim(NEXT_WAIT_MS),
            }
        )
        reply = await session.post(f"/agent/jobs/{offer.job_id}/result", body)
        settled = read_settled(accepted("POST result", reply))
        if settled.state != "done":
            raise Refused(f"job {offer.job_id} was settled as {settled.state}")
        lane.finish(offer.job_id)
        offers = settled.next.jobs if settled.next is not None else []


async def batch_agent(session: Session, lane: Lane, tally: Tally, batch: int) -> None:
    """As the native agent, `batch` jobs a request."""
    polls = Polls(batch)
    offers: list[messages.Offer] = []
    while True:
        if not offers:
            offers = await claim_some(session, polls, tally)
            continue
        tally.claimed += len(offers)
        for offer in offers:
            check_payload(offer)
        results = [
            {"job_id": o.job_id, "lease_token": o.lease_token, "ok": True, "evidence": "delivered"}
            for o in offers
        ]
        body = encode({"results": results, "next": polls.claim(NEXT_WAIT_MS)})
        settled = read_settled_many(
            accepted("POST /agent/results", await session.post("/agent/results", body))
        )
        for offer, item in zip(offers, settled.items, strict=True):
            if item.state != "done":
                raise Refused(f"job {offer.job_id} was settled as {item.state or item.detail}")
            lane.finish(offer.job_id)
        tally.claims += 1
        offers = settled.next.jobs if settled.next is not None else []
        tally.empty_claims += not offers


@dataclass(slots=True, kw_only=True)
class Crew:
    """The running submitters and agents of one trial, and their sessions."""

    submitters: list[asyncio.Task[None]]
    agents: list[asyncio.Task[None]]
    sessions: list[Session]

    async def watch(self, seconds: float) -> None:
        """Let the crew work for a while. Raises what any of its members raised."""
        tasks = [*self.submitters, *self.agents]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def finish(self, tally: Tally, seconds: float) -> None:
        """Let every job in flight end, then go. Raises Refused when they do not end in time."""
        tally.submitting = False
        deadline = time.perf_counter() + seconds
        while pending := [task for task in self.submitters if not task.done()]:
            if time.perf_counter() > deadline:
                raise Refused(f"{len(pending)} submitters still wait for jobs {seconds:g} s after the end")
            failed = [task for task in self.agents if task.done()]
            for task in failed:
                task.result()
            await asyncio.wait(pending, timeout=0.2)
        for task in self.submitters:
            task.result()

    def close(self) -> None:
        """Stop everybody and cut the connections."""
        for task in (*self.submitters, *self.agents):
            task.cancel()
        for session in self.sessions:
            session.close()


async def assemble(
    mode: str, port: int, token: str, tally: Tally, *, pairs: int, window: int, batch: int
) -> Crew:
    """Register fresh agents and set `pairs` couples to work; `mode` is seed, native or batch."""
    crew = Crew(submitters=[], agents=[], sessions=[])
    run = os.urandom(4).hex()
    for number in range(pairs):
        key = fresh_key()
        working = await connect(port, key, "" if mode == "seed" else NATIVE_HEADERS)
        (printer_id,) = await register(working, f"bench-{run}-{number}")
        lane = Lane(printer_id, batch)
        client = await connect(port, token)
        crew.sessions += [working, client]
        match mode:
            case "seed":
                jobs, work = submitter(client, lane, tally, window), seed_agent(working, lane, tally)
            case "native":
                jobs, work = submitter(client, lane, tally, window), native_agent(working, lane, tally)
            case _:
                jobs = batch_submitter(client, lane, tally, window, batch)
                work = batch_agent(working, lane, tally, batch)
        crew.submitters.append(asyncio.create_task(jobs))
        crew.agents.append(asyncio.create_task(work))
    return crew
