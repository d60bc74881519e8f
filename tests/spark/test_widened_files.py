"""Files from before a column's type was widened: read, filtered and skipped as if their values had always been of the wider type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.tables import Action, array, commit, commit_path, field, latest, make_log, mapping, parquet_files, struct
from tests.spark.test_column_mapping import append, mapped, read
from tests.spark.test_scans import files_opened

# name -> type before, type after, values before, values after (as SQL of the type before and after).
CHANGES: dict[str, tuple[str, str, list[str], list[str]]] = {
    "b_s": ("byte", "short", ["-128", "127"], ["300"]),
    "b_i": ("byte", "integer", ["-128", "127"], ["70000"]),
    "b_l": ("byte", "long", ["-128", "127"], ["3000000000"]),
    "b_d": ("byte", "double", ["-128", "127"], ["0.5D"]),
    "b_q": ("byte", "decimal(12,2)", ["-128", "127"], ["0.25"]),
    "s_i": ("short", "integer", ["-32768", "7"], ["70000"]),
    "s_l": ("short", "long", ["-32768", "7"], ["3000000000"]),
    "s_d": ("short", "double", ["-32768", "7"], ["1e300D"]),
    "s_q": ("short", "decimal(20,5)", ["-32768", "7"], ["0.00001"]),
    "i_l": ("integer", "long", ["-2147483648", "7"], ["3000000000"]),
    "i_d": ("integer", "double", ["-2147483648", "7"], ["7.5D"]),
    "i_q": ("integer", "decimal(12,2)", ["-2147483648", "7"], ["7.01"]),
    "i_r": ("integer", "decimal(30,10)", ["-2147483648", "7"], ["7.01"]),
    "l_q": ("long", "decimal(20,0)", ["-9223372036854775808", "7"], ["99999999999999999999"]),
    "l_r": ("long", "decimal(38,18)", ["-9223372036854775808", "7"], ["7.000000000000000001"]),
    "f_d": ("float", "double", ["0.7F", "1e-40F"], ["0.7D"]),
    "q_q": ("decimal(5,2)", "decimal(7,2)", ["-999.99", "1.5"], ["12345.67"]),
    "q_r": ("decimal(5,2)", "decimal(9,4)", ["-999.99", "1.5"], ["1.2345"]),
    "q_t": ("decimal(5,2)", "decimal(38,18)", ["-999.99", "1.5"], ["1.000000000000000001"]),
    "t_t": ("date", "timestamp_ntz", ["date'0001-01-01'", "date'2024-02-29'"], ["timestamp_ntz'2024-02-29 00:00:00.000001'"]),
}
SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
FEATURES = ["typeWidening", "timestampNtz", "columnMapping"]


def sql_type(name: str) -> str:
    return SQL_NAMES.get(name, name)


def schema(after: bool, *, nested: bool) -> Action:
    def told(name: str) -> Action:
        before, wide, _, _ = CHANGES[name]
        changes = {"delta.typeChanges": [{"fromType": before, "toType": wide}]} if after else {}
        return field(name, wide if after else before, **changes)

    columns = [told(name) for name in CHANGES]
    if not nested:
        return struct(field("row", "integer"), *columns)
    kind = "long" if after else "integer"
    below = {"delta.typeChanges": [{"fromType": "integer", "toType": "long", "fieldPath": path} for path in ("element", "key", "value")]}
    inside = [
        field("l", array(kind), **({"delta.typeChanges": below["delta.typeChanges"][:1]} if after else {})),
        field("m", mapping(kind, kind), **({"delta.typeChanges": below["delta.typeChanges"][1:]} if after else {})),
    ]
    return struct(field("row", "integer"), field("s", struct(*columns)), *inside)


def values(spark: SparkSession, after: bool) -> DataFrame:
    """Rows 0 and 1 of the types before, rows 2 and 3 of those after, the last of them of nulls."""

    def row(number: int) -> str:
        texts = []
        for name, (before, wide, old, new) in CHANGES.items():
            value = ([*new, "null"] if after else old)[number]
            texts.append(f"cast({value} as {sql_type(wide if after else before)}) {name}")
        return f"SELECT {number + 2 if after else number} row, {', '.join(texts)}"

    return spark.sql(f"{row(0)} UNION ALL {row(1)}")


def nested(frame: DataFrame, after: bool) -> DataFrame:
    kind = "bigint" if after else "int"
    more = "+ 3000000000L" if after else ""
    return frame.select(
        F.col("row").cast("int").alias("row"),
        F.struct(*CHANGES).alias("s"),
        F.expr(f"array(cast(row {more} as {kind}), null) l"),
        F.expr(f"map(cast(row {more} as {kind}), cast(row as {kind})) m"),
    )


def widen(table: str, to: Action) -> None:
    metadata = next(action["metaData"] for action in commit(table, 0) if "metaData" in action)
    metadata["schemaString"] = json.dumps(to)
    commit_path(table, latest(table) + 1).write_text(json.dumps({"metaData": metadata}) + "\n", encoding="utf-8")


def widened(spark: SparkSession, table: str, mode: str, *, in_struct: bool) -> DataFrame:
    """A table with a file of each kind; what it holds, as Spark casts it."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": FEATURES, "writerFeatures": FEATURES}
    properties = {"delta_columnMapping_mode": mode, "delta_columnMapping_maxColumnId": "60"} if mode != "none" else {}
    shaped = mapped if mode != "none" else lambda told: told
    make_log(table, shaped(schema(False, nested=in_struct)), protocol=protocol, **properties)
    old, new = values(spark, False), values(spark, True)
    if in_struct:
        old, new = nested(old, False), nested(new, True)
    append(old, table)
    widen(table, shaped(schema(True, nested=in_struct)))
    append(new, table)
    return old.select(*(F.col(name).cast(new.schema[name].dataType).alias(name) for name in new.columns)).union(new)


