"""The types that there are: tables of farhand.toml, and what Python packages declare."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, cast

from farhand.model.errors import FarhandError
from farhand.model.policy import COMMAND, MINUTE, SECOND, Policy, PolicyError, suggest
from farhand.model.system import System
from farhand.systems.commands.kind import CommandType, is_type_name, kind_of

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

ENTRY_POINTS: Final = "farhand.commands"
SCHEMA: Final = "params_schema"
SECRET_TTL_MS: Final = 90 * SECOND
FIELDS: Final = (
    "start_by_ms",
    "deadline_ms",
    "exec_timeout_ms",
    "lease_ms",
    "seed_lease_ms",
    "max_attempts",
    "backoff_base_ms",
    "backoff_cap_ms",
    "on_lost_running",
    "cancel_grace_ms",
    "active_key",
    "secret_fields",
    "result_ttl_ms",
    "retain_ms",
    "result_bytes_max",
)
"""The policy fields that a type may set; the others are what makes it a command."""

_LEAST: Final = {
    "start_by_ms": SECOND,
    "deadline_ms": SECOND,
    "exec_timeout_ms": SECOND,
    "lease_ms": SECOND,
    "seed_lease_ms": SECOND,
    "max_attempts": 1,
    "result_ttl_ms": 1,
}


class DeclarationError(FarhandError):
    """A declared type that cannot be; the message names it and says what to write."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A type in force, with the validator of its params when there is one."""

    type: str
    policy: Policy
    validator: "Validator | None" = None


def configure(system: System, table: Mapping[str, object]) -> System:
    """The manifest with a kind for each declared type.

    Raises DeclarationError or PolicyError naming the type and field that does not fit.
    """
    return declare(system, table, entry_points(group=ENTRY_POINTS))


def declare(system: System, table: Mapping[str, object], packages: Iterable[EntryPoint]) -> System:
    """The manifest with the types of a table and of packages; the table's fields win."""
    types = {kind_of(found.type): found for found in _collect(table, packages)}
    return dataclasses.replace(
        system,
        kinds=tuple(types),
        types={kind: kind for kind in types},
        policies={kind: found.policy for kind, found in types.items()},
        declared=types,
    )


def _collect(table: Mapping[str, object], packages: Iterable[EntryPoint]) -> list[Declared]:
    fields: dict[str, dict[str, object]] = {}
    owners: dict[str, str] = {}
    for point in packages:
        for found in _of_package(point):
            if found.type in owners:
                raise DeclarationError(
                    f"the command type {found.type!r} is declared by {owners[found.type]} and by "
                    f"{point.value}; remove one of the packages"
                )
            owners[found.type] = point.value
            fields[found.type] = {**found.policy, SCHEMA: found.params_schema}
    for name, entry in table.items():
        fields[name] = {**fields.get(name, {}), **_of_table(name, entry)}
    return [_declared(name, given) for name, given in sorted(fields.items())]


def _of_package(point: EntryPoint) -> list[CommandType]:
    try:
        loaded = point.load()
    except Exception as error:
        raise DeclarationError(
            f"{point.value} ({ENTRY_POINTS}) cannot be loaded: {error}; repair or remove the package"
        ) from error
    found: list[Any] = [loaded] if isinstance(loaded, CommandType) else _listed(loaded)
    for entry in found:
        if not isinstance(entry, CommandType):
            raise DeclarationError(
                f"{point.value} ({ENTRY_POINTS}) is no CommandType and no list of them; "
                "see farhand.systems.commands.kind"
            )
    return found


def _listed(loaded: object) -> list[Any]:
    return list(cast("Iterable[Any]", loaded)) if isinstance(loaded, list | tuple) else [loaded]


def _of_table(name: str, entry: object) -> Mapping[str, object]:
    if not isinstance(entry, Mapping):
        raise DeclarationError(
            f'[commands] holds a table for each type, not {name}; write [commands."TYPE"] above its fields'
        )
    fields = cast("Mapping[str, object]", entry)
    nested = next((key for key, value in fields.items() if _is_nested(key, value)), None)
    if nested is not None:
        raise DeclarationError(
            f"[commands.{name}.{nested}] is not how a type with a dot is written; put it in quotes: "
            f'[commands."{name}.{nested}"]'
        )
    return fields


def _is_nested(key: str, value: object) -> bool:
    return key != SCHEMA and key not in FIELDS and isinstance(value, Mapping)


def _declared(name: str, given: Mapping[str, object]) -> Declared:
    if not is_type_name(name):
        raise DeclarationError(
            f"{name!r} cannot name a command type; use a-z, 0-9, - and _, with dots between the parts, "
            "and begin with a letter"
        )
    changes = dict(given)
    schema = changes.pop(SCHEMA, None)
    for key in changes:
        if key not in FIELDS:
            raise DeclarationError(f"{_place(name)} has no field {key!r}{suggest(key, (*FIELDS, SCHEMA))}")
    try:
        policy = COMMAND.override(name, changes)
    except PolicyError as error:
        raise DeclarationError(error.message.replace("[policy.", "[commands.", 1)) from error
    return Declared(type=name, policy=_completed(name, policy, changes), validator=_validator(name, schema))


def _place(name: str) -> str:
    return f'[commands."{name}"]'


def _completed(name: str, policy: Policy, given: Mapping[str, object]) -> Policy:
    """The policy with what follows from the fields that were given. Raises DeclarationError."""
    for key, least in _LEAST.items():
        value = getattr(policy, key)
        if value is not None and value < least:
            raise DeclarationError(f"{_place(name)} {key} must be at least {least}, got {value}")
    if policy.active_key is not None:
        try:
            policy.active_key.format(agent="", kind="")
        except (LookupError, ValueError) as error:
            raise DeclarationError(
                f"{_place(name)} active_key may hold {{agent}} and {{kind}} only, got {policy.active_key!r}"
            ) from error
    if policy.secret_fields and policy.result_ttl_ms is None:
        policy = dataclasses.replace(policy, result_ttl_ms=SECRET_TTL_MS)
    window = policy.start_by_ms
    if window is None or policy.deadline_ms is None or window <= policy.deadline_ms:
        return policy
    if "deadline_ms" in given:
        raise DeclarationError(
            f"{_place(name)} start_by_ms ({window}) must not be longer than deadline_ms "
            f"({policy.deadline_ms}), which bounds the whole command"
        )
    return dataclasses.replace(policy, deadline_ms=window + 10 * MINUTE)


def _validator(name: str, schema: object) -> "Validator | None":
    if schema is None:
        return None
    if not isinstance(schema, Mapping):
        raise DeclarationError(f"{_place(name)} {SCHEMA} must be a table that holds a JSON Schema")
    from farhand.systems.commands.schema import BadSchema, compile_schema

    try:
        return compile_schema(cast("Mapping[str, Any]", schema))
    except BadSchema as error:
        raise DeclarationError(f"{_place(name)} {error.message}") from error
