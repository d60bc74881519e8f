"""Reads of the change data feed: what they show of tables that others wrote, which ranges they refuse, and how they behave in queries."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lakelog.core.errors import (
    ChangeDataNotRecordedError,
    DataFileMissingError,
    InvalidOptionError,
    LakelogError,
    MetadataChangedException,
    NotADeltaTableError,
    SchemaMismatchError,
    UnsupportedOperationError,
    VersionNotFoundError,
)
from lakelog.spark import change_feed
from tests.golden import GOLDEN, Table, tables
from tests.spark.rows import texts
from tests.spark.tables import commit_path, field, struct, versions
from tests.spark.test_scans import files_opened
from tests.spark.told import check_ours

FEED = {"delta.enableChangeDataFeed": "true"}
OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
SCHEMA_MODE = "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable"
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]
Rows = list[tuple[object, ...]]


@pytest.fixture
def conf(delta: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets entries of the session's conf for one test; they are unset after it."""
    keys = []

    def setter(key: str, value: str) -> None:
        keys.append(key)
        delta.conf.set(key, value)

    yield setter
    for key in keys:
        delta.conf.unset(key)


def changes(session: SparkSession, table: str, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in {"readChangeFeed": "true", **options}.items()}
    return session.read.format("delta").options(**given).load(table)


def rows(frame: DataFrame) -> Rows:
    """Without the timestamps, sorted."""
    return sorted((tuple(row) for row in frame.drop("_commit_timestamp").collect()), key=repr)


