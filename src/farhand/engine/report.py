"""What an agent reports, and parting its secret fields from the rest before any of it is written."""

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from farhand.model.policy import SECOND, Policy

SECRET_TTL_MS: Final = 90 * SECOND
WHOLE: Final = "result"
MASK: Final = "***"
MASKED_LENGTH_MIN: Final = 6


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says happened. `digest` identifies the report for replays (SHA-256).

    `secret` holds the fields that `conceal` took out of `result`, as JSON. Neither these nor
    the digest, by which a short one could be guessed, are in the repr.
    """

    ok: bool
    digest: bytes
    cancelled: bool = False
    uncertain: bool = False
    error: str | None = None
    retryable: bool = False
    retry_after_ms: int | None = None
    evidence: str | None = None
    result: str | None = None
    secret: str | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What is no secret."""
        shown = ("ok", "cancelled", "uncertain", "retryable", "retry_after_ms", "evidence")
        return [(name, getattr(self, name)) for name in shown]

    def __repr__(self) -> str:
        """What is no secret."""
        return f"Report({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


def secret_ttl_ms(policy: Policy) -> int:
    """How long the secrets of a kind are kept after they were reported."""
    return SECRET_TTL_MS if policy.result_ttl_ms is None else policy.result_ttl_ms


def conceal(report: Report, policy: Policy, keyed: Callable[[bytes], bytes]) -> Report:
    """The report with its secret fields apart, and nothing of them left in the rest.

    `keyed` turns the digest into one that only who has the key can compare with a guess: an
    unkeyed digest of a short secret can be tried out. A result that is no object is secret as
    a whole, under the name `result`.
    """
    if not policy.secret_fields:
        return report
    public, secret = split(report.result, frozenset(policy.secret_fields))
    return msgspec.structs.replace(
        report,
        digest=keyed(report.digest),
        result=public,
        secret=secret,
        error=_masked(report.error, secret),
    )


def split(result: str | None, names: frozenset[str]) -> tuple[str | None, str | None]:
    """A JSON result as its public and its secret part, each None when there is nothing in it.

    A field with a secret name anywhere inside it is secret as a whole.
    """
    if result is None:
        return None, None
    try:
        fields = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None, _encode({WHOLE: msgspec.Raw(result.encode())})
    secret = {
        name: value
        for name, value in fields.items()
        if name in names or _names_within(msgspec.json.decode(value), names)
    }
    public = {name: value for name, value in fields.items() if name not in secret}
    return (_encode(public) if public or not secret else None), (_encode(secret) if secret else None)


def _encode(fields: dict[str, msgspec.Raw]) -> str:
    return msgspec.json.encode(fields).decode()


def _names_within(value: object, names: frozenset[str]) -> bool:
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return any(name in names or _names_within(entry, names) for name, entry in entries.items())
    if isinstance(value, list):
        return any(_names_within(entry, names) for entry in cast("list[Any]", value))
    return False


def _masked(error: str | None, secret: str | None) -> str | None:
    """An error text without the secrets reported beside it; short ones could be any word."""
    if error is None or secret is None:
        return error
    for text in sorted(set(_texts(msgspec.json.decode(secret))), key=len, reverse=True):
        if len(text) < MASKED_LENGTH_MIN:
            continue
        for form in (text, msgspec.json.encode(text).decode()[1:-1]):
            error = error.replace(form, MASK)
    return error


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for entry in cast("dict[str, Any]", value).values():
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in cast("list[Any]", value):
            yield from _texts(entry)
