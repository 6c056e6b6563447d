"""Whether a job fits a printer, and if not, why in words. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

DIAMETER_SLACK: Final = 0.001


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Millimetres; a height of None is not looked at."""

    x: float
    y: float
    z: float | None = None


class Requirements(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a job needs of a printer; what is left out may be anything.

    `nozzle` is a diameter in millimetres, `tags` must all be there, `bed` is the least size.
    """

    model: str | None = None
    nozzle: float | None = None
    material: str | None = None
    color: str | None = None
    bed: Size | None = None
    tags: tuple[str, ...] = ()


class Loaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One spool in a printer."""

    material: str
    color: str | None = None


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a printer says that it is and has; what it does not say it is not matched by."""

    model: str | None = None
    nozzle: float | None = None
    loaded: tuple[Loaded, ...] = ()
    bed: Size | None = None
    tags: tuple[str, ...] = ()


def misfits(wanted: Requirements, has: Declared) -> list[str]:
    """Why the job does not fit this printer; empty when it does."""
    found: list[str | None] = [
        _model(wanted, has),
        _nozzle(wanted, has),
        _spool(wanted, has),
        _bed(wanted, has),
        *_tags(wanted.tags, has.tags),
    ]
    return [words for words in found if words is not None]


def _model(wanted: Requirements, has: Declared) -> str | None:
    if wanted.model is None or _same(wanted.model, has.model):
        return None
    return f"wrong model {has.model or '(not declared)'} ≠ {wanted.model}"


def _nozzle(wanted: Requirements, has: Declared) -> str | None:
    if wanted.nozzle is None:
        return None
    if has.nozzle is None:
        return f"its nozzle is not declared, {wanted.nozzle:g} is needed"
    if abs(has.nozzle - wanted.nozzle) <= DIAMETER_SLACK:
        return None
    return f"wrong nozzle {has.nozzle:g} ≠ {wanted.nozzle:g}"


def _spool(wanted: Requirements, has: Declared) -> str | None:
    """Material and colour have to be on one spool."""
    if wanted.material is None and wanted.color is None:
        return None
    need = " ".join(word for word in (wanted.material, wanted.color) if word is not None)
    for spool in has.loaded:
        material = wanted.material is None or _same(wanted.material, spool.material)
        color = wanted.color is None or _same(wanted.color, spool.color)
        if material and color:
            return None
    if not has.loaded:
        return f"nothing is loaded, {need} is needed"
    loaded = ", ".join(" ".join(filter(None, (s.material, s.color))) for s in has.loaded)
    return f"loaded is {loaded}, {need} is needed"


def _bed(wanted: Requirements, has: Declared) -> str | None:
    need = wanted.bed
    if need is None:
        return None
    if has.bed is None:
        return f"its bed size is not declared, {_size(need)} is needed"
    sides = zip(sorted((need.x, need.y)), sorted((has.bed.x, has.bed.y)), strict=True)
    flat = all(side <= room for side, room in sides)
    high = need.z is None or (has.bed.z is not None and need.z <= has.bed.z)
    return None if flat and high else f"bed {_size(has.bed)} is smaller than {_size(need)}"


def _tags(wanted: Iterable[str], has: tuple[str, ...]) -> list[str | None]:
    return [f"lacks the tag {tag}" for tag in wanted if tag not in has]


def _size(size: Size) -> str:
    return "×".join(f"{value:g}" for value in (size.x, size.y, size.z) if value is not None)


def _same(one: str, other: str | None) -> bool:
    return other is not None and one.strip().casefold() == other.strip().casefold()
