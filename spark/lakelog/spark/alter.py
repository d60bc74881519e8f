"""ALTER TABLE: one statement, one commit.

What Spark asks of the catalog (and what `lakelog.spark.grammar` reads by itself) comes as a list of changes, all of one kind. The kind
says what becomes of the metadata; `lakelog.core.table_change` says what must be committed for that. A statement after which the table is
what it was is committed too, as in delta-spark, with nothing but its line in the history. One that claims something of rows that are
there (a constraint, NOT NULL) looks at all of them, and no other commit may come between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog.core import table_operations
from lakelog.core.actions import Action, Metadata
from lakelog.core.clustering import FEATURE as CLUSTERING
from lakelog.core.clustering import check_clustering, clustering_columns, clustering_domain
from lakelog.core.commit import NOTHING, CommitAttempt, Reads
from lakelog.core.commit_info import Operation
from lakelog.core.constraints import enclosed
from lakelog.core.errors import ConstraintViolationError, InvalidRequestError, UnsupportedOperationError
from lakelog.core.field_metadata import IDENTITY_HIGH_WATER_MARK, IDENTITY_START, IDENTITY_STEP
from lakelog.core.property_checks import canonical, canonical_key, check_settable
from lakelog.core.schema_changes import changed, column_text, field_at, quoted, resolved, violation
from lakelog.core.snapshot import Snapshot
from lakelog.core.table_change import table_change
from lakelog.core.table_features import check_writable, feature_names
from lakelog.core.table_operations import ToldColumn
from lakelog.core.table_properties import CONSTRAINT_PREFIX
from lakelog.spark import alter_columns, jvm, scan
from lakelog.spark.alter_columns import CHANGES_OF_COLUMNS, Change, ColumnsAltered
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.expressions import check_condition, references
from lakelog.spark.features import drop_feature_support
from lakelog.spark.options import user_metadata
from lakelog.spark.transaction import commit, transaction

_SHOWN_ROWS = 5
# The name under which violations of the length of char and varchar columns are told.
_RESERVED = "__char_varchar_string_length_check__"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Altered:
    """What a statement comes to: the metadata as wanted, and what goes with it."""

    metadata: Metadata
    operation: Operation
    reads: Reads = NOTHING
    actions: tuple[Action, ...] = ()
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What a statement is about."""

    context: Context
    spark: SparkSession
    held: HeldSnapshot

    @property
    def snapshot(self) -> Snapshot:
        return self.held.snapshot

    @property
    def root(self) -> str:
        return self.held.snapshot.root


def alter(context: Context, spark: SparkSession, root: str, changes: Sequence[Change]) -> None:
    """Alter a table.

    Args:
        root: the table's root, unencoded.
        changes: as TableChanges and `lakelog.spark.grammar` tell them.

    Raises:
        InvalidRequestError: what was asked cannot be done; names the table, what stands in the way and the remedy.
        ConstraintViolationError: rows that are there do not keep what was asked; shows some.
        InvalidTablePropertyError: a table property cannot be parsed, one that is given or one that is there.
        UnsupportedFeatureError: the table needs a writer feature that lakelog does not implement.
        DeltaConcurrentModificationException: another commit stands in the way.
    """
    kinds = frozenset(str(change["kind"]) for change in changes)
    if kinds == {"DropFeature"}:
        (change,) = changes
        drop_feature_support(context, spark, root, str(change["name"]), bool(change["truncateHistory"]))
        return
    with transaction("ALTER TABLE", root):
        held = context.logs.newest(root)
        snapshot = held.snapshot
        keys = [canonical_key(str(change["key"])) for change in changes if "key" in change]
        check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, snapshot.root, changes=keys)
        table = _Table(context=context, spark=spark, held=held)
        altered = _statement(kinds, changes, table)(table, changes)
        if altered is None:
            return
        made = table_change(snapshot, altered.metadata, table=root, new_uuid=context.environment.new_uuid, features=altered.features)
        attempt = CommitAttempt(
            read_version=snapshot.version,
            actions=(*made.actions, *altered.actions),
            operation=altered.operation,
            engine_info=context.engine_info,
            reads=altered.reads,
            table_id=snapshot.metadata.id,
            user_metadata=user_metadata(spark, root),
        )

        def landed() -> None:
            jvm.refresh_cached(spark, context.hadoop_root(root))

        commit(context, root, attempt, (), landed)
    landed()


_Statement = Callable[[_Table, Sequence[Change]], _Altered | None]


