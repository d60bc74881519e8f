from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakelog.core import commit_info, table_properties
from lakelog.core.actions import Action, AddFile, Format, Metadata, RemoveFile
from lakelog.core.commit import CommitAttempt
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError
from lakelog.core.metadata_changes import hindrance


def field(name: str, kind: object = "long", nullable: bool = True, /, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


PLAIN = (field("id"), field("name", "string"), field("p", "integer"))


def metadata(*fields: dict[str, object], configuration: Mapping[str, str] | None = None, **more: Any) -> Metadata:
    return Metadata(
        **{"id": "table", "partition_columns": ("p",), **more},
        schema_string=json.dumps(struct(*(fields or PLAIN))),
        configuration=dict(configuration or {}),
    )


def attempt(*actions: Action) -> CommitAttempt:
    return CommitAttempt(read_version=0, actions=actions, operation=commit_info.delete(), engine_info="lakelog/test")


def add(change: bool = True) -> AddFile:
    return AddFile(path="new", partition_values={"p": "1"}, size=1, modification_time=1, data_change=change)


def remove(change: bool = True) -> RemoveFile:
    return RemoveFile(path="old", deletion_timestamp=1, data_change=change)


ADDING, REMOVING, REARRANGING, REWRITING, IDLE = (
    attempt(add()),
    attempt(remove()),
    attempt(remove(False), add(False)),
    attempt(remove(), add()),
    attempt(),
)
ALL = (ADDING, REMOVING, REARRANGING, REWRITING, IDLE)


def between(trying: CommitAttempt, old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    return hindrance(trying, metadata(configuration=old), metadata(configuration=new))


# properties ---------------------------------------------------------------------------------------------------------------

# Every property that lakelog knows, and whether an attempt that is under way may follow its change. A key that is new to
# `table_properties.DESCRIPTORS` is to be put into one of the three on purpose.
HARMLESS = {
    "delta.autoOptimize": "true",
    "delta.autoOptimize.autoCompact": "auto",
    "delta.autoOptimize.optimizeWrite": "true",
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpointInterval": "5",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointRetentionDuration": "interval 1 day",
    "delta.dataSkippingNumIndexedCols": "3",
    "delta.dataSkippingStatsColumns": "id",
    "delta.dataSkippingStringPrefixLength": "8",
    "delta.deletedFileRetentionDuration": "interval 1 day",
    "delta.dropFeatureTruncateHistory.retentionDuration": "interval 1 day",
    "delta.enableDeletionVectors": "true",
    "delta.enableExpiredLogCleanup": "false",
    "delta.enableFullRetentionRollback": "false",
    "delta.logRetentionDuration": "interval 60 days",
    "delta.parquet.compression.codec": "zstd",
    "delta.randomPrefixLength": "3",
    "delta.randomizeFilePrefixes": "true",
    "delta.sampleRetentionDuration": "interval 1 day",
    "delta.setTransactionRetentionDuration": "interval 1 day",
}
REVALIDATED = {"delta.appendOnly": "true", "delta.columnMapping.mode": "name"}
ABORTS = {
    "delta.compatibility.symlinkFormatManifest.enabled": "true",
    "delta.enableChangeDataCapture": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableIcebergCompatV1": "true",
    "delta.enableIcebergCompatV2": "true",
    "delta.enableIcebergCompatV3": "true",
    "delta.enableMaterializePartitionColumnsFeature": "true",
    "delta.enableTypeWidening": "true",
    "delta.enableVariantShredding": "true",
    "delta.isolationLevel": "WriteSerializable",
    "delta.parquet.format.version": "2.12.0",
    "delta.writePartitionColumnsToParquet": "true",
}
# What a commit holds of these is made for its version, on the table that it lands on.
MADE_FOR_THE_VERSION = {"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true"}
MADE_FOR_THE_VERSION_TOO = {
    "delta.inCommitTimestampEnablementVersion": "3",
    "delta.inCommitTimestampEnablementTimestamp": "1700000000000",
    "delta.rowTrackingSuspended": "true",
}
# Keys that lakelog keeps no descriptor of.
HARMLESS_TOO = {"delta.targetFileSize": "64mb", "delta.tuneFileSizesForRewrites": "true"}
UNKNOWN = {
    "delta.somethingNew": "1",
    "delta.feature.deletionVectors": "supported",
    "delta.columnMapping.maxColumnId": "3",
    "delta.universalFormat.enabledFormats": "iceberg",
    "delta.APPENDONLY": "true",
    "delta.checkpointinterval": "5",
    "constraints.c": "id > 0",
    "appendOnly": "true",
    "my.own": "1",
    "": "x",
}


def test_every_property_has_a_place() -> None:
    placed = [*HARMLESS, *REVALIDATED, *MADE_FOR_THE_VERSION, *ABORTS]
    assert sorted(placed) == sorted(descriptor.key for descriptor in table_properties.DESCRIPTORS)


@pytest.mark.parametrize("trying", ALL)
@pytest.mark.parametrize(
    ("key", "value"), [*HARMLESS.items(), *HARMLESS_TOO.items(), *MADE_FOR_THE_VERSION.items(), *MADE_FOR_THE_VERSION_TOO.items()]
)
def test_harmless_properties_may_be_set_changed_and_unset(key: str, value: str, trying: CommitAttempt) -> None:
    assert between(trying, {}, {key: value}) is None
    assert between(trying, {key: "before"}, {key: value}) is None
    assert between(trying, {key: value}, {}) is None


@pytest.mark.parametrize("trying", ALL)
@pytest.mark.parametrize(("key", "value"), [*ABORTS.items(), *UNKNOWN.items()])
def test_any_other_property_stands_in_the_way_of_all(key: str, value: str, trying: CommitAttempt) -> None:
    assert between(trying, {}, {key: value}) == f"set {key} to {value!r}"
    assert between(trying, {key: "before"}, {key: value}) == f"set {key} to {value!r}"
    assert between(trying, {key: value}, {}) == f"unset {key}"
    assert between(trying, {key: value}, {key: value}) is None


@pytest.mark.parametrize("trying", ALL)
@pytest.mark.parametrize(
    "key", ["delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"]
)
def test_a_column_of_row_ids_may_get_its_name_and_keeps_it(key: str, trying: CommitAttempt) -> None:
    assert between(trying, {}, {key: "_row-1"}) is None
    assert between(trying, {key: "_row-1"}, {key: "_row-2"}) == f"set {key} to '_row-2'"
    assert between(trying, {key: "_row-1"}, {}) == f"unset {key}"


def test_one_change_among_harmless_ones_is_enough() -> None:
    assert between(ADDING, {"my.own": "1"}, {**HARMLESS, "my.own": "2"}) == "set my.own to '2'"
    assert between(ADDING, {"my.own": "1"}, {**HARMLESS, "my.own": "1"}) is None


@pytest.mark.parametrize("trying", ALL)
def test_append_only_stops_who_removes_rows(trying: CommitAttempt) -> None:
    removes = trying in (REMOVING, REWRITING)
    for old in ({}, {"delta.appendOnly": "false"}):
        assert between(trying, old, {"delta.appendOnly": "TRUE"}) == ("set delta.appendOnly to 'TRUE'" if removes else None)
    for new in ({}, {"delta.appendOnly": "false"}):
        assert between(trying, {"delta.appendOnly": "true"}, new) is None


def test_append_only_that_is_neither_true_nor_false_stops_with_a_name() -> None:
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.appendOnly is 'yes'"):
        between(REMOVING, {}, {"delta.appendOnly": "yes"})
    assert between(ADDING, {}, {"delta.appendOnly": "yes"}) is None


@pytest.mark.parametrize("trying", ALL)
def test_a_constraint_stops_who_adds_rows_that_it_did_not_see(trying: CommitAttempt) -> None:
    key, adds = "delta.constraints.positive", trying in (ADDING, REWRITING)
    expected = f"set {key} to 'id > 0'" if adds else None
    assert between(trying, {}, {key: "id > 0"}) == expected
    assert between(trying, {key: "id > -1"}, {key: "id > 0"}) == expected
    assert between(trying, {key: "id > 0"}, {}) is None
    assert between(trying, {"delta.constraints.old": "id > 0"}, {key: "id > 0"}) == expected


# column mapping -----------------------------------------------------------------------------------------------------------

MODE, MAX_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def mapped(name: str, kind: object = "long", number: int = 1, *, physical: str | None = None, **more: object) -> dict[str, object]:
    return field(name, kind, **{ID: number, PHYSICAL: name if physical is None else physical, **more})


def nested(leaf: dict[str, object]) -> dict[str, object]:
    """The field below the key and, in an array, below the value of a map."""
    array = {"type": "array", "elementType": struct(leaf), "containsNull": True}
    return {"type": "map", "keyType": struct(leaf), "valueType": array, "valueContainsNull": True}


@pytest.mark.parametrize("trying", ALL)
@pytest.mark.parametrize("mode", ["name", "NAME"])
@pytest.mark.parametrize("old", [{}, {MODE: "none"}])
def test_column_mapping_by_name_may_start_where_every_column_keeps_its_name(
    trying: CommitAttempt, mode: str, old: Mapping[str, str]
) -> None:
    before = metadata(field("id"), field("s", nested(field("a")), comment="kept"), field("p"), configuration=old)
    after = metadata(
        mapped("id"),
        mapped("s", nested(mapped("a")), 2, comment="kept"),
        mapped("p", number=3),
        configuration={MODE: mode, MAX_ID: "6"},
    )
    assert hindrance(trying, before, after) is None


@pytest.mark.parametrize(
    "after",
    [
        (mapped("id", physical="col-1"), mapped("s", nested(mapped("a")))),
        (mapped("id"), mapped("s", nested(mapped("a")), physical="col-1")),
        (mapped("id"), mapped("s", nested(mapped("a", physical="col-1")))),
        (mapped("id"), mapped("s", nested(field("a", **{ID: 4})))),
        (field("id"), mapped("s", nested(mapped("a")))),
    ],
)
def test_a_column_that_is_found_by_another_name_stands_in_the_way(after: tuple[dict[str, object], ...]) -> None:
    before = metadata(field("id"), field("s", nested(field("a"))))
    found = hindrance(ADDING, before, metadata(*after, configuration={MODE: "name", MAX_ID: "6"}))
    assert found == f"set {MAX_ID} to '6'"


def test_a_physical_name_that_was_there_before_takes_effect_with_the_mode() -> None:
    """Without the mode a reader goes by the name, whatever the mark says."""
    fields = (mapped("id", physical="col-1"),)
    assert hindrance(ADDING, metadata(*fields), metadata(*fields, configuration={MODE: "name"})) == f"set {MODE} to 'name'"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({}, {MODE: "id", MAX_ID: "1"}, f"set {MAX_ID} to '1'"),
        ({MODE: "name"}, {MODE: "none"}, f"set {MODE} to 'none'"),
        ({MODE: "name"}, {}, f"unset {MODE}"),
        ({MODE: "id"}, {MODE: "name"}, f"set {MODE} to 'name'"),
        ({MODE: "name", MAX_ID: "1"}, {MODE: "name", MAX_ID: "2"}, f"set {MAX_ID} to '2'"),
    ],
)
def test_no_other_change_of_column_mapping_passes(old: Mapping[str, str], new: Mapping[str, str], told: str) -> None:
    assert hindrance(IDLE, metadata(mapped("id"), configuration=old), metadata(mapped("id"), configuration=new)) == told


