"""What a task of the Arrow engine's write does: the rows of one partition into Parquet files. Runs in the Python workers of executors.

Rows come as Arrow batches and go out row group by row group, so that a task holds one row group of one file and no more. Files go straight
to their final names, which no two attempts share; only those count that the attempt which Spark takes the answer of has told.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from lakelog.core.paths import encode_path, partition_folder
from lakelog.spark.executor_access import ExecutorAccess
from lakelog.storage.file_access import FileAccess

# What the message of a write that failed starts with, on its way through Spark's.
MARK = "lakelog could not write "

# One row per file.
_ANSWER: dict[str, pa.DataType] = {
    "uri": pa.string(),
    "size": pa.int64(),
    "modification_time_ms": pa.int64(),
    # As a Parquet file without rows.
    "footer": pa.binary(),
    # The numbers of the column chunks with a NaN in them, their least values, and how many nulls they have.
    "nan_leaves": pa.list_(pa.int32()),
    "nan_lows": pa.list_(pa.float64()),
    "nan_nulls": pa.list_(pa.int64()),
}
ANSWER = pa.schema(_ANSWER)

_Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """What every task of a write is told.

    Attributes:
        access: opens files.
        folder: what files go below, as an absolute URI without a slash at the end.
        schema: of files; a batch has its columns in its order, under other names perhaps.
        key_values: of files' footers.
        partition_columns: what names the folders of each; batches have their values as text behind the columns of the schema, equal ones
            together.
        extension: of files' names.
        parquet: arguments of `pq.ParquetWriter`.
        group_bytes: a row group ends with so many bytes in memory,
        group_rows: or with so many rows.
        max_rows: of a file; None where there is no limit.
        job: tells the files of this write from others' in ``done``.
        done: the files of tasks that are through, by job, for a driver that learns nothing else of a job that fails.
    """

    access: ExecutorAccess
    folder: str
    schema: pa.Schema
    key_values: Mapping[str, str]
    partition_columns: tuple[str, ...]
    extension: str
    parquet: Mapping[str, Any]
    group_bytes: int
    group_rows: int
    max_rows: int | None
    job: str = ""
    done: Accumulator[dict[str, list[str]]] | None = field(default=None, repr=False)


class FilesByJob(AccumulatorParam[dict[str, list[str]]]):
    """URIs of files by the job that wrote them."""

    def zero(self, value: dict[str, list[str]]) -> dict[str, list[str]]:
        return {}

    def addInPlace(self, value1: dict[str, list[str]], value2: dict[str, list[str]]) -> dict[str, list[str]]:
        for job, uris in value2.items():
            value1.setdefault(job, []).extend(uris)
        return value1


def write_rows(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a partition's rows; one batch of `ANSWER` at the end, none where there are no rows.

    Whatever goes wrong, the files that were begun are removed, as far as they can be.

    Raises:
        RuntimeError: a file could not be written; the message starts with `MARK`.
    """
    context = TaskContext.get()
    files = _Files(task, task.access.get(), 0 if context is None else context.partitionId())
    written: list[_Written] | None = None
    try:
        for batch in batches:
            files.add(batch)
        if not _was_cut_off():
            written = files.finished()
    finally:
        if written is None:
            files.remove()
    if written:
        if task.done is not None:
            task.done.add({task.job: [file.uri for file in written]})
        yield pa.RecordBatch.from_pylist([file.answer() for file in written], schema=ANSWER)


