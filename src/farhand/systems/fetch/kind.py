"""What a fetch job is: its two policies, and the lease that its own timeout asks for."""

import dataclasses
from collections.abc import Mapping
from typing import Final

import msgspec

from farhand.model.job import Job
from farhand.model.policy import SECOND, Policy
from farhand.protocol.fetch import SAFE_METHODS, TIMEOUT_MAX_MS, FetchParams
from farhand.systems.fetch.policies import KIND, UNSAFE

FAMILY: Final = KIND
LEASE_ROOM_MS: Final = 15 * SECOND
EXEC_ROOM_MS: Final = 5 * SECOND
_params: Final = msgspec.json.Decoder(FetchParams)


def policy_name(method: str, *, idempotent: bool) -> str:
    """The policy of a request: whether making it twice does no harm decides."""
    return KIND if idempotent or method in SAFE_METHODS else UNSAFE


def for_timeout(policy: Policy, timeout_ms: int) -> Policy:
    """The policy with a lease and an end that leave a request of this timeout its time.

    Whole seconds keep the number of different policies small: each is a row. An attempt ends
    later than its seed lease, so that a device that vanished is found by that.
    """
    lease_ms = -(-timeout_ms // SECOND) * SECOND + LEASE_ROOM_MS
    return dataclasses.replace(policy, seed_lease_ms=lease_ms, exec_timeout_ms=lease_ms + EXEC_ROOM_MS)


def params_of(job: Job) -> FetchParams:
    """The params of a fetch job. Raises ValueError for a row that holds none."""
    return _params.decode(job.params or "{}")


def policy_of(job: Job, policies: Mapping[str, Policy]) -> Policy:
    """The policy in force for the same request made again."""
    try:
        params = params_of(job)
    except msgspec.DecodeError:
        return for_timeout(policies[UNSAFE], TIMEOUT_MAX_MS)
    name = policy_name(params.method, idempotent=params.idempotent)
    return for_timeout(policies[name], params.timeout_ms)
