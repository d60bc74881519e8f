"""What a write does to its table's metadata. There are five cases:

1. There is no table: the write makes its metadata from the data's schema, the partitioning and the properties that it gives.
2. ``overwriteSchema`` with mode overwrite, and the data's schema, the partitioning or the clustering differ: the write's replace the
   table's. What columns promised is gone with them: NOT NULL, defaults, generation, identity. A write without ``partitionBy`` leaves the
   table unpartitioned, one without ``clusterBy`` unclustered. Id, name, description, properties and time of creation stay.
3. ``mergeSchema``, and the data has what the table has not: `lakelog.core.schema_evolution` merges the two.
4. The data or the partitioning differs in a way that neither option covers: the write is refused, column by column.
5. Otherwise nothing changes.

Partitioning is half of every case: outside of 1 and 2 a write that names other partition columns than the table's is refused, with both
lists; mergeSchema never repartitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelog.core import clustering
from lakelog.core.actions import DomainMetadata, Metadata
from lakelog.core.column_references import Expression, expressions
from lakelog.core.constraints import check_constraints_readable
from lakelog.core.errors import InvalidOptionError, InvalidSchemaError, PartitionColumnError, SchemaMismatchError
from lakelog.core.field_metadata import COLUMN_ID, NESTED_IDS, PHYSICAL_NAME, user_schema
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, nullable_schema
from lakelog.core.schema_changes import column_text, quoted
from lakelog.core.schema_compare import (
    ColumnPlan,
    Difference,
    DifferenceKind,
    check_partition_columns,
    compared,
    mismatch,
)
from lakelog.core.schema_evolution import merged, untyped_fields
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import TableChange, table_change
from lakelog.core.table_features import writer_features
from lakelog.core.table_properties import TYPE_WIDENING
from lakelog.core.type_widening import recorded

_MERGE = '.option("mergeSchema", "true")'
_OVERWRITE = '.option("overwriteSchema", "true")'
_WIDENING_FEATURES = frozenset({"typeWidening", "typeWidening-preview"})
_MAPPING_KEYS = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """What a write asks of its table's metadata.

    Attributes:
        overwrite: the mode is overwrite.
        partition_by: columns of ``partitionBy``; None where it was not called.
        cluster_by: columns of ``clusterBy`` as SQL spells them; None where it was not called.
        partial: the overwrite replaces a part of the table: replaceWhere, replaceOn, replaceUsing, or dynamic partition overwrite.
        dynamic: the overwrite replaces the partitions that it writes to; counts where the table is partitioned.
        properties: of a new table.
        description: of a new table.
    """

    overwrite: bool = False
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    partial: bool = False
    dynamic: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetadataUpdate:
    """What a write's metadata comes to.

    Attributes:
        change: the actions to commit, none where nothing changes, and what is in force afterwards.
        schema: the table's afterwards.
        plans: how each of its columns is made from the data.
        partition_columns: the table's afterwards, spelled as its schema spells them.
        domains: to commit beside ``change``: new clustering columns.
        left_out: fields of the data that have no type (void) and that the table does not have; they are not written.
    """

    change: TableChange
    schema: StructType
    plans: tuple[ColumnPlan, ...]
    partition_columns: tuple[str, ...]
    domains: tuple[DomainMetadata, ...] = ()
    left_out: tuple[str, ...] = ()


def update_for_write(
    current: Snapshot | None,
    data: StructType,
    request: SchemaRequest,
    *,
    table: str,
    new_uuid: Callable[[], str],
    now_ms: int,
) -> MetadataUpdate:
    """The metadata that a write leaves the table with, and how the data's columns become the table's. The cases are the module's.

    Args:
        current: the table as it is, None where there is none.
        data: the schema of the data. Its nullability and what its fields promise by their metadata do not count.
        request: what the write was told.
        table: the table's root, for messages.
        new_uuid: unique text.
        now_ms: the time, milliseconds since the epoch.

    Raises:
        SchemaMismatchError: the data's schema does not fit; lists every difference, that of the partitioning too. Or a column changes
            that a CHECK constraint, an invariant or a generated column reads.
        PartitionColumnError: the partitioning is not the table's, or cannot be a table's.
        InvalidSchemaError, UnsupportedTypeError, ColumnNotFoundError: no table can have these columns, or be clustered by them.
        InvalidOptionError: ``overwriteSchema`` with dynamic partition overwrite.
        InvalidTablePropertyError, UnsupportedFeatureError: properties that no table can be given.
        CorruptLogError: an invariant of the table that cannot be read.
    """
    data = user_schema(data)
    # Case 1.
    if current is None:
        return _created(data, request, table=table, new_uuid=new_uuid, now_ms=now_ms)
    check_constraints_readable(current.metadata, current.schema, table)
    if request.overwrite_schema and request.overwrite:
        if request.dynamic and (current.partition_columns or request.partition_by):
            raise InvalidOptionError(
                f"Delta table {table}: overwriteSchema replaces the schema of the whole table, dynamic partition overwrite a part of its "
                "rows. Leave out one of the two."
            )
        if not request.partial:
            # Cases 2 and 5.
            return _replaced(current, data, request, table=table, new_uuid=new_uuid)
    # Cases 3, 4 and 5.
    return _fitted(current, data, request, table=table, new_uuid=new_uuid)


def _created(data: StructType, request: SchemaRequest, *, table: str, new_uuid: Callable[[], str], now_ms: int) -> MetadataUpdate:
    schema = _storable(data, table)
    partition_columns = check_partition_columns(schema, request.partition_by or (), table_name=table)
    clustered = _clustering(schema, request, partition_columns, request.properties, table)
    metadata = Metadata(
        id=new_uuid(),
        description=request.description,
        schema_string=schema.to_json(),
        partition_columns=partition_columns,
        configuration=request.properties,
        created_time=now_ms,
    )
    change = table_change(None, metadata, table=table, new_uuid=new_uuid, features=(clustering.FEATURE,) if clustered else ())
    domains = (clustering.clustering_domain(change.schema, clustered),) if clustered else ()
    plans, _ = compared(change.schema, data, table_name=table)
    return _update(change, plans, domains=domains)


def _replaced(current: Snapshot, data: StructType, request: SchemaRequest, *, table: str, new_uuid: Callable[[], str]) -> MetadataUpdate:
    _, differences = compared(current.schema, data, table_name=table)
    if given := [difference for difference in differences if difference.kind is DifferenceKind.GIVEN]:
        raise mismatch(given, table_name=table, remedy="Leave the columns out of the data whose values the table makes.")
    schema = _with_mapping_of(current.schema, _storable(data, table))
    partition_columns = check_partition_columns(schema, request.partition_by or (), table_name=table)
    clustered = _clustering(schema, request, partition_columns, current.metadata.configuration, table)
    _check_constraints_kept(current, schema, table)
    before = clustering.clustering_columns(current.schema, current.domains, table=table)
    if schema == current.schema and partition_columns == current.partition_columns and clustered == before:
        return _update(_unchanged(current), compared(schema, data, table_name=table)[0])
    metadata = replace(current.metadata, schema_string=schema.to_json(), partition_columns=partition_columns)
    change = table_change(current, metadata, table=table, new_uuid=new_uuid, features=(clustering.FEATURE,) if clustered else ())
    domains = (clustering.clustering_domain(change.schema, clustered),) if clustered or before else ()
    plans, _ = compared(change.schema, data, table_name=table)
    return _update(change, plans, domains=domains)


def _fitted(current: Snapshot, data: StructType, request: SchemaRequest, *, table: str, new_uuid: Callable[[], str]) -> MetadataUpdate:
    features = writer_features(current.protocol)
    widen = TYPE_WIDENING.of(current.metadata.configuration) and bool(_WIDENING_FEATURES & features)
    schema = merged(current.schema, data, widen=widen) if request.merge_schema else current.schema
    plans, differences = compared(schema, data, table_name=table, drop_void=request.merge_schema)
    layout = _layout_difference(current, request, table)
    # Case 4.
    if differences:
        remedies = [*_schema_remedies(current, data, differences, widen=widen, table=table)]
        told = [*differences]
        if layout:
            remedies += _layout_remedies(request)
            told.append(Difference(DifferenceKind.LAYOUT, layout))
        raise mismatch(told, table_name=table, remedy=" ".join((*remedies, *_overwriting(request))))
    if layout:
        remedy = " ".join((*_layout_remedies(request), *_overwriting(request)))
        raise PartitionColumnError(f"Delta table {table}: {layout}. {remedy}")
    # What the data has no type for is not missed: a later write that gives it one brings it in.
    untyped = untyped_fields(current.schema, data) if request.merge_schema else ()
    # Case 5.
    if schema is current.schema:
        return _update(_unchanged(current), plans, left_out=untyped)
    # Case 3.
    _check_expressions_kept(current, schema, table)
    if _WIDENING_FEATURES & features:
        schema = recorded(schema, current.schema)
    change = table_change(current, replace(current.metadata, schema_string=schema.to_json()), table=table, new_uuid=new_uuid)
    plans, _ = compared(change.schema, data, table_name=table, drop_void=True)
    return _update(change, plans, left_out=untyped)


def _update(
    change: TableChange, plans: tuple[ColumnPlan, ...], *, domains: tuple[DomainMetadata, ...] = (), left_out: tuple[str, ...] = ()
) -> MetadataUpdate:
    columns = change.metadata.partition_columns
    return MetadataUpdate(change=change, schema=change.schema, plans=plans, partition_columns=columns, domains=domains, left_out=left_out)


def _unchanged(current: Snapshot) -> TableChange:
    return TableChange(metadata=current.metadata, protocol=current.protocol, schema=current.schema, actions=())


def _storable(data: StructType, table: str) -> StructType:
    """The schema of a table that takes the data's as it is."""
    if not data.fields:
        raise InvalidSchemaError(f"Delta table {table}: the data has no column. Write at least one.")
    return nullable_schema(data)


