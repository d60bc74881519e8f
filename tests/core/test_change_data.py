"""Which files hold the changes of a range of commits, which ranges are refused, and what one schema can show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.change_data import (
    ChangeFold,
    Changes,
    as_snapshots,
    change_schema,
    check_recorded,
    check_schemas,
    needs_change_files,
)
from lakelog.core.errors import (
    ChangeDataNotRecordedError,
    CorruptLogError,
    InvalidSchemaError,
    InvalidTablePropertyError,
    LakelogError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UnsupportedOperationError,
)
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import parse_schema
from lakelog.core.snapshot import Snapshot

ROOT = "/lake/orders"
FEED = {"delta.enableChangeDataFeed": "true"}
Action = dict[str, Any]


def field(name: str, kind: Any = "long", *, nullable: bool = True, **metadata: object) -> Action:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def mapped(name: str, number: int, physical: str, kind: Any = "long") -> Action:
    return field(name, kind, **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical})


def struct(*fields: Action) -> Action:
    return {"type": "struct", "fields": list(fields)}


def metadata(*fields: Action, configuration: dict[str, str] | None = None, partition_by: tuple[str, ...] = ()) -> Action:
    return {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct(*(fields or (field("a"),)))),
            "partitionColumns": list(partition_by),
            "configuration": FEED if configuration is None else configuration,
        }
    }


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
MAPPED_PROTOCOL = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}


def add(path: str, **told: Any) -> Action:
    return {"add": {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 5, "dataChange": True, **told}}


def remove(path: str, **told: Any) -> Action:
    given = {"path": path, "deletionTimestamp": 6, "dataChange": True, "extendedFileMetadata": True, "partitionValues": {}, "size": 10}
    return {"remove": {name: value for name, value in {**given, **told}.items() if value is not None}}


def cdc(path: str, **told: Any) -> Action:
    return {"cdc": {"path": path, "partitionValues": {}, "size": 7, "dataChange": False, **told}}


def data(*actions: Action) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def folded(*commits: list[Action], first: int = 1, partitioned: bool = False) -> Changes:
    fold = ChangeFold(ROOT, partitioned=partitioned)
    for version, actions in enumerate(commits, first):
        fold.add_commit(version, data(*actions), timestamp_ms=version * 1000, source=f"{version:020d}.json")
    return fold.finish()


def table_of(*commits: list[Action]) -> Snapshot:
    fold = Fold(LogState(), root=ROOT)
    for version, actions in enumerate(commits):
        fold.add_commit(version, data(*actions), f"{version:020d}.json")
    return Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)


def told(changes: Changes, kind: str) -> list[tuple[str, dict[str, str | None]]]:
    table = getattr(changes, kind)
    return [(row["path"], dict(row["partitionValues"])) for row in table.select(["path", "partitionValues"]).to_pylist()]


def at(version: int, kind: str | None = None, **values: str | None) -> dict[str, str | None]:
    time = {"_commit_version": str(version), "_commit_timestamp": f"1970-01-01T00:00:{version:02d}.000000Z"}
    return {**values, **time, **({} if kind is None else {"_change_type": kind})}


def test_adds_are_inserts_and_removes_are_deletes() -> None:
    changes = folded([add("a"), add("b")], [remove("a"), add("c", stats='{"numRecords":2}')])
    assert told(changes, "cdc") == []
    assert told(changes, "whole") == [("a", at(1, "insert")), ("b", at(1, "insert")), ("a", at(2, "delete")), ("c", at(2, "insert"))]
    assert (changes.first, changes.last) == (1, 2)
    assert changes.whole["size"].to_pylist() == [10] * 4
    assert changes.whole["stats"].to_pylist() == [None, None, None, '{"numRecords":2}']


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_one_cdc_action_silences_adds_and_removes_of_its_commit_alone(order: list[int]) -> None:
    actions = [add("new"), remove("old"), cdc("_change_data/x")]
    changes = folded([add("old")], [actions[i] for i in order], [add("more")])
    assert told(changes, "cdc") == [("_change_data/x", at(2))]
    assert told(changes, "whole") == [("old", at(1, "insert")), ("more", at(3, "insert"))]


def test_what_changes_no_row_is_left_out() -> None:
    merge = {
        "commitInfo": {
            "operation": "MERGE",
            "operationMetrics": {f"numTargetRows{what}": "0" for what in ("Inserted", "Updated", "Deleted")},
        }
    }
    changes = folded([add("a", dataChange=False), remove("b", dataChange=False)], [merge, add("c"), remove("d")])
    assert changes.whole.num_rows == changes.cdc.num_rows == 0
    counted = {"commitInfo": {"operation": "MERGE", "operationMetrics": {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "1"}}}
    assert told(folded([counted, add("c")]), "whole") == [("c", at(1, "insert"))]


def test_the_commits_own_time_counts_wherever_its_line_stands() -> None:
    info = {"commitInfo": {"inCommitTimestamp": 7_000, "operation": "WRITE"}}
    for actions in ([info, add("a")], [add("a"), info]):
        ((_, values),) = told(folded(actions), "whole")
        assert values["_commit_timestamp"] == "1970-01-01T00:00:07.000000Z"


def test_partition_values_stay_beside_what_is_added() -> None:
    changes = folded([add("p=1/a", partitionValues={"p": "1"}), remove("p=2/b", partitionValues={"p": None})], partitioned=True)
    assert told(changes, "whole") == [("p=1/a", at(1, "insert", p="1")), ("p=2/b", at(1, "delete", p=None))]


@pytest.mark.parametrize("absent", [{"size": None}, {"partitionValues": None}])
def test_a_removal_that_does_not_tell_enough_is_refused(absent: dict[str, None]) -> None:
    with pytest.raises(UnsupportedOperationError, match=rf"{ROOT}.*version 1.*file gone without.*Read the changes of the versions before"):
        folded([remove("gone", **absent)], partitioned=True)
    if "partitionValues" in absent:
        assert told(folded([remove("gone", **absent)]), "whole") == [("gone", at(1, "delete"))]


def test_deletion_vectors_are_refused() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 3, "cardinality": 1}
    with pytest.raises(UnsupportedFeatureError, match=rf"{ROOT}: version 1 .*deletion vectors.*newer lakelog") as caught:
        folded([add("a", deletionVector=vector)])
    assert caught.value.features == ("deletionVectors",)


def test_a_protocol_of_the_range_must_be_readable() -> None:
    with pytest.raises(UnsupportedFeatureError, match="variantType"):
        folded(
            [
                {
                    "protocol": {
                        "minReaderVersion": 3,
                        "minWriterVersion": 7,
                        "readerFeatures": ["variantType"],
                        "writerFeatures": ["variantType"],
                    }
                }
            ]
        )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'{"add": 1}',
        b'{"add": {"path": "a", "size": 1, "dataChange": true}}',
        b'{"cdc": {"path": 7, "partitionValues": {}, "size": 1}}',
    ],
)
def test_a_damaged_commit_is_named(line: bytes) -> None:
    fold = ChangeFold(ROOT, partitioned=False)
    with pytest.raises(CorruptLogError, match=r"0000003\.json"):
        fold.add_commit(3, line, timestamp_ms=0, source="0000003.json")


@given(
    st.binary(max_size=60),
    st.sampled_from(["add", "remove", "cdc", "metaData", "commitInfo", "protocol"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["path", "size", "partitionValues", "dataChange", "x"]), inner, max_size=4)
        ),
        max_leaves=8,
    ),
)
def test_whatever_a_commit_holds_no_other_error_comes(noise: bytes, kind: str, value: object) -> None:
    for text in (noise, json.dumps({kind: value}).encode()):
        fold = ChangeFold(ROOT, partitioned=True)
        try:
            fold.add_commit(0, text, timestamp_ms=0, source="x.json")
        except LakelogError:
            continue
        fold.finish()


def test_many_files_go_by_chunks_and_a_late_cdc_action_still_silences_them() -> None:
    many = [add(f"f{i}") for i in range(20_000)]
    assert folded(many).whole.num_rows == 20_000
    silenced = folded([*many, cdc("_change_data/x")])
    assert (silenced.whole.num_rows, silenced.cdc.num_rows) == (0, 1)


@given(
    st.lists(
        st.dictionaries(st.text("pqr", min_size=1, max_size=2), st.none() | st.text("xy", max_size=2), max_size=3), min_size=1, max_size=30
    )
)
def test_partition_values_of_any_shape_stay_as_they_are(values: list[dict[str, str | None]]) -> None:
    changes = folded([add(str(number), partitionValues=one) for number, one in enumerate(values)])
    assert told(changes, "whole") == [(str(number), {**one, **at(1, "insert")}) for number, one in enumerate(values)]


def test_the_digest_tells_other_commits_and_other_times() -> None:
    one = folded([add("a")]).digest
    assert folded([add("a")]).digest == one
    assert folded([add("b")]).digest != one
    assert folded([add("a")], first=2).digest != one


def test_every_version_of_the_range_must_have_the_feed_on() -> None:
    on, off = (table_of([PROTOCOL, metadata(configuration=configuration)]).metadata for configuration in (FEED, {}))
    check_recorded(on, folded([add("a")]), table=ROOT)
    message = rf"{ROOT}.*versions 4 to 5.*version 4 did not.*SET TBLPROPERTIES \(delta.enableChangeDataFeed = true"
    with pytest.raises(ChangeDataNotRecordedError, match=message) as caught:
        check_recorded(off, folded([add("a")], [metadata()], first=4), table=ROOT)
    assert caught.value.version == 4
    with pytest.raises(ChangeDataNotRecordedError) as caught:
        check_recorded(on, folded([add("a")], [metadata(configuration={})], [metadata()], first=4), table=ROOT)
    assert caught.value.version == 5
    legacy = table_of([PROTOCOL, metadata(configuration={"delta.enableChangeDataCapture": "true"})]).metadata
    check_recorded(legacy, folded([add("a")]), table=ROOT)
    with pytest.raises(InvalidTablePropertyError, match=rf"Delta table {ROOT}: .*enableChangeDataFeed is 'yes'.*SET TBLPROPERTIES"):
        check_recorded(on, folded([metadata(configuration={"delta.enableChangeDataFeed": "yes"})]), table=ROOT)


def checked(old: Action, new: Action, *, protocol: Action = PROTOCOL) -> None:
    """The changes of versions 0 to 1, the metadata changing at 1, read with the schema of 1."""
    first = table_of([protocol, old])
    read = table_of([protocol, old], [new])
    check_schemas(first.metadata, folded([protocol, old], [new], first=0), read)


def deep(*fields: Action) -> Action:
    inner = struct(*fields)
    return struct(
        field("s", inner),
        field("l", {"type": "array", "elementType": inner, "containsNull": True}),
        field("m", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}),
    )


def test_added_columns_are_read_as_null_at_any_depth() -> None:
    checked(metadata(field("a")), metadata(field("b"), field("a")))
    old, new = (metadata(*deep(*fields)["fields"]) for fields in ([field("x")], [field("x"), field("y")]))
    checked(old, new)
    with pytest.raises(SchemaMismatchError) as caught:
        checked(new, old)
    assert len(caught.value.differences) == 3


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        (metadata(field("a"), field("b")), metadata(field("a")), "column b is in the older"),
        (metadata(field("a")), metadata(field("A")), "column a is in the older"),
        (metadata(field("a", "string")), metadata(field("a", "long")), "column a is of type string"),
        (metadata(field("a", "long")), metadata(field("a", "integer")), "column a is of type long"),
        (metadata(field("a")), metadata(field("a", nullable=False)), "column a may hold nulls"),
        (metadata(field("a")), metadata(field("a"), field("b", nullable=False)), "column b may hold nulls"),
        (metadata(field("a"), field("p")), metadata(field("a"), field("p"), partition_by=("p",)), "partitioned by nothing and not by p"),
    ],
)
def test_changes_that_one_schema_cannot_show(old: Action, new: Action, difference: str) -> None:
    with pytest.raises(SchemaMismatchError, match=rf"{ROOT}.*versions 0 to 1.*version 0.*{difference}.*Start at version 1, or"):
        checked(old, new)


def test_widened_types_are_read_with_the_wider_one_and_not_the_other_way_round() -> None:
    narrow, wide = metadata(field("a", "integer")), metadata(field("a", "long"))
    checked(narrow, wide)
    read = table_of([PROTOCOL, narrow])
    with pytest.raises(SchemaMismatchError, match="type integer in the older"):
        check_schemas(read.metadata, folded([PROTOCOL, narrow], [wide], first=0), read)


def test_a_schema_that_changed_and_changed_back_is_found_on_the_way() -> None:
    a, b = metadata(field("a")), metadata(field("b"))
    read = table_of([PROTOCOL, a], [b], [a])
    with pytest.raises(SchemaMismatchError, match=r"that of version 1: .*Start at version 2, or read"):
        check_schemas(read.metadata, folded([PROTOCOL, a], [b], [a], first=0), read)


def test_a_range_that_goes_on_after_the_schema_that_is_read_with() -> None:
    a, wider = metadata(field("a")), metadata(field("a"), field("b"))
    read = table_of([PROTOCOL, a])
    check_schemas(read.metadata, folded([PROTOCOL, a], [wider], first=0), read)
    with pytest.raises(SchemaMismatchError, match="up to version 0 alone"):
        check_schemas(read.metadata, folded([PROTOCOL, a], [metadata(field("b"))], first=0), read)
    strict = table_of([PROTOCOL, metadata(field("a", nullable=False))])
    with pytest.raises(SchemaMismatchError, match="may hold nulls"):
        check_schemas(strict.metadata, folded([PROTOCOL, a], [a], first=0), strict)


BY_NAME = {**FEED, "delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        (metadata(mapped("a", 1, "c1"), configuration=BY_NAME), metadata(mapped("z", 1, "c1"), configuration=BY_NAME), "a is called z"),
        (metadata(mapped("a", 1, "c1"), configuration=BY_NAME), metadata(mapped("a", 2, "c2"), configuration=BY_NAME), "a is in the older"),
        (metadata(field("a")), metadata(mapped("b", 1, "a"), configuration=BY_NAME), "a is called b"),
        (metadata(mapped("a", 1, "a"), configuration=BY_NAME), metadata(field("a")), "were mapped then"),
    ],
)
def test_renamed_and_dropped_columns_of_mapped_tables(old: Action, new: Action, difference: str) -> None:
    with pytest.raises(SchemaMismatchError, match=difference):
        checked(old, new, protocol=MAPPED_PROTOCOL)


def test_mapping_that_was_turned_on_in_between() -> None:
    checked(metadata(field("a")), metadata(mapped("a", 1, "a"), mapped("b", 2, "c2"), configuration=BY_NAME), protocol=MAPPED_PROTOCOL)


def test_snapshots_of_the_two_kinds() -> None:
    read = table_of([PROTOCOL, metadata(field("a"), field("p", "string"), partition_by=("p",))])
    changes = folded([cdc("x", partitionValues={"p": "1"})], [add("y", partitionValues={"p": "2"})], partitioned=True)
    by_file, whole = as_snapshots(changes, read)
    names = ("a", "p", "_change_type", "_commit_version", "_commit_timestamp")
    assert by_file.schema.names == whole.schema.names == names
    assert parse_schema(whole.metadata.schema_json) == whole.schema
    assert by_file.partition_columns == ("p", "_commit_version", "_commit_timestamp")
    assert whole.partition_columns == ("p", "_change_type", "_commit_version", "_commit_timestamp")
    assert (by_file.version, by_file.num_files, by_file.size_in_bytes, whole.size_in_bytes) == (2, 1, 7, 10)
    assert all(column.nullable for column in whole.schema.fields[2:])


def test_a_table_with_a_column_of_a_reserved_name_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=rf"{ROOT}.*has _Commit_Version already. Rename"):
        change_schema(parse_schema(json.dumps(struct(field("_Commit_Version")))), table=ROOT)


def test_change_files_are_needed_where_files_are_written_again_and_the_feed_is_on() -> None:
    assert needs_change_files(FEED, rewrites=True)
    assert not needs_change_files(FEED, rewrites=False)
    assert not needs_change_files({}, rewrites=True)
