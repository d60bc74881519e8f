"""What one task of the Arrow engine's write does with its rows, without Spark: files, folders, row groups, bounds, and what is removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.spark.arrow_writer import MARK, WriteTask, write_rows
from lakelog.spark.executor_access import ExecutorAccess
from lakelog.storage.file_access import FileAccess

NAN = float("nan")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"}),
        pa.field("d", pa.float64()),
        pa.field("s", pa.struct([pa.field("f", pa.float32())])),
        pa.field("l", pa.list_(pa.field("element", pa.float64()))),
        pa.field("m", pa.map_(pa.string(), pa.field("value", pa.float64()))),
    ]
)


def task(folder: Path, **given: Any) -> WriteTask:
    told: dict[str, Any] = {
        "access": ExecutorAccess(FileAccess(kind="file")),
        "folder": folder.as_uri(),
        "schema": SCHEMA,
        "key_values": {"writer": "test"},
        "partition_columns": (),
        "extension": ".snappy.parquet",
        "parquet": {"compression": "snappy"},
        "group_bytes": 1 << 20,
        "group_rows": 1000,
        "max_rows": None,
    }
    return WriteTask(**{**told, **given})


def batch(start: int, stop: int, *texts: str | None, nan_at: int | None = None, large: bool = False) -> pa.RecordBatch:
    """Rows of these ids, as Spark hands them over under names of its own, with the same partition texts in each."""
    ids = range(start, stop)
    floats = [NAN if i == nan_at else None if i % 5 == 0 else float(i) for i in ids]
    text = pa.large_string() if large else pa.string()
    columns = [
        pa.array(ids, pa.int64()),
        pa.array(floats, pa.float64()),
        pa.array([None if f is None else {"f": f} for f in floats], pa.struct([pa.field("f", pa.float32())])),
        pa.array([[float(i)] for i in ids], pa.list_(pa.float64())),
        pa.array([[("k", float(i))] for i in ids], pa.map_(text, pa.float64())),
        *(pa.array([text_of] * len(ids), pa.string()) for text_of in texts),
    ]
    return pa.record_batch(columns, [f"c{i}" for i in range(len(columns))])


def written(told: WriteTask, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for answer in write_rows(told, iter(batches)) for row in answer.to_pylist()]


def path_of(row: dict[str, Any]) -> Path:
    return Path(row["uri"].removeprefix("file://"))


def ids(row: dict[str, Any]) -> list[int]:
    found: list[int] = pq.read_table(path_of(row))["id"].to_pylist()
    return found


def test_rows_become_row_groups_under_the_names_of_files(tmp_path: Path) -> None:
    (row,) = written(task(tmp_path, group_rows=30), *(batch(start, start + 20) for start in range(0, 100, 20)))
    assert re.fullmatch(r"part-00000-[0-9a-f-]{36}-c000\.snappy\.parquet", path_of(row).name)
    footer = pq.read_metadata(path_of(row))
    assert [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] == [40, 40, 20]
    assert ids(row) == list(range(100))
    assert footer.schema.to_arrow_schema().names == SCHEMA.names
    assert footer.metadata[b"writer"] == b"test"
    assert row["size"] == path_of(row).stat().st_size
    assert pq.read_metadata(pa.BufferReader(row["footer"])).num_rows == 100
    assert row["nan_leaves"] == []


def test_no_rows_no_file(tmp_path: Path) -> None:
    assert written(task(tmp_path)) == []
    assert written(task(tmp_path), batch(0, 0)) == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_partitions_are_folders_and_null_has_one(tmp_path: Path) -> None:
    told = task(tmp_path, partition_columns=("p", "q w"))
    rows = written(told, batch(0, 3, "a b", "1/2"), batch(3, 5, "a b", "1/2"), batch(5, 6, "a b", None), batch(6, 8, None, None))
    folders = [str(path_of({"uri": row["uri"].replace("%25", "%").replace("%20", " ")}).parent.relative_to(tmp_path)) for row in rows]
    assert folders == [
        "p=a b/q w=1%2F2",
        "p=a b/q w=__HIVE_DEFAULT_PARTITION__",
        "p=__HIVE_DEFAULT_PARTITION__/q w=__HIVE_DEFAULT_PARTITION__",
    ]
    files = sorted(tmp_path.rglob("*.parquet"))
    assert sorted(pq.read_table(file, partitioning=None).num_rows for file in files) == [1, 2, 5]
    assert all(".c000.snappy.parquet" in file.name for file in files)


def test_several_partitions_in_one_batch(tmp_path: Path) -> None:
    mixed = pa.concat_batches([batch(0, 2, "a"), batch(2, 3, "b"), batch(3, 6, None)])
    rows = written(task(tmp_path, partition_columns=("p",)), mixed)
    assert [path_of(row).parent.name for row in rows] == ["p=a", "p=b", "p=__HIVE_DEFAULT_PARTITION__"]


def test_files_have_at_most_so_many_rows(tmp_path: Path) -> None:
    rows = written(task(tmp_path, max_rows=30), batch(0, 50), batch(50, 75))
    assert [ids(row) for row in rows] == [list(range(30)), list(range(30, 60)), list(range(60, 75))]
    assert [path_of(row).name.rpartition("-")[2] for row in rows] == [f"c{number:03d}.snappy.parquet" for number in range(3)]


def test_a_column_with_a_nan_has_no_bounds_in_the_footer(tmp_path: Path) -> None:
    (row,) = written(task(tmp_path), batch(0, 10, nan_at=4))
    group = pq.read_metadata(path_of(row)).row_group(0)
    told = {group.column(leaf).path_in_schema: group.column(leaf).statistics is not None for leaf in range(group.num_columns)}
    assert told == {"id": True, "d": False, "s.f": False, "l.list.element": True, "m.key_value.key": True, "m.key_value.value": True}
    assert (row["nan_leaves"], row["nan_lows"], row["nan_nulls"]) == ([1, 2], [1.0, 1.0], [2, 2])


def test_nothing_but_nan_has_no_least_value(tmp_path: Path) -> None:
    (row,) = written(task(tmp_path), batch(1, 2, nan_at=1))
    assert (row["nan_lows"], row["nan_nulls"]) == ([None, None], [0, 0])


def test_a_nan_in_a_later_row_group_begins_a_file(tmp_path: Path) -> None:
    batches = [batch(start, start + 10, nan_at=25) for start in range(0, 40, 10)]
    rows = written(task(tmp_path, group_rows=10), *batches)
    assert [ids(row) for row in rows] == [list(range(20)), list(range(20, 40))]
    assert [row["nan_leaves"] for row in rows] == [[], [1, 2]]


def test_statistics_that_are_switched_off_stay_off(tmp_path: Path) -> None:
    (row,) = written(task(tmp_path, parquet={"compression": "none", "write_statistics": False}), batch(0, 5, nan_at=1))
    assert pq.read_metadata(path_of(row)).row_group(0).column(0).statistics is None


def test_long_offsets_are_taken_as_they_come(tmp_path: Path) -> None:
    (row,) = written(task(tmp_path), batch(0, 5, large=True))
    assert pq.read_table(path_of(row))["m"].to_pylist()[3] == [("k", 3.0)]


def test_rows_of_another_type_are_refused(tmp_path: Path) -> None:
    wrong = pa.record_batch([pa.array(["x"])] * len(SCHEMA), [f"c{i}" for i in range(len(SCHEMA))])
    with pytest.raises(RuntimeError, match=f"{MARK}a column of type int64: Spark hands it over as string"):
        written(task(tmp_path), wrong)


def test_whatever_fails_nothing_stays(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(0, 30, "a")
        yield batch(30, 40, "b")
        raise ValueError("the rows cannot be had")

    with pytest.raises(ValueError, match="cannot be had"):
        list(write_rows(task(tmp_path, partition_columns=("p",), group_rows=10, max_rows=15), rows()))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_folder_that_cannot_be_made_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "p=a").write_text("a file where a folder should be")
    with pytest.raises(RuntimeError, match=rf"^{MARK}file://.*/p=a/part-00000-"):
        written(task(tmp_path, partition_columns=("p",)), batch(0, 1, "a"))
