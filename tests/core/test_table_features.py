from __future__ import annotations

from collections.abc import Mapping

import pytest

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.errors import CorruptLogError, InvalidRequestError, InvalidTablePropertyError, UnsupportedFeatureError
from lakelog.core.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from lakelog.core.table_features import (
    FEATURES,
    check_readable,
    check_writable,
    feature_named,
    feature_names,
)
from lakelog.core.table_properties import DESCRIPTORS

PLAIN = StructType((StructField("a", PrimitiveType("long")),))
NTZ = PrimitiveType("timestamp_ntz")


def protocol(reader: int, writer: int, readers: tuple[str, ...] | None = None, writers: tuple[str, ...] | None = None) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer, reader_features=readers, writer_features=writers)


def both(*names: str) -> Protocol:
    return protocol(3, 7, names, names)


def only_writers(*names: str) -> Protocol:
    return protocol(1, 7, None, names)


def metadata(configuration: Mapping[str, str] | None = None) -> Metadata:
    return Metadata(id="x", configuration=configuration or {})


def nested_with(field_metadata: Mapping[str, str]) -> StructType:
    inner = StructType((StructField("b", PrimitiveType("long"), True, dict(field_metadata)),))
    return StructType((StructField("a", ArrayType(inner)),))


@pytest.mark.parametrize(
    "given",
    [
        protocol(1, 1),
        protocol(1, 2),
        protocol(1, 6),
        both(),
        both("timestampNtz", "vacuumProtocolCheck"),
        only_writers("collations", "rowTracking"),
        protocol(2, 5),
        protocol(2, 7, None, ("appendOnly",)),
        both("columnMapping", "typeWidening", "typeWidening-preview"),
    ],
)
def test_tables_that_can_be_read(given: Protocol) -> None:
    check_readable(given, "/t")


@pytest.mark.parametrize(
    ("given", "features"),
    [
        (both("v2Checkpoint", "timestampNtz", "deletionVectors"), ("deletionVectors", "v2Checkpoint")),
        (both("fromTheFuture"), ("fromTheFuture",)),
        (protocol(4, 7, (), ()), ("minReaderVersion=4",)),
        # The protocol forbids it, but rows that a vector deletes must not come back.
        (only_writers("deletionVectors"), ("deletionVectors",)),
    ],
)
def test_tables_that_cannot_be_read_are_refused_by_feature(given: Protocol, features: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="/t") as caught:
        check_readable(given, "/t")
    assert caught.value.features == features
    assert all(name in str(caught.value) for name in features)


def test_feature_versions_without_their_lists_are_damage() -> None:
    with pytest.raises(CorruptLogError, match="readerFeatures"):
        check_readable(protocol(3, 7, None, ()), "/t")
    with pytest.raises(CorruptLogError, match="writerFeatures"):
        check_writable(protocol(1, 7), metadata(), PLAIN, "/t")


@pytest.mark.parametrize(
    ("given", "configuration"),
    [
        (protocol(1, 2), {"delta.appendOnly": "true"}),
        (protocol(1, 4), {}),
        (protocol(1, 6), {"delta.columnMapping.mode": "none"}),
        (protocol(1, 4), {"delta.enableChangeDataFeed": "true"}),
        (only_writers("inCommitTimestamp", "checkConstraints", "domainMetadata"), {"delta.enableInCommitTimestamps": "false"}),
        (both("timestampNtz"), {}),
        (protocol(2, 6), {"delta.columnMapping.mode": "id"}),
        (only_writers("rowTracking", "domainMetadata", "clustering"), {"delta.enableRowTracking": "true"}),
        (only_writers("inCommitTimestamp"), {"delta.enableInCommitTimestamps": "true"}),
        (only_writers("icebergCompatV2", "columnMapping"), {"delta.enableIcebergCompatV2": "false"}),
        (protocol(1, 3), {"delta.constraints.positive": "a > 0"}),
    ],
)
def test_tables_that_can_be_written(given: Protocol, configuration: dict[str, str]) -> None:
    check_writable(given, metadata(configuration), PLAIN, "/t")


