from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakelog.core import commit_info, conflicts
from lakelog.core.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    serialize_commit,
)
from lakelog.core.column_mapping import with_mapping
from lakelog.core.commit import NO_VERSION, NOTHING, CommitAttempt, Isolation, Reads, isolation_of
from lakelog.core.commit_info import Operation
from lakelog.core.conflicts import RULES, Contest, Trial, first_conflict
from lakelog.core.errors import (
    ColumnNotFoundError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    CorruptLogError,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from lakelog.core.landed import LandedCommit, landed_commit
from lakelog.core.predicates import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    conjunction,
)
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import PrimitiveType, parse_schema
from lakelog.core.snapshot import Snapshot
from tests.core.predicate_models import truth

ROOT = "/tables/t"
LEVELS = tuple(Isolation)
SERIALIZABLE, WRITE, SNAPSHOT = LEVELS

LONG, INT, STRING, DOUBLE = (PrimitiveType(name) for name in ("long", "integer", "string", "double"))
COLUMNS = {"id": LONG, "name": STRING, "x": DOUBLE, "p": INT, "q": STRING}
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": name, "type": kind.name, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()]}
)
RENAMED = SCHEMA.replace('"id"', '"ident"')
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="table", schema_string=SCHEMA, partition_columns=("p", "q"))
VECTOR = DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=3, cardinality=1)


def table(protocol: Protocol = PROTOCOL, metadata: Metadata = METADATA) -> Snapshot:
    fold = Fold(LogState(), root=ROOT)
    fold.add_actions(0, [protocol, metadata])
    return Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)


BEFORE = table()


def stats(**bounds: tuple[object, object] | None) -> str:
    """Of two rows; a column's bounds, or None where all its values are null."""
    told = {name: pair for name, pair in bounds.items() if pair is not None}
    return json.dumps(
        {
            "numRecords": 2,
            "minValues": {name: low for name, (low, _) in told.items()},
            "maxValues": {name: high for name, (_, high) in told.items()},
            "nullCount": {name: 2 if pair is None else 0 for name, pair in bounds.items()},
        }
    )


def add(path: str = "new", *, p: str | None = "1", q: str | None = "x", change: bool = True, **more: Any) -> AddFile:
    return AddFile(path=path, partition_values={"p": p, "q": q}, size=1, modification_time=1, data_change=change, **more)


def remove(path: str, *, change: bool = True, values: Mapping[str, str | None] | None = None, vector: bool = False) -> RemoveFile:
    return RemoveFile(
        path=path, deletion_timestamp=1, data_change=change, partition_values=values, deletion_vector=VECTOR if vector else None
    )


def txn(app: str) -> SetTransaction:
    return SetTransaction(app_id=app, version=1)


def domain(name: str, *, removed: bool = False) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="", removed=removed)


def files(*paths: str) -> pa.StringArray:
    return pa.array(paths, pa.string())


def attempt(*actions: Action, reads: Reads = NOTHING, operation: Operation | None = None, read_version: int = 6) -> CommitAttempt:
    return CommitAttempt(
        read_version=read_version,
        actions=actions,
        operation=operation or commit_info.delete(["some condition"]),
        engine_info="lakelog/test",
        reads=reads,
    )


def land(
    *actions: Action,
    blind: bool | None = None,
    operation: str | None = "WRITE",
    engine: str | None = "other/1",
    version: int = 7,
    read_version: int | None = None,
) -> LandedCommit:
    info = CommitInfo(operation=operation, engine_info=engine, is_blind_append=blind, read_version=read_version)
    return landed_commit(version, serialize_commit([info, *actions]), source=f"{version}.json", root=ROOT)


def contest(trying: CommitAttempt, winner: LandedCommit, isolation: Isolation = SERIALIZABLE, before: Snapshot | None = BEFORE) -> Contest:
    return Contest(attempt=trying, winner=winner, isolation=isolation, before=before, root=ROOT)


def objector(
    trying: CommitAttempt, winner: LandedCommit, isolation: Isolation = SERIALIZABLE, before: Snapshot | None = BEFORE
) -> str | None:
    """The name of the rule that objects."""
    found = first_conflict(contest(trying, winner, isolation, before))
    return None if found is None else found.rule


def is_(op: Any, column: str, value: Any) -> Comparison:
    return Comparison(op, Column((column,)), Literal(value, COLUMNS[column]))


# the rules and their order ------------------------------------------------------------------------------------------------

EVERYTHING = Reads(whole_table=True)

# For each rule an attempt and a winner that this rule alone objects to, the kind of its error, and what of the words tells it apart.
ALONE: dict[str, tuple[CommitAttempt, LandedCommit, type[DeltaConcurrentModificationException], str]] = {
    "creation": (attempt(PROTOCOL, METADATA, read_version=NO_VERSION), land(), ConcurrentWriteException, "created the table"),
    "protocol": (attempt(PROTOCOL), land(PROTOCOL), ProtocolChangedException, "changed the table's protocol, as this transaction does"),
    "metadata": (attempt(METADATA), land(METADATA), MetadataChangedException, "changed the table's metadata, as this transaction does"),
    "domains": (attempt(domain("d")), land(domain("d")), ConcurrentTransactionException, "wrote the same metadata domain d"),
    "transactions": (attempt(txn("a")), land(txn("a")), ConcurrentTransactionException, "wrote a transaction of the same application a"),
    "rows_read": (
        attempt(reads=Reads(predicates=(TRUE,))),
        land(add("new")),
        ConcurrentAppendException,
        "added files that may hold such rows: new",
    ),
    "files_read": (
        attempt(reads=Reads(files=files("old"))),
        land(remove("old")),
        ConcurrentDeleteReadException,
        "removed files that were read: old",
    ),
    "files_removed": (
        attempt(remove("old")),
        land(remove("old")),
        ConcurrentDeleteDeleteException,
        "removed files that this transaction removes: old",
    ),
}


