from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import pytest

from lakelog.core.actions import Action, Metadata, Protocol
from lakelog.core.errors import (
    ColumnNotFoundError,
    InvalidRequestError,
    InvalidSchemaError,
    InvalidTablePropertyError,
    LakelogError,
    UnsupportedFeatureError,
    UnsupportedOperationError,
)
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import PrimitiveType, StructField, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import TableChange, table_change
from lakelog.core.table_features import check_writable, feature_names

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
PLAIN = StructType((StructField("a", LONG), StructField("s", StructType((StructField("b", STRING),)))))
NAME, ID, NONE = ({"delta.columnMapping.mode": mode} for mode in ("name", "id", "none"))
TRACKING = {"delta.enableRowTracking": "true"}


def uuids() -> Callable[[], str]:
    numbers = count()
    return lambda: f"uuid-{next(numbers)}"


def metadata(schema: StructType = PLAIN, properties: Mapping[str, str] | None = None) -> Metadata:
    return Metadata(id="id", schema_string=schema.to_json(), configuration=properties or {}, created_time=1)


def made(schema: StructType = PLAIN, properties: Mapping[str, str] | None = None, features: tuple[str, ...] = ()) -> TableChange:
    return table_change(None, metadata(schema, properties), table="/t", new_uuid=uuids(), features=features)


def table(*actions: Action) -> Snapshot:
    fold = Fold(LogState(), root="/t")
    fold.add_actions(0, actions)
    return Snapshot.from_state(fold.finish(), root="/t", timestamp_ms=0, now_ms=0)


def existing(schema: StructType = PLAIN, properties: Mapping[str, str] | None = None, features: tuple[str, ...] = ()) -> Snapshot:
    return table(*made(schema, properties, features).actions)


def changed(there: Snapshot, properties: Mapping[str, str], **more: bool) -> TableChange:
    wanted = replace(there.metadata, configuration={**there.metadata.configuration, **properties})
    return table_change(there, wanted, table="/t", new_uuid=uuids(), **more)


def physical_names(schema: StructType) -> list[object]:
    (a, s) = schema.fields
    assert isinstance(s.type, StructType)
    return [f.metadata.get("delta.columnMapping.physicalName") for f in (a, s, *s.type.fields)]


# making a table -----------------------------------------------------------------------------------------------------------


def test_a_plain_table() -> None:
    change = made(properties={"owner": "me"})
    assert change.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert change.metadata == metadata(properties={"owner": "me"})
    assert change.schema == PLAIN
    assert change.actions == (change.protocol, change.metadata)


def test_directives_are_followed_and_not_stored() -> None:
    change = made(properties={"delta.feature.rowTracking": "supported", "delta.MINWRITERVERSION": "3", "delta.appendonly": "true"})
    assert feature_names(change.protocol) == ("appendOnly", "checkConstraints", "domainMetadata", "invariants", "rowTracking")
    assert change.metadata.configuration == {
        "delta.appendOnly": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-uuid-0",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-uuid-1",
    }


