"""The examples of the pages in docs/ run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def shop(delta: SparkSession) -> object:
    yield delta
    delta.sql("DROP TABLE IF EXISTS shop.orders")
    delta.sql("DROP DATABASE IF EXISTS shop")


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(delta: SparkSession, tmp_path: Path, page: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    names = {"spark": delta}
    for example in examples:
        assert "/tmp/" in example
        exec(compile(example.replace("/tmp/", f"{tmp_path}/"), str(page), "exec"), names)