def _clustering(
    schema: StructType, request: SchemaRequest, partition_columns: Sequence[str], configuration: Mapping[str, str], table: str
) -> tuple[clustering.ColumnPath, ...]:
    if not request.cluster_by:
        return ()
    return clustering.check_clustering(
        schema, request.cluster_by, partition_columns=partition_columns, configuration=configuration, table=table
    )


def _with_mapping_of(table: StructType, schema: StructType) -> StructType:
    """A schema whose fields keep the ids and physical names of the table's fields of the same name and type."""
    known = {f.name.lower(): f for f in table.fields}
    return StructType(tuple(_with_mapping_of_field(known.get(f.name.lower()), f) for f in schema.fields))


def _with_mapping_of_field(known: StructField | None, new: StructField) -> StructField:
    if known is None or not _alike(known.type, new.type):
        return new
    kept = {key: known.metadata[key] for key in _MAPPING_KEYS if key in known.metadata}
    return replace(new, type=_with_mapping_inside(known.type, new.type), metadata={**new.metadata, **kept})


def _with_mapping_inside(known: DataType, new: DataType) -> DataType:
    match known, new:
        case StructType(), StructType():
            return _with_mapping_of(known, new)
        case ArrayType(), ArrayType():
            return replace(new, element=_with_mapping_inside(known.element, new.element))
        case MapType(), MapType():
            key, value = _with_mapping_inside(known.key, new.key), _with_mapping_inside(known.value, new.value)
            return replace(new, key=key, value=value)
        case _:
            return new