def documented() -> dict[str, dict[Isolation, str]]:
    rows = re.findall(r"(?m)^\| (\w+) +\| (.+?) +\| (.+?) +\| (.+?) +\|$", conflicts.__doc__ or "")
    return {rule: dict(zip(LEVELS, outcomes, strict=True)) for rule, *outcomes in rows if rule != "rule"}


def test_the_rules_are_the_documented_ones_in_the_documented_order() -> None:
    names = [rule.__name__ for rule in RULES]
    assert names == list(documented())
    assert [name for name in names if name != "write_order"] == list(ALONE)
    assert names == [
        *("creation", "protocol", "metadata", "domains", "transactions", "rows_read", "write_order", "files_read", "files_removed"),
    ]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rule", ALONE)
def test_each_rule_objects_at_the_levels_that_its_row_of_the_table_names(rule: str, level: Isolation) -> None:
    trying, winner, kind, words = ALONE[rule]
    outcome = documented()[rule][level]
    found = first_conflict(contest(trying, winner, level))
    if outcome == "never":
        assert found is None
        return
    assert outcome == "always" or outcome.startswith("unless the winner is a blind append")
    assert found is not None
    assert (found.rule, found.kind, found.winner_did) == (rule, kind, words)


@pytest.mark.parametrize("second", range(1, len(ALONE)))
@pytest.mark.parametrize("first", range(len(ALONE) - 1))
def test_of_two_rules_that_object_the_one_that_stands_first_decides(first: int, second: int) -> None:
    if first >= second:
        return
    names = list(ALONE)
    (one, winner, _, _), (other, landed, _, _) = ALONE[names[first]], ALONE[names[second]]
    both = replace(
        one,
        actions=one.actions + tuple(action for action in other.actions if action not in one.actions),
        reads=Reads(predicates=one.reads.predicates + other.reads.predicates, files=one.reads.files or other.reads.files),
    )
    merged = replace(
        winner,
        protocol=winner.protocol or landed.protocol,
        metadata=winner.metadata or landed.metadata,
        domains=winner.domains | landed.domains,
        app_ids=winner.app_ids | landed.app_ids,
        added=pa.concat_tables([winner.added, landed.added]),
        removed=pa.concat_tables([winner.removed, landed.removed]),
    )
    before = None if names[first] == "creation" else BEFORE
    assert objector(both, merged, before=before) == names[first]


def test_nothing_stands_between_an_attempt_that_read_nothing_and_an_empty_winner() -> None:
    assert objector(attempt(add(), txn("a"), domain("d"), METADATA, PROTOCOL), land(operation=None, engine=None)) is None


# protocol, domains, transactions --------------------------------------------------------------------------------------


def features(*writer: str, reader: Sequence[str] = ()) -> Protocol:
    return Protocol(min_reader_version=3, min_writer_version=7, reader_features=tuple(reader), writer_features=(*writer, *reader))


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        (PROTOCOL, Protocol(min_reader_version=1, min_writer_version=4), None),
        (PROTOCOL, features("appendOnly", "invariants"), None),
        (PROTOCOL, features("appendOnly", "invariants", reader=["timestampNtz"]), None),
        (features("domainMetadata"), features("domainMetadata", "appendOnly"), None),
        (PROTOCOL, features("appendOnly"), "took invariants out"),
        (PROTOCOL, Protocol(min_reader_version=1, min_writer_version=1), "took appendOnly, invariants out"),
        (features("domainMetadata", reader=["timestampNtz"]), features("domainMetadata"), "took timestampNtz out"),
    ],
)
@pytest.mark.parametrize("level", LEVELS)
def test_a_protocol_may_gain_features_but_lose_none(old: Protocol, new: Protocol, gone: str | None, level: Isolation) -> None:
    found = first_conflict(contest(attempt(add()), land(new), level, table(old)))
    assert (None if found is None else found.rule) == (None if gone is None else "protocol")
    if found is not None and gone is not None:
        assert found.kind is ProtocolChangedException
        assert gone in found.winner_did


def test_an_attempt_that_changes_the_protocol_follows_one_that_does_not() -> None:
    assert objector(attempt(features("appendOnly", "invariants", "domainMetadata")), land(add(), txn("a"))) is None


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_a_metadata_domain_is_written_by_one(removed: bool, level: Isolation) -> None:
    """One that the winner took away counts too."""
    winner = land(domain("a"), domain("d", removed=removed), domain("b"))
    assert objector(attempt(domain("d")), winner, level) == "domains"
    assert objector(attempt(domain("d", removed=True)), winner, level) == "domains"
    assert objector(attempt(domain("D"), domain("e")), winner, level) is None


@pytest.mark.parametrize("level", LEVELS)
def test_the_domain_of_row_tracking_is_everybodys(level: Isolation) -> None:
    """Each commit writes it anew, after what landed; but who takes it away must have seen the last."""
    winner = land(domain("delta.rowTracking"), add())
    assert objector(attempt(domain("delta.rowTracking"), add()), winner, level) is None
    assert objector(attempt(domain("delta.rowTracking", removed=True)), winner, level) == "domains"
    assert objector(attempt(domain("delta.rowTracking"), domain("delta.clustering")), land(domain("delta.clustering")), level) == "domains"


