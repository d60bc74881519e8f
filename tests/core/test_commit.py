from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakelog.core import commit_info
from lakelog.core.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
    parse_commit,
)
from lakelog.core.commit import (
    NO_VERSION,
    NOTHING,
    CommitAttempt,
    Isolation,
    PreparedCommit,
    Reads,
    check_allowed,
    demands,
    isolation_of,
    joined,
    placed,
    prepare,
)
from lakelog.core.commit_info import Operation
from lakelog.core.errors import CommitOutcomeUnknown, InvalidTablePropertyError, UnsupportedFeatureError, UnsupportedOperationError
from lakelog.core.predicates import FALSE, TRUE
from lakelog.core.replay import Fold, LogState
from lakelog.core.snapshot import Snapshot

ROOT = "/tables/t"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="table", schema_string=SCHEMA)
OPTIMIZE, DELETE = Operation(name="OPTIMIZE"), commit_info.delete(["id = 1"])


def configured(**properties: str) -> Metadata:
    return replace(METADATA, configuration={f"delta.{name}": value for name, value in properties.items()})


def table(metadata: Metadata = METADATA, protocol: Protocol = PROTOCOL, *more: Action) -> Snapshot:
    fold = Fold(LogState(), root=ROOT)
    fold.add_actions(0, [protocol, metadata, *more])
    return Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)


def add(path: str = "new", change: bool = True) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=change)


def remove(path: str = "old", change: bool = True) -> RemoveFile:
    return RemoveFile(path=path, deletion_timestamp=1, data_change=change)


def cdc(change: bool = False) -> AddCDCFile:
    return AddCDCFile(path="_change_data/c", partition_values={}, size=1, data_change=change)


TXN = SetTransaction(app_id="a", version=1)
DOMAIN = DomainMetadata(domain="d", configuration="", removed=False)


def attempt(*actions: Action, read_version: int = 3, operation: Operation = DELETE, **more: Any) -> CommitAttempt:
    return CommitAttempt(read_version=read_version, actions=actions, operation=operation, engine_info="lakelog/test", **more)


# what an attempt is -------------------------------------------------------------------------------------------------------

SOME = pa.array(["old"], pa.string())


@pytest.mark.parametrize(
    ("reads", "rows"),
    [
        (NOTHING, False),
        (Reads(app_ids=frozenset({"a"})), False),
        (Reads(files=pa.array([], pa.string())), False),
        (Reads(files=pa.chunked_array([], pa.string())), False),
        (Reads(files=SOME), True),
        (Reads(files=pa.chunked_array([SOME])), True),
        (Reads(predicates=(TRUE,)), True),
        (Reads(predicates=(FALSE,)), True),
        (Reads(whole_table=True), True),
    ],
)
def test_an_attempt_that_read_rows_is_no_blind_append(reads: Reads, rows: bool) -> None:
    assert reads.rows is rows
    assert attempt(add(), reads=reads).is_blind_append is not rows
    assert attempt(reads=reads).is_blind_append is not rows


@pytest.mark.parametrize(
    ("actions", "blind", "adds", "removes"),
    [
        ((), True, False, False),
        ((add(),), True, True, False),
        ((add(change=False),), True, False, False),
        ((add("a", change=False), add("b")), True, True, False),
        ((METADATA, PROTOCOL, TXN, DOMAIN), True, False, False),
        ((METADATA, add()), True, True, False),
        ((UnknownAction(name="new", value=1), add()), True, True, False),
        ((remove(),), False, False, True),
        ((remove(change=False),), False, False, False),
        ((add(change=False), remove(change=False)), False, False, False),
        ((add(), remove()), False, True, True),
        ((cdc(),), False, False, False),
        ((add(), cdc()), False, True, False),
    ],
)
def test_what_the_actions_make_of_an_attempt(actions: tuple[Action, ...], blind: bool, adds: bool, removes: bool) -> None:
    trying = attempt(*actions)
    assert (trying.is_blind_append, trying.adds_rows, trying.removes_rows) == (blind, adds, removes)


