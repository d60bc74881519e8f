from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import CorruptLogError, MissingCommitError
from lakelog.core.replay import Fold, LogState

ROOT = "/tables/t"


def line(**action: object) -> str:
    return json.dumps(action)


def add(path: str, *, size: int = 1, vector: int | None = None, **more: object) -> str:
    inner: dict[str, object] = {"path": path, "partitionValues": {"p": None}, "size": size, "modificationTime": 7, "dataChange": True}
    if vector is not None:
        inner["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "ab", "offset": vector, "sizeInBytes": 3, "cardinality": 4}
    return line(add=inner | more)


def remove(path: str, *, at: int | None = 5, vector: int | None = None) -> str:
    inner: dict[str, object] = {"path": path, "dataChange": True}
    if at is not None:
        inner["deletionTimestamp"] = at
    if vector is not None:
        inner["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "ab", "offset": vector, "sizeInBytes": 3, "cardinality": 4}
    return line(remove=inner)


def fold(commits: Sequence[Sequence[str]], base: LogState | None = None) -> LogState:
    base = LogState() if base is None else base
    folding = Fold(base, root=ROOT)
    for offset, lines in enumerate(commits, start=base.version + 1):
        folding.add_commit(offset, "\n".join(lines or ['{"commitInfo":{}}']).encode(), f"{offset}.json")
    return folding.finish()


def live(state: LogState) -> dict[str, int]:
    return dict(zip(state.files["key"].to_pylist(), state.files["size"].to_pylist(), strict=True))


def dead(state: LogState) -> dict[str, int | None]:
    return dict(zip(state.tombstones["key"].to_pylist(), state.tombstones["deletionTimestamp"].to_pylist(), strict=True))


@dataclass
class Model:
    """The same fold with dictionaries, one action at a time."""

    files: dict[str, int] = field(default_factory=dict)
    tombstones: dict[str, int | None] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    reader_version: int | None = None
    table_id: str | None = None

    def apply(self, text: str) -> None:
        ((kind, inner),) = json.loads(text).items()
        if kind in ("add", "remove"):
            vector = inner.get("deletionVector")
            key = inner["path"].replace("%20", " ") + "|" + (f"uab@{vector['offset']}" if vector else "")
            self.files.pop(key, None)
            self.tombstones.pop(key, None)
            if kind == "add":
                self.files[key] = inner["size"]
            else:
                self.tombstones[key] = inner.get("deletionTimestamp")
        elif kind == "txn":
            self.transactions[inner["appId"]] = inner["version"]
        elif kind == "domainMetadata":
            self.domains.pop(inner["domain"], None)
            if not inner["removed"]:
                self.domains[inner["domain"]] = inner["configuration"]
        elif kind == "protocol":
            self.reader_version = inner["minReaderVersion"]
        elif kind == "metaData":
            self.table_id = inner["id"]


PATHS = st.sampled_from(["a", "b", "c%20d", "c d", "p=1/e", "f"])
VECTORS = st.one_of(st.none(), st.integers(1, 2))
NAMES = st.sampled_from(["x", "y"])
ACTIONS = st.one_of(
    st.builds(lambda path, size, vector: add(path, size=size, vector=vector), PATHS, st.integers(0, 2**62), VECTORS),
    st.builds(lambda path, at, vector: remove(path, at=at, vector=vector), PATHS, st.one_of(st.none(), st.integers(0, 99)), VECTORS),
    st.builds(lambda app, version: line(txn={"appId": app, "version": version}), NAMES, st.integers(0, 9)),
    st.builds(
        lambda name, text, gone: line(domainMetadata={"domain": name, "configuration": text, "removed": gone}),
        NAMES,
        st.text(max_size=3),
        st.booleans(),
    ),
    st.builds(lambda version: line(protocol={"minReaderVersion": version, "minWriterVersion": 2}), st.integers(1, 3)),
    st.builds(
        lambda name: line(metaData={"id": name, "format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {}}), NAMES
    ),
    st.just(line(commitInfo={"operation": "WRITE"})),
    st.just(line(somethingNew={"a": 1})),
)
LOGS = st.lists(st.lists(ACTIONS, max_size=8), max_size=8)


@given(LOGS, st.integers(0, 8))
def test_replay_equals_a_fold_over_dictionaries_whether_done_at_once_or_in_steps(log: list[list[str]], cut: int) -> None:
    model = Model()
    for lines in log:
        for text in lines:
            model.apply(text)
    at_once = fold(log)
    in_two = fold(log[cut:], fold(log[:cut]))
    one_by_one = LogState()
    for lines in log:
        one_by_one = fold([lines], one_by_one)
    for state in (at_once, in_two, one_by_one):
        assert state.version == len(log) - 1
        assert live(state) == model.files
        assert state.files.num_rows == len(model.files)
        assert dead(state) == model.tombstones
        assert state.tombstones.num_rows == len(model.tombstones)
        assert {name: item.version for name, item in state.transactions.items()} == model.transactions
        assert {name: item.configuration for name, item in state.domains.items()} == model.domains
        assert (state.protocol and state.protocol.min_reader_version) == model.reader_version
        assert (state.metadata and state.metadata.id) == model.table_id


def test_an_add_after_a_remove_of_the_same_path_in_one_commit_lives() -> None:
    state = fold([[add("a", size=1)], [remove("a"), add("a", size=2)]])
    assert live(state) == {"a|": 2}
    assert dead(state) == {}


def test_a_path_with_another_deletion_vector_is_another_file() -> None:
    state = fold([[add("a")], [remove("a"), add("a", vector=1)]])
    assert live(state) == {"a|uab@1": 1}
    assert dead(state) == {"a|": 5}


def test_every_column_survives() -> None:
    more = {
        "stats": '{"numRecords":3}',
        "tags": {"k": "v", "n": None},
        "baseRowId": 4,
        "defaultRowCommitVersion": 5,
        "clusteringProvider": "liquid",
    }
    state = fold([[add("p=1/a%20b", size=9, vector=2, **more)]])
    assert state.files.drop_columns(["key"]).to_pylist() == [
        {
            "path": "p=1/a%20b",
            "partitionValues": [("p", None)],
            "size": 9,
            "modificationTime": 7,
            "stats": '{"numRecords":3}',
            "tags": [("k", "v"), ("n", None)],
            "deletionVector": {"storageType": "u", "pathOrInlineDv": "ab", "offset": 2, "sizeInBytes": 3, "cardinality": 4},
            "baseRowId": 4,
            "defaultRowCommitVersion": 5,
            "clusteringProvider": "liquid",
        }
    ]


def test_tombstones_expire_when_their_retention_has_passed_and_those_without_a_time_at_once() -> None:
    state = fold([[remove("old", at=100), remove("edge", at=200), remove("new", at=201), remove("timeless", at=None)]])
    assert set(dead(state.without_expired(now_ms=1200, retention_ms=1000))) == {"edge|", "new|"}
    assert state.without_expired(now_ms=1, retention_ms=10**15).tombstones.num_rows == 3


def test_a_commit_larger_than_a_chunk_keeps_its_order() -> None:
    many = [add(f"f{number}") for number in range(20_000)]
    state = fold([many, [*(remove(f"f{number}") for number in range(10_000)), add("f5", size=50)]])
    assert state.files.num_rows == 10_001
    assert live(state)["f5|"] == 50
    assert state.tombstones.num_rows == 9_999


def test_many_small_commits_do_not_leave_as_many_chunks() -> None:
    state = LogState()
    for number in range(200):
        state = fold([[add(f"f{number}")]], state)
    assert state.files.num_rows == 200
    assert state.files["key"].num_chunks < 70


def test_a_version_that_is_skipped_is_named() -> None:
    folding = Fold(LogState(), root=ROOT)
    folding.add_commit(0, add("a").encode(), "0.json")
    with pytest.raises(MissingCommitError, match=r"/tables/t: commit 1 is missing"):
        folding.add_commit(2, add("a").encode(), "2.json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "one key"),
        ('{"add":{},"remove":{}}', "one key"),
        ('{"add":7}', "add must be an object"),
        ('{"add":{"path":"a"}}', "partitionValues is missing"),
        (add("a").replace('"size": 1', '"size": "1"'), "add.size must be"),
        (add("a").replace('"size": 1', '"size": 9223372036854775808'), "add.size must be"),
        (add("a").replace('"size": 1', '"size": true'), "add.size must be"),
        (add("a").replace('{"p": null}', '{"p": 3}'), "add.partitionValues must be"),
        ('{"remove":{"dataChange":true}}', "remove.path is missing"),
        ('{"metaData":{"id":3}}', "metaData.id must be"),
        ('{"protocol":{"minReaderVersion":1,"minWriterVersion":NaN}}', "not valid JSON"),
    ],
)
def test_a_damaged_line_is_named_with_table_file_and_remedy(text: str, reason: str) -> None:
    with pytest.raises(CorruptLogError) as caught:
        fold([[add("ok")], [add("fine"), "", text]])
    message = str(caught.value)
    assert message.startswith("Delta table /tables/t: 1.json, line 3: ")
    assert reason in message
    assert "restore it" in message


@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true},'
        b'"add":{"path":"b","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}',
        b'{"add":{"path":"a","path":"b","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}',
        b'{"add":{"path":"a","partitionValues":{"p":"1","p":"2"},"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}',
    ],
)
def test_a_key_twice_loses_no_file_in_silence(line: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"0\.json"):
        Fold(LogState(), root="/t").add_commit(0, line, "0.json")


def test_a_column_named_like_a_key_is_no_key_twice() -> None:
    line = (
        b'{"add":{"path":"path=x/f","partitionValues":{"path":"x","add":"y"},"size":1,"modificationTime":1,"dataChange":true,'
        b'"stats":"{\\"minValues\\":{\\"size\\":1}}"}}'
    )
    fold = Fold(LogState(), root="/t")
    fold.add_commit(0, line, "0.json")
    assert fold.finish().files["path"].to_pylist() == ["path=x/f"]
