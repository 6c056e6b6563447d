"""Policy rows: immutable, found by content, cached by id."""

import dataclasses
import hashlib
import json
from typing import Any, Final

from farhand.model.policy import Policy
from farhand.storage.database import Reader, Tx

_LISTS: Final = ("requires", "secret_fields")


def encode(policy: Policy) -> str:
    """A policy as canonical JSON."""
    return json.dumps(dataclasses.asdict(policy), sort_keys=True, separators=(",", ":"))


def decode(body: str) -> Policy:
    """A policy from its row; lists become the tuples they were."""
    fields: dict[str, Any] = json.loads(body)
    for name in _LISTS:
        fields[name] = tuple(fields[name])
    return Policy(**fields)


class Policies:
    """The policies this process has met."""

    def __init__(self) -> None:
        self._by_id: dict[int, Policy] = {}
        self._ids: dict[tuple[int, str, Policy], int] = {}

    async def row_id(self, tx: Tx, org_id: int, name: str, policy: Policy, now: int) -> int:
        """The id of the policy's row, made when it is new."""
        known = self._ids.get((org_id, name, policy))
        if known is not None:
            return known
        body = encode(policy)
        digest = hashlib.sha256(f"{name}\n{body}".encode()).digest()
        await tx.run(
            "insert_policy", {"org_id": org_id, "name": name, "digest": digest, "body": body, "now": now}
        )
        row = await tx.one("policy_by_digest", {"org_id": org_id, "digest": digest})
        if row is None:
            raise LookupError("the policy row that was just written is not there")
        return row[0]

    def remember(self, org_id: int, name: str, policy: Policy, row_id: int) -> None:
        """Keep a row that is committed: the number of one rolled back goes to another policy."""
        self._ids[(org_id, name, policy)] = row_id
        self._by_id[row_id] = policy

    def keep(self, read: dict[int, Policy]) -> None:
        """Keep policies that a transaction read, once it is committed."""
        self._by_id.update(read)

    async def get(self, reader: Reader, row_id: int) -> Policy:
        """The policy of a row, which may be uncommitted. Raises LookupError when there is none."""
        policy = self._by_id.get(row_id)
        if policy is not None:
            return policy
        row = await reader.one("policy_by_id", {"id": row_id})
        if row is None:
            raise LookupError(f"policy row {row_id} is missing")
        return decode(row[1])
