"""The session that the tests of the adapter share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import lakelog.spark


@pytest.fixture(scope="session")
def delta(spark: SparkSession) -> SparkSession:
    """The run's session with lakelog enabled."""
    return lakelog.spark.enable(spark)