@pytest.mark.parametrize("mode", [NAME, ID])
def test_a_mapped_table_gets_ids_and_names_of_its_own(mode: dict[str, str]) -> None:
    odd = StructType((StructField("a b", LONG), StructField("x;y", LONG)))
    change = made(odd, mode)
    assert [f.metadata for f in change.schema.fields] == [
        {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-uuid-0"},
        {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-uuid-1"},
    ]
    assert change.metadata.configuration == {**mode, "delta.columnMapping.maxColumnId": "2"}
    assert change.metadata.schema_json == change.schema.to_json()
    assert "columnMapping" in feature_names(change.protocol)
    check_writable(change.protocol, change.metadata, change.schema, "/t")


def test_marks_of_another_tables_mapping_do_not_come_along() -> None:
    assert made(made(properties=NAME).schema).schema == PLAIN


@pytest.mark.parametrize(
    ("schema", "properties", "kind", "told"),
    [
        (StructType((StructField("a b", LONG),)), {}, InvalidSchemaError, ("'a b'", "delta.columnMapping.mode = name")),
        (StructType((StructField("a", LONG), StructField("A", LONG))), NAME, InvalidSchemaError, ("'a' and 'A'", "Rename")),
        (StructType(), {}, InvalidSchemaError, ("no column",)),
        (PLAIN, {"delta.checkpointInterval": "often"}, InvalidTablePropertyError, ("delta.checkpointInterval", "'often'")),
        (PLAIN, {"delta.nosuch": "1"}, InvalidTablePropertyError, ("delta.nosuch. A property of your own",)),
        (PLAIN, {"delta.columnMapping.mode": "both"}, InvalidTablePropertyError, ("delta.columnMapping.mode", "one of none, id, name")),
        (PLAIN, {"delta.constraints.c": "a > 0"}, InvalidTablePropertyError, ("delta.constraints.c", "ADD CONSTRAINT")),
        (PLAIN, {"delta.columnMapping.maxColumnId": "4"}, InvalidTablePropertyError, ("maxColumnId", "Leave the property out")),
        (PLAIN, {"delta.feature.nosuch": "supported"}, InvalidRequestError, ("nosuch. There are: ", "rowTracking")),
        (PLAIN, {"delta.feature.v2Checkpoint": "supported"}, UnsupportedFeatureError, ("v2Checkpoint", "later release")),
        (PLAIN, {"delta.feature.Clustering": "supported"}, InvalidRequestError, ("clustering", "clusterBy")),
        (PLAIN, {"delta.dataSkippingStatsColumns": "A,s,s.c,x"}, ColumnNotFoundError, ("does not have: s.c, x.", "There are: a, s")),
        (
            StructType((StructField("_Change_Type", LONG),)),
            {"delta.enableChangeDataFeed": "true"},
            InvalidSchemaError,
            ("_Change_Type", "delta.enableChangeDataFeed", "Rename"),
        ),
    ],
)
def test_what_no_new_table_can_be(schema: StructType, properties: dict[str, str], kind: type[LakelogError], told: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        made(schema, properties)
    assert all(text in str(caught.value) for text in ("/t", *told)), str(caught.value)


LATER = [
    ("delta.enableDeletionVectors", "true", "deletionVectors"),
    ("delta.checkpointPolicy", "v2", "v2Checkpoint"),
    ("delta.enableIcebergCompatV1", "true", "icebergCompatV1"),
    ("delta.enableIcebergCompatV2", "true", "icebergCompatV2"),
    ("delta.enableIcebergCompatV3", "true", "icebergCompatV3"),
    ("delta.enableVariantShredding", "true", "variantShredding"),
    ("delta.enableMaterializePartitionColumnsFeature", "true", "materializePartitionColumns"),
    ("delta.writePartitionColumnsToParquet", "true", "materializePartitionColumns"),
]


@pytest.mark.parametrize(("key", "value", "feature"), LATER)
def test_properties_of_features_that_come_later_are_refused_by_name(key: str, value: str, feature: str) -> None:
    there = existing()
    for attempt in (lambda: made(properties={key: value}), lambda: changed(there, {key: value})):
        with pytest.raises(
            UnsupportedFeatureError, match=rf"/t: .*{feature} \(the table property {key} is set\).*Leave the property"
        ) as caught:
            attempt()
        assert caught.value.features == (feature,)
    assert made(properties={key: "classic" if value == "v2" else "false"}).protocol.min_writer_version == 2


# changing a table ---------------------------------------------------------------------------------------------------------


def test_nothing_that_changes_is_nothing_to_commit() -> None:
    for there in (existing(), existing(properties={**NAME, **TRACKING})):
        change = table_change(there, replace(there.metadata), table="/t", new_uuid=uuids())
        assert change.actions == ()
        assert change.metadata is there.metadata
        assert change.protocol is there.protocol


def test_only_what_changed_is_committed() -> None:
    change = changed(existing(), {"delta.checkpointInterval": "5"})
    assert change.actions == (change.metadata,)
    change = changed(existing(), {"delta.feature.domainMetadata": "supported"})
    assert change.actions == (change.protocol,)
    change = changed(existing(), {"delta.enableInCommitTimestamps": "true"})
    assert change.actions == (change.protocol, change.metadata)


def test_values_that_another_writer_left_are_checked_when_they_are_set() -> None:
    broken = existing(properties={"x": "y"})
    broken = table(
        broken.protocol, replace(broken.metadata, configuration={"delta.checkpointInterval": "often", "delta.fromTheFuture": "1"})
    )
    assert changed(broken, {"owner": "me"}).metadata.configuration["delta.fromTheFuture"] == "1"
    with pytest.raises(InvalidTablePropertyError, match="seldom"):
        changed(broken, {"delta.checkpointInterval": "seldom"})
    unparsable = table(broken.protocol, replace(broken.metadata, configuration={"delta.enableRowTracking": "perhaps"}))
    with pytest.raises(InvalidTablePropertyError, match=r"/t: .*delta\.enableRowTracking is 'perhaps'.*unset it"):
        changed(unparsable, {"owner": "me"})
    assert changed(unparsable, {"delta.enableRowTracking": "false"}).protocol is unparsable.protocol


def test_columns_with_statistics_are_looked_up_when_they_are_named() -> None:
    there = existing(properties={"delta.dataSkippingStatsColumns": "A,s.b"})
    shorter = replace(there.metadata, schema_string=StructType(there.schema.fields[:1]).to_json())
    assert table_change(there, shorter, table="/t", new_uuid=uuids()).schema.names == ("a",)
    with pytest.raises(ColumnNotFoundError, match=r"/t: delta\.dataSkippingStatsColumns names columns .* not have: z\. There are: a, s"):
        changed(there, {"delta.dataSkippingStatsColumns": "z"})


def test_constraints_come_by_a_door_of_their_own() -> None:
    change = changed(existing(), {"delta.constraints.c": "a > 0"})
    assert change.protocol == Protocol(min_reader_version=1, min_writer_version=3)


def test_hidden_column_names_are_given_once() -> None:
    there = existing(properties=TRACKING)
    hidden = {k: v for k, v in there.metadata.configuration.items() if "materialized" in k}
    assert len(hidden) == 2
    bare = replace(there.metadata, configuration={"delta.enableRowTracking": "false"})
    change = table_change(there, bare, table="/t", new_uuid=lambda: "other")
    assert change.metadata.configuration == {"delta.enableRowTracking": "false", **hidden}


# column mapping -----------------------------------------------------------------------------------------------------------


def test_a_table_that_becomes_mapped_keeps_its_names() -> None:
    change = changed(existing(), NAME)
    assert physical_names(change.schema) == ["a", "s", "b"]
    assert change.metadata.configuration == {**NAME, "delta.columnMapping.maxColumnId": "3"}
    assert change.protocol.min_reader_version == 2


def test_new_columns_of_a_mapped_table_get_fresh_ids() -> None:
    there = existing(properties=NAME)
    without = StructType(there.schema.fields[:1])
    dropped = table_change(there, replace(there.metadata, schema_string=without.to_json()), table="/t", new_uuid=uuids())
    assert dropped.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"
    after = table(dropped.protocol, dropped.metadata)
    wider = StructType((*without.fields, StructField("odd name", LONG)))
    grown = table_change(after, replace(after.metadata, schema_string=wider.to_json()), table="/t", new_uuid=lambda: "new")
    assert grown.schema.fields[0] == there.schema.fields[0]
    assert grown.schema.fields[1].metadata == {"delta.columnMapping.id": 4, "delta.columnMapping.physicalName": "col-new"}
    assert grown.actions == (grown.metadata,)


@pytest.mark.parametrize(
    ("before", "after", "remedy"),
    [
        ({}, ID, "Use name, or write the data to a new table"),
        (NAME, ID, "write the data to a new table"),
        (ID, NAME, "write the data to a new table"),
        (NAME, NONE, 'dropFeatureSupport("columnMapping")'),
        (ID, NONE, 'dropFeatureSupport("columnMapping")'),
    ],
)
def test_other_changes_of_the_mode_are_refused(before: dict[str, str], after: dict[str, str], remedy: str) -> None:
    there = existing(properties=before)
    with pytest.raises(UnsupportedOperationError) as caught:
        changed(there, after)
    modes = f"from {(before or NONE)['delta.columnMapping.mode']} to {after['delta.columnMapping.mode']}"
    assert all(text in str(caught.value) for text in ("/t", "delta.columnMapping.mode", modes, remedy))


def test_unsetting_the_mode_is_a_change_of_it() -> None:
    there = existing(properties=NAME)
    with pytest.raises(UnsupportedOperationError, match="from name to none"):
        table_change(there, replace(there.metadata, configuration={}), table="/t", new_uuid=uuids())


# a table that is made anew ------------------------------------------------------------------------------------------------


def anew(there: Snapshot, schema: StructType, properties: Mapping[str, str]) -> TableChange:
    wanted = replace(there.metadata, schema_string=schema.to_json(), configuration=properties)
    return table_change(there, wanted, table="/t", new_uuid=lambda: "new", replaced=True)


def test_a_table_made_anew_keeps_its_protocol_and_nothing_else() -> None:
    there = existing(properties={**NAME, "delta.appendOnly": "true"})
    change = anew(there, PLAIN, {})
    assert change.metadata.configuration == {}
    assert change.schema == PLAIN
    assert change.protocol is there.protocol


def test_a_table_made_anew_may_be_mapped_in_any_way_and_gives_no_id_twice() -> None:
    there = existing(properties=NAME)
    change = anew(there, there.schema, ID)
    assert [f.metadata["delta.columnMapping.id"] for f in change.schema.fields] == [4, 5]
    assert physical_names(change.schema)[0] == "col-new"
    assert change.metadata.configuration == {**ID, "delta.columnMapping.maxColumnId": "6"}


def test_a_table_made_anew_gets_the_features_of_its_types() -> None:
    ntz = StructType((StructField("t", PrimitiveType("timestamp_ntz")),))
    assert "timestampNtz" in feature_names(anew(existing(), ntz, {}).protocol)
    there = existing()
    with pytest.raises(InvalidRequestError, match="addFeatureSupport"):
        table_change(there, replace(there.metadata, schema_string=ntz.to_json()), table="/t", new_uuid=uuids())


def test_no_constraint_comes_along_with_the_properties_of_a_table_made_anew() -> None:
    with pytest.raises(InvalidTablePropertyError, match="ADD CONSTRAINT"):
        anew(existing(), PLAIN, {"delta.constraints.c": "a > 0"})


def test_the_change_feed_is_not_turned_on_over_columns_of_its_names() -> None:
    taken = StructType((StructField("_commit_version", LONG),))
    there = existing(taken)
    with pytest.raises(InvalidSchemaError, match=r"/t: the column name _commit_version cannot stand beside"):
        changed(there, {"delta.enableChangeDataFeed": "true"})
    # Another writer let it happen; that is no reason to refuse what has nothing to do with it.
    both = table(there.protocol, replace(there.metadata, configuration={"delta.enableChangeDataFeed": "true"}))
    assert changed(both, {"owner": "me"}).metadata.configuration["owner"] == "me"
