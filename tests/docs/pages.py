"""The pages as tests read them: headings, table rows, links and fenced blocks."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.docs import ROOT, pages, slug

DOCS = ROOT / "docs"
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|`[^`]*`)*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page; `prose` is its text without fenced blocks."""

    path: Path
    text: str
    prose: str
    headings: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its place in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def anchors(self) -> Counter[str]:
        """What can be linked to, and how often it stands there."""
        return Counter(slug(heading.replace("`", "")) for heading in self.headings)

    @property
    def rows(self) -> dict[str, list[str]]:
        """The cells of every table row by each word in backticks of the first one."""
        found: dict[str, list[str]] = {}
        for line in self.prose.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for word in re.findall(r"`([^`]+)`", cells[0]) if cells else ():
                found.setdefault(word, cells)
        return found

    @property
    def links(self) -> list[str]:
        """The targets of its links."""
        return LINK.findall(self.prose)

    def blocks(self, language: str) -> list[str]:
        """The fenced blocks of a language."""
        return [body for word, body in FENCE.findall(self.text) if word == language]


@cache
def page(path: Path) -> Page:
    """A page, read once."""
    text = path.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    headings = tuple(re.findall(r"^#{1,6} (.+)$", prose, re.MULTILINE))
    return Page(path=path, text=text, prose=prose, headings=headings)


def all_pages() -> list[Page]:
    """Every page, the changelog included."""
    return [page(path) for path in (*pages(), ROOT / "CHANGELOG.md")]


def doc(name: str) -> Page:
    """A page under docs/."""
    return page(DOCS / f"{name}.md")
