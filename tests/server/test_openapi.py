"""The API's description: valid, complete, and true of what the server answers."""

import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from farhand.engine.registry import AGENT_GRANTS
from farhand.server.openapi import document
from tests.server.serving import ALL, Machine, Server, all_routes, serving

DOCUMENT: dict[str, Any] = document(all_routes())
ROUTES = {(route.method, route.path): route for route in all_routes()}
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Machine, dict[str, str]]]:
    """A server that holds no poll for long, with something of every kind."""
    with serving(tmp_path_factory.mktemp("openapi") / "data", poll_wait_ms=0, sections=ALL) as server:
        machine = server.machine()
        grants = {"grants": list(AGENT_GRANTS)}
        server.call("PUT", f"/agents/{machine.id}/grants", json_body=grants).ok()
        command = {"type": "demo.say", "agent": machine.name}
        ids = {
            "jobs": server.submit(machine.printers[0])["id"],
            "agents": server.machine().id,
            "printers": machine.printers[0],
            "commands": server.call("POST", "/commands", json_body=command).ok(201)["id"],
            "keys": server.call("POST", "/keys", json_body={"name": "k", "grants": []}).ok(201)["id"],
        }
        yield server, machine, ids


def test_the_description_is_valid_openapi(quick: tuple[Server, Machine, dict[str, str]]) -> None:
    served = quick[0].call("GET", "/openapi.json", key=None).ok()
    OpenAPIV31SpecValidator(served).validate()
    assert served == DOCUMENT
    assert served["openapi"].startswith("3.1")


@pytest.mark.parametrize("route", all_routes(), ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_described_with_its_types(route: Any) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    assert operation["summary"]
    assert operation["operationId"]
    if route.request is bytes:
        assert list(operation["requestBody"]["content"]) == ["application/octet-stream"]
    elif route.request is not None:
        body = operation["requestBody"]
        reference = body["content"]["application/json"]["schema"]["$ref"]
        assert reference == f"#/components/schemas/{route.request.__name__}"
        assert route.request.__name__ in DOCUMENT["components"]["schemas"]
        assert body["required"] is not route.request_optional
    assert "default" in operation["responses"]
    assert len(operation["responses"]) > 1
    assert ("security" in operation) is (route.grant is not None)


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def without_waits(body: Any) -> None:
    """Take the waiting out of a generated body, wherever it is asked for."""
    if isinstance(body, dict):
        if isinstance(body.get("wait_ms"), int):
            body["wait_ms"] = 0
        without_waits(body.get("next"))


@schema.parametrize()
@hypothesis.settings(
    max_examples=12,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=list(hypothesis.HealthCheck),
    database=None,
)
def test_what_fits_the_description_is_answered_as_described(
    case: Case, quick: tuple[Server, Machine, dict[str, str]]
) -> None:
    server, machine, ids = quick
    # Some cases try a method that the path does not know; the caller is that of the one it knows.
    route = ROUTES[case.operation.method.upper(), case.path]
    kind = case.path.split("/")[1]
    # The other half of the cases keep the ids that were made up.
    for name in ("id", "uuid"):
        if case.path_parameters and name in case.path_parameters and len(str(case.body)) % 2 == 0:
            case.path_parameters[name] = ids.get(kind, ids["commands" if name == "uuid" else "jobs"])
    without_waits(case.body)
    if isinstance(case.body, dict) and "printer_id" in case.body and len(str(case.body)) % 3:
        case.body["printer_id"] = ids["printers"]
    case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "prefer"}
    agent = route.grant in AGENT_GRANTS or route.grant == "any key"
    key = machine.key if agent else server.token
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{server.port}",
        headers={"Authorization": f"Bearer {key}"},
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ],
    )
