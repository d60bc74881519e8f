"""What a write means for a table's schema: old schema, new data, options -> schema and rows, or a refusal.

Each case makes a table from one frame and writes another. The same table of cases is run on lakelog alone and beside delta-spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

MERGE = {"mergeSchema": "true"}
OVERWRITE = {"overwriteSchema": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame as a DDL schema and rows."""

    schema: str
    rows: Sequence[tuple[Any, ...]]
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One write to a table that is there.

    Attributes:
        name: for the test's id.
        old: what made the table; None for no table.
        new: what is written.
        mode: of the write.
        options: of the write.
        properties: table properties that the table was made with.
        schema: DDL of the table afterwards; None where the write is refused.
        partitions: the table's partition columns afterwards.
        rows: the table's rows afterwards, in any order.
        differs: why delta-spark's outcome is another one; None where it is the same.
    """

    name: str
    old: Frame | None
    new: Frame
    mode: str = "append"
    options: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    schema: str | None = None
    partitions: tuple[str, ...] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    differs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a table is after a case; an error leaves it as it was."""

    refused: bool
    schema: str
    partitions: tuple[str, ...]
    rows: list[str]
    said: str = ""


def expected(case: Case) -> tuple[bool, str | None, tuple[str, ...], list[str]]:
    if case.schema is None:
        return True, None, (), []
    return False, StructType.fromDDL(case.schema).simpleString(), case.partitions, sorted(map(repr, case.rows))


def run(spark: SparkSession, source: str, path: str, case: Case) -> Outcome:
    """Run a case on one implementation."""
    if case.old is not None:
        _write(spark, source, path, case.old, "append", case.properties)
    refused, said = False, ""
    try:
        _write(spark, source, path, case.new, case.mode, case.options)
    except Exception as error:
        if not isinstance(error, PySparkException) and type(error).__module__ != "lakelog.core.errors":
            raise
        refused, said = True, str(error)
    if refused and case.old is None:
        return Outcome(refused=True, schema="", partitions=(), rows=[], said=said)
    frame = spark.read.format(source).load(path)
    rows = sorted(repr(tuple(_plain(value) for value in row)) for row in frame.collect())
    return Outcome(refused=refused, schema=frame.schema.simpleString(), partitions=_partitions(path), rows=rows, said=said)