@pytest.mark.parametrize("level", LEVELS)
def test_of_two_writers_who_draw_identities_one_is_told(level: Isolation) -> None:
    """Both would draw the numbers from the same high-water mark on."""

    def drawn(mark: int) -> Metadata:
        fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {"delta.identity.highWaterMark": mark}}]
        return replace(METADATA, schema_string=json.dumps({"type": "struct", "fields": fields}), partition_columns=())

    before, trying = table(metadata=drawn(10)), attempt(drawn(15), add())
    found = first_conflict(contest(trying, land(drawn(20), add("other"), blind=True), level, before))
    assert found is not None
    assert (found.rule, found.kind) == ("metadata", MetadataChangedException)
    # Who draws none follows, as does a drawer who comes after one who drew none.
    assert objector(attempt(add()), land(drawn(20), add("other"), blind=True), level, before) is None
    assert objector(trying, land(add("other"), blind=True), level, before) is None


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("trying", [attempt(txn("a")), attempt(add(), reads=Reads(app_ids=frozenset({"a", "c"})))])
def test_a_transaction_of_an_application_that_was_written_or_asked_for_is_applied_once(trying: CommitAttempt, level: Isolation) -> None:
    assert objector(trying, land(txn("b"), txn("a")), level) == "transactions"
    assert objector(trying, land(txn("b"), txn("A")), level) is None


@pytest.mark.parametrize(
    "trying", [attempt(add()), attempt(add(), reads=EVERYTHING), attempt(remove("a"), reads=Reads(predicates=(TRUE,)))]
)
def test_what_the_log_says_without_files_disturbs_no_reader_of_rows(trying: CommitAttempt) -> None:
    assert objector(trying, land(txn("b"), domain("d"), AddCDCFile(path="c", partition_values={}, size=1, data_change=False))) is None


# rows that were there before ----------------------------------------------------------------------------------------------


def test_a_file_that_was_in_the_table_brings_no_row_when_it_is_added_again() -> None:
    fold = Fold(BEFORE.state, root=ROOT)
    fold.add_actions(1, [add("old"), add("older")])
    before = Snapshot.from_state(fold.finish(), root=ROOT, timestamp_ms=0, now_ms=0)
    trying = attempt(remove("old"), reads=EVERYTHING)
    again = [add("old", change=False, base_row_id=0), add("older", change=False, base_row_id=1)]
    assert objector(trying, land(*again), before=before) is None
    assert objector(trying, land(*again, add("new", change=False)), before=before) == "rows_read"
    # What says that it changes data does, wherever the file was.
    assert objector(trying, land(add("old")), before=before) == "rows_read"
    assert objector(trying, land(*again), before=BEFORE) == "rows_read"


# write_order ------------------------------------------------------------------------------------------------------------

FIVES = Reads(predicates=(Comparison("=", Column(("id",)), Literal(5, PrimitiveType("long"))),))


def passes(level: Isolation, *winners: LandedCommit) -> None:
    trial = Trial(attempt(remove("old"), reads=FIVES), level, root=ROOT)
    for winner in winners:
        trial.pass_by(winner, BEFORE)


APPEND = land(add(stats=stats(id=(1, 9))), blind=True)


@pytest.mark.parametrize(
    "second",
    [
        land(add("other", stats=stats(id=(20, 29))), version=8, read_version=7),
        land(add("other", stats=stats(id=(20, 29))), version=8, read_version=None),
        land(remove("elsewhere"), version=8, read_version=7),
    ],
)
def test_what_read_an_append_that_was_passed_over_ends_the_passing(second: LandedCommit) -> None:
    with pytest.raises(ConcurrentAppendException, match=r"version 8 .* had read version 7, an append of rows") as caught:
        passes(Isolation.WRITE_SERIALIZABLE, APPEND, second)
    assert (caught.value.rule, caught.value.winner_version) == ("write_order", 8)
    passes(Isolation.WRITE_SERIALIZABLE, second)


@pytest.mark.parametrize(
    "second",
    [
        land(add("other", stats=stats(id=(20, 29))), version=8, read_version=6),
        land(add("other", stats=stats(id=(20, 29))), version=8, read_version=7, blind=True),
        land(add("other", stats=stats(id=(4, 6))), version=8, read_version=7, blind=True),
        land(add("other", change=False), remove("elsewhere", change=False), version=8, read_version=7),
        land(txn("a"), version=8, read_version=7),
    ],
)
def test_what_did_not_read_the_append_or_changes_no_row_ends_nothing(second: LandedCommit) -> None:
    passes(Isolation.WRITE_SERIALIZABLE, APPEND, second)


def test_of_several_appends_that_were_passed_over_the_first_counts() -> None:
    second = land(add("more", stats=stats(id=(5, 5))), blind=True, version=8, read_version=7)
    with pytest.raises(ConcurrentAppendException, match="had read version 7"):
        passes(Isolation.WRITE_SERIALIZABLE, APPEND, second, land(remove("elsewhere"), version=9, read_version=7))


def test_an_append_that_the_attempt_would_not_have_read_is_not_passed_over() -> None:
    second = land(remove("elsewhere"), version=8, read_version=7)
    passes(Isolation.WRITE_SERIALIZABLE, land(add(stats=stats(id=(6, 9))), blind=True), second)
    passes(Isolation.SNAPSHOT, APPEND, second)


# rows_read --------------------------------------------------------------------------------------------------------------

NAN = float("nan")

