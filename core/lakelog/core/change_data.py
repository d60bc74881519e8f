"""What a range of commits did to a table's rows, as files to be read (PROTOCOL.md, "Change Data Files" and "Add CDC File").

A commit that holds ``cdc`` actions tells its changes by them alone. The changes of any other are the rows of the files that it added, as
inserts, and of the files that it removed, as deletes; ``dataChange`` false says that a file action changed no rows. Version and time, and
the kind of change where the file does not hold it, travel as further partition values: a plain scan reads them and prunes by them.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import CommitInfo, Metadata, Protocol, parse_commit
from lakelog.core.column_mapping import MappingMode, physical_name
from lakelog.core.errors import (
    ChangeDataNotRecordedError,
    CorruptLogError,
    InvalidSchemaError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UnsupportedOperationError,
)
from lakelog.core.file_columns import FILES_SCHEMA, ROWS_PER_CHUNK, JsonRow, MisfitError, rows_to_files
from lakelog.core.landed import commit_info_of
from lakelog.core.partition_values import serialize_partition_value
from lakelog.core.records import check_json
from lakelog.core.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, parse_schema
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_features import check_readable
from lakelog.core.table_properties import CHANGE_DATA_FEED, COLUMN_MAPPING_MODE
from lakelog.core.type_widening import is_widening

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_DATA_FOLDER = "_change_data"
INSERT = "insert"
DELETE = "delete"

_TIMESTAMP = PrimitiveType("timestamp")
_CHANGE_FIELDS = (
    StructField(CHANGE_TYPE, PrimitiveType("string"), True),
    StructField(COMMIT_VERSION, PrimitiveType("long"), True),
    StructField(COMMIT_TIMESTAMP, _TIMESTAMP, True),
)
_CDC, _ADD, _REMOVE, _WHOLE = "cdc", "add", "remove", "whole"
_MERGE_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def change_schema(schema: StructType, *, table: str) -> StructType:
    """The table's columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    Raises:
        InvalidSchemaError: the table has a column of one of these names.
    """
    reserved = {field.name for field in _CHANGE_FIELDS}
    if taken := [name for name in schema.names if name.lower() in reserved]:
        raise InvalidSchemaError(
            f"Delta table {table}: the change data feed adds the columns {', '.join(sorted(reserved))}, and the table has "
            f"{', '.join(taken)} already. Rename the column first."
        )
    return StructType((*schema.fields, *_CHANGE_FIELDS))


def needs_change_files(configuration: Mapping[str, str], *, rewrites: bool) -> bool:
    """Whether a commit must write change data files.

    Whole files added and removed tell the story themselves; a file that is written again for some of its rows does not. Once a commit has
    one ``cdc`` action, readers look at nothing else in it: its files must then hold every row that it inserts or deletes, those of whole
    files too.

    Args:
        configuration: the table's properties, as they are from this commit on.
        rewrites: whether a removed file's rows are partly in the files that the commit adds.

    Raises:
        InvalidTablePropertyError: the property's value is neither true nor false.
    """
    return rewrites and CHANGE_DATA_FEED.of(configuration)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """The files that hold the changed rows of a range of commits, each table of `lakelog.core.file_columns.FILES_SCHEMA`.

    Beside the table's own partition values each file has ``_commit_version`` and ``_commit_timestamp``.

    Attributes:
        first: first version of the range.
        last: last one, the range includes both.
        cdc: change data files; their rows hold ``_change_type``.
        whole: files whose rows were all inserted or all deleted; ``_change_type`` is a partition value too.
        metadata: the ``metaData`` actions of the range by version, ascending.
        digest: equal for ranges that were read from the same commits with the same times.
    """

    first: int
    last: int
    cdc: pa.Table
    whole: pa.Table
    metadata: tuple[tuple[int, Metadata], ...]
    digest: str


class ChangeFold:
    """Gathers the commits of a range in ascending order; `finish` gives the files.

    Args:
        root: the table's root, unencoded; messages name it.
        partitioned: whether the table has partition columns.
    """

    def __init__(self, root: str, *, partitioned: bool) -> None:
        self._root = root
        self._partitioned = partitioned
        self._batches: dict[str, list[pa.RecordBatch]] = {_CDC: [], _WHOLE: []}
        self._metadata: list[tuple[int, Metadata]] = []
        self._versions: list[int] = []
        self._digest = hashlib.sha256()

    def add_commit(self, version: int, data: bytes, *, timestamp_ms: int, source: str) -> None:
        """Take a commit file in.

        Args:
            version: from its name.
            data: its bytes.
            timestamp_ms: when it was committed, used where it does not say so itself (``inCommitTimestamp``).
            source: its path, for messages.

        Raises:
            CorruptLogError: a line is not a valid action; names the source.
            UnsupportedFeatureError: rows of the range are marked by deletion vectors, or a feature was on that is not implemented.
            UnsupportedOperationError: a removed file whose size or partition values the log does not tell.
        """
        if not data.strip():
            raise CorruptLogError(
                f"Delta table {self._root}: {source} is empty: a writer was cut off or the file was torn. Restore it, or read the "
                "changes of the versions after it."
            )
        info = commit_info_of(data) or CommitInfo()
        time = timestamp_ms if info.in_commit_timestamp is None else info.in_commit_timestamp
        files = _Files(self._root, version, time, partitioned=self._partitioned, unchanged=_changed_nothing(info))
        try:
            for line in io.BytesIO(data):
                if line.isspace():
                    continue
                action = orjson.loads(line)
                if not isinstance(action, dict) or len(action) != 1:
                    raise CorruptLogError("an action must be an object with one key")
                check_json(line, action)
                ((kind, value),) = action.items()
                if kind in (_CDC, _ADD, _REMOVE):
                    files.append(kind, value)
                elif kind == "protocol":
                    check_readable(Protocol.from_json(value), self._root)
                elif kind == "metaData":
                    self._metadata.append((version, Metadata.from_json(value)))
            batches = files.finish()
        except MisfitError as error:
            # The codec of single actions says which line and which field.
            parse_commit(data, source)
            raise CorruptLogError(f"Delta table {self._root}: {source} is damaged: {error}. Restore the file.") from error
        except (orjson.JSONDecodeError, CorruptLogError) as error:
            raise CorruptLogError(f"Delta table {self._root}: {source} is damaged: {error}. Restore the file.") from error
        self._batches[_CDC if files.has_cdc else _WHOLE] += batches
        self._versions.append(version)
        self._digest.update(f"{version} {time} {len(data)}\n".encode())
        self._digest.update(data)

    def finish(self) -> Changes:
        """The files of all commits so far, of which there must be one at least."""
        tables = {name: pa.Table.from_batches(batches, schema=FILES_SCHEMA).combine_chunks() for name, batches in self._batches.items()}
        return Changes(
            first=self._versions[0],
            last=self._versions[-1],
            cdc=tables[_CDC],
            whole=tables[_WHOLE],
            metadata=tuple(self._metadata),
            digest=self._digest.hexdigest(),
        )


def check_recorded(start: Metadata, changes: Changes, *, table: str) -> None:
    """Refuse a range in which some version did not record its changes.

    Args:
        start: the metadata in force at the first version.

    Raises:
        ChangeDataNotRecordedError: ``delta.enableChangeDataFeed`` was not true in every version.
        InvalidTablePropertyError: the property's value is neither true nor false.
    """
    for version, metadata in ((changes.first, start), *changes.metadata):
        if not CHANGE_DATA_FEED.of(metadata.configuration, table):
            raise ChangeDataNotRecordedError(
                f"Delta table {table}: the changes of versions {changes.first} to {changes.last} cannot be read, since version {version} "
                f"did not record them: the table property {CHANGE_DATA_FEED.key} was not true. Start after the version in which it was "
                "first set, as DeltaTable.forPath(spark, path).history() shows it; to record changes from now on, run ALTER TABLE "
                f"delta.`{table}` SET TBLPROPERTIES ({CHANGE_DATA_FEED.key} = true).",
                version=version,
            )


def check_schemas(start: Metadata, changes: Changes, read: Snapshot) -> None:
    """Refuse a range whose files the schema that is read with does not fit.

    Columns may have been added and types widened; dropped, renamed or retyped columns, another partitioning, and a column that became NOT
    NULL may not be in between.

    Args:
        start: the metadata in force at the first version.
        read: the version whose schema is read with, inside the range or after it.

    Raises:
        SchemaMismatchError: names the version and what differs.
    """
    known = [(changes.first, start), *((version, metadata) for version, metadata in changes.metadata if version > changes.first)]
    unfit = [(number, found) for number, (version, metadata) in enumerate(known) if (found := _differences(metadata, version, read))]
    if not unfit:
        return
    number, differences = unfit[-1]
    version = known[number][0]
    if version > read.version:
        remedy = f"Read the changes up to version {version - 1} alone"
    elif number + 1 < len(known):
        remedy = f"Start at version {known[number + 1][0]}, or read the versions before it separately while their schema is the newest"
    else:
        remedy = f"Start at a version that has the schema of version {read.version}"
    raise SchemaMismatchError(
        f"Delta table {read.root}: the changes of versions {changes.first} to {changes.last} are read with the schema of version "
        f"{read.version}, which does not fit that of version {version}: {'; '.join(differences)}. {remedy}.",
        differences=differences,
    )


def as_snapshots(changes: Changes, read: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Snapshots whose scans give the changed rows: one over the change data files, one over the files that count whole.

    Both have the schema of `change_schema`; what a file does not hold is a partition column.

    Raises:
        InvalidSchemaError: the table has a column of one of the names that are added.
    """
    schema = change_schema(read.schema, table=read.root)

    def over(files: pa.Table, columns: Sequence[str]) -> Snapshot:
        metadata = replace(read.metadata, schema_string=schema.to_json(), partition_columns=(*read.metadata.partition_columns, *columns))
        state = replace(read.state, version=changes.last, files=files, tombstones=read.state.tombstones.slice(0, 0), metadata=metadata)
        return replace(read, state=state, metadata=metadata, schema=schema)

    return (
        over(changes.cdc, (COMMIT_VERSION, COMMIT_TIMESTAMP)),
        over(changes.whole, (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)),
    )


