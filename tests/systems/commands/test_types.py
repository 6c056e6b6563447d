"""Declaring types: in farhand.toml, and by Python packages."""

import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from farhand.model.errors import FarhandError, Problem
from farhand.model.policy import COMMAND, DAY, HOUR, MINUTE, SECOND
from farhand.model.system import ManifestError, System
from farhand.server.config import ConfigError, load
from farhand.server.config import policies as in_force
from farhand.server.serve import system_policies
from farhand.systems import configured, find_systems, tables_of
from farhand.systems import load as resolve
from farhand.systems.commands import SYSTEM
from farhand.systems.commands.declare import ENTRY_POINTS, FIELDS, Declared, declare
from farhand.systems.commands.kind import CommandType, window_max_ms
from farhand.systems.commands.schema import check_params
from tests.server.serving import serving

TABLES = tables_of(find_systems(()))


def written(tmp_path: Path, text: str) -> System:
    """The commands' manifest under a farhand.toml."""
    path = tmp_path / "farhand.toml"
    path.write_text(text)
    config = load(path, {}, tables=TABLES)
    (found,) = [s for s in configured(find_systems(()), config.sections, resolve) if s.name == "commands"]
    return found


def package(monkeypatch: pytest.MonkeyPatch, name: str, declared: object) -> EntryPoint:
    """An installed package that declares types."""
    module = types.ModuleType(name)
    module.TYPES = declared  # type: ignore[attr-defined]  (a module made for the test)
    monkeypatch.setitem(sys.modules, name, module)
    return EntryPoint(name=name, value=f"{name}:TYPES", group=ENTRY_POINTS)


def test_without_a_declaration_there_is_no_type() -> None:
    assert declare(SYSTEM, {}, ()).kinds == ()


def test_a_table_declares_a_type_with_its_policy(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        """
        [commands."whatsapp.connect"]
        start_by_ms = 120_000
        max_attempts = 5
        backoff_base_ms = 10_000
        deadline_ms = 600_000
        secret_fields = ["qr_code"]
        result_ttl_ms = 60_000

        [commands."whatsapp.status"]
        """,
    )
    assert found.kinds == ("command.whatsapp.connect", "command.whatsapp.status")
    assert found.types == {kind: kind for kind in found.kinds}
    policy = found.policies["command.whatsapp.connect"]
    assert (policy.start_by_ms, policy.max_attempts, policy.backoff_base_ms) == (120_000, 5, 10_000)
    assert (policy.deadline_ms, policy.secret_fields, policy.result_ttl_ms) == (600_000, ("qr_code",), 60_000)
    assert found.policies["command.whatsapp.status"] == COMMAND


def test_the_defaults_are_those_of_background_work() -> None:
    assert (COMMAND.start_by_ms, COMMAND.deadline_ms) == (5 * MINUTE, 15 * MINUTE)
    assert (COMMAND.max_attempts, COMMAND.backoff_base_ms) == (3, 30 * SECOND)
    assert (COMMAND.seed_lease_ms, COMMAND.on_lost_running) == (5 * MINUTE, "queued")
    assert COMMAND.active_key == "{agent}:{kind}"


def test_secrets_live_for_ninety_seconds_unless_said_otherwise(tmp_path: Path) -> None:
    found = written(tmp_path, '[commands."x"]\nsecret_fields = ["qr_code"]')
    assert found.policies["command.x"].result_ttl_ms == 90_000


def test_a_long_window_moves_the_deadline_that_nobody_declared(tmp_path: Path) -> None:
    policy = written(tmp_path, '[commands."x"]\nstart_by_ms = 3_600_000').policies["command.x"]
    assert policy.deadline_ms == HOUR + 10 * MINUTE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[commands."x"]\nstart_by = 1', ["start_by", "did you mean 'start_by_ms'?"]),
        ('[commands."x"]\nlane = "agent"', ['[commands."x"]', "lane"]),
        ('[commands."x"]\nstart_by_ms = "soon"', ['[commands."x"] start_by_ms', "whole number"]),
        ('[commands."x"]\nstart_by_ms = -1', ["start_by_ms", "negative"]),
        ('[commands."x"]\nstart_by_ms = 999', ["start_by_ms", "at least 1000"]),
        ('[commands."x"]\nmax_attempts = 0', ["max_attempts", "at least 1"]),
        ('[commands."x"]\nstart_by_ms = 90_000\ndeadline_ms = 60_000', ["start_by_ms", "deadline_ms"]),
        ('[commands."x"]\nactive_key = "{agnet}"', ["active_key", "{agent}"]),
        ('[commands."x"]\nactive_key = "{"', ["active_key"]),
        ('[commands."x"]\non_lost_running = "again"', ["on_lost_running", "queued"]),
        ('[commands."x"]\nsecret_fields = "qr"', ["secret_fields", "list"]),
        ('[commands."x"]\nparams_schema = "x"', ["params_schema", "table"]),
        ('[commands."x".params_schema]\ntype = "objekt"', ['[commands."x"] params_schema.type', "objekt"]),
        ('[commands."x".params_schema]\n"$ref" = "http://127.0.0.1:1/x"', ["$ref", "outside"]),
        ('[commands."x".params_schema]\n"$ref" = "#/$defs/nothing"', ["$ref", "nowhere"]),
        ("[commands.whatsapp.connect]\nstart_by_ms = 1", ['[commands."whatsapp.connect"]']),
        ('[commands."Bad Name"]', ["Bad Name"]),
        ('[commands.""]', ["cannot name"]),
        ('[commands."a..b"]', ["a..b"]),
        ("[commands]\nwhatsapp = 1", ["whatsapp", '[commands."TYPE"]']),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused_in_words(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    with pytest.raises(FarhandError) as refusal:
        written(tmp_path, text)
    for word in words:
        assert word in refusal.value.message
    assert type(refusal.value).code == "bad-config"


@pytest.mark.parametrize(
    ("text", "word"),
    [("[comands]\nx = 1", "did you mean 'commands'?"), ("commands = 1", "must be a table")],
)
def test_a_table_that_is_none_of_ours_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "farhand.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="commands") as refusal:
        load(path, {}, tables=TABLES)
    assert word in refusal.value.message


def test_a_section_of_no_system_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"\[comands\]; did you mean 'commands'"):
        configured(find_systems(()), {"comands": {}}, resolve)