def _alike(known: DataType, new: DataType) -> bool:
    """Whether types are of the same shape down to their structs."""
    match known, new:
        case StructType(), StructType():
            return True
        case ArrayType(), ArrayType():
            return _alike(known.element, new.element)
        case MapType(), MapType():
            return _alike(known.key, new.key) and _alike(known.value, new.value)
        case _:
            return known == new


def _layout_difference(current: Snapshot, request: SchemaRequest, table: str) -> str:
    """How the write's partitioning or clustering differs from the table's; empty where it does not."""
    given, there = request.partition_by, current.partition_columns
    if given is not None and [name.lower() for name in given] != [name.lower() for name in there]:
        return f"partitioning: the table is partitioned by ({', '.join(there)}), the write asks for ({', '.join(given)})"
    if request.cluster_by is None:
        return ""
    wanted = _clustering(current.schema, request, there, current.metadata.configuration, table)
    before = clustering.clustering_columns(current.schema, current.domains, table=table)
    if wanted == before:
        return ""
    told = tuple(", ".join(column_text(path) for path in paths) for paths in (before, wanted))
    return f"clustering: the table is clustered by ({told[0]}), the write asks for ({told[1]})"


def _layout_remedies(request: SchemaRequest) -> Iterator[str]:
    yield "Leave partitionBy and clusterBy out, or give the table's columns in the table's order."
    if request.merge_schema:
        yield "mergeSchema never changes the partitioning."