class _Files:
    """The file actions of one commit, as columns chunk by chunk: those of change data files once there is one, until then all others."""

    def __init__(self, root: str, version: int, timestamp_ms: int, *, partitioned: bool, unchanged: bool) -> None:
        self._root = root
        self._version = version
        self._partitioned = partitioned
        self._unchanged = unchanged
        time = serialize_partition_value(timestamp_ms * 1000, _TIMESTAMP)
        self._told = {COMMIT_VERSION: str(version), COMMIT_TIMESTAMP: time}
        self._rows: dict[str, list[JsonRow]] = {}
        self._batches: list[pa.RecordBatch] = []
        self.has_cdc = False

    def append(self, kind: str, value: object) -> None:
        if not isinstance(value, dict):
            raise MisfitError("an action must be an object")
        if kind == _CDC:
            if not self.has_cdc:
                self.has_cdc, self._rows, self._batches = True, {}, []
            value = {**value, "modificationTime": 0}
        elif self.has_cdc or self._unchanged or value.get("dataChange") is False:
            return
        elif kind == _REMOVE:
            value = self._removed(value)
        rows = self._rows.setdefault(kind, [])
        rows.append(value)
        if len(rows) >= ROWS_PER_CHUNK:
            self._flush(kind)

    def finish(self) -> list[pa.RecordBatch]:
        for kind in self._rows:
            self._flush(kind)
        return self._batches

    def _removed(self, row: JsonRow) -> JsonRow:
        values = row.get("partitionValues")
        if row.get("size") is None or (values is None and self._partitioned):
            raise UnsupportedOperationError(
                f"Delta table {self._root}: the changes of version {self._version} cannot be read, since its writer removed the file "
                f"{row.get('path')} without telling its size and partition values. Read the changes of the versions before and after it."
            )
        return {**row, "partitionValues": {} if values is None else values, "modificationTime": row.get("deletionTimestamp") or 0}

    def _flush(self, kind: str) -> None:
        rows, self._rows[kind] = self._rows[kind], []
        if not rows:
            return
        batch = rows_to_files(rows, self._root)
        vectors = batch.column("deletionVector")
        if vectors.null_count != len(vectors):
            raise UnsupportedFeatureError(
                f"Delta table {self._root}: version {self._version} deleted rows by deletion vectors, which this lakelog cannot read yet. "
                "Read the changes of the versions before and after it, or use a newer lakelog.",
                features=("deletionVectors",),
            )
        told = self._told if kind == _CDC else {**self._told, CHANGE_TYPE: INSERT if kind == _ADD else DELETE}
        place = batch.schema.get_field_index("partitionValues")
        values = _with_pairs(cast("pa.MapArray[Any, Any]", batch.column(place)), told)
        self._batches.append(batch.set_column(place, batch.schema.field(place), values))


