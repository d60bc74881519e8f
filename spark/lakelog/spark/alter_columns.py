"""ALTER TABLE of columns: what a statement makes of the table's schema, and which rows must be looked at first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from lakelog.core import table_operations
from lakelog.core.actions import Metadata
from lakelog.core.clustering import clustering_columns
from lakelog.core.column_mapping import MappingMode
from lakelog.core.column_replacement import replaced
from lakelog.core.commit_info import Operation
from lakelog.core.constraints import check_constraints_readable, invariant_expression
from lakelog.core.errors import UnsupportedOperationError, UnsupportedTypeError
from lakelog.core.field_metadata import (
    CHAR_VARCHAR_TYPE,
    COMMENT,
    CURRENT_DEFAULT,
    GENERATION_EXPRESSION,
    IDENTITY_START,
    INVARIANTS,
)
from lakelog.core.schema import StructField, StructType, parse_schema, walk
from lakelog.core.schema_changes import (
    ColumnPath,
    Position,
    added,
    changed,
    column_text,
    depends_on,
    dropped,
    field_at,
    is_part,
    moved,
    needs_mapping,
    not_null_columns,
    nothing_there,
    renamed,
    resolved,
    retyped,
    statistics_columns,
    within,
)
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_operations import ToldColumn
from lakelog.core.table_properties import CONSTRAINT_PREFIX, STATS_COLUMNS, TYPE_WIDENING
from lakelog.core.type_widening import recorded
from lakelog.spark.expressions import check_columns, references

Change: TypeAlias = Mapping[str, Any]

_ON_IDENTITY = ("UpdateColumnComment", "UpdateColumnPosition", "RenameColumn")
CHANGES_OF_COLUMNS = frozenset(
    {"UpdateColumnType", "UpdateColumnNullability", "UpdateColumnComment", "UpdateColumnPosition", "UpdateColumnDefaultValue"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsAltered:
    """What a statement comes to.

    Attributes:
        metadata: the table's after it, its column mapping and protocol not brought up to it yet.
        operation: for the history.
        not_null: columns that hold no null from now on, by the table's names before; their rows are to be looked at.
    """

    metadata: Metadata
    operation: Operation
    not_null: tuple[ColumnPath, ...] = ()


def add_columns(_spark: SparkSession, snapshot: Snapshot, changes: Sequence[Change]) -> ColumnsAltered:
    """``ADD COLUMNS``.

    Raises:
        UnsupportedOperationError: a column that is NOT NULL or has a default, or one below something that is no struct.
        InvalidSchemaError, ColumnNotFoundError: the name is taken, or what the column is to go into or behind is not there.
    """
    schema, root = snapshot.schema, snapshot.root
    told = []
    for change in changes:
        *parent, _ = change["column"]
        new, position = _new_field(change, root), _position(change)
        schema = added(schema, parent, new, position, table=root)
        told.append(ToldColumn(parent=resolved(schema, parent, table=root), field=new, position=position))
    return _altered(snapshot, schema, table_operations.add_columns(told))


def drop_columns(spark: SparkSession, snapshot: Snapshot, changes: Sequence[Change]) -> ColumnsAltered:
    """``DROP COLUMNS``.

    Raises:
        UnsupportedOperationError: the table has no column mapping; the column is its last, a partition or clustering column, or one that
            an expression of the table refers to.
        ColumnNotFoundError: it is not there.
    """
    schema, root = snapshot.schema, snapshot.root
    paths = [resolved(schema, change["column"], table=root) for change in changes]
    if snapshot.mapping is MappingMode.NONE:
        raise UnsupportedOperationError(needs_mapping(root, f"DROP COLUMN {', '.join(column_text(path) for path in paths)}"))
    configuration = dict(snapshot.metadata.configuration)
    for path in paths:
        _check_droppable(snapshot, path)
        _check_independent(spark, snapshot, path, "dropped")
        schema = dropped(schema, path, table=root)
        _keep_statistics(configuration, path, None)
    return _altered(snapshot, schema, table_operations.drop_columns(paths), configuration=configuration)


def rename_column(spark: SparkSession, snapshot: Snapshot, changes: Sequence[Change]) -> ColumnsAltered:
    """``RENAME COLUMN``.

    Raises:
        UnsupportedOperationError: the table has no column mapping, or an expression of the table refers to the column.
        InvalidSchemaError, ColumnNotFoundError: the new name is taken; the column is not there.
    """
    root, metadata = snapshot.root, snapshot.metadata
    (change,) = changes
    path, name = resolved(snapshot.schema, change["column"], table=root), str(change["name"])
    new_path = (*path[:-1], name)
    if snapshot.mapping is MappingMode.NONE:
        raise UnsupportedOperationError(needs_mapping(root, f"RENAME COLUMN {column_text(path)}"))
    _check_independent(spark, snapshot, path, "renamed")
    schema = renamed(snapshot.schema, path, name, table=root)
    configuration = dict(metadata.configuration)
    _keep_statistics(configuration, path, new_path)
    partitions = tuple(name if (column,) == path else column for column in metadata.partition_columns)
    made = _altered(snapshot, schema, table_operations.rename_column(path, new_path), configuration=configuration)
    return replace(made, metadata=replace(made.metadata, partition_columns=partitions))


def change_columns(spark: SparkSession, snapshot: Snapshot, changes: Sequence[Change]) -> ColumnsAltered:
    """``ALTER COLUMN`` and ``CHANGE COLUMN``, of one or more columns.

    Raises:
        SchemaMismatchError: a type that old files cannot be read as.
        UnsupportedOperationError: what cannot be done to a partition or identity column, or to a part of an array or map.
        InvalidExpressionError: a default that is none.
    """
    schema, root = snapshot.schema, snapshot.root
    told: dict[ColumnPath, Position | None] = {}
    strict: list[ColumnPath] = []
    for change in changes:
        path = resolved(schema, change["column"], table=root)
        told.setdefault(path, None)
        before = field_at(schema, path)
        _check_changeable(snapshot, path, before, change["kind"])
        match change["kind"]:
            case "UpdateColumnPosition":
                told[path] = position = _required_position(change)
                schema = moved(schema, path, position, table=root)
                continue
            case "UpdateColumnType":
                after = _retyped(spark, snapshot, path, before, change)
            case "UpdateColumnNullability":
                after = replace(before, nullable=bool(change["nullable"]))
                if before.nullable and not after.nullable:
                    strict.append(path)
            case "UpdateColumnComment":
                after = replace(before, metadata={**before.metadata, COMMENT: str(change["comment"])})
            case _:
                after = _with_default(spark, snapshot, path, before, change.get("default"))
        schema = changed(schema, path, _constantly(after))
    columns = [ToldColumn(parent=path[:-1], field=field_at(schema, path), position=position) for path, position in told.items()]
    made = _altered(snapshot, _with_history(snapshot, schema), table_operations.change_columns(columns))
    return replace(made, not_null=tuple(strict))


def replace_columns(spark: SparkSession, snapshot: Snapshot, changes: Sequence[Change]) -> ColumnsAltered:
    """``REPLACE COLUMNS``.

    Raises:
        UnsupportedOperationError, SchemaMismatchError: as the columns by themselves could not be dropped, added or changed so.
    """
    root = snapshot.root
    given = StructType(tuple(_new_field(change, root, strict=True) for change in changes if change["kind"] == "AddColumn"))
    schema = replaced(snapshot.schema, given, mapped=snapshot.mapping is not MappingMode.NONE, widen=_widens(snapshot), table=root)
    configuration = dict(snapshot.metadata.configuration)
    now = {tuple(name.lower() for name in path): field for path, field in walk(schema)}
    for path, before in walk(snapshot.schema):
        after = now.get(tuple(name.lower() for name in path))
        if after is None:
            if path[:-1] and tuple(name.lower() for name in path[:-1]) not in now and not is_part(snapshot.schema, path[:-1]):
                continue
            _check_droppable(snapshot, path)
            _check_independent(spark, snapshot, path, "left out")
            _keep_statistics(configuration, path, None)
        elif str(after.type) != str(before.type) and not isinstance(before.type, StructType):
            _check_not_partition(snapshot, path)
            _check_independent(spark, snapshot, path, "changed")
    return _altered(snapshot, _with_history(snapshot, schema), table_operations.replace_columns(given), configuration=configuration)


def _altered(
    snapshot: Snapshot, schema: StructType, operation: Operation, *, configuration: Mapping[str, str] | None = None
) -> ColumnsAltered:
    metadata = snapshot.metadata
    if schema != snapshot.schema:
        metadata = replace(metadata, schema_string=schema.to_json())
    if configuration is not None and configuration != metadata.configuration:
        metadata = replace(metadata, configuration=dict(configuration))
    return ColumnsAltered(metadata=metadata, operation=operation)


def _constantly(made: StructField) -> Callable[[StructField], StructField]:
    return lambda _: made


def _new_field(change: Change, root: str, *, strict: bool = False) -> StructField:
    """The field of an AddColumn. ``strict`` lets NOT NULL pass, which is judged beside what the table has then."""
    *parent, name = change["column"]
    made = _given(change, root)
    if change.get("default") is not None:
        raise UnsupportedOperationError(
            f"Delta table {root}: column {column_text((*parent, name))} cannot be added with a default, for the rows that are there would "
            "have to be rewritten. Add the column first, then ALTER COLUMN ... SET DEFAULT, which counts for new rows."
        )
    if not strict and (names := not_null_columns(made)):
        raise UnsupportedOperationError(nothing_there(root, ", ".join(column_text((*parent, *path)) for path in names)))
    comment = change.get("comment")
    return made if comment is None else replace(made, metadata={**made.metadata, COMMENT: str(comment)})


def _given(change: Change, root: str) -> StructField:
    """The one field of a change's schema."""
    try:
        (given,) = parse_schema(change["schema"]).fields
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"Delta table {root}: {error}") from None
    return given


