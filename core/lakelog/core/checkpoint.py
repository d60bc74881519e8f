"""Classic checkpoints: a whole state as one table of actions (PROTOCOL.md, "Checkpoints" and "Checkpoint Schema").

Reading takes batches of one file or of all parts of a multi-part checkpoint. Content of the V2 spec is told by what it
holds, not by its file name, and refused by the feature's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from lakelog.core.errors import CorruptLogError, UnsupportedFeatureError
from lakelog.core.file_columns import (
    DELETION_VECTOR,
    FILES_SCHEMA,
    MISFITS,
    STRING_MAP,
    TOMBSTONES_SCHEMA,
    conform,
    structs_to_files,
    structs_to_tombstones,
)
from lakelog.core.records import shown
from lakelog.core.replay import LogState
from lakelog.core.snapshot import Snapshot
from lakelog.core.struct_stats import stats_to_json

_STRINGS = pa.list_(pa.field("element", pa.string()))

CHECKPOINT_SCHEMA = pa.schema(
    [
        pa.field("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        pa.field(
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", STRING_MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("tags", STRING_MAP),
                    ("deletionVector", DELETION_VECTOR),
                    ("baseRowId", pa.int64()),
                    ("defaultRowCommitVersion", pa.int64()),
                    ("clusteringProvider", pa.string()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        pa.field(
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", STRING_MAP),
                    ("size", pa.int64()),
                    ("deletionVector", DELETION_VECTOR),
                    ("baseRowId", pa.int64()),
                    ("defaultRowCommitVersion", pa.int64()),
                ]
            ),
        ),
        pa.field(
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _STRINGS),
                    ("configuration", STRING_MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        pa.field(
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _STRINGS),
                    ("writerFeatures", _STRINGS),
                ]
            ),
        ),
        pa.field("domainMetadata", pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])),
    ]
)


def checkpoint_table(snapshot: Snapshot, *, now_ms: int) -> pa.Table:
    """The snapshot as the rows of a classic checkpoint, `CHECKPOINT_SCHEMA`.

    Statistics are JSON unless the table's properties turn both of their forms off; the struct form is optional to
    readers and not written, so turning JSON off alone would lose the statistics and is not followed.

    Args:
        snapshot: what to write down; removed files that have expired and applications whose
            ``delta.setTransactionRetentionDuration`` has passed are left out.
        now_ms: the clock that they expire by.

    Raises:
        InvalidTablePropertyError: a property that decides what to write cannot be parsed.
    """
    properties = snapshot.properties
    state = snapshot.state.without_expired(now_ms=now_ms, retention_ms=properties.deleted_file_retention_ms)
    transactions = _live_transactions(state.transactions, properties.set_transaction_retention_ms, now_ms)
    with_stats = properties.checkpoint_write_stats_as_json or properties.checkpoint_write_stats_as_struct
    tables = [
        _action_rows("protocol", [snapshot.protocol.to_json()]),
        _action_rows("metaData", [snapshot.metadata.to_json()]),
        _action_rows("txn", [transaction.to_json() for transaction in transactions]),
        _action_rows("domainMetadata", [domain.to_json() for domain in state.domains.values()]),
        *(_file_rows("remove", batch, with_stats=False) for batch in state.tombstones.to_batches()),
        *(_file_rows("add", batch, with_stats=with_stats) for batch in state.files.to_batches()),
    ]
    return pa.concat_tables(tables)


def read_checkpoint(batches: Iterable[pa.RecordBatch], *, version: int, root: str) -> LogState:
    """The state that a classic checkpoint holds.

    Args:
        batches: rows of all its files, in any order. Unknown columns are ignored, known ones may be absent.
            ``add.stats_parsed`` stands in where ``add.stats`` is null.
        version: the checkpoint's version.
        root: the table's root, unencoded.

    Raises:
        CorruptLogError: no protocol or no metadata, a file twice, or a column of the wrong type.
        UnsupportedFeatureError: the content follows the V2 spec.
    """
    rows = _Rows(version, root)
    for batch in batches:
        try:
            # A file can say of a text that it is UTF-8, or of a map where it ends, what is not so.
            batch.validate(full=True)
            rows.add(batch)
        except MISFITS as error:
            raise CorruptLogError(
                f"Delta table {root}: the checkpoint of version {version} holds values that do not fit: {shown(str(error))}"
            ) from error
    return rows.state()


class _Rows:
    """What the batches of a checkpoint hold, gathered."""

    def __init__(self, version: int, root: str) -> None:
        self._version = version
        self._root = root
        self._files: list[pa.RecordBatch] = []
        self._tombstones: list[pa.RecordBatch] = []
        self._protocols: list[Protocol] = []
        self._metadatas: list[Metadata] = []
        self._transactions: dict[str, SetTransaction] = {}
        self._domains: dict[str, DomainMetadata] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Raises `MISFITS` besides the errors of `read_checkpoint`."""
        if any(_present(batch, name) is not None for name in ("checkpointMetadata", "sidecar")):
            raise UnsupportedFeatureError(
                f"Delta table {self._root}: the checkpoint of version {self._version} follows the V2 spec (table feature v2Checkpoint), "
                "which this lakelog does not read. Use a newer lakelog, or drop the feature from the table.",
                features=["v2Checkpoint"],
            )
        if (adds := _present(batch, "add")) is not None:
            self._files.append(structs_to_files(_with_json_stats(adds), self._root))
        if (removes := _present(batch, "remove")) is not None:
            self._tombstones.append(structs_to_tombstones(removes, self._root))
        self._protocols.extend(Protocol.from_json(row) for row in _rows(batch, "protocol"))
        self._metadatas.extend(Metadata.from_json(_METADATA_DEFAULTS | row) for row in _rows(batch, "metaData"))
        for row in _rows(batch, "txn"):
            transaction = SetTransaction.from_json(row)
            self._transactions[transaction.app_id] = transaction
        for row in _rows(batch, "domainMetadata"):
            domain = DomainMetadata.from_json({"configuration": "", "removed": False} | row)
            if not domain.removed:
                self._domains[domain.domain] = domain

    def state(self) -> LogState:
        """Raises as `read_checkpoint`."""
        table = f"Delta table {self._root}: the checkpoint of version {self._version}"
        if len(self._protocols) != 1 or len(self._metadatas) != 1:
            raise CorruptLogError(
                f"{table} holds {len(self._protocols)} protocol and {len(self._metadatas)} metaData actions instead of one each"
            )
        files = pa.Table.from_batches(self._files, schema=FILES_SCHEMA)
        if pc.count_distinct(files["key"]).as_py() != files.num_rows:
            raise CorruptLogError(f"{table} holds a file twice")
        return LogState(
            version=self._version,
            protocol=self._protocols[0],
            metadata=self._metadatas[0],
            files=files,
            tombstones=pa.Table.from_batches(self._tombstones, schema=TOMBSTONES_SCHEMA),
            transactions=self._transactions,
            domains=self._domains,
        )


