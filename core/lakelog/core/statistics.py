"""Per-file statistics (``add.stats``) from a Parquet footer, by Delta's rules; no row is read.

PROTOCOL.md, "Per-file Statistics"; the spelling of each value is delta-spark's. Only what the footer makes certain is written: a bound or
null count that is absent, or that may hide a value from a reader which trusts it, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.core.errors import InvalidTablePropertyError
from lakelog.core.footer_bounds import FooterBounds, bounds_text, leaf_bounds
from lakelog.core.records import shown
from lakelog.core.schema import ArrayType, DataType, MapType, PrimitiveType, StructType, leaf_columns

JsonTree: TypeAlias = "dict[str, str | JsonTree]"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedColumns:
    """Which columns get statistics.

    ``count``: so many leaf columns from the left (``delta.dataSkippingNumIndexedCols``), an array or map being one; negative is all.
    ``names``: these instead, if not None (``delta.dataSkippingStatsColumns``); the path of a struct stands for all below it, and letter
    case does not matter.
    ``string_prefix_length``: characters kept of a string bound (``delta.dataSkippingStringPrefixLength``).
    """

    count: int = 32
    names: tuple[tuple[str, ...], ...] | None = None
    string_prefix_length: int = 32


def parse_column_names(text: str, *, key: str = "delta.dataSkippingStatsColumns") -> tuple[tuple[str, ...], ...]:
    """The paths in a comma-separated list of column names, each name plain or in backticks (a doubled backtick is one).

    Raises:
        InvalidTablePropertyError: ``text`` is no such list; names ``key``.
    """
    paths: list[tuple[str, ...]] = []
    path: list[str] = []
    position = 0
    if not text.strip():
        return ()
    while True:
        name, position = _identifier(text, position, key)
        path.append(name)
        separator = text[position : position + 1]
        if separator != ".":
            paths.append(tuple(path))
            path = []
        if not separator:
            break
        position += 1
    return tuple(paths)


def _identifier(text: str, start: int, key: str) -> tuple[str, int]:
    """The name that begins at ``start``, and where the separator (``,`` or ``.``) or the end after it is."""
    start = _after_space(text, start)
    end = start
    if text[start : start + 1] == "`":
        end = start + 1
        while end < len(text) and (text[end] != "`" or text[end : end + 2] == "``"):
            end += 2 if text[end] == "`" else 1
        name, end = text[start + 1 : end].replace("``", "`"), end + 1
    else:
        while end < len(text) and text[end] not in ",.`":
            end += 1
        name = text[start:end].strip()
    end = _after_space(text, end)
    if not name or end > len(text) or text[end : end + 1] not in {"", ",", "."}:
        raise InvalidTablePropertyError(
            f"{key}={shown(text)} is no comma-separated list of column names; put a name with special characters in backticks"
        )
    return name, end


def _after_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def file_statistics(
    footer: pq.FileMetaData, schema: StructType, *, indexed: IndexedColumns, nan_leaves: Mapping[int, FooterBounds] | None = None
) -> str:
    """The JSON text for ``add.stats`` of one data file.

    Shape: ``{"numRecords":n,"minValues":{..},"maxValues":{..},"nullCount":{..}}``, nested as the schema. Timestamps are floored to
    milliseconds and strings cut to a prefix, as readers expect; the rest is exact. Arrays, maps and variants have no entry.

    Args:
        footer: of a file whose writer was Spark (parquet-mr) or pyarrow; of others less may be taken.
        schema: the table's columns that are in data files: without the partition columns, in the table's order.
        indexed: which of them count.
        nan_leaves: the column chunks of the footer with a NaN in them, by number, and their bounds, which such a footer does not tell;
            from a writer that looked. None from others.
    """
    leaves = _footer_leaves(footer)
    minima: JsonTree = {}
    maxima: JsonTree = {}
    null_counts: JsonTree = {}
    for path, data_type in indexed_leaves(schema, indexed):
        if isinstance(data_type, ArrayType | MapType) or data_type == PrimitiveType("variant"):
            continue
        leaf = None if leaves is None else leaves.find(path)
        if leaf is None:
            continue
        if leaf == _ABSENT:
            bounds = FooterBounds(None, None, footer.num_rows)
        elif nan_leaves is not None and leaf in nan_leaves:
            bounds = nan_leaves[leaf]
        else:
            bounds = leaf_bounds(footer, leaf, data_type, nan_free=nan_leaves is not None)
        lower, upper = bounds_text(bounds, data_type, indexed.string_prefix_length)
        for tree, entry in ((minima, lower), (maxima, upper), (null_counts, None if bounds.nulls is None else str(bounds.nulls))):
            if entry is not None:
                _insert(tree, path, entry)
    parts: JsonTree = {"numRecords": str(footer.num_rows)}
    parts.update({name: tree for name, tree in (("minValues", minima), ("maxValues", maxima), ("nullCount", null_counts)) if tree})
    return _json_text(parts)


def indexed_leaves(schema: StructType, indexed: IndexedColumns) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """The leaf columns (path, type) that get statistics, in the schema's order; only structs are descended into."""
    wanted = None if indexed.names is None else {tuple(name.lower() for name in path) for path in indexed.names}
    for position, (path, data_type) in enumerate(leaf_columns(schema)):
        if wanted is None:
            if 0 <= indexed.count <= position:
                return
            yield path, data_type
        elif any(tuple(name.lower() for name in path[:depth]) in wanted for depth in range(1, len(path) + 1)):
            yield path, data_type


