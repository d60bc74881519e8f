"""Table features: one record per feature, and whether a table's protocol can be read and written (PROTOCOL.md, "Table Features")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.errors import CorruptLogError, UnsupportedFeatureError
from lakelog.core.schema import PrimitiveType, StructType, walk
from lakelog.core.table_properties import CHANGE_DATA_FEED, CHECKPOINT_POLICY, ROW_TRACKING

MAX_READER_VERSION, MAX_WRITER_VERSION = 3, 7

Activation = Callable[[Metadata, StructType], str | None]


def _always(metadata: Metadata, schema: StructType) -> str:
    return "it is listed in the protocol"


def _by_property(*keys: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        # Anything but an explicit off counts as on: writing past a feature costs more than a refusal.
        on = (k for k in keys if metadata.configuration.get(k, "false").lower() not in ("false", "none", "0", ""))
        key = next(on, None)
        return f"the table property {key} is set" if key else None

    return active


def _by_property_prefix(prefix: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        key = next((k for k in metadata.configuration if k.startswith(prefix)), None)
        return f"the table property {key} is set" if key else None

    return active


def _by_field_metadata(prefix: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        path = next((path for path, field in walk(schema) if any(k.startswith(prefix) for k in field.metadata)), None)
        return f"the column {'.'.join(path)} carries {prefix.rstrip('.')}" if path else None

    return active


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFeature:
    """One feature of the protocol.

    Attributes:
        reader_version: the highest protocol version below 3 that implies it for readers, None when it must be listed.
        writer_version: the same for writers, below 7.
        readable: lakelog reads tables that list it; writer-only features never matter to a reader.
        writable: lakelog writes tables on which it is active.
        active: what on the table activates it, as words for a message; None when the table only lists it.
    """

    name: str
    kind: Literal["reader_writer", "writer"] = "writer"
    reader_version: int | None = None
    writer_version: int | None = None
    dependencies: tuple[str, ...] = ()
    readable: bool = False
    writable: bool = False
    active: Activation = _always


def _reader_writer(name: str, *dependencies: str, readable: bool = False) -> TableFeature:
    return TableFeature(name=name, kind="reader_writer", dependencies=dependencies, readable=readable, writable=readable)


FEATURES: Mapping[str, TableFeature] = {
    feature.name: feature
    for feature in (
        TableFeature(name="appendOnly", writer_version=2, writable=True),
        TableFeature(name="invariants", writer_version=2, active=_by_field_metadata("delta.invariants")),
        TableFeature(name="checkConstraints", writer_version=3, active=_by_property_prefix("delta.constraints.")),
        TableFeature(name="changeDataFeed", writer_version=4, writable=True),
        TableFeature(name="generatedColumns", writer_version=4, active=_by_field_metadata("delta.generationExpression")),
        TableFeature(
            name="columnMapping",
            kind="reader_writer",
            reader_version=2,
            writer_version=5,
            active=_by_property("delta.columnMapping.mode"),
        ),
        TableFeature(name="identityColumns", writer_version=6, active=_by_field_metadata("delta.identity.")),
        _reader_writer("timestampNtz", readable=True),
        _reader_writer("vacuumProtocolCheck", readable=True),
        _reader_writer("deletionVectors"),
        _reader_writer("v2Checkpoint"),
        _reader_writer("typeWidening"),
        _reader_writer("typeWidening-preview"),
        _reader_writer("variantType"),
        _reader_writer("variantType-preview"),
        _reader_writer("variantShredding", "variantType"),
        _reader_writer("variantShredding-preview", "variantType"),
        _reader_writer("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"),
        _reader_writer("geospatial"),
        _reader_writer("geospatial-dev"),
        _reader_writer("adaptiveMetadata-preview", "catalogManaged", "rowTracking", "domainMetadata", "deletionVectors", "columnMapping"),
        _reader_writer("redirectReaderWriter-preview"),
        TableFeature(name="domainMetadata", writable=True),
        TableFeature(name="rowTracking", dependencies=("domainMetadata",)),
        TableFeature(name="inCommitTimestamp", active=_by_property("delta.enableInCommitTimestamps")),
        TableFeature(name="clustering", dependencies=("domainMetadata",)),
        TableFeature(name="allowColumnDefaults", active=_by_field_metadata("CURRENT_DEFAULT")),
        TableFeature(name="icebergCompatV1", dependencies=("columnMapping",), active=_by_property("delta.enableIcebergCompatV1")),
        TableFeature(name="icebergCompatV2", dependencies=("columnMapping",), active=_by_property("delta.enableIcebergCompatV2")),
        TableFeature(
            name="icebergCompatV3", dependencies=("columnMapping", "rowTracking"), active=_by_property("delta.enableIcebergCompatV3")
        ),
        TableFeature(name="materializePartitionColumns"),
        TableFeature(name="checkpointProtection", active=_by_property("delta.requireCheckpointProtectionBeforeVersion")),
        TableFeature(name="coordinatedCommits-preview"),
        TableFeature(name="redirectWriterOnly-preview"),
    )
}


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Names of the features that a reader must know: those listed, and those that the version implies."""
    listed = frozenset(protocol.reader_features or ())
    if protocol.min_reader_version >= MAX_READER_VERSION:
        return listed
    return listed | {f.name for f in FEATURES.values() if f.reader_version and f.reader_version <= protocol.min_reader_version}


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Names of the features that a writer must know: those listed, and those that the version implies."""
    listed = frozenset(protocol.writer_features or ())
    if protocol.min_writer_version >= MAX_WRITER_VERSION:
        return listed
    return listed | {f.name for f in FEATURES.values() if f.writer_version and f.writer_version <= protocol.min_writer_version}


def feature_names(protocol: Protocol) -> tuple[str, ...]:
    """What delta-spark's DESCRIBE DETAIL shows as ``tableFeatures``: those listed and those that the versions imply, sorted.

    A feature of readers and writers is implied only where both versions reach it.
    """
    writer = writer_features(protocol)
    readers = {name for name in writer if name in FEATURES and FEATURES[name].kind == "reader_writer"}
    listed = frozenset(protocol.reader_features or ()) | frozenset(protocol.writer_features or ())
    return tuple(sorted((writer - readers) | (readers & reader_features(protocol)) | listed))


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a table that lakelog cannot read.

    Raises:
        UnsupportedFeatureError: a feature, or a reader version, that is not implemented; names all of them.
        CorruptLogError: reader version 3 without a list of features.
    """
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise _refusal(table, "read", {f"minReaderVersion={protocol.min_reader_version}": ""})
    if protocol.min_reader_version == MAX_READER_VERSION and protocol.reader_features is None:
        raise CorruptLogError(f"Delta table {table}: the protocol has reader version 3 but no readerFeatures. Restore the log.")
    # A reader-writer feature that only the writers' list names breaks the protocol; its data must not be read wrongly all the same.
    listed = {name for name in protocol.writer_features or () if name in FEATURES and FEATURES[name].kind == "reader_writer"}
    refused = [name for name in reader_features(protocol) | listed if name not in FEATURES or not FEATURES[name].readable]
    if refused:
        raise _refusal(table, "read", dict.fromkeys(refused, ""))


