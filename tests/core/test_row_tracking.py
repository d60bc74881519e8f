from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    parse_commit,
)
from lakelog.core.checkpoint import checkpoint_table, read_checkpoint
from lakelog.core.commit import NO_VERSION, CommitAttempt, Isolation, PreparedCommit, demands, joined, placed, prepare
from lakelog.core.commit_info import write
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError, UnsupportedOperationError
from lakelog.core.records import INT64_MAX
from lakelog.core.replay import Fold, LogState
from lakelog.core.row_tracking import DOMAIN, backfill, high_water_mark
from lakelog.core.snapshot import Snapshot

ROOT = "/tables/t"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PLAIN = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata",))
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata", "rowTracking"))
ENABLED = {"delta.enableRowTracking": "true"}
SUSPENDED = {"delta.rowTrackingSuspended": "true"}
VECTOR = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="ab", size_in_bytes=3, cardinality=1)


def metadata(configuration: Mapping[str, str] | None = None) -> Metadata:
    return Metadata(id="table", schema_string=SCHEMA, configuration=configuration or {})


def add(path: str, rows: int | None = 10, *, change: bool = True, **more: Any) -> AddFile:
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=change, stats=stats, **more)


def remove(path: str, **more: Any) -> RemoveFile:
    return RemoveFile(path=path, deletion_timestamp=1, data_change=True, **more)


def table(*actions: Action, protocol: Protocol = PROTOCOL, configuration: Mapping[str, str] | None = None) -> Snapshot:
    fold = Fold(LogState(), root=ROOT)
    fold.add_actions(0, [protocol, metadata(configuration), *actions])
    return Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)


def mark(value: int) -> DomainMetadata:
    return DomainMetadata(domain=DOMAIN, configuration=f'{{"rowIdHighWaterMark":{value}}}', removed=False)


def ready(*actions: Action, read_version: int = 0, **more: Any) -> PreparedCommit:
    trying = CommitAttempt(read_version=read_version, actions=actions, operation=write("append"), engine_info="lakelog/test", **more)
    return prepare(trying, timestamp_ms=5, txn_id="t-1", isolation=Isolation.SERIALIZABLE)


def done(prepared: PreparedCommit, before: Snapshot | None) -> PreparedCommit:
    version = 0 if before is None else before.version + 1
    return placed(prepared, demands(prepared, before, table=ROOT), version=version, before=before, now_ms=50, table=ROOT)


def commit(before: Snapshot | None, *actions: Action, read_version: int = 0, **more: Any) -> list[Action]:
    return parse_commit(done(ready(*actions, read_version=read_version, **more), before).data, "the commit")


def after(before: Snapshot, actions: list[Action]) -> Snapshot:
    fold = Fold(before.state, root=ROOT)
    fold.add_actions(before.version + 1, actions)
    return Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)


def ids(actions: list[Action] | tuple[Action, ...]) -> dict[str, tuple[int | None, int | None]]:
    found = (action for action in actions if isinstance(action, AddFile | RemoveFile))
    return {action.path: (action.base_row_id, action.default_row_commit_version) for action in found}


def told_mark(actions: list[Action]) -> int | None:
    found = [action for action in actions if isinstance(action, DomainMetadata)]
    if not found:
        return None
    assert [(action.domain, action.removed) for action in found] == [(DOMAIN, False)]
    told = json.loads(found[0].configuration)
    assert set(told) == {"rowIdHighWaterMark"}
    return int(told["rowIdHighWaterMark"])


# files that are new -------------------------------------------------------------------------------------------------------


def test_new_files_get_ids_one_after_the_other() -> None:
    made = commit(None, PROTOCOL, metadata(), add("a", 10), add("b", 0), add("c", 5), read_version=NO_VERSION)
    assert (ids(made), told_mark(made)) == ({"a": (0, 0), "b": (10, 0), "c": (10, 0)}, 14)
    appended = commit(table(mark(14)), add("d", 1), add("e", 2))
    assert (ids(appended), told_mark(appended)) == ({"d": (15, 1), "e": (16, 1)}, 17)