@pytest.fixture(params=["true", "false"], ids=["vectorized", "by row"])
def reader(session: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    session.conf.set("spark.sql.parquet.enableVectorizedReader", request.param)
    yield session
    session.conf.unset("spark.sql.parquet.enableVectorizedReader")


@pytest.mark.parametrize(("mode", "in_struct"), [("none", False), ("name", True), ("id", True)])
def test_old_files_hold_wider_values(reader: SparkSession, tmp_path: Path, mode: str, in_struct: bool) -> None:
    table = str(tmp_path / "t")
    expected = widened(reader, table, mode, in_struct=in_struct)
    assert len(parquet_files(table)) == 2
    assert sorted(map(repr, read(reader, table).collect())) == sorted(map(repr, expected.collect()))


def conditions() -> list[str]:
    made = []
    for name, (before, wide, old, new) in CHANGES.items():
        for value, kind in [(old[0], before), (old[1], before), (new[0], wide)]:
            literal = f"cast(cast({value} as {sql_type(kind)}) as {sql_type(wide)})"
            made += [f"{name} {op} {literal}" for op in ("=", "<", ">=")]
        made += [f"{name} is null", f"{name} in (cast({old[0]} as {sql_type(before)}), {new[0]})"]
    return [*made, "f_d < 0.7D", "f_d > 0.7D", "f_d >= 0.69999998D", "b_d < -127.5D", "i_d = 7.0D", "t_t < date'1000-01-01'"]


def test_filters_keep_what_they_keep_of_wider_values(reader: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    expected = widened(reader, table, "none", in_struct=False).cache()
    try:
        found = read(reader, table)
        asked = conditions()
        # Each condition as a filter of its own scan, all in one job.
        for start in range(0, len(asked), 60):
            some = asked[start : start + 60]
            both = [
                {(row["c"], row["row"]) for row in _union([frame.where(c).select("row", F.lit(c).alias("c")) for c in some]).collect()}
                for frame in (found, expected)
            ]
            assert both[0] == both[1]
    finally:
        expected.unpersist()


def _union(frames: list[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def test_statistics_of_old_files_skip_by_wider_literals_and_never_wrongly(session: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    widened(session, table, "name", in_struct=False)
    found = read(session, table)
    for condition, files in {
        "i_l > 3": 2,
        "i_l > 7": 1,
        "i_l = 3000000000": 1,
        "i_d < 0": 1,
        "i_q = 7.01": 1,
        "l_q > 8": 1,
        "q_r > 1.5": 0,
        "b_s > 127": 1,
        # Bounds of what was a float are taken as a float's, those of new files too.
        "f_d < 0.7": 2,
        "f_d < 0.6": 1,
        "f_d > 100": 2,
    }.items():
        assert files_opened(found.where(condition)) == files, condition
    assert found.where("f_d < 0.7 and f_d > 0.5").count() == 1


def test_partition_values_of_old_files_are_of_the_wider_type(session: SparkSession, tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": FEATURES, "writerFeatures": FEATURES}
    names = [name for name in CHANGES if name != "f_d"]
    columns = [f for f in schema(False, nested=False)["fields"] if f["name"] in ("row", *names)]
    wide = [f for f in schema(True, nested=False)["fields"] if f["name"] in ("row", *names)]
    table = make_log(str(tmp_path / "t"), struct(*columns), partition_by=names, protocol=protocol)
    old, new = (values(session, after).select("row", *names) for after in (False, True))
    append(old, table)
    widen(table, struct(*wide))
    append(new, table)
    expected = old.select(*(F.col(name).cast(new.schema[name].dataType).alias(name) for name in new.columns)).union(new)
    assert sorted(map(repr, read(session, table).collect())) == sorted(map(repr, expected.collect()))
    assert [row["row"] for row in read(session, table).where("i_l = 7 and t_t = '2024-02-29 00:00:00'").collect()] == [1]
