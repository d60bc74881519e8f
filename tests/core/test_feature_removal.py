from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pytest

from lakelog.core.actions import Action, AddFile, DomainMetadata, Metadata, Protocol
from lakelog.core.errors import InvalidRequestError, InvalidSchemaError, LakelogError, UnsupportedFeatureError
from lakelog.core.feature_removal import last_use, removal
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import PrimitiveType, StructField, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import table_change
from lakelog.core.table_features import feature_names

LONG = PrimitiveType("long")
PLAIN = StructType((StructField("a", LONG), StructField("s", StructType((StructField("b", LONG),)))))
NTZ = StructType((StructField("t", PrimitiveType("timestamp_ntz")),))
WIDENED = StructType((StructField("a", LONG, True, {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}),))
NAME = {"delta.columnMapping.mode": "name"}
V12 = Protocol(min_reader_version=1, min_writer_version=2)


def add(path: str = "f", base: int | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":3}',
        base_row_id=base,
        default_row_commit_version=None if base is None else 0,
    )


def domain(name: str) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="{}", removed=False)


def table(*actions: Action) -> Snapshot:
    fold = Fold(LogState(), root="/t")
    fold.add_actions(0, actions)
    return Snapshot.from_state(fold.finish(), root="/t", timestamp_ms=0, now_ms=0)


def made(schema: StructType, properties: Mapping[str, str], *more: Action, features: tuple[str, ...] = ()) -> Snapshot:
    numbers = count()
    wanted = Metadata(id="id", schema_string=schema.to_json(), configuration=properties)
    change = table_change(None, wanted, table="/t", new_uuid=lambda: str(next(numbers)), features=features)
    return table(*change.actions, *more)


def mapped(*more: Action) -> Snapshot:
    """A table that had its columns before it was mapped."""
    plain = made(PLAIN, {})
    wanted = Metadata(id="id", schema_string=PLAIN.to_json(), configuration=NAME)
    change = table_change(plain, wanted, table="/t", new_uuid=lambda: "x")
    return table(change.protocol, change.metadata, *more)


# features of writers alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("changeDataFeed", {"delta.enableChangeDataFeed": "true"}),
        ("changeDataFeed", {"delta.feature.changeDataFeed": "supported"}),
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}),
        ("checkConstraints", {"delta.feature.checkConstraints": "supported"}),
        ("generatedColumns", {"delta.feature.generatedColumns": "supported"}),
        ("allowColumnDefaults", {"delta.feature.allowColumnDefaults": "supported"}),
        ("domainMetadata", {"delta.feature.domainMetadata": "supported"}),
    ],
)
def test_a_feature_of_writers_goes_in_one_commit_with_its_traces(feature: str, properties: dict[str, str]) -> None:
    plan = removal(made(PLAIN, {**properties, "owner": "me"}), feature.upper())
    assert (plan.feature, plan.before, plan.reads_history) == (feature, (), False)
    (protocol, metadata) = plan.actions
    assert protocol == V12
    assert isinstance(metadata, Metadata)
    assert metadata.configuration == {"owner": "me"}


def test_row_ids_go_with_row_tracking() -> None:
    there = made(PLAIN, {"delta.enableRowTracking": "true"}, add("f", 0), add("g"), domain("delta.rowTracking"))
    plan = removal(there, "rowTracking")
    protocol, metadata, tombstone, again = plan.actions
    assert isinstance(protocol, Protocol)
    assert feature_names(protocol) == ("appendOnly", "domainMetadata", "invariants")
    assert isinstance(metadata, Metadata)
    assert metadata.configuration == {}
    assert isinstance(tombstone, DomainMetadata)
    assert (tombstone.domain, tombstone.removed) == ("delta.rowTracking", True)
    assert isinstance(again, AddFile)
    assert (again.path, again.base_row_id, again.default_row_commit_version, again.data_change) == ("f", None, None, False)


