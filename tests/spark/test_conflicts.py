"""Two writers on one table through Spark: the second commit lands between the first one's reading and its put.

What both may do lands as if one had come after the other. What they may not is one error: the table is as the winner left it, no file of
the loser stays, and the loser run again lands.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from lakelog.core import errors as core
from lakelog.spark import DeltaTable
from lakelog.spark.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
)
from tests.spark.racing import hooked_store, just_before, orphans
from tests.spark.tables import info, of_kind, rows, save, versions

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

Kind = type[DeltaConcurrentModificationException]
LEVELS = ("Serializable", "WriteSerializable")

# What every table here holds: ids 0 to 9 and 20 to 29 in partition a, 10 to 19 in b, a file each.
BEFORE = frozenset(range(30))


@dataclass(frozen=True)
class Act:
    """What a writer does, and what that makes of the ids in the table."""

    run: Callable[[SparkSession, str], object]
    makes: Callable[[frozenset[int]], frozenset[int]]


def append(partition: str, *ids: int) -> Act:
    return Act(lambda spark, table: save(frame(spark, partition, *ids), table), lambda there: there | set(ids))


def overwrite(*ids: int) -> Act:
    return Act(lambda spark, table: save(frame(spark, "b", *ids), table, "overwrite"), lambda _: frozenset(ids))


def delete(condition: str | Callable[[], Column], matches: Callable[[int], bool]) -> Act:
    def run(spark: SparkSession, table: str) -> None:
        if isinstance(condition, str):
            spark.sql(f"DELETE FROM delta.`{table}` WHERE {condition.format(table=f'delta.`{table}`')}")
        else:
            DeltaTable.forPath(spark, table).delete(condition())

    return Act(run, lambda there: frozenset(i for i in there if not matches(i)))


def frame(spark: SparkSession, partition: str, *ids: int) -> DataFrame:
    return spark.createDataFrame([(i, partition) for i in ids], "id long, p string")


def by_udf(value: int) -> bool:
    return value == 3


BELOW_5 = delete("id < 5", lambda i: i < 5)
PARTITION_A = delete("p = 'a'", lambda i: i < 10 or 20 <= i < 30 or i == 150)
PARTITION_B = delete("p = 'b'", lambda i: 10 <= i < 20)
BELOW_10 = delete("id < 10", lambda i: i < 10)
SUBQUERY = delete("id IN (SELECT min(id) FROM {table})", lambda i: i == 0)


@pytest.fixture
def path(delta: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Where a table may be made; its log is behind the store of `just_before`."""
    where = str(tmp_path / "the table")
    with hooked_store(delta, where):
        yield where


def make(spark: SparkSession, table: str, level: str = "Serializable", **properties: str) -> int:
    """The table of `BEFORE`; its version."""
    first = spark.range(20).selectExpr("id", "IF(id < 10, 'a', 'b') AS p")
    save(first, table, partition_by=["p"], **{"delta.isolationLevel": level, **properties})
    save(spark.range(20, 30).selectExpr("id", "'a' AS p"), table)
    return 1


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(int(str(row[0])) for row in rows(spark, table))


def lands(spark: SparkSession, table: str, ours: Act, theirs: Act) -> None:
    """Ours lands although theirs did first."""
    before = versions(table)[-1]
    just_before(lambda: theirs.run(spark, table))
    ours.run(spark, table)
    assert versions(table) == list(range(before + 3))
    assert info(table, before + 2)["readVersion"] == before
    assert orphans(table) == []


def conflict(spark: SparkSession, table: str, ours: Act, theirs: Act, kind: Kind) -> DeltaConcurrentModificationException:
    """Ours fails for theirs, and leaves nothing."""
    before = versions(table)[-1]
    there = frozenset(ids(spark, table))
    just_before(lambda: theirs.run(spark, table))
    with pytest.raises(kind, match="the table: ") as caught:
        ours.run(spark, table)
    assert type(caught.value) is kind
    assert versions(table) == list(range(before + 2))
    assert frozenset(ids(spark, table)) == theirs.makes(there)
    assert orphans(table) == []
    assert caught.value.winner_version == before + 1
    assert re.search(rf"version {before + 1}\b.* landed first and .*Nothing was committed\. Read the table again", str(caught.value))
    return caught.value


