"""What executors do for a scan of the Arrow engine, without Spark: files of any layout in the table's types, and what is skipped."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.core.errors import DataFileMissingError, StorageError
from lakelog.core.predicates import (
    TRUE,
    And,
    Column,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from lakelog.core.schema import DataType, DecimalType, PrimitiveType, StructType, nullable_schema, parse_schema, to_arrow
from lakelog.spark.arrow_reader import Scan, TableReader
from lakelog.spark.arrow_skipping import weakened
from lakelog.spark.executor_access import ExecutorAccess
from lakelog.storage.file_access import FileAccess
from tests.spark.tables import Action, array, field, mapping, struct

LONG, DOUBLE, STRING = PrimitiveType("long"), PrimitiveType("double"), PrimitiveType("string")


def schema(*fields: Action) -> StructType:
    return nullable_schema(parse_schema(orjson.dumps(struct(*fields)).decode()))


def scan_of(wanted: StructType, *, physical: StructType | None = None, by_id: bool = False, predicate: Predicate = TRUE) -> Scan:
    """A scan of data columns alone."""
    return Scan(
        table="/t",
        columns=tuple(("data", name) for name in wanted.names),
        types=wanted.to_json(),
        physical=(physical or wanted).to_json(),
        by_id=by_id,
        predicate=predicate,
        access=ExecutorAccess(FileAccess(kind="file")),
        missing="Restore it.",
    )


def batches(scan: Scan, *files: Path, cut: int | None = None, values: Sequence[str | None] = ()) -> Iterator[pa.RecordBatch]:
    """What one task answers that reads the files, each cut after so many bytes."""
    sizes = [file.stat().st_size for file in files]
    parts = [
        (file, start, min(cut or size, size - start))
        for file, size in zip(files, sizes, strict=True)
        for start in range(0, size, cut or size)
    ]
    task = {
        "uris": [file.as_uri() for file, _, _ in parts],
        "sizes": [file.stat().st_size for file, _, _ in parts],
        "modified_ms": [7] * len(parts),
        "numbers": [files.index(file) for file, _, _ in parts],
        "starts": [start for _, start, _ in parts],
        "lengths": [length for _, _, length in parts],
        "values": [list(values)] * len(parts),
    }
    return TableReader(scan)([pa.record_batch([[orjson.dumps(task).decode()]], ["task"])])


def rows(scan: Scan, *files: Path, cut: int | None = None, values: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches(scan, *files, cut=cut, values=values) for row in batch.to_pylist()]


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def test_columns_come_in_the_tables_types_and_order(tmp_path: Path) -> None:
    file = write(
        tmp_path / "x.parquet",
        pa.table(
            {
                "B": pa.array([1, None], pa.int8()),
                "text": pa.array(["a", None]).dictionary_encode(),
                "large": pa.array(["é", ""], pa.large_string()),
                "bytes": pa.array([b"\xff", None], pa.large_binary()),
                "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
                "day": pa.array([-719162, 0], pa.int32()).cast(pa.date32()),
                "ms": pa.array([-1, None], pa.timestamp("ms", "Europe/Berlin")),
                "wall": pa.array([5, None], pa.timestamp("us")),
                "f": pa.array([0.5, float("nan")], pa.float32()),
                "extra": [1, 2],
            }
        ),
    )
    wanted = schema(
        field("f", "double"),
        field("wall", "timestamp_ntz"),
        field("ms", "timestamp"),
        field("day", "timestamp_ntz"),
        field("d", "decimal(12,4)"),
        field("bytes", "binary"),
        field("LARGE", "string"),
        field("text", "string"),
        field("gone", array("string")),
        field("b", "decimal(12,2)"),
    )
    (batch,) = batches(scan_of(wanted), file)
    assert batch.schema == to_arrow(wanted)
    found = batch.to_pydict()
    assert found["b"] == [Decimal("1.00"), None]
    assert found["d"] == [Decimal("1.5000"), None]
    assert (found["text"], found["LARGE"], found["bytes"], found["gone"]) == (["a", None], ["é", ""], [b"\xff", None], [None, None])
    assert batch.column(2).cast(pa.int64()).to_pylist() == [-1000, None]
    assert batch.column(3).cast(pa.int64()).to_pylist() == [-719162 * 86_400_000_000, 0]
    assert found["f"][0] == 0.5
    assert found["f"][1] != found["f"][1]


def test_int96_is_read_in_microseconds_over_its_whole_range(tmp_path: Path) -> None:
    stamps = pa.array([253_402_300_799_000_000, -62_135_596_800_000_000 + 1, None], pa.timestamp("us"))
    file = write(tmp_path / "x.parquet", pa.table({"t": stamps}), use_deprecated_int96_timestamps=True)
    for kind in ("timestamp", "timestamp_ntz"):
        (batch,) = batches(scan_of(schema(field("t", kind))), file)
        assert batch.column(0).cast(pa.int64()).to_pylist() == stamps.cast(pa.int64()).to_pylist()


def test_the_calendar_of_spark_2_is_told_where_it_matters(tmp_path: Path) -> None:
    days = pa.array([[-141_428], [0], None], pa.list_(pa.date32()))
    old = pa.table({"d": days}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    scan = scan_of(schema(field("d", array("date"))))
    with pytest.raises(StorageError, match="Julian calendar"):
        rows(scan, write(tmp_path / "x.parquet", old))
    assert len(rows(scan, write(tmp_path / "y.parquet", old.slice(1)))) == 2
    assert len(rows(scan, write(tmp_path / "z.parquet", pa.table({"d": days})))) == 3


NESTED = pa.table(
    {
        "before": pa.array([[1], [2, 3], None]),
        "s": pa.array([{"x": 1, "Y": {"z": "a", "w": 1.5}}, None, {"x": None, "Y": None}]),
        "l": pa.array([[{"a": 1, "b": "x"}, None], [], None]),
        "m": pa.array([[("k", {"a": 1, "b": 2})], None, []], pa.map_(pa.string(), pa.struct([("a", pa.int32()), ("b", pa.int64())]))),
        "after": [1, 2, 3],
    }
)


def test_nested_fields_are_pruned_reordered_and_filled(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", NESTED)
    wanted = schema(
        field("after", "long"),
        field("m", mapping("string", struct(field("b", "long"), field("new", "string"), field("a", "long")))),
        field("l", array(struct(field("c", "long"), field("a", "long")))),
        field("s", struct(field("y", struct(field("w", "double"))), field("none", "long"))),
    )
    assert rows(scan_of(wanted), file) == [
        (1, [("k", {"b": 2, "new": None, "a": 1})], [{"c": None, "a": 1}, None], {"y": {"w": 1.5}, "none": None}),
        (2, None, [], None),
        (3, [], None, {"y": None, "none": None}),
    ]
    missing = schema(field("s", struct(field("none", "long"))), field("l", array(struct(field("none", "long")))))
    assert rows(scan_of(missing), file) == [({"none": None}, [{"none": None}, None]), (None, []), ({"none": None}, None)]


def test_only_wanted_leaves_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", NESTED, compression="none")
    footer = pq.read_metadata(file)
    data = bytearray(file.read_bytes())
    for number in range(footer.num_columns):
        chunk = footer.row_group(0).column(number)
        if chunk.path_in_schema not in ("s.Y.w", "m.key_value.value.b", "m.key_value.key"):
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(bytes(data))
    wanted = schema(field("s", struct(field("Y", struct(field("w", "double"))))), field("m", mapping("string", struct(field("b", "long")))))
    assert rows(scan_of(wanted), file)[0] == ({"Y": {"w": 1.5}}, [("k", {"b": 2})])
    with pytest.raises(StorageError, match=r"Delta table /t: data file .*x\.parquet cannot be read"):
        rows(scan_of(schema(field("after", "long"))), file)


def test_field_ids_decide_over_names(tmp_path: Path) -> None:
    def told(name: str, identity: int, kind: pa.DataType) -> pa.Field[Any]:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(identity)})

    inner = pa.struct([told("x", 4, pa.int64()), told("y", 3, pa.int64())])
    columns = pa.schema([told("a", 2, pa.int64()), told("b", 1, pa.int64()), told("s", 9, inner)])
    file = write(tmp_path / "x.parquet", pa.table([[1], [2], [{"x": 3, "y": 4}]], schema=columns))
    identity = "parquet.field.id"
    physical = schema(
        field("a", "long", **{identity: 1}), field("s", struct(field("x", "long", **{identity: 3}))), field("b", "long", **{identity: 8})
    )
    physical = replace(physical, fields=(physical.fields[0], replace(physical.fields[1], metadata={identity: 9}), physical.fields[2]))
    wanted = schema(field("A", "long"), field("S", struct(field("X", "long"))), field("B", "long"))
    assert rows(scan_of(wanted, physical=physical, by_id=True), file) == [(2, {"X": 4}, None)]
    plain = write(tmp_path / "y.parquet", pa.table({"a": [1]}))
    with pytest.raises(StorageError, match="field ids"):
        rows(scan_of(wanted, physical=physical, by_id=True), plain)


def many(path: Path) -> Path:
    """Ten row groups of a hundred rows, ordered by each of the columns, and one with nulls alone."""
    numbers = list(range(1000))
    table = pa.table(
        {
            "n": numbers,
            "text": [f"{n:04}" for n in numbers],
            "d": pa.array([Decimal(n) for n in numbers], pa.decimal128(38, 3)),
            "f": [float(n) for n in numbers],
            "s": [{"n": n} for n in numbers],
            "gaps": [None] * 100 + numbers[100:],
        }
    )
    return write(path, table, row_group_size=100)


MANY = schema(
    field("n", "long"),
    field("text", "string"),
    field("d", "decimal(38,3)"),
    field("f", "double"),
    field("s", struct(field("n", "long"))),
    field("gaps", "long"),
)


def compare(name: str, op: Operator, value: Any, kind: DataType = LONG) -> Comparison:
    return Comparison(op, Column(tuple(name.split("."))), Literal(value, kind))


@pytest.mark.parametrize(
    ("predicate", "groups"),
    [
        (compare("n", "=", 250), {2}),
        (compare("n", "<", 100), {0}),
        (compare("n", ">=", 899), {8, 9}),
        (compare("n", "<=>", 5), {0}),
        (compare("n", "=", None), set()),
        (compare("s.n", ">", 950), {9}),
        (compare("text", "=", "0301", STRING), {3}),
        (StartsWith(Column(("text",)), "04"), {4}),
        (compare("d", "=", Decimal("700"), DecimalType(38, 3)), {7}),
        (compare("d", "<", 100), {0}),
        (In(Column(("n",)), (Literal(5, LONG), Literal(999, LONG), Literal(None, LONG))), {0, 9}),
        (IsNull(Column(("gaps",))), {0}),
        (IsNotNull(Column(("gaps",))), set(range(1, 10))),
        (And((compare("n", ">", 150), compare("n", "<", 320))), {1, 2, 3}),
        (Or((compare("n", "<", 50), compare("n", ">", 950))), {0, 9}),
        (Not(compare("n", ">=", 100)), {0}),
        (And((compare("n", "<", 100), Unknown("x"))), {0}),
        (Or((compare("n", "<", 100), Unknown("x"))), set(range(10))),
    ],
)
def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path, predicate: Predicate, groups: set[int]) -> None:
    file = many(tmp_path / "x.parquet")
    footer = pq.read_metadata(file)
    data = bytearray(file.read_bytes())
    for group in set(range(10)) - groups:
        for number in range(footer.num_columns):
            chunk = footer.row_group(group).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(bytes(data))
    found = {row[0] // 100 for row in rows(scan_of(MANY, predicate=weakened(predicate, MANY.names)), file)}
    assert found == groups


def test_rows_that_match_are_never_skipped(tmp_path: Path) -> None:
    nan = float("nan")
    table = pa.table({"f": [1.0, nan, None, -0.0, 0.0], "g": pa.array([nan, 1.5, 0.1, None, -1.0], pa.float32()), "n": [1, 2, 3, 4, 5]})
    file = write(tmp_path / "x.parquet", table, row_group_size=1)
    wanted = schema(field("f", "double"), field("g", "float"), field("n", "long"))
    for predicate, expected in {
        compare("f", "=", nan, DOUBLE): [2],
        compare("f", ">", 0.5, DOUBLE): [1, 2],
        compare("f", "=", 0.0, DOUBLE): [4, 5],
        compare("f", "<=>", None, DOUBLE): [3],
        compare("g", "<", nan, PrimitiveType("float")): [2, 3, 5],
        Not(compare("g", "<=", 1.0, PrimitiveType("float"))): [1, 2],
        compare("g", "=", 0.1, PrimitiveType("float")): [3],
    }.items():
        found = [row[2] for row in rows(scan_of(wanted, predicate=weakened(predicate, wanted.names)), file)]
        assert set(expected) <= set(found), predicate


@pytest.mark.parametrize("cut", [None, 101, 777, 10_000])
def test_parts_of_a_file_hold_every_row_once(tmp_path: Path, cut: int | None) -> None:
    file = many(tmp_path / "x.parquet")
    wanted = StructType((*schema(field("n", "long"), field("c1", "long"), field("c2", "string"), field("c3", "long")).fields,))
    scan = replace(
        scan_of(schema(field("n", "long"))),
        columns=(("data", "n"), ("row_index", "row_index"), ("partition", "p"), ("number", "")),
        types=wanted.to_json(),
    )
    found = rows(scan, file, cut=cut, values=["x"])
    assert sorted(found) == [(n, n, "x", 0) for n in range(1000)]
    skipping = replace(scan, predicate=weakened(compare("n", "=", 555), ["n"]))
    assert rows(skipping, file, cut=cut, values=["x"]) == [(555, 555, "x", 0)]


def test_rows_are_counted_without_a_column(tmp_path: Path) -> None:
    file, other = many(tmp_path / "x.parquet"), write(tmp_path / "empty.parquet", pa.table({"n": pa.array([], pa.int64())}))
    scan = replace(scan_of(schema()), columns=(("rows", ""),), types=schema(field("c0", "boolean")).to_json())
    assert len(rows(scan, file, other, file, cut=5000)) == 2000


def test_metadata_of_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    file = write(folder / "x%y.parquet", pa.table({"n": [1]}))
    names = ("file_path", "file_name", "file_size", "file_block_start", "file_block_length", "file_modification_time")
    kinds = ("string", "string", "long", "long", "long", "timestamp")
    types = schema(*(field(f"c{i}", kind) for i, kind in enumerate(kinds)))
    scan = replace(scan_of(schema()), columns=tuple(("metadata", name) for name in names), types=types.to_json())
    ((path, name, size, start, length, modified),) = rows(scan, file)
    assert (path, name) == (file.as_uri().replace("file://", "file:"), "x%25y.parquet")
    assert (size, start, length, modified.microsecond) == (file.stat().st_size, 0, file.stat().st_size, 7000)


def test_wide_rows_come_in_small_batches(tmp_path: Path) -> None:
    text = "x" * 1_000_000
    file = write(tmp_path / "x.parquet", pa.table({"t": [text] * 100}))
    sizes = [batch.nbytes for batch in batches(scan_of(schema(field("t", "string"))), file)]
    assert sum(sizes) > 100_000_000
    assert max(sizes) < 70_000_000


def test_files_that_are_missing_or_no_parquet_are_named(tmp_path: Path) -> None:
    wanted = scan_of(schema(field("n", "long")))
    good = many(tmp_path / "a.parquet")
    gone, bad = tmp_path / "go ne.parquet", tmp_path / "bad.parquet"
    gone.write_bytes(b"x")
    bad.write_bytes(b"PAR1 this is not it PAR1")
    reading = batches(wanted, good, gone)
    gone.unlink()
    with pytest.raises(
        DataFileMissingError, match=rf"^Delta table /t: data file {gone} is named by the log but is not there\. Restore it\.$"
    ):
        list(reading)
    with pytest.raises(StorageError, match=rf"^Delta table /t: data file {bad} cannot be read: .*\. Restore the file"):
        list(batches(wanted, bad))
    with pytest.raises(StorageError, match=r"the file has struct<.*>, the table bigint|the file has struct<.*>, the table int64"):
        list(batches(scan_of(schema(field("s", "long"))), good))
    with pytest.raises(StorageError, match=r"a\.parquet cannot be read"):
        list(batches(scan_of(schema(field("n", "byte"))), good))


def test_a_reader_travels_without_credentials() -> None:
    access = FileAccess(kind="s3", bucket="b", options=(("region", "x"),)).with_secrets({"secret_key": "planted"})
    scan = replace(scan_of(schema()), access=ExecutorAccess(access))
    assert b"planted" not in pickle.dumps(TableReader(scan))
    assert "planted" not in repr(scan)