ROWS: list[tuple[Predicate, AddFile, bool]] = [
    # a data column by its statistics
    (is_("=", "id", 5), add(stats=stats(id=(1, 4))), False),
    (is_("=", "id", 5), add(stats=stats(id=(1, 5))), True),
    (is_("<", "id", 1), add(stats=stats(id=(1, 4))), False),
    (is_("<=", "id", 1), add(stats=stats(id=(1, 4))), True),
    (is_("!=", "id", 4), add(stats=stats(id=(4, 4))), False),
    (In(Column(("id",)), (Literal(0, LONG), Literal(9, LONG))), add(stats=stats(id=(1, 8))), False),
    (In(Column(("id",)), (Literal(0, LONG), Literal(8, LONG))), add(stats=stats(id=(1, 8))), True),
    # statistics that are missing, for the column or for the file, broken or contradictory
    (is_("=", "id", 5), add(), True),
    (is_("=", "id", 5), add(stats=stats(name=("a", "b"))), True),
    (is_("=", "id", 5), add(stats='{"numRecords":1}'), True),
    (is_("=", "id", 5), add(stats="{"), True),
    (is_("=", "id", 5), add(stats=stats(id=(9, 6))), True),
    # a file with a deletion vector has wide bounds, which bound all the same
    (is_("=", "id", 5), add(stats=stats(id=(1, 4)), deletion_vector=VECTOR), False),
    (is_("=", "id", 5), add(stats=stats(id=(1, 9)), deletion_vector=VECTOR), True),
    # strings, by bytes
    (is_("=", "name", "m"), add(stats=stats(name=("a", "l"))), False),
    (is_("=", "name", "a"), add(stats=stats(name=("A", "Z"))), False),
    (is_("=", "name", "é"), add(stats=stats(name=("a", "z"))), False),
    (is_("=", "name", "\U0001f600"), add(stats=stats(name=("\ue000", "\U0001f601"))), True),
    (StartsWith(Column(("name",)), "ab"), add(stats=stats(name=("ac", "az"))), False),
    (StartsWith(Column(("name",)), "ab"), add(stats=stats(name=("aa", "az"))), True),
    # nulls
    (IsNull(Column(("id",))), add(stats=stats(id=(1, 4))), False),
    (IsNull(Column(("id",))), add(stats=stats(id=None)), True),
    (IsNotNull(Column(("id",))), add(stats=stats(id=None)), False),
    (is_("=", "id", None), add(stats=stats(id=(1, 4))), False),
    (is_("<=>", "id", None), add(stats=stats(id=None)), True),
    (is_("<=>", "id", None), add(stats=stats(id=(1, 4))), False),
    (Not(is_("=", "id", 5)), add(stats=stats(id=None)), False),
    # NaN is greater than every bound
    (is_(">", "x", 10.0), add(stats=stats(x=(1.0, 2.0))), True),
    (is_("=", "x", NAN), add(stats=stats(x=(1.0, 2.0))), True),
    (is_("<", "x", 0.5), add(stats=stats(x=(1.0, 2.0))), False),
    (is_("<", "x", 0.5), add(stats=stats(x=(1.0, None))), False),
    # partition columns are exact, as text says them
    (is_("=", "p", 2), add(p="1"), False),
    (is_("=", "p", 1), add(p="1"), True),
    (is_("=", "p", 1), add(p="01"), True),
    (is_("=", "p", 1), add(p=None), False),
    (IsNull(Column(("p",))), add(p=None), True),
    (IsNull(Column(("q",))), add(q=""), True),
    (is_("!=", "q", "x"), add(q="x"), False),
    (is_("!=", "q", "x"), add(q=None), False),
    (is_("=", "q", "a b/é%"), add(q="a b/é%"), True),
    # both kinds together
    (conjunction(is_("=", "p", 1), is_("=", "id", 5)), add(p="1", stats=stats(id=(6, 9))), False),
    (conjunction(is_("=", "p", 2), is_("=", "id", 5)), add(p="1", stats=stats(id=(5, 5))), False),
    (conjunction(is_("=", "p", 1), is_("=", "id", 5)), add(p="1", stats=stats(id=(5, 5))), True),
    (Or((is_("=", "p", 2), is_("=", "id", 5))), add(p="1", stats=stats(id=(6, 9))), False),
    (Or((is_("=", "p", 2), is_("=", "id", 5))), add(p="1", stats=stats(id=(5, 9))), True),
    # parts that have no words may be anything, and no more than they can be
    (Unknown("udf"), add(stats=stats(id=(1, 4))), True),
    (Not(Unknown("udf")), add(), True),
    (conjunction(is_("=", "p", 2), Unknown("udf")), add(p="1"), False),
    (conjunction(is_("=", "p", 1), Unknown("udf")), add(p="1"), True),
    (Or((is_("=", "p", 2), Unknown("udf"))), add(p="1"), True),
    (TRUE, add(stats='{"numRecords":0}'), True),
    (FALSE, add(), False),
    (Constant(None), add(), False),
    (And(()), add(), True),
    (Or(()), add(), False),
]


@pytest.mark.parametrize(("predicate", "added", "objects"), ROWS)
def test_added_files_are_held_against_the_whole_predicate(predicate: Predicate, added: AddFile, objects: bool) -> None:
    trying = attempt(remove("old"), reads=Reads(predicates=(predicate,), files=files("old")))
    assert objector(trying, land(added)) == ("rows_read" if objects else None)
    rearranged = land(replace(added, data_change=False), replace(remove("rearranged"), data_change=False))
    assert objector(trying, rearranged) is None