# both land -----------------------------------------------------------------------------------------------------------

DISJOINT: Mapping[str, tuple[Act, Act]] = {
    "delete of a partition, append to another": (PARTITION_A, append("b", 100)),
    "delete of a range, append beyond it to the same partition": (BELOW_5, append("a", 100, 101)),
    "delete in upper case": (delete("ID < 5 AND P = 'a'", lambda i: i < 5), append("a", 100)),
    "delete by NOT": (delete("NOT (id >= 5)", lambda i: i < 5), append("a", 100)),
    "delete by OR": (delete("id < 3 OR id = 15", lambda i: i < 3 or i == 15), append("b", 100)),
    "delete by a set": (delete("id IN (1, 2, 15)", lambda i: i in (1, 2, 15)), append("b", 100)),
    "delete by a narrower number": (delete("id < CAST(5 AS TINYINT)", lambda i: i < 5), append("a", 100)),
    "delete of nulls": (delete("id < 5 OR id IS NULL", lambda i: i < 5), append("a", 100)),
    "delete of a partition by a function of it": (delete("p = 'a' AND length(p) = 1", lambda i: i < 10 or 20 <= i < 30), append("b", 100)),
    "deletes of two partitions": (PARTITION_A, PARTITION_B),
    "deletes of rows in two files": (BELOW_5, delete("id >= 15 AND id < 20", lambda i: 15 <= i < 20)),
    "deletes of rows in two files of one partition": (BELOW_5, delete("id >= 25", lambda i: i >= 25)),
    "delete of rows, delete of another file": (BELOW_5, PARTITION_B),
    "append, append": (append("a", 100), append("a", 101)),
    "append, delete of its range": (append("a", 100), delete("id >= 15", lambda i: i >= 15)),
    "append, overwrite": (append("a", 100), overwrite(200, 201)),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("names", DISJOINT)
def test_work_that_does_not_meet_lands(delta: SparkSession, path: str, names: str, level: str) -> None:
    ours, theirs = DISJOINT[names]
    make(delta, path, level)
    lands(delta, path, ours, theirs)
    assert frozenset(ids(delta, path)) == ours.makes(theirs.makes(BEFORE))
    assert info(path)["isolationLevel"] == level


# only one lands ------------------------------------------------------------------------------------------------------

APPEND, READ = ConcurrentAppendException, ConcurrentDeleteReadException

# ours, theirs, what ours gets on a Serializable and on a WriteSerializable table; None: lands, as if theirs had come after it
OVERLAPPING: Mapping[str, tuple[Act, Act, Kind, Kind | None]] = {
    "delete, append of a row that it asks for": (BELOW_5, append("a", -1), APPEND, None),
    "delete of a partition, append to it": (PARTITION_A, append("a", 150), APPEND, None),
    "delete of everything, append": (delete("true", lambda _: True), append("b", 100), APPEND, None),
    "delete by OR, append that one side asks for": (
        delete("id < 3 OR id = 100", lambda i: i < 3 or i == 100),
        append("b", 100),
        APPEND,
        None,
    ),
    "delete by NOT, append": (delete("NOT (id >= 5)", lambda i: i < 5), append("b", -1), APPEND, None),
    "delete in upper case, append": (delete("ID < 5", lambda i: i < 5), append("b", -1), APPEND, None),
    "delete by a subquery, append anywhere": (SUBQUERY, append("b", 100), APPEND, None),
    "delete by a text of the number, append anywhere": (
        delete("CAST(id AS STRING) = '3'", lambda i: i == 3),
        append("b", 100),
        APPEND,
        None,
    ),
    "delete by arithmetic, append anywhere": (delete("id % 10 = 3", lambda i: i % 10 == 3), append("b", 100), APPEND, None),
    "delete by a Python function, append anywhere": (
        delete(lambda: F.udf(lambda value: by_udf(value), BooleanType(), useArrow=False)("id"), lambda i: i == 3),
        append("b", 100),
        APPEND,
        None,
    ),
    "delete by chance, append anywhere": (delete("rand() < 2 AND id < 5", lambda i: i < 5), append("b", 100), APPEND, None),
    "overwrite, append": (overwrite(200, 201), append("a", 100), APPEND, None),
    "overwrites": (overwrite(200, 201), overwrite(300), APPEND, APPEND),
    "deletes in one file, which still holds rows of ours": (BELOW_5, delete("id = 9", lambda i: i == 9), APPEND, APPEND),
    "deletes in one file, which holds none any more": (
        delete("id = 25", lambda i: i == 25),
        delete("id >= 22", lambda i: i >= 22),
        READ,
        READ,
    ),
    "delete of rows, delete of their file": (BELOW_5, BELOW_10, READ, READ),
    "deletes of one partition": (PARTITION_A, PARTITION_A, READ, READ),
    "delete of a partition, delete of rows in it": (PARTITION_B, delete("id = 15", lambda i: i == 15), APPEND, APPEND),
    "delete by a subquery, delete of another file": (SUBQUERY, PARTITION_B, READ, READ),
    "delete, overwrite": (BELOW_5, overwrite(200), READ, READ),
    "overwrite, delete": (overwrite(200), PARTITION_B, READ, READ),
}


@pytest.mark.parametrize("names", OVERLAPPING)
def test_work_that_meets_does_not_land_twice(delta: SparkSession, path: str, names: str) -> None:
    ours, theirs, kind, _ = OVERLAPPING[names]
    make(delta, path)
    conflict(delta, path, ours, theirs, kind)
    ours.run(delta, path)
    assert frozenset(ids(delta, path)) == ours.makes(theirs.makes(BEFORE))
    assert orphans(path) == []


@pytest.mark.parametrize("names", OVERLAPPING)
def test_a_write_serializable_table_lets_blind_appends_pass(delta: SparkSession, path: str, names: str) -> None:
    ours, theirs, _, kind = OVERLAPPING[names]
    make(delta, path, "WriteSerializable")
    if kind is not None:
        conflict(delta, path, ours, theirs, kind)
        return
    lands(delta, path, ours, theirs)
    assert frozenset(ids(delta, path)) == theirs.makes(ours.makes(BEFORE))
    assert info(path)["isolationLevel"] == "WriteSerializable"
    assert info(path, 2)["isBlindAppend"] is True


def test_the_error_says_what_was_read_and_what_stands_in_the_way(delta: SparkSession, path: str) -> None:
    make(delta, path)
    found = conflict(delta, path, delete("id < 5 AND p = 'a'", lambda i: i < 5), append("a", -1), ConcurrentAppendException)
    (add,) = of_kind(path, "add")
    assert "DELETE read the rows where" in str(found)
    assert "id < 5" in str(found)
    assert "at version 1, but version 2 (WRITE" in str(found)
    assert f"added files that may hold such rows: {add['path']}. Nothing was committed. Read the table again and run it again." in str(
        found
    )
    assert (found.rule, found.partition, found.getCondition()) == ("rows_read", "p=a", "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT")
    assert isinstance(found, core.ConcurrentAppendException)


def test_an_overwrite_says_that_it_read_everything(delta: SparkSession, path: str) -> None:
    make(delta, path)
    found = conflict(delta, path, overwrite(1), PARTITION_B, ConcurrentDeleteReadException)
    (remove,) = of_kind(path, "remove")
    assert "WRITE read the whole table at version 1, but version 2 (DELETE" in str(found)
    assert f"removed files that were read: {remove['path']}." in str(found)
    assert (found.rule, found.partition) == ("files_read", "p=b")


def test_several_winners_are_looked_at_one_by_one(delta: SparkSession, path: str) -> None:
    make(delta, path)

    def three() -> None:
        append("b", 100).run(delta, path)
        PARTITION_B.run(delta, path)
        append("a", 101).run(delta, path)

    just_before(three)
    BELOW_5.run(delta, path)
    assert (versions(path), orphans(path)) == ([0, 1, 2, 3, 4, 5], [])
    assert ids(delta, path) == [*range(5, 10), *range(20, 30), 101]

    def last_in_the_way() -> None:
        append("b", 102).run(delta, path)
        append("a", -1).run(delta, path)

    just_before(last_in_the_way)
    with pytest.raises(ConcurrentAppendException, match="version 7") as caught:
        BELOW_10.run(delta, path)
    assert caught.value.winner_version == 7
    assert (versions(path)[-1], orphans(path)) == (7, [])


def test_a_delete_that_matches_nothing_puts_nothing(delta: SparkSession, path: str) -> None:
    make(delta, path)
    just_before(lambda: pytest.fail("something was put"))
    for condition in ("id = 777", "p = 'c'", "id % 1000 = 777", "id IN (SELECT 777)", "id IS NULL"):
        assert delta.sql(f"DELETE FROM delta.`{path}` WHERE {condition}").collect()[0][0] == 0
    assert versions(path) == [0, 1]


# rows that come from the table itself --------------------------------------------------------------------------------

FROM_ITSELF: Mapping[str, Callable[[SparkSession, str], object]] = {
    "a frame": lambda spark, table: save(
        spark.read.format("delta").load(table).groupBy().agg((F.max("id") + 1).alias("id")).select("id", F.lit("a").alias("p")), table
    ),
    "a cached frame": lambda spark, table: save(spark.read.format("delta").load(table).where("id = 29").cache(), table),
    "INSERT": lambda spark, table: spark.sql(f"INSERT INTO delta.`{table}` SELECT max(id) + 1, 'a' FROM delta.`{table}`"),
    "a subquery in a subquery": lambda spark, table: spark.sql(
        f"INSERT INTO delta.`{table}` SELECT 30L, 'a' WHERE 1 < "
        f"(SELECT count(*) FROM range(9) WHERE id > (SELECT min(id) FROM delta.`{table}`))"
    ),
}


@pytest.mark.parametrize("how", FROM_ITSELF)
@pytest.mark.parametrize("theirs", [append("b", 100), PARTITION_B])
def test_rows_made_from_the_tables_own_are_not_blind(delta: SparkSession, path: str, how: str, theirs: Act) -> None:
    make(delta, path)
    ours = Act(FROM_ITSELF[how], lambda there: there)
    found = conflict(delta, path, ours, theirs, ConcurrentAppendException if theirs is not PARTITION_B else ConcurrentDeleteReadException)
    assert "WRITE read the whole table" in str(found)
    ours.run(delta, path)
    assert info(path)["isBlindAppend"] is False
    delta.catalog.clearCache()


def test_rows_from_a_named_version_are_blind(delta: SparkSession, path: str) -> None:
    make(delta, path)
    old = Act(
        lambda spark, table: spark.sql(f"INSERT INTO delta.`{table}` SELECT id + 100, p FROM delta.`{table}` VERSION AS OF 0 WHERE id < 2"),
        lambda there: there | {100, 101},
    )
    lands(delta, path, old, PARTITION_A)
    assert ids(delta, path) == [*range(10, 20), 100, 101]
    assert info(path)["isBlindAppend"] is True


# another implementation wins -----------------------------------------------------------------------------------------


def theirs_append(partition: str, *numbers: int) -> Act:
    def run(_: SparkSession, table: str) -> None:
        deltalake.write_deltalake(table, pa.table({"id": pa.array(numbers, pa.int64()), "p": [partition] * len(numbers)}), mode="append")

    return Act(run, lambda there: there | set(numbers))


def theirs_delete(condition: str, matches: Callable[[int], bool]) -> Act:
    return Act(lambda _, table: deltalake.DeltaTable(table).delete(condition), lambda there: frozenset(i for i in there if not matches(i)))


def alter(change: Callable[[Any], object]) -> Act:
    return Act(lambda _, table: change(deltalake.DeltaTable(table).alter), lambda there: there)


def properties(**named: str) -> Act:
    entries = {name.replace("_", "."): value for name, value in named.items()}
    return alter(lambda table: table.set_table_properties(entries, raise_if_not_exists=False))


ADD_COLUMN = alter(lambda table: table.add_columns([deltalake.Field("z", deltalake.schema.PrimitiveType("string"))]))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (PARTITION_A, theirs_append("b", 100)),
        (BELOW_5, theirs_append("a", 100)),
        (BELOW_5, theirs_delete("id > 15 AND id < 20", lambda i: 15 < i < 20)),
        (append("a", 100), theirs_append("a", 101)),
        (append("a", 100), theirs_delete("p = 'a'", lambda i: i < 10 or i >= 20)),
    ],
)
def test_another_implementation_wins_elsewhere(delta: SparkSession, path: str, ours: Act, theirs: Act) -> None:
    make(delta, path)
    lands(delta, path, ours, theirs)
    assert frozenset(ids(delta, path)) == ours.makes(theirs.makes(BEFORE))
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == len(ids(delta, path))


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        (PARTITION_A, theirs_append("a", 150), ConcurrentAppendException),
        (BELOW_5, theirs_append("a", -1), ConcurrentAppendException),
        (PARTITION_A, theirs_delete("p = 'a'", lambda i: i < 10 or i >= 20), ConcurrentDeleteReadException),
        (overwrite(200), theirs_delete("p = 'a'", lambda i: i < 10 or i >= 20), ConcurrentDeleteReadException),
    ],
)
def test_another_implementation_wins_here(delta: SparkSession, path: str, ours: Act, theirs: Act, kind: Kind) -> None:
    make(delta, path)
    conflict(delta, path, ours, theirs, kind)