# isolation ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "level"),
    [
        (None, Isolation.SERIALIZABLE),
        ("Serializable", Isolation.SERIALIZABLE),
        ("serializable", Isolation.SERIALIZABLE),
        ("WriteSerializable", Isolation.WRITE_SERIALIZABLE),
        ("WRITESERIALIZABLE", Isolation.WRITE_SERIALIZABLE),
        ("SnapshotIsolation", Isolation.SERIALIZABLE),
    ],
)
@pytest.mark.parametrize("operation", [DELETE, OPTIMIZE])
def test_the_table_decides_how_rows_are_changed(told: str | None, level: Isolation, operation: Operation) -> None:
    metadata = METADATA if told is None else configured(isolationLevel=told)
    other = configured(isolationLevel="WriteSerializable" if level is Isolation.SERIALIZABLE else "Serializable")
    assert isolation_of(attempt(add(), operation=operation), table(metadata)) is level
    assert isolation_of(attempt(add(), remove(change=False), operation=operation), table(metadata)) is level
    # The metadata of the attempt itself goes before the table's.
    assert isolation_of(attempt(metadata, add(), operation=operation), table(other)) is level
    assert isolation_of(attempt(PROTOCOL, metadata, add(), read_version=NO_VERSION, operation=operation), None) is level
    # What changes no rows but is no file either is held to it too.
    for action in (metadata, TXN, DOMAIN, PROTOCOL, cdc(), UnknownAction(name="new", value=1)):
        assert isolation_of(attempt(action, remove(change=False), operation=operation), table(metadata)) is level


def test_where_nothing_is_known_of_a_table_all_is_serializable() -> None:
    assert isolation_of(attempt(add(), read_version=NO_VERSION), None) is Isolation.SERIALIZABLE


@pytest.mark.parametrize("actions", [(), (add(change=False),), (remove(change=False),), (add(change=False), remove(change=False))])
@pytest.mark.parametrize(
    ("told", "operation", "level"),
    [
        ("Serializable", OPTIMIZE, Isolation.SNAPSHOT),
        ("Serializable", DELETE, Isolation.SNAPSHOT),
        ("SnapshotIsolation", OPTIMIZE, Isolation.SNAPSHOT),
        ("SnapshotIsolation", DELETE, Isolation.SNAPSHOT),
        ("WriteSerializable", OPTIMIZE, Isolation.SNAPSHOT),
        # A write that happened to change nothing may still not come before a write that it did not see.
        ("WriteSerializable", DELETE, Isolation.WRITE_SERIALIZABLE),
        ("WriteSerializable", commit_info.write("append"), Isolation.WRITE_SERIALIZABLE),
    ],
)
def test_what_only_rearranges_rows_needs_less(actions: tuple[Action, ...], told: str, operation: Operation, level: Isolation) -> None:
    assert isolation_of(attempt(*actions, operation=operation), table(configured(isolationLevel=told))) is level


@pytest.mark.parametrize("value", ["", "None", "ReadCommitted", "Write Serializable"])
def test_a_level_that_is_none_is_named(value: str) -> None:
    metadata = configured(isolationLevel=value)
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.isolationLevel"):
        isolation_of(attempt(add()), table(metadata))
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.isolationLevel"):
        isolation_of(attempt(add(change=False)), table(metadata))
    assert isolation_of(attempt(METADATA, add()), table(metadata)) is Isolation.SERIALIZABLE


# prepare ------------------------------------------------------------------------------------------------------------------


def ready(trying: CommitAttempt, isolation: Isolation = Isolation.SERIALIZABLE) -> PreparedCommit:
    return prepare(trying, timestamp_ms=5, txn_id="t-1", isolation=isolation)


def put_at(
    prepared: PreparedCommit, version: int, before: Snapshot | None, *, now_ms: int = 50, previous_ms: int | None = None
) -> PreparedCommit:
    asked = demands(prepared, before, table=ROOT)
    return placed(prepared, asked, version=version, before=before, now_ms=now_ms, table=ROOT, previous_ms=previous_ms)


def lines(
    trying: CommitAttempt,
    isolation: Isolation = Isolation.SERIALIZABLE,
    *,
    before: Snapshot | None = None,
    version: int = 4,
    now_ms: int = 50,
    previous_ms: int | None = None,
) -> list[Action]:
    if before is None and trying.read_version != NO_VERSION:
        before = table()
    prepared = put_at(ready(trying, isolation), version, before, now_ms=now_ms, previous_ms=previous_ms)
    assert (prepared.attempt, prepared.isolation, prepared.txn_id, prepared.timestamp_ms) == (trying, isolation, "t-1", 5)
    return parse_commit(prepared.data, "the commit")


