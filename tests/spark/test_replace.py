"""Overwrites of a part of a table: replaceWhere, replaceOn, replaceUsing, dynamic partition overwrite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.errors import ConstraintViolationError, InvalidOptionError, SchemaMismatchError, UnsupportedOperationError
from lakelog.spark import DeltaTable
from tests.spark.tables import commit, info, latest, of_kind, parquet_files, rows, save

Make = Callable[[str], str]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def numbers(spark: SparkSession, *pairs: tuple[int | None, str | None]) -> DataFrame:
    return spark.createDataFrame(list(pairs), "id long, part string").coalesce(1)


@pytest.fixture
def table(delta: SparkSession, path: str) -> str:
    """Three partitions, two rows each, one file each."""
    frame = numbers(delta, (1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, None), (6, None))
    save(frame, path, partition_by=["part"], **{"delta.dataSkippingNumIndexedCols": 32})
    return path


@pytest.fixture
def flat(delta: SparkSession, path: str) -> str:
    """Unpartitioned, three files: 0 to 9, 10 to 19, 20 to 29."""
    for start in (0, 10, 20):
        save(delta.range(start, start + 10).withColumn("v", F.lit("old")), path)
    return path


def overwrite(frame: DataFrame, table: str, **options: object) -> None:
    save(frame, table, "overwrite", **options)


def refused(act: Callable[[], object], table: str, kind: type[Exception], *said: str) -> str:
    """The message of a refusal that left the table and its folder as they were."""
    before, files = latest(table), parquet_files(table)
    with pytest.raises(kind) as caught:
        act()
    message = str(caught.value)
    for part in (table, *said):
        assert part in message
    assert (latest(table), parquet_files(table)) == (before, files)
    return message


def hide_files(table: str, pattern: str) -> None:
    """Make sure that nobody opens some files: they are not there any more."""
    found = list(Path(table).glob(pattern))
    assert found
    for file in found:
        file.unlink()


# replaceWhere on partition columns ------------------------------------------------------------------------------------


def test_replaces_one_partition_and_opens_no_file(delta: SparkSession, table: str) -> None:
    hide_files(table, "part=*/*.parquet")
    overwrite(numbers(delta, (10, "a"), (11, "a")), table, replaceWhere="part = 'a'")
    assert [Path(remove["path"]).parts[0] for remove in of_kind(table, "remove")] == ["part=a"]
    assert [add["partitionValues"] for add in of_kind(table, "add")] == [{"part": "a"}]
    assert info(table)["operationParameters"]["predicate"] == "part = 'a'"
    assert info(table)["operationMetrics"]["numRemovedFiles"] == "1"
    assert info(table)["operationMetrics"]["numDeletedRows"] == "2"


def test_replaces_the_null_partition(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (10, None)), table, replaceWhere="part IS NULL")
    assert rows(delta, table) == sorted([(1, "a"), (2, "a"), (3, "b"), (4, "b"), (10, None)], key=repr)


def test_replaces_nothing_where_nothing_matches(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (9, "z")), table, replaceWhere="part = 'z'")
    assert len(rows(delta, table)) == 7
    assert of_kind(table, "remove") == []


def test_an_empty_frame_only_removes(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta).limit(0), table, replaceWhere="part = 'b'")
    assert {row[1] for row in rows(delta, table)} == {"a", None}


def test_an_empty_partition_value_is_null_when_it_is_checked(delta: SparkSession, table: str) -> None:
    refused(lambda: overwrite(numbers(delta, (1, "")), table, replaceWhere="part = ''"), table, ConstraintViolationError, "replaceWhere")
    overwrite(numbers(delta, (1, "")), table, replaceWhere="part IS NULL")
    assert (1, None) in rows(delta, table)


# replaceWhere on data columns -----------------------------------------------------------------------------------------


def test_files_wholly_inside_go_unread_and_files_partly_inside_are_rewritten(delta: SparkSession, flat: str) -> None:
    whole = of_kind(flat, "add", 1)[0]["path"]
    untouched = of_kind(flat, "add", 0)[0]["path"]
    for name in (whole, untouched):
        (Path(flat) / name).unlink()
    new = delta.range(100, 103).withColumn("id", F.col("id") - 85).withColumn("v", F.lit("new"))
    overwrite(new, flat, replaceWhere="id >= 10 AND id < 25")
    removed = {remove["path"] for remove in of_kind(flat, "remove")}
    assert removed == {whole, of_kind(flat, "add", 2)[0]["path"]}
    metrics = info(flat)["operationMetrics"]
    assert (metrics["numDeletedRows"], metrics["numCopiedRows"], metrics["numOutputRows"]) == ("15", "5", "3")


def test_rows_after_a_replace_on_data_columns(delta: SparkSession, flat: str) -> None:
    overwrite(delta.range(12, 15).withColumn("v", F.lit("new")), flat, replaceWhere="id BETWEEN 10 AND 24")
    found = rows(delta, flat)
    assert sorted(row[0] for row in found) == [*range(10), *range(12, 15), *range(25, 30)]
    assert {row[0] for row in found if row[1] == "new"} == {12, 13, 14}


def test_rows_that_do_not_match_are_refused_with_samples(delta: SparkSession, flat: str) -> None:
    message = refused(
        lambda: overwrite(delta.range(20, 40).withColumn("v", F.lit("x")), flat, replaceWhere="id < 30"),
        flat,
        ConstraintViolationError,
        "replaceWhere",
        "id < 30",
    )
    assert sum(f"id : {n}\n" in message or f"id : {n}," in message for n in range(30, 40)) > 1


def test_a_null_answer_does_not_match(delta: SparkSession, table: str) -> None:
    refused(lambda: overwrite(numbers(delta, (None, "a")), table, replaceWhere="id < 5"), table, ConstraintViolationError, "id < 5")


def test_the_check_can_be_turned_off(delta: SparkSession, table: str) -> None:
    key = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
    delta.conf.set(key, "false")
    try:
        overwrite(numbers(delta, (50, "z")), table, replaceWhere="part = 'a'")
    finally:
        delta.conf.unset(key)
    assert {row[1] for row in rows(delta, table)} == {"b", None, "z"}


def test_target_alias(delta: SparkSession, flat: str) -> None:
    overwrite(delta.range(3, 4).withColumn("v", F.lit("new")), flat, replaceWhere="t.id < 10", targetAlias="t")
    assert [row for row in rows(delta, flat) if row[0] < 10] == [(3, "new")]


def test_a_predicate_over_a_column_that_the_write_adds(delta: SparkSession, flat: str) -> None:
    new = delta.range(100, 101).withColumn("v", F.lit("n")).withColumn("w", F.lit(7))
    overwrite(new, flat, replaceWhere="w = 7 OR id = 0", mergeSchema="true")
    found = rows(delta, flat)
    assert len(found) == 30
    assert (100, "n", 7) in found
    assert (1, "old", None) in found


def test_a_new_table_is_checked_too(delta: SparkSession, path: str) -> None:
    with pytest.raises(ConstraintViolationError):
        overwrite(delta.range(5), path, replaceWhere="id < 3")
    assert not (Path(path) / "_delta_log").exists()
    overwrite(delta.range(3), path, replaceWhere="id < 3")
    assert len(rows(delta, path)) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"replaceWhere": "nothing = 1"}, "nothing"),
        ({"replaceWhere": "id +"}, "id +"),
        ({"replaceWhere": "id"}, "replaceWhere=id"),
        ({"replaceWhere": " "}, "empty"),
        ({"replaceWhere": "rand() < 0.5"}, "the same"),
        ({"replaceWhere": "id IN (SELECT 1)"}, "subquery"),
        ({"replaceWhere": "id = 1", "partitionOverwriteMode": "dynamic"}, "partitionOverwriteMode=dynamic"),
        ({"replaceWhere": "id = 1", "replaceUsing": "id"}, "replaceUsing"),
        ({"replaceWhere": "id = 1", "dataChange": "false"}, "dataChange"),
        ({"replaceUsing": "nothing"}, "nothing"),
        ({"replaceUsing": ","}, "replaceUsing"),
        ({"replaceOn": "s.nothing = 1"}, "nothing"),
        ({"replaceOn": "id = 3"}, "could be the table's or the data's"),
        ({"replaceOn": "t.id = id", "targetAlias": "t"}, "could be the table's or the data's"),
        ({"replaceOn": "1 = 1", "targetAlias": "t"}, "no column of the table"),
        ({"useNullIntolerantEqualityWithDPO": "true"}, "partitionOverwriteMode=dynamic"),
        ({"partitionOverwriteMode": "sometimes"}, "sometimes"),
        ({"mergeSchema": "yes"}, "yes"),
        ({"dataChange": "0"}, "dataChange"),
    ],
)
def test_options_that_make_no_sense(delta: SparkSession, table: str, options: dict[str, str], said: str) -> None:
    refused(lambda: overwrite(numbers(delta, (1, "a")), table, **options), table, Exception, said)


@pytest.mark.parametrize("option", ["replaceWhere", "replaceOn", "replaceUsing"])
def test_an_append_replaces_nothing(delta: SparkSession, table: str, option: str) -> None:
    act = lambda: save(numbers(delta, (1, "a")), table, "append", **{option: "id"})  # noqa: E731
    refused(act, table, InvalidOptionError, option, "overwrite")


def test_an_append_only_table_is_not_replaced(delta: SparkSession, path: str) -> None:
    save(delta.range(3), path, **{"delta.appendOnly": "true"})
    refused(lambda: overwrite(delta.range(3), path, replaceWhere="id < 3"), path, UnsupportedOperationError, "append-only")


# replaceOn, replaceUsing ----------------------------------------------------------------------------------------------


def test_replace_using(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (1, "z"), (5, "y"), (99, "a")), table, replaceUsing="id")
    assert rows(delta, table) == sorted([(1, "z"), (2, "a"), (3, "b"), (4, "b"), (5, "y"), (6, None), (99, "a")], key=repr)
    assert info(table)["operationParameters"]["replaceUsingCols"] == "id"


def test_replace_using_takes_a_null_for_no_match(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (7, None), (8, "b")), table, replaceUsing="part")
    assert rows(delta, table) == sorted([(1, "a"), (2, "a"), (5, None), (6, None), (7, None), (8, "b")], key=repr)


def test_replace_using_several_columns(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (1, "a"), (2, "b")), table, replaceUsing="id, PART")
    assert rows(delta, table) == sorted([(1, "a"), (2, "a"), (2, "b"), (3, "b"), (4, "b"), (5, None), (6, None)], key=repr)


def test_replace_on_with_both_aliases(delta: SparkSession, table: str) -> None:
    new = numbers(delta, (4, "new")).alias("s")
    new.write.format("delta").mode("overwrite").option("replaceOn", "t.id <= s.id AND t.part = 'b'").option("targetAlias", "t").save(table)
    assert rows(delta, table) == sorted([(1, "a"), (2, "a"), (4, "new"), (5, None), (6, None)], key=repr)
    assert info(table)["operationParameters"]["replaceOnCond"] == "t.id <= s.id AND t.part = 'b'"


def test_replace_on_with_one_alias_for_both(delta: SparkSession, table: str) -> None:
    new = numbers(delta, (1, "new")).alias("t").write.format("delta").mode("overwrite").option("targetAlias", "t")
    refused(lambda: new.option("replaceOn", "t.id = t.id").save(table), table, InvalidOptionError, "targetAlias=t", "different names")


def test_replace_using_a_column_that_the_data_lacks(delta: SparkSession, table: str) -> None:
    new = numbers(delta, (1, "a")).drop("id")
    refused(lambda: overwrite(new, table, replaceUsing="id"), table, InvalidOptionError, "replaceUsing=id", "the data does not have")


def test_a_source_that_never_gives_the_same_rows_is_read_once(delta: SparkSession, flat: str) -> None:
    new = delta.range(1).select((F.rand() * 29).cast("long").alias("id"), F.lit("new").alias("v"))
    overwrite(new, flat, replaceUsing="id")
    found = rows(delta, flat)
    assert sorted(row[0] for row in found) == list(range(30))
    assert [row[1] for row in found].count("new") == 1


def test_the_table_itself_as_the_source(delta: SparkSession, flat: str) -> None:
    new = delta.read.format("delta").load(flat).where("id % 10 = 0").withColumn("v", F.lit("new"))
    overwrite(new, flat, replaceUsing="id")
    assert [row[0] for row in rows(delta, flat) if row[1] == "new"] == [0, 10, 20]
    assert len(rows(delta, flat)) == 30


# char columns ---------------------------------------------------------------------------------------------------------


def test_rows_are_replaced_and_deleted_beside_padded_columns(delta: SparkSession, path: str) -> None:
    """Spark puts a projection over each scan with a char column."""
    DeltaTable.create(delta).location(path).addColumn("id", "int").addColumn("c", "char(5)").addColumn("s", "struct<x: char(3)>").execute()
    made = "SELECT explode(sequence(1, 6)) id, 'ab' c, named_struct('x', 'q') s"
    delta.sql(made).coalesce(1).write.format("delta").mode("append").save(path)
    DeltaTable.forPath(delta, path).delete("id = 1")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE c = 'ab' AND id = 2")
    new = delta.sql("SELECT 3 id, 'new' c, named_struct('x', 'q') s")
    overwrite(new, path, replaceWhere="id = 3 AND c > 'a'")
    overwrite(new.withColumn("id", F.lit(4)), path, replaceUsing="id")
    assert [(row[0], row[1]) for row in rows(delta, path)] == [(3, "new  "), (4, "new  "), (5, "ab   "), (6, "ab   ")]


# dynamic partition overwrite ------------------------------------------------------------------------------------------


def test_dynamic_overwrite(delta: SparkSession, table: str) -> None:
    hide_files(table, "part=*/*.parquet")
    overwrite(numbers(delta, (10, "b"), (11, "c")), table, partitionOverwriteMode="dynamic")
    assert [Path(remove["path"]).parts[0] for remove in of_kind(table, "remove")] == ["part=b"]
    assert info(table)["operationParameters"]["isDynamicPartitionOverwrite"] in (True, "true")


def test_dynamic_overwrite_of_the_null_partition(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (10, None)), table, partitionOverwriteMode="dynamic")
    assert rows(delta, table) == sorted([(1, "a"), (2, "a"), (3, "b"), (4, "b"), (10, None)], key=repr)


def test_dynamic_overwrite_that_takes_null_for_no_match(delta: SparkSession, table: str) -> None:
    overwrite(numbers(delta, (10, None), (11, "a")), table, partitionOverwriteMode="DYNAMIC", useNullIntolerantEqualityWithDPO="true")
    assert rows(delta, table) == sorted([(3, "b"), (4, "b"), (5, None), (6, None), (10, None), (11, "a")], key=repr)


def test_dynamic_overwrite_by_the_session(delta: SparkSession, table: str) -> None:
    delta.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        overwrite(numbers(delta, (10, "b")), table)
        assert len(rows(delta, table)) == 5
        overwrite(numbers(delta, (20, "b")), table, replaceWhere="part = 'b'")
        assert len(rows(delta, table)) == 5
        overwrite(numbers(delta, (10, "b")), table, partitionOverwriteMode="static")
    finally:
        delta.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(delta, table) == [(10, "b")]


def test_dynamic_overwrite_of_a_table_without_partitions_replaces_it(delta: SparkSession, flat: str) -> None:
    overwrite(delta.range(2).withColumn("v", F.lit("n")), flat, partitionOverwriteMode="dynamic")
    assert rows(delta, flat) == [(0, "n"), (1, "n")]


def test_dynamic_overwrite_with_an_empty_frame_changes_nothing(delta: SparkSession, table: str) -> None:
    before = rows(delta, table)
    overwrite(numbers(delta).limit(0), table, partitionOverwriteMode="dynamic")
    assert rows(delta, table) == before


# dataChange, optimizeWrite --------------------------------------------------------------------------------------------


def test_rearranging(delta: SparkSession, flat: str) -> None:
    overwrite(delta.read.format("delta").load(flat).coalesce(1), flat, dataChange="false")
    assert {action["dataChange"] for kind in ("add", "remove") for action in of_kind(flat, kind)} == {False}
    assert (len(of_kind(flat, "add")), len(of_kind(flat, "remove"))) == (1, 3)


def test_rearranging_changes_no_schema_and_makes_no_table(delta: SparkSession, flat: str, tmp_path: Path) -> None:
    wider = delta.range(3).withColumn("v", F.lit("x")).withColumn("w", F.lit(1))
    refused(lambda: overwrite(wider, flat, dataChange="false", mergeSchema="true"), flat, UnsupportedOperationError, "dataChange=false")
    with pytest.raises(UnsupportedOperationError, match="dataChange=false"):
        overwrite(delta.range(3), str(tmp_path / "new"), dataChange="false")
    assert not (tmp_path / "new" / "_delta_log").exists()


def test_optimized_write_gathers_small_partitions(delta: SparkSession, path: str) -> None:
    frame = delta.range(0, 200, 1, 8).withColumn("p", F.col("id") % 2)
    frame.write.format("delta").partitionBy("p").option("optimizeWrite", "true").save(path)
    assert len(of_kind(path, "add")) == 2
    frame.write.format("delta").mode("append").save(path)
    assert len(of_kind(path, "add")) == 16


# change data ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fed(delta: SparkSession, path: str) -> str:
    for start in (0, 10):
        frame = delta.range(start, start + 10).withColumn("v", F.lit("old"))
        save(frame, path, **({"delta.enableChangeDataFeed": "true"} if start == 0 else {}))
    return path


def changes(spark: SparkSession, table: str, version: int) -> list[tuple[object, ...]]:
    found = [action["cdc"] for action in commit(table, version) if "cdc" in action]
    frame = spark.read.parquet(*(f"{table}/{action['path']}" for action in found)).select("id", "v", "_change_type")
    return sorted(tuple(row) for row in frame.collect())


def test_a_replace_of_rows_tells_all_its_changes(delta: SparkSession, fed: str) -> None:
    overwrite(delta.range(8, 10).withColumn("v", F.lit("new")), fed, replaceWhere="id >= 8")
    told = changes(delta, fed, latest(fed))
    assert told == sorted([(n, "old", "delete") for n in range(8, 20)] + [(n, "new", "insert") for n in (8, 9)])
    assert int(info(fed)["operationMetrics"]["numAddedChangeFiles"]) == len(of_kind(fed, "cdc"))


def test_a_replace_of_whole_files_needs_no_change_files(delta: SparkSession, fed: str) -> None:
    overwrite(delta.range(10, 12).withColumn("v", F.lit("new")), fed, replaceWhere="id >= 10")
    assert of_kind(fed, "cdc") == []


def test_a_dynamic_overwrite_writes_no_change_files(delta: SparkSession, path: str) -> None:
    save(numbers(delta, (1, "a"), (2, "b")), path, partition_by=["part"], **{"delta.enableChangeDataFeed": "true"})
    overwrite(numbers(delta, (3, "a")), path, partitionOverwriteMode="dynamic")
    assert of_kind(path, "cdc") == []


def test_a_row_delete_tells_its_changes(delta: SparkSession, fed: str) -> None:
    delta.sql(f"DELETE FROM delta.`{fed}` WHERE id IN (3, 4) OR id >= 10")
    assert changes(delta, fed, latest(fed)) == sorted((n, "old", "delete") for n in (3, 4, *range(10, 20)))


def test_a_delete_with_a_subquery_tells_its_changes(delta: SparkSession, fed: str) -> None:
    delta.sql(f"DELETE FROM delta.`{fed}` WHERE id IN (SELECT id + 5 FROM range(2))")
    assert changes(delta, fed, latest(fed)) == [(5, "old", "delete"), (6, "old", "delete")]


def test_a_schema_that_does_not_fit(delta: SparkSession, flat: str) -> None:
    refused(
        lambda: overwrite(delta.range(3).withColumn("other", F.lit(1)), flat, replaceWhere="id < 3"), flat, SchemaMismatchError, "other"
    )