@pytest.mark.parametrize("ours", [append("a", 100), BELOW_5, overwrite(200)])
@pytest.mark.parametrize("theirs", [properties(delta_checkpointInterval="20"), properties(delta_logRetentionDuration="interval 40 days")])
def test_a_change_of_a_harmless_property_leaves_work_alone(delta: SparkSession, path: str, ours: Act, theirs: Act) -> None:
    make(delta, path)
    lands(delta, path, ours, theirs)
    assert frozenset(ids(delta, path)) == ours.makes(BEFORE)


@pytest.mark.parametrize("ours", [append("a", 100), BELOW_5, overwrite(200)])
@pytest.mark.parametrize(
    ("theirs", "did"),
    [
        (ADD_COLUMN, "changed the schema (column z added)"),
        (properties(delta_enableChangeDataFeed="true"), "set delta.enableChangeDataFeed to 'true'"),
        (properties(team_owner="x"), "set team.owner to 'x'"),
    ],
)
def test_any_other_change_of_the_table_stands_in_the_way(delta: SparkSession, path: str, ours: Act, theirs: Act, did: str) -> None:
    make(delta, path)
    found = conflict(delta, path, ours, theirs, MetadataChangedException)
    assert did in str(found)
    assert found.rule == "metadata"


def test_a_table_that_became_append_only_takes_appends_alone(delta: SparkSession, path: str) -> None:
    make(delta, path)
    append_only = properties(delta_appendOnly="true")
    found = conflict(delta, path, BELOW_5, append_only, MetadataChangedException)
    assert "set delta.appendOnly to 'true'" in str(found)
    properties(delta_appendOnly="false").run(delta, path)
    lands(delta, path, append("a", 100), append_only)


