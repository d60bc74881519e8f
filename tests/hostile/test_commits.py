"""Commit files that no writer should have written."""

from __future__ import annotations

import json

import pytest

from lakelog.core.errors import CorruptLogError, LakelogError, UnsupportedTypeError
from lakelog.core.log_files import commit_name
from lakelog.core.schema import MAX_DEPTH
from tests.hostile.hostile_json import DEEP
from tests.hostile.logs import SCHEMA, added, commit_of, simple_log
from tests.hostile.opening import Log, open_everything, open_log

ADD = '{"add":{"path":"x","partitionValues":{"p":"1","q":null,"r":"1"},"size":1,"modificationTime":1,"dataChange":true}}'


def log_ending_in(data: bytes | str) -> Log:
    return {**simple_log(2), commit_name(2): data.encode() if isinstance(data, str) else data}


def log_of_schema(schema: str, partition_columns: str = "[]") -> Log:
    metadata = f'"id":"t","format":{{"provider":"parquet","options":{{}}}},"partitionColumns":{partition_columns},"configuration":{{}}'
    lines = (
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
        f'{{"metaData":{{{metadata},"schemaString":{json.dumps(schema)}}}}}',
        ADD,
    )
    return {commit_name(0): "\n".join(lines).encode()}


@pytest.mark.parametrize(
    "data",
    [
        *("", "\n", " \r\n\t", "\0", "\ufeff" + ADD, ADD[:-1], ADD[:40], ADD + ADD, ADD.replace(":", "", 1), "null", "{}", "[]", DEEP),
        *(ADD.encode("utf-16"), b"\xff" + ADD.encode(), ADD.encode().replace(b"x", b"\xed\xa0\x80"), ADD.encode().replace(b"x", b"\xff")),
        *(ADD.replace('"x"', value) for value in ('"\\ud800"', "null", "1", "[]", '"\x01"', "NaN", DEEP)),
        *(
            ADD.replace('"size":1', f'"size":{value}')
            for value in (2**63, 2**64, -(2**63) - 1, 1.5, 1.0, "1e999", "NaN", '"1"', "true", "9" * 5000)
        ),
        *(ADD.replace('"modificationTime":1', f'"modificationTime":{value}') for value in (2**63, 0.1, "null", "Infinity")),
        *(ADD.replace(key, f"{key}:1,{key}", 1) for key in ('"path"', '"size"', '"modificationTime"', '"dataChange"', '"p"', '"add"')),
        ADD.replace('"size"', '"s\\u0069ze":2,"size"'),
        ADD.replace('"size"', '"stats" : "{}","stats" : null,"size"'),
        ADD.replace('"size"', '"deletionVector":{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":1.5,"cardinality":1},"size"'),
        ADD.replace('"size"', f'"deletionVector":{{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":{2**40},"cardinality":1}},"size"'),
        *(f'{{"txn":{{"appId":"a","version":{value}}}}}' for value in (2**63, "1.0", "null", '"1"', "true")),
        *(f'{{"protocol":{{"minReaderVersion":{value},"minWriterVersion":2}}}}' for value in (2**31, -(2**63), "1e3", '"1"', "true")),
        '{"commitInfo":{"operationParameters":' + '{"a":' * 900 + "1" + "}" * 900 + "}}",
    ],
    ids=lambda data: str(data)[:60],
)
def test_what_no_commit_may_hold_is_refused_by_the_files_name(data: bytes | str) -> None:
    log = log_ending_in(data)
    with pytest.raises(CorruptLogError, match=commit_name(2)) as caught:
        open_log(log)
    assert len(str(caught.value)) < 1000
    open_everything(log)


