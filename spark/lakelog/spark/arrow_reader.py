"""What an executor's Python does for a scan of the Arrow engine: reads the parts of files that its task names.

No pyspark, nothing of the driver: a `TableReader` is all that comes from there, and it holds no credentials.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.core.errors import DataFileMissingError, LakelogError, StorageError
from lakelog.core.footer_bounds import FooterBounds, leaf_bounds
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.paths import decode_path
from lakelog.core.predicates import TRUE, Column, Predicate
from lakelog.core.schema import DataType, StructField, StructType, parse_schema, to_arrow
from lakelog.spark.arrow_columns import conform, has_ids, has_old_time, in_julian_calendar, leaf_of, leaves, nulls, width
from lakelog.spark.arrow_skipping import matching, may_match
from lakelog.spark.executor_access import ExecutorAccess
from lakelog.storage.file_access import FileAccess

# What one batch holds: enough to forget what it costs to hand it over, little enough for the JVM to keep a few of them.
_BATCH_ROWS = 65_536
_BATCH_BYTES = 8 << 20
_COUNT_ROWS = 1 << 20
# Files that are opened while another one is read, and how much of a file is then read at once.
_AHEAD = 4
_SMALL_BYTES = 8 << 20
_BATCHES_AHEAD = 2
_POLL_S = 0.2


class Task(TypedDict):
    """Parts of files, a column each; of a file those row groups are read whose middle lies in the part."""

    uris: list[str]
    sizes: list[int]
    modified_ms: list[int]
    numbers: list[int]
    starts: list[int]
    lengths: list[int]
    values: list[list[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What all tasks of a scan do.

    Attributes:
        table: root, for messages.
        columns: kind and name of each column of the answer. The kinds: ``data``; ``partition``, whose values `Task` has in their order;
            ``number``, of the file in the snapshot; ``row_index``; ``metadata``, a field of Spark's ``_metadata``; ``rows``, which only
            counts them.
        types: the answer's schema as JSON, nullable throughout; of data columns the parts that are asked for.
        physical: the schema of the ``data`` columns as files have them, as JSON.
        by_id: whether field ids find the columns of a file.
        predicate: what may be skipped for, in the names of the ``data`` columns; `weakened`.
        access: opens files.
        missing: what to tell of a file that is not there.
    """

    table: str
    columns: tuple[tuple[str, str], ...]
    types: str
    physical: str
    by_id: bool
    predicate: Predicate
    access: ExecutorAccess
    missing: str


