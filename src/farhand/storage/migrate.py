"""Numbered, forward-only migrations."""

from importlib import resources

from farhand.storage.database import StatementFailed
from farhand.storage.statements import POSTGRES, SQLITE, fill, load


def numbers() -> list[tuple[int, str, str]]:
    """Every migration as number, name and text, in order."""
    folder = resources.files("farhand.storage") / "sql" / "migrations"
    found: list[tuple[int, str, str]] = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            number, name = file.name.removesuffix(".sql").split("_", 1)
            found.append((int(number), name, file.read_text("utf-8")))
    return sorted(found)


def migrations(database: str, applied: set[int]) -> list[str]:
    """The scripts still to run, each ending in its own record.

    Raises StatementFailed when the database was written by a newer Farhand.
    """
    dialect = SQLITE if database == "sqlite" else POSTGRES
    known = numbers()
    newer = applied - {number for number, _, _ in known}
    if newer:
        raise StatementFailed(
            f"the database has migration {max(newer)}, which this version does not know; "
            "run the newer Farhand that made it, or restore a backup"
        )
    record = load(database)["record_migration"].text
    return [
        fill(text, dialect).rstrip().rstrip(";") + ";\n" + record.format(number=number, name=name)
        for number, name, text in known
        if number not in applied
    ]
