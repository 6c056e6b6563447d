"""The shape of the source, where a linter has no rule for it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "farhand"

MODULE_LINES = 400
FUNCTION_LINES = 50
VAGUE_NAMES = re.compile(r"(utils?|common|helpers?|managers?)$", re.IGNORECASE)

# The clock is injected, so that tests own it; jitter and ids come from `secrets` and `uuid`.
CLOCK_MODULE = SRC / "model" / "clock.py"
AMBIENT_NAMES = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "sleep"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}

# Upper case, as statements are written here: prose about selecting something from a list is no SQL.
SQL = re.compile(
    r"\bSELECT\b.+\bFROM\s+\w"
    r"|\bINSERT\s+(OR\s+\w+\s+)?INTO\s+\w"
    r"|\bUPDATE\s+\w+\s+SET\s"
    r"|\bDELETE\s+FROM\s+\w"
    r"|\b(CREATE|ALTER|DROP)\s+(UNIQUE\s+)?(TABLE|INDEX)\s",
    re.DOTALL,
)

# An ignored rule is named in brackets, and the rest of the line says why.
IGNORE = re.compile(r"#\s*(type|pyright):\s*ignore")
EXPLAINED_IGNORE = re.compile(r"#\s*(type|pyright):\s*ignore\[[\w, -]+\]\W*\s\W*\w")

# Places of one machine have no meaning on another. Written in two parts, not to find themselves.
PRIVATE_PLACES = re.compile(r"(?<![\w.}>-])/(" + "work" + r"|" + "root" + r")/\w")
UNREAD_SUFFIXES = {".pdf", ".png", ".jpg", ".gif", ".ico", ".woff2", ".pwg", ".urf"}


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def assert_none(what: str, found: list[str]) -> None:
    assert not found, what + ":\n  " + "\n  ".join(found)


def test_modules_are_short() -> None:
    long = [
        f"{name_of(path)}: {lines} lines"
        for path in python_files(SRC)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES
    ]
    assert_none(f"modules longer than {MODULE_LINES} lines; split them by what they are about", long)


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {lines} lines"
        for path in python_files(SRC)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert_none(f"functions longer than {FUNCTION_LINES} lines", long)


def test_no_module_has_a_name_that_says_nothing() -> None:
    folders = [SRC, ROOT / "tests", ROOT / "bench", ROOT / "scripts"]
    vague = {
        name_of(path)
        for path in python_files(*folders)
        for part in path.relative_to(ROOT).with_suffix("").parts
        if VAGUE_NAMES.search(part)
    }
    assert_none("name a module after what is in it", sorted(vague))


def ambient_uses(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if (owner, attr) in AMBIENT_NAMES:
                yield f"{name_of(path)}:{node.lineno} {owner}.{attr}"
            case ast.Attribute(value=ast.Attribute(attr=owner), attr=attr) if (owner, attr) in AMBIENT_NAMES:
                yield f"{name_of(path)}:{node.lineno} {owner}.{attr}"
            case ast.ImportFrom(module="time", names=names):
                for alias in names:
                    if ("time", alias.name) in AMBIENT_NAMES:
                        yield f"{name_of(path)}:{node.lineno} from time import {alias.name}"
            case ast.ImportFrom(module="random"):
                yield f"{name_of(path)}:{node.lineno} from random import"
            case ast.Import(names=names) if any(alias.name == "random" for alias in names):
                yield f"{name_of(path)}:{node.lineno} import random"
            case _:
                pass


def test_time_and_chance_are_injected() -> None:
    found = [use for path in python_files(SRC) if path != CLOCK_MODULE for use in ambient_uses(path)]
    assert_none("take a Clock (farhand.model.clock); for chance use secrets", found)


def docstrings(tree: ast.Module) -> set[int]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }


def sql_strings(path: Path) -> Iterator[str]:
    tree = tree_of(path)
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in prose
            and SQL.search(node.value)
        ):
            yield f"{name_of(path)}:{node.lineno} {node.value.strip().splitlines()[0][:60]}"


def test_sql_lives_in_sql_files() -> None:
    found = [text for path in python_files(SRC) for text in sql_strings(path)]
    assert_none("statements belong to src/farhand/storage/sql/*.sql, by name", found)


def test_ignored_type_errors_have_a_reason() -> None:
    bare = [
        f"{name_of(path)}:{number}"
        for path in python_files(SRC, ROOT / "tests", ROOT / "bench")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if path != Path(__file__) and IGNORE.search(line) and not EXPLAINED_IGNORE.search(line)
    ]
    assert_none("write `# type: ignore[rule]  (why)`", bare)


def test_the_model_needs_the_standard_library_alone() -> None:
    foreign = []
    for path in python_files(SRC / "model"):
        for node in ast.walk(tree_of(path)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            foreign += [
                f"{name_of(path)}:{node.lineno} {module}"
                for module in modules
                if module.split(".")[0] not in sys.stdlib_module_names
                and module.split(".")[:2] != ["farhand", "model"]
            ]
    assert_none("the model is pure", foreign)


def project_files() -> list[Path]:
    """What git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in UNREAD_SUFFIXES]


def test_no_file_names_a_place_of_one_machine() -> None:
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = [
        f"{name_of(path)}:{number} {line.strip()[:80]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if PRIVATE_PLACES.search(line)
    ]
    assert_none("use a relative path, a temporary folder or a setting", found)


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "from time import sleep",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.utcnow()",
        "import random",
        "from random import choice",
    ],
)
def test_the_clock_rule_sees_each_way_around_it(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "bad.py"
    path.write_text(source)
    assert list(ambient_uses(path))


@pytest.mark.parametrize(
    ("source", "is_sql"),
    [
        ('x = "SELECT id FROM jobs"', True),
        ('x = f"INSERT INTO jobs VALUES ({1})"', True),
        ('x = "UPDATE jobs SET state = 1"', True),
        ('"""SELECT id FROM jobs, says the docstring."""', False),
        ('x = "select a printer from the list"', False),
        ('x = "PRAGMA journal_mode = WAL"', False),
    ],
)
def test_the_sql_rule_tells_statements_from_prose(
    source: str, is_sql: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(source)
    assert bool(list(sql_strings(path))) == is_sql