def _with_pairs(maps: pa.MapArray[Any, Any], pairs: Mapping[str, str | None]) -> pa.MapArray[Any, Any]:
    """The maps, of which none is null, with the same pairs put at the end of each."""
    count, more = len(maps), len(pairs)
    offsets = maps.offsets
    first, length = offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()
    shifted: Any = pc.add(pc.subtract(offsets, offsets[0]), pa.array(range(0, more * (count + 1), more), pa.int32()))
    rows = pa.array(range(count), pa.int32())
    old: Any = pc.list_parent_indices(pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), maps.keys.slice(first, length)))
    owners: Any = pa.concat_arrays([old.cast(pa.int32()), *[rows] * more])
    # The sort is stable: a map's own pairs stay before those that are added.
    order: Any = pc.array_sort_indices(owners)
    keys, items = (
        pa.concat_arrays([own.slice(first, length), *(pa.repeat(pa.scalar(text, pa.string()), count) for text in added)]).take(order)
        for own, added in ((maps.keys, pairs.keys()), (maps.items, pairs.values()))
    )
    made: Any = pa.MapArray.from_arrays(shifted, keys, items, type=maps.type)  # type: ignore[call-overload]
    return cast("pa.MapArray[Any, Any]", made)


def _changed_nothing(info: CommitInfo) -> bool:
    """Whether a MERGE says that it rewrote files without changing a row."""
    metrics = info.operation_metrics or {}
    return info.operation == "MERGE" and all(metrics.get(name) == "0" for name in _MERGE_METRICS)