@pytest.mark.parametrize(
    ("predicate", "partition", "bounds", "objects"),
    [
        (is_("=", "id", 5), "1", (1, 4), False),
        (is_("=", "id", 5), "1", (1, 9), True),
        (is_("=", "p", 1), "1", (1, 9), True),
        (is_("=", "p", 2), "1", (1, 9), False),
    ],
)
def test_the_files_of_a_mapped_table_are_known_by_physical_names(
    predicate: Predicate, partition: str, bounds: tuple[int, int], objects: bool
) -> None:
    names = iter("abcde")
    schema, _ = with_mapping(parse_schema(SCHEMA), max_id=0, new_uuid=lambda: next(names), keep_names=False)
    configuration = {"delta.columnMapping.mode": "name"}
    mapped = Metadata(id="table", schema_string=schema.to_json(), partition_columns=("p", "q"), configuration=configuration)
    before = table(Protocol(min_reader_version=2, min_writer_version=5), mapped)
    values = {"col-d": partition, "col-e": None}
    added = AddFile(
        path="new", partition_values=values, size=1, modification_time=1, data_change=True, stats=stats(**{"col-a": bounds, "id": (5, 5)})
    )
    trying = attempt(remove("old"), reads=Reads(predicates=(predicate,), files=files("old")))
    found = first_conflict(contest(trying, land(added), before=before))
    assert (found is not None) == objects
    assert found is None or found.partition == "p=1, q=null"
    lost = first_conflict(contest(trying, land(remove("old", values=values)), before=before))
    assert lost is not None
    assert lost.partition == "p=1, q=null"


def test_files_that_were_added_without_any_being_removed_are_new_whatever_the_commit_says() -> None:
    trying = attempt(remove("old"), reads=Reads(predicates=(TRUE,), files=files("old")))
    assert objector(trying, land(replace(add(), data_change=False))) == "rows_read"


def test_an_added_file_that_leaves_data_change_out_may_hold_new_rows() -> None:
    line = {"add": {"path": "new", "partitionValues": {"p": "1", "q": "x"}, "size": 1, "modificationTime": 1}}
    winner = landed_commit(7, json.dumps(line).encode(), source="7.json", root=ROOT)
    assert objector(attempt(reads=EVERYTHING), winner) == "rows_read"


def test_one_of_several_predicates_and_one_of_several_files_is_enough() -> None:
    reads = Reads(predicates=(is_("=", "id", 1), conjunction(is_("=", "p", 3), is_(">", "id", 100))))
    outside = [add(f"f{n}", p=str(n % 3), stats=stats(id=(10, 200))) for n in range(50)]
    assert objector(attempt(reads=reads), land(*outside)) is None
    found = first_conflict(contest(attempt(reads=reads), land(*outside, add("hit", p="3", q=None, stats=stats(id=(10, 200))), add("no"))))
    assert found is not None
    # "no" has no statistics, so either predicate may hold in it.
    assert found.winner_did == "added files that may hold such rows: hit, no"
    assert found.partition == "p=3, q=null"


def test_a_whole_table_meets_every_added_row_and_no_reader_meets_none() -> None:
    winner = land(add(stats=stats(id=(1, 4))))
    assert objector(attempt(reads=EVERYTHING), winner) == "rows_read"
    assert objector(attempt(reads=Reads(whole_table=True, predicates=(FALSE,))), winner) == "rows_read"
    assert objector(attempt(reads=Reads(files=files("old"))), winner) is None
    assert objector(attempt(add("mine")), winner) is None


@pytest.mark.parametrize(
    ("level", "blind", "own", "objects"),
    [
        (SERIALIZABLE, True, (), True),
        (SERIALIZABLE, False, (), True),
        (SERIALIZABLE, None, (), True),
        (WRITE, True, (), False),
        (WRITE, False, (), True),
        (WRITE, None, (), True),
        (WRITE, True, (METADATA,), True),
        (WRITE, True, (PROTOCOL,), False),
        (SNAPSHOT, True, (), False),
        (SNAPSHOT, False, (), False),
        (SNAPSHOT, False, (METADATA,), False),
    ],
)
def test_which_winners_added_rows_count(level: Isolation, blind: bool | None, own: tuple[Action, ...], objects: bool) -> None:
    trying = attempt(*own, reads=Reads(predicates=(is_("=", "p", 1),)))
    assert objector(trying, land(add(p="1"), blind=blind), level) == ("rows_read" if objects else None)
    assert objector(trying, land(add(p="2"), blind=blind), level) is None


def test_a_winner_without_commit_info_is_no_blind_append() -> None:
    data = serialize_commit([add()])
    winner = landed_commit(7, data, source="7.json", root=ROOT)
    trying = attempt(reads=EVERYTHING)
    assert objector(trying, winner, WRITE) == "rows_read"
    error = first_conflict(contest(trying, winner)).error(contest(trying, winner))  # type: ignore[union-attr]
    assert "version 7 (an unnamed operation by an unnamed engine: 1 file added, 0 removed)" in str(error)


def test_a_winner_that_removes_files_is_no_blind_append_whatever_it_says() -> None:
    trying = attempt(reads=Reads(predicates=(is_("=", "id", 5),)))
    assert objector(trying, land(remove("old"), add(), blind=True), WRITE) == "rows_read"


def test_a_predicate_on_a_column_that_the_table_lacks_is_the_callers_mistake() -> None:
    trying = attempt(reads=Reads(predicates=(Comparison("=", Column(("ID",)), Literal(1, LONG)),)))
    with pytest.raises(ColumnNotFoundError):
        first_conflict(contest(trying, land(add())))


def test_a_partition_value_that_is_none_of_its_type_is_damage_and_no_missing_row() -> None:
    trying = attempt(reads=Reads(predicates=(is_("=", "p", 1),)))
    with pytest.raises(CorruptLogError):
        first_conflict(contest(trying, land(add(p="one"))))


