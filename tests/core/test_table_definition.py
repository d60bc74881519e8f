"""What a definition of a table comes to, and how it is told from a table that stands at its place."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lakelog.core.actions import Action, DomainMetadata, Metadata, Protocol
from lakelog.core.clustering import DOMAIN, clustering_columns
from lakelog.core.errors import (
    InvalidRequestError,
    InvalidSchemaError,
    InvalidTablePropertyError,
    LakelogError,
    PartitionColumnError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from lakelog.core.field_metadata import (
    COLUMN_ID,
    COMMENT,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
    PHYSICAL_NAME,
)
from lakelog.core.records import JSON
from lakelog.core.replay import Fold, LogState
from lakelog.core.schema import ArrayType, DataType, PrimitiveType, StructField, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_definition import CreationMode, DefinedTable, TableDefinition, check_same, defined

LONG, INTEGER, STRING = (PrimitiveType(n) for n in ("long", "integer", "string"))


def field(name: str, kind: DataType, *, nullable: bool = True, **metadata: JSON) -> StructField:
    return StructField(name, kind, nullable, {key.replace("__", "."): value for key, value in metadata.items()})


def struct(**columns: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in columns.items()))


IDENTITY: dict[str, Any] = {IDENTITY_START: 1, IDENTITY_STEP: 1, IDENTITY_ALLOWS_EXPLICIT: False}


def define(
    definition: TableDefinition, current: Snapshot | None = None, *, defaults: Mapping[str, str] | None = None, now_ms: int = 42
) -> DefinedTable:
    numbers = itertools.count(1 if current is None else 100)
    return defined(definition, current, table="/t", defaults=defaults or {}, new_uuid=lambda: f"u{next(numbers)}", now_ms=now_ms)


def snapshot(*commits: Sequence[Action]) -> Snapshot:
    fold = Fold(LogState(), root="/t")
    for version, actions in enumerate(commits):
        fold.add_actions(version, list(actions))
    return Snapshot.from_state(fold.finish(), root="/t", timestamp_ms=0, now_ms=0)


def made(schema: StructType, **definition: Any) -> Snapshot:
    return snapshot(define(TableDefinition(schema=schema, **definition)).actions)


def test_a_new_table() -> None:
    definition = TableDefinition(
        schema=struct(Id=LONG, day=STRING), partition_by=("DAY",), properties={"own": "1", "delta.APPENDONLY": "true"}, comment="all of it"
    )
    table = define(definition, defaults={"delta.appendOnly": "false", "delta.checkpointInterval": "5"})
    protocol, metadata = table.actions
    assert protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert isinstance(metadata, Metadata)
    assert metadata == table.metadata
    assert (metadata.id, metadata.description, metadata.created_time) == ("u1", "all of it", 42)
    assert metadata.partition_columns == ("day",)
    assert metadata.configuration == {"own": "1", "delta.appendOnly": "true", "delta.checkpointInterval": "5"}


def test_a_clustered_table_has_the_feature_and_the_domain() -> None:
    table = define(TableDefinition(schema=struct(a=struct(b=LONG)), cluster_by=("A.B",)))
    protocol, _, domain = table.actions
    assert isinstance(protocol, Protocol)
    assert protocol.writer_features == ("appendOnly", "clustering", "domainMetadata", "invariants")
    assert isinstance(domain, DomainMetadata)
    assert clustering_columns(table.schema, {DOMAIN: domain}, table="/t") == (("a", "b"),)
    operation = table.operation(CreationMode.CREATE_IF_NOT_EXISTS, managed=True)
    assert operation.name == "CREATE TABLE"
    assert operation.parameters == {
        "partitionBy": "[]", "clusterBy": '["a.b"]', "description": None, "isManaged": "true", "properties": "{}",
    }  # fmt: skip


def test_clustering_a_mapped_table_speaks_of_physical_names() -> None:
    table = define(TableDefinition(schema=struct(a=LONG), cluster_by=("a",), properties={"delta.columnMapping.mode": "name"}))
    physical = table.schema.fields[0].metadata[PHYSICAL_NAME]
    domain = table.actions[-1]
    assert isinstance(domain, DomainMetadata)
    assert physical != "a"
    assert json.loads(domain.configuration)["clusteringColumns"] == [[physical]]


def test_what_travels_with_data_stays_out_of_a_new_table() -> None:
    kept = {COLUMN_ID: 7, PHYSICAL_NAME: "col-1", COMMENT: "c", IDENTITY_HIGH_WATER_MARK: 9}
    table = define(TableDefinition(schema=StructType((StructField("a", LONG, True, kept),))))
    assert table.schema.fields[0].metadata == {COMMENT: "c"}


def test_replacing_keeps_the_id_and_the_protocol_and_nothing_else() -> None:
    before = made(struct(a=LONG), cluster_by=("a",), comment="old", properties={"own": "1", "delta.columnMapping.mode": "name"})
    table = define(TableDefinition(schema=struct(z=STRING)), before, now_ms=99)
    metadata, domain = table.actions
    assert isinstance(metadata, Metadata)
    assert (metadata.id, metadata.description, metadata.created_time, metadata.configuration) == (before.metadata.id, None, 99, {})
    assert table.schema == struct(z=STRING)
    assert isinstance(domain, DomainMetadata)
    assert clustering_columns(table.schema, {DOMAIN: domain}, table="/t") == ()
    after = snapshot([before.protocol, before.metadata, *before.domains.values()], table.actions)
    assert after.protocol == before.protocol
    assert table.operation(CreationMode.CREATE_OR_REPLACE, managed=False).name == "CREATE OR REPLACE TABLE"


def test_replacing_raises_the_protocol_where_it_must() -> None:
    before = made(struct(a=LONG))
    table = define(TableDefinition(schema=StructType((field("a", LONG, **IDENTITY), field("b", PrimitiveType("timestamp_ntz"))))), before)
    protocol = table.actions[0]
    assert isinstance(protocol, Protocol)
    assert protocol.writer_features == ("appendOnly", "identityColumns", "invariants", "timestampNtz")


@pytest.mark.parametrize(
    ("definition", "error", "told"),
    [
        (TableDefinition(), InvalidSchemaError, ["has no column", "addColumn"]),
        (TableDefinition(schema=struct(a=LONG, A=LONG)), InvalidSchemaError, ["'a' and 'A'", "Rename"]),
        (TableDefinition(schema=struct(a=LONG), partition_by=("x",)), PartitionColumnError, ["'x'", "a"]),
        (TableDefinition(schema=struct(a=LONG, b=LONG), partition_by=("a",), cluster_by=("b",)), PartitionColumnError, ["(b)", "(a)"]),
        (TableDefinition(schema=StructType((field("n", INTEGER, **IDENTITY),))), UnsupportedTypeError, ["column n", "integer", "BIGINT"]),
        (
            TableDefinition(schema=StructType((field("n", LONG, **IDENTITY), field("b", LONG))), partition_by=("N",)),
            PartitionColumnError,
            ["partitioned by n", "identity column", "another column"],
        ),
        *(
            (TableDefinition(schema=StructType((field("n", LONG, **told),))), InvalidSchemaError, ["column n", "IdentityGenerator"])
            for told in (
                {**IDENTITY, "delta.identity.step": 0},
                {**IDENTITY, "delta.identity.start": "1"},
                {**IDENTITY, "delta.identity.start": 2**63},
                {**IDENTITY, "delta.identity.allowExplicitInsert": 1},
                {"delta.identity.start": 1},
                {"delta.identity.allowExplicitInsert": True},
            )
        ),
        (TableDefinition(schema=StructType((field("n", LONG, **{"delta.invariants": "x"}),))), InvalidSchemaError, ["column n"]),
        (TableDefinition(schema=struct(a=PrimitiveType("void"))), UnsupportedTypeError, ["column a", "void"]),
        (TableDefinition(schema=struct(a=LONG), properties={"delta.apendOnly": "true"}), InvalidTablePropertyError, ["delta.appendOnly"]),
        (
            TableDefinition(schema=struct(a=LONG), properties={"delta.appendOnly": "true", "delta.APPENDONLY": "false"}),
            InvalidTablePropertyError,
            ["delta.appendOnly is given twice"],
        ),
        (TableDefinition(schema=struct(a=LONG), properties={"delta.feature.gone": "supported"}), LakelogError, ["gone"]),
    ],
)
def test_definitions_that_no_table_can_have(definition: TableDefinition, error: type[LakelogError], told: list[str]) -> None:
    with pytest.raises(error) as caught:
        define(definition)
    assert all(part in str(caught.value) for part in ["Delta table /t", *told])


def test_a_table_that_was_clustered_is_never_partitioned() -> None:
    before = made(struct(a=LONG), cluster_by=("a",))
    with pytest.raises(PartitionColumnError, match=r"Delta table /t: .*partitioned by \(b\).*feature clustering.*another path"):
        define(TableDefinition(schema=struct(a=LONG, b=LONG), partition_by=("b",)), before)


def test_a_table_that_is_what_the_definition_says() -> None:
    there = made(
        StructType((field("Id", LONG, **IDENTITY), field("d", STRING, nullable=False, comment="x"))),
        cluster_by=("d",),
        properties={"own": "1", "delta.columnMapping.mode": "name"},
        comment="theirs",
    )
    check_same(TableDefinition(), there, table="/t")
    check_same(TableDefinition(comment="mine", properties={"own": "1"}), there, table="/t")
    check_same(TableDefinition(properties={"delta.columnmapping.MODE": "name", "delta.feature.clustering": "supported"}), there, table="/t")
    check_same(
        TableDefinition(
            schema=StructType((field("d", STRING, nullable=False, comment="x"), field("Id", LONG, **IDENTITY))), cluster_by=("D",)
        ),
        there,
        table="/t",
    )


def test_every_difference_is_listed() -> None:
    there = made(
        StructType((field("a", LONG, comment="x"), field("b", LONG, nullable=False), field("c", ArrayType(LONG, False)), field("d", LONG))),
        partition_by=("d",),
        properties={"own": "1"},
    )
    given = StructType((field("A", STRING), field("b", LONG, **IDENTITY), field("c", ArrayType(LONG, True)), field("extra", LONG)))
    definition = TableDefinition(schema=given, properties={"own": "2", "mine": "3"}, cluster_by=("b",))
    with pytest.raises(SchemaMismatchError, match=r"Delta table /t: a table stands there already, at version 0") as caught:
        check_same(definition, there, table="/t")
    assert caught.value.differences == (
        "column a, name: A in the definition, a in the table",
        "column a, type: string in the definition, long in the table",
        "column a, comment: none in the definition, 'x' in the table",
        "column b: nullable in the definition, NOT NULL in the table",
        "column b, delta.identity.allowExplicitInsert: False in the definition, none in the table",
        "column b, delta.identity.start: 1 in the definition, none in the table",
        "column b, delta.identity.step: 1 in the definition, none in the table",
        "column c: the two types array<long> differ in which of their parts may be null or in what those carry",
        "column extra long: the table has no such column",
        "column d long: the definition leaves it out",
        "partitioning: () in the definition, (d) in the table",
        "clustering: (b) in the definition, () in the table",
        "table property own: '2' in the definition, '1' in the table",
        "table property mine: '3' in the definition, unset in the table",
    )
    assert "Leave out of the definition" in str(caught.value)


def test_partitioning_alone_is_compared_too() -> None:
    there = made(struct(a=LONG, b=LONG), partition_by=("b",))
    check_same(TableDefinition(partition_by=("B",)), there, table="/t")
    with pytest.raises(SchemaMismatchError, match=r"partitioning: \(a\) in the definition, \(b\) in the table"):
        check_same(TableDefinition(partition_by=("a",)), there, table="/t")


def test_too_many_clustering_columns() -> None:
    columns = dict.fromkeys("abcde", LONG)
    with pytest.raises(InvalidRequestError, match="at most 4"):
        define(TableDefinition(schema=struct(**columns), cluster_by=tuple(columns)))