def check_writable(protocol: Protocol, metadata: Metadata, schema: StructType, table: str) -> None:
    """Refuse a table that lakelog cannot write. A feature that is listed but not active is no hindrance where the protocol allows it.

    Raises:
        UnsupportedFeatureError: names the features, and what activates each.
        CorruptLogError: writer version 7 without a list of features.
    """
    check_readable(protocol, table)
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        raise _refusal(table, "write", {f"minWriterVersion={protocol.min_writer_version}": ""})
    if protocol.min_writer_version == MAX_WRITER_VERSION and protocol.writer_features is None:
        raise CorruptLogError(f"Delta table {table}: the protocol has writer version 7 but no writerFeatures. Restore the log.")
    refused: dict[str, str] = {}
    # Constraints hold whether or not the protocol lists them, as delta-spark has it.
    for name in writer_features(protocol) | {"checkConstraints", "invariants"}:
        feature = FEATURES.get(name)
        if feature is None:
            refused[name] = "lakelog does not know it"
        elif not feature.writable and (why := feature.active(metadata, schema)) is not None:
            refused[name] = why
    if refused:
        raise _refusal(table, "write", refused)


def check_row_delete(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse to delete single rows of a table where the rewrite of a file must say more than its rows.

    Raises:
        UnsupportedFeatureError: a change data feed (the commit must carry the changed rows) or row tracking (rows must keep their ids).
        InvalidTablePropertyError: the value of a property that decides on it cannot be parsed.
    """
    refused = {
        name: f"the table property {prop.key} is set"
        for name, prop in (("changeDataFeed", CHANGE_DATA_FEED), ("rowTracking", ROW_TRACKING))
        if prop.of(metadata.configuration)
    }
    if "rowTracking" in writer_features(protocol):
        refused.setdefault("rowTracking", _always(metadata, StructType()))
    if refused:
        raise _refusal(table, "delete rows from", refused)


def protocol_for_new_table(schema: StructType, properties: Mapping[str, str]) -> Protocol:
    """The weakest protocol for a new table: (1, 2), or table features where a type needs one.

    Args:
        schema: of the table.
        properties: that passed `lakelog.core.table_properties.check_properties`.

    Raises:
        UnsupportedFeatureError: a property or a column's metadata asks for a feature that comes with a later release.
        InvalidTablePropertyError: the value of a property that decides on it cannot be parsed.
    """
    refused: dict[str, str] = {}
    if CHANGE_DATA_FEED.of(properties):
        refused["changeDataFeed"] = f"the table property {CHANGE_DATA_FEED.key} is set"
    if CHECKPOINT_POLICY.of(properties) != "classic":
        refused["v2Checkpoint"] = f"the table property {CHECKPOINT_POLICY.key} is set"
    probe = Metadata(id="", configuration=properties)
    for name, why in _NOT_CREATED.items():
        if (reason := why(probe, schema)) is not None:
            refused[name] = reason
    if refused:
        raise UnsupportedFeatureError(
            f"The new Delta table cannot be created with {_told(refused)}: writing it comes with a later release of lakelog. "
            "Leave the property out.",
            features=sorted(refused),
        )
    if not _holds_ntz(schema):
        return Protocol(min_reader_version=1, min_writer_version=2)
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("timestampNtz",),
        writer_features=("appendOnly", "invariants", "timestampNtz"),
    )


_SELF_ACTIVATED = (
    *("columnMapping", "checkConstraints", "inCommitTimestamp", "generatedColumns", "invariants", "identityColumns"),
    *("allowColumnDefaults", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
)
_NOT_CREATED: Mapping[str, Activation] = {
    **{name: FEATURES[name].active for name in _SELF_ACTIVATED},
    "materializePartitionColumns": _by_property("delta.enableMaterializePartitionColumnsFeature", "delta.writePartitionColumnsToParquet"),
    "deletionVectors": _by_property("delta.enableDeletionVectors"),
    "rowTracking": _by_property("delta.enableRowTracking"),
    "typeWidening": _by_property("delta.enableTypeWidening"),
    "variantShredding": _by_property("delta.enableVariantShredding"),
}


def _holds_ntz(data_type: object) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_ntz(f.type) for f in data_type.fields)
    inner = (getattr(data_type, part, None) for part in ("element", "key", "value"))
    return data_type == PrimitiveType("timestamp_ntz") or any(_holds_ntz(part) for part in inner if part is not None)


def _told(refused: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({why})" if why else name for name, why in sorted(refused.items()))


def _refusal(table: str, verb: str, refused: Mapping[str, str]) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Delta table {table}: this lakelog cannot {verb} a table with {_told(refused)}. "
        "Use a newer lakelog, or drop the feature from the table.",
        features=sorted(refused),
    )
