"""The session that the tests of the adapter share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import lakelog.spark


@pytest.fixture(scope="session")
def delta(spark: SparkSession) -> Iterator[SparkSession]:
    """The run's session with lakelog enabled."""
    yield lakelog.spark.enable(spark)
