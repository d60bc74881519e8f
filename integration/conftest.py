"""What the tests beside real servers and other implementations need; each skips with its reason where it is not to be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import lakelog.spark
from benchmarks.jars import JarsNotToBeHad, delta_spark_jars
from integration.servers import DynamoDBLocal, MinIO, NotToBeHad, cache_folder, hadoop_aws_jars

# delta-spark's jar is built for one minor of Spark.
_MINOR = "4.2"


def pytest_report_header() -> str:
    return f"servers: kept in {cache_folder()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "both" in getattr(item, "fixturenames", ()):
            item.add_marker("interop")


@contextmanager
def _had() -> Iterator[None]:
    try:
        yield
    except NotToBeHad as error:
        pytest.skip(str(error))


class _Say:
    """Tells the terminal, past pytest's capture, what is built, fetched and started."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._capture = config.pluginmanager.get_plugin("capturemanager")

    def __call__(self, line: str) -> None:
        if self._reporter is None or self._capture is None:
            print(line)
            return
        with self._capture.global_and_fixture_disabled():
            self._reporter.ensure_newline()
            self._reporter.write_line(line)


@pytest.fixture(scope="session")
def minio(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinIO]:
    """A MinIO for the whole run."""
    with _had(), MinIO.running(tmp_path_factory.mktemp("minio"), say=_Say(pytestconfig)) as server:
        yield server


@pytest.fixture
def bucket(minio: MinIO) -> str:
    """The name of a bucket that holds nothing, another for every test."""
    return minio.new_bucket()


@pytest.fixture(scope="session")
def dynamodb(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDBLocal]:
    """A DynamoDB for the whole run."""
    with _had(), DynamoDBLocal.running(tmp_path_factory.mktemp("dynamodb"), say=_Say(pytestconfig)) as server:
        yield server


@pytest.fixture(scope="session")
def hadoop_aws(pytestconfig: pytest.Config) -> list[Path]:
    """The jars with which Spark's own filesystem serves ``s3a:``."""
    with _had():
        return hadoop_aws_jars(say=_Say(pytestconfig))


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