# --- Where a column sits in the footer ------------------------------------------------------------------------------------------

_ABSENT = -1


@dataclass(frozen=True, slots=True)
class _FooterTree:
    """Fields of one level: the number of a primitive's column chunk, a tree for a struct, None for what has no single chunk."""

    fields: Mapping[str, int | _FooterTree | None]

    def find(self, path: Sequence[str]) -> int | None:
        """The number of the column's chunk; `_ABSENT` when no field has the name, so that every row reads as null; else None."""
        name, *rest = path
        found = self.fields.get(name)
        if name not in self.fields:
            # Spark would take a name that differs by case alone.
            return None if name.lower() in {other.lower() for other in self.fields} else _ABSENT
        if isinstance(found, _FooterTree):
            return found.find(rest) if rest else None
        return None if rest else found


def _footer_leaves(footer: pq.FileMetaData) -> _FooterTree | None:
    # Dotted paths are ambiguous (a column may be named "a.b"); the tree is not, and its leaves come in the order of the chunks.
    try:
        schema = footer.schema.to_arrow_schema()
    except pa.ArrowException:
        return None
    tree, count = _tree([schema.field(position) for position in range(len(schema))], 0)
    return tree if count == footer.num_columns else None


def _tree(fields: Sequence[pa.Field[Any]], start: int) -> tuple[_FooterTree, int]:
    found: dict[str, int | _FooterTree | None] = {}
    for field in fields:
        repeated = field.name in found
        if pa.types.is_struct(field.type):
            found[field.name], start = _tree([field.type.field(position) for position in range(field.type.num_fields)], start)
        else:
            leaves = _leaf_count(field.type)
            found[field.name] = start if leaves == 1 and field.type.num_fields == 0 else None
            start += leaves
        if repeated:
            found[field.name] = None
    return _FooterTree(found), start


def _leaf_count(arrow: pa.DataType) -> int:
    if isinstance(arrow, pa.BaseExtensionType):
        return _leaf_count(arrow.storage_type)
    if arrow.num_fields == 0:
        return 0 if pa.types.is_struct(arrow) else 1
    return sum(_leaf_count(arrow.field(position).type) for position in range(arrow.num_fields))


# --- Text -----------------------------------------------------------------------------------------------------------------------


def _insert(tree: JsonTree, path: Sequence[str], text: str) -> None:
    *above, last = path
    for name in above:
        below = tree.setdefault(name, {})
        if isinstance(below, dict):
            tree = below
    tree[last] = text


def _json_text(tree: JsonTree) -> str:
    entries = (f"{orjson.dumps(name).decode()}:{_json_text(entry) if isinstance(entry, dict) else entry}" for name, entry in tree.items())
    return "{" + ",".join(entries) + "}"
