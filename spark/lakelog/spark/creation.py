"""Making a Delta table, or making one anew: what exists already, then one commit, then the entry in the session catalog.

A table has a place, and may have a name. Where it has a name, the entry in the catalog says whether it exists; where it has none, the log
at its place does. The commit comes first and the entry after it, so that no entry is ever without its table; a table without its entry is
taken in by the next call that names it, provided that it is what the definition says.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakelog.core.actions import Action
from lakelog.core.commit import NO_VERSION, CommitAttempt, Reads
from lakelog.core.errors import (
    ConcurrentWriteException,
    InvalidRequestError,
    NotADeltaTableError,
    TableExistsError,
    TableNotRegisteredError,
)
from lakelog.core.table_definition import CreationMode, TableDefinition, check_same, defined
from lakelog.core.table_features import check_writable
from lakelog.spark import data_files, jvm
from lakelog.spark.catalog_names import Kind, TableName, check_registrable, register, resolved
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.expressions import check_columns, check_invariants
from lakelog.spark.options import default_properties, user_metadata
from lakelog.spark.reading import version_named
from lakelog.spark.transaction import commit, transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTable:
    """Where a table is, and what it is called.

    Attributes:
        path: its root, as the caller spelled it where the caller did.
        name: its entry in the session catalog, qualified; None for a table by path.
    """

    path: str
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A table to be, as far as the catalog knows.

    Attributes:
        path: of the table.
        root: the same, as core and storage know it.
        name: that the table has or is to have; None for a table by path.
        registered: whether the name has its entry.
        managed: whether Spark drops the files with the entry.
    """

    path: str
    root: str
    name: TableName | None
    registered: bool
    managed: bool

    @property
    def told(self) -> str:
        """The table in messages."""
        return self.root if self.name is None else f"{self.name.text} at {self.root}"


def create(
    context: Context, spark: SparkSession, mode: CreationMode, definition: TableDefinition, *, name: str | None, location: str | None
) -> CreatedTable:
    """Make the table, or make it anew, as the mode says.

    Args:
        name: as in SQL; ``delta.`/path` `` for a table by path.
        location: of a table by path, or of an external table; a table with a name alone lies where the catalog puts managed tables.

    Raises:
        InvalidRequestError: neither name nor location, or the two speak of different places.
        TableExistsError: the table exists and the mode makes a new one, something else has the name, or files that belong to no
            Delta table lie in the folder.
        NotADeltaTableError: the table does not exist and the mode replaces one, or there is no such database.
        SchemaMismatchError: a table stands at the place and is to get this name, but differs from the definition.
        TableNotRegisteredError: the table was committed, and could not be entered in the catalog.
        UnsupportedOperationError: the table that is to be replaced is append-only.
        DeltaConcurrentModificationException: another commit stands in the way.
        LakelogError: the definition cannot be; see `lakelog.core.table_definition.defined` and `check_columns`.
    """
    target = _target(context, spark, mode, name, location)
    with transaction(mode.value, target.root):
        held = _existing(context, target.root)
        exists = held is not None if target.name is None else target.registered
        if exists and mode is CreationMode.CREATE:
            raise _exists(target)
        if not exists and mode is CreationMode.REPLACE:
            raise NotADeltaTableError(
                f"Delta table {target.told} cannot be replaced: there is none. Use DeltaTable.create or DeltaTable.createOrReplace."
            )
        if target.registered and held is None:
            raise NotADeltaTableError(
                f"Delta table {target.told}: Spark's catalog has an entry for it, but no Delta log is there. Restore the files, or run "
                "DROP TABLE and create the table again."
            )
        if held is None:
            _make(context, spark, mode, definition, target)
        elif not exists:
            _adopt(definition, target, held)
        elif mode.replaces:
            _commit(context, spark, mode, definition, target, held)
    if target.name is not None and not target.registered:
        _register(context, spark, mode, target, target.name)
    return CreatedTable(path=target.path, name=None if target.name is None else target.name.qualified)


def _target(context: Context, spark: SparkSession, mode: CreationMode, name: str | None, location: str | None) -> _Target:
    if name is None and location is None:
        raise InvalidRequestError(f"{mode.value}: the Delta table has neither a name nor a place. Call tableName or location.")
    found = None if name is None else resolved(spark, name)
    if found is None or found.kind is Kind.PATH:
        path = found.location if found is not None else str(location)
        root = context.root(spark, path)
        _check_no_version(mode, root)
        if location is not None and context.root(spark, location) != root:
            raise InvalidRequestError(f"{mode.value}: the name {name} is one place, the location {location} another. Leave one out.")
        return _Target(path=path, root=root, name=None, registered=False, managed=False)
    if found.kind in (Kind.VIEW, Kind.TEMPORARY_VIEW) or (found.kind is Kind.TABLE and not found.delta):
        taken = f"a table of the format {found.provider}" if found.kind is Kind.TABLE else f"a {found.kind.value}"
        raise TableExistsError(
            f"Delta table {name} cannot be created: the name belongs to {taken}. Drop that first, or choose another name."
        )
    if found.kind is Kind.TABLE:
        root = context.root(spark, found.location)
        if mode.replaces and location is not None and context.root(spark, location) != root:
            raise InvalidRequestError(
                f"Delta table {name} exists at {root}, which is not the location {location}. Leave the location out, or choose another "
                "name."
            )
        return _Target(path=found.location, root=root, name=found, registered=True, managed=found.managed)
    check_registrable(found)
    path = found.location if location is None else location
    root = context.root(spark, path)
    _check_no_version(mode, root)
    return _Target(path=path, root=root, name=found, registered=False, managed=location is None)