def test_no_new_row_no_new_mark() -> None:
    for made in (commit(table(mark(4))), commit(table(mark(4)), add("a", 0)), commit(table(add("a"), mark(9)), remove("a"))):
        assert told_mark(made) is None


def test_each_version_tried_has_its_own_ids_under_one_identity() -> None:
    prepared, first_before = ready(add("mine", 3)), table(mark(4))
    first = done(prepared, first_before)
    second = done(first, after(first_before, [add("theirs", 7, base_row_id=5, default_row_commit_version=1), mark(11)]))
    assert (first.version, second.version) == (1, 2)
    assert [ids(parse_commit(one.data, "")) for one in (first, second)] == [{"mine": (5, 1)}, {"mine": (12, 2)}]
    assert [told_mark(parse_commit(one.data, "")) for one in (first, second)] == [7, 14]
    assert first.attempt is second.attempt
    assert first.txn_id == second.txn_id == "t-1"


def test_a_table_that_lists_the_feature_gives_ids_and_says_no_more() -> None:
    made = commit(table(), add("a"))
    assert (ids(made), told_mark(made)) == ({"a": (0, 1)}, 9)
    assert isinstance(made[0], CommitInfo)
    assert made[0].tags is None


def test_a_table_without_the_feature_gives_none() -> None:
    made = commit(table(protocol=PLAIN, configuration=ENABLED), add("a", None))
    assert (ids(made), told_mark(made)) == ({"a": (None, None)}, None)


def test_a_suspended_table_gives_none() -> None:
    made = commit(table(mark(5), configuration=SUSPENDED), add("a", None))
    assert (ids(made), told_mark(made)) == ({"a": (None, None)}, None)


def test_suspended_and_enabled_at_once_is_refused() -> None:
    both = table(configuration={**SUSPENDED, **ENABLED})
    with pytest.raises(InvalidTablePropertyError, match=rf"^Delta table {ROOT}: .*enableRowTracking.*Suspended are both true.* Unset"):
        commit(both, add("a"))
    with pytest.raises(InvalidTablePropertyError, match=rf"^Delta table {ROOT}: .*rowTrackingSuspended is 'maybe'"):
        commit(table(configuration={"delta.rowTrackingSuspended": "maybe"}), add("a"))


@pytest.mark.parametrize(
    "stats", [None, "{}", "", "[]", '{"numRecords":null}', '{"numRecords":"3"}', '{"numRecords":-1}', '{"numRecords":1.5}']
)
def test_a_file_that_does_not_tell_its_rows_is_refused_by_name(stats: str | None) -> None:
    file = AddFile(path="p=1/a.parquet", partition_values={}, size=1, modification_time=1, data_change=True, stats=stats)
    with pytest.raises(
        UnsupportedOperationError, match=rf"^Delta table {ROOT}: .* the file 'p=1/a.parquet' .*numRecords.* with statistics"
    ):
        commit(table(), file)


def test_there_is_a_last_id() -> None:
    assert told_mark(commit(table(mark(INT64_MAX - 3)), add("a", 3))) == INT64_MAX
    with pytest.raises(UnsupportedOperationError, match=rf"^Delta table {ROOT}: .*'a'.*{INT64_MAX}"):
        commit(table(mark(INT64_MAX - 3)), add("a", 4))


def test_the_domain_is_not_for_callers() -> None:
    with pytest.raises(ValueError, match=r"delta\.rowTracking is written with the commit"):
        commit(table(), add("a"), mark(5))
    # With the feature it goes.
    gone = DomainMetadata(domain=DOMAIN, configuration="{}", removed=True)
    assert gone in commit(table(mark(5)), PLAIN, gone)


# files that are there -----------------------------------------------------------------------------------------------------


def test_what_is_removed_keeps_what_it_was_added_with() -> None:
    before = table(
        add("a", base_row_id=0, default_row_commit_version=3), add("b c", base_row_id=10, default_row_commit_version=4), mark(19)
    )
    assert ids(commit(before, remove("a"), remove("b%20c"), remove("gone"))) == {"a": (0, 3), "b%20c": (10, 4), "gone": (None, None)}
    told = remove("a", base_row_id=0, default_row_commit_version=3)
    assert told in commit(before, told)


