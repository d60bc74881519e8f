"""File actions as Arrow columns: a table of a million files is a handful of buffers, not a million Python objects.

`FILES_SCHEMA` holds live files and `TOMBSTONES_SCHEMA` removed ones; both carry ``key``, the identity that
PROTOCOL.md ("Action Reconciliation") gives a logical file: canonical path, ``|``, unique id of its deletion vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import AddFile, DeletionVectorDescriptor, RemoveFile
from lakelog.core.arrow_text import join_text
from lakelog.core.errors import CorruptLogError
from lakelog.core.paths import FEW, canonical_key, canonical_keys

STRING_MAP = pa.map_(pa.string(), pa.string())

DELETION_VECTOR = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)

_FILE_FIELDS: list[pa.Field[Any]] = [
    pa.field("path", pa.string()),
    pa.field("partitionValues", STRING_MAP),
    pa.field("size", pa.int64()),
    pa.field("modificationTime", pa.int64()),
    pa.field("stats", pa.string()),
    pa.field("tags", STRING_MAP),
    pa.field("deletionVector", DELETION_VECTOR),
    pa.field("baseRowId", pa.int64()),
    pa.field("defaultRowCommitVersion", pa.int64()),
    pa.field("clusteringProvider", pa.string()),
    pa.field("key", pa.string()),
]
FILES_SCHEMA = pa.schema(_FILE_FIELDS)

_TOMBSTONE_FIELDS: list[pa.Field[Any]] = [
    pa.field("path", pa.string()),
    pa.field("deletionTimestamp", pa.int64()),
    pa.field("dataChange", pa.bool_()),
    pa.field("extendedFileMetadata", pa.bool_()),
    pa.field("partitionValues", STRING_MAP),
    pa.field("size", pa.int64()),
    pa.field("deletionVector", DELETION_VECTOR),
    pa.field("baseRowId", pa.int64()),
    pa.field("defaultRowCommitVersion", pa.int64()),
    pa.field("key", pa.string()),
]
TOMBSTONES_SCHEMA = pa.schema(_TOMBSTONE_FIELDS)


def _sort(data_type: pa.DataType) -> str:
    if pa.types.is_map(data_type):
        return "map"
    if pa.types.is_struct(data_type):
        return "struct"
    return "integer" if pa.types.is_integer(data_type) else "other"


# Name, sort and type of every field but the last, ``key``.
_READ_AS = {
    kind: [(field.name, _sort(field.type), field.type) for field in fields[:-1]]
    for kind, fields in (("add", _FILE_FIELDS), ("remove", _TOMBSTONE_FIELDS))
}

_TYPES = {kind: {name: data_type for name, _, data_type in fields} for kind, fields in _READ_AS.items()}
_NULLS = {kind: {name: pa.nulls(FEW, type=data_type) for name, data_type in types.items()} for kind, types in _TYPES.items()}


@cache
def _no_pairs() -> pa.Array[Any]:
    """Arrow makes maps slowly, and those of an unpartitioned table are all empty."""
    return pa.array([[]] * FEW, type=STRING_MAP)


_REQUIRED: Mapping[str, Sequence[str]] = {
    "add": ("path", "partitionValues", "size", "modificationTime"),
    "remove": ("path",),
}

# What Arrow raises for a value that does not fit the column, and Python for a row that is no object.
MISFITS = (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError)

JsonRow: TypeAlias = dict[str, object]
# Parsed rows that wait as Python objects before they become columns.
ROWS_PER_CHUNK = 8192


class MisfitError(Exception):
    """Rows that the columns cannot hold; which row and why is for the codec of one action to say."""


def rows_to_files(rows: Sequence[JsonRow], root: str) -> pa.RecordBatch:
    """The inner objects of ``add`` actions as a batch of `FILES_SCHEMA`.

    Args:
        rows: parsed JSON.
        root: the table's root, unencoded; paths are canonical in relation to it.

    Raises:
        MisfitError: a field is missing or of the wrong type.
    """
    return _rows_to_batch(rows, FILES_SCHEMA, "add", root)


def rows_to_tombstones(rows: Sequence[JsonRow], root: str) -> pa.RecordBatch:
    """The inner objects of ``remove`` actions as a batch of `TOMBSTONES_SCHEMA`; see `rows_to_files`."""
    return _rows_to_batch(rows, TOMBSTONES_SCHEMA, "remove", root)


def structs_to_files(structs: pa.StructArray, root: str) -> pa.RecordBatch:
    """The non-null rows of a checkpoint's ``add`` column as a batch of `FILES_SCHEMA`.

    Raises:
        CorruptLogError: a required field is missing or a column has a type that the protocol does not give it.
    """
    return _structs_to_batch(structs, FILES_SCHEMA, "add", root)


def structs_to_tombstones(structs: pa.StructArray, root: str) -> pa.RecordBatch:
    """The non-null rows of a checkpoint's ``remove`` column as a batch of `TOMBSTONES_SCHEMA`; see `structs_to_files`."""
    return _structs_to_batch(structs, TOMBSTONES_SCHEMA, "remove", root)