@pytest.mark.parametrize(
    "data",
    [
        *(ADD + "\r\n", "\n\n" + ADD + "\n\n", f" {ADD}", ADD.replace(":", " : "), ADD.replace('"x"', '"\\u0078\\/y"')),
        *(ADD.replace('"size"', f'"unknown":{value},"size"') for value in ("1e300", "[]", '{"a":[{"b":null}]}', f'"{chr(34)[:0]}"', "1.5")),
        *(ADD.replace('"size":1', f'"size":{value}') for value in (2**63 - 1, 0, -1)),
        *(f'{{"commitInfo":{{"timestamp":{value},"inCommitTimestamp":{value}}}}}' for value in (2**63, -1, "true", '"now"', 1.5)),
        *(f'{{"unheard":{value}}}' for value in ("null", "[]", "{}", '"\\u0000"')),
    ],
    ids=lambda data: data[:60],
)
def test_what_is_only_odd_is_read(data: str) -> None:
    log = log_ending_in(data)
    assert open_log(log).version == 2
    assert open_everything(log)["newest"] is None


def test_sizes_add_up_beyond_64_bits() -> None:
    log = log_ending_in(commit_of(*(added(str(number), size=2**63 - 1) for number in range(5)), added("less", size=-(2**63))))
    snapshot = open_log(log)
    assert snapshot.size_in_bytes == sum(snapshot.files["size"].to_pylist()) > 2**65
    open_everything(log)


def test_many_keys_that_occur_twice_are_told_in_one_short_sentence() -> None:
    keys = ",".join(f'"{number}":0' for number in range(200_000))
    with pytest.raises(CorruptLogError, match="'199999' occurs twice") as caught:
        open_log(log_ending_in(f'{{"commitInfo":{{{keys},"199999":0}}}}'))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("keys", [1, 300_000])
def test_an_action_of_many_kinds_is_none(keys: int) -> None:
    with pytest.raises(CorruptLogError, match="one key") as caught:
        open_log(log_ending_in("{" + ",".join(f'"kind{number}":{{}}' for number in range(keys + 1)) + "}"))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("where", "megabytes"), [("path", 20), ("stats", 100), ("tags", 20), ("partitionValues", 20), ("junk", 100)])
def test_a_line_of_100_mb_is_read_or_refused(where: str, megabytes: int) -> None:
    huge = "9" * megabytes * 1_000_000
    texts = {
        "path": ADD.replace('"x"', f'"{huge}"'),
        "stats": ADD.replace('"size"', f'"stats":"{huge}","size"'),
        "tags": ADD.replace('"size"', f'"tags":{{"t":"{huge}"}},"size"'),
        "partitionValues": ADD.replace('"r":"1"', f'"r":"{huge}"'),
        "junk": huge,
    }
    log = log_ending_in(texts[where])
    if where in ("path", "junk"):
        with pytest.raises(CorruptLogError) as caught:
            open_log(log)
        assert len(str(caught.value)) < 1000
    else:
        assert open_log(log).num_files == 4


def nested_schema(depth: int, kind: str) -> str:
    before, after = {
        "struct": ('{"type":"struct","fields":[{"name":"f","nullable":true,"metadata":{},"type":', "}]}"),
        "array": ('{"type":"array","containsNull":true,"elementType":', "}"),
        "map": ('{"type":"map","keyType":"string","valueContainsNull":true,"valueType":', "}"),
    }[kind]
    field = '{"type":"struct","fields":[{"name":"top","nullable":true,"metadata":{},"type":'
    return field + before * depth + '"long"' + after * depth + "}]}"


@pytest.mark.parametrize("kind", ["struct", "array", "map"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 10_000, 1_000_000])
def test_a_schema_too_deep_is_refused(kind: str, depth: int) -> None:
    log = log_of_schema(nested_schema(depth, kind))
    with pytest.raises(CorruptLogError, match=r"deep|JSON"):
        open_log(log)


@pytest.mark.parametrize("kind", ["struct", "array", "map"])
def test_the_deepest_schema_goes_through_everything(kind: str) -> None:
    outcomes = open_everything(log_of_schema(nested_schema(MAX_DEPTH - 1, kind)))
    assert set(outcomes.values()) == {None}