def test_a_commit_begins_with_what_it_says_of_itself() -> None:
    trying = attempt(TXN, remove(), add(), user_metadata="nightly", reads=Reads(whole_table=True))
    info, *actions = lines(trying, Isolation.WRITE_SERIALIZABLE)
    assert isinstance(info, CommitInfo)
    assert actions == [TXN, remove(), add()]
    assert (info.timestamp, info.txn_id, info.operation, info.engine_info) == (5, "t-1", "DELETE", "lakelog/test")
    assert (info.read_version, info.isolation_level, info.is_blind_append, info.user_metadata) == (3, "WriteSerializable", False, "nightly")


def test_a_commit_that_creates_the_table_read_no_version() -> None:
    info = lines(attempt(PROTOCOL, METADATA, add(), read_version=NO_VERSION))[0]
    assert isinstance(info, CommitInfo)
    assert (info.read_version, info.is_blind_append, info.isolation_level) == (None, True, "Serializable")


@pytest.mark.parametrize(
    ("trying", "words"),
    [
        (attempt(PROTOCOL, PROTOCOL), "at most one protocol action, found 2"),
        (attempt(METADATA, METADATA, METADATA), "at most one metaData action, found 3"),
        (attempt(METADATA, read_version=NO_VERSION), "a commit that creates a table holds a protocol action"),
        (attempt(PROTOCOL, read_version=NO_VERSION), "a commit that creates a table holds a metaData action"),
        (attempt(CommitInfo()), "commitInfo is made when the attempt is prepared"),
        (attempt(add("a"), add("b"), add("a")), "the commit adds 'a' twice"),
        (attempt(remove("a"), remove("a")), "the commit removes 'a' twice"),
        (
            attempt(PROTOCOL, METADATA, DOMAIN, read_version=NO_VERSION),
            "a table that is created with the metadata domain d lists the feature domainMetadata",
        ),
        (attempt(DOMAIN, replace(DOMAIN, removed=True)), "a commit writes a metadata domain once, d stands 2 times in it"),
    ],
)
def test_a_shape_that_no_commit_may_have(trying: CommitAttempt, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prepare(trying, timestamp_ms=5, txn_id="t-1", isolation=Isolation.SERIALIZABLE)


def test_a_file_may_be_removed_and_added_again() -> None:
    assert lines(attempt(remove("a"), add("a"), cdc()))[1:] == [remove("a"), add("a"), cdc()]


def test_on_a_plain_table_the_bytes_are_made_once() -> None:
    for trying, before in ((attempt(add()), table()), (attempt(METADATA, add()), table()), (CREATING, None)):
        first = put_at(ready(trying), 4, before)
        assert (first.version, put_at(first, 5, before)) == (None, first)
        assert put_at(first, 5, before) is first
        info = parse_commit(first.data, "the commit")[0]
        assert isinstance(info, CommitInfo)
        assert (info.in_commit_timestamp, info.tags) == (None, None)


def test_tags_stand_in_what_a_commit_says_of_itself() -> None:
    info = lines(attempt(add(), tags={"by": "me"}))[0]
    assert isinstance(info, CommitInfo)
    assert info.tags == {"by": "me"}


def test_whether_the_files_of_the_table_matter_to_an_attempt() -> None:
    assert not attempt(add(), TXN).depends_on_files
    assert all(
        trying.depends_on_files for trying in (attempt(add(change=False)), attempt(remove()), attempt(add(), reads=Reads(whole_table=True)))
    )


# what the table lets be done ----------------------------------------------------------------------------------------------


def test_an_append_only_table_keeps_its_rows() -> None:
    snapshot = table(configured(appendOnly="true"))
    with pytest.raises(UnsupportedOperationError, match=r"^Delta table /tables/t: DELETE removes data, but .* delta\.appendOnly = true"):
        check_allowed(attempt(remove(), add()), snapshot)
    for allowed in (attempt(add()), attempt(remove(change=False), add(change=False)), attempt()):
        check_allowed(allowed, snapshot)
    check_allowed(attempt(remove()), table(configured(appendOnly="false")))


def test_a_table_with_a_feature_that_is_not_written_is_refused() -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("somethingNew",))
    with pytest.raises(UnsupportedFeatureError, match="somethingNew"):
        check_allowed(attempt(add()), table(METADATA, protocol))


