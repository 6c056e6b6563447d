"""What a job's change means for the device it occupies, where telemetry settles the job."""

from typing import Literal

from farhand.engine.case import Case
from farhand.engine.loss import past_no_return
from farhand.model.job import HELD, UPLOAD_TIMEOUT, State

Change = Literal["free", "bed", "take"]


def hold_change(case: Case) -> Change | None:
    """What to do with the hold: free the device, raise its bed gate, take it again, or nothing.

    A device is free again when the attempt ended before anything was sent to it. Any end after
    that leaves something on the bed, and while it is unknown what happened the job keeps it.
    """
    job = case.job
    if case.policy.settled_by != "telemetry" or job.device_id is None or job.state == case.before:
        return None
    if job.state in HELD:
        return None if case.before in HELD or case.before == State.QUEUED else "take"
    if job.state == State.UNCERTAIN:
        return None
    if job.state == State.DONE or case.before == State.UNCERTAIN:
        return "bed"
    if case.before not in HELD:
        return None
    if job.reason == UPLOAD_TIMEOUT:
        # The machine may print the file after all: nothing else is to be started on it.
        return "bed"
    ended = [a for a in case.touched if a.ended_at == case.now]
    return "bed" if any(past_no_return(case.policy, a) for a in ended) else "free"
