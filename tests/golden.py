"""The golden tables as parameters of tests: real tables of other writers, with a manifest of what a reader must find."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"
ABSENT = "the golden tables stand in ../shared beside a maintainer's clone, and not beside this one"

Table = dict[str, Any]


def tables(suits: Callable[[Table], bool] = lambda _: True) -> list[Any]:
    """The manifest's tables that suit a test; without the manifest one parameter that skips."""
    if not (GOLDEN / "manifest.json").is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason=ABSENT))]
    known = json.loads((GOLDEN / "manifest.json").read_text())["tables"]
    return [pytest.param(table, id=table["name"]) for table in known if suits(table)]