def _position(change: Change) -> Position | None:
    told = change.get("position")
    return None if told is None else Position(after=told["after"])


def _required_position(change: Change) -> Position:
    return _position(change) or Position(after=None)


def _widens(snapshot: Snapshot) -> bool:
    return TYPE_WIDENING.of(snapshot.metadata.configuration)


def _with_history(snapshot: Snapshot, schema: StructType) -> StructType:
    return recorded(schema, snapshot.schema) if _widens(snapshot) else schema


def _retyped(spark: SparkSession, snapshot: Snapshot, path: ColumnPath, before: StructField, change: Change) -> StructField:
    given = _given(change, snapshot.root)
    if given.type != before.type:
        _check_not_partition(snapshot, path)
        _check_independent(spark, snapshot, path, "changed")
    if is_part(snapshot.schema, path) and CHAR_VARCHAR_TYPE in given.metadata:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: {column_text(path)} cannot become {given.metadata[CHAR_VARCHAR_TYPE]}, for strings in arrays "
            "and maps keep the length that they were made with. Leave it a string."
        )
    return retyped(before, given, path, widen=_widens(snapshot), table=snapshot.root)


def _with_default(spark: SparkSession, snapshot: Snapshot, path: ColumnPath, before: StructField, default: object) -> StructField:
    metadata = {key: value for key, value in before.metadata.items() if key != CURRENT_DEFAULT}
    if not default:
        return replace(before, metadata=metadata)
    if len(path) > 1 or GENERATION_EXPRESSION in before.metadata:
        why = "a part of another column" if len(path) > 1 else "computed from other columns"
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: column {column_text(path)} cannot have a default, for it is {why}. Give defaults to plain "
            "columns of the table."
        )
    made = replace(before, metadata={**metadata, CURRENT_DEFAULT: str(default)})
    check_columns(spark, StructType((made,)), snapshot.root)
    return made


