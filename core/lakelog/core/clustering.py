"""Clustering columns: which a table may have, and the domain that holds them (PROTOCOL.md, "Clustered Table").

The domain names columns physically, so that it stays true when one is renamed; callers speak of them by the schema's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lakelog.core.actions import DomainMetadata
from lakelog.core.column_mapping import physical_name
from lakelog.core.errors import (
    ColumnNotFoundError,
    CorruptLogError,
    InvalidRequestError,
    InvalidTablePropertyError,
    PartitionColumnError,
    UnsupportedTypeError,
)
from lakelog.core.records import COMPACT_JSON, JSON, load_json, shown
from lakelog.core.schema import DataType, DecimalType, PrimitiveType, StructType
from lakelog.core.statistics import IndexedColumns, indexed_leaves, parse_column_names
from lakelog.core.table_properties import NUM_INDEXED_COLS, STATS_COLUMNS, TableProperties

ColumnPath: TypeAlias = tuple[str, ...]

DOMAIN = "delta.clustering"
FEATURE = "clustering"
MAX_COLUMNS = 4

# Types with bounds in the statistics that files can be told apart by, as delta-spark has it.
_ORDERED = frozenset({"byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string"})


def check_clustering(
    schema: StructType, columns: Sequence[str], *, partition_columns: Sequence[str], configuration: Mapping[str, str], table: str
) -> tuple[ColumnPath, ...]:
    """The columns that a table is to be clustered by, spelled as its schema spells them.

    Args:
        schema: of the table.
        columns: names as in SQL: ``a``, ``a.b`` for a field of a struct, backticks around special characters.
        partition_columns: of the table; clustering goes with none.
        configuration: of the table, which says what columns have statistics.
        table: the table's root, for messages.

    Raises:
        PartitionColumnError: the table is to be partitioned too.
        ColumnNotFoundError: there is no such column.
        UnsupportedTypeError: a column of a type that has no bounds.
        InvalidRequestError: a column given twice, more than `MAX_COLUMNS`, or one without statistics.
        InvalidTablePropertyError: the properties that decide on statistics cannot be parsed.
    """
    if columns and partition_columns:
        raise PartitionColumnError(
            f"Delta table {table}: it cannot be clustered by ({', '.join(columns)}) and partitioned by ({', '.join(partition_columns)}) at "
            "once. Leave out clusterBy or the partitioning."
        )
    if len(columns) > MAX_COLUMNS:
        raise InvalidRequestError(
            f"Delta table {table}: clusterBy takes at most {MAX_COLUMNS} columns, not {len(columns)} ({', '.join(columns)}). Leave out "
            "some."
        )
    chosen: list[ColumnPath] = []
    for name in columns:
        path, data_type = _resolved(schema, name, table)
        if path in chosen:
            raise InvalidRequestError(f"Delta table {table}: the clustering column {'.'.join(path)} is given twice. Give it once.")
        if not (isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.name in _ORDERED)):
            raise UnsupportedTypeError(
                f"Delta table {table}: it cannot be clustered by {'.'.join(path)} of type {data_type}, whose values have no bounds in "
                "the statistics. Cluster by columns of numbers, dates, timestamps or strings."
            )
        chosen.append(path)
    _check_statistics(schema, chosen, configuration, table)
    return tuple(chosen)


def clustering_domain(schema: StructType, columns: Sequence[ColumnPath]) -> DomainMetadata:
    """The action that makes these the table's clustering columns; none of them leaves the table clustered by nothing.

    Args:
        schema: of the table, with the physical names that column mapping gives it.
        columns: paths by the schema's names, from `check_clustering`.
    """
    physical: list[JSON] = [[physical_name(schema.find(path[: depth + 1])) for depth in range(len(path))] for path in columns]
    told = {"clusteringColumns": physical, "domainName": DOMAIN}
    return DomainMetadata(domain=DOMAIN, configuration=COMPACT_JSON.encode(told), removed=False)


def clustering_columns(schema: StructType, domains: Mapping[str, DomainMetadata], *, table: str) -> tuple[ColumnPath, ...]:
    """The table's clustering columns by the names of its schema; none where it is not clustered.

    Args:
        schema: of the version.
        domains: its live domains.

    Raises:
        CorruptLogError: the domain is no list of columns of the schema.
    """
    found = domains.get(DOMAIN)
    if found is None:
        return ()
    try:
        told = load_json(found.configuration.encode())
    except CorruptLogError:
        told = None
    columns = told.get("clusteringColumns") if isinstance(told, dict) else None
    return tuple(_logical(schema, column, found.configuration, table) for column in (columns if isinstance(columns, list) else [None]))


def domain_changes(domains: Mapping[str, DomainMetadata], schema: StructType, columns: Sequence[ColumnPath]) -> tuple[DomainMetadata, ...]:
    """What making or replacing a table says of its clustering, where that changes. Other domains stay as they are.

    Args:
        domains: live ones of the table that is replaced; none for a table that is made.
        schema: the new one.
        columns: the new ones; none for a table without.
    """
    before, after = domains.get(DOMAIN), clustering_domain(schema, columns)
    if before is None:
        return (after,) if columns else ()
    return () if before == after else (after,)


def _resolved(schema: StructType, name: str, table: str) -> tuple[ColumnPath, DataType]:
    try:
        (wanted,) = parse_column_names(name, key="clusterBy")
    except (InvalidTablePropertyError, ValueError):
        raise InvalidRequestError(
            f"Delta table {table}: {name!r} is no column name. Give clusterBy one name an argument, with backticks around special "
            "characters."
        ) from None
    path: list[str] = []
    here: DataType = schema
    for part in wanted:
        fields = here.fields if isinstance(here, StructType) else ()
        found = next((field for field in fields if field.name.lower() == part.lower()), None)
        if found is None:
            raise ColumnNotFoundError(
                f"Delta table {table}: it cannot be clustered by {name!r}, there is no such column. Cluster by some of: "
                f"{', '.join(schema.names)}."
            )
        path.append(found.name)
        here = found.type
    return tuple(path), here


def _check_statistics(schema: StructType, columns: Sequence[ColumnPath], configuration: Mapping[str, str], table: str) -> None:
    properties = TableProperties(configuration)
    names = properties.data_skipping_stats_columns
    indexed = IndexedColumns(count=properties.data_skipping_num_indexed_cols, names=None if names is None else parse_column_names(names))
    with_statistics = {path for path, _ in indexed_leaves(schema, indexed)}
    for path in columns:
        if path not in with_statistics:
            raise InvalidRequestError(
                f"Delta table {table}: it cannot be clustered by {'.'.join(path)}, for which no statistics are kept "
                f"({NUM_INDEXED_COLS.key} = {indexed.count}, {STATS_COLUMNS.key} = {names}). Move the column forward, or name it in "
                f"{STATS_COLUMNS.key}."
            )


def _logical(schema: StructType, column: object, configuration: str, table: str) -> ColumnPath:
    path: list[str] = []
    here: DataType = schema
    for name in column if isinstance(column, list) else [None]:
        fields = here.fields if isinstance(here, StructType) else ()
        found = next((field for field in fields if physical_name(field) == name), None)
        if found is None:
            raise CorruptLogError(
                f"Delta table {table}: the domain {DOMAIN} holds {shown(configuration)}, which names no columns of the schema. Restore the "
                "commit that wrote it."
            )
        path.append(found.name)
        here = found.type
    return tuple(path)
