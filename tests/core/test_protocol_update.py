from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.actions import Metadata, Protocol
from lakelog.core.errors import InvalidRequestError, InvalidTablePropertyError, UnsupportedFeatureError
from lakelog.core.property_checks import Directives
from lakelog.core.protocol_update import new_protocol, protocol_of, protocol_text, raised, with_versions, without_feature
from lakelog.core.schema import ArrayType, PrimitiveType, StructField, StructType
from lakelog.core.table_features import FEATURES, feature_names, reader_features, writer_features

LONG = PrimitiveType("long")
PLAIN = StructType((StructField("a", LONG),))
NOT_NULL = StructType((StructField("a", LONG, False),))
NTZ = StructType((StructField("a", ArrayType(PrimitiveType("timestamp_ntz"))),))
GENERATED = StructType((StructField("a", LONG), StructField("b", LONG, True, {"delta.generationExpression": "a + 1"})))
IDENTITY = StructType((StructField("a", LONG, True, {"delta.identity.start": 1, "delta.identity.step": 1}),))
DEFAULT = StructType((StructField("a", LONG, True, {"CURRENT_DEFAULT": "1"}),))
CDF = {"delta.enableChangeDataFeed": "true"}
NAME = {"delta.columnMapping.mode": "name"}
TRACKING = {"delta.enableRowTracking": "true"}
CHECK = {"delta.constraints.positive": "a > 0"}
ICT = {"delta.enableInCommitTimestamps": "true"}
WIDENING = {"delta.enableTypeWidening": "true"}

# (reader version, writer version, features for readers, features for writers)
Told = tuple[int, int, str | None, str | None]


def _protocol(told: Told) -> Protocol:
    def names(text: str | None) -> tuple[str, ...] | None:
        return None if text is None else tuple(text.split())

    return Protocol(min_reader_version=told[0], min_writer_version=told[1], reader_features=names(told[2]), writer_features=names(told[3]))


# What delta-spark 4.4 makes of the same CREATE TABLE, but for defaults, which it wants to be asked for.
NEW: list[tuple[dict[str, str], StructType, Told]] = [
    ({}, PLAIN, (1, 2, None, None)),
    ({}, NOT_NULL, (1, 2, None, None)),
    ({"delta.appendOnly": "true"}, PLAIN, (1, 2, None, None)),
    (CDF, PLAIN, (1, 7, None, "appendOnly changeDataFeed invariants")),
    ({}, GENERATED, (1, 7, None, "appendOnly generatedColumns invariants")),
    ({}, IDENTITY, (1, 7, None, "appendOnly identityColumns invariants")),
    (NAME, PLAIN, (2, 7, None, "appendOnly columnMapping invariants")),
    ({"delta.columnMapping.mode": "id"}, PLAIN, (2, 7, None, "appendOnly columnMapping invariants")),
    (NAME | CDF, PLAIN, (2, 7, None, "appendOnly changeDataFeed columnMapping invariants")),
    ({}, NTZ, (3, 7, "timestampNtz", "appendOnly invariants timestampNtz")),
    (CDF, NTZ, (3, 7, "timestampNtz", "appendOnly changeDataFeed invariants timestampNtz")),
    (NAME, NTZ, (3, 7, "columnMapping timestampNtz", "appendOnly columnMapping invariants timestampNtz")),
    (TRACKING, PLAIN, (1, 7, None, "appendOnly domainMetadata invariants rowTracking")),
    (TRACKING | NAME, PLAIN, (2, 7, None, "appendOnly columnMapping domainMetadata invariants rowTracking")),
    (ICT, PLAIN, (1, 7, None, "appendOnly inCommitTimestamp invariants")),
    (WIDENING, PLAIN, (3, 7, "typeWidening", "appendOnly invariants typeWidening")),
    ({}, DEFAULT, (1, 7, None, "allowColumnDefaults appendOnly invariants")),
]


@pytest.mark.parametrize(("properties", "schema", "told"), NEW)
def test_a_new_table_gets_the_weakest_protocol_as_delta_spark_decides_it(
    properties: dict[str, str], schema: StructType, told: Told
) -> None:
    made = new_protocol(Metadata(id="x", configuration=properties), schema, table="/t")
    assert made == _protocol(told)
    assert raised(made, Metadata(id="x", configuration=properties), schema, table="/t") is made


