from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lakelog.core.actions import Action, AddFile, CommitInfo, Metadata, Protocol, parse_commit
from lakelog.core.commit import NO_VERSION, CommitAttempt, Isolation, PreparedCommit, demands, joined, placed, prepare
from lakelog.core.commit_info import write
from lakelog.core.errors import CorruptLogError, InvalidTablePropertyError
from lakelog.core.in_commit_timestamps import first_version, next_timestamp
from lakelog.core.records import INT64_MAX
from lakelog.core.replay import Fold, LogState
from lakelog.core.snapshot import Snapshot

ROOT = "/tables/t"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))
ON = {"delta.enableInCommitTimestamps": "true"}
VERSION, TIMESTAMP = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"
ADD = AddFile(path="a", partition_values={}, size=1, modification_time=1, data_change=True)


def metadata(configuration: Mapping[str, str]) -> Metadata:
    return Metadata(id="table", schema_string=SCHEMA, configuration=configuration)


def table(configuration: Mapping[str, str], *, own_ms: int | None = None, file_ms: int = 100, version: int = 0) -> Snapshot:
    state = LogState()
    for number in range(version + 1):
        fold = Fold(state, root=ROOT)
        made = [PROTOCOL, metadata(configuration)] if number == 0 else []
        fold.add_actions(number, [CommitInfo(in_commit_timestamp=own_ms), *made])
        state = fold.finish()
    return Snapshot.from_state(state, root=ROOT, timestamp_ms=file_ms, now_ms=0)


def ready(*actions: Action, read_version: int = 0) -> PreparedCommit:
    trying = CommitAttempt(read_version=read_version, actions=actions, operation=write("append"), engine_info="lakelog/test")
    return prepare(trying, timestamp_ms=5, txn_id="t-1", isolation=Isolation.SERIALIZABLE)


def commit(prepared: PreparedCommit, before: Snapshot | None, *, now_ms: int, previous_ms: int | None = None) -> list[Action]:
    asked, version = demands(prepared, before, table=ROOT), 0 if before is None else before.version + 1
    done = placed(prepared, asked, version=version, before=before, now_ms=now_ms, table=ROOT, previous_ms=previous_ms)
    assert done.txn_id == "t-1"
    assert done.version == (None if asked is None else version)
    return parse_commit(done.data, "the commit")


def time_of(actions: list[Action]) -> int | None:
    assert isinstance(actions[0], CommitInfo)
    return actions[0].in_commit_timestamp


def test_the_time_is_the_first_field_of_the_first_action() -> None:
    prepared = ready(ADD)
    before = table(ON, own_ms=100)
    done = placed(prepared, demands(prepared, before, table=ROOT), version=1, before=before, now_ms=250, table=ROOT)
    assert done.data.startswith(b'{"commitInfo":{"inCommitTimestamp":250,"timestamp":5,')


@pytest.mark.parametrize(("now_ms", "told"), [(250, 250), (101, 101), (100, 101), (99, 101), (-5, 101)])
def test_a_clock_that_went_back_does_not_take_the_table_with_it(now_ms: int, told: int) -> None:
    assert time_of(commit(ready(ADD), table(ON, own_ms=100), now_ms=now_ms)) == told


def test_each_version_tried_has_its_own_time_under_one_identity() -> None:
    prepared = ready(ADD)
    first = placed(
        prepared, demands(prepared, table(ON, own_ms=100), table=ROOT), version=1, before=table(ON, own_ms=100), now_ms=50, table=ROOT
    )
    after = table(ON, own_ms=700, version=1)
    second = placed(first, demands(first, after, table=ROOT), version=2, before=after, now_ms=60, table=ROOT)
    assert (first.version, second.version) == (1, 2)
    assert (time_of(parse_commit(first.data, "")), time_of(parse_commit(second.data, ""))) == (101, 701)
    assert first.data.replace(b'":101,', b'":701,') == second.data


def test_a_winner_that_holds_no_time_counts_by_its_file() -> None:
    assert time_of(commit(ready(ADD), table(ON, own_ms=None, file_ms=900), now_ms=50)) == 901


def test_a_table_that_is_made_with_it_needs_no_mark() -> None:
    info, *actions = commit(ready(PROTOCOL, metadata(ON), read_version=NO_VERSION), None, now_ms=77)
    assert time_of([info]) == 77
    assert actions == [PROTOCOL, metadata(ON)]


def test_turned_on_later_the_table_says_since_when() -> None:
    prepared, before = ready(metadata({**ON, "k": "v"})), table({"k": "v"}, file_ms=100, version=4)
    asked = demands(prepared, before, table=ROOT)
    assert asked is not None
    assert asked.first_timestamp
    info, changed = commit(prepared, before, now_ms=50, previous_ms=3000)
    assert time_of([info]) == 3001
    assert isinstance(changed, Metadata)
    assert changed.configuration == {**ON, "k": "v", VERSION: "5", TIMESTAMP: "3001"}
    # And once more at the next version, where another writer was first.
    later = table({"k": "v"}, version=5)
    changed = commit(prepared, later, now_ms=9000, previous_ms=4000)[1]
    assert isinstance(changed, Metadata)
    assert changed.configuration == {**ON, "k": "v", VERSION: "6", TIMESTAMP: "9000"}