_METADATA_DEFAULTS: dict[str, object] = {"format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {}}


def _live_transactions(transactions: Mapping[str, SetTransaction], retention_ms: int | None, now_ms: int) -> list[SetTransaction]:
    if retention_ms is None:
        return list(transactions.values())
    # As delta-spark does: with a retention set, an entry that does not say when it was written has expired.
    return [item for item in transactions.values() if item.last_updated is not None and item.last_updated > now_ms - retention_ms]


def _action_rows(name: str, rows: Sequence[object]) -> pa.Table:
    column_type = CHECKPOINT_SCHEMA.field(name).type
    return _widen(name, pa.array([_with_pairs(row, column_type) for row in rows], type=column_type))


def _with_pairs(value: object, kind: pa.DataType) -> object:
    """The value with every map as the list of pairs that Arrow takes for one."""
    if isinstance(value, Mapping) and isinstance(kind, pa.MapType):
        return list(value.items())
    if isinstance(value, Mapping) and isinstance(kind, pa.StructType):
        return {field.name: _with_pairs(value.get(field.name), field.type) for field in kind}
    return value


def _file_rows(name: str, batch: pa.RecordBatch, *, with_stats: bool) -> pa.Table:
    parts: list[pa.Array[Any]] = []
    fields = list(CHECKPOINT_SCHEMA.field(name).type)
    for field in fields:
        if field.name == "dataChange" and name == "add":
            parts.append(pa.repeat(pa.scalar(False), batch.num_rows))
        elif field.name == "stats" and not with_stats:
            parts.append(pa.nulls(batch.num_rows, pa.string()))
        else:
            parts.append(batch.column(field.name))
    return _widen(name, pa.StructArray.from_arrays(parts, fields=fields))


def _widen(name: str, column: pa.Array[Any]) -> pa.Table:
    """A table in which every column but one is null."""
    columns = [column if field.name == name else pa.nulls(len(column), field.type) for field in CHECKPOINT_SCHEMA]
    return pa.Table.from_arrays(columns, schema=CHECKPOINT_SCHEMA)


def _present(batch: pa.RecordBatch, name: str) -> pa.StructArray | None:
    """The non-null rows of a column of actions, None when there is none."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column = batch.column(index)
    if column.null_count == len(column):
        return None
    if not isinstance(column, pa.StructArray):
        raise CorruptLogError(f"checkpoint column {name} has type {column.type} instead of a struct")
    count = len(column) - column.null_count
    # Writers put the actions of one kind in a row, and a slice costs nothing.
    run: pa.StructArray = column.slice(pc.index(column.is_valid(), True).as_py(), count)
    return run if not run.null_count and len(run) == count else column.drop_null()


def _rows(batch: pa.RecordBatch, name: str) -> list[dict[str, object]]:
    structs = _present(batch, name)
    if structs is None:
        return []
    # Fields that the protocol does not give the action may hold what has no JSON.
    known = conform(structs, CHECKPOINT_SCHEMA.field(name).type)
    rows = (_plain(struct.as_py(), known.type) for struct in known)
    return [row for row in rows if isinstance(row, dict)]


def _plain(value: object, kind: pa.DataType) -> object:
    """A scalar as its JSON would be: maps are objects, and null fields are absent."""
    if isinstance(value, Mapping) and isinstance(kind, pa.StructType):
        return {field.name: _plain(value[field.name], field.type) for field in kind if value[field.name] is not None}
    if pa.types.is_map(kind) and isinstance(value, list):
        return dict(value)
    return value


def _with_json_stats(adds: pa.StructArray) -> pa.StructArray:
    names = [field.name for field in adds.type]
    if "stats_parsed" not in names:
        return adds
    # Any: the stubs cannot say that this one is a struct and that one holds strings.
    columns: dict[str, Any] = dict(zip(names, adds.flatten(), strict=True))
    parsed = columns.pop("stats_parsed")
    json_stats = columns.get("stats")
    # Statistics only ever spare work: what cannot be read as such is as good as absent.
    with suppress(*MISFITS):
        if json_stats is None:
            columns["stats"] = stats_to_json(parsed)
        elif json_stats.null_count:
            columns["stats"] = pc.coalesce(json_stats.cast(pa.string()), stats_to_json(parsed))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