def write(table: str, mode: str = "append", **columns: list[Any]) -> None:
    deltalake.write_deltalake(table, pa.table(columns), mode=mode, configuration=FEED, partition_by=["p"] if "p" in columns else None)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Written by deltalake: an insert, a delete, an update, a merge, an append, a delete of whole files; a second apart each."""
    table = str(tmp_path_factory.mktemp("orders") / "t")
    write(table, id=[1, 2, 3, 4], name=["a", "b", "c", "d"], p=["x", "x", "y", "z"])
    known = deltalake.DeltaTable(table)
    known.delete("id = 2")
    known.update(updates={"name": "'C'"}, predicate="id = 3")
    source = pa.table({"id": [1, 9], "name": ["A", "i"], "p": ["x", "w"]})
    merge = known.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    write(table, id=[5], name=["e"], p=["z"])
    known = deltalake.DeltaTable(table)
    known.delete("p = 'z'")
    at_seconds(table)
    return table


def at_seconds(table: str, start: int = 1_700_000_000) -> None:
    """Let each commit file be written a second after the one before."""
    for version in versions(table):
        os.utime(commit_path(table, version), (start + version, start + version))


EVERYTHING: Rows = sorted(
    [
        (1, "a", "x", "insert", 0),
        (2, "b", "x", "insert", 0),
        (3, "c", "y", "insert", 0),
        (4, "d", "z", "insert", 0),
        (2, "b", "x", "delete", 1),
        (3, "c", "y", "update_preimage", 2),
        (3, "C", "y", "update_postimage", 2),
        (1, "a", "x", "update_preimage", 3),
        (1, "A", "x", "update_postimage", 3),
        (9, "i", "w", "insert", 3),
        (5, "e", "z", "insert", 4),
        (4, "d", "z", "delete", 5),
        (5, "e", "z", "delete", 5),
    ],
    key=repr,
)


def between(first: int, last: int) -> Rows:
    return [row for row in EVERYTHING if first <= int(str(row[-1])) <= last]


@pytest.mark.parametrize("table", tables(lambda table: "change_feed" in table))
def test_golden_tables(session: SparkSession, table: Table) -> None:
    expected = table["change_feed"]
    first, last = expected["start_version"], expected["end_version"]
    folder = str(GOLDEN / table["folder"])
    found = texts(changes(session, folder, startingVersion=first, endingVersion=last).drop("_commit_timestamp").toArrow())
    assert (len(found), hashlib.sha256(b"".join(row + b"\n" for row in found)).hexdigest()) == (expected["rows"], expected["sha256"])
    for version in range(first):
        with pytest.raises(LakelogError, match=f"version {version}"):
            changes(session, folder, startingVersion=version, endingVersion=last)


def test_the_time_that_a_commit_tells_of_itself(session: SparkSession, golden: Path) -> None:
    table = str(golden / "deltars-cdc_ict_table" / "delta")
    times = {}
    for version in versions(table):
        (info,) = (json.loads(line)["commitInfo"] for line in commit_path(table, version).read_text().splitlines() if "commitInfo" in line)
        times[version] = info["inCommitTimestamp"]
    found = changes(session, table, startingVersion=0).selectExpr("_commit_version", "unix_millis(_commit_timestamp)").distinct().collect()
    assert {row[0]: row[1] for row in found} == {version: times[version] for version in (1, 2, 3)}


def test_every_kind_of_change(delta: SparkSession, orders: str) -> None:
    frame = changes(delta, orders, startingVersion=0)
    kinds = [(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema]
    assert kinds == [
        *(("id", "bigint", True), ("name", "string", True), ("p", "string", True)),
        *(("_change_type", "string", True), ("_commit_version", "bigint", True), ("_commit_timestamp", "timestamp", True)),
    ]
    assert rows(frame) == EVERYTHING
    stamps = frame.selectExpr("_commit_version", "unix_millis(_commit_timestamp)").distinct().collect()
    assert {row[0]: row[1] for row in stamps} == {version: (1_700_000_000 + version) * 1000 for version in range(6)}


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingVersion": 1}, 1, 5),
        ({"startingVersion": 1, "endingVersion": 3}, 1, 3),
        ({"startingVersion": 2, "endingVersion": 2}, 2, 2),
        ({"startingVersion": 4, "endingVersion": 99}, 4, 5),
        ({"STARTINGVERSION": 5}, 5, 5),
        ({"readChangeFeed": "false", "readChangeData": "TRUE", "startingVersion": 5}, 5, 5),
    ],
)
def test_ranges_of_versions(delta: SparkSession, orders: str, options: dict[str, object], first: int, last: int) -> None:
    assert rows(changes(delta, orders, **options)) == between(first, last)


def stamp(second: float) -> str:
    return datetime.fromtimestamp(1_700_000_000 + second, UTC).isoformat(sep=" ", timespec="milliseconds")


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (-1000, None, 0, 5),
        (0, 2, 0, 2),
        (1, 1, 1, 1),
        (0.5, 2.5, 1, 2),
        (4.5, 5, 5, 5),
        (2.2, 2.7, 1, 0),
    ],
)
def test_ranges_of_times(delta: SparkSession, orders: str, start: float, end: float | None, first: int, last: int) -> None:
    ending = {} if end is None else {"endingTimestamp": stamp(end)}
    frame = changes(delta, orders, startingTimestamp=stamp(start), **ending)
    assert rows(frame) == between(first, last)
    assert frame.columns[-3:] == ADDED


def test_times_without_a_zone_are_the_sessions(delta: SparkSession, orders: str, conf: Callable[[str, str], None]) -> None:
    conf("spark.sql.session.timeZone", "Asia/Tokyo")
    # 1,700,000,000 seconds are 22:13:20 in UTC.
    frame = changes(delta, orders, startingTimestamp="2023-11-15 07:13:24", endingVersion=4)
    assert rows(frame) == between(4, 4)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, InvalidOptionError, "needs the option startingVersion or startingTimestamp"),
        ({"endingVersion": 1}, InvalidOptionError, "needs the option startingVersion"),
        (
            {"startingVersion": 0, "startingTimestamp": "2024-01-01"},
            InvalidOptionError,
            "startingVersion and startingTimestamp are both given; give one",
        ),
        (
            {"startingVersion": 0, "endingVersion": 0, "endingTimestamp": "2024-01-01"},
            InvalidOptionError,
            "endingVersion and endingTimestamp are both given; give one",
        ),
        ({"startingVersion": "latest"}, InvalidOptionError, "startingVersion must be a version number.*'latest'"),
        ({"startingVersion": -1}, InvalidOptionError, "startingVersion must be a version number.*'-1'"),
        ({"startingVersion": 0, "endingVersion": "1.5"}, InvalidOptionError, r"endingVersion must be a version number.*'1\.5'"),
        ({"startingTimestamp": "yesterday"}, InvalidOptionError, "'yesterday' is no timestamp; write it as"),
        ({"startingVersion": 3, "endingVersion": 2}, InvalidOptionError, "from version 3 to version 2, which lies before it. Give an end"),
        (
            {"startingTimestamp": stamp(2.7), "endingTimestamp": stamp(2.2)},
            InvalidOptionError,
            "from version 3 to version 2, which lies before",
        ),
        ({"startingVersion": 6}, VersionNotFoundError, "from version 6 on, and the latest version is 5. Start at that version"),
        ({"startingTimestamp": stamp(5.5)}, VersionNotFoundError, "a time after its latest commit on, and the latest version is 5"),
        ({"startingVersion": 0, "endingTimestamp": stamp(6)}, VersionNotFoundError, "lies after the latest commit"),
        ({"startingVersion": 0, "endingTimestamp": stamp(-9)}, VersionNotFoundError, "lies before the earliest commit"),
        ({"startingVersion": 0, "versionAsOf": 1}, InvalidOptionError, "leave out versionAsOf"),
        ({"startingVersion": 0, "readChangeFeed": "yes"}, InvalidOptionError, "readChangeFeed must be true or false, not 'yes'"),
    ],
)
def test_what_is_no_range(delta: SparkSession, orders: str, options: dict[str, object], kind: type[LakelogError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        changes(delta, orders, **options)
    assert orders in check_ours(caught)


def test_a_version_in_the_path_is_refused(delta: SparkSession, orders: str) -> None:
    with pytest.raises(InvalidOptionError, match="leave out the path's suffix"):
        changes(delta, orders + "@v1", startingVersion=0)
    with pytest.raises(NotADeltaTableError):
        changes(delta, orders + "/nothing", startingVersion=0)


def test_ranges_beyond_the_latest_commit_where_the_session_allows_them(
    delta: SparkSession, orders: str, conf: Callable[[str, str], None]
) -> None:
    conf(OUT_OF_RANGE, "true")
    for options in ({"startingVersion": 6}, {"startingTimestamp": stamp(9)}, {"startingVersion": 9, "endingVersion": 9}):
        frame = changes(delta, orders, **options)
        assert (frame.count(), frame.columns) == (0, ["id", "name", "p", *ADDED])
    assert rows(changes(delta, orders, startingVersion=4, endingTimestamp=stamp(99))) == between(4, 5)


def test_the_feed_must_be_on_in_every_version(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    deltalake.write_deltalake(table, pa.table({"id": [1]}))
    known = deltalake.DeltaTable(table)
    known.alter.set_table_properties(FEED)
    write(table, id=[2])
    for options, version in (({"startingVersion": 0}, 0), ({"startingVersion": 0, "endingVersion": 0}, 0)):
        with pytest.raises(ChangeDataNotRecordedError) as caught:
            changes(delta, table, **options)
        told = check_ours(caught)
        assert caught.value.version == version
        for part in (table, f"version {version} did not record them", "TBLPROPERTIES (delta.enableChangeDataFeed = true)"):
            assert part in told
    assert rows(changes(delta, table, startingVersion=1)) == [(2, "insert", 2)]
    deltalake.DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    with pytest.raises(ChangeDataNotRecordedError, match="version 3 did not"):
        changes(delta, table, startingVersion=1)
    assert rows(changes(delta, table, startingVersion=1, endingVersion=2)) == [(2, "insert", 2)]
    assert versions(table) == [0, 1, 2, 3]


def test_columns_that_came_later_are_null_before(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write(table, id=[1, 2])
    deltalake.DeltaTable(table).delete("id = 1")
    deltalake.write_deltalake(table, pa.table({"id": [3], "more": ["m"]}), mode="append", schema_mode="merge")
    expected = [(1, None, "delete", 1), (1, None, "insert", 0), (2, None, "insert", 0), (3, "m", "insert", 2)]
    assert rows(changes(delta, table, startingVersion=0)) == expected
    # The newest schema shows the rows of every range.
    assert rows(changes(delta, table, startingVersion=0, endingVersion=1)) == expected[:3]


def test_a_schema_that_one_read_cannot_show(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write(table, id=[1])
    deltalake.write_deltalake(table, pa.table({"other": ["x"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaMismatchError, match=r"column id is in the older.*Start at version 1, or") as caught:
        changes(delta, table, startingVersion=0)
    assert table in check_ours(caught)
    assert rows(changes(delta, table, startingVersion=1, endingVersion=1).where("_change_type = 'insert'")) == [("x", "insert", 1)]


def test_partitions_versions_and_kinds_prune(delta: SparkSession, orders: str) -> None:
    frame = changes(delta, orders, startingVersion=0)
    everything = files_opened(frame)
    assert everything == len(set(frame.inputFiles())) + 2  # two files were added and removed whole
    for condition in ("_commit_version = 3", "p = 'z'", "_commit_version > 3 and p = 'z'", f"_commit_timestamp = timestamp'{stamp(4)}'"):
        chosen = frame.where(condition)
        assert 0 < files_opened(chosen) < everything, condition
    assert rows(frame.where("_commit_version = 3")) == between(3, 3)
    assert rows(frame.where("p = 'z' and _change_type = 'delete'")) == between(5, 5)
    assert files_opened(frame.where("_commit_version = 4 and _change_type = 'delete'")) == 0
    assert files_opened(frame.where("_commit_version = 77")) == 0


def test_columns_prune_and_counts_need_none(delta: SparkSession, orders: str) -> None:
    frame = changes(delta, orders, startingVersion=0)
    assert frame.count() == len(EVERYTHING)
    assert sorted(row[0] for row in frame.select("_commit_version").distinct().collect()) == list(range(6))
    assert sorted(tuple(row) for row in frame.groupBy("_change_type").count().collect()) == [
        *(("delete", 3), ("insert", 6), ("update_postimage", 2), ("update_preimage", 2)),
    ]
    assert frame.where("_change_type = 'update_postimage'").select("name").distinct().count() == 2


def test_joins_unions_views_and_caches(delta: SparkSession, orders: str) -> None:
    frame = changes(delta, orders, startingVersion=0)
    assert frame.join(frame, ["id", "_commit_version", "_change_type"]).count() == len(EVERYTHING)
    again = changes(delta, orders, startingVersion=0)
    assert frame.union(again).count() == 2 * len(EVERYTHING)
    joined = frame.alias("a").join(delta.read.format("delta").load(orders).alias("b"), "id")
    assert sorted({row["id"] for row in joined.select("id").collect()}) == [1, 3, 9]
    cached = frame.cache()
    try:
        assert cached.count() == len(EVERYTHING)
        assert rows(cached) == EVERYTHING
        # The same range of another frame is found in the cache.
        assert "InMemoryRelation" in again._jdf.queryExecution().withCachedData().toString()
    finally:
        cached.unpersist()
    frame.createOrReplaceTempView("changed_orders")
    assert delta.sql("SELECT count(*) FROM changed_orders WHERE _change_type LIKE 'update%'").first() == (4,)


def test_changes_cannot_be_written(delta: SparkSession, orders: str) -> None:
    before = versions(orders)
    for first in (0, 4):
        changes(delta, orders, startingVersion=first).createOrReplaceTempView("changed_orders")
        with pytest.raises(AnalysisException, match="Can't insert into the target"):
            delta.sql("INSERT INTO changed_orders SELECT * FROM changed_orders")
        with pytest.raises(UnsupportedOperationError, match=r"DELETE from a view.*Delete from the table: DELETE FROM") as caught:
            delta.sql("DELETE FROM changed_orders WHERE id = 1")
        assert orders in check_ours(caught)
    assert versions(orders) == before


def test_by_name_in_the_catalog(delta: SparkSession, orders: str) -> None:
    reader = delta.read.option("readChangeFeed", "true").option("startingVersion", "2")
    frame = reader.table(f"delta.`{orders}`")
    assert frame.columns == ["id", "name", "p", *ADDED]
    assert rows(frame) == between(2, 5)
    with pytest.raises(InvalidOptionError, match="needs the option startingVersion"):
        delta.read.option("readChangeFeed", "true").table(f"delta.`{orders}`")
    assert delta.read.option("readChangeFeed", "false").table(f"delta.`{orders}`").columns == ["id", "name", "p"]


def test_a_range_without_an_end_is_settled_when_it_is_read(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write(table, id=[1])
    frame = changes(delta, table, startingVersion=0)
    assert rows(frame) == [(1, "insert", 0)]
    write(table, id=[2])
    assert rows(frame) == [(1, "insert", 0)]
    assert rows(changes(delta, table, startingVersion=0)) == [(1, "insert", 0), (2, "insert", 1)]


def test_plans_outlive_what_is_held_for_them(delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "_KEPT", 1)
    frames, expected = [], []
    for i in range(3):
        table = str(tmp_path / str(i))
        write(table, id=[i, i + 10])
        deltalake.DeltaTable(table).delete(f"id = {i}")
        frames.append(changes(delta, table, startingVersion=0))
        expected.append([(i, "delete", 1), (i, "insert", 0), (i + 10, "insert", 0)])
    for _ in range(2):
        delta._jvm.lakelog.FileList.forget()  # type: ignore[union-attr]
        for frame, wanted in zip(frames, expected, strict=True):
            assert rows(frame) == sorted(wanted, key=repr)


def test_a_table_made_anew_is_not_taken_for_the_old_one(delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "_KEPT", 1)
    table, other = str(tmp_path / "t"), str(tmp_path / "other")
    for path in (table, other):
        write(path, id=[1])
    frame = changes(delta, table, startingVersion=0)
    changes(delta, other, startingVersion=0)
    shutil.rmtree(table)
    write(table, id=[2])
    with pytest.raises(MetadataChangedException, match=f"{table}.*Read the changes again"):
        frame.collect()


def test_files_and_commits_that_are_gone(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write(table, id=[1, 2])
    known = deltalake.DeltaTable(table)
    known.delete("id = 1")
    write(table, id=[3])
    frame = changes(delta, table, startingVersion=0)
    for file in Path(table, "_change_data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(DataFileMissingError, match="_change_data"):
        frame.collect()
    assert rows(frame.where("_commit_version <> 1")) == [(1, "insert", 0), (2, "insert", 0), (3, "insert", 2)]
    deltalake.DeltaTable(table).create_checkpoint()
    commit_path(table, 0).unlink()
    with pytest.raises(VersionNotFoundError, match="the commit of version 0 is not in the log, those of versions 1 to 2 are"):
        changes(delta, table, startingVersion=0)
    assert rows(changes(delta, table, startingVersion=2)) == [(3, "insert", 2)]


Action = dict[str, Any]


def hand_made(table: str, *commits: list[Action]) -> str:
    """A table whose files and commits are written without any library for Delta tables."""
    for version, actions in enumerate(commits):
        path = commit_path(table, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
    return table


def data_file(table: str, kind: str, name: str, rows: pa.Table) -> Action:
    """An action of one kind for a file that is written if it is not there."""
    path = Path(table, name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
    told = {"path": name, "partitionValues": {}, "size": path.stat().st_size, "dataChange": kind != "cdc"}
    return {kind: {**told, **({"modificationTime": 0} if kind == "add" else {})}}


def metadata(*columns: Action, **configuration: str) -> Action:
    told = {name.replace("_", "."): value for name, value in configuration.items()}
    return {
        "metaData": {
            "id": "0f6c1f0e-5b2b-4a9e-9a50-1d9c4e9e6f10",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct(*columns)),
            "partitionColumns": [],
            "configuration": {**FEED, **told},
        }
    }


def mapped(name: str, number: int) -> Action:
    return field(name, "long", **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"})


def physical(columns: dict[str, list[Any]], *, ids: bool) -> pa.Table:
    """Columns as files of a mapped table hold them; in the mode of ids their names say nothing."""
    fields = []
    for name in columns:
        number = name.rpartition("-")[2]
        by_id = ids and number.isdecimal()
        fields.append(
            pa.field(
                f"n{number}" if by_id else name,
                pa.string() if name == "_change_type" else pa.int64(),
                metadata={"PARQUET:field_id": number} if by_id else None,
            )
        )
    return pa.table([pa.array(values, f.type) for f, values in zip(fields, columns.values(), strict=True)], schema=pa.schema(fields))


@pytest.fixture(scope="module", params=["name", "id"])
def mapped_table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Column a; then b beside it; then a change data file; then a is called z."""
    mode, ids = request.param, request.param == "id"
    table = str(tmp_path_factory.mktemp(mode) / "t")
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    properties = {"delta_columnMapping_mode": mode, "delta_columnMapping_maxColumnId": "2"}
    a, ab, zb = (metadata(*(mapped(name, number) for number, name in enumerate(names, 1)), **properties) for names in ("a", "ab", "zb"))
    first = physical({"col-1": [1, 2]}, ids=ids)
    second = physical({"col-1": [3], "col-2": [30]}, ids=ids)
    changed = physical({"col-2": [None, 10], "col-1": [1, 1], "_change_type": ["update_preimage", "update_postimage"]}, ids=ids)
    return hand_made(
        table,
        [protocol, a, data_file(table, "add", "0.parquet", first)],
        [ab, data_file(table, "add", "1.parquet", second)],
        [data_file(table, "cdc", "_change_data/2.parquet", changed), data_file(table, "add", "2.parquet", second)],
        [zb],
        [{"remove": {**data_file(table, "add", "1.parquet", second)["add"], "deletionTimestamp": 0, "extendedFileMetadata": True}}],
    )


