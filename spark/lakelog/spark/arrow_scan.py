"""The Arrow engine's scans: which part of which file each task reads. Spark plans a scan (ArrowScan.java); what is read is decided here.

Spark applies every filter again above the scan, but for those of partition columns, which have chosen the files. What is pushed into the
tasks serves to read less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from lakelog.core import errors
from lakelog.core.column_mapping import MappingMode
from lakelog.core.errors import ColumnNotFoundError, LakelogError
from lakelog.core.paths import absolute_uris
from lakelog.core.predicates import TRUE, Predicate
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, nullable_schema, parse_schema, to_arrow
from lakelog.core.snapshot import Snapshot
from lakelog.spark import jvm
from lakelog.spark.arrow_reader import Scan, TableReader, Task
from lakelog.spark.arrow_skipping import weakened
from lakelog.spark.conditions import parse_filters
from lakelog.spark.executor_access import executor_access, lacking
from lakelog.storage.file_access import FileAccess

_TOLD = re.compile(r"lakelog\.core\.errors\.(?P<kind>\w+): (?P<message>[^\n]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How Spark packs files into tasks.

    Attributes:
        most_bytes: of a task.
        open_bytes: what opening a file counts as.
        least_tasks: so many, where the table is large enough.
        most_tasks: so many, None for any number.
    """

    most_bytes: int
    open_bytes: int
    least_tasks: int
    most_tasks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What the JVM wants of a scan.

    Attributes:
        columns: kind and name of each column, as `Scan.columns` has them.
        types: theirs, of nested ones the parts that are asked for; nullable throughout.
        filters: of the query, in the names of the columns; they need not be applied.
        packing: of the session.
        files: a byte per file of the snapshot, 0 for those that are not read.
    """

    columns: tuple[tuple[str, str], ...]
    types: StructType
    filters: Predicate
    packing: Packing
    files: bytes

    @classmethod
    def parse(cls, columns: str, types: str, filters: str, packing: Sequence[int | None], files: bytes) -> ScanRequest:
        """As ArrowScan.java tells it, filters in the form of ExpressionText."""
        most_bytes, open_bytes, least_tasks, most_tasks = packing
        return cls(
            columns=tuple((str(kind), str(name)) for kind, name in orjson.loads(columns)),
            types=nullable_schema(parse_schema(types)),
            filters=TRUE if filters == "[]" else parse_filters(filters),
            packing=Packing(
                most_bytes=most_bytes or 1, open_bytes=open_bytes or 0, least_tasks=max(least_tasks or 1, 1), most_tasks=most_tasks
            ),
            files=files,
        )


class ArrowScans:
    """The scans of one driver, and whether there were any."""

    def __init__(self) -> None:
        self.used = False

    def planned(self, spark: SparkSession, snapshot: Snapshot, access: FileAccess, asked: ScanRequest, missing: str) -> DataFrame | None:
        """The rows of a scan, its columns called ``c0``, ``c1``, ...

        Args:
            snapshot: of the table.
            access: how its files are opened.
            asked: what is read.
            missing: what to tell of a file that is not there.

        Returns:
            None where no file is read.

        Raises:
            UnsupportedTypeError: a column has a type without an Arrow form.
        """
        to_arrow(asked.types)
        pairs = zip(asked.columns, asked.types.fields, strict=True)
        data = StructType(tuple(StructField(name, field.type) for (kind, name), field in pairs if kind == "data"))
        partitions = _physical_names(snapshot, [name for kind, name in asked.columns if kind == "partition"])
        tasks = [orjson.dumps(task).decode() for task in _tasks(snapshot, asked.files, partitions, asked.packing)]
        if not tasks:
            return None
        scan = Scan(
            table=snapshot.root,
            columns=asked.columns,
            types=asked.types.to_json(),
            physical=_in_files(data, snapshot.schema, snapshot.physical_schema).to_json(),
            by_id=snapshot.mapping is MappingMode.ID,
            predicate=weakened(asked.filters, data.names),
            access=executor_access(spark, access),
            missing=missing,
        )
        self.used = True
        answered = SparkStructType.fromJson(orjson.loads(scan.types))
        frame = jvm.task_frame(spark, "\n".join(tasks))
        return jvm.map_in_arrow(frame, spark, TableReader(scan), answered, "lakelog_scan")

    def explained(self, message: str) -> BaseException | None:
        """Our error for what an executor's Python said, else None."""
        if not self.used:
            return None
        if (told := _TOLD.search(message)) is not None:
            kind = getattr(errors, told["kind"], None)
            if isinstance(kind, type) and issubclass(kind, LakelogError):
                return kind(told["message"].strip())
        return lacking([message])