def _was_cut_off() -> bool:
    """Whether the last batch was not the last of the partition.

    Where the rows fail to be computed, Spark hangs up, and Arrow takes the end of the connection for the end of its stream. Behind the last
    row of a whole stream Spark has more to tell the worker. The connection is a variable of the worker's that called us.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        connection = frame.f_locals.get("infile")
        if isinstance(connection, io.BufferedReader):
            return not connection.peek(1)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    uri: str
    size: int
    modification_time_ms: int
    footer: pq.FileMetaData
    nan_leaves: Mapping[int, _WithNan]

    def answer(self) -> dict[str, object]:
        footer = io.BytesIO()
        self.footer.write_metadata_file(footer)
        return {
            "uri": self.uri,
            "size": self.size,
            "modification_time_ms": self.modification_time_ms,
            "footer": footer.getvalue(),
            "nan_leaves": list(self.nan_leaves),
            "nan_lows": [leaf.low for leaf in self.nan_leaves.values()],
            "nan_nulls": [leaf.nulls for leaf in self.nan_leaves.values()],
        }


@dataclass(slots=True)
class _WithNan:
    """What is known of a column chunk with a NaN in it.

    Attributes:
        low: the least other value; None where there is none.
        nulls: how many there are.
    """

    low: float | None = None
    nulls: int = 0

    def take(self, column: Any) -> None:
        self.nulls += column.null_count
        least = pc.min(cast(Any, pc).filter(column, pc.invert(pc.is_nan(column)))).as_py()
        if least is not None and (self.low is None or least < self.low):
            self.low = least


class _Files:
    """The files of one task, one of them open at a time."""

    def __init__(self, task: WriteTask, access: FileAccess, partition: int) -> None:
        self._task = task
        self._access = access
        self._partition = partition
        self._schema: pa.Schema | None = None
        self._folder: tuple[str | None, ...] = ()
        self._in_folder = 0
        self._kept: list[pa.RecordBatch] = []
        self._kept_rows = self._kept_bytes = 0
        # Of the file that is next to be closed, those that are kept included.
        self._rows = 0
        self._open: _File | None = None
        self._done: list[_Written] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows, or keep them until there are enough."""
        if batch.num_rows == 0:
            return
        columns = len(self._task.schema)
        if self._schema is None:
            self._schema = pa.schema(map(_shaped, list(batch.schema)[:columns], self._task.schema))
        data = pa.record_batch(_Reshaped(batch.select(list(range(columns))), self._schema))
        if not self._task.partition_columns:
            self._append(data)
            return
        for start, stop, values in _runs(batch.columns[columns:]):
            if values != self._folder:
                self._close()
                self._folder, self._in_folder = values, 0
            self._append(data.slice(start, stop - start))

    def finished(self) -> list[_Written]:
        """All files, closed."""
        self._close()
        return self._done

    def remove(self) -> None:
        """Delete every file of the task. Best effort: what stays is garbage that no reader sees."""
        self._forget()
        if self._open is not None:
            self._open.abandon()
        for file in self._done:
            _delete(self._access, file.uri)

    def _append(self, data: pa.RecordBatch) -> None:
        limit = self._task.max_rows
        while data.num_rows:
            piece = data if limit is None else data.slice(0, limit - self._rows)
            self._kept.append(piece)
            self._kept_rows += piece.num_rows
            self._kept_bytes += piece.nbytes
            self._rows += piece.num_rows
            data = data.slice(piece.num_rows)
            if self._rows == limit:
                self._close()
            elif self._kept_bytes >= self._task.group_bytes or self._kept_rows >= self._task.group_rows:
                self._flush()

    def _flush(self) -> None:
        """Write the rows that were kept as a row group, to a new file where the open one must not have it."""
        if not self._kept:
            return
        group = pa.Table.from_batches(self._kept, self._kept[0].schema)
        self._forget()
        if self._open is not None and not self._open.takes(group):
            self._done.append(self._open.close())
            self._open = None
        if self._open is None:
            self._open = _File(self._task, self._access, self._new_uri(), group.schema, group)
        self._open.write(group)

    def _forget(self) -> None:
        self._kept = []
        self._kept_rows = self._kept_bytes = 0

    def _new_uri(self) -> str:
        """As Spark names files, each with an identifier of its own."""
        folder = partition_folder(self._task.partition_columns, self._folder) if self._task.partition_columns else ""
        counted = f"{'.' if folder else '-'}c{self._in_folder:03d}{self._task.extension}"
        self._in_folder += 1
        name = f"part-{self._partition:05d}-{uuid4()}{counted}"
        return f"{self._task.folder}/{encode_path(f'{folder}/{name}' if folder else name)}"

    def _close(self) -> None:
        self._flush()
        self._rows = 0
        if self._open is not None:
            self._done.append(self._open.close())
            self._open = None