def _schema_remedies(current: Snapshot, data: StructType, differences: Sequence[Difference], *, widen: bool, table: str) -> Iterator[str]:
    """What helps against the differences: each way that does, and only those."""

    def left(*, widen: bool) -> int:
        schema = merged(current.schema, data, widen=widen)
        return len(compared(schema, data, table_name=table, drop_void=True)[1])

    after_merge = left(widen=widen)
    if after_merge < len(differences):
        rest = ", the other differences stay" if after_merge else ""
        yield f"{_MERGE} takes the data's new columns and wider types into the table{rest}."
    if not widen and left(widen=True) < after_merge:
        yield f"With the table property {TYPE_WIDENING.key} = true, mergeSchema also widens types such as integer to long."
    if after_merge:
        yield "Select and cast the data's columns to those of the table."
    if any(difference.kind is DifferenceKind.GIVEN for difference in differences):
        yield "Leave the columns out of the data whose values the table makes."


def _overwriting(request: SchemaRequest) -> Iterator[str]:
    if request.overwrite and not request.partial:
        yield f"{_OVERWRITE} replaces the table's schema and partitioning by those of the write."
    elif request.overwrite_schema:
        yield 'overwriteSchema counts only with mode("overwrite") of the whole table, without replaceWhere and the like.'


def _check_constraints_kept(current: Snapshot, schema: StructType, table: str) -> None:
    """Refuse a new schema without a column that a CHECK constraint reads: the constraint stays, and no row would meet it."""
    found = [
        (f"column {'.'.join(known)}: the data has no such column, {check.what} reads it", check)
        for check in expressions(current.schema, current.metadata.configuration)
        for path in sorted(check.columns)
        if check.constraint is not None and (known := _resolved(current.schema, path)) and not _resolved(schema, path)
    ]
    if found:
        raise _expression_error([text for text, _ in found], "Keep the columns", [check for _, check in found], table)


def _resolved(schema: StructType, path: Sequence[str]) -> tuple[str, ...]:
    """A path as the schema spells it, up to where it leaves structs; empty where the schema has no such column."""
    found: list[str] = []
    here: DataType = schema
    for name in path:
        if not isinstance(here, StructType):
            break
        known = next((f for f in here.fields if f.name.lower() == name), None)
        if known is None:
            return ()
        found.append(known.name)
        here = known.type
    return tuple(found)


def _check_expressions_kept(current: Snapshot, schema: StructType, table: str) -> None:
    """Refuse types that change under an expression which holds for the table: what it says of old rows may no longer be so."""
    known = expressions(current.schema, current.metadata.configuration)
    if not known:
        return
    found = [
        (f"column {'.'.join(path)}: it goes from {before} to {after}, {expression.what} reads it", expression)
        for path, before, after in _changed(current.schema, schema, ())
        for expression in known
        # What reads a field of a struct does not mind that the struct has more of them.
        if expression.reads(path, fields=not isinstance(before, StructType))
    ]
    if found:
        raise _expression_error([text for text, _ in found], "Cast the data to the table's types", [one for _, one in found], table)


def _expression_error(told: Sequence[str], instead: str, blamed: Sequence[Expression], table: str) -> SchemaMismatchError:
    names = sorted({one.constraint for one in blamed if one.constraint is not None})
    drop = "".join(f", or drop the constraint first: ALTER TABLE delta.`{table}` DROP CONSTRAINT {quoted(name)}" for name in names)
    return SchemaMismatchError(
        f"Delta table {table}: the write would change columns that the table's own expressions read:\n"
        + "".join(f"  - {text}\n" for text in told)
        + f"{instead}{drop}.",
        differences=told,
    )


def _changed(before: DataType, after: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType, DataType]]:
    """Every part whose type is another now: plain types, arrays and maps as a whole, structs that have new fields."""
    if isinstance(before, StructType) and isinstance(after, StructType):
        if path and len(before.fields) != len(after.fields):
            yield path, before, after
        for old, new in zip(before.fields, after.fields, strict=False):
            yield from _changed(old.type, new.type, (*path, old.name))
    elif before != after:
        yield path, before, after
