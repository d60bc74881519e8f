"""The session that the tests of the adapter share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import lakelog.spark


@pytest.fixture(scope="session")
def delta(spark: SparkSession) -> SparkSession:
    """The run's session with lakelog enabled."""
    return lakelog.spark.enable(spark)


@pytest.fixture(scope="module")
def session(delta: SparkSession) -> Iterator[SparkSession]:
    """The enabled session in UTC, as the golden tables' hashes are, and so that Arrow holds a timestamp's instant."""
    before = str(delta.conf.get("spark.sql.session.timeZone"))
    delta.conf.set("spark.sql.session.timeZone", "UTC")
    yield delta
    delta.conf.set("spark.sql.session.timeZone", before)