def test_starting_column_mapping_hides_no_other_change() -> None:
    start = {MODE: "name", MAX_ID: "2"}
    found = hindrance(ADDING, metadata(field("id")), metadata(mapped("id"), mapped("new", number=2), configuration=start))
    assert found == "changed the schema (column new added)"
    assert hindrance(ADDING, metadata(field("id")), metadata(mapped("id", comment="new"), configuration=start)) is not None
    assert hindrance(ADDING, metadata(field("id")), metadata(mapped("id"), configuration={**start, "my.own": "1"})) == "set my.own to '1'"


def test_marks_of_column_mapping_without_the_mode_are_a_change_of_the_schema() -> None:
    told = "changed the schema (the columns' order, nullability or metadata)"
    assert hindrance(ADDING, metadata(field("id")), metadata(mapped("id"))) == told


def test_a_mode_that_is_none_is_named() -> None:
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.columnMapping\.mode is 'both'"):
        between(ADDING, {}, {MODE: "both"})


# schema -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trying", ALL)
def test_the_high_water_mark_of_an_identity_column_may_rise(trying: CommitAttempt) -> None:
    def counted(mark: int | None, **more: object) -> Metadata:
        marks = {} if mark is None else {"delta.identity.highWaterMark": mark}
        return metadata(field("id", **{"delta.identity.start": 1, **marks, **more}), field("s", struct(field("n", **marks))))

    assert hindrance(trying, counted(3), counted(9)) is None
    assert hindrance(trying, counted(None), counted(9)) is None
    found = hindrance(trying, counted(3), counted(9, **{"delta.identity.step": 2}))
    assert found == "changed the schema (the columns' order, nullability or metadata)"


