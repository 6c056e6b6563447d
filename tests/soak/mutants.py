"""Mistakes that somebody could make, each with the tests that have to notice it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake: in `file`, below the package, `old` becomes `new`; `tests` have to fail.

    `keys` is what pytest selects by; PostgreSQL is asked only where the mistake is about it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    keys: str = "not postgres"


def _m(name: str, file: str, old: str, new: str, *tests: str, keys: str = "not postgres") -> Mutant:
    paths = tuple(f"tests/storage/test_{test}.py" for test in tests)
    return Mutant(name=name, file=file, old=old, new=new, tests=paths, keys=keys)


MUTANTS = (
    _m(
        "settle ignores the token",
        "storage/verbs.py",
        "    found = case.find(act.token)\n",
        "    found = case.open_attempts()[0] if case.open_attempts() else mine\n",
        "fencing",
    ),
    _m(
        "a token is good for every agent",
        "storage/verbs.py",
        "    if mine is None or (act.family",
        "    if mine is None and act.token:\n        return case.find(act.token)\n"
        "    if mine is None or (act.family",
        "fencing",
    ),
    _m(
        "claim takes what is claimed",
        "storage/sql/jobs.sql",
        "WHERE org_id = :org_id AND lane = :lane AND state = 'queued'\n    AND (deadline",
        "WHERE org_id = :org_id AND lane = :lane AND state IN ('queued', 'claimed')\n    AND (deadline",
        "duplicates",
    ),
    _m(
        "claim passes on more than was asked for",
        "storage/claiming.py",
        "        del rows[max(0, wanted[place]) :]\n",
        "",
        "handing_out",
    ),
    _m(
        "the sweep does not look at the lease again",
        "engine/sweep.py",
        "        if attempt.lease_until <= case.now:\n",
        "        if case.now:\n",
        "clocks",
    ),
    _m(
        "start_by is ignored by the claim",
        "storage/sql/jobs.sql",
        "    AND (accepted_at IS NOT NULL OR start_by IS NULL OR start_by > :now)\n",
        "",
        "clocks",
    ),
    _m(
        "the deadline is ignored by the claim",
        "storage/sql/jobs.sql",
        "lane = :lane AND state = 'queued'\n    AND (deadline IS NULL OR deadline > :now)\n",
        "lane = :lane AND state = 'queued'\n",
        "clocks",
    ),
    _m(
        "an idempotency key is ignored",
        "storage/submitting.py",
        "        if isinstance(known, int):\n",
        "        known = None\n        if isinstance(known, int):\n",
        "duplicates",
    ),
    _m(
        "the fingerprint is ignored",
        "storage/submitting.py",
        "row[0] != request.fingerprint:\n        return mismatch()\n    if row[1] is None:",
        "not row:\n        return mismatch()\n    if row[1] is None:",
        "duplicates",
    ),
    _m(
        "a refused request keeps its idempotency key",
        "storage/submitting.py",
        "            await _forget(session, request)\n",
        "",
        "duplicates",
    ),
    _m(
        "a reservation is taken over without a guard",
        "storage/sql/upkeep.sql",
        " AND job_id IS NULL AND created_at <= :stale\n",
        " AND job_id IS NULL AND :stale IS NOT NULL\n",
        "duplicates",
    ),
    _m(
        "the failure of a hedge settles at once",
        "engine/loss.py",
        "    if case.open_attempts():\n        return Next(state=State(case.derived()), reason=job.reason)\n",
        "",
        "fencing",
    ),
    _m(
        "the failure of a hedge is forgotten",
        "engine/loss.py",
        "            return sibling\n    return None\n",
        "            return None\n    return None\n",
        "fencing",
    ),
    _m(
        "a release past no return is allowed",
        "engine/attempt.py",
        "    if past_no_return(case.policy, attempt) and risky:\n",
        "    if past_no_return(case.policy, attempt) and risky and not actor:\n",
        "handing_out",
    ),
    _m(
        "a release counts as a try",
        "engine/attempt.py",
        "    if attempt.accepted_at is not None:\n        case.job.tries -= 1\n",
        "",
        "handing_out",
    ),
    _m(
        "an offer counts as a try",
        "storage/claiming.py",
        "    if request.dialect == Dialect.SEED:\n        accept(case, attempt)\n",
        "    accept(case, attempt)\n    if request.dialect == Dialect.SEED:\n",
        "handing_out",
    ),
    _m(
        "the late word of an older attempt counts",
        "engine/attempt.py",
        "    newest = named and attempt.number == job.attempt\n",
        "    newest = named\n",
        "fencing",
        "walk",
    ),
    _m(
        "a late word without a token counts for any attempt",
        "engine/attempt.py",
        "    newest = named and attempt.number == job.attempt\n",
        "    newest = attempt.number == job.attempt\n",
        "handing_out",
    ),
    _m(
        "a late word is not recorded",
        "engine/attempt.py",
        "    if job.version < EVENTS_PER_JOB_MAX:\n        said",
        "    if job.version < 0:\n        said",
        "fencing",
    ),
    _m(
        "a replay is not known again",
        "engine/attempt.py",
        "    if attempt.digest == report.digest and attempt.settled_to is not None:\n",
        "    if attempt.digest == b'' and attempt.settled_to is not None:\n",
        "fencing",
    ),
    _m(
        "what was lost past no return is done again",
        "engine/loss.py",
        '    if choice == "uncertain":\n',
        '    if choice == "uncertain" and not case:\n',
        "fencing",
        "handing_out",
    ),
    _m(
        "a seed agent that has fetched may not have printed",
        "engine/attempt.py",
        "    attempt.no_return = int(case.policy.no_return_phase is not None)\n",
        "    attempt.no_return = 0\n",
        "handing_out",
    ),
    _m(
        "a cancel ends what is in hand",
        "engine/person.py",
        "(job.state == State.CLAIMED and not _accepted(case))",
        "job.state == State.CLAIMED",
        "cancelling",
    ),
    _m(
        "work starts under a cancel request",
        "engine/attempt.py",
        '    elif case.directive() == "continue":\n        _begin',
        "    else:\n        _begin",
        "fencing",
    ),
    _m(
        "a refused job is offered again",
        "engine/attempt.py",
        "        case.refused_by.append(attempt.agent_id)\n",
        "        pass\n",
        "handing_out",
    ),
    _m(
        "capabilities do not matter",
        "storage/claiming.py",
        '        "lacks": _ALL_BITS & ~request.capabilities,\n',
        '        "lacks": 0,\n',
        "handing_out",
    ),
    _m(
        "a held device is handed out again",
        "storage/claiming.py",
        '    return bool(await session.tx.each("insert_hold", [params]))\n',
        '    await session.tx.each("insert_hold", [params])\n    return True\n',
        "holds",
    ),
    _m(
        "a print's end frees its device",
        "engine/holds.py",
        '    return "bed" if any(past_no_return(case.policy, a) for a in ended) else "free"\n',
        '    return "bed" if not ended else "free"\n',
        "holds",
    ),
    _m(
        "the device of a claim is not written down",
        "storage/sql/jobs.sql",
        "    state = :state, device_id = :device_id,",
        "    state = :state,",
        "holds",
    ),
    _m(
        "an ended job keeps its active key",
        "engine/case.py",
        "        job.active_key = None\n",
        "",
        "duplicates",
    ),
    _m(
        "nobody looks at a lost lease",
        "engine/case.py",
        "        limits = [a.lease_until for a in still_open]\n",
        "        limits = [a.lease_until + 10**9 for a in still_open]\n",
        "machine",
    ),
    _m(
        "backoff does not grow",
        "engine/loss.py",
        "* 2 ** max(0, tries - 1)",
        "* 2 ** min(0, tries - 1)",
        "clocks",
    ),
    _m(
        "a hedge goes to whoever has the job",
        "storage/sql/jobs.sql",
        "WHERE attempts.job_seq = jobs.seq AND attempts.agent_id = :agent_id\n",
        "WHERE attempts.job_seq = jobs.seq AND attempts.agent_id IS NULL\n",
        "hedging",
    ),
    _m(
        "a claim does not see what its batch has claimed",
        "storage/claiming.py",
        "        if _overlaps(session, wave):\n",
        "        if not wave:\n",
        "handing_out",
        "duplicates",
    ),
    _m(
        "a failed batch forgets the claims it had taken",
        "storage/writer.py",
        "            for ticket, _ in results.handed:\n                self._park",
        "            for ticket, _ in results.handed[:0]:\n                self._park",
        "batching",
    ),
    _m(
        "a bad request takes its batch with it",
        "storage/writer.py",
        "            if len(batch) == 1:\n                raise\n",
        "            if batch:\n                raise\n",
        "batching",
    ),
    _m(
        "a withdrawn claim loses what it was given",
        "engine/wakeups.py",
        "        if self.taken and not self.future.done():\n            await asyncio.wait",
        "        if self.taken and self.future.done():\n            await asyncio.wait",
        "batching",
    ),
    _m(
        "what was rolled back stays in memory",
        "storage/memory.py",
        "        return self._jobs.pop(job_id, None)\n",
        "        return self._jobs.get(job_id)\n",
        "simulation",
    ),
    _m(
        "counts are of submits alone",
        "storage/session.py",
        "            self.count(job.org_id, job.kind, case.before, -1)\n",
        "",
        "upkeep",
    ),
    _m(
        "a stored payload goes with its first job",
        "storage/prune.py",
        '            if await tx.one("stored_uses", {"sha256": sha256}) is None:\n',
        "            if sha256:\n",
        "upkeep",
    ),
    _m(
        "any end can be left again",
        "engine/person.py",
        "(job.state == State.FAILED and job.reason == UPLOAD_TIMEOUT)",
        "job.state == State.FAILED",
        "people",
    ),
    _m(
        "a retry may be clicked twice",
        "storage/verbs.py",
        "    if refused is not None:\n        return refused\n",
        "",
        "duplicates",
    ),
    _m(
        "a claim that parks beside a submit is forgotten",
        "storage/writer.py",
        "        missed = not flight.ready.isdisjoint(ticket.request.lanes)\n",
        "        missed = False\n",
        "batching",
        keys="postgres and never_forgotten",
    ),
    _m(
        "a claim that parked beside a submit is not woken",
        "storage/writer.py",
        "        for ticket in flight.parked:\n",
        "        for ticket in flight.parked[:0]:\n",
        "parked_beside",
        keys="came_up_beside",
    ),
    _m(
        "a batch commits its jobs in any order",
        "storage/sql/overlays/postgres.sql",
        ") WITH ORDINALITY AS w ({job_columns_but_seq}, place)\nORDER BY place\n",
        ") WITH ORDINALITY AS w ({job_columns_but_seq}, place)\nORDER BY place DESC\n",
        "batching",
        keys="postgres",
    ),
    _m(
        "a secret lies beside the result, too",
        "engine/report.py",
        "        result=public,\n",
        "        result=report.result,\n",
        "secrets",
    ),
    _m(
        "a secret is read after its time",
        "storage/secret_rows.py",
        "        if expires_at <= now or created_at > now + AHEAD_MS:\n",
        "        if created_at > now + AHEAD_MS:\n",
        "secrets",
    ),
    _m(
        "a short secret can be guessed from its report's digest",
        "engine/report.py",
        "        digest=keyed(report.digest),\n",
        "",
        "secrets",
    ),
    _m(
        "keys outlive their secrets",
        "storage/vault.py",
        "        await asyncio.to_thread(self._keys.destroy, name)\n",
        "",
        "vault",
    ),
    _m(
        "a key is destroyed under a transaction that seals with it",
        "storage/vault.py",
        "            if epoch.pending or epoch.used != used:\n",
        "            if epoch.used > 1_000_000:\n",
        "vault",
    ),
    _m(
        "a nonce is new every time",
        "storage/batch.py",
        "        results.answers[id(work)] = key in fresh\n",
        "        results.answers[id(work)] = True\n",
        "nonces",
    ),
)