def test_what_is_added_again_keeps_it_too() -> None:
    before = table(add("a", base_row_id=7, default_row_commit_version=3), mark(19))
    made = commit(before, add("a", None, change=False, clustering_provider="x"))
    assert (ids(made), told_mark(made)) == ({"a": (7, 3)}, None)
    vector = commit(before, remove("a"), add("a", deletion_vector=VECTOR))
    assert {(a.base_row_id, a.default_row_commit_version) for a in vector if isinstance(a, AddFile | RemoveFile)} == {(7, 3)}
    restored = add("old", base_row_id=2, default_row_commit_version=1)
    assert restored in commit(before, restored)


def test_an_id_above_all_that_were_given_is_none_that_a_row_had() -> None:
    made = commit(table(mark(19)), add("a", base_row_id=20))
    assert (ids(made), told_mark(made)) == ({"a": (20, 1)}, 29)
    assert ids(commit(table(mark(39)), add("a", base_row_id=200))) == {"a": (40, 1)}


def test_what_another_writer_numbered_meanwhile_is_removed_with_its_number() -> None:
    prepared = ready(remove("a"), add("b", 3))
    first = done(prepared, table(add("a")))
    numbered = table(add("a", base_row_id=0, default_row_commit_version=0), mark(9))
    second = done(first, numbered)
    assert ids(parse_commit(first.data, "")) == {"a": (None, None), "b": (0, 1)}
    assert ids(parse_commit(second.data, "")) == {"a": (0, 0), "b": (10, 1)}


# turning it on ------------------------------------------------------------------------------------------------------------


def test_turned_on_all_files_that_lack_ids_are_added_again() -> None:
    before = table(add("a", 4), add("b", 3, base_row_id=0, default_row_commit_version=0), add("c", 2), add("d", 1), mark(2))
    info, *made = commit(before, metadata(ENABLED), add("new", 5), remove("d"))
    assert ids(made) == {"new": (3, 1), "d": (None, None), "a": (8, 1), "c": (12, 1)}
    assert told_mark(made) == 13
    again = [action for action in made if isinstance(action, AddFile) and action.path in "ac"]
    assert {action.data_change for action in again} == {False}
    assert isinstance(info, CommitInfo)
    assert (info.tags, info.is_blind_append) == ({"delta.rowTracking.preserved": "false"}, False)
    enabled = after(before, made)
    assert not enabled.files["baseRowId"].null_count
    assert backfill(enabled) == ()


def test_turned_on_with_the_feature_in_one_commit() -> None:
    made = commit(table(add("a", 4), protocol=PLAIN), PROTOCOL, metadata(ENABLED))
    assert (ids(made), told_mark(made)) == ({"a": (0, 1)}, 3)


def test_files_that_a_caller_adds_again_itself_are_added_once() -> None:
    before = table(add("a", 4), add("b", 3))
    assert [file.path for file in backfill(before)] == ["a", "b"]
    made = commit(before, metadata(ENABLED), *backfill(before)[:1])
    assert [action.path for action in made if isinstance(action, AddFile)] == ["a", "b"]
    assert ids(made) == {"a": (0, 1), "b": (4, 1)}


def test_turned_on_over_a_file_that_does_not_tell_its_rows_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperationError, match=r"the file 'a' "):
        commit(table(add("a", None)), metadata(ENABLED))


def test_on_already_nothing_is_added_again() -> None:
    before = table(add("a", base_row_id=0, default_row_commit_version=0), mark(9), configuration=ENABLED)
    assert ids(commit(before, metadata({**ENABLED, "k": "v"}))) == {}