def files_to_adds(files: pa.Table) -> list[AddFile]:
    """One `AddFile` per row of a `FILES_SCHEMA` table; for the few files that a plan or a commit touches.

    ``data_change`` is False: that a file is part of the table changes no data.
    """
    return [
        AddFile(
            path=row["path"],
            partition_values=dict(row["partitionValues"]),
            size=row["size"],
            modification_time=row["modificationTime"],
            data_change=False,
            stats=row["stats"],
            tags=None if row["tags"] is None else dict(row["tags"]),
            deletion_vector=_descriptor(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
            clustering_provider=row["clusteringProvider"],
        )
        for row in files.to_pylist()
    ]


def tombstones_to_removes(tombstones: pa.Table) -> list[RemoveFile]:
    """One `RemoveFile` per row of a `TOMBSTONES_SCHEMA` table, without statistics and tags."""
    return [
        RemoveFile(
            path=row["path"],
            deletion_timestamp=row["deletionTimestamp"],
            data_change=bool(row["dataChange"]),
            extended_file_metadata=row["extendedFileMetadata"],
            partition_values=None if row["partitionValues"] is None else dict(row["partitionValues"]),
            size=row["size"],
            deletion_vector=_descriptor(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
        )
        for row in tombstones.to_pylist()
    ]


def logical_keys(paths: pa.StringArray, vectors: pa.StructArray, root: str) -> pa.StringArray:
    """The ``key`` column: canonical path, ``|``, unique id of the deletion vector or nothing.

    Raises:
        PathEscapesTableError: a path leaves the table by ``..``.
    """
    plain = vectors.null_count == len(vectors)
    if plain and not paths.null_count and len(paths) <= FEW:
        return pa.array([f"{canonical_key(path, root)}|" for path in cast(list[str], paths.to_pylist())], pa.string())
    keys = canonical_keys(paths, root)
    if plain:
        return join_text(keys, "|")
    storage, location, offset = (pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset"))
    at = join_text("@", offset.cast(pa.string())).fill_null("")
    return join_text(keys, "|", join_text(storage, location, at).fill_null(""))


def _rows_to_batch(rows: Sequence[JsonRow], schema: pa.Schema, kind: str, root: str) -> pa.RecordBatch:
    if len(rows) <= FEW and (batch := _few_to_batch(rows, schema, kind, root)) is not None:
        return batch
    # Any: what the stubs call an array depends on its type, which the schema gives here.
    columns: dict[str, Any] = {}
    try:
        for name, sort, data_type in _READ_AS[kind]:
            values: list[object] = [row.get(name) for row in rows]
            if values.count(None) == len(values):
                columns[name] = pa.nulls(len(values), type=data_type)
                continue
            if sort == "map":
                values = [None if value is None else list(value.items()) for value in values]  # type: ignore[attr-defined]
            elif sort == "integer":
                _refuse_fractions(values)
            elif sort == "struct":
                _refuse_fractions([part for value in values if value is not None for part in value.values()])  # type: ignore[attr-defined]
            columns[name] = pa.array(values, type=data_type)
    except MISFITS as error:
        raise MisfitError(str(error)) from error
    if any(columns[name].null_count for name in _REQUIRED[kind]):
        raise MisfitError("a required field is missing")
    columns["key"] = logical_keys(columns["path"], columns["deletionVector"], root)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _few_to_batch(rows: Sequence[JsonRow], schema: pa.Schema, kind: str, root: str) -> pa.RecordBatch | None:
    """A few rows without deletion vectors in one call of Arrow, since the calls cost more than the rows; None where they have any."""
    try:
        told = {name for row in rows for name, value in row.items() if value is not None}
        if "deletionVector" in told:
            return None
        unpartitioned = all(row.get("partitionValues") == {} for row in rows)
        if unpartitioned:
            told.discard("partitionValues")
        names = tuple(sorted(told & _TYPES[kind].keys()))
        whole: list[JsonRow] = []
        for row in rows:
            path = row.get("path")
            if type(path) is not str:
                return None
            changed: JsonRow = {**row, "key": _plain_key(path, root)}
            for name, sort in _of_note(kind, names):
                value = row.get(name)
                if sort == "map" and value is not None:
                    changed[name] = list(value.items())  # type: ignore[attr-defined]
                elif type(value) is float:
                    _refuse_fractions([value])
            whole.append(changed)
        structs = cast(pa.StructArray, pa.array(whole, type=_struct(kind, names)))
    except MISFITS as error:
        raise MisfitError(str(error)) from error
    columns: dict[str, pa.Array[Any]] = dict(zip((*names, "key"), structs.flatten(), strict=True))
    if unpartitioned:
        columns["partitionValues"] = _no_pairs().slice(0, len(rows))
    if any(name not in columns or columns[name].null_count for name in _REQUIRED[kind]):
        raise MisfitError("a required field is missing")
    nulls = _NULLS[kind]
    given = [columns[name] if name in columns else nulls[name].slice(0, len(rows)) for name in schema.names]
    return pa.RecordBatch.from_arrays(given, schema=schema)


@lru_cache(maxsize=4096)
def _plain_key(path: str, root: str) -> str:
    """The key of a file without a deletion vector; a commit that is new is read by the commit loop, and again by the fold."""
    return f"{canonical_key(path, root)}|"


@lru_cache(maxsize=256)
def _struct(kind: str, names: tuple[str, ...]) -> pa.StructType:
    types = _TYPES[kind]
    return pa.struct([*((name, types[name]) for name in names), ("key", pa.string())])


@lru_cache(maxsize=256)
def _of_note(kind: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """The fields whose values Arrow does not take as they are, or not as strictly as it should."""
    return [(name, sort) for name, sort, _ in _READ_AS[kind] if name in names and sort in ("map", "integer")]


def _refuse_fractions(values: Sequence[object]) -> None:
    """Arrow would cut 1.5, and what is too large for 64 bits comes out of JSON as a float."""
    if float in set(map(type, values)):
        raise TypeError("a number with a fraction, or one of more than 64 bits, in a field of integers")


def _structs_to_batch(structs: pa.StructArray, schema: pa.Schema, kind: str, root: str) -> pa.RecordBatch:
    present = structs.drop_null() if structs.null_count else structs
    children = dict(zip((field.name for field in present.type), present.flatten(), strict=True))
    # Any: what the stubs call an array depends on its type, which the schema gives here.
    columns: dict[str, Any] = {}
    for field in schema:
        if field.name == "key":
            continue
        child = children.get(field.name)
        if child is None:
            columns[field.name] = pa.nulls(len(present), type=field.type)
            continue
        try:
            columns[field.name] = conform(child, field.type)
        except MISFITS as error:
            raise CorruptLogError(
                f"checkpoint column {kind}.{field.name} has type {child.type}, which does not fit {field.type}"
            ) from error
    for name in _REQUIRED[kind]:
        if columns[name].null_count:
            raise CorruptLogError(f"checkpoint column {kind}.{name} holds a null")
    columns["key"] = logical_keys(columns["path"], columns["deletionVector"], root)
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def conform(array: pa.Array[Any], target: pa.DataType) -> pa.Array[Any]:
    """The array in exactly the type ``target``: maps and structs are rebuilt, since writers name their parts differently.

    Struct fields that the array lacks are null; those that the target lacks are left out.

    Raises:
        pyarrow.ArrowException: values that the target cannot hold.
    """
    if array.type.equals(target):
        return array
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if isinstance(target, pa.MapType) and isinstance(array, pa.MapArray):
        # The sum is a fresh buffer: from_arrays takes no mask beside offsets that are themselves a slice.
        offsets = pc.add(array.offsets, pa.scalar(0, pa.int32()))
        keys, items = conform(array.keys, target.key_type), conform(array.items, target.item_type)
        mask = array.is_null() if array.null_count else None
        rebuilt: pa.Array[Any] = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=mask)  # type: ignore[call-overload]
        return rebuilt
    if isinstance(target, pa.StructType) and isinstance(array, pa.StructArray):
        given = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        parts = [
            conform(given[field.name], field.type) if field.name in given else pa.nulls(len(array), type=field.type) for field in target
        ]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=array.is_null())
    return array.cast(target)


def _descriptor(value: Mapping[str, object] | None) -> DeletionVectorDescriptor | None:
    if value is None:
        return None
    return DeletionVectorDescriptor.from_json({name: item for name, item in value.items() if item is not None})