ORDER = "the columns' order, nullability or metadata"


@pytest.mark.parametrize("trying", ALL)
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ((*PLAIN, field("new")), "column new added"),
        (PLAIN[:2], "column p gone"),
        ((field("ID"), *PLAIN[1:]), "column ID added, column id gone"),
        ((field("id", "string"), *PLAIN[1:]), "column id is string now"),
        ((field("id", struct(field("a"))), *PLAIN[1:]), "column id is struct<a:long> now"),
        ((field("id", "decimal(5,2)"), field("name", "integer"), PLAIN[2]), "column id is decimal(5,2) now, column name is integer now"),
        ((PLAIN[1], PLAIN[0], PLAIN[2]), ORDER),
        ((field("id", "long", False), *PLAIN[1:]), ORDER),
        ((field("id", comment="new"), *PLAIN[1:]), ORDER),
        ((field("id", **{"delta.invariants": "x"}), *PLAIN[1:]), ORDER),
        ((field("id", **{"delta.generationExpression": "p + 1"}), *PLAIN[1:]), ORDER),
    ],
)
def test_a_change_of_the_schema_is_told_in_words(fields: tuple[dict[str, object], ...], told: str, trying: CommitAttempt) -> None:
    assert hindrance(trying, metadata(), metadata(*fields)) == f"changed the schema ({told})"