def _statement(kinds: frozenset[str], changes: Sequence[Change], table: _Table) -> _Statement:
    if kinds == {"AddColumn", "DeleteColumn"}:
        gone = {tuple(name.lower() for name in change["column"]) for change in changes if change["kind"] == "DeleteColumn"}
        if gone >= {(name.lower(),) for name in table.snapshot.schema.names}:
            return _columns(alter_columns.replace_columns)
    if kinds <= CHANGES_OF_COLUMNS:
        return _columns(alter_columns.change_columns)
    known = _STATEMENTS.get(next(iter(kinds))) if len(kinds) == 1 else None
    # Spark's own classes for constraints carry none of what is needed here.
    if known is None or (kinds & {"AddConstraint", "DropConstraint"} and "name" not in changes[0]):
        raise UnsupportedOperationError(
            f"Delta table {table.root}: lakelog does not support this ALTER TABLE ({', '.join(sorted(kinds))}). Of constraints there are "
            "ADD CONSTRAINT name CHECK (condition) and DROP CONSTRAINT name; changes of several kinds take a statement each."
        )
    return known


def _columns(plan: Callable[[SparkSession, Snapshot, Sequence[Change]], ColumnsAltered]) -> _Statement:
    def act(table: _Table, changes: Sequence[Change]) -> _Altered:
        made = plan(table.spark, table.snapshot, changes)
        for path in made.not_null:
            nulls = violation(table.snapshot.schema, path)
            _check_rows(
                table,
                nulls,
                path[:1],
                f"column {column_text(path)} cannot be made NOT NULL",
                ("holds a null there", "hold a null there"),
                f"Fill or delete them first: DELETE FROM delta.`{table.root}` WHERE {nulls}",
            )
        return _Altered(metadata=made.metadata, operation=made.operation, reads=Reads(whole_table=bool(made.not_null)))

    return act


def _set_properties(table: _Table, changes: Sequence[Change]) -> _Altered:
    given = canonical({str(change["key"]): str(change["value"]) for change in changes}, table.root)
    metadata = table.snapshot.metadata
    stored = {key: value for key, value in given.items() if key != "comment"}
    check_settable(stored, table.root)
    metadata = replace(metadata, configuration={**metadata.configuration, **stored})
    if "comment" in given:
        metadata = replace(metadata, description=given["comment"])
    return _Altered(metadata=metadata, operation=table_operations.set_properties(given))


def _unset_properties(table: _Table, changes: Sequence[Change]) -> _Altered:
    keys = [canonical_key(str(change["key"])) for change in changes]
    metadata = table.snapshot.metadata
    check_settable((key for key in keys if key in metadata.configuration), table.root)
    kept = {key: value for key, value in metadata.configuration.items() if key not in keys}
    metadata = replace(metadata, configuration=kept)
    if "comment" in keys:
        metadata = replace(metadata, description=None)
    return _Altered(metadata=metadata, operation=table_operations.unset_properties(keys))


def _add_constraint(table: _Table, changes: Sequence[Change]) -> _Altered:
    (change,) = changes
    name, expression = str(change["name"]), str(change["expression"])
    snapshot, root = table.snapshot, table.root
    known = _constraint(snapshot.metadata.configuration, name)
    if known is not None or name.lower() == _RESERVED:
        why = "is a name that Delta keeps for itself" if known is None else f"is there already: {snapshot.metadata.configuration[known]}"
        raise InvalidRequestError(
            f"Delta table {root}: the constraint {quoted(name)} {why}. Choose another name"
            + (f", or drop it first: ALTER TABLE delta.`{root}` DROP CONSTRAINT {quoted(name)}." if known else ".")
        )
    check_condition(table.spark, expression, snapshot.schema, root, f"the CHECK constraint {name}")
    broken = f"NOT coalesce({enclosed(expression)}, false)"
    _check_rows(
        table,
        broken,
        [reference[0] for reference in references(table.spark, expression)],
        f"the CHECK constraint {name} ({expression}) cannot be added",
        ("does not meet it", "do not meet it"),
        f"Mend or delete them first: DELETE FROM delta.`{root}` WHERE {broken}",
    )
    configuration = {**snapshot.metadata.configuration, f"{CONSTRAINT_PREFIX}{name.lower()}": expression}
    return _Altered(
        metadata=replace(snapshot.metadata, configuration=configuration),
        operation=table_operations.add_constraint(name, expression),
        reads=Reads(whole_table=True),
    )


def _drop_constraint(table: _Table, changes: Sequence[Change]) -> _Altered:
    (change,) = changes
    name, metadata = str(change["name"]), table.snapshot.metadata
    known = _constraint(metadata.configuration, name)
    if known is None:
        if not change.get("ifExists"):
            there = sorted(key[len(CONSTRAINT_PREFIX) :] for key in metadata.configuration if key.startswith(CONSTRAINT_PREFIX))
            raise InvalidRequestError(
                f"Delta table {table.root}: there is no constraint {quoted(name)}; there are: {', '.join(there) or 'none'}. Name one of "
                "these, or say DROP CONSTRAINT IF EXISTS."
            )
        return _Altered(metadata=metadata, operation=table_operations.drop_constraint(name, None))
    kept = {key: value for key, value in metadata.configuration.items() if key != known}
    operation = table_operations.drop_constraint(name, metadata.configuration[known])
    return _Altered(metadata=replace(metadata, configuration=kept), operation=operation)


