"""A table as its creator defines it: what is committed for the definition, and how it differs from a table that is there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakelog.core import clustering
from lakelog.core.actions import Action, Metadata
from lakelog.core.clustering import ColumnPath, check_clustering, clustering_columns
from lakelog.core.commit_info import Operation, json_text
from lakelog.core.constraints import constraints_of
from lakelog.core.errors import CorruptLogError, InvalidSchemaError, PartitionColumnError, SchemaMismatchError, UnsupportedTypeError
from lakelog.core.field_metadata import (
    COLUMN_ID,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
    NESTED_IDS,
    PARQUET_FIELD_ID,
    PHYSICAL_NAME,
    TYPE_CHANGES,
    without_keys,
)
from lakelog.core.property_checks import canonical, split_directives
from lakelog.core.records import shown
from lakelog.core.schema import PrimitiveType, StructField, StructType, nullable_schema
from lakelog.core.schema_changes import column_text
from lakelog.core.schema_compare import check_partition_columns
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import table_change
from lakelog.core.table_features import feature_names

# What a column gets as a table lives, and no definition says.
_HISTORY_KEYS = frozenset({COLUMN_ID, PHYSICAL_NAME, NESTED_IDS, PARQUET_FIELD_ID, TYPE_CHANGES, IDENTITY_HIGH_WATER_MARK})
_IDENTITY_KEYS = (IDENTITY_START, IDENTITY_STEP, IDENTITY_ALLOWS_EXPLICIT)
_INT64 = range(-(2**63), 2**63)


class CreationMode(StrEnum):
    """What is to happen where a table of the name or at the place exists, and where none does. The value names it in the history."""

    CREATE = "CREATE TABLE"
    CREATE_IF_NOT_EXISTS = "CREATE TABLE IF NOT EXISTS"
    REPLACE = "REPLACE TABLE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE TABLE"

    @property
    def replaces(self) -> bool:
        """A table that exists is made anew."""
        return self in (CreationMode.REPLACE, CreationMode.CREATE_OR_REPLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What a creator says of a table.

    Attributes:
        schema: the columns, with what they promise in their metadata; empty where nothing was said of them.
        partition_by: names of partition columns, in any letter case.
        cluster_by: names of clustering columns, as in SQL.
        properties: table properties, directives among them.
        comment: the table's description.
    """

    schema: StructType = field(default_factory=StructType)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DefinedTable:
    """What a definition comes to.

    Attributes:
        metadata: of the table.
        schema: its schema.
        clustering: its clustering columns.
        actions: protocol, metadata and clustering, those of them that are not in force already.
    """

    metadata: Metadata
    schema: StructType
    clustering: tuple[ColumnPath, ...]
    actions: tuple[Action, ...]

    def operation(self, mode: CreationMode, *, managed: bool, metrics: Mapping[str, int | str] | None = None) -> Operation:
        """The commit's operation, with delta-spark's parameters."""
        name = CreationMode.CREATE if mode is CreationMode.CREATE_IF_NOT_EXISTS else mode
        parameters = {
            "partitionBy": json_text(list(self.metadata.partition_columns)),
            "clusterBy": json_text([column_text(path) for path in self.clustering]),
            "description": self.metadata.description,
            "isManaged": str(managed).lower(),
            "properties": json_text(dict(self.metadata.configuration)),
        }
        return Operation(name=name.value, parameters=parameters, metrics=metrics or {})


def defined(
    definition: TableDefinition,
    current: Snapshot | None,
    *,
    table: str,
    defaults: Mapping[str, str],
    new_uuid: Callable[[], str],
    now_ms: int,
) -> DefinedTable:
    """What must be committed for a table to be as defined: made, or made anew in place of another, whose id it keeps.

    Args:
        definition: checked here.
        current: the table that is replaced; None where there is none.
        table: the table's root, for messages.
        defaults: properties for those that the definition leaves out.
        new_uuid: unique text.
        now_ms: milliseconds since the epoch.

    Raises:
        InvalidSchemaError: there is no column, or one of a name or with metadata that the table cannot have.
        UnsupportedTypeError: a column of a type that Delta cannot hold, an identity column of another type than long.
        PartitionColumnError: partition columns that cannot be, also for a table that was ever clustered.
        ColumnNotFoundError, InvalidRequestError: clustering columns that cannot be; see `check_clustering`.
        InvalidTablePropertyError, UnsupportedFeatureError: see `lakelog.core.table_change.table_change`.
    """
    if not definition.schema.fields:
        raise InvalidSchemaError(f"Delta table {table}: the definition has no column. Give at least one with addColumn or addColumns.")
    schema = without_keys(definition.schema, _HISTORY_KEYS)
    partition_columns = check_partition_columns(schema, definition.partition_by, table_name=table)
    _check_promises(schema, table)
    _check_identity(schema, partition_columns, table)
    configuration = {**canonical(defaults, table), **canonical(definition.properties, table)}
    cluster_by = check_clustering(
        schema, definition.cluster_by, partition_columns=partition_columns, configuration=configuration, table=table
    )
    if partition_columns and current is not None and clustering.FEATURE in feature_names(current.protocol):
        raise PartitionColumnError(
            f"Delta table {table}: it cannot be replaced by one that is partitioned by ({', '.join(partition_columns)}), since its "
            f"protocol has the feature {clustering.FEATURE}, which goes with no partitioning. Cluster it, or make it at another path."
        )
    metadata = Metadata(
        id=new_uuid() if current is None else current.metadata.id,
        name=None if current is None else current.metadata.name,
        description=definition.comment,
        schema_string=schema.to_json(),
        partition_columns=partition_columns,
        configuration=configuration,
        created_time=now_ms,
    )
    features = (clustering.FEATURE,) if cluster_by else ()
    change = table_change(current, metadata, table=table, new_uuid=new_uuid, features=features, replaced=current is not None)
    domains = clustering.domain_changes({} if current is None else current.domains, change.schema, cluster_by)
    return DefinedTable(metadata=change.metadata, schema=change.schema, clustering=cluster_by, actions=(*change.actions, *domains))