class _File:
    """One Parquet file that is being written.

    Where a column has a NaN, the footer must tell no bounds of it: Arrow leaves NaN out of them, and Spark's reader, to which NaN is
    greater than all, would pass over the row group. Which columns those are is settled by the first row group.
    """

    def __init__(self, task: WriteTask, access: FileAccess, uri: str, schema: pa.Schema, first: pa.Table) -> None:
        self._task = task
        self._access = access
        self._uri = uri
        self._floats = list(_floats(schema))
        self._nan_leaves = {leaf: _WithNan() for leaf, path in self._floats if _has_nan(first, path)}
        self._footers: list[pq.FileMetaData] = []
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0
        arguments = dict(task.parquet)
        if self._nan_leaves and arguments.get("write_statistics", True):
            leaves = _leaf_names(schema)
            arguments["write_statistics"] = [name for leaf, name in enumerate(leaves) if leaf not in self._nan_leaves]
        with _told(uri):
            path, filesystem = access.path(uri), access.filesystem()
            if access.kind == "file":
                filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            try:
                self._stream = filesystem.open_output_stream(path, compression=None)
                self._writer = pq.ParquetWriter(self._stream, schema, store_schema=False, metadata_collector=self._footers, **arguments)
                self._writer.add_key_value_metadata(dict(task.key_values))
            except BaseException:
                self.abandon()
                raise

    def takes(self, group: pa.Table) -> bool:
        """Whether no other column has a NaN in these rows than in the first."""
        return not any(leaf not in self._nan_leaves and _has_nan(group, path) for leaf, path in self._floats)

    def write(self, group: pa.Table) -> None:
        """One row group."""
        assert self._writer is not None
        paths = dict(self._floats)
        for leaf, known in self._nan_leaves.items():
            known.take(_column(group, paths[leaf]))
        with _told(self._uri):
            self._writer.write_table(group, row_group_size=group.num_rows)
        self.rows += group.num_rows

    def close(self) -> _Written:
        assert self._writer is not None
        assert self._stream is not None
        with _told(self._uri):
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
            modified_ms = time.time_ns() // 1_000_000
            if self._access.kind == "file":
                found = self._access.filesystem().get_file_info(self._access.path(self._uri))
                modified_ms = cast(int, found.mtime_ns) // 1_000_000
        return _Written(uri=self._uri, size=size, modification_time_ms=modified_ms, footer=self._footers[0], nan_leaves=self._nan_leaves)

    def abandon(self) -> None:
        """Delete the file. Arrow knows no other end of an upload than a file that is there."""
        for opened in (self._writer, self._stream):
            if opened is not None:
                with suppress(Exception):
                    opened.close()
        if self._stream is not None:
            _delete(self._access, self._uri)