def _constraint(configuration: Mapping[str, str], name: str) -> str | None:
    """The key of a constraint, whose name is matched in any letter case."""
    return next((key for key in configuration if key.lower() == f"{CONSTRAINT_PREFIX}{name}".lower()), None)


def _cluster_by(table: _Table, changes: Sequence[Change]) -> _Altered | None:
    (change,) = changes
    snapshot = table.snapshot
    names = [".".join(f"`{part.replace('`', '``')}`" for part in column) for column in change["columns"]]
    if not names and CLUSTERING not in feature_names(snapshot.protocol):
        return None
    columns = check_clustering(
        snapshot.schema,
        names,
        partition_columns=snapshot.partition_columns,
        configuration=snapshot.metadata.configuration,
        table=table.root,
    )
    before = clustering_columns(snapshot.schema, snapshot.domains, table=table.root)
    return _Altered(
        metadata=snapshot.metadata,
        operation=table_operations.cluster_by(before, columns),
        actions=(clustering_domain(snapshot.schema, columns),),
        features=(CLUSTERING,),
    )


def _sync_identity(table: _Table, changes: Sequence[Change]) -> _Altered:
    """Bring the high-water mark of an identity column up to the values that were given explicitly."""
    (change,) = changes
    snapshot = table.snapshot
    path = resolved(snapshot.schema, change["column"], table=table.root)
    column = field_at(snapshot.schema, path)
    if IDENTITY_START not in column.metadata:
        raise UnsupportedOperationError(
            f"Delta table {table.root}: column {column_text(path)} is no identity column, so there is nothing to sync. Name one that is."
        )
    start, step, mark = (column.metadata.get(key) for key in (IDENTITY_START, IDENTITY_STEP, IDENTITY_HIGH_WATER_MARK))
    assert isinstance(start, int)
    assert isinstance(step, int)
    values = scan.frame_of(table.context, table.spark, table.held)
    (row,) = values.agg((F.max if step > 0 else F.min)(values[quoted(path[0])])).collect()
    made = column
    if row[0] is not None:
        # Rounded up to a value that the column itself would give.
        steps = -(-(int(row[0]) - start) // step)
        reached = start + steps * step
        new = reached if not isinstance(mark, int) else max(mark, reached) if step > 0 else min(mark, reached)
        if steps >= 0 and new != mark:
            made = replace(column, metadata={**column.metadata, IDENTITY_HIGH_WATER_MARK: new})
    schema = changed(snapshot.schema, path, lambda _: made)
    return _Altered(
        metadata=replace(snapshot.metadata, schema_string=schema.to_json()) if made is not column else snapshot.metadata,
        operation=table_operations.change_columns([ToldColumn(parent=path[:-1], field=made)]),
        reads=Reads(whole_table=True),
    )


def _check_rows(table: _Table, condition: str, columns: Sequence[str], refused: str, fault: tuple[str, str], remedy: str) -> None:
    """Refuse what rows of the table stand against.

    Args:
        fault: what is wrong with them, of one row and of several.

    Raises:
        ConstraintViolationError: rows for which the condition is true; tells how many there are and shows some.
    """
    rows = scan.frame_of(table.context, table.spark, table.held).where(condition)
    count = rows.count()
    if not count:
        return
    wanted = {name.lower() for name in columns}
    shown = [F.col(quoted(name)) for name in rows.columns if name.lower() in wanted]
    samples = [
        str(row[0]) for row in rows.select(F.to_json(F.struct(*(shown or rows.columns)), {"ignoreNullFields": "false"})).take(_SHOWN_ROWS)
    ]
    told = f"{count} rows" if count > 1 else "1 row"
    raise ConstraintViolationError(
        f"Delta table {table.root}: {refused}, for {told} of the table {fault[count > 1]}. {remedy}. Such rows: {', '.join(samples)}."
    )


_STATEMENTS: Mapping[str, _Statement] = {
    "SetProperty": _set_properties,
    "RemoveProperty": _unset_properties,
    "AddColumn": _columns(alter_columns.add_columns),
    "DeleteColumn": _columns(alter_columns.drop_columns),
    "RenameColumn": _columns(alter_columns.rename_column),
    "AddConstraint": _add_constraint,
    "DropConstraint": _drop_constraint,
    "ClusterBy": _cluster_by,
    "SyncIdentity": _sync_identity,
}