def test_clustering_columns_go_with_clustering() -> None:
    plan = removal(made(PLAIN, {}, domain("delta.clustering"), features=("clustering",)), "clustering")
    protocol, _, tombstone = plan.actions
    assert isinstance(protocol, Protocol)
    assert feature_names(protocol) == ("appendOnly", "domainMetadata", "invariants")
    assert isinstance(tombstone, DomainMetadata)
    assert tombstone.removed


def test_domains_go_before_their_feature_does() -> None:
    there = made(PLAIN, {}, domain("delta.left.over"), features=("domainMetadata",))
    plan = removal(there, "domainMetadata")
    (tombstone,) = plan.before
    assert isinstance(tombstone, DomainMetadata)
    assert tombstone.removed
    assert plan.actions == (V12, there.metadata)


REFUSED: list[tuple[Snapshot, str, type[LakelogError], tuple[str, ...]]] = [
    (made(PLAIN, {}), "nosuch", InvalidRequestError, ("nosuch. There are: ", "rowTracking")),
    (made(PLAIN, {}), "deletionVectors", UnsupportedFeatureError, ("deletionVectors", "later release")),
    (made(PLAIN, {}), "rowTracking", InvalidRequestError, ("rowTracking", "(1, 2) does not have", "It has: appendOnly, invariants")),
    (made(PLAIN, {}, features=("rowTracking",)), "domainMetadata", InvalidRequestError, ("domainMetadata", "Drop rowTracking first")),
    (made(PLAIN, {"delta.appendOnly": "true"}), "appendOnly", InvalidRequestError, ("delta.appendOnly is set", "Unset the property")),
    (
        made(StructType((StructField("a", LONG, False),)), {}),
        "invariants",
        InvalidRequestError,
        ("invariants", "column a is NOT NULL", "DROP NOT NULL"),
    ),
    (
        table(
            Protocol(min_reader_version=1, min_writer_version=3),
            Metadata(
                id="id", schema_string=PLAIN.to_json(), configuration={"delta.constraints.c": "a > 0", "delta.constraints.b": "a < 9"}
            ),
        ),
        "checkConstraints",
        InvalidRequestError,
        ("checkConstraints", "DROP CONSTRAINT", "They are: b, c."),
    ),
    (
        made(StructType((StructField("a", LONG), StructField("g", LONG, True, {"delta.generationExpression": "a"}))), {}),
        "generatedColumns",
        InvalidRequestError,
        ("generatedColumns", "the column g carries", "Drop the column"),
    ),
    (
        made(StructType((StructField("a", LONG, True, {"delta.identity.start": 1}),)), {}),
        "identityColumns",
        InvalidRequestError,
        ("identityColumns", "the column a carries", "Drop the column"),
    ),
    (
        made(StructType((StructField("a", LONG, True, {"CURRENT_DEFAULT": "1"}),)), {}),
        "allowColumnDefaults",
        InvalidRequestError,
        ("allowColumnDefaults", "the column a carries", "DROP DEFAULT"),
    ),
    (made(NTZ, {}), "timestampNtz", InvalidRequestError, ("timestampNtz", "the column t is of type timestamp_ntz", "Drop the column")),
    (
        made(PLAIN, {}, domain("mine"), features=("domainMetadata",)),
        "domainMetadata",
        InvalidRequestError,
        ("domainMetadata", "domains mine", "remove them first"),
    ),
    (
        made(WIDENED, {"delta.enableTypeWidening": "true"}, add()),
        "typeWidening",
        UnsupportedFeatureError,
        ("typeWidening", "hold a in the narrower type", "Overwrite the table with its own rows", "overwriteSchema"),
    ),
    (made(PLAIN, NAME, add()), "columnMapping", UnsupportedFeatureError, ("columnMapping", "another name: a, s, s.b", "later release")),
    (
        made(StructType((StructField("a b", LONG),)), NAME),
        "columnMapping",
        InvalidSchemaError,
        ("'a b'", "Without column mapping the table cannot have such a name"),
    ),
]


