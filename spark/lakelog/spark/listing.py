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

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.data_skipping import classify
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.paths import absolute_uris, decode_path
from lakelog.core.predicates import TRUE, Predicate
from lakelog.core.schema import DataType, DecimalType, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.core.stats_bounds import read_row_counts

NEVER, MAYBE, ALWAYS = 0, 1, 2
UNKNOWN_ROWS = -1


def classified(snapshot: Snapshot, predicate: Predicate) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """One of NEVER, MAYBE, ALWAYS per file of the snapshot, in the order of its files table."""
    verdicts = classify(snapshot.files, predicate, schema=snapshot.schema, partition_columns=snapshot.partition_columns)
    return np.asarray(verdicts.to_numpy(zero_copy_only=False), dtype=np.int8)


def row_counts(snapshot: Snapshot) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows of each file as its statistics tell, `UNKNOWN_ROWS` where they do not."""
    counts = read_row_counts(snapshot.files["stats"].combine_chunks())
    return np.asarray(pc.fill_null(counts, UNKNOWN_ROWS).to_numpy(zero_copy_only=False), dtype=np.int64)


def named_file(message: str, root: str) -> str | None:
    """The file below a table's root that a message names, decoded; None when it names none."""
    found = re.search(r"(?:file:)?(?://)?(" + re.escape(root.rstrip("/")) + r"/[^\s'\"]+)", decode_path(message))
    return None if found is None else found[1].rstrip(".,;")


def answer(snapshot_id: str, snapshot: Snapshot, predicate: Predicate, *, with_files: bool) -> bytes:
    """The bytes of the module's docstring."""
    identity = snapshot_id.encode()
    parts = [struct.pack(">i", len(identity)), identity]
    keep = None if predicate == TRUE else classified(snapshot, predicate)
    if keep is None or bool((keep != NEVER).all()):
        parts.append(struct.pack(">i", -1))
    else:
        parts += [struct.pack(">i", len(keep)), (keep != NEVER).astype(np.uint8).tobytes()]
    parts.append(struct.pack(">i", int(with_files)))
    if with_files:
        for text in _files(snapshot):
            parts += [struct.pack(">i", len(text)), text]
    return b"".join(parts)


def _files(snapshot: Snapshot) -> tuple[bytes, bytes]:
    files = snapshot.files
    tuples, tuple_of = partition_tuples(files["partitionValues"].combine_chunks(), snapshot.schema, snapshot.partition_columns)
    lines = pc.binary_join_element_wise(
        absolute_uris(files["path"], snapshot.root),
        pc.cast(files["size"], pa.string()),
        pc.cast(pc.fill_null(files["modificationTime"], 0), pa.string()),
        pc.cast(tuple_of, pa.string()),
        "\t",
    )
    column = lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines
    whole = pc.binary_join(pa.LargeListArray.from_arrays([0, len(column)], column), "\n")
    return orjson.dumps(tuples), whole[0].as_buffer().to_pybytes() if len(column) else b""


def partition_tuples(values: pa.MapArray, schema: StructType, columns: Sequence[str]) -> tuple[list[list[object]], pa.Array]:
    """The distinct partition tuples, typed as the JVM reads them, and each file's number among them."""
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


def _jvm_values(values: pa.Array, data_type: DataType) -> list[object]:
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
