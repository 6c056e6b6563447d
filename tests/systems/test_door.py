"""The door for systems, and the manifests that come through it."""

import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest

from farhand.model.policy import PRINT
from farhand.model.system import ManifestError, System
from farhand.systems import ENTRY_POINTS, find_systems, load


def install(monkeypatch: pytest.MonkeyPatch, name: str, manifest: object) -> EntryPoint:
    module = types.ModuleType(name)
    module.SYSTEM = manifest  # type: ignore[attr-defined]  (a module made for the test)
    monkeypatch.setitem(sys.modules, name, module)
    return EntryPoint(name=name, value=f"{name}:SYSTEM", group=ENTRY_POINTS)


def test_printing_comes_through_the_door() -> None:
    (printing,) = [system for system in find_systems(()) if system.name == "printing"]
    assert printing.types["pdf_uri_post"] == "print.pdf"
    assert printing.policies["print.raw"] is PRINT


def test_a_system_of_another_package_comes_through_the_same_door(monkeypatch: pytest.MonkeyPatch) -> None:
    other = System(name="laser", kinds=("laser.cut",), policies={"laser.cut": PRINT})
    point = install(monkeypatch, "a_laser_package", other)
    assert other in find_systems((point,))


@pytest.mark.parametrize("clash", ["print.raw", "print.pdf"])
def test_two_systems_cannot_own_one_kind(monkeypatch: pytest.MonkeyPatch, clash: str) -> None:
    point = install(monkeypatch, "a_rival", System(name="rival", kinds=(clash,), policies={clash: PRINT}))
    with pytest.raises(ManifestError, match=f"rival.*{clash}.*belongs to system printing"):
        find_systems((point,))


def test_a_kind_may_have_several_policies() -> None:
    policies = {"laser.cut": PRINT, "laser.cut.fine": PRINT}
    assert set(System(name="laser", kinds=("laser.cut",), policies=policies).policies) == set(policies)


def test_what_is_no_manifest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ManifestError, match="a_stranger"):
        find_systems((install(monkeypatch, "a_stranger", object()),))


def test_a_reference_to_nothing_is_named() -> None:
    with pytest.raises(ManifestError, match=r"farhand\.systems\.nothing:here"):
        load("farhand.systems.nothing:here")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"name": "Bad Name"}, "Bad Name"),
        ({"types": {"x": "laser.engrave"}}, "laser.engrave"),
        ({"policies": {}}, "laser.cut"),
        ({"submit": "no reference"}, "no reference"),
        ({"results": "no reference"}, "no reference"),
        ({"policy_of": "no reference"}, "no reference"),
        ({"policies": {"laser.cut": PRINT, "laser.engrave": PRINT}}, "laser.engrave"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(fields: dict[str, object], word: str) -> None:
    whole: dict[str, object] = {"name": "laser", "kinds": ("laser.cut",), "policies": {"laser.cut": PRINT}}
    with pytest.raises(ManifestError, match=word):
        System(**(whole | fields))  # type: ignore[arg-type]  (the test's point)


def test_importing_a_manifest_loads_nothing_of_its_system() -> None:
    code = (
        "import sys, farhand.systems as door; door.find_systems(()); "
        "print([m for m in sys.modules if m.startswith(('farhand.systems.printing.', 'httpx2', 'msgspec'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