def test_every_field_that_a_type_may_set_is_a_policy_field() -> None:
    assert set(FIELDS) < set(COMMAND.__dataclass_fields__)


def test_a_policy_table_may_change_a_declared_type_too(tmp_path: Path) -> None:
    path = tmp_path / "farhand.toml"
    path.write_text('[commands."x"]\nstart_by_ms = 60_000\n[policy."command.x"]\nretain_ms = 1')
    config = load(path, {}, tables=TABLES)
    systems = configured(find_systems(()), config.sections, resolve)
    policy = in_force(system_policies(systems), config)["command.x"]
    assert (policy.start_by_ms, policy.retain_ms) == (60_000, 1)


def test_a_package_declares_types(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CommandType(type="crm.sync", policy={"start_by_ms": 60_000}, params_schema={"required": ["id"]})
    found = declare(
        SYSTEM,
        {},
        (
            package(monkeypatch, "a_crm", [one, CommandType(type="crm.purge")]),
            package(monkeypatch, "a_till", CommandType(type="till.open")),
        ),
    )
    assert found.kinds == ("command.crm.purge", "command.crm.sync", "command.till.open")
    assert found.policies["command.crm.sync"].start_by_ms == 60_000
    declared = found.declared["command.crm.sync"]
    assert isinstance(declared, Declared)
    assert declared.validator is not None
    with pytest.raises(Problem, match=r"params\.id"):
        check_params(declared.validator, {})


def test_the_operators_fields_win_over_a_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CommandType(type="crm.sync", policy={"start_by_ms": 60_000, "max_attempts": 7})
    point = package(monkeypatch, "a_crm", one)
    policy = declare(SYSTEM, {"crm.sync": {"start_by_ms": 30_000}}, (point,)).policies["command.crm.sync"]
    assert (policy.start_by_ms, policy.max_attempts) == (30_000, 7)


@pytest.mark.parametrize("declared", [object(), ["crm.sync"], None])
def test_what_is_no_type_is_named(monkeypatch: pytest.MonkeyPatch, declared: object) -> None:
    with pytest.raises(FarhandError, match="a_stranger:TYPES"):
        declare(SYSTEM, {}, (package(monkeypatch, "a_stranger", declared),))


def test_a_package_that_cannot_be_loaded_is_named() -> None:
    point = EntryPoint(name="x", value="no_such_package_anywhere:TYPES", group=ENTRY_POINTS)
    with pytest.raises(FarhandError, match="no_such_package_anywhere:TYPES"):
        declare(SYSTEM, {}, (point,))


def test_a_type_declared_by_two_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [package(monkeypatch, name, CommandType(type="crm.sync")) for name in ("one_crm", "two_crm")]
    with pytest.raises(FarhandError, match="one_crm:TYPES and by two_crm:TYPES"):
        declare(SYSTEM, {}, points)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 15 * 60),
        ({"start_by_ms": 120_000}, 8 * 60),
        ({"start_by_ms": 120_000, "deadline_ms": "none"}, 8 * 60),
        ({"start_by_ms": 12 * HOUR, "deadline_ms": 3 * DAY}, 24 * 3600),
        ({"start_by_ms": 2 * DAY, "deadline_ms": 3 * DAY}, 2 * 24 * 3600),
        ({"start_by_ms": "none", "deadline_ms": "none"}, 24 * 3600),
    ],
)
def test_one_command_may_ask_for_four_times_the_window_within_its_deadline(
    changes: dict[str, Any], seconds: int
) -> None:
    assert window_max_ms(COMMAND.override("x", changes)) == seconds * 1000


SCHEMA = {
    "$defs": {"phone": {"type": "string", "pattern": "^[0-9]+$"}},
    "properties": {
        "phone": {"$ref": "#/$defs/phone"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "patternProperties": {"^x-": {}},
    "additionalProperties": False,
    "required": ["phone"],
}


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "params.phone"),
        ({"phone": "+49"}, "params.phone"),
        ({"phone": "49", "tags": ["a", 1]}, "params.tags[1]"),
        ({"phone": "49", "y-other": 1}, "params"),
    ],
)
def test_what_a_schema_refuses_is_named_by_its_path(params: dict[str, Any], field: str) -> None:
    declared = declare(SYSTEM, {"x": {"params_schema": SCHEMA}}, ()).declared["command.x"]
    with pytest.raises(Problem) as refusal:
        check_params(declared.validator, params)
    assert refusal.value.extra["field"] == field
    check_params(declared.validator, {"phone": "49", "x-other": 1})


def test_a_huge_value_is_not_repeated_in_the_refusal() -> None:
    declared = declare(SYSTEM, {"x": {"params_schema": SCHEMA}}, ()).declared["command.x"]
    with pytest.raises(Problem) as refusal:
        check_params(declared.validator, {"phone": "x" * 50_000})
    assert len(refusal.value.message) < 400


def test_a_server_does_not_start_on_a_declaration_that_does_not_fit(tmp_path: Path) -> None:
    with (
        pytest.raises(FarhandError, match="did you mean 'start_by_ms'"),
        serving(tmp_path / "data", sections={"commands": {"x": {"start_by": 1}}}),
    ):
        pass
