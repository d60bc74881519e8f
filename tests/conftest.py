"""What every test may ask for: the Spark session of the run, and the golden tables.

PySpark is imported where the session is made, so that the tests of core and storage run without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.golden import ABSENT, GOLDEN
from tools.java_home import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("lakelog", settings.default, deadline=None)
settings.load_profile("lakelog")


def pytest_configure() -> None:
    # Spark's workers run what PATH calls python3 unless told, and another Spark's home would be taken for PySpark's own.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, two local cores, without lakelog enabled."""
    from pyspark.sql import SparkSession

    java_home = find_java_home()
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("lakelog tests")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of golden tables with their manifest.json."""
    if not (GOLDEN / "manifest.json").is_file():
        pytest.skip(ABSENT)
    return GOLDEN