@contextmanager
def _told(uri: str) -> Iterator[None]:
    """Around what writes a file: what fails is told with the file's name, in words that the driver knows again."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{MARK}{uri}: {' '.join(str(error).split())}") from error


def _delete(access: FileAccess, uri: str) -> None:
    with suppress(Exception):
        access.filesystem().delete_file(access.path(uri))


# --- Rows ---------------------------------------------------------------------------------------------------------------------------


class _Reshaped:
    """Rows under another schema of the same memory layout: Arrow renames fields at any depth without a copy when it takes rows over."""

    def __init__(self, rows: pa.RecordBatch, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return cast(Any, self._schema).__arrow_c_schema__(), cast(Any, self._rows).__arrow_c_array__()[1]


def _shaped(given: pa.Field[Any], wanted: pa.Field[Any], beside_null: bool = False) -> pa.Field[Any]:
    """The wanted field in the given one's layout: strings may have long offsets. What may be null in the rows may be so in the file.

    Args:
        beside_null: the field is in a struct that may be null, where Spark leaves a null in the field too; pyarrow would refuse that.
    """
    nullable = given.nullable or wanted.nullable or beside_null
    return pa.field(wanted.name, _shaped_type(given.type, wanted.type, nullable), nullable, metadata=wanted.metadata)


def _shaped_type(given: pa.DataType, wanted: pa.DataType, nullable: bool) -> pa.DataType:
    if isinstance(given, pa.StructType) and isinstance(wanted, pa.StructType):
        return pa.struct([_shaped(theirs, ours, nullable) for theirs, ours in zip(given, wanted, strict=True)])
    if isinstance(given, pa.MapType) and isinstance(wanted, pa.MapType):
        key, item = _shaped(given.key_field, wanted.key_field), _shaped(given.item_field, wanted.item_field)
        # pa.map_ takes fields, which its stubs do not know.
        return cast(pa.DataType, cast(Any, pa).map_(key, item))
    if isinstance(given, pa.ListType) and isinstance(wanted, pa.ListType):
        return pa.list_(_shaped(given.value_field, wanted.value_field))
    if pa.types.is_large_string(given) or pa.types.is_large_binary(given):
        return given
    if given != wanted and not (pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted)):
        raise RuntimeError(f"{MARK}a column of type {wanted}: Spark hands it over as {given}")
    return wanted


def _runs(columns: Sequence[pa.Array[Any]]) -> Iterator[tuple[int, int, tuple[str | None, ...]]]:
    """Where rows of equal values start and stop, and the values."""
    count = len(columns[0])
    starts = [0]
    if count > 1:
        changed: pa.Array[Any] = reduce(cast(Any, pc).or_, map(_changes, columns))
        starts += [cast(int, position) + 1 for position in pc.indices_nonzero(changed).to_pylist()]
    for start, stop in zip(starts, [*starts[1:], count], strict=True):
        yield start, stop, tuple(_text(column[start]) for column in columns)


def _changes(column: pa.Array[Any]) -> pa.Array[Any]:
    """For each row but the first whether its value is not that of the row before."""
    compute: Any = pc
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    differ = compute.fill_null(compute.not_equal(before, after), False)
    return cast("pa.Array[Any]", compute.or_(differ, compute.not_equal(compute.is_null(before), compute.is_null(after))))


def _text(value: pa.Scalar[Any]) -> str | None:
    # Spark's strings may hold bytes that are no text; as the name of a folder they become one.
    return str(value.as_buffer().to_pybytes(), "utf-8", "replace") if value.is_valid else None  # type: ignore[attr-defined]


def _floats(schema: pa.Schema) -> Iterator[tuple[int, _Path]]:
    """The floats that are in no list or map: their leaf's number and the way to it."""
    leaf = 0
    for position, column in enumerate(schema):
        for path, leaf_type in _leaves(column.type):
            if path is not None and pa.types.is_floating(leaf_type):
                yield leaf, (position, *path)
            leaf += 1


def _leaves(data_type: pa.DataType) -> Iterator[tuple[_Path | None, pa.DataType]]:
    if isinstance(data_type, pa.StructType):
        for position, inner in enumerate(data_type):
            for path, leaf_type in _leaves(inner.type):
                yield None if path is None else (position, *path), leaf_type
    elif isinstance(data_type, pa.MapType):
        for inner_type in (data_type.key_type, data_type.item_type):
            yield from ((None, leaf_type) for _, leaf_type in _leaves(inner_type))
    elif isinstance(data_type, pa.ListType):
        yield from ((None, leaf_type) for _, leaf_type in _leaves(data_type.value_type))
    else:
        yield (), data_type


def _column(table: pa.Table, path: _Path) -> Any:
    column: Any = table.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


def _has_nan(table: pa.Table, path: _Path) -> bool:
    return bool(pc.any(pc.is_nan(_column(table, path))).as_py())


def _leaf_names(schema: pa.Schema) -> list[str]:
    """What Parquet calls the leaves, in their order."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema).close()
    sink.seek(0)
    leaves = pq.read_metadata(sink).schema
    return [leaves.column(leaf).path for leaf in range(len(leaves))]
