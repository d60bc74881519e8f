"""What the tests beside other implementations need; each skips with its reason where it is not to be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import lakelog.spark
from benchmarks.jars import JarsNotToBeHad, delta_spark_jars

# delta-spark's jar is built for one minor of Spark.
_MINOR = "4.2"


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session with delta-spark as ``format("delta")`` and lakelog as ``format("lakelog")``."""
    if not pyspark.__version__.startswith(_MINOR + "."):
        pytest.skip(f"delta-spark's jar is for Spark {_MINOR}, this is {pyspark.__version__}")
    try:
        jars = delta_spark_jars(Path(__file__).parents[1] / ".bench" / "jars")
    except JarsNotToBeHad as error:
        pytest.skip(f"delta-spark's jar is not to be had: {error}")
    folder = tmp_path_factory.mktemp("warehouse")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    yield lakelog.spark.enable(spark)
    spark.stop()