ASKED: list[tuple[Directives, dict[str, str], Told]] = [
    (Directives(features=("appendOnly",)), {}, (1, 2, None, None)),
    (Directives(features=("CHECKCONSTRAINTS",)), {}, (1, 3, None, None)),
    (Directives(features=("rowTracking",)), {}, (1, 7, None, "appendOnly domainMetadata invariants rowTracking")),
    (Directives(features=("vacuumProtocolCheck",)), {}, (3, 7, "vacuumProtocolCheck", "appendOnly invariants vacuumProtocolCheck")),
    (Directives(reader_version=1, writer_version=1), {}, (1, 1, None, None)),
    (Directives(reader_version=1, writer_version=4), {}, (1, 4, None, None)),
    (Directives(writer_version=4), {}, (1, 4, None, None)),
    (Directives(reader_version=1, writer_version=5), {}, (1, 4, None, None)),
    (Directives(reader_version=2, writer_version=5), {}, (2, 5, None, None)),
    (Directives(reader_version=1, writer_version=6), {}, (1, 6, None, None)),
    (Directives(reader_version=2, writer_version=6), {}, (2, 6, None, None)),
    (Directives(reader_version=2, writer_version=3), {}, (1, 3, None, None)),
    (Directives(reader_version=3, writer_version=7), {}, (1, 1, None, None)),
    (Directives(writer_version=7), CDF, (1, 7, None, "changeDataFeed")),
    (Directives(ignore_defaults=True), {}, (1, 1, None, None)),
    (Directives(ignore_defaults=True), CDF, (1, 7, None, "changeDataFeed")),
    (Directives(ignore_defaults=True), {"delta.appendOnly": "true"}, (1, 7, None, "appendOnly")),
]


@pytest.mark.parametrize(("directives", "properties", "told"), ASKED)
def test_directives_for_a_new_table_as_delta_spark_takes_them(directives: Directives, properties: dict[str, str], told: Told) -> None:
    assert new_protocol(Metadata(id="x", configuration=properties), PLAIN, table="/t", directives=directives) == _protocol(told)


RAISED: list[tuple[Told, dict[str, str], StructType, tuple[str, ...], Told]] = [
    ((1, 2, None, None), CHECK, PLAIN, (), (1, 3, None, None)),
    ((1, 2, None, None), CDF, PLAIN, (), (1, 7, None, "appendOnly changeDataFeed invariants")),
    ((1, 2, None, None), NAME, PLAIN, (), (2, 7, None, "appendOnly columnMapping invariants")),
    ((1, 3, None, None), CHECK | ICT, PLAIN, (), (1, 7, None, "appendOnly checkConstraints inCommitTimestamp invariants")),
    # What the legacy versions implied is listed, used or not.
    (
        (1, 4, None, None),
        TRACKING,
        PLAIN,
        (),
        (1, 7, None, "appendOnly changeDataFeed checkConstraints domainMetadata generatedColumns invariants rowTracking"),
    ),
    ((1, 4, None, None), CDF | CHECK, PLAIN, (), (1, 4, None, None)),
    ((1, 7, None, "appendOnly invariants"), {}, PLAIN, (), (1, 7, None, "appendOnly invariants")),
    ((1, 7, None, "rowTracking domainMetadata"), {}, NOT_NULL, (), (1, 7, None, "domainMetadata invariants rowTracking")),
    ((3, 7, "timestampNtz", "timestampNtz"), NAME, PLAIN, (), (3, 7, "columnMapping timestampNtz", "columnMapping timestampNtz")),
    ((3, 7, "typeWidening-preview", "typeWidening-preview"), WIDENING, PLAIN, (), (3, 7, "typeWidening-preview", "typeWidening-preview")),
    ((1, 2, None, None), {}, NTZ, ("timestampNtz",), (3, 7, "timestampNtz", "appendOnly invariants timestampNtz")),
    ((1, 2, None, None), {}, PLAIN, ("clustering",), (1, 7, None, "appendOnly clustering domainMetadata invariants")),
    ((2, 3, None, None), CDF, PLAIN, (), (1, 7, None, "appendOnly changeDataFeed checkConstraints invariants")),
]


@pytest.mark.parametrize(("before", "properties", "schema", "asked", "after"), RAISED)
def test_an_existing_table_is_raised_by_what_becomes_active(
    before: Told, properties: dict[str, str], schema: StructType, asked: tuple[str, ...], after: Told
) -> None:
    there = _protocol(before)
    made = raised(there, Metadata(id="x", configuration=properties), schema, table="/t", asked=asked)
    assert made == _protocol(after)
    assert (made is there) == (before == after)


