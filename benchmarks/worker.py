"""One arm of the benchmarks in a process of its own: plain Parquet, delta-spark or lakelog.

delta-spark's jar and lakelog both serve the name ``delta``, so each arm has its own JVM. The process lives for the whole run, which
lets ``run.py`` take the arms in turn: it reads one JSON command a line from standard input and answers with one JSON line on the
descriptor that was standard output at the start (what Spark prints goes to standard error).

    {"work": "append", "path": "/…/t", "rows": 20000000}   ->   {"seconds": 4.93}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FILES_OF_THE_BIG_TABLE = 8
PARTITIONS = 50
DELTA_SPARK = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
}


@dataclass
class Arm:
    """A running session and what differs between the arms."""

    spark: SparkSession
    format: str
    delta_table: Any = None
    identity_generator: Any = None
    trips: Callable[[], int] | None = None
    seconds: float = 0.0
    said: dict[str, object] = field(default_factory=dict)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Times its body, after a collection that the body would otherwise pay for."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        jvm.System.gc()
        started = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - started

    def load(self, path: str) -> DataFrame:
        return self.spark.read.format(self.format).load(path)


def rows(spark: SparkSession, start: int, stop: int, files: int) -> DataFrame:
    """Five columns: an id in order, a group, a double without pattern, a text of many values, a time."""
    mixed = F.xxhash64("id")
    return spark.range(start, stop, 1, files).select(
        "id",
        F.pmod(mixed, F.lit(1000)).cast("int").alias("grp"),
        (F.pmod(mixed, F.lit(1_000_003)) / 7).alias("price"),
        F.concat(F.lit("customer-"), F.pmod(mixed, F.lit(200_000)).cast("string")).alias("name"),
        F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("id") * 1_000_000).alias("at"),
    )


def seed(arm: Arm, path: str) -> None:
    """A table of one row, so that what follows is an append and not a creation."""
    with arm.timed():
        rows(arm.spark, -1, 0, 1).write.format(arm.format).mode("append").save(path)


def append(arm: Arm, path: str, rows_: int) -> None:
    source = rows(arm.spark, 0, rows_, FILES_OF_THE_BIG_TABLE)
    with arm.timed():
        source.write.format(arm.format).mode("append").save(path)


def make_demanding(arm: Arm, path: str) -> None:
    """A table of the same columns that demands something of each row: NOT NULL, two constraints, a generated and an identity column."""
    with arm.timed():
        builder = arm.delta_table.create(arm.spark).location(path)
        builder = builder.addColumn("id", "BIGINT", nullable=False).addColumn("grp", "INT").addColumn("price", "DOUBLE")
        builder = builder.addColumn("name", "STRING").addColumn("at", "TIMESTAMP")
        builder = builder.addColumn("number", "BIGINT", generatedAlwaysAs=arm.identity_generator(start=1, step=1))
        builder.addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)").execute()
        for name, condition in (("in_group", "grp >= 0"), ("priced", "price >= 0 AND price < 1000000")):
            arm.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT {name} CHECK ({condition})")


def append_partitioned(arm: Arm, path: str, rows_: int) -> None:
    source = rows(arm.spark, 0, rows_, FILES_OF_THE_BIG_TABLE).withColumn("part", F.col("grp") % PARTITIONS)
    with arm.timed():
        source.write.format(arm.format).mode("append").partitionBy("part").save(path)


def replace_partition(arm: Arm, path: str, part: int) -> None:
    """One partition replaced by a hundred rows. The other partitions' files are away while it runs: who opens one fails."""
    source = rows(arm.spark, 0, 100, 1).withColumn("part", F.lit(part))
    hidden = [folder for folder in Path(path).glob("part=*") if folder.name != f"part={part}"]
    for folder in hidden:
        folder.rename(folder.with_name(f"_away_{folder.name}"))
    try:
        with arm.timed():
            source.write.format(arm.format).mode("overwrite").option("replaceWhere", f"part = {part}").save(path)
    finally:
        for folder in hidden:
            folder.with_name(f"_away_{folder.name}").rename(folder)


