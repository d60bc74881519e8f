"""The actions of a Delta log as values, and their JSON codec (PROTOCOL.md, "Actions").

A commit file is a line of JSON per action, each an object with one key that names the kind. Reading keeps what it
does not know: unknown fields in ``extra``, unknown kinds as `UnknownAction`; a field that is absent stays absent and
an explicit null stays null, so that a file read and written again says the same. `CommitInfo` is free-form by the
protocol, so a field of another type than delta-spark gives it lands in ``extra`` instead of being an error.

Paths are kept as the log spells them (percent-encoded, see `lakelog.core.paths`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from lakelog.core.errors import CorruptLogError
from lakelog.core.records import (
    COMPACT_JSON,
    Record,
    RecordField,
    boolean,
    int32,
    int64,
    json_object,
    load_json,
    nested,
    nullable_string_map,
    optional,
    required,
    shown,
    string,
    string_map,
    strings,
)
from lakelog.core.records import INT64_MAX as INT64_MAX
from lakelog.core.records import JSON as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorDescriptor(Record):
    """Where the deleted rows of a file are listed (PROTOCOL.md, "Deletion Vector Descriptor Schema").

    Attributes:
        storage_type: ``u`` (path by UUID, relative), ``i`` (inline) or ``p`` (absolute path).
        path_or_inline_dv: as the storage type says, Z85-encoded for ``u`` and ``i``.
        offset: bytes into the file, None when inline.
        size_in_bytes: of the vector as stored, before encoding.
        cardinality: number of rows deleted.
    """

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_in_bytes: int
    cardinality: int

    kind: ClassVar[str] = "deletionVector"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("storageType", string),
        required("pathOrInlineDv", string),
        optional("offset", int64),
        required("sizeInBytes", int64),
        required("cardinality", int64),
    )

    @property
    def unique_id(self) -> str:
        """What identifies the vector in a file's key (PROTOCOL.md, "Derived Fields")."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile(Record):
    """A data file that is part of the table from this version on (PROTOCOL.md, "Add File and Remove File").

    Attributes:
        size: bytes.
        modification_time: milliseconds since the epoch.
        stats: JSON text as the log holds it.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    kind: ClassVar[str] = "add"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("path", string),
        required("partitionValues", nullable_string_map),
        required("size", int64),
        required("modificationTime", int64),
        required("dataChange", boolean),
        optional("stats", string),
        optional("tags", nullable_string_map),
        optional("deletionVector", nested(DeletionVectorDescriptor)),
        optional("baseRowId", int64),
        optional("defaultRowCommitVersion", int64),
        optional("clusteringProvider", string),
    )

    @property
    def key(self) -> tuple[str, str]:
        """The path as the log spells it, and the deletion vector's unique id or ``""``."""
        return self.path, "" if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile(Record):
    """A file that is no longer part of the table; kept as a tombstone until its retention ends.

    Attributes:
        deletion_timestamp: milliseconds since the epoch.
        size: bytes.
    """

    path: str
    deletion_timestamp: int | None = None
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    kind: ClassVar[str] = "remove"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("path", string),
        optional("deletionTimestamp", int64),
        required("dataChange", boolean),
        optional("extendedFileMetadata", boolean),
        optional("partitionValues", nullable_string_map),
        optional("size", int64),
        optional("stats", string),
        optional("tags", nullable_string_map),
        optional("deletionVector", nested(DeletionVectorDescriptor)),
        optional("baseRowId", int64),
        optional("defaultRowCommitVersion", int64),
    )

    @property
    def key(self) -> tuple[str, str]:
        """The path as the log spells it, and the deletion vector's unique id or ``""``."""
        return self.path, "" if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCDCFile(Record):
    """A file of changed rows (PROTOCOL.md, "Add CDC File"). ``size`` in bytes."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    data_change: bool
    tags: Mapping[str, str | None] | None = None

    kind: ClassVar[str] = "cdc"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("path", string),
        required("partitionValues", nullable_string_map),
        required("size", int64),
        required("dataChange", boolean),
        optional("tags", nullable_string_map),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Format(Record):
    """The format of the data files: always parquet (PROTOCOL.md, "Format Specification")."""

    provider: str = "parquet"
    options: Mapping[str, str | None] | None = field(default_factory=dict)

    kind: ClassVar[str] = "format"
    _fields: ClassVar[tuple[RecordField, ...]] = (required("provider", string), optional("options", nullable_string_map))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Record):
    """The table's schema, partitioning and properties (PROTOCOL.md, "Change Metadata").

    Attributes:
        schema_string: the schema as JSON; old writers left it out for a table without columns, see `schema_json`.
        configuration: table properties; one that the log holds as null counts as unset.
        created_time: milliseconds since the epoch.
    """

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    created_time: int | None = None

    kind: ClassVar[str] = "metaData"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("id", string),
        optional("name", string),
        optional("description", string),
        required("format", nested(Format)),
        optional("schemaString", string),
        required("partitionColumns", strings),
        required("configuration", string_map),
        optional("createdTime", int64),
    )

    @property
    def schema_json(self) -> str:
        """The schema as JSON, that of a struct without fields when the log has none."""
        return '{"type":"struct","fields":[]}' if self.schema_string is None else self.schema_string


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Record):
    """What a client must implement to read and to write (PROTOCOL.md, "Protocol Evolution")."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    kind: ClassVar[str] = "protocol"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("minReaderVersion", int32),
        required("minWriterVersion", int32),
        optional("readerFeatures", strings),
        optional("writerFeatures", strings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransaction(Record):
    """How far an application has come (PROTOCOL.md, "Transaction Identifiers"). ``last_updated`` in milliseconds."""

    app_id: str
    version: int
    last_updated: int | None = None

    kind: ClassVar[str] = "txn"
    _fields: ClassVar[tuple[RecordField, ...]] = (required("appId", string), required("version", int64), optional("lastUpdated", int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainMetadata(Record):
    """Named metadata of a feature or a user (PROTOCOL.md, "Domain Metadata"); ``removed`` marks a tombstone."""

    domain: str
    configuration: str
    removed: bool

    kind: ClassVar[str] = "domainMetadata"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("domain", string),
        required("configuration", string),
        required("removed", boolean),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata(Record):
    """The first action of a V2 checkpoint (PROTOCOL.md, "Checkpoint Metadata")."""

    version: int
    tags: Mapping[str, str | None] | None = None

    kind: ClassVar[str] = "checkpointMetadata"
    _fields: ClassVar[tuple[RecordField, ...]] = (required("version", int64), optional("tags", nullable_string_map))


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFile(Record):
    """A file of a V2 checkpoint that holds file actions (PROTOCOL.md, "Sidecar File Information")."""

    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str | None] | None = None

    kind: ClassVar[str] = "sidecar"
    _fields: ClassVar[tuple[RecordField, ...]] = (
        required("path", string),
        required("sizeInBytes", int64),
        required("modificationTime", int64),
        optional("tags", nullable_string_map),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo(Record):
    """Where a commit came from (PROTOCOL.md, "Commit Provenance Information"); made by `lakelog.core.commit_info`.

    Attributes:
        in_commit_timestamp: milliseconds since the epoch, with the feature inCommitTimestamp.
        timestamp: milliseconds since the epoch.
        operation_parameters: delta-spark writes each as JSON text; others write any JSON.
        operation_metrics: delta-spark writes strings; others write any JSON.
    """

    in_commit_timestamp: int | None = None
    timestamp: int | None = None
    user_id: str | None = None
    user_name: str | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, JSON] | None = None
    job: Mapping[str, JSON] | None = None
    notebook: Mapping[str, JSON] | None = None
    cluster_id: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    operation_metrics: Mapping[str, JSON] | None = None
    user_metadata: str | None = None
    tags: Mapping[str, JSON] | None = None
    engine_info: str | None = None
    txn_id: str | None = None

    kind: ClassVar[str] = "commitInfo"
    _lenient: ClassVar[bool] = True
    _fields: ClassVar[tuple[RecordField, ...]] = (
        optional("inCommitTimestamp", int64),
        optional("timestamp", int64),
        optional("userId", string),
        optional("userName", string),
        optional("operation", string),
        optional("operationParameters", json_object),
        optional("job", json_object),
        optional("notebook", json_object),
        optional("clusterId", string),
        optional("readVersion", int64),
        optional("isolationLevel", string),
        optional("isBlindAppend", boolean),
        optional("operationMetrics", json_object),
        optional("userMetadata", string),
        optional("tags", json_object),
        optional("engineInfo", string),
        optional("txnId", string),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownAction:
    """An action of a kind that this lakelog does not know; readers ignore it (PROTOCOL.md, "Requirements for Readers")."""

    name: str
    value: JSON


KnownAction: TypeAlias = (
    AddFile
    | RemoveFile
    | AddCDCFile
    | Metadata
    | Protocol
    | CommitInfo
    | SetTransaction
    | DomainMetadata
    | CheckpointMetadata
    | SidecarFile
)
Action: TypeAlias = KnownAction | UnknownAction

_KINDS: dict[str, type[KnownAction]] = {
    kind.kind: kind
    for kind in (
        AddFile,
        RemoveFile,
        AddCDCFile,
        Metadata,
        Protocol,
        CommitInfo,
        SetTransaction,
        DomainMetadata,
        CheckpointMetadata,
        SidecarFile,
    )
}


def action_to_json(action: Action) -> dict[str, JSON]:
    """``{"add": {...}}``: the action under the name of its kind."""
    if isinstance(action, UnknownAction):
        return {action.name: action.value}
    return {action.kind: action.to_json()}


def parse_line(line: bytes) -> Action:
    """The action of one line of a commit file.

    Raises:
        CorruptLogError: not JSON, not an object with exactly one key, a key twice, or a field of the wrong type.
    """
    value = load_json(line)
    if not isinstance(value, dict) or len(value) != 1:
        found = f"an object with the keys {shown(sorted(value))}" if isinstance(value, dict) else shown(value)
        raise CorruptLogError(f"an action must be an object with one key, found {found}")
    ((name, inner),) = value.items()
    kind = _KINDS.get(name)
    return UnknownAction(name=name, value=inner) if kind is None else kind.from_json(inner)


def parse_commit(data: bytes, source: str) -> list[Action]:
    """The actions of a commit file in order; blank lines are skipped.

    Args:
        data: the whole file.
        source: the file's name, for messages.

    Raises:
        CorruptLogError: names ``source`` and the line, counted from 1.
    """
    actions = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line or line.isspace():
            continue
        try:
            actions.append(parse_line(line))
        except CorruptLogError as error:
            raise CorruptLogError(f"{source}, line {number}: {error}") from error
    return actions


def serialize_commit(actions: Iterable[Action]) -> bytes:
    """A commit file: one line of JSON per action, each ended by a newline.

    Raises:
        ValueError: a value that JSON cannot hold (NaN, an infinity, a lone surrogate).
    """
    return "".join(COMPACT_JSON.encode(action_to_json(action)) + "\n" for action in actions).encode()
