"""The files of a snapshot on their way to the JVM: one text for all of them, never an object per file.

The answer to Spark's "which files must this scan read" is bytes in network order: snapshot id (length, UTF-8); a byte per file, 0 for
files that cannot hold a match (length, or -1 for "all"); 1 and the files, or 0 where the JVM keeps that snapshot's files already. The
files are two texts: distinct partition tuples as JSON, then a line ``uri TAB size TAB modification time TAB tuple`` per file.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.column_mapping import physical_predicate
from lakelog.core.data_skipping import classify
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.paths import absolute_uris, canonical_key, decode_path
from lakelog.core.predicates import TRUE, Predicate
from lakelog.core.schema import DataType, DecimalType, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.core.stats_bounds import read_row_counts
from lakelog.spark.delta_logs import HeldSnapshot

NEVER, MAYBE, ALWAYS = 0, 1, 2
UNKNOWN_ROWS = -1

_NOT_THERE = re.compile(r"reading file (?P<encoded>\S+)\. File does not exist|File (?P<plain>/.+?|[a-z0-9]+:/.+?) does not exist")
_LOCAL_SCHEME = re.compile(r"^file:/+")


def classified(held: HeldSnapshot, predicate: Predicate) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """One of NEVER, MAYBE, ALWAYS per file of the snapshot, in the order of its files table."""
    snapshot = held.snapshot
    verdicts = classify(
        snapshot.files,
        physical_predicate(predicate, snapshot.schema, snapshot.mapping),
        schema=snapshot.physical_schema,
        partition_columns=snapshot.physical_partition_columns,
        parsed=held.parsed_bounds,
    )
    return np.asarray(verdicts.to_numpy(zero_copy_only=False), dtype=np.int8)


def row_counts(snapshot: Snapshot) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows of each file as its statistics tell, `UNKNOWN_ROWS` where they do not."""
    counts: Any = read_row_counts(cast(pa.StringArray, snapshot.files["stats"].combine_chunks()))
    known: Any = pc.fill_null(counts, UNKNOWN_ROWS)
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.int64)


def named_file(message: str, snapshot: Snapshot) -> str | None:
    """The file that Spark's or Hadoop's "does not exist" names, decoded, if it is below the table's root or a file of the snapshot."""
    found = _NOT_THERE.search(message)
    if found is None:
        return None
    path = _LOCAL_SCHEME.sub("/", found["plain"] or decode_path(found["encoded"]))
    if path.startswith(snapshot.root.rstrip("/") + "/"):
        return path
    if found["encoded"] is None:
        return None
    key = pa.scalar(canonical_key(found["encoded"], snapshot.root) + "|")
    return path if pc.any(pc.equal(snapshot.files["key"], key)).as_py() else None


def answer(held: HeldSnapshot, predicate: Predicate, *, with_files: bool) -> bytes:
    """The bytes of the module's docstring."""
    identity = held.id.encode()
    parts = [struct.pack(">i", len(identity)), identity]
    keep = None if predicate == TRUE else classified(held, predicate)
    if keep is None or bool((keep != NEVER).all()):
        parts.append(struct.pack(">i", -1))
    else:
        parts += [struct.pack(">i", len(keep)), (keep != NEVER).astype(np.uint8).tobytes()]
    parts.append(struct.pack(">i", int(with_files)))
    if with_files:
        for text in _files(held.snapshot):
            parts += [struct.pack(">i", len(text)), text]
    return b"".join(parts)


def _files(snapshot: Snapshot) -> tuple[bytes, bytes]:
    files = snapshot.files
    values: Any = files["partitionValues"].combine_chunks()
    tuples, tuple_of = partition_tuples(values, snapshot.physical_schema, snapshot.physical_partition_columns)
    join: Any = pc.binary_join_element_wise
    modified: Any = files["modificationTime"]
    times: Any = pc.fill_null(modified, 0)
    lines = join(
        absolute_uris(files["path"], snapshot.root),
        pc.cast(files["size"], pa.string()),
        pc.cast(times, pa.string()),
        pc.cast(tuple_of, pa.string()),
        "\t",
    )
    column = lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines
    bounds: Any = pa.array([0, len(column)], pa.int64())
    whole: Any = pc.binary_join(pa.LargeListArray.from_arrays(bounds, column), "\n")
    return orjson.dumps(tuples), whole[0].as_buffer().to_pybytes() if len(column) else b""


def partition_tuples(values: pa.MapArray[Any, Any], schema: StructType, columns: Sequence[str]) -> tuple[list[list[object]], pa.Array[Any]]:
    """The distinct partition tuples, typed as the JVM reads them, and each file's number among them; columns by their physical names."""
    if not columns:
        return [[]], pa.array(np.zeros(len(values), np.int32))
    texts = [pc.map_lookup(values, name, "first") for name in columns]
    numbers = np.zeros(len(values), np.int64)
    for text in texts:
        codes = pc.fill_null(text.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        _, numbers = np.unique(numbers * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    _, first, tuple_of = np.unique(numbers, return_index=True, return_inverse=True)
    typed = []
    for name, text in zip(columns, texts, strict=True):
        data_type = schema.find((name,)).type
        typed.append(_jvm_values(parse_partition_column(text.take(pa.array(first)), data_type), data_type))
    return [list(row) for row in zip(*typed, strict=True)], pa.array(tuple_of.astype(np.int32))


def _jvm_values(values: pa.Array[Any], data_type: DataType) -> list[object]:
    name = getattr(data_type, "name", "")
    if name == "date":
        return list(pc.cast(values, pa.int32()).to_pylist())
    if name in ("timestamp", "timestamp_ntz"):
        return list(values.cast(pa.int64()).to_pylist())
    if name == "binary":
        return [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
    if name in ("float", "double"):
        return [None if v is None else _java_double(v) for v in values.to_pylist()]
    if isinstance(data_type, DecimalType):
        return [None if v is None else str(v) for v in values.to_pylist()]
    return list(values.to_pylist())


def _java_double(value: float) -> str:
    if np.isnan(value):
        return "NaN"
    return repr(value) if np.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
