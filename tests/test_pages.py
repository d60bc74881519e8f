"""What README.md and the pages in docs/ point at is there, and the options that they list are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakelog.storage import dynamodb_settings, s3_options
from tests import pages

_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
_NAME = re.compile(r"`([^`]+)`")
_ROOT = pages.README.parent
_PAGES = [pages.README, _ROOT / "CHANGELOG.md", _ROOT / "CONTRIBUTING.md", *sorted(pages.DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for match in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / match[1]).resolve() if match[1] else page
        assert target.exists(), match[0]
        if match[2]:
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in pages.headings(target)]
            assert match[2] in anchors, match[0]


def test_the_options_of_the_s3_store() -> None:
    listed = {name for row in pages.table(pages.DOCS / "s3.md", "Options") for name in _names(row[0])}
    known = s3_options._NAMES
    assert listed <= known.keys() | s3_options.STORE_OPTIONS
    assert listed >= s3_options.STORE_OPTIONS
    assert {known[name] for name in listed - s3_options.STORE_OPTIONS} == set(known.values()), "every thing has a name here"


def test_the_options_of_the_dynamodb_store() -> None:
    rows = pages.table(pages.DOCS / "dynamodb.md", "Options")
    ours = {name for row in rows for name in _names(row[0])}
    theirs = {name for row in rows for name in _names(row[1])}
    known = {name.removeprefix("io.delta.storage.S3DynamoDBLogStore.") for name in dynamodb_settings._NAMES if name.startswith("io.")}
    assert ours == {name for name in dynamodb_settings._NAMES if not name.startswith("io.")}
    assert {name if not name.startswith(".") else f"provisionedThroughput{name}" for name in theirs} == known


def _names(cell: str) -> list[str]:
    """What a cell names, without what stands in brackets."""
    return _NAME.findall(re.sub(r"\(.*?\)", "", cell))