# files_read and files_removed ---------------------------------------------------------------------------------------------

SPELLINGS = [
    ("p=a b/f", "p=a%20b/f"),
    ("p=a%20b/f", "p=a b/f"),
    ("p=a%20b/f", "/tables/t/p=a%20b/f"),
    ("file:/tables/t/f", "f"),
    ("f", "file:///tables/t/f"),
    ("./f", "p=1/../f"),
    ("p%3D1/f", "p=1/f"),
    ("é", "%C3%A9"),
    ("100%", "100%25"),
]


@pytest.mark.parametrize(("read", "removed"), SPELLINGS)
@pytest.mark.parametrize("change", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_a_removed_file_is_found_in_any_spelling(read: str, removed: str, change: bool, level: Isolation) -> None:
    winner = land(remove("other"), remove(removed, change=change), blind=True)
    assert objector(attempt(reads=Reads(files=files("unrelated", read))), winner, level) == "files_read"
    assert objector(attempt(remove("unrelated"), remove(read)), winner, level) == "files_removed"


@pytest.mark.parametrize("removed", ["g", "p=1/f", "F", "f%2520", "/elsewhere/f", "file:/tables/t2/f"])
def test_another_file_is_not_taken_for_it(removed: str) -> None:
    trying = attempt(remove("f"), reads=Reads(files=files("f")))
    assert objector(trying, land(remove(removed))) is None


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_a_deletion_vector_makes_no_other_file(mine: bool, theirs: bool) -> None:
    winner = land(remove("f", vector=theirs), add("f", change=False, deletion_vector=VECTOR))
    assert objector(attempt(reads=Reads(files=files("f"))), winner) == "files_read"
    assert objector(attempt(remove("f", vector=mine)), winner) == "files_removed"


def test_many_files_in_chunks_are_compared_by_their_canonical_paths() -> None:
    chunks = pa.chunked_array([[f"p=a b/{n}" for n in range(100)], [f"p=c/{n}" for n in range(100)]], pa.string())
    reads = Reads(files=chunks)
    assert objector(attempt(reads=reads), land(*(remove(f"p=d/{n}") for n in range(100)))) is None
    found = first_conflict(contest(attempt(reads=reads), land(*(remove(f"p=a%20b/{n}") for n in range(95, 200)))))
    assert found is not None
    assert found.winner_did == "removed files that were read: p=a%20b/95, p=a%20b/96, p=a%20b/97 and 2 more"


@pytest.mark.parametrize("change", [True, False])
def test_any_file_removed_is_gone_from_a_table_that_was_read_whole(change: bool) -> None:
    assert objector(attempt(reads=EVERYTHING), land(remove("whatever", change=change))) == "files_read"
    assert objector(attempt(reads=Reads(predicates=(TRUE,))), land(remove("whatever", change=change))) is None
    assert objector(attempt(reads=Reads(files=files())), land(remove("whatever", change=change))) is None


# the errors ---------------------------------------------------------------------------------------------------------------


def error_of(trying: CommitAttempt, winner: LandedCommit, before: Snapshot | None = BEFORE) -> DeltaConcurrentModificationException:
    what = contest(trying, winner, before=before)
    found = first_conflict(what)
    assert found is not None
    return found.error(what)


def test_an_error_tells_what_was_read_what_landed_what_it_changed_and_what_to_do() -> None:
    reads = Reads(predicates=(conjunction(is_("=", "p", 1), is_(">", "id", 5)), IsNull(Column(("name",)))), files=files("old"))
    winner = land(add("p=1/a"), add("p=1/b"), add("c", p=None), add("d"), remove("gone"))
    error = error_of(attempt(remove("old"), reads=reads), winner)
    assert type(error) is ConcurrentAppendException
    assert str(error) == (
        "Delta table /tables/t: DELETE read the rows where (p = 1 AND id > 5) OR name IS NULL at version 6, "
        "but version 7 (WRITE by other/1: 4 files added, 1 removed) landed first and "
        "added files that may hold such rows: p=1/a, p=1/b, c and 1 more. "
        "Nothing was committed. Read the table again and run it again."
    )
    assert (error.winner_version, error.rule, error.partition) == (7, "rows_read", "p=1, q=x")


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        (EVERYTHING, "DELETE read the whole table at version 6"),
        (Reads(files=files("f")), "DELETE read 1 file at version 6"),
        (Reads(files=files("f", "g")), "DELETE read 2 files at version 6"),
        (NOTHING, "DELETE read the table at version 6"),
        (Reads(app_ids=frozenset({"a"})), "DELETE read the table at version 6"),
    ],
)
def test_what_was_read_is_told_in_words(reads: Reads, words: str) -> None:
    assert words in str(error_of(attempt(remove("f"), reads=reads), land(remove("f"))))


def test_who_creates_is_told_to_write_to_the_table_that_is_there() -> None:
    error = error_of(attempt(PROTOCOL, METADATA, read_version=NO_VERSION, operation=commit_info.write("error")), land(), before=None)
    assert type(error) is ConcurrentWriteException
    assert str(error) == (
        "Delta table /tables/t: WRITE found no table, but version 7 (WRITE by other/1: 0 files added, 0 removed) landed first and "
        "created the table. Nothing was committed. Run it again to write to that table."
    )
    assert (error.winner_version, error.rule, error.partition) == (7, "creation", None)


