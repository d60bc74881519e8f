"""Values at the edges of their types: written, read back equal, and found by every filter that they satisfy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.tables import save

# type -> SQL literals; a null is added to each.
EDGES: dict[str, list[str]] = {
    "double": [
        "double('NaN')",
        "double('Infinity')",
        "double('-Infinity')",
        "-0.0D",
        "0.0D",
        "4.9E-324D",
        "1.7976931348623157E308D",
        "1.5D",
    ],
    "float": ["float('NaN')", "float('Infinity')", "float('-Infinity')", "float('-0.0')", "float('1.5')"],
    "string": [
        "''",
        "repeat('x', 10000)",
        "repeat('é', 10000)",
        "' '",
        "'\\u0000'",
        "'a\\u007fb'",
        "'\\uD83D\\uDE00'",
        "'__HIVE_DEFAULT_PARTITION__ '",
    ],
    "decimal(38,38)": [
        *("0.00000000000000000000000000000000000001BD", "-0.99999999999999999999999999999999999999BD", "0BD"),
        "0.99999999999999999999999999999999999999BD",
    ],
    "decimal(38,0)": ["99999999999999999999999999999999999999BD", "-99999999999999999999999999999999999999BD", "1BD"],
    "timestamp": [
        *("timestamp'0001-01-01 00:00:00Z'", "timestamp'9999-12-31 23:59:59.999999Z'", "timestamp'1969-12-31 23:59:59.999999Z'"),
        *("timestamp'1582-10-04 00:00:00Z'", "timestamp'2024-02-29 12:00:00.000001Z'"),
    ],
    "timestamp_ntz": [
        "timestamp_ntz'0001-01-01 00:00:00'",
        "timestamp_ntz'9999-12-31 23:59:59.999999'",
        "timestamp_ntz'1900-01-01 00:00:00.001'",
    ],
    "date": ["date'0001-01-01'", "date'9999-12-31'", "date'1582-10-04'", "date'1970-01-01'"],
    "long": ["-9223372036854775808L", "9223372036854775807L", "0L"],
    "byte": ["-128Y", "127Y"],
    "binary": ["X''", "X'00FF80'", "X'61'"],
    "boolean": ["true", "false"],
}
# A folder's name has at most 255 bytes, and one of Spark's own stands for null.
NO_FOLDER = ("repeat(", "'\\u0000'")


def literals(kind: str, *, partition: bool) -> list[str]:
    found = [text for text in EDGES[kind] if not (partition and text.startswith(NO_FOLDER))]
    # As keys Spark takes the two zeros for one.
    return [text for text in found if "-0.0" not in text] if partition and kind in ("double", "float") else found


def values(spark: SparkSession, kind: str, *, partition: bool) -> DataFrame:
    rows = ", ".join(f"({n}, CAST({text} AS {kind}))" for n, text in enumerate([*literals(kind, partition=partition), "NULL"]))
    return spark.sql(f"SELECT CAST(col1 AS long) AS n, col2 AS v FROM VALUES {rows}")


def told(frame: DataFrame) -> list[str]:
    """Every value as text that tells NaN, the zeros and instants apart, whatever the session's zone."""
    kind = frame.schema["v"].dataType.typeName()
    text: Column = F.col("v").cast("string")
    if kind == "binary":
        text = F.hex("v")
    elif kind == "timestamp":
        text = F.unix_micros("v").cast("string")
    return sorted(f"{row[0]}={row[1]!r}" for row in frame.select("n", text.alias("v")).collect())


@pytest.mark.parametrize("layout", ["column", "one file each", "partition"])
@pytest.mark.parametrize("kind", EDGES)
def test_an_edge_is_read_back_and_never_pruned_wrongly(session: SparkSession, tmp_path: Path, kind: str, layout: str) -> None:
    path = str(tmp_path / "t")
    partition = layout == "partition"
    frame = values(session, kind, partition=partition)
    if layout == "one file each":
        for number in range(frame.count()):
            save(frame.where(F.col("n") == number), path)
    else:
        save(frame, path, partition_by=["v"] if partition else [])
    expected = frame
    if partition and kind in ("string", "binary"):
        # The protocol has no empty partition value: it is null.
        empty = F.lit("") if kind == "string" else F.lit(b"")
        expected = frame.withColumn("v", F.when(F.col("v") != empty, F.col("v")))
    table = session.read.format("delta").load(path)
    assert told(table) == told(expected)
    conditions = [
        *(f"v {operator} CAST({literal} AS {kind})" for literal in literals(kind, partition=partition) for operator in ("=", "<", ">=")),
        *("v IS NULL", "v IS NOT NULL"),
    ]
    answers = expected.select("n", *(F.expr(condition) for condition in conditions)).collect()
    for place, condition in enumerate(conditions, start=1):
        found = sorted(row["n"] for row in table.where(condition).select("n").collect())
        assert found == sorted(row["n"] for row in answers if row[place]), condition