def test_mapped_columns(delta: SparkSession, mapped_table: str, conf: Callable[[str, str], None]) -> None:
    expected: Rows = [
        *((1, None, "insert", 0), (1, None, "update_preimage", 2), (1, 10, "update_postimage", 2), (2, None, "insert", 0)),
        (3, 30, "insert", 1),
    ]
    frame = changes(delta, mapped_table, startingVersion=0, endingVersion=2)
    assert frame.columns == ["a", "b", *ADDED]
    assert rows(frame) == sorted(expected, key=repr)
    assert [column.metadata for column in frame.schema] == [{}] * 5
    assert rows(frame.where("a = 1 and _change_type like 'update%'").select("b", "_commit_timestamp")) == [(10,), (None,)]
    assert rows(changes(delta, mapped_table, startingVersion=3)) == [(3, 30, "delete", 4)]
    assert changes(delta, mapped_table, startingVersion=3).columns[:2] == ["z", "b"]
    with pytest.raises(SchemaMismatchError, match=r"does not fit that of version 1: the column a is called z.*Start at version 3, or"):
        changes(delta, mapped_table, startingVersion=0)
    conf(SCHEMA_MODE, "latest")
    with pytest.raises(SchemaMismatchError, match="schema of version 4"):
        changes(delta, mapped_table, startingVersion=0, endingVersion=2)
    conf(SCHEMA_MODE, "newest")
    with pytest.raises(InvalidOptionError, match="must be endVersion, latest or legacy, not 'newest'"):
        changes(delta, mapped_table, startingVersion=0, endingVersion=2)


