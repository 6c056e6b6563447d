"""What is shipped: the wheel, what a bare install of it needs, and the lock."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "farhand"
LOCK = ROOT / "requirements.lock"

SERVER_PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "apsw", "asyncpg")
# What a bare install must be able to do: everything of these rooms, and a system's agent side.
BARE_ROOMS = ("model", "protocol", "egress", "client", "agent")

# Run in the bare environment. A name that is absent from the source is absent from the list, so a
# module that the wheel lost is an error and not a smaller test.
IMPORT_ALL = """
import importlib, sys
for name in sys.argv[2].split():
    importlib.import_module(name)
loaded = [name for name in sys.argv[1].split() if name in sys.modules]
sys.exit(f"a bare install loads {loaded}" if loaded else 0)
"""


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        **options,
    )  # type: ignore[call-overload]  # options are those of run
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def bare_modules() -> list[str]:
    """Every module that has to import without the extras."""
    paths = [SRC / "__init__.py", *(path for room in BARE_ROOMS for path in (SRC / room).rglob("*.py"))]
    for system in (SRC / "systems").glob("*/"):
        paths += [system / "__init__.py", *system.glob("handler.py"), *system.glob("drivers/**/*.py")]
    # The other commands are loaded by name when they are called, `serve` with the server behind it.
    paths.append(SRC / "cli" / "main.py")
    return sorted(module_name(path) for path in paths if path.exists() and path.name != "__main__.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=ROOT)
    (built,) = out.glob("*.whl")
    return built


def uv_install(python: Path, *what: str | Path) -> None:
    """Install from what is cached already, or from the index where the cache does not have it."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--quiet", "--python", str(python), *map(str, what)]
    if subprocess.run([*command, "--offline"], check=False, capture_output=True).returncode != 0:
        run(*command)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and its base dependencies, as locked."""
    environment = tmp_path_factory.mktemp("bare") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    uv_install(python, "--constraint", LOCK, wheel)
    return environment / "bin"


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    source = {
        path.relative_to(SRC.parent).as_posix()
        for path in SRC.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "farhand/py.typed" in shipped
    assert source <= shipped
    assert {name.split("/")[0] for name in shipped} == {"farhand", wheel.name.split("-py3")[0] + ".dist-info"}


def test_a_bare_install_holds_no_server_package(bare: Path) -> None:
    (packages,) = bare.parent.glob("lib/python*/site-packages")
    installed = {path.name.split("-")[0].lower() for path in packages.glob("*.dist-info")}
    assert {"farhand", "msgspec", "click"} <= installed
    assert not installed & set(SERVER_PACKAGES)


def test_a_bare_install_imports_agent_client_and_cli(bare: Path, tmp_path: Path) -> None:
    modules = bare_modules()
    assert {"farhand", "farhand.model.clock"} <= set(modules)
    run(
        bare / "python", "-W", "error", "-c", IMPORT_ALL, " ".join(SERVER_PACKAGES), " ".join(modules),
        cwd=tmp_path, env=clean_environment(),
    )  # fmt: skip


def test_the_command_of_a_bare_install_answers(bare: Path, tmp_path: Path) -> None:
    if not (SRC / "cli").is_dir():
        assert (bare / "farhand").exists()
        return
    shown = run(bare / "farhand", "--help", cwd=tmp_path, env=clean_environment()).stdout
    assert "agent" in shown
    assert "print" in shown


def locked() -> dict[str, list[str]]:
    """Version strings by canonical name; a package can be locked once for each Python."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.!+-]+)", LOCK.read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


def declared() -> list[Requirement]:
    content = project()
    table = content["project"]
    groups = content["dependency-groups"]
    assert isinstance(table, dict)
    assert isinstance(groups, dict)
    lists = [table["dependencies"], *table["optional-dependencies"].values(), *groups.values()]
    return [Requirement(text) for items in lists for text in items]


def test_the_lock_holds_what_the_project_declares() -> None:
    versions = locked()
    for requirement in declared():
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{requirement} is not locked; run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions[name]), requirement


def test_every_locked_package_has_hashes_and_no_address() -> None:
    text = LOCK.read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE), "options such as --index-url do not belong in the lock"
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    assert all("--hash=sha256:" in entry for entry in entries)