def test_a_constraint_that_was_added_keeps_appends_out(delta: SparkSession, path: str) -> None:
    make(delta, path)
    constraint = alter(lambda table: table.add_constraint({"positive": "id >= 0"}))
    found = conflict(delta, path, append("a", 100), constraint, MetadataChangedException)
    assert "set delta.constraints.positive to 'id >= 0'" in str(found)


# what a commit says of itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_the_history_tells_the_level_and_who_was_blind(delta: SparkSession, path: str, level: str) -> None:
    make(delta, path, level)
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (40L, 'b')")
    BELOW_5.run(delta, path)
    PARTITION_B.run(delta, path)
    overwrite(50).run(delta, path)
    delta.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (60L, 'b')")
    told = [(row.operation, row.isBlindAppend) for row in DeltaTable.forPath(delta, path).history().collect()]
    assert told == [
        ("WRITE", False),
        ("WRITE", False),
        ("DELETE", False),
        ("DELETE", False),
        ("WRITE", True),
        ("WRITE", True),
        ("WRITE", True),
    ]
    assert {row.isolationLevel for row in DeltaTable.forPath(delta, path).history().collect()} == {level}


def test_the_level_of_another_writers_table_is_honoured(delta: SparkSession, path: str) -> None:
    make(delta, path)
    properties(delta_isolationLevel="WriteSerializable").run(delta, path)
    lands(delta, path, overwrite(200), append("a", 100))
    assert ids(delta, path) == [100, 200]


