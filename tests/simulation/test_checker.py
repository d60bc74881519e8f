"""That the simulator's checker finds what is wrong with a history: each test spoils a good one in one way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import orjson
import pytest

from lakelog.storage.testing.memory import MemoryLogStore
from tests.simulation.checker import check
from tests.simulation.world import Facts, Intent, Recorder, Row, State, Violation, Where

A, B, C, D = Row(1, 1, 10, "a"), Row(2, 2, 20, "a"), Row(3, 3, 30, "b"), Row(4, 4, 40, "b")
SCHEMA = '{"type":"struct","fields":[{"name":"id"}]}'
ALL = Where()


class History:
    """A log in the making, with the intents behind it."""

    def __init__(self) -> None:
        self.commits: dict[int, bytes] = {}
        self.files: dict[str, Sequence[Row]] = {}
        self.intents: dict[str, Intent] = {}
        self.seen: list[tuple[str, int, Facts]] = []

    def land(self, intent: Intent, *actions: tuple[str, Mapping[str, object]], txn_id: str | None = None) -> int:
        version = len(self.commits)
        self.intents[intent.name] = intent
        info = ("commitInfo", {"txnId": txn_id or f"txn-{version}", "userMetadata": intent.name})
        self.commits[version] = b"".join(orjson.dumps({kind: value}) + b"\n" for kind, value in [info, *actions])
        if intent.outcome == "acknowledged" and intent.version is None:
            intent.version = version
        return version

    def check(self, *, serializable: bool = True) -> None:
        check(self.commits, files=self.files, intents=self.intents, seen=self.seen, serializable=serializable)

    def add(self, path: str, *rows: Row) -> tuple[str, dict[str, object]]:
        self.files[path] = rows
        return "add", {"path": path}


def intent(
    name: str,
    apply: Callable[[State], object],
    read_version: int,
    *,
    answer: object = None,
    where: Where | None = None,
    application: tuple[str, int] | None = None,
    outcome: str = "acknowledged",
) -> Intent:
    return Intent(
        name=name,
        what=name,
        client="client 1",
        read_version=read_version,
        apply=apply,
        answer=answer,
        where=where,
        application=application,
        outcome=outcome,
    )


def create(state: State) -> None:
    state.columns, state.features = ("id",), frozenset({"appendOnly", "invariants"})


def inserting(*rows: Row) -> Callable[[State], None]:
    return lambda state: state.rows.update((row.uid, row) for row in rows)


def deleting(where: Where) -> Callable[[State], int]:
    def apply(state: State) -> int:
        found = [row.uid for row in state.rows.values() if where.matches(row)]
        for uid in found:
            del state.rows[uid]
        return len(found)

    return apply


def summing(where: Where, derived: Row) -> Callable[[State], int]:
    def apply(state: State) -> int:
        total = sum(row.v for row in state.rows.values() if where.matches(row))
        state.rows[derived.uid] = derived
        return total

    return apply


def removed(path: str) -> tuple[str, dict[str, object]]:
    return "remove", {"path": path}


@pytest.fixture
def history() -> History:
    """Version 0 creates the table, version 1 appends A and B, version 2 deletes A, version 3 appends C."""
    history = History()
    history.land(
        intent("create", create, -1),
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": 2}),
        ("metaData", {"configuration": {}, "schemaString": SCHEMA}),
    )
    history.land(intent("append A and B", inserting(A, B), 0), history.add("ab", A, B))
    where = Where(1, 1)
    history.land(intent("delete A", deleting(where), 1, answer=1, where=where), removed("ab"), history.add("b", B))
    history.land(intent("append C", inserting(C), 2), history.add("c", C))
    return history


def facts(history: History, paths: set[str]) -> Facts:
    return Facts(frozenset(paths), {}, SCHEMA, frozenset({"appendOnly", "invariants"}), {})


def test_a_good_history_is_good(history: History) -> None:
    history.seen.append(("client 2", 2, facts(history, {"b"})))
    history.check()
    history.check(serializable=False)


def test_a_version_is_missing(history: History) -> None:
    del history.commits[2]
    with pytest.raises(Violation, match=r"not contiguous: \[0, 1, 3\]"):
        history.check()


def test_two_commits_have_one_txn_id(history: History) -> None:
    history.land(intent("append D", inserting(D), 3), history.add("d", D), txn_id="txn-1")
    with pytest.raises(Violation, match="versions 1 and 4 have one txnId"):
        history.check()


def test_a_commit_has_no_txn_id(history: History) -> None:
    history.commits[3] = history.commits[3].replace(b"txnId", b"other")
    with pytest.raises(Violation, match="version 3 does not begin with a commitInfo that has a txnId"):
        history.check()


def test_nobody_made_a_commit(history: History) -> None:
    del history.intents["append C"]
    with pytest.raises(Violation, match="nobody tried the commit of version 3"):
        history.check()


def test_an_acknowledged_commit_is_lost(history: History) -> None:
    del history.commits[3]
    with pytest.raises(Violation, match=r"append C.* was acknowledged as version 3, but is in \[\]"):
        history.check()


def test_an_acknowledged_commit_is_elsewhere(history: History) -> None:
    history.intents["append C"].version = 2
    with pytest.raises(Violation, match=r"was acknowledged as version 2, but is in \[3\]"):
        history.check()


def test_a_refused_commit_landed(history: History) -> None:
    history.intents["append C"].outcome = "refused"
    with pytest.raises(Violation, match=r"was refused, but is in \[3\]"):
        history.check()


def test_a_commit_of_unknown_outcome_landed_twice(history: History) -> None:
    history.land(intent("append D", inserting(D), 3, outcome="unknown"), history.add("d", D))
    history.check()
    history.land(history.intents["append D"], history.add("d2", Row(5, 5, 5, "a")))
    with pytest.raises(Violation, match=r"was applied more than once: in \[4, 5\]"):
        history.check()


def test_a_batch_is_applied_twice(history: History) -> None:
    txn = ("txn", {"appId": "x", "version": 1})
    for version, row in ((3, D), (4, Row(5, 5, 5, "a"))):
        history.land(intent(f"batch {row.uid}", inserting(row), version, application=("x", 1)), txn, history.add(f"d{row.uid}", row))
    with pytest.raises(Violation, match="was applied in versions 4 and 5"):
        history.check()


def test_a_live_data_file_was_deleted(history: History) -> None:
    del history.files["c"]
    with pytest.raises(Violation, match=r"version 3 .* names the data file c, which was deleted"):
        history.check()


def test_a_file_is_removed_that_is_not_there(history: History) -> None:
    history.land(intent("delete B", deleting(Where(2, 2)), 1, answer=1, where=Where(2, 2)), removed("ab"))
    with pytest.raises(Violation, match="removes ab, which is not in the table"):
        history.check()


def test_a_file_is_added_twice(history: History) -> None:
    history.land(intent("append C again", inserting(C), 2), history.add("c", C))
    with pytest.raises(Violation, match="adds c a second time"):
        history.check()


def test_a_deleted_row_is_back_beside_its_copy(history: History) -> None:
    history.land(intent("rewrite", lambda state: None, 3), removed("c"), history.add("cb", C, B))
    with pytest.raises(Violation, match="row 2 is in the table twice"):
        history.check()


def test_a_row_is_lost(history: History) -> None:
    history.land(intent("rearrange", lambda state: None, 3), removed("c"), removed("b"), history.add("all", B))
    with pytest.raises(Violation, match=r"it lacks rows \[3\]"):
        history.check()


def test_a_change_of_properties_is_lost(history: History) -> None:
    def setting(key: str) -> Callable[[State], None]:
        return lambda state: state.configuration.update({key: "1"})

    history.land(intent("set x", setting("x"), 3), ("metaData", {"configuration": {"x": "1"}, "schemaString": SCHEMA}))
    history.check()
    history.land(intent("set y", setting("y"), 3), ("metaData", {"configuration": {"y": "1"}, "schemaString": SCHEMA}))
    with pytest.raises(Violation, match=r"version 5 .* should leave configuration as"):
        history.check()


def test_a_snapshot_says_something_else(history: History) -> None:
    history.seen.append(("client 2", 3, facts(history, {"b"})))
    with pytest.raises(Violation, match=r"client 2 at version 3 gives paths as \['b'\], but the log as \['b', 'c'\]"):
        history.check()


def test_a_snapshot_is_of_a_version_that_never_was(history: History) -> None:
    history.seen.append(("client 2", 4, facts(history, {"b"})))
    with pytest.raises(Violation, match="client 2 saw version 4, which is not in the log"):
        history.check()


@pytest.mark.parametrize("serializable", [True, False])
def test_a_delete_tells_a_wrong_number(history: History, serializable: bool) -> None:
    history.intents["delete A"].answer = 2
    with pytest.raises(Violation, match="answered 2, but on the table before it the answer is 1"):
        history.check(serializable=serializable)


def test_a_delete_that_missed_an_append_is_good_under_write_serializable_alone(history: History) -> None:
    history.land(intent("delete all", deleting(ALL), 2, answer=1, where=ALL), removed("b"))
    history.check(serializable=False)
    with pytest.raises(Violation, match="answered 1, but on the table before it the answer is 2"):
        history.check()


def test_a_delete_that_missed_what_a_delete_wrote_is_never_good(history: History) -> None:
    history.land(intent("delete all", deleting(ALL), 1, answer=2, where=ALL), removed("b"))
    with pytest.raises(Violation, match="answered 2"):
        history.check(serializable=False)


@pytest.mark.parametrize("serializable", [True, False])
def test_two_sums_that_miss_each_other_are_never_good(history: History, serializable: bool) -> None:
    for row in (D, Row(5, 5, 5, "a")):
        history.land(intent(f"sum {row.uid}", summing(ALL, row), 3, answer=50, where=ALL), history.add(f"d{row.uid}", row))
    with pytest.raises(Violation, match=r"sum 5 .* answered 50, but on the table before it the answer is 90"):
        history.check(serializable=serializable)


def test_an_append_that_was_seen_by_the_first_and_missed_by_the_second_leaves_no_order(history: History) -> None:
    """The two sums stand in the order in which they landed, the append before the first of them and after the second."""
    first, second = Row(5, 5, 0, "b"), Row(6, 6, 0, "a")
    history.land(
        intent("sum of a to b", summing(Where(partition="b"), second), 3, answer=30, where=Where(partition="b")), history.add("x", second)
    )
    where = Where(3, 3)
    history.land(intent("sum of 3", summing(where, first), 2, answer=0, where=where), history.add("y", first))
    with pytest.raises(Violation, match="order"):
        history.check(serializable=False)


def test_a_commit_file_is_put_without_care() -> None:
    recorder = Recorder(MemoryLogStore())
    recorder.put_if_absent("/t/_delta_log/00000000000000000000.json", b"1")
    with pytest.raises(Violation, match="without asking whether it is there"):
        recorder.put("/t/_delta_log/00000000000000000000.json", b"2")


def test_a_version_comes_into_being_twice() -> None:
    path = "/t/_delta_log/00000000000000000000.json"
    recorder = Recorder(MemoryLogStore())
    recorder.put_if_absent(path, b"1")
    recorder.delete([path])
    with pytest.raises(Violation, match="came into being a second time"):
        recorder.put_if_absent(path, b"2")
