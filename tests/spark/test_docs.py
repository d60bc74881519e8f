"""The examples of the pages in docs/ run as they stand there; those that need a server do so in integration/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakelog.storage
from tests import pages

_NEED_SERVERS = ("dynamodb", "s3")
_HERE = [page for page in sorted(pages.DOCS.glob("*.md")) if page.stem not in _NEED_SERVERS]


@pytest.fixture
def shop(delta: SparkSession) -> Iterator[None]:
    yield
    delta.sql("DROP TABLE IF EXISTS shop.orders")
    delta.sql("DROP DATABASE IF EXISTS shop")


@pytest.fixture
def stores(delta: SparkSession) -> Iterator[None]:
    """Takes back which LogStore a page has chosen."""
    before = set(delta.conf.getAll)
    yield
    lakelog.storage.configure({"file": {}})
    for key in set(delta.conf.getAll) - before:
        delta.conf.unset(key)


@pytest.mark.usefixtures("shop", "stores")
@pytest.mark.parametrize("page", _HERE, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    for name, source in pages.modules(page).items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
    examples = pages.examples(page)
    assert examples
    names = {"spark": delta}
    for example in examples:
        assert "/tmp/" in example
        exec(compile(example.replace("/tmp/", f"{tmp_path}/"), str(page), "exec"), names)


def test_spark_hides_the_confs_that_the_page_on_s3_says_it_hides(delta: SparkSession) -> None:
    config = delta._jvm.org.apache.spark.internal.config
    confs = getattr(getattr(config, "package$"), "MODULE$")
    hidden = re.compile(confs.SECRET_REDACTION_PATTERN().defaultValueString())
    for key in ("access.key", "secret.key", "session.token"):
        assert hidden.search(f"spark.hadoop.fs.s3a.{key}"), key
    for option in ("secret", "token", "ddb.secret", "ddb.token"):
        assert hidden.search(f"spark.lakelog.s3a.{option}"), option
    for option in ("key", "ddb.key"):
        assert not hidden.search(f"spark.lakelog.s3a.{option}"), option