def test_turned_on_a_second_time_the_new_mark_counts() -> None:
    old = {"delta.enableInCommitTimestamps": "false", VERSION: "2", TIMESTAMP: "50"}
    changed = commit(ready(metadata({**old, **ON})), table(old, version=7), now_ms=60, previous_ms=10)[1]
    assert isinstance(changed, Metadata)
    assert changed.configuration == {**ON, VERSION: "8", TIMESTAMP: "60"}


@pytest.mark.parametrize("own", [ON, {**ON, VERSION: "2", TIMESTAMP: "50"}, {**ON, VERSION: "9", TIMESTAMP: "9"}])
def test_later_metadata_keeps_the_mark(own: Mapping[str, str]) -> None:
    before = table({**ON, VERSION: "2", TIMESTAMP: "50"}, own_ms=100, version=3)
    asked = demands(ready(metadata(own)), before, table=ROOT)
    assert asked is not None
    assert not asked.first_timestamp
    changed = commit(ready(metadata({**own, "k": "v"})), before, now_ms=60)[1]
    assert isinstance(changed, Metadata)
    assert changed.configuration == {**ON, VERSION: "2", TIMESTAMP: "50", "k": "v"}


def test_a_table_that_had_it_from_the_start_gets_no_mark_later() -> None:
    changed = commit(ready(metadata({**ON, "k": "v"})), table(ON, own_ms=100, version=3), now_ms=60)[1]
    assert isinstance(changed, Metadata)
    assert changed.configuration == {**ON, "k": "v"}


def test_turned_off_a_commit_holds_no_time() -> None:
    prepared, before = ready(metadata({})), table(ON, own_ms=100)
    assert demands(prepared, before, table=ROOT) is None
    assert time_of(commit(prepared, before, now_ms=60)) is None


def test_bytes_for_one_version_are_not_kept_where_the_table_turned_it_off() -> None:
    prepared, on, off = ready(ADD), table(ON, own_ms=100), table({}, version=1)
    first = placed(prepared, demands(prepared, on, table=ROOT), version=1, before=on, now_ms=60, table=ROOT)
    second = placed(first, demands(first, off, table=ROOT), version=2, before=off, now_ms=60, table=ROOT)
    assert second.version is None
    assert time_of(parse_commit(second.data, "")) is None


def test_a_creator_that_joins_comes_after_who_was_first() -> None:
    trying = CommitAttempt(
        read_version=NO_VERSION, actions=(PROTOCOL, metadata(ON), ADD), operation=write("append"), engine_info="lakelog/test", joins=True
    )
    there = table(ON, own_ms=4000)
    joining = joined(trying, there)
    assert joining is not None
    again = prepare(joining, timestamp_ms=5, txn_id="t-1", isolation=Isolation.SERIALIZABLE)
    info, *actions = commit(again, there, now_ms=70)
    assert (time_of([info]), actions) == (4001, [ADD])
    assert joined(trying, table({**ON, VERSION: "1", TIMESTAMP: "5"}, own_ms=9)) is None


def test_no_time_comes_after_the_last_that_there_is() -> None:
    assert next_timestamp(5, INT64_MAX - 1, ROOT) == INT64_MAX
    with pytest.raises(CorruptLogError, match=rf"^Delta table {ROOT}: .* {INT64_MAX} ms after 1970.* Restore that commit"):
        next_timestamp(5, INT64_MAX, ROOT)


def test_a_property_that_is_neither_true_nor_false_is_named() -> None:
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.enableInCommitTimestamps is 'yes'"):
        demands(ready(ADD), table({"delta.enableInCommitTimestamps": "yes"}), table=ROOT)


@pytest.mark.parametrize(
    ("configuration", "version"),
    [({}, None), ({VERSION: "3"}, None), (ON, 0), ({**ON, VERSION: "3"}, 3), ({"delta.enableInCommitTimestamps": "TRUE", VERSION: "0"}, 0)],
)
def test_the_version_since_when(configuration: Mapping[str, str], version: int | None) -> None:
    assert first_version(configuration, ROOT) == version


@pytest.mark.parametrize("text", ["", "-1", "three", "1.0", "9" * 21])
def test_a_version_since_when_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InvalidTablePropertyError, match=rf"^Delta table {ROOT}: .*EnablementVersion is .* not a version"):
        first_version({**ON, VERSION: text}, ROOT)


def test_metadata_that_says_so_already_is_the_same_object() -> None:
    own = metadata({**ON, VERSION: "2", TIMESTAMP: "50"})
    before = table({**ON, VERSION: "2", TIMESTAMP: "50"}, own_ms=100, version=3)
    assert replace(own) == commit(ready(own), before, now_ms=60)[1]
