"""The five cases of what a write does to its table's metadata."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.actions import Action, DomainMetadata, Metadata, Protocol
from lakelog.core.clustering import clustering_columns
from lakelog.core.errors import (
    InvalidOptionError,
    InvalidSchemaError,
    InvalidTablePropertyError,
    PartitionColumnError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from lakelog.core.field_metadata import (
    COLUMN_ID,
    CURRENT_DEFAULT,
    GENERATION_EXPRESSION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_START,
    IDENTITY_STEP,
    INVARIANTS,
    PHYSICAL_NAME,
    TYPE_CHANGES,
)
from lakelog.core.metadata_update import MetadataUpdate, SchemaRequest, update_for_write
from lakelog.core.records import JSON
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, nullable_schema, parse_schema
from lakelog.core.schema_compare import CastColumn, CopyColumn, DefaultColumn, GeneratedColumn, IdentityColumn, NullColumn, StructColumn
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import table_change
from tests.core.schema_models import random_schema

SHORT, INTEGER, LONG, STRING, VOID = (PrimitiveType(n) for n in ("short", "integer", "long", "string", "void"))
MERGE = SchemaRequest(merge_schema=True)
REPLACE = SchemaRequest(overwrite=True, overwrite_schema=True)


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


def uuids(prefix: str = "u") -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"


def field(name: str, kind: DataType, *, nullable: bool = True, **metadata: JSON) -> StructField:
    return StructField(name, kind, nullable, metadata)


def snapshot(actions: Sequence[Action]) -> Snapshot:
    fold = Fold(LogState(), root="/t")
    fold.add_actions(0, list(actions))
    return Snapshot.from_state(fold.finish(), root="/t", timestamp_ms=0, now_ms=0)


def table(
    schema: StructType, *, by: Sequence[str] = (), properties: Mapping[str, str] | None = None, constraints: Mapping[str, str] | None = None
) -> Snapshot:
    metadata = Metadata(
        id="id", name="n", description="d", created_time=7, schema_string=schema.to_json(), partition_columns=tuple(by),
        configuration=properties or {},
    )  # fmt: skip
    held = snapshot(table_change(None, metadata, table="/t", new_uuid=uuids("old")).actions)
    if not constraints:
        return held
    checked = {**held.metadata.configuration, **{f"delta.constraints.{name}": text for name, text in constraints.items()}}
    change = table_change(held, replace(held.metadata, configuration=checked), table="/t", new_uuid=uuids())
    return snapshot([change.protocol, change.metadata])


def update(current: Snapshot | None, data: StructType, request: SchemaRequest | None = None) -> MetadataUpdate:
    return update_for_write(current, data, request or SchemaRequest(), table="/t", new_uuid=uuids(), now_ms=42)


def refused(current: Snapshot | None, data: StructType, request: SchemaRequest | None = None) -> SchemaMismatchError:
    with pytest.raises(SchemaMismatchError, match="Delta table /t: ") as caught:
        update(current, data, request)
    assert all(f"\n  - {one}\n" in str(caught.value) for one in caught.value.differences)
    return caught.value


def metadata_of(done: MetadataUpdate) -> Metadata:
    (metadata,) = (action for action in done.change.actions if isinstance(action, Metadata))
    assert metadata is done.change.metadata
    assert parse_schema(metadata.schema_json) == done.schema
    return metadata


def unchanged(current: Snapshot, done: MetadataUpdate) -> bool:
    assert done.schema is current.schema
    assert done.change.metadata is current.metadata
    assert done.change.protocol is current.protocol
    return done.change.actions == () and done.domains == ()


# Case 1: the first write.


def test_the_first_write_makes_the_metadata() -> None:
    data = StructType((field("a", LONG, nullable=False), field("P", STRING, comment="c", **{GENERATION_EXPRESSION: "1"})))
    done = update(None, data, SchemaRequest(partition_by=("p",), properties={"delta.appendOnly": "true"}, description="d"))
    assert done.change.actions == (Protocol(min_reader_version=1, min_writer_version=2), done.change.metadata)
    assert metadata_of(done) == Metadata(
        id="u1",
        description="d",
        schema_string=StructType((field("a", LONG), field("P", STRING, comment="c"))).to_json(),
        partition_columns=("P",),
        configuration={"delta.appendOnly": "true"},
        created_time=42,
    )
    assert done.partition_columns == ("P",)
    assert done.plans == tuple(CopyColumn(field=f, source=f.name) for f in done.schema.fields)


@pytest.mark.parametrize("request_", [SchemaRequest(), MERGE, REPLACE, SchemaRequest(overwrite=True), replace(REPLACE, partial=True)])
def test_the_first_write_is_the_same_in_every_mode(request_: SchemaRequest) -> None:
    done = update(None, struct(a=LONG), request_)
    assert done.schema == struct(a=LONG)
    assert len(done.change.actions) == 2


def test_a_first_write_without_columns_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=r"Delta table /t: the data has no column\. Write at least one"):
        update(None, StructType())


@pytest.mark.parametrize(
    ("data", "request_", "error", "told"),
    [
        (struct(a=LONG, b=VOID), SchemaRequest(), UnsupportedTypeError, "column b is of type void.* cast it to"),
        (struct(a=LONG, b=ArrayType(VOID)), SchemaRequest(), UnsupportedTypeError, "column b.element is of type void"),
        (
            struct(a=LONG, b=MapType(STRING, PrimitiveType("variant"))),
            SchemaRequest(),
            UnsupportedTypeError,
            "column b.value is of type variant",
        ),
        (
            struct(a=LONG, b=struct(c=struct())),
            SchemaRequest(),
            UnsupportedTypeError,
            "column b.c is of type struct<>.* give the struct a field",
        ),
        (struct(a=LONG), SchemaRequest(partition_by=("b",)), PartitionColumnError, "Cannot partition by 'b'"),
        (struct(a=LONG), SchemaRequest(properties={"delta.nonsense": "1"}), InvalidTablePropertyError, "delta.nonsense"),
        (struct(a=LONG, A=LONG), SchemaRequest(), InvalidSchemaError, "the same but for case"),
    ],
)
def test_a_first_write_that_makes_no_table_is_refused(data: StructType, request_: SchemaRequest, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=f"Delta table /t: .*{told}"):
        update(None, data, request_)


def test_a_first_write_may_cluster() -> None:
    done = update(
        None, struct(a=LONG, s=struct(x=LONG)), SchemaRequest(cluster_by=("s.x", "A"), properties={"delta.columnMapping.mode": "name"})
    )
    assert "clustering" in (done.change.protocol.writer_features or ())
    (domain,) = done.domains
    assert clustering_columns(done.schema, {domain.domain: domain}, table="/t") == (("s", "x"), ("a",))


def test_clustering_and_partitioning_at_once_are_refused() -> None:
    with pytest.raises(PartitionColumnError, match="/t: it cannot be clustered by"):
        update(None, struct(a=LONG, b=LONG), SchemaRequest(partition_by=("a",), cluster_by=("b",)))


# Case 2: overwriteSchema.


def test_overwrite_schema_replaces_schema_and_partitioning_and_keeps_the_rest() -> None:
    current = table(struct(a=LONG, b=STRING), by=("b",), properties={"delta.appendOnly": "false", "mine": "x"})
    done = update(current, struct(c=INTEGER, d=STRING), replace(REPLACE, partition_by=("D",)))
    assert done.change.actions == (done.change.metadata,)
    assert metadata_of(done) == replace(current.metadata, schema_string=struct(c=INTEGER, d=STRING).to_json(), partition_columns=("d",))
    assert done.plans == tuple(CopyColumn(field=f, source=f.name) for f in done.schema.fields)


def test_overwrite_schema_without_partition_by_leaves_the_table_unpartitioned() -> None:
    current = table(struct(a=LONG, b=STRING), by=("b",))
    done = update(current, struct(a=LONG, b=STRING), REPLACE)
    assert metadata_of(done).partition_columns == done.partition_columns == ()
    assert metadata_of(done).schema_string == current.metadata.schema_string


def test_overwrite_schema_with_the_tables_own_changes_nothing() -> None:
    current = table(struct(a=LONG, b=STRING), by=("b",))
    done = update(current, StructType((field("a", LONG, nullable=False), field("b", STRING))), replace(REPLACE, partition_by=("b",)))
    assert unchanged(current, done)


def test_overwrite_schema_takes_back_what_columns_promised() -> None:
    current = table(
        StructType(
            (
                field("a", LONG, nullable=False),
                field("g", LONG, **{GENERATION_EXPRESSION: "a + 1"}),
                field("i", LONG, **{IDENTITY_START: 1, IDENTITY_STEP: 1, IDENTITY_ALLOWS_EXPLICIT: True}),
            )
        )
    )
    done = update(current, struct(a=LONG, g=LONG, i=LONG), REPLACE)
    assert done.schema == struct(a=LONG, g=LONG, i=LONG)
    # The protocol never goes down by a write.
    assert done.change.protocol is current.protocol


def test_overwrite_schema_gives_no_values_to_columns_that_the_table_makes() -> None:
    current = table(
        StructType((field("a", LONG), field("i", LONG, **{IDENTITY_START: 1, IDENTITY_STEP: 1, IDENTITY_ALLOWS_EXPLICIT: False})))
    )
    error = refused(current, struct(a=LONG, i=LONG), REPLACE)
    assert error.differences == ("column i: the table makes its values (GENERATED ALWAYS AS IDENTITY), the data gives them",)
    assert "Leave the columns out of the data" in str(error)
    assert update(current, struct(a=LONG), REPLACE).schema == struct(a=LONG)


def test_overwrite_schema_keeps_the_columns_that_a_check_constraint_reads() -> None:
    items = ArrayType(struct(z=LONG))
    current = table(
        struct(a=LONG, s=struct(x=LONG), c=LONG, L=items),
        constraints={"pos": "a > 0", "part": "s . X > 0", "a b": "size(l.z) > 0 AND year > 0"},
    )
    error = refused(current, struct(b=LONG, S=struct(x=LONG)), REPLACE)
    assert error.differences == (
        "column L: the data has no such column, the CHECK constraint a b (size(l.z) > 0 AND year > 0) reads it",
        "column a: the data has no such column, the CHECK constraint pos (a > 0) reads it",
    )
    assert "ALTER TABLE delta.`/t` DROP CONSTRAINT `a b`" in str(error)
    assert "ALTER TABLE delta.`/t` DROP CONSTRAINT pos" in str(error)
    error = refused(current, struct(a=LONG, s=struct(y=LONG), l=items), REPLACE)
    assert error.differences == ("column s.x: the data has no such column, the CHECK constraint part (s . X > 0) reads it",)
    done = update(current, struct(A=LONG, S=struct(x=LONG), l=items), REPLACE)
    assert metadata_of(done).configuration == current.metadata.configuration


def test_overwrite_schema_keeps_ids_and_physical_names_of_columns_that_stay() -> None:
    current = table(
        struct(a=LONG, s=struct(x=LONG, y=LONG), gone=LONG, l=ArrayType(struct(z=LONG)), m=MapType(STRING, struct(w=LONG))),
        properties={"delta.columnMapping.mode": "name"},
    )
    done = update(
        current, struct(l=ArrayType(struct(z=LONG)), a=STRING, S=struct(x=LONG, n=LONG), m=MapType(STRING, struct(w=LONG))), REPLACE
    )
    old = {f.name.lower(): f for f in current.schema.fields}
    items, a, s, m = done.schema.fields
    assert (items, m) == (old["l"], old["m"])
    assert s.metadata == old["s"].metadata
    assert s.type.fields[0] == old["s"].type.fields[0]  # type: ignore[union-attr]
    # A column of another type is another column, under an id that none had.
    highest = int(current.metadata.configuration["delta.columnMapping.maxColumnId"])
    new_ids = {a.metadata[COLUMN_ID], s.type.fields[1].metadata[COLUMN_ID]}  # type: ignore[union-attr]
    assert new_ids == {highest + 1, highest + 2}
    assert a.metadata[PHYSICAL_NAME] != old["a"].metadata[PHYSICAL_NAME]
    assert metadata_of(done).configuration["delta.columnMapping.maxColumnId"] == str(highest + 2)
    assert unchanged(current, update(current, struct(**{f.name: f.type for f in current.schema.fields}), REPLACE))


def test_overwrite_schema_without_cluster_by_leaves_the_table_unclustered() -> None:
    made = update(None, struct(a=LONG, b=LONG), SchemaRequest(cluster_by=("a",)))
    current = snapshot([*made.change.actions, *made.domains])
    assert unchanged(current, update(current, struct(a=LONG, b=LONG), replace(REPLACE, cluster_by=("A",))))
    done = update(current, struct(a=LONG, b=LONG), REPLACE)
    assert done.change.actions == ()
    assert [json.loads(domain.configuration)["clusteringColumns"] for domain in done.domains] == [[]]
    done = update(current, struct(b=LONG, c=LONG), replace(REPLACE, cluster_by=("c",)))
    assert [json.loads(domain.configuration)["clusteringColumns"] for domain in done.domains] == [[["c"]]]
    assert all(isinstance(domain, DomainMetadata) for domain in done.domains)


@pytest.mark.parametrize("request_", [SchemaRequest(overwrite_schema=True), replace(REPLACE, partial=True)])
def test_overwrite_schema_counts_for_whole_overwrites_alone(request_: SchemaRequest) -> None:
    current = table(struct(a=LONG))
    assert unchanged(current, update(current, struct(a=LONG), request_))
    error = refused(current, struct(a=LONG, b=LONG), request_)
    assert 'overwriteSchema counts only with mode("overwrite") of the whole table, without replaceWhere' in str(error)
    assert update(current, struct(a=LONG, b=LONG), replace(request_, merge_schema=True)).schema == struct(a=LONG, b=LONG)


def test_overwrite_schema_with_dynamic_partition_overwrite_is_refused() -> None:
    request = replace(REPLACE, dynamic=True)
    partitioned = table(struct(a=LONG, b=LONG), by=("b",))
    for current, by in ((partitioned, None), (partitioned, ("b",)), (table(struct(a=LONG, b=LONG)), ("b",))):
        with pytest.raises(InvalidOptionError, match=r"Delta table /t: overwriteSchema .* dynamic partition overwrite .* Leave out one"):
            update(current, struct(a=LONG, b=LONG), replace(request, partition_by=by))
    assert update(table(struct(a=LONG)), struct(b=LONG), request).schema == struct(b=LONG)


def test_overwrite_schema_wins_over_merge_schema() -> None:
    assert update(table(struct(a=LONG)), struct(b=LONG), replace(REPLACE, merge_schema=True)).schema == struct(b=LONG)


# Case 3: mergeSchema.


@pytest.mark.parametrize("overwrite", [False, True])
def test_merge_schema_adds_what_the_table_lacks(overwrite: bool) -> None:
    current = table(struct(name=STRING, age=INTEGER), properties={"mine": "x"})
    done = update(current, struct(NAME=STRING, address=STRING), replace(MERGE, overwrite=overwrite))
    assert metadata_of(done) == replace(current.metadata, schema_string=struct(name=STRING, age=INTEGER, address=STRING).to_json())
    assert done.change.actions == (done.change.metadata,)
    name, age, address = done.schema.fields
    assert done.plans == (CopyColumn(field=name, source="NAME"), NullColumn(field=age), CopyColumn(field=address, source="address"))


def test_merge_schema_reaches_into_structs_arrays_and_maps() -> None:
    current = table(struct(s=struct(x=LONG), l=ArrayType(struct(x=LONG)), m=MapType(STRING, struct(x=LONG))))
    more = struct(x=LONG, y=STRING)
    done = update(current, struct(s=more, l=ArrayType(more), m=MapType(STRING, more)), MERGE)
    assert done.schema == struct(s=more, l=ArrayType(more), m=MapType(STRING, more))
    assert done.plans == tuple(CopyColumn(field=f, source=f.name) for f in done.schema.fields)


def test_merge_schema_widens_small_integers_and_gives_void_columns_a_type() -> None:
    current = table(struct(a=SHORT, b=LONG))
    done = update(current, struct(a=INTEGER, b=VOID), MERGE)
    assert done.schema == struct(a=INTEGER, b=LONG)
    assert done.plans[1] == CastColumn(field=field("b", LONG), source="b")
    assert TYPE_CHANGES not in done.schema.fields[0].metadata
    untyped = snapshot([current.protocol, replace(current.metadata, schema_string=struct(a=VOID, b=LONG).to_json())])
    assert update(untyped, struct(a=STRING), MERGE).schema == struct(a=STRING, b=LONG)
    assert "mergeSchema" in str(refused(untyped, struct(a=STRING)))


def test_merge_schema_widens_where_the_table_says_so_and_records_it() -> None:
    current = table(struct(a=INTEGER, l=ArrayType(INTEGER), b=SHORT), properties={"delta.enableTypeWidening": "true"})
    done = update(current, struct(a=LONG, l=ArrayType(LONG), b=INTEGER), MERGE)
    assert [(f.type, f.metadata.get(TYPE_CHANGES)) for f in done.schema.fields] == [
        (LONG, [{"fromType": "integer", "toType": "long"}]),
        (ArrayType(LONG), [{"fromType": "integer", "toType": "long", "fieldPath": "element"}]),
        (INTEGER, [{"fromType": "short", "toType": "integer"}]),
    ]
    assert metadata_of(done).schema_string == done.schema.to_json()
    error = refused(current, struct(a=LONG))
    assert '.option("mergeSchema", "true") takes' in str(error)


def test_merge_schema_gives_new_columns_of_a_mapped_table_their_ids() -> None:
    current = table(struct(a=LONG, s=struct(x=LONG)), properties={"delta.columnMapping.mode": "name"})
    done = update(current, struct(a=LONG, s=struct(x=LONG, y=LONG), b=LONG), MERGE)
    a, s, b = done.schema.fields
    assert a == current.schema.fields[0]
    assert {b.metadata[COLUMN_ID], s.type.fields[1].metadata[COLUMN_ID]} == {4, 5}  # type: ignore[union-attr]
    assert done.plans[2] == CopyColumn(field=b, source="b")


def test_merge_schema_leaves_out_what_has_no_type() -> None:
    current = table(struct(a=LONG))
    done = update(current, struct(a=LONG, b=VOID, s=struct(x=LONG, y=VOID)), MERGE)
    assert done.schema == struct(a=LONG, s=struct(x=LONG))
    assert done.left_out == ("b", "s.y")
    assert isinstance(done.plans[1], StructColumn)
    nothing = update(current, struct(a=LONG, b=VOID), MERGE)
    assert unchanged(current, nothing)
    assert nothing.left_out == ("b",)
    assert refused(current, struct(a=LONG, b=VOID)).differences == ("column b: the table has no such column, the data has void",)
    with pytest.raises(UnsupportedTypeError, match=r"Delta table /t: column l.element is of type void.* cast it to"):
        update(current, struct(a=LONG, l=ArrayType(VOID)), MERGE)


def test_merge_schema_never_repartitions() -> None:
    current = table(struct(a=LONG, b=LONG), by=("a",))
    assert update(current, struct(b=LONG, c=LONG), MERGE).partition_columns == ("a",)
    with pytest.raises(
        PartitionColumnError, match=r"partitioned by \(a\), the write asks for \(b\).*mergeSchema never changes the partitioning"
    ):
        update(current, struct(a=LONG, b=LONG, c=LONG), replace(MERGE, partition_by=("b",)))


@pytest.mark.parametrize(
    ("constraint", "data"),
    [
        ("a > 0", struct(a=INTEGER)),
        ("s.x > 0", struct(s=struct(x=INTEGER))),
        ("s IS NOT NULL", struct(s=struct(y=INTEGER))),
        ("size(l) > 0", struct(l=ArrayType(INTEGER))),
        ("l.element > 0", struct(l=ArrayType(INTEGER))),
    ],
)
def test_merge_schema_leaves_columns_alone_that_a_check_constraint_reads(constraint: str, data: StructType) -> None:
    current = table(struct(a=SHORT, s=struct(x=SHORT), l=ArrayType(SHORT)), constraints={"c": constraint})
    error = refused(current, data, MERGE)
    assert f"the CHECK constraint c ({constraint}) reads it" in str(error)
    assert "Cast the data to the table's types, or drop the constraint first: ALTER TABLE delta.`/t` DROP CONSTRAINT c." in str(error)


def test_merge_schema_adds_beside_what_a_constraint_reads() -> None:
    current = table(struct(a=SHORT, s=struct(x=SHORT)), constraints={"c": "s . x > 0 AND a > 0"})
    assert update(current, struct(s=struct(y=STRING), b=LONG), MERGE).schema == struct(a=SHORT, s=struct(x=SHORT, y=STRING), b=LONG)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({GENERATION_EXPRESSION: "a + 1"}, "the generated column g (a + 1) reads it"),
        ({INVARIANTS: json.dumps({"expression": {"expression": "a < g"}})}, "the invariant of column g (a < g) reads it"),
    ],
)
def test_merge_schema_leaves_columns_alone_that_other_columns_read(made: dict[str, JSON], told: str) -> None:
    current = table(StructType((field("a", SHORT), field("g", INTEGER, **made))))
    error = refused(current, struct(a=INTEGER, g=INTEGER), MERGE)
    assert error.differences == (f"column a: it goes from short to integer, {told}",)
    assert update(current, struct(a=SHORT, b=LONG), MERGE).schema.names == ("a", "g", "b")


# Case 4: refused.


def test_every_difference_is_told_with_what_helps() -> None:
    current = table(struct(a=INTEGER, b=LONG), by=("b",))
    error = refused(current, struct(a=STRING, c=LONG), SchemaRequest(partition_by=("c",)))
    assert error.differences == (
        "column c: the table has no such column, the data has long",
        "column a: the table has integer, the data has string",
        "partitioning: the table is partitioned by (b), the write asks for (c)",
    )
    assert (
        '.option("mergeSchema", "true") takes the data\'s new columns and wider types into the table, the other differences stay.'
        in str(error)
    )
    assert "Select and cast" in str(error)
    assert "Leave partitionBy and clusterBy out" in str(error)
    assert "overwriteSchema" not in str(error)


def test_an_overwrite_is_told_of_overwrite_schema() -> None:
    current = table(struct(a=INTEGER))
    error = refused(current, struct(a=STRING), SchemaRequest(overwrite=True))
    assert '.option("overwriteSchema", "true") replaces' in str(error)
    assert "mergeSchema" not in str(error)
    assert "overwriteSchema" not in str(refused(current, struct(a=STRING), SchemaRequest(overwrite=True, partial=True)))


def test_wider_types_are_told_of_type_widening() -> None:
    current = table(struct(a=INTEGER))
    for request in (SchemaRequest(), MERGE):
        assert "delta.enableTypeWidening = true" in str(refused(current, struct(a=LONG), request))
    assert "delta.enableTypeWidening" not in str(refused(current, struct(a=STRING), MERGE))
    error = refused(current, struct(a=LONG, b=LONG), MERGE)
    assert error.differences == ("column a: the table has integer, the data has long",)


def test_another_partitioning_alone_is_refused_with_both_lists() -> None:
    current = table(struct(a=LONG, b=LONG, c=LONG), by=("b", "a"))
    data = struct(a=LONG, b=LONG, c=LONG)
    with pytest.raises(PartitionColumnError, match=r"Delta table /t: .*partitioned by \(b, a\), the write asks for \(a, b\)\. Leave"):
        update(current, data, SchemaRequest(partition_by=("a", "b")))
    with pytest.raises(PartitionColumnError, match=r"overwriteSchema.* replaces the table's schema and partitioning"):
        update(current, data, SchemaRequest(overwrite=True, partition_by=()))
    assert unchanged(current, update(current, data, SchemaRequest(partition_by=("B", "a"))))


def test_another_clustering_is_refused_with_both_lists() -> None:
    made = update(None, struct(a=LONG, b=LONG), SchemaRequest(cluster_by=("a",)))
    current = snapshot([*made.change.actions, *made.domains])
    with pytest.raises(PartitionColumnError, match=r"Delta table /t: .*clustered by \(a\), the write asks for \(b\)\. Leave"):
        update(current, struct(a=LONG, b=LONG), SchemaRequest(cluster_by=("b",)))
    assert unchanged(current, update(current, struct(a=LONG, b=LONG), SchemaRequest(cluster_by=("a",))))


# Case 5: nothing changes.


@pytest.mark.parametrize("request_", [SchemaRequest(), MERGE, SchemaRequest(overwrite=True)])
def test_data_that_fits_changes_nothing(request_: SchemaRequest) -> None:
    current = table(struct(a=LONG, b=STRING, s=struct(x=LONG, y=LONG)))
    done = update(current, struct(S=struct(y=LONG), A=INTEGER), request_)
    assert unchanged(current, done)
    a, b, s = current.schema.fields
    assert done.plans[:2] == (CastColumn(field=a, source="A"), NullColumn(field=b))
    assert isinstance(done.plans[2], StructColumn)
    assert done.plans[2].field == s


def test_columns_that_the_table_computes_are_left_to_it() -> None:
    current = table(
        StructType(
            (
                field("a", LONG, nullable=False, **{CURRENT_DEFAULT: "7"}),
                field("g", LONG, nullable=False, **{GENERATION_EXPRESSION: "a + 1"}),
                field("i", LONG, nullable=False, **{IDENTITY_START: 1, IDENTITY_STEP: 2, IDENTITY_ALLOWS_EXPLICIT: False}),
                field("b", LONG),
            )
        ),
        properties={"delta.feature.allowColumnDefaults": "supported"},
    )
    done = update(current, struct(b=LONG))
    assert unchanged(current, done)
    assert [type(plan) for plan in done.plans] == [DefaultColumn, GeneratedColumn, IdentityColumn, CopyColumn]
    assert "Leave the columns out of the data whose values the table makes." in str(refused(current, struct(b=LONG, i=LONG)))


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.booleans())
def test_what_was_merged_once_fits_from_then_on(one: int, other: int, widen: bool) -> None:
    first, second = random_schema(one), random_schema(other)
    current = table(nullable_schema(first), properties={"delta.enableTypeWidening": "true"} if widen else {})
    try:
        done = update(current, second, MERGE)
    except SchemaMismatchError:
        return
    after = snapshot([done.change.protocol, done.change.metadata])
    assert unchanged(after, update(after, second))
    assert unchanged(after, update(after, first))
    # The options ask for nothing where nothing differs.
    assert unchanged(after, update(after, second, MERGE))
    assert {type(action) for action in done.change.actions} <= {Metadata}