@pytest.mark.parametrize(
    "told",
    [
        *("null", "[]", "3", '"struct"', '{"type":"struct"}', '{"type":"struct","fields":3}', '{"type":"struct","fields":"ab"}', "{", ""),
        *(f'{{"type":"struct","fields":[{told}]}}' for told in ("null", "{}", '{"name":"a"}', '{"name":null,"type":"long"}', DEEP)),
        *(
            f'{{"type":"struct","fields":[{{"name":"a","nullable":true,"metadata":{{}},"type":{told}}}]}}'
            for told in ("null", "3", "[]", "{}", '{"type":{"type":[]}}', '{"type":"array"}', '{"type":"map","keyType":"long"}', "true")
        ),
        '{"type":"struct","fields":[{"name":"\\ud800","nullable":true,"metadata":{},"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{"x":NaN},"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{"x":1e999},"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":[],"metadata":{},"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","nullable":"yes","metadata":{},"type":"long"}]}',
    ],
    ids=lambda told: told[:70],
)
def test_what_is_no_schema_is_refused(told: str) -> None:
    with pytest.raises((CorruptLogError, UnsupportedTypeError)) as caught:
        open_log(log_of_schema(told))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "name", ["decimal(99,1)", "decimal(" + "9" * 5000 + ",1)", "decimal(1,-1)", "x" * 1_000_000, "\u0663", "decimal(\u0663,1)"]
)
def test_a_type_that_there_is_not_is_refused_in_a_short_sentence(name: str) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        open_log(log_of_schema(f'{{"type":"struct","fields":[{{"name":"a","type":"{name}"}}]}}'))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("columns", ['["absent"]', '["string","string"]', '["nested"]', '[""]', '["nested.inner"]'])
def test_partition_columns_that_there_are_not(columns: str) -> None:
    open_everything(log_of_schema(SCHEMA.to_json(), columns))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.deletedFileRetentionDuration", "interval " + "9" * 1_100_000 + " days"),
        ("delta.deletedFileRetentionDuration", "interval 1 " + "\t" * 500_000 + "!"),
        ("delta.logRetentionDuration", "interval -1 day"),
        ("delta.checkpointInterval", "9" * 5000),
        ("delta.checkpointInterval", "0"),
        ("delta.dataSkippingStatsColumns", " " * 200_000 + "a," * 200_000),
        ("delta.dataSkippingStatsColumns", "`" * 100_001),
        ("delta.setTransactionRetentionDuration", "\u0663 days"),
        ("delta.enableInCommitTimestamps", "\u212a" * 3),
    ],
    ids=lambda text: text[:40],
)
def test_properties_of_any_kind_hinder_no_reader(key: str, value: str) -> None:
    log = dict(simple_log(2))
    lines = log[commit_name(0)].decode().splitlines()
    lines[2] = lines[2].replace('"delta.checkpointInterval":"100"', f'{json.dumps(key)}:{json.dumps(value)},"a":"b"')
    log[commit_name(0)] = "\n".join(lines).replace('"delta.deletedFileRetentionDuration":"interval 1 week"', '"c":"d"', 1).encode()
    if key == "delta.deletedFileRetentionDuration":
        log[commit_name(0)] = log[commit_name(0)].replace(b'"a":"b","c":"d"', b'"a":"b"')
    assert open_log(log).metadata.configuration[key] == value
    open_everything(log)


def test_a_torn_end_is_no_table_of_half_a_commit() -> None:
    """Every prefix of a commit is refused or is whole lines, which only the store's guarantee of whole files rules out."""
    whole = commit_of(added("a"), added("b"))
    for length in range(len(whole) - 1):
        try:
            snapshot = open_log(log_ending_in(whole[:length]))
        except LakelogError:
            continue
        assert whole[length - 1 : length] in (b"\n", b"}")
        assert set(snapshot.files["path"].to_pylist()) <= set(open_log(log_ending_in(whole)).files["path"].to_pylist())
