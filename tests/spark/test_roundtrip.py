"""Random tables: what lakelog writes reads equal in `deltalake` and here, and the reverse; filters lose no row.

Spark is slow to start a job, so every example is a table with each partition type and many columns. ``LAKELOG_EXAMPLES`` asks for more
examples than the few of an ordinary run.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.rows import texts

few = settings(
    max_examples=int(os.environ.get("LAKELOG_EXAMPLES", "2")),
    deadline=None,
    derandomize="LAKELOG_EXAMPLES" not in os.environ,
    # A smaller example would cost a Spark job for every attempt.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

SPECIAL = [
    "",
    "/",
    ":",
    "%",
    "+",
    "=",
    "#",
    "'",
    '"',
    "a\nb",
    "😀",
    "trail ",
    " lead",
    "%2F",
    "..",
    "null",
    "\\",
    "é",
    "\x7f",
    "[x]",
    "a" * 40,
    "\uffff",
]
text = st.sampled_from(SPECIAL) | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Away from the ends by a day: a zone other than UTC would leave the years that Python knows.
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30, 23, 59, 59, 999_999))
micros = moments.map(lambda moment: (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1))
days = st.dates().map(lambda day: (day - date(1970, 1, 1)).days)
doubles = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.1]) | st.floats(width=64)
floats = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 1.100000023841858]) | st.floats(width=32)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda digits: Decimal(digits).scaleb(-scale))


# Types that partition, with values. Binary is text here: what is not, deltalake gives back as the escapes that the protocol asks for.
PRIMITIVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), integers(8)),
    (pa.int16(), integers(16)),
    (pa.int32(), integers(32)),
    (pa.int64(), integers(64)),
    (pa.float32(), floats),
    (pa.float64(), doubles),
    (pa.decimal128(9, 2), decimals(9, 2)),
    (pa.decimal128(28, 10), decimals(28, 10)),
    (pa.string(), text),
    (pa.binary(), text.map(str.encode).filter(lambda value: b"\\u" not in value)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), days),
    (pa.timestamp("us", "UTC"), micros),
    (pa.timestamp("us"), micros),
]


def nested() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Types of up to three levels and values for them, nulls included."""
    leaf = st.sampled_from(PRIMITIVES)

    def struct(parts: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        names = ["a.b", "Ünïcode", "c", "d`e"][: len(parts)]
        fields = [pa.field(name, kind) for name, (kind, _) in zip(names, parts, strict=True)]
        return pa.struct(fields), st.fixed_dictionaries({n: st.none() | values for n, (_, values) in zip(names, parts, strict=True)})

    def deeper(inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[Any]:
        return (
            st.lists(inner, min_size=1, max_size=4).map(struct)
            | inner.map(lambda item: (pa.list_(item[0]), st.lists(st.none() | item[1], max_size=3)))
            | inner.map(
                lambda item: (
                    pa.map_(pa.string(), item[0]),
                    st.dictionaries(text, st.none() | item[1], max_size=3).map(lambda pairs: list(pairs.items())),
                )
            )
        )

    return deeper(leaf | deeper(leaf))


def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Days and microseconds arrive as integers, at any depth, since Python's dates do not reach everywhere."""
    return pa.array(values, stored(kind)).cast(kind) if not pa.types.is_nested(kind) else built(kind, values)


def stored(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


def built(kind: pa.DataType, values: list[Any]) -> pa.Array:
    mask = pa.array([value is None for value in values])
    if pa.types.is_struct(kind):
        parts = [column(field.type, [None if v is None else v[field.name] for v in values]) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    lengths = [0 if value is None else len(value) for value in values]
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    offsets = pa.array([None if v is None else start for v, start in zip(values, starts, strict=False)] + [starts[-1]], pa.int32())
    flat = [item for value in values if value is not None for item in value]
    if pa.types.is_map(kind):
        keys, items = column(kind.key_type, [k for k, _ in flat]), column(kind.item_type, [v for _, v in flat])
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind)
    return pa.ListArray.from_arrays(offsets, column(kind.value_type, flat), type=kind)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    """A table with ``id``, every primitive type twice and some nested ones; and the names of the partition columns, one of each type."""
    rows = draw(st.integers(1, 10))
    fields: dict[str, pa.Array] = {"id": pa.array(range(rows), pa.int64())}
    partitions = []
    for number, (kind, values) in enumerate(PRIMITIVES):
        inside = draw(st.sampled_from(["p", "p.q", "ß", "p%:"])) + str(number)
        partitions.append(inside)
        for name in (inside, draw(st.sampled_from(["v", "v.w", "é", "x-y", "_c", "a`b"])) + str(number)):
            fields[name] = column(kind, draw(st.lists(st.none() | values, min_size=rows, max_size=rows)))
    for number, (kind, values) in enumerate(draw(st.lists(nested(), max_size=4))):
        fields[f"n{number}"] = column(kind, draw(st.lists(st.none() | values, min_size=rows, max_size=rows)))
    return pa.table(fields), draw(st.permutations(partitions))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not `tmp_path`: names of partition folders make long paths."""
    with tempfile.TemporaryDirectory(prefix="lakelog") as name:
        yield Path(name)


def frame_of(session: SparkSession, table: pa.Table, folder: str) -> DataFrame:
    pq.write_table(table, f"{folder}/plain.parquet")
    return session.read.parquet(f"{folder}/plain.parquet")


def as_partitioned(table: pa.Table, partitions: list[str]) -> list[bytes]:
    """The rows as they come back: no characters, and the name that Hive gives to null, are null in a partition column."""
    for name in partitions:
        if table.schema.field(name).type in (pa.string(), pa.binary()):
            values = [None if v in ("", b"", "__HIVE_DEFAULT_PARTITION__") else v for v in table[name].to_pylist()]
            table = table.set_column(table.column_names.index(name), name, pa.array(values, table.schema.field(name).type))
    return texts(table)


def write(frame: DataFrame, partitions: list[str], path: str) -> None:
    frame.write.format("delta").partitionBy(*(f"`{name}`" for name in partitions)).save(path)


def read(session: SparkSession, path: str) -> DataFrame:
    return session.read.format("delta").load(path)


@given(drawn=tables())
@few
def test_what_is_written_here_reads_equal_here_and_in_deltalake(session: SparkSession, drawn: tuple[pa.Table, list[str]]) -> None:
    table, partitions = drawn
    with tempfile.TemporaryDirectory() as folder:
        write(frame_of(session, table, folder), partitions, f"{folder}/a table")
        expected = as_partitioned(table, partitions)
        assert texts(read(session, f"{folder}/a table").toArrow()) == expected
        theirs = deltalake.DeltaTable(f"{folder}/a table").to_pyarrow_table()
        assert texts(theirs.select(table.column_names)) == expected


@given(drawn=tables())
@few
def test_what_deltalake_writes_reads_equal_here(session: SparkSession, drawn: tuple[pa.Table, list[str]]) -> None:
    table, partitions = drawn
    # deltalake itself fails on these: 300 digits of a double in a folder name, "0.00-1" for a negative decimal, escapes for binary.
    kinds = {name: table.schema.field(name).type for name in partitions}
    partitions = [name for name, kind in kinds.items() if kind not in (pa.binary(), pa.float64()) and not pa.types.is_decimal(kind)]
    with tempfile.TemporaryDirectory() as folder:
        deltalake.write_deltalake(f"{folder}/t", table, partition_by=partitions)
        assert texts(read(session, f"{folder}/t").toArrow()) == as_partitioned(table, partitions)


def sql_literal(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return f"cast('{value!r}' as {'float' if kind == pa.float32() else 'double'})"
    if pa.types.is_string(kind):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if pa.types.is_binary(kind):
        return f"X'{value.hex()}'"
    if pa.types.is_date(kind):
        return f"date_from_unix_date({value})"
    if kind == pa.timestamp("us"):
        return f"cast(convert_timezone('UTC', 'UTC', cast(timestamp_micros({value}L) as timestamp_ntz)) as timestamp_ntz)"
    if pa.types.is_timestamp(kind):
        return f"timestamp_micros({value}L)"
    names = {pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint"}
    return f"cast('{value}' as {names.get(kind) or f'decimal({kind.precision},{kind.scale})'})"


@st.composite
def predicates(draw: st.DrawFn, table: pa.Table, partitions: list[str]) -> str:
    """A condition over one or two columns, mostly with a constant that occurs."""
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([n for n in table.column_names if not pa.types.is_nested(table.schema.field(n).type)]))
        kind = table.schema.field(name).type
        quoted = "`" + name.replace("`", "``") + "`"
        there = table[name].cast(stored(kind)).to_pylist()
        fresh = {str(k): v for k, v in PRIMITIVES}[str(kind)] if name != "id" else integers(64)
        literals = [sql_literal(v, kind) for v in draw(st.lists(st.sampled_from(there) | fresh, min_size=1, max_size=3)) if v is not None]
        form = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<=>", "!=", "in", "null", "not null", "like", "text", "="]))
        if form in ("null", "not null") or not literals:
            part = f"{quoted} is {'not ' if form == 'not null' else ''}null"
        elif form == "in":
            part = f"{quoted} in ({', '.join([*literals, *(['null'] if draw(st.booleans()) else [])])})"
        elif form == "like":
            part = f"startswith(cast({quoted} as string), substr(cast({literals[0]} as string), 1, 2))"
        elif form == "text":
            part = f"cast({quoted} as string) >= cast({literals[0]} as string)"
        else:
            part = f"{quoted} {form} {literals[0]}" if draw(st.booleans()) else f"{literals[0]} {form} {quoted}"
        parts.append(f"not ({part})" if draw(st.booleans()) else f"({part})")
    return draw(st.sampled_from([" and ", " or "])).join(parts)


@given(data=st.data(), drawn=tables())
@few
def test_filters_give_the_rows_that_spark_gives_without_pruning(
    session: SparkSession, data: st.DataObject, drawn: tuple[pa.Table, list[str]]
) -> None:
    table, partitions = drawn
    conditions = data.draw(st.lists(predicates(table, partitions), min_size=10, max_size=10))
    few_partitions = partitions[:2]
    with tempfile.TemporaryDirectory() as folder:
        plain = frame_of(session, table, folder)
        write(plain.repartition(3), few_partitions, f"{folder}/t")
        kept = read(session, f"{folder}/t")
        # Spark's own answer over the same values, without a filter that it could push down.
        values = kept.localCheckpoint().select("id", *(F.expr(c).alias(f"c{i}") for i, c in enumerate(conditions))).collect()
        expected = {(row["id"], i) for row in values for i in range(len(conditions)) if row[f"c{i}"]}
        found = reduce(DataFrame.union, [kept.where(c).select("id", F.lit(i).alias("i")) for i, c in enumerate(conditions)]).collect()
        assert sorted((row["id"], row["i"]) for row in found) == sorted(expected), json.dumps(conditions)


def test_every_string_and_binary_survives_as_a_partition_value(session: SparkSession, folder: Path) -> None:
    strings = [s for s in SPECIAL if s] + [chr(i) for i in range(1, 256)]
    binaries = [b"\0", b"\xff\xfe", b"caf\xc3\xa9", b"\\u0041", b"\\u00ff\xff", b"/:%", bytes(range(120, 136)), b"\n"]
    rows = [(s, binaries[i % len(binaries)]) for i, s in enumerate(strings)]
    table = pa.table({"id": range(len(rows)), "s": [r[0] for r in rows], "b": [r[1] for r in rows]})
    write(frame_of(session, table, str(folder)).coalesce(1), ["s", "b"], f"{folder}/t")
    assert texts(read(session, f"{folder}/t").toArrow()) == texts(table)
    theirs = deltalake.DeltaTable(f"{folder}/t").to_pyarrow_table()
    assert texts(theirs.select(["id", "s"])) == texts(table.select(["id", "s"]))
    some = read(session, f"{folder}/t").where("b = X'fffe' and s <> '😀'").count()
    assert some == sum(1 for s, b in rows if b == b"\xff\xfe" and s != "😀")


def test_column_names_that_cannot_be_created_here_are_read(session: SparkSession, folder: Path) -> None:
    table = pa.table({"a b": [1, 2], "c,d": ["x", "y"], "e;(f)": [{"g=h": 1}, None], "p q": ["r s", None]})
    deltalake.write_deltalake(str(folder / "t"), table, partition_by=["p q"])
    found = read(session, str(folder / "t"))
    assert texts(found.toArrow()) == texts(table)
    assert found.where("`a b` = 2 and `p q` is null").select("`c,d`").collect() == [("y",)]
    assert found.where("`e;(f)`.`g=h` = 1").count() == 1