def check_same(definition: TableDefinition, snapshot: Snapshot, *, table: str) -> None:
    """That a table which is there is what a definition says, in all that it says. Where it names no column it says nothing of them.

    Raises:
        SchemaMismatchError: lists every difference.
    """
    differences = tuple(_differences(definition, snapshot, table))
    if differences:
        raise SchemaMismatchError(
            f"Delta table {table}: a table stands there already, at version {snapshot.version}, and differs from the definition:\n"
            + "".join(f"  - {difference}\n" for difference in differences)
            + "Leave out of the definition what the table shall keep, replace the table under its own name, or choose another location.",
            differences=differences,
        )


def _differences(definition: TableDefinition, snapshot: Snapshot, table: str) -> Iterator[str]:
    if definition.schema.fields:
        given, there = (without_keys(schema, _HISTORY_KEYS) for schema in (definition.schema, snapshot.schema))
        yield from _column_differences(given, there)
    told = bool(definition.schema.fields or definition.partition_by)
    if told and _lowered(definition.partition_by) != _lowered(snapshot.partition_columns):
        yield _told("partitioning", f"({', '.join(definition.partition_by)})", f"({', '.join(snapshot.partition_columns)})")
    clustered = [column_text(path) for path in clustering_columns(snapshot.schema, snapshot.domains, table=table)]
    if definition.cluster_by and _lowered(definition.cluster_by) != _lowered(clustered):
        yield _told("clustering", f"({', '.join(definition.cluster_by)})", f"({', '.join(clustered)})")
    properties, _ = split_directives(canonical(definition.properties, table), table)
    for key, value in properties.items():
        found = snapshot.metadata.configuration.get(key)
        if found != value:
            yield _told(f"table property {key}", repr(value), "unset" if found is None else repr(found))


def _column_differences(given: StructType, there: StructType) -> Iterator[str]:
    known = {f.name.lower(): f for f in there.fields}
    for column in given.fields:
        found = known.pop(column.name.lower(), None)
        if found is None:
            yield f"column {column.name} {column.type}: the table has no such column"
            continue
        if column.name != found.name:
            yield _told(f"column {found.name}, name", column.name, found.name)
        if column.type != found.type:
            if nullable_schema(StructType((column,))).fields[0].type == nullable_schema(StructType((found,))).fields[0].type:
                yield f"column {found.name}: the two types {found.type} differ in which of their parts may be null or in what those carry"
            else:
                yield _told(f"column {found.name}, type", str(column.type), str(found.type))
        if column.nullable != found.nullable:
            yield _told(f"column {found.name}", _nullability(column), _nullability(found))
        for key in sorted(column.metadata.keys() | found.metadata.keys()):
            one, other = column.metadata.get(key), found.metadata.get(key)
            if one != other:
                yield _told(f"column {found.name}, {key}", "none" if one is None else repr(one), "none" if other is None else repr(other))
    for left in known.values():
        yield f"column {left.name} {left.type}: the definition leaves it out"


def _check_promises(schema: StructType, table: str) -> None:
    """That the invariants and the declared lengths of the columns can be read, which every later write does."""
    try:
        constraints_of({}, schema)
    except CorruptLogError as error:
        raise InvalidSchemaError(
            f"Delta table {table}: {str(error).removesuffix(' Restore the log.')} Leave it out of the column's metadata."
        ) from None


def _check_identity(schema: StructType, partition_columns: Collection[str], table: str) -> None:
    for column in schema.fields:
        told = {key: column.metadata[key] for key in _IDENTITY_KEYS if key in column.metadata}
        if not told:
            continue
        start, step, explicit = (told.get(key) for key in _IDENTITY_KEYS)
        whole = all(isinstance(value, int) and not isinstance(value, bool) and value in _INT64 for value in (start, step))
        if not whole or step == 0 or not isinstance(explicit, bool):
            raise InvalidSchemaError(
                f"Delta table {table}: the identity column {column.name} has the metadata {shown(told)}, by which no number follows: "
                f"{IDENTITY_START} and {IDENTITY_STEP} must be whole numbers, the step not 0, and {IDENTITY_ALLOWS_EXPLICIT} true or "
                "false. Make the column with IdentityGenerator."
            )
        if column.type != PrimitiveType("long"):
            raise UnsupportedTypeError(
                f"Delta table {table}: the identity column {column.name} is of type {column.type}; identity columns are of type BIGINT. "
                "Change its type."
            )
        if column.name in partition_columns:
            raise PartitionColumnError(
                f"Delta table {table}: it cannot be partitioned by {column.name}, an identity column, whose values never repeat. "
                "Partition by another column."
            )


def _told(what: str, given: str, there: str) -> str:
    return f"{what}: {given} in the definition, {there} in the table"


def _nullability(column: StructField) -> str:
    return "nullable" if column.nullable else "NOT NULL"


def _lowered(names: Collection[str]) -> list[str]:
    return [name.lower() for name in names]