@pytest.mark.parametrize(("schema", "feature", "column"), [(NTZ, "timestampNtz", "timestamp_ntz"), (DEFAULT, "allowColumnDefaults", "a")])
def test_a_column_alone_raises_no_existing_table(schema: StructType, feature: str, column: str) -> None:
    there, metadata = _protocol((1, 2, None, None)), Metadata(id="x")
    with pytest.raises(InvalidRequestError) as caught:
        raised(there, metadata, schema, table="/t")
    for told in ("/t", column, feature, "from (1, 2) to", f'addFeatureSupport("{feature}")'):
        assert told in str(caught.value)
    assert feature in feature_names(raised(there, metadata, schema, table="/t", replaced=True))
    assert raised(there, metadata, schema, table="/t", asked=(feature,)) == raised(there, metadata, schema, table="/t", replaced=True)


def test_versions_are_only_raised() -> None:
    there = _protocol((1, 4, None, None))
    metadata = Metadata(id="x")
    assert raised(there, metadata, PLAIN, table="/t", directives=Directives(writer_version=3)) is there
    assert raised(there, metadata, PLAIN, table="/t", directives=Directives(reader_version=2, writer_version=5)) == _protocol(
        (2, 5, None, None)
    )


def test_features_that_there_are_not() -> None:
    metadata = Metadata(id="x")
    with pytest.raises(InvalidRequestError, match=r"/t: there is no table feature rowTrackings\. The nearest is rowTracking\."):
        new_protocol(metadata, PLAIN, table="/t", asked=("rowTrackings",))
    with pytest.raises(UnsupportedFeatureError, match=r"/t: the table feature deletionVectors comes with a later release") as caught:
        new_protocol(metadata, PLAIN, table="/t", directives=Directives(features=("DeletionVectors",)))
    assert caught.value.features == ("deletionVectors",)


def test_an_unparsable_value_that_decides_is_an_error() -> None:
    broken = Metadata(id="x", configuration={"delta.enableRowTracking": "perhaps"})
    with pytest.raises(InvalidTablePropertyError, match=r"/t: .*delta\.enableRowTracking is 'perhaps'.*unset it"):
        raised(_protocol((1, 2, None, None)), broken, PLAIN, table="/t")


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        ((1, 2, None, None), (1, 3), (1, 3, None, None)),
        ((1, 3, None, None), (1, 2), (1, 3, None, None)),
        ((1, 3, None, None), (2, 3), (1, 3, None, None)),
        ((1, 3, None, None), (2, 5), (2, 5, None, None)),
        ((2, 5, None, None), (3, 7), (2, 5, None, None)),
        ((1, 2, None, None), (1, 7), (1, 2, None, None)),
        ((1, 7, None, "appendOnly"), (1, 2), (1, 2, None, None)),
        ((1, 7, None, "rowTracking domainMetadata"), (1, 2), (1, 7, None, "appendOnly domainMetadata invariants rowTracking")),
    ],
)
def test_upgrades_to_versions_as_delta_spark_makes_them(before: Told, asked: tuple[int, int], after: Told) -> None:
    there = _protocol(before)
    made = with_versions(there, *asked)
    assert made == _protocol(after)
    assert (made is there) == (before == after)


@pytest.mark.parametrize("versions", [(0, 2), (4, 7), (1, 8), (1, 0)])
def test_versions_that_there_are_not(versions: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequestError, match=r"There is no (reader|writer) version"):
        with_versions(_protocol((1, 2, None, None)), *versions)


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        ((1, 3, None, None), "checkConstraints", (1, 2, None, None)),
        ((1, 3, None, None), "invariants", (1, 7, None, "appendOnly checkConstraints")),
        ((1, 7, None, "appendOnly inCommitTimestamp invariants"), "inCommitTimestamp", (1, 2, None, None)),
        ((3, 7, "timestampNtz", "appendOnly invariants rowTracking domainMetadata timestampNtz"), "timestampNtz", None),
    ],
)
def test_a_protocol_falls_back_to_its_weakest_form(before: Told, name: str, after: Told | None) -> None:
    expected = after or (1, 7, None, "appendOnly domainMetadata invariants rowTracking")
    assert without_feature(_protocol(before), name) == _protocol(expected)


def test_protocols_in_messages() -> None:
    assert protocol_text(_protocol((1, 2, None, None))) == "(1, 2)"
    assert protocol_text(_protocol((1, 7, None, "rowTracking appendOnly"))) == "(1, 7: appendOnly, rowTracking)"


@given(st.sets(st.sampled_from([*FEATURES, "fromTheFuture"])))
def test_a_protocol_has_its_features_and_no_other(features: Collection[str]) -> None:
    made = protocol_of(features)
    assert set(feature_names(made)) == set(features)
    assert writer_features(made) == set(features)
    assert reader_features(made) == {name for name in features if name in FEATURES and FEATURES[name].kind == "reader_writer"}
    assert (made.reader_features is None) == (made.min_reader_version < 3)
    assert (made.writer_features is None) == (made.min_writer_version < 7)