@pytest.mark.parametrize(
    ("more", "tags"),
    [
        ({}, {"delta.rowTracking.preserved": "true"}),
        ({"keeps_row_ids": False}, {"delta.rowTracking.preserved": "false"}),
        ({"tags": {"by": "me"}}, {"delta.rowTracking.preserved": "true", "by": "me"}),
    ],
)
def test_an_enabled_table_tells_whether_rows_kept_their_ids(more: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    info = commit(table(configuration=ENABLED), add("a"), **more)[0]
    assert isinstance(info, CommitInfo)
    assert info.tags == tags


@pytest.mark.parametrize(
    ("actions", "kept"),
    [((), True), ((add("b"),), True), ((remove("a"),), True), ((remove("a"), add("b")), False)],
)
def test_rows_may_have_been_copied_where_files_come_and_go(actions: tuple[Action, ...], kept: bool) -> None:
    info = commit(table(add("a"), configuration=ENABLED), *actions)[0]
    assert isinstance(info, CommitInfo)
    assert info.tags == {"delta.rowTracking.preserved": "true" if kept else "false"}
    replaced = commit(table(add("a"), configuration=ENABLED), *actions, keeps_row_ids=True)[0]
    assert isinstance(replaced, CommitInfo)
    assert replaced.tags == {"delta.rowTracking.preserved": "true"}


def test_a_creator_joins_a_table_whose_row_columns_have_other_names() -> None:
    names = {
        "delta.rowTracking.materializedRowIdColumnName": "_row-1",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-2",
    }
    trying = CommitAttempt(
        read_version=NO_VERSION,
        actions=(PROTOCOL, metadata({**ENABLED, **names}), add("mine", 3)),
        operation=write("append"),
        engine_info="lakelog/test",
        joins=True,
    )
    there = table(mark(4), configuration={**ENABLED, **{key: f"{value}-theirs" for key, value in names.items()}})
    joining = joined(trying, there)
    assert joining is not None
    again = done(prepare(joining, timestamp_ms=5, txn_id="t-1", isolation=Isolation.SERIALIZABLE), there)
    assert ids(parse_commit(again.data, "")) == {"mine": (5, 1)}
    assert joined(trying, table(configuration=ENABLED)) is None


# the mark -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"rowIdHighWaterMark":"3"}', '{"rowIdHighWaterMark":-2}', '{"rowIdHighWaterMark":1.5}', "{"]
)
def test_a_mark_that_tells_nothing_is_named(text: str) -> None:
    snapshot = table(DomainMetadata(domain=DOMAIN, configuration=text, removed=False))
    with pytest.raises(CorruptLogError, match=rf"^Delta table {ROOT}: .*delta\.rowTracking holds .*rowIdHighWaterMark.* Restore"):
        high_water_mark(snapshot)


def test_where_the_mark_is_missing_the_files_tell() -> None:
    assert high_water_mark(None) == high_water_mark(table()) == high_water_mark(table(add("a"))) == -1
    assert high_water_mark(table(add("a", 10, base_row_id=30), add("b", 5), add("c", 5, base_row_id=3))) == 39
    assert high_water_mark(table(add("a", None, base_row_id=30))) == 30


def test_a_checkpoint_keeps_ids_of_live_and_of_removed_files() -> None:
    before = table(add("a", base_row_id=0, default_row_commit_version=0), add("b", base_row_id=10, default_row_commit_version=0), mark(19))
    removed = after(before, commit(before, remove("a", extended_file_metadata=True)))
    rows = checkpoint_table(removed, now_ms=0)
    state = read_checkpoint(rows.to_batches(), version=removed.version, root=ROOT)
    snapshot = Snapshot.from_state(state, root=ROOT, timestamp_ms=0, now_ms=0)
    assert ids(snapshot.add_files()) == {"b": (10, 0)}
    assert ids(snapshot.remove_actions()) == {"a": (0, 0)}
    assert high_water_mark(snapshot) == 19


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.booleans()), max_size=6))
def test_no_id_is_given_twice(commits: list[tuple[list[int], bool]]) -> None:
    snapshot, taken, names = table(), set[int](), iter(range(1000))
    for rows, removes in commits:
        gone = [remove(file.path) for file in snapshot.add_files()] if removes else []
        made = commit(snapshot, *gone, *(add(f"f{next(names)}", count) for count in rows))
        for file in made:
            if isinstance(file, AddFile):
                base = file.base_row_id
                assert base is not None
                own = set(range(base, base + json.loads(file.stats or "")["numRecords"]))
                assert not own & taken
                taken |= own
        snapshot = after(snapshot, made)
        assert high_water_mark(snapshot) == max(taken, default=-1)
