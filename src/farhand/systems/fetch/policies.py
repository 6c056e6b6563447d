"""The two policies of fetch jobs. Importing this costs nothing: the manifest does."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from farhand.model.policy import FETCH_SAFE, FETCH_UNSAFE, Policy

KIND: Final = "fetch.http"
UNSAFE: Final = "fetch.http.unsafe"
CAPABILITY: Final = "fetch"
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
RESULT_BYTES_MAX: Final = 2 * 1024 * 1024
"""Room for a body that travels in the result, however its characters have to be escaped."""


def _as_fetch(policy: Policy) -> Policy:
    return dataclasses.replace(
        policy,
        requires=(CAPABILITY,),
        payload_bytes_max=BODY_BYTES_MAX,
        result_bytes_max=RESULT_BYTES_MAX,
    )


POLICIES: Final[Mapping[str, Policy]] = {KIND: _as_fetch(FETCH_SAFE), UNSAFE: _as_fetch(FETCH_UNSAFE)}
