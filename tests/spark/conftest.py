"""The session that the tests of the adapter share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import lakelog.spark


@pytest.fixture(scope="session")
def delta(spark: SparkSession) -> SparkSession:
    """The run's session with lakelog enabled; LAKELOG_ENGINE names the engine that serves its tables."""
    enabled = lakelog.spark.enable(spark)
    if (engine := os.environ.get("LAKELOG_ENGINE")) is not None:
        enabled.conf.set("spark.lakelog.engine", engine)
    return enabled


@pytest.fixture(scope="module")
def session(delta: SparkSession) -> Iterator[SparkSession]:
    """The enabled session in UTC, as the golden tables' hashes are, and so that Arrow holds a timestamp's instant."""
    before = str(delta.conf.get("spark.sql.session.timeZone"))
    delta.conf.set("spark.sql.session.timeZone", "UTC")
    yield delta
    delta.conf.set("spark.sql.session.timeZone", before)
