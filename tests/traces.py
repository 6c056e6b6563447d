"""Looking for a text, in whatever form, in everything that was written to disk."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote


def forms(text: str) -> list[bytes]:
    """The ways in which a text may lie in a file."""
    plain = text.encode()
    found = {plain, json.dumps(text)[1:-1].encode(), quote(text).encode(), quote(text, safe="").encode()}
    found |= {plain.hex().encode(), plain.hex().upper().encode(), repr(text)[1:-1].encode()}
    for shift in range(3):
        # Without the characters at both ends that depend on what stands beside it.
        coded = base64.b64encode(bytes(shift) + plain)[4:-4]
        found |= {coded, coded.translate(bytes.maketrans(b"+/", b"-_"))}
    assert all(len(form) >= 16 for form in found)
    return sorted(found)


def files_with(folders: list[Path], text: str) -> list[str]:
    """The files that hold a text in whatever form."""
    wanted = forms(text)
    return sorted({path.name for path, data in contents(folders) if any(form in data for form in wanted)})


def contents(folders: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """Every file in the folders with its bytes."""
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                if path.is_file():
                    yield path, path.read_bytes()
            except FileNotFoundError:
                continue
