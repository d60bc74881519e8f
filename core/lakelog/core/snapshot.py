"""A version of a table as a value: everything that the log says about it, ready to plan on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.core.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, SetTransaction
from lakelog.core.column_mapping import MappingMode, mapping_mode, physical_columns, physical_schema
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError
from lakelog.core.file_columns import files_to_adds, tombstones_to_removes
from lakelog.core.records import shown
from lakelog.core.replay import LogState
from lakelog.core.schema import StructType, parse_schema
from lakelog.core.table_features import check_readable
from lakelog.core.table_properties import TableProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of a table, immutable.

    Attributes:
        root: the table's root, unencoded.
        state: what replay gave; holds the columns that `files` and `tombstones` show.
        protocol: what a client must implement.
        metadata: the ``metaData`` action in force.
        schema: its schema, parsed.
        properties: its table properties, typed.
        timestamp_ms: when the version was committed, milliseconds since the epoch: the in-commit timestamp where the
            log holds one, else the commit file's time.
    """

    root: str
    state: LogState
    protocol: Protocol
    metadata: Metadata
    schema: StructType
    properties: TableProperties
    timestamp_ms: int

    @classmethod
    def from_state(cls, state: LogState, *, root: str, timestamp_ms: int, now_ms: int) -> Snapshot:
        """The snapshot of a replayed state, its expired tombstones dropped.

        Args:
            state: replayed up to the wanted version.
            root: the table's root, unencoded; messages name it.
            timestamp_ms: the commit file's time, used when the state has no in-commit timestamp.
            now_ms: the clock that tombstones expire by.

        Raises:
            CorruptLogError: the log never set a protocol or metadata, the schema cannot be parsed or lacks a partition column.
            UnsupportedFeatureError: the table needs a reader feature that lakelog does not implement.
        """
        protocol, metadata = state.protocol, state.metadata
        if protocol is None or metadata is None:
            missing = " and no ".join(name for name, action in (("protocol", protocol), ("metaData", metadata)) if action is None)
            raise CorruptLogError(
                f"Delta table {root}: the log up to version {state.version} holds no {missing} action, so it describes no table. "
                "Restore the log's first commit, or create the table anew at another path."
            )
        check_readable(protocol, root)
        schema = _schema(metadata.schema_json)
        names = {name.lower() for name in schema.names}
        if absent := [column for column in metadata.partition_columns if column.lower() not in names]:
            raise CorruptLogError(
                f"Delta table {root}: the log names the partition columns {shown(absent)}, which the schema does not have. Restore the "
                "commit that wrote its metadata."
            )
        properties = TableProperties(metadata.configuration, root)
        # A property that only writers act on is no reason to refuse a read; nothing expires then.
        with suppress(InvalidTablePropertyError):
            state = state.without_expired(now_ms=now_ms, retention_ms=properties.deleted_file_retention_ms)
        return cls(
            root=root,
            state=state,
            protocol=protocol,
            metadata=metadata,
            schema=schema,
            properties=properties,
            timestamp_ms=timestamp_ms if state.in_commit_timestamp is None else state.in_commit_timestamp,
        )

    @property
    def version(self) -> int:
        """The version, from 0."""
        return self.state.version

    @property
    def files(self) -> pa.Table:
        """Live files, `lakelog.core.replay.FILES_SCHEMA`."""
        return self.state.files

    @property
    def tombstones(self) -> pa.Table:
        """Removed files that have not expired, `lakelog.core.replay.TOMBSTONES_SCHEMA`."""
        return self.state.tombstones

    @property
    def transactions(self) -> Mapping[str, SetTransaction]:
        """Newest ``txn`` action per application id."""
        return self.state.transactions

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """Live ``domainMetadata`` by domain."""
        return self.state.domains

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns in the order the table gives them."""
        return self.metadata.partition_columns

    @property
    def mapping(self) -> MappingMode:
        """How columns are found in the data files.

        Raises:
            InvalidTablePropertyError: the table property that says it cannot be parsed.
        """
        return mapping_mode(self.protocol, self.metadata.configuration, self.root)

    @property
    def physical_schema(self) -> StructType:
        """The schema as data files, statistics and partition values name it; `schema` itself where the table is not mapped."""
        mode = self.mapping
        return self.schema if mode is MappingMode.NONE else _physical(self.metadata.schema_json, mode)

    @property
    def physical_partition_columns(self) -> tuple[str, ...]:
        """`partition_columns` as partition values name them."""
        return physical_columns(self.schema, self.partition_columns, self.mapping)

    @property
    def num_files(self) -> int:
        """How many live files the version has."""
        return int(self.state.files.num_rows)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all live files, as their ``add`` actions give it."""
        sizes = self.state.files["size"]
        # In two halves: Arrow's sum wraps round at 64 bits.
        high, low = pc.sum(pc.shift_right(sizes, 32)).as_py(), pc.sum(pc.bit_wise_and(sizes, 0xFFFFFFFF)).as_py()
        return ((high or 0) << 32) + (low or 0)

    def add_files(self, indices: Sequence[int] | pa.Array[Any] | None = None) -> list[AddFile]:
        """The ``add`` actions of some rows of `files`, all of them by default; ``data_change`` is False.

        Args:
            indices: row numbers into `files`, in the order wanted.
        """
        return files_to_adds(self.files if indices is None else self.files.take(_indices(indices)))

    def remove_actions(self) -> list[RemoveFile]:
        """The tombstones as actions; for tests and small tables."""
        return tombstones_to_removes(self.tombstones)


@lru_cache(maxsize=64)
def _schema(text: str) -> StructType:
    """The schema; the text is the same from one version of a table to the next."""
    return parse_schema(text)


@lru_cache(maxsize=64)
def _physical(text: str, mode: MappingMode) -> StructType:
    return physical_schema(_schema(text), mode)


def _indices(indices: Sequence[int] | pa.Array[Any]) -> pa.Array[Any]:
    return indices if isinstance(indices, pa.Array) else pa.array(indices, pa.int64())