@pytest.mark.parametrize(("values", "told"), [({"p": "1", "q": None}, "p=1, q=null"), ({}, None), (None, None)])
def test_the_partition_of_a_removed_file_is_told_where_the_log_has_it(values: dict[str, str | None] | None, told: str | None) -> None:
    assert error_of(attempt(remove("f")), land(remove("e"), remove("f", values=values))).partition == told
    assert error_of(attempt(reads=Reads(files=files("f"))), land(remove("f", values=values))).partition == told


@pytest.mark.parametrize("rule", ALONE)
def test_every_error_carries_version_and_rule(rule: str) -> None:
    trying, winner, kind, words = ALONE[rule]
    error = error_of(trying, winner)
    assert type(error) is kind
    assert (error.winner_version, error.rule) == (7, rule)
    for part in ("Delta table /tables/t: ", "version 7 (WRITE by other/1", f"landed first and {words}. Nothing was committed. ", "again"):
        assert part in str(error)


# outcomes by pair ---------------------------------------------------------------------------------------------------------

HERE, THERE = {"p": "1", "q": "x"}, {"p": "2", "q": "x"}
IN_1 = is_("=", "p", 1)

WINNERS: dict[str, Callable[[str], LandedCommit]] = {
    # Each in partition p of its argument.
    "insert": lambda p: land(add(f"p={p}/new", p=p), blind=True),
    "update rewrote": lambda p: land(remove(f"p={p}/old"), add(f"p={p}/new", p=p), blind=False, operation="UPDATE"),
    "delete dropped": lambda p: land(remove(f"p={p}/old"), blind=False, operation="DELETE"),
    "optimize": lambda p: land(remove(f"p={p}/old", change=False), add(f"p={p}/new", p=p, change=False), blind=False, operation="OPTIMIZE"),
    "schema change": lambda p: land(replace(METADATA, schema_string=RENAMED), blind=True),
    "constraint dropped": lambda p: land(METADATA, blind=True),
    "property allowed": lambda p: land(replace(METADATA, configuration={"delta.constraints.c": "id > 0", "delta.checkpointInterval": "5"})),
    "property refused": lambda p: land(replace(METADATA, configuration={"delta.constraints.c": "id > 0", "a": "b"})),
}
LANDED_ON = table(metadata=replace(METADATA, configuration={"delta.constraints.c": "id > 0"}))

ATTEMPTS: dict[str, CommitAttempt] = {
    "insert": attempt(add("p=1/mine"), operation=commit_info.write("append")),
    "update": attempt(remove("p=1/old"), add("p=1/mine"), reads=Reads(predicates=(IN_1,), files=files("p=1/old"))),
    "optimize": attempt(
        remove("p=1/old", change=False),
        add("p=1/mine", change=False),
        reads=Reads(predicates=(IN_1,), files=files("p=1/old")),
        operation=Operation(name="OPTIMIZE"),
    ),
    "schema change": attempt(replace(METADATA, schema_string=RENAMED), operation=Operation(name="ADD COLUMNS")),
}

# Second, first: who objects where both are in partition 1, and why that differs from delta-spark where it does.
PAIRS: dict[str, dict[str, str | None]] = {
    "insert": {
        "insert": None,
        "update rewrote": None,
        "delete dropped": None,
        "optimize": None,
        "schema change": "metadata",
        "constraint dropped": None,  # delta-spark refuses every property that was unset
        "property allowed": None,  # delta-spark's list is of features alone
        "property refused": "metadata",
    },
    "update": {
        "insert": "rows_read",
        "update rewrote": "rows_read",
        "delete dropped": "files_read",
        "optimize": "files_read",  # delta-spark: ConcurrentAppend, for it looks at files of old rows too
        "schema change": "metadata",
        "constraint dropped": None,
        "property allowed": None,
        "property refused": "metadata",
    },
    "optimize": {
        "insert": None,
        "update rewrote": "files_read",
        "delete dropped": "files_read",
        "optimize": "files_read",
        "schema change": "metadata",
        "constraint dropped": None,
        "property allowed": None,
        "property refused": "metadata",
    },
    "schema change": {
        "insert": None,
        "update rewrote": None,
        "delete dropped": None,
        "optimize": None,
        "schema change": "metadata",
        "constraint dropped": "metadata",
        "property allowed": "metadata",
        "property refused": "metadata",
    },
}
DATA = ("insert", "update rewrote", "delete dropped", "optimize")


@pytest.mark.parametrize("first", WINNERS)
@pytest.mark.parametrize("second", ATTEMPTS)
def test_outcome_by_pair(second: str, first: str) -> None:
    trying = ATTEMPTS[second]
    before = LANDED_ON if first in ("constraint dropped", "property allowed", "property refused") else BEFORE
    level = isolation_of(trying, before)
    assert level is (SNAPSHOT if second == "optimize" else SERIALIZABLE)
    assert objector(trying, WINNERS[first]("1"), level, before) == PAIRS[second][first]
    apart = None if first in DATA else PAIRS[second][first]
    assert objector(trying, WINNERS[first]("2"), level, before) == apart


@pytest.mark.parametrize("first", DATA)
def test_an_update_under_write_serializable_may_come_before_blind_appends_alone(first: str) -> None:
    expected = None if first == "insert" else PAIRS["update"][first]
    assert objector(ATTEMPTS["update"], WINNERS[first]("1"), WRITE) == expected


def test_what_a_rearrangement_put_in_place_of_files_that_were_not_read_holds_no_row_that_was_missed() -> None:
    """The rows in the new file come from files of which the statistics said that no row was asked for."""
    trying = attempt(remove("old"), reads=Reads(predicates=(is_("=", "id", 5),), files=files("old")))
    winner = land(remove("small-1", change=False), remove("small-2", change=False), add("large", change=False), operation="OPTIMIZE")
    assert objector(trying, winner) is None