# two creators --------------------------------------------------------------------------------------------------------


def created(spark: SparkSession, table: str, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    just_before(theirs)
    with pytest.raises(ConcurrentWriteException, match="the table: ") as caught:
        ours()
    assert (caught.value.winner_version, caught.value.rule) == (0, "creation")
    assert "created the table" in str(caught.value)
    assert "Run it again to write to that table" in str(caught.value)
    assert (versions(table), orphans(table)) == ([0], [])


@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_the_second_of_two_creators_by_append_joins(delta: SparkSession, path: str, partition_by: list[str]) -> None:
    just_before(lambda: save(frame(delta, "b", 2), path, partition_by=partition_by))
    save(frame(delta, "a", 1), path, partition_by=partition_by)
    assert (versions(path), orphans(path)) == ([0, 1], [])
    assert rows(delta, path) == [(1, "a"), (2, "b")]
    assert not of_kind(path, "metaData", 1)
    assert not of_kind(path, "protocol", 1)
    assert {name: info(path)[name] for name in ("readVersion", "isBlindAppend", "isolationLevel")} == {
        "readVersion": 0,
        "isBlindAppend": True,
        "isolationLevel": "Serializable",
    }


def test_a_creator_joins_what_has_grown_meanwhile(delta: SparkSession, path: str) -> None:
    def theirs() -> None:
        save(frame(delta, "b", 2, 3), path)
        save(frame(delta, "b", 4), path)
        delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")

    just_before(theirs)
    save(frame(delta, "a", 1), path)
    assert (versions(path), orphans(path)) == ([0, 1, 2, 3], [])
    assert ids(delta, path) == [1, 2, 4]


@pytest.mark.parametrize(
    "theirs",
    [
        lambda spark, table: save(spark.range(5), table),
        lambda spark, table: save(frame(spark, "b", 2).selectExpr("CAST(id AS INT) AS id", "p"), table),
        lambda spark, table: save(frame(spark, "b", 2), table, partition_by=["p"]),
        lambda spark, table: save(frame(spark, "b", 2), table, **{"delta.appendOnly": "true"}),
    ],
)
def test_creators_of_different_tables_do_not_mix(delta: SparkSession, path: str, theirs: Callable[[SparkSession, str], None]) -> None:
    created(delta, path, lambda: save(frame(delta, "a", 1), path), lambda: theirs(delta, path))
    theirs_alone = rows(delta, path)
    assert theirs_alone
    assert all(row[0] != 1 or len(row) == 1 for row in theirs_alone)


def test_a_creator_that_overwrites_does_not_join(delta: SparkSession, path: str) -> None:
    created(delta, path, lambda: save(frame(delta, "a", 1), path, "overwrite"), lambda: save(frame(delta, "b", 2), path))
    assert rows(delta, path) == [(2, "b")]


def test_a_creator_for_new_tables_alone_finds_the_table_there(delta: SparkSession, path: str) -> None:
    just_before(lambda: save(frame(delta, "b", 2), path))
    with pytest.raises(core.TableExistsError, match="already exists at version 0"):
        save(frame(delta, "a", 1), path, "error")
    assert (versions(path), orphans(path), rows(delta, path)) == ([0], [], [(2, "b")])


def test_a_creator_that_would_ignore_a_table_ignores_one_that_came_first(delta: SparkSession, path: str) -> None:
    just_before(lambda: save(frame(delta, "b", 2), path))
    save(frame(delta, "a", 1), path, "ignore")
    assert (versions(path), orphans(path), rows(delta, path)) == ([0], [], [(2, "b")])


# many at once --------------------------------------------------------------------------------------------------------


def test_writers_of_their_own_partitions_all_land(delta: SparkSession, path: str) -> None:
    count = 3
    save(delta.range(10 * count).selectExpr("id", "CAST(id DIV 10 AS STRING) AS p"), path, partition_by=["p"])

    def work(mine: int) -> None:
        delta.sql(f"DELETE FROM delta.`{path}` WHERE p = '{mine}' AND id % 2 = 0")
        save(frame(delta, str(mine), 100 + mine), path)
        DeltaTable.forPath(delta, path).delete(F.col("p") == str(mine))
        save(frame(delta, str(mine), 200 + mine), path)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))
    assert (versions(path), orphans(path)) == (list(range(1 + 4 * count)), [])
    assert ids(delta, path) == [200, 201, 202]