def append_one(arm: Arm, path: str, id: int) -> None:
    source = rows(arm.spark, id, id + 1, 1)
    with arm.timed():
        source.write.format(arm.format).mode("append").save(path)


def read_all(arm: Arm, path: str) -> None:
    with arm.timed():
        arm.load(path).write.format("noop").mode("overwrite").save()


def read_column(arm: Arm, path: str) -> None:
    with arm.timed():
        arm.said["sum"] = arm.load(path).agg(F.sum("price")).first()[0]  # type: ignore[index]


def read_row(arm: Arm, path: str, id: int) -> None:
    with arm.timed():
        found = arm.load(path).where(F.col("id") == id).collect()
    arm.said["rows"] = len(found)


def delete(arm: Arm, path: str, condition: str) -> None:
    table = arm.delta_table.forPath(arm.spark, path)
    with arm.timed():
        table.delete(condition)
    arm.said["left"] = arm.load(path).count()


def plan(arm: Arm, path: str, condition: str) -> None:
    """Everything up to the tasks: analysis, optimization, the list of files and their splits. No file is opened."""
    with arm.timed():
        frame = arm.load(path).where(condition)
        loaded = arm.trips() if arm.trips else 0
        arm.said["tasks"] = frame._jdf.queryExecution().toRdd().getNumPartitions()
    if arm.trips:
        arm.said["trips"] = arm.trips() - loaded


def write_many(arm: Arm, path: str, files: int) -> None:
    """A table of ``files`` files of a hundred rows each, in order of id."""
    with arm.timed():
        rows(arm.spark, 0, files * 100, files).write.format(arm.format).mode("append").save(path)


def read_one_of_many(arm: Arm, path: str, id: int) -> None:
    with arm.timed():
        frame = arm.load(path).where(F.col("id") == id)
        found = frame.collect()
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    arm.said["rows"] = len(found)
    arm.said["files"] = scan.metrics().apply("numFiles").value()


WORKS: dict[str, Callable[..., None]] = {
    work.__name__: work
    for work in (
        *(seed, append, append_partitioned, append_one, make_demanding, read_all, read_column, read_row, replace_partition, delete, plan),
        *(write_many, read_one_of_many),
    )
}


def start(name: str, jars: list[str]) -> Arm:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.pop("SPARK_HOME", None)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(f"lakelog benchmarks: {name}")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
    )
    if name == "delta-spark":
        from delta.tables import DeltaTable, IdentityGenerator

        builder = builder.config("spark.jars", ",".join(jars))
        for key, value in DELTA_SPARK.items():
            builder = builder.config(key, value)
        return Arm(builder.getOrCreate(), "delta", DeltaTable, IdentityGenerator)
    spark = builder.getOrCreate()
    if name == "parquet":
        return Arm(spark, "parquet")

    import lakelog.spark
    from lakelog.spark import front_door

    lakelog.spark.enable(spark)
    return Arm(spark, "delta", lakelog.spark.DeltaTable, lakelog.spark.IdentityGenerator, getattr(front_door, "trips", None))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("arm", choices=("parquet", "delta-spark", "lakelog"))
    arguments.add_argument("--jars", type=Path, default=None, help="the folder of delta-spark's jars")
    chosen = arguments.parse_args()

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    arm = start(chosen.arm, sorted(str(jar) for jar in chosen.jars.glob("*.jar")) if chosen.jars else [])
    print(json.dumps({"started": chosen.arm}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        arm.said = {}
        try:
            WORKS[command.pop("work")](arm, **command)
            answer: dict[str, object] = {"seconds": arm.seconds, **arm.said}
        except Exception as error:  # the run goes on without this figure, and says why
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        print(json.dumps(answer, default=str), file=answers, flush=True)
    arm.spark.stop()


if __name__ == "__main__":
    main()