def test_the_same_schema_in_another_spelling_is_no_change() -> None:
    spelled = json.dumps(struct(*({key: item[key] for key in reversed(item)} for item in PLAIN)), indent=2)
    assert hindrance(ADDING, metadata(), replace(metadata(), schema_string=spelled)) is None


def test_a_schema_that_cannot_be_parsed_is_damage() -> None:
    with pytest.raises(CorruptLogError):
        hindrance(ADDING, metadata(), replace(metadata(), schema_string="{"))


# the rest -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trying", ALL)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"partition_columns": ()}, "changed the partitioning from ['p'] to []"),
        ({"partition_columns": ("p", "id")}, "changed the partitioning from ['p'] to ['p', 'id']"),
        ({"id": "another"}, "changed the table's id"),
        ({"name": "named"}, "changed the table's name"),
        ({"description": "told"}, "changed the table's description"),
        ({"format": Format(provider="orc")}, "changed the table's format"),
        ({"format": Format(options={"a": "b"})}, "changed the table's format"),
    ],
)
def test_what_the_table_is_stands_in_the_way(change: dict[str, Any], told: str, trying: CommitAttempt) -> None:
    assert hindrance(trying, metadata(), replace(metadata(), **change)) == told


def test_the_order_of_partition_columns_counts() -> None:
    before, after = metadata(partition_columns=("p", "id")), metadata(partition_columns=("id", "p"))
    assert hindrance(ADDING, before, after) == "changed the partitioning from ['p', 'id'] to ['id', 'p']"


@pytest.mark.parametrize("options", [None, {}])
def test_metadata_written_again_with_nothing_new_passes(options: dict[str, str | None] | None) -> None:
    """Another writer gives its own time, and spells what is empty in its own way."""
    again = replace(metadata(), created_time=5, format=Format(options=options), null_fields=frozenset({"name", "description"}))
    assert hindrance(ADDING, metadata(), again) is None
    assert hindrance(ADDING, again, metadata()) is None