# soundness ----------------------------------------------------------------------------------------------------------------

ROW = st.fixed_dictionaries({"id": st.none() | st.integers(-3, 3), "p": st.none() | st.integers(0, 2)})
ID_P = {"id": LONG, "p": INT}


def leaf() -> st.SearchStrategy[Predicate]:
    def of(name: str) -> st.SearchStrategy[Predicate]:
        column, literal = Column((name,)), (st.none() | st.integers(-3, 3)).map(lambda value: Literal(value, ID_P[name]))
        return st.one_of(
            st.builds(Comparison, st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]), st.just(column), literal),
            st.builds(In, st.just(column), st.lists(literal, max_size=3).map(tuple)),
            st.just(IsNull(column)),
            st.just(IsNotNull(column)),
        )

    return of("id") | of("p") | st.sampled_from([TRUE, FALSE, Constant(None)])


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    leaf(),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(lambda some: And(tuple(some))),
        st.lists(parts, max_size=3).map(lambda some: Or(tuple(some))),
        parts.map(Not),
    ),
    max_leaves=6,
)


@st.composite
def written(draw: st.DrawFn) -> tuple[AddFile, list[dict[str, int | None]]]:
    """A file and its rows, all of one partition; its statistics are honest, wide or missing."""
    rows = draw(st.lists(ROW, min_size=1, max_size=4))
    p = rows[0]["p"]
    rows = [{**row, "p": p} for row in rows]
    ids = [row["id"] for row in rows if row["id"] is not None]
    told: dict[str, Any] = {"numRecords": len(rows)}
    if draw(st.booleans()):
        told["nullCount"] = {"id": len(rows) - len(ids)}
    slack = draw(st.none() | st.integers(0, 2))
    if ids and slack is not None:
        told |= {"minValues": {"id": min(ids) - slack}, "maxValues": {"id": max(ids) + slack}}
    text = draw(st.sampled_from([json.dumps(told), json.dumps(told), None, "{}"]))
    path = f"f{draw(st.integers(0, 10**6))}"
    return add(path, p=None if p is None else str(p), change=draw(st.sampled_from([True, True, False])), stats=text), rows


WRITTEN = st.lists(written(), max_size=4, unique_by=lambda pair: pair[0].path)


@given(WRITTEN, st.lists(PREDICATES, min_size=1, max_size=2), st.booleans())
@example([(add(p="0", stats=stats(id=None)), [{"id": None, "p": 0}])], [Not(IsNotNull(Column(("id",))))], True)
def test_no_row_that_was_asked_for_lands_unnoticed(
    landed: list[tuple[AddFile, list[dict[str, int | None]]]], predicates: list[Predicate], blind: bool
) -> None:
    missed = any(
        added.data_change and any(truth(predicate, row) is True for row in rows for predicate in predicates) for added, rows in landed
    )
    winner = land(*(added for added, _ in landed), blind=blind)
    found = objector(attempt(reads=Reads(predicates=tuple(predicates))), winner)
    if missed:
        assert found == "rows_read"
    rearranged = [replace(added, data_change=False) for added, _ in landed]
    assert objector(attempt(reads=Reads(predicates=tuple(predicates))), land(*rearranged, remove("before"), blind=blind)) is None


PATHS = st.sampled_from(["a", "b", "c d", "c%20d", "/tables/t/a", "p=1/e"])
REMOVES = st.lists(
    st.builds(lambda path, change: remove(path, change=change), PATHS, st.booleans()), max_size=2, unique_by=lambda r: r.path
)
OTHERS = st.lists(
    st.sampled_from(
        [txn("a"), domain("d"), METADATA, replace(METADATA, configuration={"delta.logRetentionDuration": "interval 60 days"}), PROTOCOL]
    ),
    max_size=2,
    unique_by=lambda action: type(action).__name__,
)
READS = st.one_of(
    st.just(NOTHING),
    st.just(EVERYTHING),
    st.builds(
        lambda predicates, paths, app: Reads(predicates=tuple(predicates), files=files(*paths), app_ids=frozenset(app)),
        st.lists(PREDICATES, max_size=2),
        st.lists(PATHS, max_size=2),
        st.sets(st.sampled_from(["a", "b"])),
    ),
)


@given(READS, REMOVES, OTHERS, WRITTEN, REMOVES, OTHERS, st.none() | st.booleans())
def test_a_weaker_level_objects_to_nothing_that_a_stronger_one_lets_pass(
    reads: Reads,
    removes: list[RemoveFile],
    own: list[Action],
    landed: list[tuple[AddFile, list[dict[str, int | None]]]],
    gone: list[RemoveFile],
    others: list[Action],
    blind: bool | None,
) -> None:
    trying = attempt(*removes, *own, reads=reads)
    winner = land(*(added for added, _ in landed), *gone, *others, blind=blind)
    strong, middle, weak = (first_conflict(contest(trying, winner, level)) for level in LEVELS)
    assert weak is None or middle is not None
    assert middle is None or strong is not None
    if middle is not None and weak is not None and middle.rule != "rows_read":
        assert middle == weak
    if strong is not None and strong.rule != "rows_read":
        assert strong == middle == weak


def test_what_is_said_anew_of_a_file_does_not_bring_it_back() -> None:
    again = attempt(add("a", change=False), operation=Operation(name="COMPUTE STATS"))
    assert objector(again, land(remove("a")), Isolation.SNAPSHOT) == "files_removed"
    assert objector(again, land(remove("b")), Isolation.SNAPSHOT) is None
