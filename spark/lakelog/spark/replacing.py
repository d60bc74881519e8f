"""What an overwrite takes out of a table that is there: everything, the rows of a predicate, those that match the new rows, or the
partitions that the new rows fall into.

New rows are written before the old ones are looked for. A condition that speaks of them reads the files just written, so that a source
which need not give the same rows twice is evaluated once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.actions import AddFile
from lakelog.core.commit import Reads
from lakelog.core.constraints import quoted
from lakelog.core.errors import ColumnNotFoundError, InvalidOptionError, InvalidTablePropertyError
from lakelog.core.partition_values import parse_partition_column
from lakelog.core.predicates import Column, Comparison, IsNull, Literal, Predicate, conjunction, disjunction
from lakelog.core.schema import DataType, PrimitiveType, StructType
from lakelog.core.snapshot import Snapshot
from lakelog.core.statistics import parse_column_names
from lakelog.spark import jvm
from lakelog.spark.context import Context
from lakelog.spark.delta_logs import HeldSnapshot
from lakelog.spark.expressions import references
from lakelog.spark.options import Kind, Replacement
from lakelog.spark.row_changes import Condition, Mask, Removal, removal, removal_of_all, removal_of_files
from lakelog.spark.scan import frame_of

_TARGET, _SOURCE = "__lakelog_target", "__lakelog_source"
# Beyond it a commit that lands meanwhile is held against the whole table.
_MOST_PARTITIONS = 1000


class Predicated:
    """The predicate of ``replaceWhere`` over a table, resolved once.

    Attributes:
        condition: what it says.
        search: the JVM's RowSearch for it.
    """

    def __init__(self, context: Context, spark: SparkSession, held: HeldSnapshot, replacement: Replacement) -> None:
        frame = frame_of(context, spark, held)
        if replacement.target_alias is not None:
            frame = frame.alias(replacement.target_alias)
        self.search = _search(frame, replacement.text, replacement, held.snapshot.root)
        self.condition = Condition.parse(str(self.search.describe()))
        if self.condition.subquery or not self.condition.deterministic:
            raise InvalidOptionError(
                f"{_option(replacement, held.snapshot.root)} must answer the same for a row every "
                "time and hold no subquery, for the new rows are checked against it. Use replaceOn, or delete first and append."
            )


def replaced_where(context: Context, spark: SparkSession, held: HeldSnapshot, predicated: Predicated, name: str) -> Removal:
    """The rows for which ``replaceWhere`` is true. Files that hold such rows alone go unread."""
    return removal(context, spark, held, predicated.condition, predicated.search, name)


def check_match(spark: SparkSession, replacement: Replacement, snapshot: Snapshot, given: StructType, alias: str | None) -> None:
    """That a ``replaceOn`` or ``replaceUsing`` says which of two columns of one name it means, before anything is written.

    Args:
        given: the written frame's schema.
        alias: the name that the frame gave itself.

    Raises:
        InvalidOptionError: a column that the table or the data does not have, or a name that could be the table's or the data's.
    """
    names = {name.lower() for name in given.names}
    if replacement.kind is Kind.USING:
        absent = [name for name in using_columns(replacement, snapshot) if name.lower() not in names]
        if absent:
            raise InvalidOptionError(
                f"{_option(replacement, snapshot.root)} names {', '.join(absent)}, which the data does "
                f"not have. Add it to the data, or name columns of both."
            )
        return
    target = replacement.target_alias
    if alias is not None and target is not None and alias.lower() == target.lower():
        raise InvalidOptionError(
            f"Delta table {snapshot.root}: the write option targetAlias={target} is also the alias of the data. Give the two "
            "different names."
        )
    _understood(replacement.text, replacement, snapshot.root)
    both = names & {name.lower() for name in snapshot.schema.names}
    known = {text.lower() for text in (alias, target) if text is not None}
    unclear = sorted(
        {p[0] for p in references(spark, replacement.text) if p[0].lower() in both and (len(p) == 1 or p[0].lower() not in known)}
    )
    if unclear:
        raise InvalidOptionError(
            f"{_option(replacement, snapshot.root)}: the name {', '.join(unclear)} could be the table's or "
            'the data\'s. Name the table by .option("targetAlias", "t") and the data by df.alias("s"), and write t.column and s.column.'
        )


def replaced_by_match(
    context: Context, spark: SparkSession, held: HeldSnapshot, replacement: Replacement, new: HeldSnapshot, alias: str | None, name: str
) -> Removal:
    """The rows of ``replaceOn`` and ``replaceUsing``: those for which a new row exists that matches.

    Args:
        new: the new rows' files.
        alias: the name that the written frame gave itself, by which the condition may call it.

    Raises:
        InvalidOptionError: the condition cannot be understood.
    """
    root = held.snapshot.root
    target = replacement.target_alias
    if replacement.kind is Kind.USING:
        target, alias = _TARGET, _SOURCE
        matching = " AND ".join(f"{_SOURCE}.{c} = {_TARGET}.{c}" for c in map(quoted, using_columns(replacement, held.snapshot)))
    else:
        matching = replacement.text
    view = f"__lakelog_{uuid.uuid4().hex}"
    frame_of(context, spark, new).createTempView(view)
    try:
        frame = frame_of(context, spark, held)
        source = view if alias is None else f"{view} AS {quoted(alias)}"
        exists = f"EXISTS (SELECT 1 FROM {source} WHERE {matching})"
        search = _search(frame if target is None else frame.alias(target), exists, replacement, root)
        condition = Condition.parse(str(search.describe()))
        if not condition.columns:
            raise InvalidOptionError(
                f"{_option(replacement, root)} speaks of no column of the table, so that it would "
                'replace all of it or nothing. Name the table by .option("targetAlias", "t") and write t.column.'
            )
        return removal(context, spark, held, condition, search, name)
    finally:
        spark.catalog.dropTempView(view)


def using_columns(replacement: Replacement, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of ``replaceUsing`` as the table spells them.

    Raises:
        InvalidOptionError: the list cannot be parsed, or names a column that the table does not have.
    """
    known = {name.lower(): name for name in snapshot.schema.names}
    try:
        names = [".".join(path) for path in parse_column_names(replacement.text, key=str(replacement.kind))]
        unknown = [name for name in names if name.lower() not in known]
        if unknown:
            raise ColumnNotFoundError(f"there is no column {', '.join(unknown)}; there are {', '.join(snapshot.schema.names)}")
    except (ColumnNotFoundError, InvalidTablePropertyError) as error:
        raise InvalidOptionError(
            f"{_option(replacement, snapshot.root)} must list columns of the table and of the "
            f"data, separated by commas: {str(error).rstrip('.')}."
        ) from None
    return tuple(dict.fromkeys(known[name.lower()] for name in names))


