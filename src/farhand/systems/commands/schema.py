"""Params against the JSON Schema of their type."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from farhand.model.errors import FarhandError, Problem
from farhand.protocol.wire import bad_field

MESSAGE_MAX = 300


class BadSchema(FarhandError):
    """A params_schema that is no JSON Schema, or refers to what it does not hold."""

    code = "bad-config"


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    """The validator of a schema. Raises BadSchema when it is none, or refers outside itself."""
    plain = dict(schema)
    kind = jsonschema.validators.validator_for(plain, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(plain)
    except SchemaError as error:
        path = _path("params_schema", error.absolute_path)
        raise BadSchema(f"{path}: {_short(error.message)}") from error
    for reference in _references(plain):
        if not reference.startswith("#"):
            raise BadSchema(
                f"params_schema: $ref {reference!r} leads outside; write the part under $defs and "
                "refer to it as #/$defs/NAME"
            )
        try:
            root: Any = DRAFT202012.create_resource(plain)
            cast("Any", Registry)().resolver_with_root(root).lookup(reference)
        except Unresolvable as error:
            raise BadSchema(f"params_schema: $ref {reference!r} leads nowhere") from error
    # A registry of its own: the library's default one would fetch what a reference names.
    return kind(plain, registry=Registry(), format_checker=kind.FORMAT_CHECKER)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, entry in cast("dict[str, Any]", value).items():
            if key in ("$ref", "$dynamicRef") and isinstance(entry, str):
                yield entry
            else:
                yield from _references(entry)
    elif isinstance(value, list):
        for entry in cast("list[Any]", value):
            yield from _references(entry)


def check_params(validator: Validator, params: Mapping[str, Any]) -> None:
    """Raise Problem `bad-field` that names the path of what does not fit."""
    found: Any = jsonschema.exceptions
    error: ValidationError | None = found.best_match(validator.iter_errors(params))
    if error is not None:
        raise _problem(error)


def _problem(error: ValidationError) -> Problem:
    path = _path("params", error.absolute_path)
    instance, rule = cast("Any", error.instance), cast("Any", error.validator_value)
    if error.validator == "required":
        missing = next((name for name in rule if name not in instance), None)
        return bad_field(f"{path}.{missing}", "is required")
    if error.validator == "additionalProperties" and rule is False:
        schema = cast("Mapping[str, Any]", error.schema)
        strangers = [name for name in instance if name not in schema.get("properties", {})]
        if strangers and "patternProperties" not in schema:
            return bad_field(f"{path}.{strangers[0]}", "is not known to this type of command")
    return bad_field(path, _short(error.message))


def _path(start: str, steps: Any) -> str:
    return start + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _short(text: str) -> str:
    return text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]} …"
