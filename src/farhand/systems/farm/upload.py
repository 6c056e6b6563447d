"""The file of a farm job: where it goes, and what is checked when it comes.

The address is signed under the farm's own key and good for a day; who has it needs no other key.
"""

import hashlib
import hmac
from typing import Any, Final

import msgspec

from farhand.engine.farms import Farm
from farhand.engine.requests import Attach, Order, Submit, Submitted
from farhand.model.clock import to_rfc3339
from farhand.model.errors import Problem
from farhand.model.ids import id_text, parse_id
from farhand.model.job import SERVER, WAITING, Job, Submission
from farhand.protocol.farm import UploadedReply, UploadReply, UploadView
from farhand.protocol.wire import encode
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.job_routes import job_id
from farhand.server.result_routes import pieces
from farhand.server.waiting import not_found
from farhand.systems.farm.dispatch import dispatch

PATH: Final = "/farm/uploads/{id}"
GOOD_MS: Final = 24 * 3_600_000
WHOLE_S: Final = 6 * 3600
QUERY: Final = ("expires", "signature")


class FileFacts(msgspec.Struct, frozen=True):
    """What a job's params say about its file."""

    filename: str
    size: int | None = None
    sha256: str | None = None
    copies: int = 1


def facts_of(job: Job) -> FileFacts:
    """What was said about a job's file when it was submitted."""
    return msgspec.json.decode(job.params or "{}", type=FileFacts)


def _signature(farm: Farm, job_bytes: bytes, expires: int) -> str:
    said = b"PUT\n%s\n%d" % (job_bytes.hex().encode(), expires)
    return hmac.new(farm.upload_key, said, hashlib.sha256).hexdigest()


def _address(context: Context, call: Call, farm: Farm, job_bytes: bytes) -> UploadView:
    expires = context.clock.now_ms() + GOOD_MS
    base = context.config.public_url
    if base is None:
        host = call.header(b"host") or f"{context.config.host}:{context.config.port}".encode()
        base = f"http://{host.decode('latin-1')}"
    path = PATH.replace("{id}", id_text(job_bytes))
    url = f"{base.rstrip('/')}{path}?expires={expires}&signature={_signature(farm, job_bytes, expires)}"
    return UploadView(
        method="PUT",
        url=url,
        headers={"Content-Type": "application/octet-stream"},
        expires_at=to_rfc3339(expires),
    )


async def upload_of(context: Context, call: Call, done: Submitted) -> dict[str, Any]:
    """What the reply to a submit says of the file."""
    job, farm = await _job_and_farm(context, call.principal.org_id, done.job_id)
    return {"upload": msgspec.to_builtins(_address(context, call, farm, job.id))}


async def renew(context: Context, call: Call) -> None:
    """`POST /jobs/{id}/upload`: a fresh address for the file of a job that waits for it."""
    call.query(frozenset())
    await call.body(1024)
    job, farm = await _job_and_farm(context, call.principal.org_id, job_id(call))
    if job.payload_size is not None:
        raise Problem("state-conflict", "the job has its file already; it stays", job_state=job.state)
    reply = UploadReply(job_id=id_text(job.id), upload=_address(context, call, farm, job.id))
    await call.json(reply)


async def _job_and_farm(context: Context, org_id: int, wanted: bytes) -> tuple[Job, Farm]:
    job = await context.store.job(org_id, wanted)
    if job is None or not job.kind.startswith("farm."):
        raise not_found()
    farm = await context.store.farms.find(org_id, id_text(job.lane))
    if farm is None:
        raise not_found()
    return job, farm


async def put(context: Context, call: Call) -> None:
    """`PUT /farm/uploads/{id}`: the file arrives; it is checked, and then it stays.

    A repeat changes nothing, and finishes what a crash left undone.
    """
    job, farm = await _admitted(context, call)
    if job.payload_size is None:
        await _take_in(context, call, job)
    place = await context.store.payload(job.seq)
    if place is None or place.sha256 is None:
        raise Problem("payload-gone", "the job's file is no longer kept; submit it again")
    copies = await _copies(context, job, place.sha256, place.size)
    await dispatch(context, farm)
    reply = UploadedReply(
        job_id=id_text(job.id),
        sha256=place.sha256.hex(),
        size=place.size,
        copies=[id_text(job.id), *copies],
    )
    await call.json(reply)


