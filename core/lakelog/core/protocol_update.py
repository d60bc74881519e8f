"""Which protocol a table gets, and how one is raised or lowered (PROTOCOL.md, "Protocol Evolution", "Table Features").

A protocol is kept in its weakest form: legacy version numbers where those imply the very features that it has, lists of features
otherwise, and the lowest reader version that fits. A new table starts from the features of (1, 2), as delta-spark's does, since every
writer knows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.errors import InvalidRequestError, InvalidTablePropertyError
from lakelog.core.property_checks import Directives
from lakelog.core.schema import StructType
from lakelog.core.table_features import FEATURES, MAX_READER_VERSION, MAX_WRITER_VERSION, TableFeature, feature_named, feature_names

_DEFAULT = Protocol(min_reader_version=1, min_writer_version=2)
_WEAKEST = Protocol(min_reader_version=1, min_writer_version=1)
# Who has the preview of a feature needs the feature itself no more.
_PREVIEWS = {"typeWidening": "typeWidening-preview"}


def protocol_of(features: Collection[str]) -> Protocol:
    """The weakest protocol with these features and no other."""
    known = [FEATURES[name] for name in features if name in FEATURES]
    unknown = [name for name in features if name not in FEATURES]
    reader = max((_reader_version(feature) for feature in known), default=1)
    if not unknown and all(feature.is_legacy for feature in known):
        writer = max((feature.writer_version or 1 for feature in known), default=1)
        legacy = Protocol(min_reader_version=reader, min_writer_version=writer)
        if set(feature_names(legacy)) == set(features):
            return legacy
    for_readers = {feature.name for feature in known if feature.kind == "reader_writer"}
    return Protocol(
        min_reader_version=reader,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=tuple(sorted(for_readers)) if reader == MAX_READER_VERSION else None,
        writer_features=tuple(sorted(features)),
    )


def new_protocol(
    metadata: Metadata, schema: StructType, *, table: str, directives: Directives | None = None, asked: Iterable[str] = ()
) -> Protocol:
    """The protocol of a table that is being made.

    Args:
        metadata: as it will be.
        schema: its schema.
        table: the table's root, for messages.
        directives: what the properties ask of the protocol.
        asked: features that it is to have whether or not the metadata calls for them.

    Raises:
        InvalidRequestError: there is no feature of that name.
        UnsupportedFeatureError: a feature that comes with a later release.
        InvalidTablePropertyError: a property that decides on a feature cannot be parsed.
    """
    directives = directives or Directives()
    base = _WEAKEST if directives.ignore_defaults else _DEFAULT
    names = set(_versions(base, directives))
    names |= _closure([*asked, *directives.features], table)
    names |= _closure(_called_for(metadata, schema, names, table), table)
    return protocol_of(names)


def raised(
    protocol: Protocol,
    metadata: Metadata,
    schema: StructType,
    *,
    table: str,
    directives: Directives | None = None,
    asked: Iterable[str] = (),
    replaced: bool = False,
) -> Protocol:
    """The protocol of an existing table whose metadata changes; the same object where it has all that is needed.

    Args:
        protocol: in force.
        metadata: as it will be.
        schema: its schema.
        table: the table's root, for messages.
        directives: what the properties ask of the protocol; versions that are lower than the table's ask for nothing.
        asked: features that it is to have whether or not the metadata calls for them.
        replaced: the table is made anew in place, so that a feature its columns call for need not be asked for.

    Raises:
        InvalidRequestError: there is no feature of that name; or a column calls for a feature that nobody asked for.
        UnsupportedFeatureError: a feature that comes with a later release.
        InvalidTablePropertyError: a property that decides on a feature cannot be parsed.
    """
    directives = directives or Directives()
    before = set(feature_names(protocol))
    names = before | set(_versions(protocol, directives)) | _closure([*asked, *directives.features], table)
    called_for = _called_for(metadata, schema, names, table)
    if not replaced:
        for name in sorted(called_for - names):
            if FEATURES[name].manual:
                raise _unasked(FEATURES[name], protocol, protocol_of(names | {name}), metadata, schema, table)
    names |= _closure(called_for, table)
    return protocol if names == before else protocol_of(names)


def with_versions(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """The protocol with all features that a pair of versions implies besides; the same object where it has them.

    As in delta-spark the versions 3 and 7, which imply no feature, change nothing.

    Args:
        reader: 1 to 3.
        writer: 1 to 7.

    Raises:
        InvalidRequestError: there are no such versions.
    """
    for name, version, highest in (("reader", reader, MAX_READER_VERSION), ("writer", writer, MAX_WRITER_VERSION)):
        if not 1 <= version <= highest:
            raise InvalidRequestError(f"There is no {name} version {version}. Use a whole number from 1 to {highest}.")
    before = set(feature_names(protocol))
    names = before | set(_implied(reader, writer))
    return protocol if names == before else protocol_of(names)


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """The weakest protocol with all features but one; the features that a version implied are listed where they must be."""
    return protocol_of(set(feature_names(protocol)) - {name})


def protocol_text(protocol: Protocol) -> str:
    """A protocol in a message: ``(1, 2)``, ``(1, 7: appendOnly, rowTracking)``."""
    names = f": {', '.join(feature_names(protocol))}" if protocol.min_writer_version >= MAX_WRITER_VERSION else ""
    return f"({protocol.min_reader_version}, {protocol.min_writer_version}{names})"


def _reader_version(feature: TableFeature) -> int:
    return 1 if feature.kind == "writer" else feature.reader_version or MAX_READER_VERSION


def _implied(reader: int, writer: int) -> tuple[str, ...]:
    if writer >= MAX_WRITER_VERSION:
        return ()
    # A reader version of 3 goes with lists alone; what it brings below writer version 7 is what 2 does.
    return feature_names(Protocol(min_reader_version=min(reader, 2), min_writer_version=writer))


def _versions(base: Protocol, directives: Directives) -> tuple[str, ...]:
    """The features of the protocol's versions, or of those that are asked for."""
    if directives.reader_version is None and directives.writer_version is None:
        return feature_names(base)
    reader = base.min_reader_version if directives.reader_version is None else directives.reader_version
    writer = base.min_writer_version if directives.writer_version is None else directives.writer_version
    return _implied(reader, writer)


def _closure(names: Iterable[str], table: str) -> set[str]:
    """The features of those names with all that they depend on."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        feature = feature_named(todo.pop(), table)
        if feature.name not in found:
            found.add(feature.name)
            todo += feature.dependencies
    return found


def _called_for(metadata: Metadata, schema: StructType, names: Collection[str], table: str) -> set[str]:
    """Features that lakelog lets be enabled and that something of the metadata calls for."""
    try:
        return {
            feature.name
            for feature in FEATURES.values()
            if feature.writable
            and feature.active is not None
            and _PREVIEWS.get(feature.name) not in names
            and feature.active(metadata, schema)
        }
    except InvalidTablePropertyError as error:
        raise InvalidTablePropertyError(f"Delta table {table}: {error} Set it anew, or unset it.") from None


def _unasked(
    feature: TableFeature, before: Protocol, after: Protocol, metadata: Metadata, schema: StructType, table: str
) -> InvalidRequestError:
    assert feature.active is not None
    return InvalidRequestError(
        f"Delta table {table}: {feature.active(metadata, schema)}, which takes the table feature {feature.name}. That raises the protocol "
        f"from {protocol_text(before)} to {protocol_text(after)}, and clients that do not know the feature lose the table. If that is "
        f'wanted, call addFeatureSupport("{feature.name}") on the DeltaTable, and then repeat this.'
    )