@pytest.mark.parametrize(
    ("given", "configuration", "schema", "features", "cause"),
    [
        (protocol(1, 8), {}, PLAIN, ("minWriterVersion=8",), "minWriterVersion=8"),
        (only_writers("collations"), {}, PLAIN, ("collations",), "does not know"),
        (only_writers("materializePartitionColumns"), {}, PLAIN, ("materializePartitionColumns",), "listed"),
        (
            only_writers("icebergCompatV1"),
            {"delta.enableIcebergCompatV1": "perhaps"},
            PLAIN,
            ("icebergCompatV1",),
            "delta.enableIcebergCompatV1",
        ),
        (
            only_writers("checkpointProtection"),
            {"delta.requireCheckpointProtectionBeforeVersion": "4"},
            PLAIN,
            ("checkpointProtection",),
            "delta.requireCheckpointProtection",
        ),
        (both("deletionVectors"), {}, PLAIN, ("deletionVectors",), "read"),
    ],
)
def test_tables_that_cannot_be_written_are_refused_with_the_cause(
    given: Protocol, configuration: dict[str, str], schema: StructType, features: tuple[str, ...], cause: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match="/t") as caught:
        check_writable(given, metadata(configuration), schema, "/t")
    assert caught.value.features == features
    assert cause in str(caught.value)


@pytest.mark.parametrize(
    ("data_type", "column"),
    [
        (NTZ, "a"),
        (ArrayType(NTZ), "a"),
        (MapType(PrimitiveType("string"), NTZ), "a"),
        (MapType(NTZ, PrimitiveType("string")), "a"),
        (StructType((StructField("x", ArrayType(ArrayType(NTZ))),)), "a.x"),
    ],
)
def test_a_timestamp_without_zone_at_any_depth_calls_for_its_feature(data_type: DataType, column: str) -> None:
    active = FEATURES["timestampNtz"].active
    assert active is not None
    assert active(metadata(), PLAIN) is None
    assert active(metadata(), StructType((StructField("a", data_type),))) == f"the column {column} is of type timestamp_ntz"


def test_features_by_name() -> None:
    assert feature_named("ROWTRACKING", "/t") is FEATURES["rowTracking"]
    with pytest.raises(InvalidRequestError, match=r"/t: there is no table feature appendonlyy\. The nearest is appendOnly\."):
        feature_named("appendonlyy", "/t")
    with pytest.raises(UnsupportedFeatureError, match=r"/t: the table feature v2Checkpoint comes with a later release"):
        feature_named("v2Checkpoint", "/t")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (protocol(1, 1), ()),
        (protocol(1, 2), ("appendOnly", "invariants")),
        (protocol(1, 4), ("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants")),
        # Column mapping takes reader version 2 as well.
        (protocol(1, 5), ("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants")),
        (protocol(2, 5), ("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns", "invariants")),
        (protocol(2, 7, None, ("columnMapping", "appendOnly")), ("appendOnly", "columnMapping")),
        (both("timestampNtz"), ("timestampNtz",)),
        (protocol(3, 7, ("new",), ("new", "appendOnly")), ("appendOnly", "new")),
    ],
)
def test_feature_names(given: Protocol, names: tuple[str, ...]) -> None:
    assert feature_names(given) == names


def test_dependencies_are_features_too() -> None:
    assert all(FEATURES.keys() >= set(feature.dependencies) for feature in FEATURES.values())


def test_features_that_lakelog_lets_be_enabled_have_no_dependency_that_it_does_not() -> None:
    assert all(FEATURES[name].writable for feature in FEATURES.values() if feature.writable for name in feature.dependencies)


# No text is unparsable for a list of columns but one with an unfinished name.
@pytest.mark.parametrize("key", sorted(descriptor.key for descriptor in DESCRIPTORS))
def test_a_property_that_cannot_be_parsed_stops_every_writer(key: str) -> None:
    broken = metadata({"owner": "me", key: "`"})
    with pytest.raises(InvalidTablePropertyError) as caught:
        check_writable(protocol(1, 2), broken, PLAIN, "/t")
    message = str(caught.value)
    assert message.startswith(f"Delta table /t: the table property {key} is '`', but must be ")
    assert f"ALTER TABLE delta.`/t` SET TBLPROPERTIES ('{key}' = '...')" in message
    assert f"ALTER TABLE delta.`/t` UNSET TBLPROPERTIES ('{key}')" in message
    with pytest.raises(InvalidTablePropertyError, match=key):
        check_writable(protocol(1, 2), broken, PLAIN, "/t", changes=["owner"])
    check_writable(protocol(1, 2), broken, PLAIN, "/t", changes=[key])


def test_of_several_properties_that_cannot_be_parsed_each_is_mended_by_itself() -> None:
    broken = metadata({"delta.appendOnly": "perhaps", "delta.checkpointInterval": "often"})
    for key in broken.configuration:
        check_writable(protocol(1, 2), broken, PLAIN, "/t", changes=[key])


def test_what_is_not_known_is_not_parsed() -> None:
    check_writable(protocol(1, 2), metadata({"delta.fromTheFuture": "`", "mine": "`"}), PLAIN, "/t")
