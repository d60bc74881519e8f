"""Table features: one record per feature, and whether a table's protocol can be read and written (PROTOCOL.md, "Table Features")."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.column_mapping import mapping_mode
from lakelog.core.errors import CorruptLogError, InvalidRequestError, UnsupportedFeatureError
from lakelog.core.field_metadata import CURRENT_DEFAULT, GENERATION_EXPRESSION, INVARIANTS
from lakelog.core.property_checks import check_stored
from lakelog.core.schema import DataType, StructType, walk
from lakelog.core.table_properties import (
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    CHECKPOINT_POLICY,
    CHECKPOINT_PROTECTION_VERSION,
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    IN_COMMIT_TIMESTAMPS,
    ROW_TRACKING,
    TYPE_WIDENING,
    Property,
)

MAX_READER_VERSION, MAX_WRITER_VERSION = 3, 7

Activation = Callable[[Metadata, StructType], str | None]


def _by_property(prop: Property[bool] | Property[str]) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        return f"the table property {prop.key} is set" if prop.of(metadata.configuration) not in (False, "none", "classic") else None

    return active


def _by_key(*keys: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        # Of what is not implemented, anything but an explicit off counts as on: writing past it costs more than a refusal.
        key = next((k for k in keys if metadata.configuration.get(k, "false").lower() not in ("false", "none", "0", "")), None)
        return f"the table property {key} is set" if key else None

    return active


def _by_key_prefix(prefix: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        key = next((k for k in metadata.configuration if k.startswith(prefix)), None)
        return f"the table property {key} is set" if key else None

    return active


def _by_field_metadata(prefix: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        path = next((path for path, field in walk(schema) if any(k.startswith(prefix) for k in field.metadata)), None)
        return f"the column {'.'.join(path)} carries {prefix.rstrip('.')}" if path else None

    return active


def _by_invariant(metadata: Metadata, schema: StructType) -> str | None:
    path = next((path for path, field in walk(schema) if not field.nullable or INVARIANTS in field.metadata), None)
    return f"the column {'.'.join(path)} is NOT NULL or carries {INVARIANTS}" if path else None


def _by_type(name: str) -> Activation:
    def active(metadata: Metadata, schema: StructType) -> str | None:
        path = next((path for path, field in walk(schema) if _holds(field.type, name)), None)
        return f"the column {'.'.join(path)} is of type {name}" if path else None

    return active


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFeature:
    """One feature of the protocol.

    Attributes:
        reader_version: the lowest protocol version below 3 that implies it for readers, None when it must be listed.
        writer_version: the same for writers, below 7.
        dependencies: features without which it must not be listed.
        readable: lakelog reads tables that list it; writer-only features never matter to a reader.
        writable: lakelog writes tables on which it is active, and lets it be enabled.
        active: what of a table's metadata calls for it, as words for a message; None where being listed is all there is to see.
        manual: what calls for it comes with the data, so that an existing table gets it only when it is asked for by name.
    """

    name: str
    kind: Literal["reader_writer", "writer"] = "writer"
    reader_version: int | None = None
    writer_version: int | None = None
    dependencies: tuple[str, ...] = ()
    readable: bool = False
    writable: bool = False
    active: Activation | None = None
    manual: bool = False

    @property
    def is_legacy(self) -> bool:
        """There is a protocol version below 7 that implies it."""
        return self.writer_version is not None


def _reader_writer(
    name: str, *dependencies: str, supported: bool = False, active: Activation | None = None, manual: bool = False
) -> TableFeature:
    return TableFeature(
        name=name,
        kind="reader_writer",
        dependencies=dependencies,
        readable=supported,
        writable=supported,
        active=active,
        manual=manual,
    )


FEATURES: Mapping[str, TableFeature] = {
    feature.name: feature
    for feature in (
        TableFeature(name="appendOnly", writer_version=2, writable=True, active=_by_property(APPEND_ONLY)),
        TableFeature(name="invariants", writer_version=2, writable=True, active=_by_invariant),
        TableFeature(name="checkConstraints", writer_version=3, writable=True, active=_by_key_prefix(CONSTRAINT_PREFIX)),
        TableFeature(name="changeDataFeed", writer_version=4, writable=True, active=_by_property(CHANGE_DATA_FEED)),
        TableFeature(name="generatedColumns", writer_version=4, writable=True, active=_by_field_metadata(GENERATION_EXPRESSION)),
        TableFeature(
            name="columnMapping",
            kind="reader_writer",
            reader_version=2,
            writer_version=5,
            readable=True,
            writable=True,
            active=_by_property(COLUMN_MAPPING_MODE),
        ),
        TableFeature(name="identityColumns", writer_version=6, writable=True, active=_by_field_metadata("delta.identity.")),
        _reader_writer("timestampNtz", supported=True, active=_by_type("timestamp_ntz"), manual=True),
        _reader_writer("vacuumProtocolCheck", supported=True),
        _reader_writer("deletionVectors", active=_by_key("delta.enableDeletionVectors")),
        _reader_writer("v2Checkpoint", active=_by_property(CHECKPOINT_POLICY)),
        _reader_writer("typeWidening", supported=True, active=_by_property(TYPE_WIDENING)),
        # What tables got before the feature was final; the same in all that it demands.
        _reader_writer("typeWidening-preview", supported=True),
        _reader_writer("variantType", active=_by_type("variant")),
        _reader_writer("variantType-preview"),
        _reader_writer("variantShredding", "variantType", active=_by_key("delta.enableVariantShredding")),
        _reader_writer("variantShredding-preview", "variantType"),
        _reader_writer("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"),
        _reader_writer("geospatial"),
        _reader_writer("geospatial-dev"),
        _reader_writer("adaptiveMetadata-preview", "catalogManaged", "rowTracking", "domainMetadata", "deletionVectors", "columnMapping"),
        _reader_writer("redirectReaderWriter-preview"),
        TableFeature(name="domainMetadata", writable=True),
        TableFeature(name="rowTracking", dependencies=("domainMetadata",), writable=True, active=_by_property(ROW_TRACKING)),
        TableFeature(name="inCommitTimestamp", writable=True, active=_by_property(IN_COMMIT_TIMESTAMPS)),
        TableFeature(name="clustering", dependencies=("domainMetadata",), writable=True),
        TableFeature(name="allowColumnDefaults", writable=True, active=_by_field_metadata(CURRENT_DEFAULT), manual=True),
        TableFeature(name="icebergCompatV1", dependencies=("columnMapping",), active=_by_key("delta.enableIcebergCompatV1")),
        TableFeature(name="icebergCompatV2", dependencies=("columnMapping",), active=_by_key("delta.enableIcebergCompatV2")),
        TableFeature(name="icebergCompatV3", dependencies=("columnMapping", "rowTracking"), active=_by_key("delta.enableIcebergCompatV3")),
        TableFeature(name="materializePartitionColumns"),
        TableFeature(name="checkpointProtection", active=_by_key(CHECKPOINT_PROTECTION_VERSION)),
        TableFeature(name="coordinatedCommits-preview", dependencies=("inCommitTimestamp", "vacuumProtocolCheck")),
        TableFeature(name="redirectWriterOnly-preview"),
    )
}


def feature_named(name: str, table: str) -> TableFeature:
    """The feature of a name in any letter case, one that lakelog lets a table have.

    Raises:
        InvalidRequestError: there is no such feature; names the nearest, or all.
        UnsupportedFeatureError: it comes with a later release.
    """
    spellings = {known.lower(): known for known in FEATURES}
    found = spellings.get(name.lower())
    if found is None:
        nearest = difflib.get_close_matches(name.lower(), sorted(spellings), n=1)
        there = ", ".join(sorted(known for known, feature in FEATURES.items() if feature.writable))
        hint = f"The nearest is {spellings[nearest[0]]}." if nearest else f"There are: {there}."
        raise InvalidRequestError(f"Delta table {table}: there is no table feature {name}. {hint}")
    feature = FEATURES[found]
    if not feature.writable:
        raise UnsupportedFeatureError(
            f"Delta table {table}: the table feature {found} comes with a later release of lakelog. Leave it out.", features=(found,)
        )
    return feature


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


def check_writable(protocol: Protocol, metadata: Metadata, schema: StructType, table: str, *, changes: Collection[str] = ()) -> None:
    """Refuse a table that lakelog cannot write. A feature that is listed but not active is no hindrance where the protocol allows it.

    Args:
        changes: the keys of table properties that are set or unset now; see `lakelog.core.property_checks.check_stored`.

    Raises:
        InvalidTablePropertyError: a table property that cannot be parsed.
        UnsupportedFeatureError: names the features, and what activates each.
        CorruptLogError: writer version 7 without a list of features.
    """
    check_readable(protocol, table)
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        raise _refusal(table, "write", {f"minWriterVersion={protocol.min_writer_version}": ""})
    if protocol.min_writer_version == MAX_WRITER_VERSION and protocol.writer_features is None:
        raise CorruptLogError(f"Delta table {table}: the protocol has writer version 7 but no writerFeatures. Restore the log.")
    refused: dict[str, str] = {}
    for name in writer_features(protocol):
        feature = FEATURES.get(name)
        if feature is None:
            refused[name] = "lakelog does not know it"
        elif not feature.writable and (why := _listed if feature.active is None else feature.active(metadata, schema)) is not None:
            refused[name] = why
    if refused:
        raise _refusal(table, "write", refused)
    # Where columns are mapped no statement mends the mode, which has words of its own.
    mapping_mode(protocol, metadata.configuration, table)
    check_stored(metadata.configuration, table, changes=changes)


_listed = "it is listed in the protocol"


def _holds(data_type: DataType, name: str) -> bool:
    """It is of the primitive type of that name, or an array or a map of it; what a struct holds is for its fields to say."""
    inner = (getattr(data_type, part, None) for part in ("element", "key", "value"))
    return getattr(data_type, "name", None) == name or any(_holds(part, name) for part in inner if part is not None)


def _told(refused: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({why})" if why else name for name, why in sorted(refused.items()))


def _refusal(table: str, verb: str, refused: Mapping[str, str]) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Delta table {table}: this lakelog cannot {verb} a table with {_told(refused)}. "
        "Use a newer lakelog, or drop the feature from the table.",
        features=sorted(refused),
    )
