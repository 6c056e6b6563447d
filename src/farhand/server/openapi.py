"""OpenAPI 3.1 from the route table and the message types."""

from typing import Any, cast

import msgspec

from farhand import __version__
from farhand.model.errors import CODES
from farhand.server.routes import Route

REF = "#/components/schemas/{name}"
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(CODES)},
        "retryable": {"type": "boolean"},
    },
}


def document(routes: list[Route]) -> dict[str, Any]:
    """The whole description."""
    types = _types(routes)
    _, components = msgspec.json.schema_components(types, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Farhand",
            "version": __version__,
            "description": "A control plane for machines nobody can call.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(routes: list[Route]) -> list[type]:
    found: dict[str, type] = {}
    for route in routes:
        for message in (route.request, route.failure, *(_inner(reply) for reply in route.replies.values())):
            if isinstance(message, type) and issubclass(message, msgspec.Struct):
                found[message.__name__] = message
    return list(found.values())


def _inner(reply: Any) -> Any:
    return reply[0] if isinstance(reply, list) else reply  # pyright: ignore[reportUnknownVariableType]  (a message type)


def _ref(message: type) -> dict[str, Any]:
    return {"$ref": REF.format(name=message.__name__)}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{route.path.strip('/').replace('/', '_').translate(_PLAIN)}",
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.request is not None:
        operation["requestBody"] = {
            "required": not route.request_optional,
            "content": _body(route.request),
        }
    if route.grant is not None:
        operation["security"] = [{"key": []}]
        operation["x-grant"] = route.grant
    return operation


def _body(request: type) -> dict[str, Any]:
    if request is bytes:
        return {"application/octet-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": _ref(request)}}


_PLAIN = str.maketrans({"{": None, "}": None, ".": "_"})


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in route.path.split("/"):
        if part.startswith("{"):
            found.append({"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}})
    for name in route.query:
        schema = {"type": "integer", "minimum": 1, "maximum": 200} if name == "limit" else {"type": "string"}
        found.append({"name": name, "in": "query", "schema": schema})
    if route.held:
        found.append(
            {"name": "Prefer", "in": "header", "schema": {"type": "string", "pattern": r"^wait=\d+$"}}
        )
    if route.keyed:
        found.append(
            {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255}}
        )
    return found


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, reply in (route.replies or {200: None}).items():
        responses[str(status)] = _response(reply)
    problem = {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}}
    if route.failure is not None:
        problem["application/json"] = {"schema": _ref(route.failure)}
    responses["default"] = {"description": "A problem document", "content": problem}
    return responses


def _items(reply: list[Any]) -> dict[str, Any]:
    """A list of one type; with Problem as the second, each entry is answered by itself."""
    item, *others = reply
    if others:
        entry: dict[str, Any] = {"anyOf": [_ref(item), {"$ref": REF.format(name="Problem")}]}
        properties: dict[str, Any] = {"items": {"type": "array", "items": entry}}
    else:
        properties = {
            "items": {"type": "array", "items": _ref(item)},
            "next": {"type": ["string", "null"]},
        }
    schema = {"type": "object", "required": list(properties), "properties": properties}
    description = "An answer for each" if others else "A page"
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _response(reply: Any) -> dict[str, Any]:
    if reply is None:
        return {"description": "Done"}
    if reply is bytes:
        return {
            "description": "The bytes",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    if reply is Any:
        return {"description": "The bytes", "content": {"*/*": {"schema": {}}}}
    if reply is str:
        return {"description": "The text", "content": {"text/plain": {"schema": {"type": "string"}}}}
    if reply is dict:
        return {"description": "Done", "content": {"application/json": {"schema": {"type": "object"}}}}
    if isinstance(reply, list):
        return _items(cast("list[Any]", reply))
    return {"description": "Done", "content": {"application/json": {"schema": _ref(reply)}}}
