"""Features added to a table and taken out of it, through `DeltaTable`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakelog.spark
from lakelog.core.errors import FeatureInHistoryError, InvalidRequestError, LakelogError, UnsupportedFeatureError
from lakelog.spark import DeltaTable
from tests.spark.tables import commit_path, info, latest, make_log, of_kind, rows, save, struct, versions
from tests.spark.tables import field as column

DAY_S = 24 * 3600


@pytest.fixture
def path(delta: SparkSession, tmp_path: Path) -> str:
    """Three rows in a plain table, at version 0."""
    table = str(tmp_path / "t")
    save(delta.range(3).toDF("id"), table)
    return table


def properties(table: str) -> dict[str, str]:
    version = max(v for v in versions(table) if of_kind(table, "metaData", v))
    stored: dict[str, str] = of_kind(table, "metaData", version)[0]["configuration"]
    return stored


def grow_older(table: str, seconds: float) -> None:
    """Everything in the log was written that much earlier."""
    then = time.time() - seconds
    for file in (Path(table) / "_delta_log").iterdir():
        os.utime(file, (then, then))


def test_a_feature_is_added_once(delta: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(delta, path)
    table.addFeatureSupport("ROWTRACKING")
    assert of_kind(path, "protocol") == [
        {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["appendOnly", "domainMetadata", "invariants", "rowTracking"],
        }
    ]
    assert info(path)["operation"] == "UPGRADE PROTOCOL"
    assert info(path)["operationParameters"] == {
        "newProtocol": '{"minReaderVersion":1,"minWriterVersion":7,"readerFeatures":null,'
        '"writerFeatures":["appendOnly","domainMetadata","invariants","rowTracking"]}'
    }
    table.addFeatureSupport("rowTracking")
    assert latest(path) == 1
    assert len(rows(delta, path)) == 3


def test_versions_are_raised_and_never_lowered(delta: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(delta, path)
    table.upgradeTableProtocol(1, 3)
    assert of_kind(path, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 3}]
    assert of_kind(path, "metaData") == []
    table.upgradeTableProtocol(1, 2)
    table.upgradeTableProtocol(1, 1)
    assert latest(path) == 1


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (
            lambda t: t.addFeatureSupport("nosuch"),
            InvalidRequestError,
            "there is no table feature nosuch. There are: allowColumnDefaults, ",
        ),
        (lambda t: t.addFeatureSupport("deletionVectors"), UnsupportedFeatureError, "deletionVectors comes with a later release"),
        (lambda t: t.addFeatureSupport("clustering"), InvalidRequestError, "clusterBy"),
        (lambda t: t.upgradeTableProtocol(1, 8), InvalidRequestError, "no writer version 8. Use a whole number from 1 to 7"),
        (lambda t: t.dropFeatureSupport("rowTracking"), InvalidRequestError, "does not have the table feature rowTracking"),
        (lambda t: t.dropFeatureSupport("appendOnly", True), InvalidRequestError, "Leave out truncateHistory"),
    ],
)
def test_what_cannot_be_done_leaves_the_table_as_it_was(
    delta: SparkSession, path: str, call: object, kind: type[LakelogError], told: str
) -> None:
    assert callable(call)
    with pytest.raises(kind) as caught:
        call(DeltaTable.forPath(delta, path))
    assert path in str(caught.value)
    assert told in str(caught.value)
    assert versions(path) == [0]


def test_a_feature_of_writers_goes_at_once(delta: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(delta, path)
    table.addFeatureSupport("changeDataFeed")
    table.dropFeatureSupport("changeDataFeed")
    assert of_kind(path, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    assert info(path)["operation"] == "DROP FEATURE"
    assert info(path)["operationParameters"] == {"featureName": "changeDataFeed", "truncateHistory": False}
    assert versions(path) == [0, 1, 2]


def test_rows_lose_their_ids_with_row_tracking(delta: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(delta, path)
    table.addFeatureSupport("rowTracking")
    save(delta.range(2).toDF("id"), path)
    assert of_kind(path, "add")[0]["baseRowId"] == 0
    table.dropFeatureSupport("rowTracking")
    (again,) = of_kind(path, "add")
    assert "baseRowId" not in again
    assert not again["dataChange"]
    table.dropFeatureSupport("domainMetadata")
    assert of_kind(path, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    assert properties(path) == {}
    assert len(rows(delta, path)) == 5


def test_a_feature_of_readers_goes_when_no_version_that_is_kept_uses_it(delta: SparkSession, path: str) -> None:
    """Version 0 has a timestamp without zone, version 1 does not; both are a day old when version 2 drops the feature."""
    ntz = make_log(
        path + "_ntz",
        struct(column("t", "timestamp_ntz"), column("id", "long")),
        protocol={"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]},
    )
    table = DeltaTable.forPath(delta, ntz)
    with pytest.raises(InvalidRequestError, match=r"the column t is of type timestamp_ntz.*Drop the column first"):
        table.dropFeatureSupport("timestampNtz")
    without = {**of_kind(ntz, "metaData", 0)[0], "schemaString": json.dumps(struct(column("id", "long")))}
    commit_path(ntz, 1).write_text(json.dumps({"metaData": without}) + "\n")
    with pytest.raises(FeatureInHistoryError) as caught:
        table.dropFeatureSupport("timestampNtz")
    assert caught.value.version == 0
    for told in (ntz, "timestampNtz", "delta.logRetentionDuration (720 hours)", "truncateHistory=True", "(24 hours)"):
        assert told in str(caught.value)
    grow_older(ntz, DAY_S - 600)
    with pytest.raises(FeatureInHistoryError):
        table.dropFeatureSupport("timestampNtz", True)
    grow_older(ntz, DAY_S + 600)
    table.dropFeatureSupport("timestampNtz", True)
    save(delta.range(2).toDF("id"), ntz)
    assert versions(ntz) == [1, 2, 3]
    assert of_kind(ntz, "protocol", 2) == [{"minReaderVersion": 1, "minWriterVersion": 1}]
    assert info(ntz, 2)["operationParameters"] == {"featureName": "timestampNtz", "truncateHistory": True}
    assert len(rows(delta, ntz)) == 2


def test_a_mapping_that_renamed_nothing_is_taken_back(delta: SparkSession, tmp_path: Path) -> None:
    table = make_log(
        str(tmp_path / "t"),
        struct(column("id", "long", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"})),
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        delta_columnMapping_mode="name",
        delta_columnMapping_maxColumnId="1",
    )
    save(delta.range(3).toDF("id"), table)
    with pytest.raises(FeatureInHistoryError):
        DeltaTable.forPath(delta, table).dropFeatureSupport("columnMapping", True)
    assert info(table)["operation"] == "UNSET TBLPROPERTIES"
    assert properties(table) == {}
    grow_older(table, 2 * DAY_S)
    lakelog.spark.session.context_of(delta).logs.forget(table)
    DeltaTable.forPath(delta, table).dropFeatureSupport("columnMapping", True)
    assert of_kind(table, "protocol")[0]["minReaderVersion"] == 1
    assert rows(delta, table) == [(0,), (1,), (2,)]
    assert not commit_path(table, 1).exists()


def test_who_can_read(delta: SparkSession, path: str) -> None:
    assert all(support.reads for support in lakelog.spark.who_can_read(path))
    table = DeltaTable.forPath(delta, path)
    table.addFeatureSupport("typeWidening")
    shut_out = {s.engine.split()[0] for s in lakelog.spark.who_can_read(table) if not s.reads}
    assert {"deltalake", "Polars"} <= shut_out
    with pytest.raises(TypeError, match="DeltaTable or a str, not int"):
        lakelog.spark.who_can_read(7)  # type: ignore[arg-type]


def test_type_widening_is_dropped_after_an_overwrite(delta: SparkSession, path: str) -> None:
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN n int")
    save(delta.range(3, 5).selectExpr("id", "int(id) AS n"), path)
    delta.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN n TYPE bigint")
    table = DeltaTable.forPath(delta, path)
    with pytest.raises(UnsupportedFeatureError, match=r"may hold n in the narrower type .*mode\(\"overwrite\"\) with overwriteSchema"):
        table.dropFeatureSupport("typeWidening")
    before = rows(delta, path)
    save(delta.read.format("delta").load(path), path, "overwrite", overwriteSchema=True)
    assert sorted(rows(delta, path), key=repr) == sorted(before, key=repr)
    with pytest.raises(FeatureInHistoryError):
        table.dropFeatureSupport("typeWidening")
    grow_older(path, 40 * DAY_S)
    table.dropFeatureSupport("typeWidening", True)
    assert "typeWidening" not in of_kind(path, "protocol")[0].get("writerFeatures", [])
    assert sorted(rows(delta, path), key=repr) == sorted(before, key=repr)