def replaced_partitions(held: HeldSnapshot, adds: Sequence[AddFile], *, null_intolerant: bool) -> Removal:
    """The files of the partitions that new files fall into.

    Args:
        null_intolerant: partitions with a null in a partition column are left alone.
    """
    snapshot = held.snapshot
    columns = snapshot.physical_partition_columns
    types = [snapshot.schema.find((name,)).type for name in snapshot.partition_columns]
    new = _tuples([[add.partition_values.get(name) for add in adds] for name in columns], types)
    wanted = {key for key in new if not (null_intolerant and None in key)}
    values = snapshot.files["partitionValues"].combine_chunks()
    old = _tuples([pc.map_lookup(values, name, "first").to_pylist() for name in columns], types)
    removed: Mask = np.fromiter((key in wanted for key in old), np.bool_, len(old))
    paths = snapshot.files["path"].filter(pa.array(removed))
    if len(wanted) > _MOST_PARTITIONS:
        return removal_of_files(held, Reads(whole_table=True), removed)
    predicates = tuple(_partition(snapshot.partition_columns, types, key) for key in sorted(wanted, key=repr))
    return removal_of_files(held, Reads(predicates=(disjunction(*predicates),) if predicates else (), files=paths), removed)


def replaced_all(held: HeldSnapshot) -> Removal:
    """Everything."""
    return removal_of_all(held, Reads(whole_table=True))


def _search(frame: DataFrame, text: str, replacement: Replacement, root: str) -> Any:
    try:
        search = jvm.row_search(frame.where(F.expr(text)))
    except PySparkException as error:
        raise _not_understood(error, replacement, root) from None
    if search is None:
        raise InvalidOptionError(f"{_option(replacement, root)} cannot be used to find rows.")
    return search


def _understood(text: str, replacement: Replacement, root: str) -> None:
    try:
        F.expr(text)
    except PySparkException as error:
        raise _not_understood(error, replacement, root) from None


def _option(replacement: Replacement, root: str) -> str:
    return f"Delta table {root}: the write option {replacement.kind}={replacement.text}"


def _not_understood(error: PySparkException, replacement: Replacement, root: str) -> InvalidOptionError:
    said = str(error).strip().splitlines()[0]
    return InvalidOptionError(
        f"{_option(replacement, root)} is no condition over the table's rows: {said} "
        "Nothing was written. Write a condition over the table's columns, as in WHERE."
    )


def _tuples(texts: Sequence[Sequence[str | None]], types: Sequence[DataType]) -> list[tuple[object, ...]]:
    """Partition values by their meaning: two texts may say one timestamp."""
    columns = []
    for column, data_type in zip(texts, types, strict=True):
        parsed = parse_partition_column(pa.array(column, pa.string()), data_type)
        plain = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(getattr(data_type, "name", ""))
        # NaN equals itself only as text.
        floating = data_type in (PrimitiveType("float"), PrimitiveType("double"))
        values = (parsed if plain is None else parsed.cast(plain)).to_pylist()
        columns.append([repr(value) if floating and value is not None and value != value else value for value in values])
    return list(zip(*columns, strict=True))


def _partition(columns: Sequence[str], types: Sequence[DataType], key: Sequence[object]) -> Predicate:
    parts: list[Predicate] = []
    for name, data_type, value in zip(columns, types, key, strict=True):
        if value is None:
            parts.append(IsNull(Column((name,))))
        else:
            parts.append(Comparison("<=>", Column((name,)), Literal(float("nan") if value == "nan" else value, data_type)))  # type: ignore[arg-type]
    return conjunction(*parts)