class TableReader:
    """The function that Spark maps over tasks.

    Args:
        scan: what is read.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Record batches of the scan's types for the tasks, a JSON text each, in the first column of what comes in.

        Raises:
            DataFileMissingError: a file is not there.
            StorageError: a file cannot be read, or not as what the table says.
        """
        reader = _Reader(self._scan, self._scan.access.get())
        for batch in batches:
            for text in cast("list[str]", batch.column(0).to_pylist()):
                yield from _ahead(reader.read(cast(Task, orjson.loads(text))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of a file that is open.

    Attributes:
        file: the file.
        runs: neighbouring row groups to read, and the number of the first row of each run.
        names: the Parquet columns to read.
        batch_rows: rows that are read at once.
        bytes: what there is to read.
        julian: whether old dates and times need Spark's own reader.
    """

    file: pq.ParquetFile
    runs: list[tuple[int, list[int]]]
    names: list[str]
    batch_rows: int
    bytes: int
    julian: bool

    def rows(self, run: Sequence[int]) -> int:
        return sum(self.file.metadata.row_group(group).num_rows for group in run)


class _Reader:
    def __init__(self, scan: Scan, access: FileAccess) -> None:
        self._scan = scan
        self._access = access
        self._filesystem = access.filesystem()
        self._types = parse_schema(scan.types)
        self._there = parse_schema(scan.physical)
        self._data = [i for i, (kind, _) in enumerate(scan.columns) if kind == "data"]
        names = [scan.columns[i][1] for i in self._data]
        self._wanted = StructType(tuple(StructField(name, self._types.fields[i].type) for i, name in zip(self._data, names, strict=True)))
        self._partitions = [i for i, (kind, _) in enumerate(scan.columns) if kind == "partition"]

    @cached_property
    def _schema(self) -> pa.Schema:
        return to_arrow(self._types)

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task. Files are opened, and small ones read, while the one before is on its way."""
        count = len(task["uris"])
        if count == 1:
            yield from self._batches(task, 0, self._opened(task, 0))
            return
        waiting: deque[tuple[int, Future[_Part | list[pa.RecordBatch]]]] = deque()
        pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="lakelog-scan")
        try:
            for number in range(count):
                waiting.append((number, pool.submit(self._begun, task, number)))
                if len(waiting) > _AHEAD:
                    yield from self._finished(task, *waiting.popleft())
            while waiting:
                yield from self._finished(task, *waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _begun(self, task: Task, number: int) -> _Part | list[pa.RecordBatch]:
        part = self._opened(task, number)
        return list(self._batches(task, number, part)) if part.bytes <= _SMALL_BYTES else part

    def _finished(self, task: Task, number: int, begun: Future[_Part | list[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        found = begun.result()
        yield from found if isinstance(found, list) else self._batches(task, number, found)

    def _opened(self, task: Task, number: int) -> _Part:
        uri = task["uris"][number]
        with self._told(uri):
            source = self._filesystem.open_input_file(self._access.path(uri))
            # A local file is near; elsewhere all that is wanted is asked for at once.
            file = pq.ParquetFile(source, pre_buffer=self._access.kind != "file", coerce_int96_timestamp_unit="us")
            footer, schema = file.metadata, file.schema_arrow
            if self._scan.by_id and self._data and not has_ids(schema):
                raise pa.ArrowInvalid("it has no field ids, by which columns of this table are found")
            wanted = leaves(self._there, schema, by_id=self._scan.by_id)
            if width(schema) != footer.num_columns:
                raise pa.ArrowInvalid(f"{footer.num_columns} columns make no {schema}")
            first = task["starts"][number]
            groups = [g for g in _groups(footer, first, first + task["lengths"][number]) if self._may_match(footer, schema, g)]
            chunks = [footer.row_group(group).column(leaf) for group in groups for leaf in wanted]
            size = sum(chunk.total_compressed_size for chunk in chunks)
            rows = sum(footer.row_group(group).num_rows for group in groups)
            plain = sum(chunk.total_uncompressed_size for chunk in chunks)
            fitting = _BATCH_BYTES * rows // max(plain, 1)
            return _Part(
                file=file,
                runs=_runs(footer, groups),
                names=[footer.schema.column(leaf).path for leaf in wanted],
                batch_rows=max(1, min(_BATCH_ROWS, fitting)) if wanted else _COUNT_ROWS,
                bytes=size,
                julian=in_julian_calendar(footer.metadata or {}),
            )

    def _may_match(self, footer: pq.FileMetaData, schema: pa.Schema, group: int) -> bool:
        def bounds(column: Column) -> tuple[DataType, FooterBounds] | None:
            found = leaf_of(column.path, self._wanted, self._there, schema, by_id=self._scan.by_id)
            return None if found is None else (found[1], leaf_bounds(footer, found[0], found[1], groups=[group]))

        if self._scan.predicate == TRUE:
            return True
        return may_match(self._scan.predicate, bounds, footer.row_group(group).num_rows)

    def _batches(self, task: Task, number: int, part: _Part) -> Iterator[pa.RecordBatch]:
        with self._told(task["uris"][number]), part.file:
            constants = self._constants(task, number)
            for first, run in part.runs:
                row = first
                for columns, rows in self._decoded(part, run):
                    yield from self._answers(columns, rows, row, constants)
                    row += rows

    def _decoded(self, part: _Part, run: list[int]) -> Iterator[tuple[list[Any], int]]:
        """The data columns of row groups as the table has them, and the number of their rows."""
        if not part.names:
            left = part.rows(run)
            while left > 0:
                rows = min(left, part.batch_rows)
                yield [nulls(rows, field.type) for field in self._wanted.fields], rows
                left -= rows
            return
        for batch in part.file.iter_batches(part.batch_rows, row_groups=run, columns=part.names):
            whole = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            columns = conform(whole, self._wanted, self._there, by_id=self._scan.by_id).flatten()
            if part.julian and any(has_old_time(column) for column in columns):
                raise pa.ArrowInvalid(
                    "it has dates or times of the Julian calendar, which Spark 2 wrote and only the native engine converts; set "
                    "spark.lakelog.engine to native"
                )
            yield columns, batch.num_rows

    def _answers(self, columns: list[Any], rows: int, first: int, constants: Mapping[int, Any]) -> Iterator[pa.RecordBatch]:
        given = dict(zip(self._data, columns, strict=True))
        arrays = []
        for position, (kind, _) in enumerate(self._scan.columns):
            if kind == "data":
                arrays.append(given[position])
            elif kind == "row_index":
                arrays.append(pa.array(np.arange(first, first + rows, dtype=np.int64)))
            else:
                arrays.append(pa.repeat(constants[position], rows))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._scan.predicate != TRUE:
            names = [name if kind == "data" else f"\0{i}" for i, (kind, name) in enumerate(self._scan.columns)]
            kept = matching(self._scan.predicate, batch.rename_columns(names))
            if kept is None:
                return
            batch = pa.RecordBatch.from_arrays(kept.columns, schema=self._schema)
        # What a dictionary held together may be far more than the footer told.
        pieces = min(batch.num_rows, -(-batch.nbytes // (4 * _BATCH_BYTES)))
        step = -(-batch.num_rows // max(pieces, 1))
        for start in range(0, batch.num_rows, step or 1):
            yield batch.slice(start, step)

    def _constants(self, task: Task, number: int) -> dict[int, Any]:
        """What is the same for all rows of a part, by its position in the answer."""
        uri = task["uris"][number]
        told = {
            # As Hadoop prints it.
            "file_path": uri.replace("file:///", "file:/", 1) if uri.startswith("file:///") else uri,
            "file_name": uri.rpartition("/")[2],
            "file_size": task["sizes"][number],
            "file_block_start": task["starts"][number],
            "file_block_length": task["lengths"][number],
            "file_modification_time": task["modified_ms"][number] * 1000,
        }
        found = {}
        texts = dict(zip(self._partitions, task["values"][number], strict=True))
        for position, (kind, name) in enumerate(self._scan.columns):
            if kind == "partition":
                found[position] = parse_partition_column(pa.array([texts[position]], pa.string()), self._types.fields[position].type)[0]
            elif kind == "rows":
                found[position] = pa.scalar(True)
            elif kind == "number":
                found[position] = pa.scalar(task["numbers"][number], pa.int64())
            elif kind == "metadata":
                found[position] = pa.scalar(told[name.lower()], self._schema.field(position).type)
        return found

    @contextmanager
    def _told(self, uri: str) -> Iterator[None]:
        """Errors of a file in words that name it."""
        try:
            yield
        except LakelogError:
            raise
        except FileNotFoundError:
            raise DataFileMissingError(
                f"Delta table {self._scan.table}: data file {_shown(uri)} is named by the log but is not there. {self._scan.missing}"
            ) from None
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            said = " ".join(str(error).split())
            raise StorageError(
                f"Delta table {self._scan.table}: data file {_shown(uri)} cannot be read: {said}. Restore the file from a copy, or read a "
                "version of the table that does not have it."
            ) from None


def _shown(uri: str) -> str:
    path = decode_path(uri)
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def _groups(footer: pq.FileMetaData, start: int, end: int) -> Iterator[int]:
    """The row groups whose middle lies between two offsets, as Parquet's own readers split files."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows == 0:
            continue
        chunks = [group.column(leaf) for leaf in range(group.num_columns)]
        first = chunks[0]
        begins = first.data_page_offset
        if first.has_dictionary_page and first.dictionary_page_offset and first.dictionary_page_offset < begins:
            begins = first.dictionary_page_offset
        middle = begins + sum(chunk.total_compressed_size for chunk in chunks) // 2
        if start <= middle < end:
            yield number


def _runs(footer: pq.FileMetaData, groups: list[int]) -> list[tuple[int, list[int]]]:
    firsts = [0, *itertools.accumulate(footer.row_group(number).num_rows for number in range(footer.num_row_groups))]
    runs: list[tuple[int, list[int]]] = []
    for group in groups:
        if runs and runs[-1][1][-1] == group - 1:
            runs[-1][1].append(group)
        else:
            runs.append((firsts[group], [group]))
    return runs


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, made in a thread of their own a little ahead of who takes them."""
    ready: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_BATCHES_AHEAD)
    stopped = threading.Event()

    def hand(item: pa.RecordBatch | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=_POLL_S)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for batch in batches:
                if not hand(batch):
                    return
            hand(None)
        except BaseException as error:
            hand(error)

    maker = threading.Thread(target=make, name="lakelog-scan", daemon=True)
    maker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