def _check_no_version(mode: CreationMode, root: str) -> None:
    if (asked := version_named(root)) is not None:
        raise InvalidRequestError(
            f"Delta table {root}: {mode.value} was aimed at {asked}, for that is what {root.rpartition('@')[2]} behind an @ means. "
            "Leave out the version, or choose a path that does not end so."
        )


def _existing(context: Context, root: str) -> HeldSnapshot | None:
    try:
        return context.logs.newest(root)
    except NotADeltaTableError:
        return None


def _exists(target: _Target) -> TableExistsError:
    return TableExistsError(
        f"Delta table {target.told} exists already. Use DeltaTable.createIfNotExists to keep it, DeltaTable.replace or "
        "DeltaTable.createOrReplace to make it anew."
    )


def _adopt(definition: TableDefinition, target: _Target, held: HeldSnapshot) -> None:
    """Take a table that stands at the place for the one that was asked for."""
    if target.managed and held.snapshot.num_files:
        raise TableExistsError(
            f"Delta table {target.told} cannot be created as a managed table: a table with data stands there already, which DROP TABLE "
            f'would delete. Give it as an external table with location("{target.root}"), or choose another name.'
        )
    check_same(definition, held.snapshot, table=target.root)


def _make(context: Context, spark: SparkSession, mode: CreationMode, definition: TableDefinition, target: _Target) -> None:
    found = context.stranger(spark, target.root)
    if found is not None:
        raise TableExistsError(
            f"Delta table {target.told} cannot be created: the folder holds files that belong to no Delta table, {found} among them. "
            "Choose an empty folder, or read those files and write them as a Delta table."
        )
    try:
        _commit(context, spark, mode, definition, target, None)
    except ConcurrentWriteException as error:
        if error.rule != "creation":
            raise
        # Another client made the table meanwhile.
        held = context.logs.newest(target.root)
        if mode is CreationMode.CREATE:
            raise _exists(target) from None
        if mode is CreationMode.CREATE_OR_REPLACE and target.name is None:
            _commit(context, spark, mode, definition, target, held)
        elif target.name is not None:
            _adopt(definition, target, held)


def _commit(
    context: Context, spark: SparkSession, mode: CreationMode, definition: TableDefinition, target: _Target, held: HeldSnapshot | None
) -> HeldSnapshot:
    """One commit that makes the table or, where one is held, makes it anew."""
    root, snapshot = target.root, None if held is None else held.snapshot
    if snapshot is not None:
        check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, root)
    now_ms = context.environment.now_ms()
    made = defined(
        definition,
        snapshot,
        table=root,
        defaults=default_properties(context.settings(spark)),
        new_uuid=context.environment.new_uuid,
        now_ms=now_ms,
    )
    check_columns(spark, made.schema, root)
    check_invariants(spark, made.schema, root)
    actions: list[Action] = list(made.actions)
    metrics: dict[str, int] = {}
    if snapshot is not None:
        gone = snapshot.add_files()
        actions += [data_files.removal(add, now_ms) for add in gone]
        metrics = {"numRemovedFiles": len(gone), "numRemovedBytes": sum(add.size for add in gone)}
    attempt = CommitAttempt(
        read_version=NO_VERSION if snapshot is None else snapshot.version,
        actions=tuple(actions),
        operation=made.operation(mode, managed=target.managed, metrics=metrics),
        engine_info=context.engine_info,
        reads=Reads(whole_table=snapshot is not None),
        table_id=None if snapshot is None else snapshot.metadata.id,
        user_metadata=user_metadata(spark, root),
    )
    hadoop_root = context.hadoop_root(root)

    def landed() -> None:
        jvm.refresh_cached(spark, hadoop_root)

    newest = commit(context, root, attempt, (), landed)
    landed()
    return newest


def _register(context: Context, spark: SparkSession, mode: CreationMode, target: _Target, name: TableName) -> None:
    location = context.hadoop_root(target.root)
    fault = register(spark, name, location=location, managed=target.managed)
    if fault is None:
        return
    now = resolved(spark, name.text)
    same = now.kind is Kind.TABLE and now.delta and context.root(spark, now.location) == target.root
    if same and mode is not CreationMode.CREATE:
        return
    if now.kind is Kind.TABLE:
        fault = f"another client gave the name to {'the same table' if same else 'another table'} meanwhile ({fault})"
    raise TableNotRegisteredError(
        f"Delta table {name.text}: the table exists at its path {target.root}, but could not be entered in Spark's catalog: {fault}. "
        f"Use it by its path, or mend the cause and run DeltaTable.createIfNotExists with the same name and location."
    )
