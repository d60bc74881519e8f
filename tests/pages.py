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


def sections(page: Path, heading: str, language: str = "python") -> list[str]:
    """The blocks in a language between a heading and the next."""
    text = page.read_text(encoding="utf-8")
    # A comment in an example is no heading.
    headings = list(_HEADING.finditer(_BLOCK.sub(lambda block: "x" * len(block[0]), text)))
    start = next(found for found in headings if found[1] == heading)
    end = next((found.start() for found in headings if found.start() > start.start()), len(text))
    return [found[2] for found in _BLOCK.finditer(text, start.end(), end) if found[1] == language]


def section(page: Path, heading: str, language: str = "python") -> str:
    """The one block of `sections`."""
    (block,) = sections(page, heading, language)
    return block


def _python(text: str) -> list[str]:
    return [found[2] for found in _BLOCK.finditer(text) if found[1] == "python"]