async def _take_in(context: Context, call: Call, job: Job) -> None:
    """Read and check the file. One that can never be printed fails its job at once."""
    if job.state not in WAITING:
        raise Problem("state-conflict", f"the job is {job.state} and takes no file", job_state=job.state)
    limit = context.desk.policy(job.kind).payload_bytes_max
    sha256, size = await context.payloads.put(pieces(call, limit, WHOLE_S), limit)
    wrong = _wrong(facts_of(job), sha256, size)
    order = Order(org_id=job.org_id, job_id=job.id, actor=SERVER, note=wrong)
    if wrong is None:
        answer = await context.store.attach(Attach(order=order, sha256=sha256, size=size))
    else:
        answer = await context.store.fail_at_gate(order)
    if isinstance(answer, Problem):
        raise answer
    if wrong is not None:
        raise Problem("bad-field", f"file: {wrong}; the job has failed", field="file")


async def _admitted(context: Context, call: Call) -> tuple[Job, Farm]:
    """The job of a signed address. Raises Problem `upload-expired` for any that is not good."""
    query = call.query(frozenset(QUERY))
    bad = Problem("upload-expired", "ask for a new address: POST /jobs/{id}/upload")
    wanted, expires = parse_id(call.params[0]), query.get("expires", "")
    if wanted is None or not expires.isascii() or not expires.isdigit() or len(expires) > 16:
        raise bad
    for farm in await context.store.farms.all():
        expected = _signature(farm, wanted, int(expires))
        if not hmac.compare_digest(expected.encode(), query.get("signature", "").encode()):
            continue
        if int(expires) <= context.clock.now_ms():
            raise bad
        job = await context.store.job(farm.org_id, wanted)
        if job is None or job.lane != farm.id:
            raise bad
        return job, farm
    raise bad


def _wrong(facts: FileFacts, sha256: bytes, size: int) -> str | None:
    if size == 0:
        return "the uploaded file is empty"
    if facts.size is not None and facts.size != size:
        return f"the uploaded file has {size} bytes, not the {facts.size} that were announced"
    if facts.sha256 is not None and facts.sha256 != sha256.hex():
        return "the uploaded file is not the one that was announced: its SHA-256 differs"
    return None


async def _copies(context: Context, job: Job, sha256: bytes, size: int) -> list[str]:
    """The other copies, made before the first one has its file: a repeat finds them by their keys."""
    found: list[str] = []
    facts = facts_of(job)
    policy = context.desk.policy(job.kind)
    for number in range(2, facts.copies + 1):
        key = f"farm-copy:{job.id.hex()}:{number}"
        submission = _copy(job, facts, number, sha256, size)
        done = await context.store.submit(
            Submit(
                submission=submission,
                policy=policy,
                idempotency_key=key,
                fingerprint=hashlib.sha256(key.encode()).digest(),
            )
        )
        if isinstance(done, Problem):
            raise done
        found.append(id_text(done.job_id))
    return found


def _copy(job: Job, facts: FileFacts, number: int, sha256: bytes, size: int) -> Submission:
    params: dict[str, Any] = msgspec.json.decode(job.params or "{}")
    params |= {"copies": 1, "copy": number, "copy_of": id_text(job.id), "sha256": sha256.hex()}
    return Submission(
        org_id=job.org_id,
        kind=job.kind,
        lane=job.lane,
        mode=job.mode,
        title=f"{job.title or facts.filename} ({number}/{facts.copies})",
        source=job.source,
        tags=tuple(job.tags.split("\n")) if job.tags else (),
        metadata=job.metadata,
        params=encode(params).decode(),
        payload_sha256=sha256,
        payload_size=size,
        priority=job.priority,
        run_at=job.run_at,
        submitted_by=job.submitted_by,
        actor=SERVER,
    )