def _partitions(path: str) -> tuple[str, ...]:
    """The newest that the log says, read by hand: the implementation under test has no say in it."""
    found: tuple[str, ...] = ()
    for commit in sorted(Path(path, "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            metadata = json.loads(line).get("metaData")
            found = found if metadata is None else tuple(metadata["partitionColumns"])
    return found


def _plain(value: Any) -> Any:
    """Rows of structs as tuples, so that their text is the same whatever the names."""
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    return value


def _write(spark: SparkSession, source: str, path: str, frame: Frame, mode: str, options: dict[str, str]) -> None:
    data = spark.createDataFrame(list(frame.rows), StructType.fromDDL(frame.schema)).coalesce(1)
    writer = data.write.format(source).mode(mode).options(**options)
    (writer.partitionBy(*frame.partition_by) if frame.partition_by else writer).save(path)


A = Frame(schema="id long, name string", rows=[(1, "a")])
P = Frame(schema="id long, p string, q int", rows=[(1, "x", 1)], partition_by=("p",))
S = Frame(schema="id long, s struct<a: int, b: string>", rows=[(1, (1, "x"))])
L = Frame(schema="l array<struct<a: int>>", rows=[([(1,)],)])
M = Frame(schema="m map<string, struct<a: int>>", rows=[({"k": (1,)},)])


def _case(name: str, old: Frame | None, schema: str, rows: Sequence[tuple[Any, ...]], **more: Any) -> Case:
    partition_by = more.pop("by", ())
    after, then = more.pop("after", None), more.pop("then", ())
    return Case(name=name, old=old, new=Frame(schema=schema, rows=rows, partition_by=partition_by), schema=after, rows=then, **more)


CASES: tuple[Case, ...] = (
    # first writes
    _case("first write makes the table", None, "id long, name string", [(1, "a")], after="id long, name string", then=[(1, "a")]),
    _case(
        "first write with partitions", None, "id long, p int", [(1, 2)], by=("p",), after="id long, p int", partitions=("p",), then=[(1, 2)]
    ),
    _case("first write forgets NOT NULL", None, "id long not null", [(1,)], after="id long", then=[(1,)]),
    _case("first write by an absent column", None, "id long", [(1,)], by=("nope",)),
    _case("first write by all columns", None, "id long, p int", [(1, 2)], by=("id", "p")),
    _case("first write by an array", None, "id long, p array<int>", [(1, [2])], by=("p",)),
    _case("first write with mergeSchema", None, "id long", [(1,)], options=MERGE, after="id long", then=[(1,)]),
    _case("first write as overwrite", None, "id long", [(1,)], mode="overwrite", after="id long", then=[(1,)]),
    _case("first write with overwriteSchema", None, "id long", [(1,)], mode="overwrite", options=OVERWRITE, after="id long", then=[(1,)]),
    # no change
    _case("same schema", A, "id long, name string", [(2, "b")], after="id long, name string", then=[(1, "a"), (2, "b")]),
    _case("other order", A, "name string, id long", [("b", 2)], after="id long, name string", then=[(1, "a"), (2, "b")]),
    _case("other case", A, "ID long, NAME string", [(2, "b")], after="id long, name string", then=[(1, "a"), (2, "b")]),
    _case("fewer columns", A, "id long", [(2,)], after="id long, name string", then=[(1, "a"), (2, None)]),
    _case(
        "a narrower integer",
        A,
        "id int, name string",
        [(2, "b")],
        after="id long, name string",
        then=[(1, "a"), (2, "b")],
        differs="delta-spark refuses an integer where the table has a long; nothing is lost by taking it",
    ),
    _case("fewer nested fields", S, "id long, s struct<a: int>", [(2, (2,))], after=S.schema, then=[(1, (1, "x")), (2, (2, None))]),
    _case(
        "nested fields in other order",
        S,
        "id long, s struct<b: string, a: int>",
        [(2, ("y", 2))],
        after=S.schema,
        then=[(1, (1, "x")), (2, (2, "y"))],
    ),
    _case("a null column of NullType", A, "id long, name void", [(2, None)], after="id long, name string", then=[(1, "a"), (2, None)]),
    # differences that are refused
    _case("extra column", A, "id long, name string, extra int", [(2, "b", 3)]),
    _case("extra nested field", S, "id long, s struct<a: int, b: string, c: int>", [(2, (2, "y", 3))]),
    _case("extra field in an array", L, "l array<struct<a: int, b: int>>", [([(1, 2)],)]),
    _case("another type", A, "id string, name string", [("x", "b")]),
    _case("a struct for a string", A, "id long, name struct<a: int>", [(2, (1,))]),
    # mergeSchema
    _case(
        "merge an extra column",
        A,
        "id long, name string, extra int",
        [(2, "b", 3)],
        options=MERGE,
        after="id long, name string, extra int",
        then=[(1, "a", None), (2, "b", 3)],
    ),
    _case(
        "merge with another set",
        A,
        "name string, address string",
        [("b", "road")],
        options=MERGE,
        after="id long, name string, address string",
        then=[(1, "a", None), (None, "b", "road")],
    ),
    _case(
        "merge in other case",
        A,
        "ID long, Name string, Extra int",
        [(2, "b", 3)],
        options=MERGE,
        after="id long, name string, Extra int",
        then=[(1, "a", None), (2, "b", 3)],
    ),
    _case("merge nothing new", A, "id long", [(2,)], options=MERGE, after="id long, name string", then=[(1, "a"), (2, None)]),
    _case(
        "merge a nested field",
        S,
        "id long, s struct<a: int, c: int>",
        [(2, (2, 3))],
        options=MERGE,
        after="id long, s struct<a: int, b: string, c: int>",
        then=[(1, (1, "x", None)), (2, (2, None, 3))],
    ),
    _case(
        "merge a field in an array",
        L,
        "l array<struct<a: int, b: int>>",
        [([(2, 3)],)],
        options=MERGE,
        after="l array<struct<a: int, b: int>>",
        then=[([(1, None)],), ([(2, 3)],)],
    ),
    _case(
        "merge a field in a map",
        M,
        "m map<string, struct<a: int, b: int>>",
        [({"j": (2, 3)},)],
        options=MERGE,
        after="m map<string, struct<a: int, b: int>>",
        then=[({"k": (1, None)},), ({"j": (2, 3)},)],
    ),
    _case(
        "merge byte into short",
        Frame(schema="v byte", rows=[(1,)]),
        "v short",
        [(300,)],
        options=MERGE,
        after="v short",
        then=[(1,), (300,)],
    ),
    _case(
        "merge byte into int", Frame(schema="v byte", rows=[(1,)]), "v int", [(70000,)], options=MERGE, after="v int", then=[(1,), (70000,)]
    ),
    _case(
        "merge short into int",
        Frame(schema="v short", rows=[(1,)]),
        "v int",
        [(70000,)],
        options=MERGE,
        after="v int",
        then=[(1,), (70000,)],
    ),
    _case(
        "merge int under byte data", Frame(schema="v int", rows=[(1,)]), "v byte", [(3,)], options=MERGE, after="v int", then=[(1,), (3,)]
    ),
    _case("merge string into int", A, "id string, name string", [("x", "b")], options=MERGE),
    _case("merge a struct over a string", A, "id long, name struct<a: int>", [(2, (1,))], options=MERGE),
    _case("merge never repartitions", P, "id long, p string, q int", [(2, "y", 2)], by=("q",), options=MERGE),
    _case(
        "merge with the same partitions",
        P,
        "id long, p string, q int, r int",
        [(2, "y", 2, 3)],
        by=("p",),
        options=MERGE,
        after="id long, p string, q int, r int",
        partitions=("p",),
        then=[(1, "x", 1, None), (2, "y", 2, 3)],
    ),
    _case(
        "merge while overwriting",
        A,
        "id long, extra int",
        [(2, 3)],
        mode="overwrite",
        options=MERGE,
        after="id long, name string, extra int",
        then=[(2, None, 3)],
    ),
    # overwrite
    _case(
        "overwrite with the same schema",
        A,
        "id long, name string",
        [(2, "b")],
        mode="overwrite",
        after="id long, name string",
        then=[(2, "b")],
    ),
    _case("overwrite with another schema", A, "id long, other int", [(2, 3)], mode="overwrite"),
    _case(
        "overwriteSchema",
        A,
        "id string, other int",
        [("x", 3)],
        mode="overwrite",
        options=OVERWRITE,
        after="id string, other int",
        then=[("x", 3)],
    ),
    _case("overwriteSchema with fewer columns", A, "id long", [(2,)], mode="overwrite", options=OVERWRITE, after="id long", then=[(2,)]),
    _case("overwriteSchema in append mode", A, "id string", [("x",)], options=OVERWRITE),
    _case(
        "overwriteSchema drops the partitioning",
        P,
        "id long, p string",
        [(2, "y")],
        mode="overwrite",
        options=OVERWRITE,
        after="id long, p string",
        then=[(2, "y")],
    ),
    _case(
        "overwriteSchema changes the partitioning",
        P,
        "id long, p string, q int",
        [(2, "y", 2)],
        by=("q",),
        mode="overwrite",
        options=OVERWRITE,
        after="id long, p string, q int",
        partitions=("q",),
        then=[(2, "y", 2)],
    ),
    _case(
        "overwriteSchema and mergeSchema",
        A,
        "id long, other int",
        [(2, 3)],
        mode="overwrite",
        options={**OVERWRITE, **MERGE},
        after="id long, other int",
        then=[(2, 3)],
    ),
    # partitioning
    _case("other partitions", P, "id long, p string, q int", [(2, "y", 2)], by=("q",)),
    _case("partitions of an unpartitioned table", A, "id long, name string", [(2, "b")], by=("name",)),
    _case(
        "partitions in other case",
        P,
        "id long, p string, q int",
        [(2, "y", 2)],
        by=("P",),
        after=P.schema,
        partitions=("p",),
        then=[(1, "x", 1), (2, "y", 2)],
    ),
    _case(
        "no partitions named",
        P,
        "id long, p string, q int",
        [(2, "y", 2)],
        after=P.schema,
        partitions=("p",),
        then=[(1, "x", 1), (2, "y", 2)],
    ),
    _case("other partitions while overwriting", P, "id long, p string, q int", [(2, "y", 2)], by=("q",), mode="overwrite"),
    _case(
        "no partition value",
        P,
        "id long, q int",
        [(2, 2)],
        after=P.schema,
        partitions=("p",),
        then=[(1, "x", 1), (2, None, 2)],
        differs="delta-spark wants every partition column in the data; here a missing nullable column is null, wherever it stands",
    ),
    # replaceWhere, dynamic
    _case(
        "replaceWhere with an extra column",
        A,
        "id long, name string, extra int",
        [(2, "b", 3)],
        mode="overwrite",
        options={"replaceWhere": "id = 2"},
    ),
    _case(
        "replaceWhere with mergeSchema",
        A,
        "id long, name string, extra int",
        [(2, "b", 3)],
        mode="overwrite",
        options={"replaceWhere": "id = 2", **MERGE},
        after="id long, name string, extra int",
        then=[(1, "a", None), (2, "b", 3)],
    ),
    _case(
        "replaceWhere with overwriteSchema",
        A,
        "id long, other int",
        [(2, 3)],
        mode="overwrite",
        options={"replaceWhere": "id = 2", **OVERWRITE},
    ),
    _case(
        "dynamic with overwriteSchema",
        P,
        "id long, p string",
        [(2, "y")],
        by=("p",),
        mode="overwrite",
        options={"partitionOverwriteMode": "dynamic", **OVERWRITE},
    ),
    _case(
        "dynamic with mergeSchema",
        P,
        "id long, p string, q int, r int",
        [(2, "x", 2, 3)],
        mode="overwrite",
        options={"partitionOverwriteMode": "dynamic", **MERGE},
        after="id long, p string, q int, r int",
        partitions=("p",),
        then=[(2, "x", 2, 3)],
    ),
    # NullType
    _case(
        "a new column of NullType",
        A,
        "id long, name string, n void",
        [(2, "b", None)],
        options=MERGE,
        after="id long, name string",
        then=[(1, "a"), (2, "b")],
        differs="delta-spark adds a column of no type, which the protocol does not have; it is left out here, with a warning",
    ),
    _case(
        "a first write of NullType",
        None,
        "id long, n void",
        [(1, None)],
        differs="delta-spark stores a column of no type, which the protocol does not have",
    ),
    # names
    _case("a column name with a space", None, "`a b` long", [(1,)]),
    _case("columns that differ by case", None, "a long, A long", [(1, 2)]),
    _case("merge a name with a space", A, "id long, `a b` int", [(1, 2)], options=MERGE),
    # widening
    _case("int into long without widening", Frame(schema="v int", rows=[(1,)]), "v long", [(5,)], options=MERGE),
    _case(
        "int into long with widening",
        Frame(schema="v int", rows=[(1,)]),
        "v long",
        [(5_000_000_000,)],
        options=MERGE,
        properties={"delta.enableTypeWidening": "true"},
        after="v long",
        then=[(1,), (5_000_000_000,)],
    ),
    _case(
        "float into double with widening",
        Frame(schema="v float", rows=[(1.5,)]),
        "v double",
        [(2.25,)],
        options=MERGE,
        properties={"delta.enableTypeWidening": "true"},
        after="v double",
        then=[(1.5,), (2.25,)],
    ),
    _case(
        "widening without mergeSchema",
        Frame(schema="v int", rows=[(1,)]),
        "v long",
        [(5_000_000_000,)],
        properties={"delta.enableTypeWidening": "true"},
    ),
    _case(
        "a nested field with widening",
        Frame(schema="s struct<a: int>", rows=[((1,),)]),
        "s struct<a: long>",
        [((5_000_000_000,),)],
        options=MERGE,
        properties={"delta.enableTypeWidening": "true"},
        after="s struct<a: long>",
        then=[((1,),), ((5_000_000_000,),)],
    ),
)