# one version throughout a statement ----------------------------------------------------------------------------------


@pytest.fixture
def overtaken_job(delta: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Another writer appends id 100 after the statement has chosen its version and before its job reads."""
    delta.range(3).write.format("delta").option("delta.isolationLevel", "WriteSerializable").save(path)
    waiting = [100]

    def first(original: Callable[..., Any]) -> Callable[..., Any]:
        def overtaken(*arguments: Any, **named: Any) -> Any:
            while waiting:
                deltalake.write_deltalake(path, pa.table({"id": pa.array([waiting.pop()], pa.int64())}), mode="append")
            return original(*arguments, **named)

        return overtaken

    for name in ("lakelog.spark.data_files.write", "lakelog.spark.row_changes._by_rows"):
        module, _, attribute = name.rpartition(".")
        monkeypatch.setattr(name, first(getattr(importlib.import_module(module), attribute)))
    return waiting


OVERWRITES: Mapping[str, Callable[[SparkSession, str], object]] = {
    "a frame": lambda spark, table: spark.read.format("delta").load(table).write.format("delta").mode("overwrite").save(table),
    "SQL": lambda spark, table: spark.sql(f"INSERT OVERWRITE delta.`{table}` SELECT id FROM delta.`{table}`"),
    "a subquery": lambda spark, table: spark.sql(
        f"INSERT OVERWRITE delta.`{table}` SELECT id FROM range(101) WHERE id IN (SELECT id FROM delta.`{table}`)"
    ),
}


@pytest.mark.parametrize("how", OVERWRITES)
def test_an_overwrite_from_the_table_itself_reads_the_version_that_it_replaces(
    delta: SparkSession, path: str, overtaken_job: list[int], how: str
) -> None:
    # deltalake does not say that its append is blind, so that it is not passed over.
    with pytest.raises(ConcurrentAppendException):
        OVERWRITES[how](delta, path)
    assert not overtaken_job
    assert ids(delta, path) == [0, 1, 2, 100]
    OVERWRITES[how](delta, path)
    assert ids(delta, path) == [0, 1, 2, 100]


@pytest.mark.parametrize("condition", ["id = (SELECT max(id) FROM {table})", "id NOT IN (SELECT id FROM {table} WHERE id < 2)"])
def test_a_subquery_of_a_delete_reads_the_version_that_the_delete_reads(
    delta: SparkSession, path: str, overtaken_job: list[int], condition: str
) -> None:
    statement = f"DELETE FROM delta.`{path}` WHERE " + condition.format(table=f"delta.`{path}`")
    with pytest.raises(ConcurrentAppendException):
        delta.sql(statement)
    assert not overtaken_job
    assert ids(delta, path) == [0, 1, 2, 100]