def _tasks(snapshot: Snapshot, wanted: bytes, partitions: Sequence[str], packing: Packing) -> Iterator[Task]:
    """The files cut and packed as Spark does it for its own scans."""
    chosen = np.flatnonzero(np.frombuffer(wanted, np.uint8))
    if not len(chosen):
        return
    files = snapshot.files.select(["path", "size", "modificationTime", "partitionValues"]).take(cast(Any, pa.array(chosen)))
    sizes = _numbers(files["size"])
    total = int((sizes + packing.open_bytes).sum())
    most = max(1, min(packing.most_bytes, max(packing.open_bytes, total // packing.least_tasks)))
    counts = np.maximum(-(-sizes // most), 0)
    file_of = np.repeat(np.arange(len(chosen)), counts)
    starts = (np.arange(len(file_of)) - np.repeat(np.cumsum(counts) - counts, counts)) * most
    lengths = np.minimum(most, sizes[file_of] - starts)
    order = np.argsort(-lengths, kind="stable")
    bounds = _packed(lengths[order], most, packing.open_bytes)
    if packing.most_tasks is not None and len(bounds) - 1 > packing.most_tasks:
        share = -(-int((lengths + packing.open_bytes).sum()) // packing.most_tasks)
        bounds = _packed(lengths[order], share, packing.open_bytes)
    uris: Any = absolute_uris(files["path"], snapshot.root)
    values: Any = files["partitionValues"].combine_chunks()
    texts = [pc.map_lookup(values, name, "first") for name in partitions]
    modified: Any = pc.fill_null(cast(Any, files["modificationTime"]), 0)
    for first, end in pairwise(bounds):
        parts = order[first:end]
        at = file_of[parts]
        rows = pa.array(at)
        columns = [text.take(rows).to_pylist() for text in texts]
        yield Task(
            uris=uris.take(rows).to_pylist(),
            sizes=sizes[at].tolist(),
            modified_ms=modified.take(rows).to_pylist(),
            numbers=chosen[at].tolist(),
            starts=starts[parts].tolist(),
            lengths=lengths[parts].tolist(),
            values=[list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in parts],
        )


def _numbers(column: Any) -> Any:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _packed(lengths: Any, most: int, open_bytes: int) -> list[int]:
    """Where one task ends and the next begins: files are taken in turn, a new task begun with one that does not fit."""
    bounds, filled = [0], 0
    for number, length in enumerate(lengths.tolist()):
        if filled + length > most and number > bounds[-1]:
            bounds.append(number)
            filled = 0
        filled += length + open_bytes
    return [*bounds, len(lengths)]


def _physical_names(snapshot: Snapshot, names: Sequence[str]) -> list[str]:
    there = zip(snapshot.partition_columns, snapshot.physical_partition_columns, strict=True)
    known = {name.lower(): physical for name, physical in there}
    return [known[name.lower()] for name in names]


def _in_files(wanted: StructType, known: StructType, there: StructType) -> StructType:
    """A part of the table's schema under the names and ids that files have."""
    fields = []
    for field in wanted.fields:
        at = _position(field.name, known)
        inside = there.fields[at]
        fields.append(StructField(inside.name, _type_in_files(field.type, known.fields[at].type, inside.type), True, inside.metadata))
    return StructType(tuple(fields))


def _type_in_files(wanted: DataType, known: DataType, there: DataType) -> DataType:
    match wanted, known, there:
        case StructType(), StructType(), StructType():
            return _in_files(wanted, known, there)
        case ArrayType(element), ArrayType(known_element), ArrayType(inside):
            return ArrayType(_type_in_files(element, known_element, inside))
        case MapType(key, value), MapType(known_key, known_value), MapType(inside_key, inside_value):
            return MapType(_type_in_files(key, known_key, inside_key), _type_in_files(value, known_value, inside_value))
        case _:
            return wanted


def _position(name: str, known: StructType) -> int:
    names = known.names
    if name in names:
        return names.index(name)
    lower = [other.lower() for other in names]
    if name.lower() not in lower:
        raise ColumnNotFoundError(f"There is no column {name}; there are: {', '.join(names)}.")
    return lower.index(name.lower())
