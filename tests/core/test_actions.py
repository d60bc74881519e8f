"""Actions and their JSON: exact round trips, and errors that name what is wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.actions import (
    JSON,
    Action,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
    action_to_json,
    parse_commit,
    parse_line,
    serialize_commit,
)
from lakelog.core.errors import CorruptLogError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONG = st.integers(-(2**63), 2**63 - 1)
STRING_MAP = st.dictionaries(TEXT, TEXT, max_size=3)
NULLABLE_MAP = st.dictionaries(TEXT, st.none() | TEXT, max_size=3)
ANY_JSON: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
UNKNOWN_FIELDS = st.dictionaries(TEXT.map(lambda name: "x-" + name), ANY_JSON, max_size=2)


def objects(
    required: Mapping[str, st.SearchStrategy[object]], optional: Mapping[str, st.SearchStrategy[object]]
) -> st.SearchStrategy[object]:
    """Objects with all required fields, some of the optional ones (null now and then), and unknown ones."""
    known = st.fixed_dictionaries(dict(required), optional={name: st.none() | value for name, value in optional.items()})
    return st.builds(lambda fields, more: {**fields, **more}, known, UNKNOWN_FIELDS)


VECTOR = objects({"storageType": TEXT, "pathOrInlineDv": TEXT, "sizeInBytes": LONG, "cardinality": LONG}, {"offset": LONG})
FILE = {"path": TEXT, "dataChange": st.booleans()}
FILE_DETAIL = {"stats": TEXT, "tags": NULLABLE_MAP, "deletionVector": VECTOR, "baseRowId": LONG, "defaultRowCommitVersion": LONG}
BY_KIND: dict[str, st.SearchStrategy[object]] = {
    "add": objects(
        {**FILE, "partitionValues": NULLABLE_MAP, "size": LONG, "modificationTime": LONG}, {**FILE_DETAIL, "clusteringProvider": TEXT}
    ),
    "remove": objects(
        FILE,
        {
            **FILE_DETAIL,
            "deletionTimestamp": LONG,
            "extendedFileMetadata": st.booleans(),
            "partitionValues": NULLABLE_MAP,
            "size": LONG,
        },
    ),
    "cdc": objects({**FILE, "partitionValues": NULLABLE_MAP, "size": LONG}, {"tags": NULLABLE_MAP}),
    "metaData": objects(
        {
            "id": TEXT,
            "format": objects({"provider": TEXT}, {"options": STRING_MAP}),
            "partitionColumns": st.lists(TEXT, max_size=3),
            "configuration": STRING_MAP,
        },
        {"name": TEXT, "description": TEXT, "schemaString": TEXT, "createdTime": LONG},
    ),
    "protocol": objects(
        {"minReaderVersion": st.integers(1, 9), "minWriterVersion": st.integers(1, 9)},
        {"readerFeatures": st.lists(TEXT, max_size=3), "writerFeatures": st.lists(TEXT, max_size=3)},
    ),
    "txn": objects({"appId": TEXT, "version": LONG}, {"lastUpdated": LONG}),
    "domainMetadata": objects({"domain": TEXT, "configuration": TEXT, "removed": st.booleans()}, {}),
    "checkpointMetadata": objects({"version": LONG}, {"tags": NULLABLE_MAP}),
    "sidecar": objects({"path": TEXT, "sizeInBytes": LONG, "modificationTime": LONG}, {"tags": NULLABLE_MAP}),
    "commitInfo": objects(
        {},
        {
            "timestamp": LONG | TEXT,
            "operation": ANY_JSON,
            "operationParameters": ANY_JSON,
            "operationMetrics": ANY_JSON,
            "isBlindAppend": st.booleans() | TEXT,
            "txnId": TEXT,
        },
    ),
    "somethingNew": ANY_JSON,
}
ACTION_JSON = st.sampled_from(sorted(BY_KIND)).flatmap(lambda kind: BY_KIND[kind].map(lambda inner: {kind: inner}))

ADD: dict[str, JSON] = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True}


def line(kind: str, inner: JSON) -> bytes:
    return json.dumps({kind: inner}).encode()


@given(ACTION_JSON)
def test_any_action_read_and_written_again_says_the_same(value: dict[str, object]) -> None:
    text = json.dumps(value).encode()
    action = parse_line(text)
    assert action_to_json(action) == value
    assert json.loads(serialize_commit([action])) == value


@given(st.lists(ACTION_JSON, max_size=5))
def test_a_commit_read_and_written_again_gives_equal_actions(values: list[dict[str, object]]) -> None:
    actions = parse_commit(b"\n".join(json.dumps(value).encode() for value in values), "commit")
    assert parse_commit(serialize_commit(actions), "again") == actions


def test_every_golden_commit_reads_and_writes_to_equal_json(golden: Path) -> None:
    files = sorted(golden.rglob("_delta_log/*.json"))
    assert len(files) > 400
    for file in files:
        data = file.read_bytes()
        expected = [json.loads(text) for text in data.splitlines() if text.strip()]
        actions = parse_commit(data, str(file))
        assert [action_to_json(action) for action in actions] == expected, file
        assert [json.loads(text) for text in serialize_commit(actions).splitlines()] == expected, file


def test_golden_logs_hold_no_unknown_kind_but_one(golden: Path) -> None:
    unknown = {
        action.name
        for file in golden.rglob("_delta_log/*.json")
        for action in parse_commit(file.read_bytes(), str(file))
        if isinstance(action, UnknownAction)
    }
    assert unknown == {"eommitInfo"}


def test_a_written_action_leaves_absent_fields_out_and_keeps_the_protocols_order() -> None:
    add = AddFile(path="p", partition_values={"x": None}, size=1, modification_time=2, data_change=True, stats="{}")
    assert serialize_commit([add]) == (
        b'{"add":{"path":"p","partitionValues":{"x":null},"size":1,"modificationTime":2,"dataChange":true,"stats":"{}"}}\n'
    )


def test_letters_are_written_as_they_are() -> None:
    assert "größe😀".encode() in serialize_commit([CommitInfo(user_metadata="größe😀")])


def test_an_explicit_null_is_not_absence() -> None:
    absent, null = parse_line(line("add", ADD)), parse_line(line("add", {**ADD, "stats": None}))
    assert absent != null
    assert isinstance(null, AddFile)
    assert null.stats is None
    assert "stats" in action_to_json(null)["add"]  # type: ignore[operator]


def test_a_null_property_counts_as_unset() -> None:
    inner: JSON = {"id": "i", "format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {"a": None, "b": "1"}}
    action = parse_line(line("metaData", inner))
    assert isinstance(action, Metadata)
    assert action.configuration == {"b": "1"}


def test_metadata_without_a_schema_has_no_columns() -> None:
    assert json.loads(Metadata(id="i").schema_json) == {"type": "struct", "fields": []}


def test_commit_info_keeps_fields_of_other_types_than_delta_sparks() -> None:
    action = parse_line(line("commitInfo", {"timestamp": "yesterday", "operation": "WRITE"}))
    assert action == CommitInfo(operation="WRITE", extra={"timestamp": "yesterday"})


@pytest.mark.parametrize(
    ("offset", "unique_id"), [(None, "uab^-aqEH.-t@S}K{vb[*k^"), (0, "uab^-aqEH.-t@S}K{vb[*k^@0"), (4, "uab^-aqEH.-t@S}K{vb[*k^@4")]
)
def test_a_files_key_holds_its_deletion_vector(offset: int | None, unique_id: str) -> None:
    vector = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=offset, size_in_bytes=36, cardinality=2
    )
    assert RemoveFile(path="p", data_change=True, deletion_vector=vector).key == ("p", unique_id)
    assert RemoveFile(path="p", data_change=True).key == ("p", "")
    add = AddFile(path="p", partition_values={}, size=1, modification_time=2, data_change=True, deletion_vector=vector)
    assert add.key == ("p", unique_id)


def test_actions_survive_pickling() -> None:
    actions: list[Action] = [
        AddFile(path="p", partition_values={}, size=1, modification_time=2, data_change=True),
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=("a",), writer_features=("a", "b")),
    ]
    assert pickle.loads(pickle.dumps(actions)) == actions


def test_blank_lines_and_carriage_returns_are_skipped() -> None:
    text = b"\n  \n" + line("txn", {"appId": "a", "version": 1}) + b"\r\n\r\n"
    assert len(parse_commit(text, "commit")) == 1


def test_a_bad_line_is_named_with_its_file_and_number() -> None:
    data = line("add", ADD) + b"\n\n" + b'{"add":' + b"\n"
    with pytest.raises(CorruptLogError, match=r"^00\.json, line 3: not valid JSON"):
        parse_commit(data, "00.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{}", "one key"),
        (b'{"add":{},"remove":{}}', r"one key, found an object with the keys \['add', 'remove'\]"),
        (b"[1]", "one key"),
        (b"3", "one key"),
        (b'{"add":null}', "add must be an object, found None"),
        (b"[" * 200 + b"]" * 200, "one key"),
        (b"[" * 1000 + b"]" * 1000, "not valid JSON"),
        (b"[" * 5000 + b"]" * 5000, "not valid JSON"),
        (b'{"commitInfo":{"x":NaN}}', "not valid JSON"),
        (b'{"commitInfo":{"x":Infinity}}', "not valid JSON"),
        (b'{"commitInfo":{"x":"\xff"}}', "not valid JSON"),
        (b'{"commitInfo":{"a":1,"a":2}}', "'a' occurs twice"),
        (b'{"commitInfo":{"a" :1,"a"\t:2}}', "'a' occurs twice"),
        (b'{"commitInfo":{"a\\\\":1,"a\\\\":2}}', "occurs twice"),
        (b'{"commitInfo":{"a":1,"\\u0061":2}}', "'a' occurs twice"),
        (b'{"commitInfo":{},"commitInfo":{}}', "'commitInfo' occurs twice"),
        (b'{"add":{"path":"a"}}', "add.partitionValues is missing"),
    ],
)
def test_lines_that_are_no_action(text: bytes, message: str) -> None:
    with pytest.raises(CorruptLogError, match=message):
        parse_line(text)


def test_quotes_and_colons_inside_strings_are_no_keys() -> None:
    stats = '{"numRecords":1,"numRecords":1,"a\\":": "\\\\":"}'
    action = parse_line(line("add", {**ADD, "stats": stats}))
    assert isinstance(action, AddFile)
    assert action.stats == stats


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": 1}, "add.path must be a string, found 1"),
        ({"path": None}, "add.path must be a string, found None"),
        ({"size": 1.0}, "add.size must be a 64-bit integer, found 1.0"),
        ({"size": True}, "add.size must be a 64-bit integer, found True"),
        ({"size": 2**63}, "add.size must be a 64-bit integer"),
        ({"size": 2**80}, "add.size must be a 64-bit integer"),
        ({"dataChange": "true"}, "add.dataChange must be true or false"),
        ({"partitionValues": {"a": 1}}, "add.partitionValues must be an object of strings"),
        ({"partitionValues": []}, "add.partitionValues must be an object of strings"),
        ({"stats": {"numRecords": 1}}, "add.stats must be a string"),
        ({"deletionVector": {"storageType": "u"}}, "deletionVector.pathOrInlineDv is missing"),
        ({"deletionVector": "u"}, "deletionVector must be an object"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(change: dict[str, JSON], message: str) -> None:
    with pytest.raises(CorruptLogError, match=message):
        parse_line(line("add", {**ADD, **change}))


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ({"minReaderVersion": 2**31, "minWriterVersion": 2}, "protocol.minReaderVersion must be a 32-bit integer"),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "x"}, "protocol.readerFeatures must be a list of strings"),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [1]}, "protocol.readerFeatures must be a list of strings"),
    ],
)
def test_a_protocol_of_the_wrong_shape_is_refused(inner: JSON, message: str) -> None:
    with pytest.raises(CorruptLogError, match=message):
        parse_line(line("protocol", inner))


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match=r"NaN|Out of range"):
        serialize_commit([CommitInfo(extra={"x": float("nan")})])
