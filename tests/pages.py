"""The examples of README.md and the pages in docs/, taken out of them so that a test can run them."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MODULE = re.compile(r"# (\w+)\.py\n")

DOCS = _ROOT / "docs"
README = _ROOT / "README.md"


def examples(page: Path) -> list[str]:
    """The Python of a page, block by block, without the blocks that are modules."""
    return [block for block in _python(page.read_text(encoding="utf-8")) if not _MODULE.match(block)]


def modules(page: Path) -> dict[str, str]:
    """The blocks whose first line is the name of their file, ``# name.py``: their sources by the module's name."""
    return {match[1]: block for block in _python(page.read_text(encoding="utf-8")) if (match := _MODULE.match(block))}


def headings(page: Path) -> list[str]:
    """The headings of a page."""
    return [found[1] for found in _headings(page.read_text(encoding="utf-8"))]


def sections(page: Path, heading: str, language: str = "python") -> list[str]:
    """The blocks in a language between a heading and the next."""
    return [block[2] for block in _BLOCK.finditer(_section(page, heading)) if block[1] == language]


def section(page: Path, heading: str, language: str = "python") -> str:
    """The one block of `sections`."""
    (block,) = sections(page, heading, language)
    return block


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the rows of the table between a heading and the next, without its head."""
    rows = [line for line in _section(page, heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def _section(page: Path, heading: str) -> str:
    text = page.read_text(encoding="utf-8")
    found = _headings(text)
    start = next(match for match in found if match[1] == heading)
    return text[start.end() : next((match.start() for match in found if match.start() > start.start()), len(text))]


def _headings(text: str) -> list[re.Match[str]]:
    # A comment in an example is no heading.
    return list(_HEADING.finditer(_BLOCK.sub(lambda block: "x" * len(block[0]), text)))


def _python(text: str) -> list[str]:
    return [found[2] for found in _BLOCK.finditer(text) if found[1] == "python"]
