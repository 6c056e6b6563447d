"""Which printers fit a job, and in which words the others do not."""

import pytest

from farhand.systems.farm.matching import Declared, Loaded, Requirements, Size, misfits

PRINTER = Declared(
    model="MK4",
    nozzle=0.4,
    loaded=(Loaded(material="PLA", color="black"), Loaded(material="PETG", color="red")),
    bed=Size(x=250, y=210, z=220),
    tags=("enclosed", "room-2"),
)


def test_a_job_without_requirements_fits_every_printer() -> None:
    assert misfits(Requirements(), Declared()) == []
    assert misfits(Requirements(), PRINTER) == []


def test_a_printer_fits_what_it_declares_whatever_the_case() -> None:
    wanted = Requirements(
        model="mk4",
        nozzle=0.4,
        material="pla",
        color="Black",
        bed=Size(x=210, y=250, z=220),
        tags=("enclosed",),
    )
    assert misfits(wanted, PRINTER) == []


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Requirements(nozzle=0.6), ["wrong nozzle 0.4 ≠ 0.6"]),
        (Requirements(model="X1C"), ["wrong model MK4 ≠ X1C"]),
        (Requirements(material="ABS"), ["loaded is PLA black, PETG red, ABS is needed"]),
        (
            Requirements(material="PLA", color="red"),
            ["loaded is PLA black, PETG red, PLA red is needed"],
        ),
        (Requirements(bed=Size(x=256, y=200)), ["bed 250×210×220 is smaller than 256×200"]),
        (Requirements(bed=Size(x=200, y=200, z=300)), ["bed 250×210×220 is smaller than 200×200×300"]),
        (Requirements(tags=("room-2", "fast")), ["lacks the tag fast"]),
        (Requirements(model="X1C", nozzle=0.6), ["wrong model MK4 ≠ X1C", "wrong nozzle 0.4 ≠ 0.6"]),
    ],
)
def test_each_misfit_is_said_in_words(wanted: Requirements, words: list[str]) -> None:
    assert misfits(wanted, PRINTER) == words


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Requirements(nozzle=0.4), "its nozzle is not declared, 0.4 is needed"),
        (Requirements(model="MK4"), "wrong model (not declared) ≠ MK4"),
        (Requirements(material="PLA"), "nothing is loaded, PLA is needed"),
        (Requirements(bed=Size(x=1, y=1)), "its bed size is not declared, 1×1 is needed"),
    ],
)
def test_what_a_printer_does_not_declare_it_is_not_matched_by(wanted: Requirements, words: str) -> None:
    assert misfits(wanted, Declared()) == [words]