def _check_changeable(snapshot: Snapshot, path: ColumnPath, before: StructField, kind: str) -> None:
    if IDENTITY_START in before.metadata and kind not in _ON_IDENTITY:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: column {column_text(path)} is an identity column, of which only the name, the comment and the "
            "position can be changed. Make a new column for anything else."
        )
    if GENERATION_EXPRESSION in before.metadata and kind == "UpdateColumnType":
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: column {column_text(path)} is generated as {before.metadata[GENERATION_EXPRESSION]}, whose type "
            "it must have. Make the table anew with another expression instead."
        )
    if is_part(snapshot.schema, path) and kind != "UpdateColumnType":
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: {column_text(path)} is a part of an array or map, of which only the type can be changed. Change "
            f"{column_text(path[:-1])} instead."
        )


def _check_droppable(snapshot: Snapshot, path: ColumnPath) -> None:
    root = snapshot.root
    if len(path) == 1 and any(column.lower() == path[0].lower() for column in snapshot.partition_columns):
        raise UnsupportedOperationError(
            f"Delta table {root}: column {column_text(path)} partitions the table and cannot be dropped. Write the table anew without the "
            'partitioning first: mode("overwrite") with overwriteSchema.'
        )
    clustering = clustering_columns(snapshot.schema, snapshot.domains, table=root)
    if found := [column for column in clustering if within(column, path)]:
        raise UnsupportedOperationError(
            f"Delta table {root}: column {column_text(path)} cannot be dropped, for the table is clustered by {column_text(found[0])}. "
            f"Cluster by other columns first: ALTER TABLE delta.`{root}` CLUSTER BY NONE."
        )