def test_a_domain_needs_the_feature_before_or_with_it() -> None:
    listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata",))
    with pytest.raises(UnsupportedOperationError, match=r"^Delta table /tables/t: DELETE writes the metadata domain d, .* Add the feature"):
        check_allowed(attempt(DOMAIN), table())
    for trying, there in (
        (attempt(DOMAIN), table(METADATA, listed)),
        (attempt(listed, DOMAIN), table()),
        (attempt(replace(DOMAIN, removed=True)), table()),
    ):
        check_allowed(trying, there)
    assert lines(attempt(listed, METADATA, DOMAIN, read_version=NO_VERSION), version=0)[1:] == [listed, METADATA, DOMAIN]


# joining a table that another writer created ------------------------------------------------------------------------------

CREATING = attempt(PROTOCOL, METADATA, add("a"), add("b"), read_version=NO_VERSION, operation=commit_info.write("append"), joins=True)


@pytest.mark.parametrize("there", [{}, {"id": "another"}, {"created_time": 9}, {"name": "named"}, {"description": "told"}])
def test_files_of_a_creator_go_into_an_equal_table(there: dict[str, Any]) -> None:
    fold = Fold(table(replace(METADATA, **there)).state, root=ROOT)
    fold.add_actions(1, [add("theirs"), SetTransaction(app_id="x", version=1)])
    snapshot = Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)
    found = joined(CREATING, snapshot)
    assert found is not None
    assert (found.read_version, found.actions, found.operation) == (1, (add("a"), add("b")), CREATING.operation)
    assert found.is_blind_append
    prepare(found, timestamp_ms=5, txn_id="t-1", isolation=Isolation.SERIALIZABLE)


@pytest.mark.parametrize(
    "snapshot",
    [
        table(replace(METADATA, schema_string=SCHEMA.replace("long", "integer"))),
        table(replace(METADATA, partition_columns=("id",))),
        table(replace(METADATA, configuration={"my.own": "1"})),
        table(METADATA, Protocol(min_reader_version=1, min_writer_version=3)),
    ],
)
def test_files_of_a_creator_go_into_no_other_table(snapshot: Snapshot) -> None:
    assert joined(CREATING, snapshot) is None


def test_only_who_says_so_joins() -> None:
    assert joined(replace(CREATING, joins=False), table()) is None


@pytest.mark.parametrize(
    "asking", [replace(CREATING, actions=(*CREATING.actions, TXN)), replace(CREATING, reads=Reads(app_ids=frozenset({"b", "a"})))]
)
def test_a_write_is_not_done_twice_where_the_creator_was_of_the_same_application(asking: CommitAttempt) -> None:
    assert joined(asking, table(METADATA, PROTOCOL, SetTransaction(app_id="a", version=1))) is None
    assert joined(asking, table(METADATA, PROTOCOL, SetTransaction(app_id="c", version=1))) is not None


def test_a_domain_of_the_table_that_is_there_is_not_overwritten() -> None:
    asking = replace(CREATING, actions=(*CREATING.actions, DOMAIN))
    assert joined(asking, table(METADATA, PROTOCOL, DOMAIN)) is None
    assert joined(asking, table(METADATA, PROTOCOL, replace(DOMAIN, domain="e"))) is not None


# an outcome that nobody knew ----------------------------------------------------------------------------------------------


def test_an_outcome_is_settled_by_who_attempted_it_alone() -> None:
    assert CommitOutcomeUnknown("m", version=4, txn_id="t-1", settle=lambda: 4).resolve() == 4
    with pytest.raises(UnsupportedOperationError, match=r"version 4 .* txnId t-1 "):
        CommitOutcomeUnknown("m", version=4, txn_id="t-1").resolve()


def test_the_first_line_tells_whose_commit_it_is() -> None:
    prepared = put_at(ready(CREATING), 0, None)
    assert json.loads(prepared.data.split(b"\n")[0])["commitInfo"]["txnId"] == "t-1"
