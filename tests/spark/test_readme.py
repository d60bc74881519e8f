"""The README's example runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.spark import enable

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_runs(delta: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    example = found.group(1)
    assert "/tmp/orders" in example
    try:
        exec(compile(example.replace("/tmp/orders", str(tmp_path / "orders")), str(README), "exec"), {"__name__": "example"})
    finally:
        # The example ends by disabling; the session is every test's.
        enable(delta)
    now, first, second, history = capsys.readouterr().out.split("+\n\n")[:4]
    assert [("ink", "9.0") in _cells(shown) for shown in (now, first, second)] == [False, True, True]
    assert [("ink", "8.0") in _cells(shown) for shown in (now, first, second)] == [True, False, True]
    assert "late delivery" in history


def _cells(shown: str) -> list[tuple[str, str]]:
    """The item and price of every row that ``show`` printed."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if line.startswith("|")]
    return [(row[1], row[2]) for row in rows]