def _check_not_partition(snapshot: Snapshot, path: ColumnPath) -> None:
    if len(path) == 1 and any(column.lower() == path[0].lower() for column in snapshot.partition_columns):
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: column {column_text(path)} partitions the table, and its type cannot be changed. Write the "
            'table anew with the type wanted: mode("overwrite") with overwriteSchema.'
        )


def _check_independent(spark: SparkSession, snapshot: Snapshot, path: ColumnPath, verb: str) -> None:
    """That no expression which the table keeps refers to a column.

    Raises:
        UnsupportedOperationError: one does; names all.
    """
    found = []
    for owner, what, sql in _expressions(snapshot):
        # What a column computes or demands goes with it.
        if verb in ("dropped", "left out") and owner is not None and within(owner, path):
            continue
        if any(depends_on(reference, snapshot.schema, path) for reference in references(spark, sql)):
            found.append(f"{what} ({sql})")
    if found:
        raise UnsupportedOperationError(
            f"Delta table {snapshot.root}: column {column_text(path)} cannot be {verb}, for {', '.join(found)} "
            f"refer{'' if len(found) > 1 else 's'} to it. Drop what refers to it first: ALTER TABLE ... DROP CONSTRAINT for a constraint, "
            "DROP COLUMN for a generated column."
        )


def _expressions(snapshot: Snapshot) -> list[tuple[ColumnPath | None, str, str]]:
    """The column that it belongs to, what it is, and its SQL, for each expression that the table keeps about its rows."""
    check_constraints_readable(snapshot.metadata, snapshot.schema, snapshot.root)
    found: list[tuple[ColumnPath | None, str, str]] = [
        (None, f"the CHECK constraint {key[len(CONSTRAINT_PREFIX) :]}", sql)
        for key, sql in snapshot.metadata.configuration.items()
        if key.startswith(CONSTRAINT_PREFIX)
    ]
    for path, column in walk(snapshot.schema):
        if GENERATION_EXPRESSION in column.metadata:
            found.append((path, f"the generated column {column_text(path)}", str(column.metadata[GENERATION_EXPRESSION])))
        if INVARIANTS in column.metadata:
            found.append((path, f"the invariant of column {column_text(path)}", invariant_expression(column, path)))
    return found


def _keep_statistics(configuration: dict[str, str], path: ColumnPath, to: ColumnPath | None) -> None:
    """Let the list of columns with statistics follow a column that is renamed or dropped."""
    names = configuration.get(STATS_COLUMNS.key)
    if names is not None:
        configuration[STATS_COLUMNS.key] = statistics_columns(names, path, to)
