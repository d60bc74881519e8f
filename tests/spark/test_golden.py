"""The tables that other implementations wrote, read through Spark at every version that their manifest lists.

The manifest stands in ../shared/golden beside a maintainer's clone; without it these tests skip and say so.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakelog.core.errors import DataFileMissingError, LakelogError, UnsupportedFeatureError, VersionNotFoundError
from tests.golden import GOLDEN, Table, tables
from tests.spark.rows import texts

# Tables that need a reader feature which is not implemented: refused by exactly these names. The list shrinks; an entry whose
# table reads at every version fails until it is struck off.
NOT_YET = {
    "dat-check_constraints": {"deletionVectors"},
    "dat-deletion_vectors": {"deletionVectors"},
    "deltakernel-basic-dv-no-checkpoint": {"deletionVectors"},
    "deltakernel-basic-dv-with-checkpoint": {"deletionVectors"},
    "deltakernel-spark-shredded-variant-preview-delta": {"variantShredding-preview", "variantType"},
    "deltakernel-spark-variant-checkpoint": {"variantType-preview"},
    "deltars-checkpoint-v2-table": {"v2Checkpoint"},
    "deltars-table_with_liquid_clustering": {"deletionVectors"},
    "deltaspark-table-with-dv-small": {"deletionVectors"},
    "duckdb-variant-basic": {"variantType"},
    "golden-dv-partitioned-with-checkpoint": {"deletionVectors"},
    "golden-log-replay-dv-key-cases": {"deletionVectors"},
    "golden-v2-checkpoint-json": {"v2Checkpoint"},
    "golden-v2-checkpoint-parquet": {"v2Checkpoint"},
    "kernelrs-crc-full": {"deletionVectors"},
    "kernelrs-timestamp-partitioned-table": {"deletionVectors"},
    "kernelrs-v1-multi-part-struct-stats-only": {"deletionVectors"},
    "kernelrs-v1-single-part-struct-stats-only": {"deletionVectors"},
    "kernelrs-v2-checkpoints-json-with-last-checkpoint": {"v2Checkpoint"},
    "kernelrs-v2-checkpoints-parquet-without-sidecars": {"v2Checkpoint"},
    "kernelrs-v2-classic-checkpoint-parquet": {"v2Checkpoint"},
}


def sha256(rows: list[bytes]) -> str:
    return hashlib.sha256(b"".join(row + b"\n" for row in rows)).hexdigest()


def read(session: SparkSession, table: Table, version: str) -> pa.Table:
    return session.read.format("delta").option("versionAsOf", version).load(str(GOLDEN / table["folder"])).toArrow()


def check_version(session: SparkSession, table: Table, version: str, expected: dict[str, Any]) -> None:
    """One version against the manifest.

    Raises:
        UnsupportedFeatureError: the version is refused.
    """
    if expected["expect"] == "rows":
        rows = texts(read(session, table, version))
        assert (len(rows), sha256(rows)) == (expected["rows"], expected["sha256"]), f"version {version}"
        return
    try:
        read(session, table, version)
    except UnsupportedFeatureError:
        raise
    except DataFileMissingError:
        return
    pytest.fail(f"version {version}: its data files are not all there, yet it read")


@pytest.mark.parametrize("table", tables())
def test_every_listed_version(session: SparkSession, table: Table) -> None:
    if table["expect"] == "error":
        with pytest.raises(LakelogError) as caught:
            session.read.format("delta").load(str(GOLDEN / table["folder"])).toArrow()
        if "feature" in table["error"]["why"] or "ReaderVersion" in table["error"]["why"]:
            assert isinstance(caught.value, UnsupportedFeatureError)
            assert any(feature.replace("=", " ") in table["error"]["why"] for feature in caught.value.features)
        return
    if table["name"] == "kernelrs-void-column" and session.version.startswith("4.0"):
        pytest.skip("Spark 4.0's own Parquet reader refuses void columns")
    refused: set[str] = set()
    for version, expected in table["versions"].items():
        try:
            check_version(session, table, version, expected)
        except UnsupportedFeatureError as error:
            refused |= set(error.features)
    assert refused == NOT_YET.get(table["name"], set())


@pytest.mark.parametrize("table", tables(lambda table: table["expect"] != "error"))
def test_versions_that_cannot_be_rebuilt(session: SparkSession, table: Table) -> None:
    latest = table["latest_version"]
    for version in [latest + 1, *(version for low, high in table.get("unavailable_versions", []) for version in range(low, high + 1))]:
        with pytest.raises(VersionNotFoundError) as caught:
            read(session, table, str(version))
        assert (caught.value.asked, caught.value.latest) == (version, latest)


def test_every_entry_of_the_list_is_a_table(golden: Path) -> None:
    names = {table["name"] for table in json.loads((golden / "manifest.json").read_text())["tables"]}
    assert NOT_YET.keys() <= names