def test_types_that_widened(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    features = ["typeWidening", "changeDataFeed"]
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features[:1], "writerFeatures": features}}
    change = [{"fromType": "integer", "toType": "long"}]
    narrow = pa.table({"a": pa.array([1, 2], pa.int32())})
    updated = pa.table({"a": pa.array([2, 2**31 - 1], pa.int32()), "_change_type": ["update_preimage", "update_postimage"]})
    hand_made(
        table,
        [protocol, metadata(field("a", "integer")), data_file(table, "add", "0.parquet", narrow)],
        [data_file(table, "cdc", "_change_data/1.parquet", updated)],
        [
            metadata(field("a", "long", **{"delta.typeChanges": change}), delta_enableTypeWidening="true"),
            data_file(table, "add", "2.parquet", pa.table({"a": [2**40]})),
        ],
    )
    frame = changes(delta, table, startingVersion=0)
    expected: Rows = [
        (1, "insert", 0),
        (2, "insert", 0),
        (2, "update_preimage", 1),
        (2**31 - 1, "update_postimage", 1),
        (2**40, "insert", 2),
    ]
    assert frame.schema["a"].dataType.simpleString() == "bigint"
    assert rows(frame) == sorted(expected, key=repr)
    assert rows(frame.where("a > 2")) == sorted(expected[3:], key=repr)


def test_what_lakelog_wrote_itself(delta: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    frame = delta.range(6).selectExpr("id", "id % 2 p").coalesce(1)
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(table)
    delta.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")
    delta.range(7, 8).selectExpr("id", "id % 2 p").write.format("delta").mode("append").save(table)
    inserted: Rows = [(i, i % 2, "insert", 0) for i in range(6)]
    assert rows(changes(delta, table, startingVersion=0)) == sorted([*inserted, (3, 1, "delete", 1), (7, 1, "insert", 2)], key=repr)
