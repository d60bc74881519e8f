from __future__ import annotations

import json
from typing import Any

import pytest

from lakelog.core.actions import CommitInfo
from lakelog.core.errors import CorruptLogError
from lakelog.core.file_columns import TOMBSTONES_SCHEMA
from lakelog.core.landed import ADDED_SCHEMA, LandedCommit, commit_info_of, landed_commit


def land(*lines: object, ending: str = "\n") -> LandedCommit:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return landed_commit(7, (text + ending).encode(), source="/t/_delta_log/7.json", root="/t")


def add(path: str = "a", **more: object) -> dict[str, dict[str, object]]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True, **more}}


def remove(path: str = "a", **more: object) -> dict[str, dict[str, object]]:
    return {"remove": {"path": path, "dataChange": True, **more}}


INFO = {"commitInfo": {"operation": "WRITE", "engineInfo": "other/1", "txnId": "x", "isBlindAppend": True}}
METADATA = {"metaData": {"id": "t", "format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {"k": "v"}}}


def test_everything_that_a_commit_says() -> None:
    landed = land(
        INFO,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        METADATA,
        {"txn": {"appId": "a", "version": 1}},
        {"txn": {"appId": "b", "version": 2}},
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}},
        {"domainMetadata": {"domain": "e", "configuration": "", "removed": True}},
        "",
        "  \r",
        add("p=a%20b/f", partitionValues={"p": "a b"}, stats="{}"),
        {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}},
        {"somethingNew": 3},
        ending="",
    )
    assert (landed.version, landed.txn_id, landed.operation, landed.engine_info) == (7, "x", "WRITE", "other/1")
    assert landed.is_blind_append
    assert landed.protocol is not None
    assert landed.protocol.min_writer_version == 2
    assert landed.metadata is not None
    assert landed.metadata.configuration == {"k": "v"}
    assert landed.app_ids == {"a", "b"}
    assert landed.domains == {"d", "e"}
    assert landed.added.schema == ADDED_SCHEMA
    assert landed.removed.schema == TOMBSTONES_SCHEMA
    assert landed.added.select(["path", "partitionValues", "stats", "key", "dataChange"]).to_pylist() == [
        {"path": "p=a%20b/f", "partitionValues": [("p", "a b")], "stats": "{}", "key": "p=a b/f|", "dataChange": True}
    ]
    assert landed.describe() == "version 7 (WRITE by other/1: 1 file added, 0 removed)"


def test_a_commit_that_says_nothing_of_itself() -> None:
    landed = land(remove("a"), add("b"), add("c"))
    assert (landed.txn_id, landed.operation, landed.engine_info, landed.is_blind_append) == (None, None, None, False)
    assert (landed.protocol, landed.metadata, landed.app_ids, landed.domains) == (None, None, frozenset(), frozenset())
    assert landed.describe() == "version 7 (an unnamed operation by an unnamed engine: 2 files added, 1 removed)"


@pytest.mark.parametrize("info", [{}, None, "text", [], {"operation": 3, "isBlindAppend": "true", "txnId": {}}])
def test_commit_info_may_hold_anything(info: object) -> None:
    """As replay has it, which looks at the in-commit timestamp alone."""
    landed = land({"commitInfo": info}, add())
    assert (landed.txn_id, landed.operation, landed.is_blind_append) == (None, None, False)


@pytest.mark.parametrize(
    ("more", "blind"), [((add(),), True), ((), True), ((add(), remove("b")), False), ((remove("b", dataChange=False),), False)]
)
def test_a_blind_append_removes_nothing(more: tuple[Any, ...], blind: bool) -> None:
    assert land(INFO, *more).is_blind_append is blind


def test_data_change_is_false_only_where_the_log_says_so() -> None:
    lines = [add("a", dataChange=False), add("b", dataChange=None), add("c")]
    del lines[2]["add"]["dataChange"]
    assert land(*lines).added["dataChange"].to_pylist() == [False, True, True]


@pytest.mark.parametrize(
    ("lines", "may"),
    [
        ((add("a", dataChange=False),), True),
        ((add("a"), add("b", dataChange=False)), True),
        ((add("a"),), False),
        ((INFO,), False),
        ((add("a", dataChange=False), remove("b")), False),
    ],
)
def test_what_may_only_say_something_new_of_its_files(lines: tuple[Any, ...], may: bool) -> None:
    assert land(*lines).may_restate is may


def test_who_does_not_ask_for_files_is_told_of_none_that_is_restated() -> None:
    assert not landed_commit(7, json.dumps(add("a")).encode(), source="7.json", root="/t", columns=False).may_restate


def test_more_files_than_one_chunk_holds_keep_their_order() -> None:
    count = 2 * 8192 + 5
    lines = [line for n in range(count) for line in (add(f"a{n}", dataChange=n % 2 == 0), remove(f"r{n}"))]
    landed = land(*lines)
    assert landed.added.column(0).num_chunks == 3
    assert landed.added["path"].to_pylist() == [f"a{n}" for n in range(count)]
    assert landed.added["dataChange"].to_pylist() == [n % 2 == 0 for n in range(count)]
    assert landed.removed["path"].to_pylist() == [f"r{n}" for n in range(count)]


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\n"])
def test_an_empty_file_is_no_commit(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"^/t/_delta_log/7\.json is empty: .* Restore it\.$"):
        landed_commit(7, data, source="/t/_delta_log/7.json", root="/t")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"add":{"path":', "damaged"),
        ("[]", "an object with one key"),
        ("{}", "an object with one key"),
        ('{"add":{},"remove":{}}', "an object with one key"),
        ("3", "an object with one key"),
        ({"add": None}, "line 2: add must be an object"),
        ({"add": {"path": "a"}}, r"line 2: add\.partitionValues is missing"),
        (add(size="1"), r"line 2: add\.size must be a 64-bit integer"),
        (add(stats=3), r"line 2: add\.stats must be a string"),
        ({"remove": {"dataChange": True}}, r"line 2: remove\.path is missing"),
        ({"protocol": {"minReaderVersion": 1}}, r"protocol\.minWriterVersion is missing"),
        ({"metaData": {}}, r"metaData\.id is missing"),
        ({"txn": {"appId": 3, "version": 1}}, r"txn\.appId must be a string"),
        ({"domainMetadata": {"domain": "d"}}, r"domainMetadata\.configuration is missing"),
        (add("../../x"), r"leaves the table by '\.\.'"),
    ],
)
def test_a_damaged_line_is_named_with_its_file(line: object, words: str) -> None:
    with pytest.raises(CorruptLogError, match=words) as caught:
        land(add("before"), line)
    assert str(caught.value).startswith("/t/_delta_log/7.json")


def test_a_row_that_only_the_columns_refuse_is_named_with_its_file() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 2**40, "sizeInBytes": 3, "cardinality": 1}
    with pytest.raises(CorruptLogError, match=r"^/t/_delta_log/7\.json is damaged: .* Restore the file\.$"):
        land(add(deletionVector=vector))


def test_commit_info_is_found_among_the_lines() -> None:
    lines = [add("with commitInfo in it", tags={"commitInfo": "no"}), '{"commitInfo":', {"commitInfo": {"txnId": "x"}}, INFO]
    data = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()
    assert commit_info_of(data) == CommitInfo(txn_id="x")


@pytest.mark.parametrize(
    "data", [b"", b"not json", b'{"commitInfo":', b'{"commitInfo":null}', json.dumps(add()).encode(), b'\xff"commitInfo"']
)
def test_a_file_may_hold_no_commit_info(data: bytes) -> None:
    assert commit_info_of(data) is None
