"""Files are classified by the statistics that delta-spark and delta-rs wrote, and compared with their rows."""

from __future__ import annotations

import json
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.core.data_skipping import EVERY_ROW, NO_ROW, classify
from lakelog.core.errors import CorruptLogError, UnsupportedTypeError
from lakelog.core.predicates import Column, Comparison, IsNotNull, IsNull, Literal, Predicate, evaluate_rows
from lakelog.core.schema import DataType, DecimalType, PrimitiveType, StructField, StructType, leaf_columns, parse_schema
from lakelog.core.statistics import IndexedColumns, file_statistics

from .predicate_models import COLUMNS, OPERATORS, Row, arrow_table, predicates, rows, truth


def classes(stats: str, predicate: Predicate, schema: StructType) -> int:
    files = pa.table({"partitionValues": pa.array([[]], pa.map_(pa.string(), pa.string())), "stats": [stats]})
    found: int = classify(files, predicate, schema=schema, partition_columns=[])[0].as_py()
    return found


@settings(max_examples=40)
@given(data=st.data(), some_rows=rows(min_size=1, max_size=4))
def test_statistics_of_delta_rs(data: st.DataObject, some_rows: list[Row]) -> None:
    schema = StructType(
        fields=tuple(StructField(name=name, type=kind, nullable=True, metadata={}) for name, (kind, _, _) in COLUMNS.items())
    )
    with tempfile.TemporaryDirectory() as folder:
        deltalake.write_deltalake(folder, arrow_table(some_rows))
        commit = (Path(folder) / "_delta_log" / f"{0:020}.json").read_text()
    stats = [json.loads(line)["add"]["stats"] for line in commit.split("\n") if '"add"' in line]
    assert len(stats) == 1
    for _ in range(10):
        predicate = data.draw(predicates({name: [row[name] for row in some_rows] for name in COLUMNS}))
        found, truths = classes(stats[0], predicate, schema), [truth(predicate, row) for row in some_rows]
        assert found != NO_ROW or True not in truths
        assert found != EVERY_ROW or all(value is True for value in truths)


def test_statistics_of_the_golden_tables(golden: Path) -> None:
    proved = dropped = 0
    for stats, path, schema in golden_files(golden):
        rows_of_file = readable_rows(path, schema)
        for column, data_type in leaf_columns(schema):
            for predicate in conditions(rows_of_file, Column(column), data_type):
                found, truths = classes(stats, predicate, schema), evaluate_rows(predicate, rows_of_file).to_pylist()
                assert found != NO_ROW or True not in truths, (path, predicate)
                assert found != EVERY_ROW or all(value is True for value in truths), (path, predicate)
                proved, dropped = proved + (found == EVERY_ROW), dropped + (found == NO_ROW)
    assert min(proved, dropped) > 500


def test_footers_of_the_golden_tables_give_what_delta_spark_wrote(golden: Path) -> None:
    compared = 0
    for stats, path, schema in golden_files(golden):
        ours = dict(flat(json.loads(file_statistics(pq.read_metadata(path), schema, indexed=IndexedColumns()), parse_float=Decimal)))
        theirs = dict(flat(json.loads(stats, parse_float=Decimal)))
        floats = {column for column, kind in leaf_columns(schema) if kind in (PrimitiveType("float"), PrimitiveType("double"))}
        for name in ours.keys() & theirs.keys():
            if name[1:] in floats and name[0] != "nullCount":
                # delta-spark spells the shortest text for a float, here it is exact; and their values may be of a file widened since.
                assert abs(float(ours[name]) - float(theirs[name])) <= abs(float(ours[name])) * 1e-7, (path, name)
            elif "deltars-delta-0.8.0/" not in str(path):  # statistics made by hand
                assert ours[name] == theirs[name], (path, name)
            compared += 1
    assert compared > 1_000


def golden_files(golden: Path) -> Iterator[tuple[str, Path, StructType]]:
    """(statistics, data file, data columns) of the files whose every row is live and whose columns have their own names."""
    for log in sorted(golden.glob("*/**/_delta_log")):
        schema: StructType | None = None
        for commit in sorted(log.glob("*.json")):
            for line in commit.read_text(errors="replace").splitlines():
                action = parsed(line)
                if "schemaString" in action.get("metaData", {}):
                    schema = data_schema(action["metaData"])
                add = action.get("add", {})
                path = log.parent / urllib.parse.unquote(add.get("path", ""))
                if schema is not None and add.get("stats") and not add.get("deletionVector") and path.is_file():
                    yield add["stats"], path, schema


def parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def data_schema(metadata: Mapping[str, Any]) -> StructType | None:
    if "columnMapping" in json.dumps(metadata):
        return None
    try:
        schema = parse_schema(metadata["schemaString"])
    except (CorruptLogError, UnsupportedTypeError):
        return None
    return StructType(fields=tuple(field for field in schema.fields if field.name not in metadata["partitionColumns"]))


def readable_rows(path: Path, schema: StructType) -> pa.Table:
    table = pq.ParquetFile(path).read()
    return table.select([field.name for field in schema.fields if field.name in table.schema.names])


def conditions(table: pa.Table, column: Column, data_type: DataType) -> Iterator[Predicate]:
    """Comparisons with some of the column's own values; none where the file holds another type than the table (a widened column)."""
    known = isinstance(data_type, PrimitiveType | DecimalType) and column.path[0] in table.schema.names
    if not known or data_type in (PrimitiveType("variant"), PrimitiveType("void")):
        return
    yield from (IsNull(column), IsNotNull(column))
    values = table.column(column.path[0])
    for name in column.path[1:]:
        values = pc.struct_field(values, name)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        if not str(data_type).startswith("timestamp") or table.schema.field(column.path[0]).type.tz is None:
            return
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    for value in pc.unique(values.drop_null()).slice(0, 3).to_pylist():
        for op in OPERATORS:
            yield Comparison(op, column, Literal(value, data_type))  # type: ignore[arg-type]


def flat(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, (*above, name))
        else:
            yield (*above, name), value
