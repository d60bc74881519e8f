"""New data files of a table: Spark writes them, their footers tell the statistics, the log gets an `AddFile` for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.actions import AddFile, Metadata, RemoveFile
from lakelog.core.errors import ConstraintViolationError, WriteFailedError
from lakelog.core.paths import decode_path, encode_path, parse_partition_path
from lakelog.core.schema import DataType, StructType, parse_schema
from lakelog.core.statistics import IndexedColumns, file_statistics, parse_column_names
from lakelog.core.table_properties import TableProperties
from lakelog.spark import jvm
from lakelog.spark.aligning import NOT_NULL_VIOLATED, column
from lakelog.spark.context import Context
from lakelog.spark.footers import read_footers
from lakelog.spark.transaction import discard, written_files


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiles:
    """What a write left on the medium.

    Attributes:
        adds: one action per file that holds rows.
        uris: the same files as absolute URIs.
        rows: in all of them.
    """

    adds: tuple[AddFile, ...]
    uris: tuple[str, ...]
    rows: int

    @property
    def bytes(self) -> int:
        return sum(add.size for add in self.adds)


@dataclass(frozen=True, slots=True)
class _Written:
    uri: str
    size: int
    modification_time_ms: int


def write(
    context: Context,
    spark: SparkSession,
    root: str,
    frame: DataFrame,
    metadata: Metadata,
    options: Mapping[str, str],
    description: str,
) -> NewFiles:
    """Write a frame that already has the table's columns, in the table's order.

    Args:
        metadata: of the table as it will be; gives schema, partition columns and properties.
        options: for Spark's Parquet writer.
        description: what Spark's UI calls the jobs.

    Raises:
        ConstraintViolationError: a null in a NOT NULL column.
        WriteFailedError: a task failed, or the job was cancelled; says why.
        PySparkException: Spark's own error about the frame.
    """
    schema = parse_schema(metadata.schema_json)
    columns = metadata.partition_columns
    laid_out = _laid_out(frame, schema, columns) if columns else frame
    try:
        lines = jvm.write_files(spark, laid_out, context.hadoop_root(root), len(columns), options, description)
    except (PySparkException, Py4JJavaError) as error:
        raise _explained(error, root, description) from None
    files = [_Written(uri, int(size), int(time)) for uri, size, time in (line.split("\t") for line in lines.splitlines())]
    with written_files([file.uri for file in files]):
        footers = read_footers(spark, [file.uri for file in files])
        return _new_files(root, schema, columns, TableProperties(metadata.configuration), files, footers)


def _laid_out(frame: DataFrame, schema: StructType, partition_columns: Sequence[str]) -> DataFrame:
    """Data columns, then the partition columns as the texts that name their folders."""
    ordered = [column(f.name) for f in schema.fields if f.name not in partition_columns]
    folders = [_partition_text(column(name), schema.find((name,)).type).alias(name) for name in partition_columns]
    return frame.select(*ordered, *folders)


def _explained(error: PySparkException | Py4JJavaError, root: str, description: str) -> Exception:
    """Ours, where a constraint of the table or a task failed; else the class that PySpark has for it."""
    _, found, column_name = str(error).partition(NOT_NULL_VIOLATED)
    if found:
        name = re.split(r"['\"\n]| SQLSTATE", column_name)[0].strip()
        return ConstraintViolationError(
            f"Delta table {root}: the data holds a null in column {name}, which is NOT NULL. Fill it or filter those rows; nothing "
            "was written."
        )
    if isinstance(error, PySparkException):
        return error
    return WriteFailedError(f"Delta table {root}: the job failed ({description}); nothing was committed. It said: {jvm.root_cause(error)}")


def _new_files(
    root: str,
    schema: StructType,
    columns: Sequence[str],
    properties: TableProperties,
    files: Sequence[_Written],
    footers: Sequence[pq.FileMetaData],
) -> NewFiles:
    data_schema = StructType(tuple(f for f in schema.fields if f.name not in columns))
    names = properties.data_skipping_stats_columns
    indexed = IndexedColumns(
        count=properties.data_skipping_num_indexed_cols,
        names=None if names is None else parse_column_names(names),
        string_prefix_length=properties.string_prefix_length,
    )
    adds, uris, empty = [], [], []
    rows = 0
    for file, footer in zip(files, footers, strict=True):
        if footer.num_rows == 0:
            empty.append(file.uri)
            continue
        relative = _relative(root, file.uri)
        folder, _, _ = relative.rpartition("/")
        adds.append(
            AddFile(
                path=encode_path(relative),
                partition_values=parse_partition_path(folder, columns) if columns else {},
                size=file.size,
                modification_time=file.modification_time_ms,
                data_change=True,
                stats=file_statistics(footer, data_schema, indexed=indexed),
            )
        )
        uris.append(file.uri)
        rows += footer.num_rows
    discard(empty)
    return NewFiles(adds=tuple(adds), uris=tuple(uris), rows=rows)


def removal(add: AddFile, now_ms: int, *, data_change: bool = True) -> RemoveFile:
    """The tombstone of a live file, with what a reader of the change feed or a VACUUM needs."""
    return RemoveFile(
        path=add.path,
        deletion_timestamp=now_ms,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
        tags=add.tags,
    )


def _relative(root: str, uri: str) -> str:
    """The path below the root, decoded, of a URI that Hadoop printed."""
    path = decode_path(uri.removeprefix("file://").removeprefix("file:"))
    base = root.rstrip("/") + "/"
    if not path.startswith(base):
        raise ValueError(f"{uri} was written outside {root}")
    return path[len(base) :]


def _partition_text(column: Column, data_type: DataType) -> Column:
    """The protocol's text of a partition value, which becomes the folder's name.

    Spark's own text of a timestamp depends on the session's zone, and its text of a binary loses bytes that are not UTF-8.
    """
    name = getattr(data_type, "name", "")
    if name == "timestamp":
        micros = F.unix_micros(column)
        seconds = F.floor(micros / F.lit(1_000_000).cast("decimal(20,0)")).cast("long")
        wall = F.timestamp_seconds(seconds)
        text = F.date_format(F.convert_timezone(None, F.lit("UTC"), wall.cast("timestamp_ntz")), "yyyy-MM-dd'T'HH:mm:ss")
        fraction = F.lpad(F.pmod(micros, F.lit(1_000_000)).cast("string"), 6, "0")
        return F.concat(text, F.lit("."), fraction, F.lit("Z"))
    if name == "binary":
        return _binary_text(column)
    return column.cast("string")


def _binary_text(column: Column) -> Column:
    """As `serialize_partition_value` does: text where it is one, else every byte escaped."""
    text = column.cast("string")
    plain = F.is_valid_utf8(text) & ~text.contains("\0") & ~text.rlike(r"\\u[0-9a-fA-F]{4}")
    return F.when(plain, text).otherwise(F.regexp_replace(F.lower(F.hex(column)), "(..)", r"\\u00$1"))