@pytest.mark.parametrize(("there", "feature", "kind", "told"), REFUSED)
def test_what_cannot_be_dropped_says_what_to_do_first(
    there: Snapshot, feature: str, kind: type[LakelogError], told: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        removal(there, feature)
    assert all(text in str(caught.value) for text in ("/t", *told)), str(caught.value)


def test_no_history_is_truncated_for_writers() -> None:
    there = made(PLAIN, {}, features=("changeDataFeed",))
    with pytest.raises(InvalidRequestError, match=r"/t: .*changeDataFeed concerns writers alone.*Leave out truncateHistory"):
        removal(there, "changeDataFeed", truncate_history=True)


# features of readers too --------------------------------------------------------------------------------------------------


def test_a_feature_of_readers_goes_out_of_use_first() -> None:
    plan = removal(made(PLAIN, {"delta.enableTypeWidening": "true"}, add()), "typeWidening", truncate_history=True)
    (disabled,) = plan.before
    assert isinstance(disabled, Metadata)
    assert disabled.configuration == {}
    assert plan.actions == (V12, disabled)
    assert plan.reads_history
    after = table(made(PLAIN, {}, features=("typeWidening",)).protocol, disabled, add())
    assert removal(after, "typeWidening").before == ()


def test_type_changes_without_a_file_are_forgotten() -> None:
    (disabled,) = removal(made(WIDENED, {"delta.enableTypeWidening": "true"}), "typeWidening").before
    assert isinstance(disabled, Metadata)
    assert "typeChanges" not in disabled.schema_json


def test_of_two_that_mean_the_same_one_is_enough() -> None:
    there = made(WIDENED, {"delta.enableTypeWidening": "true"}, add(), features=("typeWidening", "typeWidening-preview"))
    plan = removal(there, "typeWidening-preview")
    assert (plan.before, plan.reads_history) == ((), False)
    assert isinstance(plan.actions[0], Protocol)
    assert "typeWidening" in feature_names(plan.actions[0])


def test_a_feature_that_leaves_no_trace_goes_at_once() -> None:
    there = made(PLAIN, {}, features=("vacuumProtocolCheck",))
    plan = removal(there, "vacuumProtocolCheck", truncate_history=True)
    assert (plan.before, plan.actions, plan.reads_history) == ((), (V12, there.metadata), False)


def test_a_mapping_that_renamed_nothing_can_be_taken_back() -> None:
    (plain,) = removal(mapped(add()), "columnMapping").before
    assert isinstance(plain, Metadata)
    assert (plain.schema_json, plain.configuration) == (PLAIN.to_json(), {})


def test_a_mapping_of_no_file_can_be_taken_back() -> None:
    (plain,) = removal(made(PLAIN, {"delta.columnMapping.mode": "id"}), "columnMapping").before
    assert isinstance(plain, Metadata)
    assert (plain.schema_json, plain.configuration) == (PLAIN.to_json(), {})


def test_a_column_that_was_dropped_does_not_come_back() -> None:
    there = mapped(add())
    shorter = StructType(there.schema.fields[:1])
    change = table_change(there, Metadata(id="id", schema_string=shorter.to_json(), configuration=NAME), table="/t", new_uuid=lambda: "x")
    with pytest.raises(UnsupportedFeatureError, match=r"/t: .*columns that the table does not have any more.*later release"):
        removal(table(there.protocol, change.metadata, add()), "columnMapping")


def _metadata(schema: StructType = PLAIN, **properties: str) -> Metadata:
    return Metadata(id="id", schema_string=schema.to_json(), configuration={k.replace("__", "."): v for k, v in properties.items()})


def test_the_last_version_that_used_a_feature() -> None:
    on, off = _metadata(delta__columnMapping__mode="name"), _metadata(delta__columnMapping__mode="none")
    assert last_use("columnMapping", [(0, off), (4, off)]) is None
    assert last_use("columnMapping", [(3, on), (9, off)]) == 8
    assert last_use("columnMapping", [(0, off), (2, on), (3, off), (7, off)]) == 2
    assert last_use("timestampNtz", [(0, _metadata(NTZ)), (5, _metadata())]) == 4
    assert last_use("typeWidening", [(0, _metadata(WIDENED)), (1, _metadata(delta__enableTypeWidening="true"))]) == 0