def _differences(metadata: Metadata, version: int, read: Snapshot) -> list[str]:
    """Why files of the one metadata cannot be read with the schema of the other, a sentence each."""
    theirs = parse_schema(metadata.schema_json)
    mine = read.schema
    old_mode = COLUMN_MAPPING_MODE.of(metadata.configuration, read.root)
    mode = read.mapping
    if old_mode != MappingMode.NONE and mode is MappingMode.NONE:
        return ["columns were mapped then and are not any more"]
    differences = []
    partitions = metadata.partition_columns, read.metadata.partition_columns
    if partitions[0] != partitions[1]:
        shown = [", ".join(columns) or "nothing" for columns in partitions]
        differences.append(f"it was partitioned by {shown[0]} and not by {shown[1]}")
    mapped = mode is not MappingMode.NONE
    if version <= read.version:
        _compare(theirs, mine, "", differences, mapped=mapped, old_mapped=old_mode != MappingMode.NONE, earlier=True)
    else:
        _compare(mine, theirs, "", differences, mapped=mapped, old_mapped=mapped, earlier=False)
    return differences


def _compare(old: DataType, new: DataType, path: str, differences: list[str], *, mapped: bool, old_mapped: bool, earlier: bool) -> None:
    """What the newer type has lost of the older one.

    Args:
        mapped: whether columns are matched by their physical names.
        old_mapped: whether the older one's columns have physical names of their own.
        earlier: whether files of the older are read with the newer; else it is the other way round.
    """
    names = {"mapped": mapped, "old_mapped": old_mapped, "earlier": earlier}
    match old, new:
        case StructType(before), StructType(after):
            there = {(physical_name(field) if mapped else field.name): field for field in after}
            for field in before:
                where = f"{path}.{field.name}" if path else field.name
                found = there.pop(physical_name(field) if old_mapped else field.name, None)
                if found is None:
                    differences.append(f"the column {where} is in the older of the two alone")
                elif found.name != field.name:
                    differences.append(f"the column {where} is called {found.name} in the newer of the two")
                else:
                    _nullable(field.nullable, found.nullable, where, differences, earlier=earlier)
                    _compare(field.type, found.type, where, differences, **names)
            for field in there.values():
                _nullable(True, field.nullable or not earlier, f"{path}.{field.name}" if path else field.name, differences, earlier=True)
        case ArrayType(), ArrayType():
            _nullable(old.contains_null, new.contains_null, f"{path}.element", differences, earlier=earlier)
            _compare(old.element, new.element, f"{path}.element", differences, **names)
        case MapType(), MapType():
            _nullable(old.value_contains_null, new.value_contains_null, f"{path}.value", differences, earlier=earlier)
            _compare(old.key, new.key, f"{path}.key", differences, **names)
            _compare(old.value, new.value, f"{path}.value", differences, **names)
        case _:
            if old != new and not (earlier and is_widening(old, new)):
                differences.append(f"the column {path} is of type {old} in the older of the two and {new} in the newer")


def _nullable(old: bool, new: bool, where: str, differences: list[str], *, earlier: bool) -> None:
    written, read = (old, new) if earlier else (new, old)
    if written and not read:
        differences.append(f"the column {where} may hold nulls in the files and is NOT NULL in the schema")
