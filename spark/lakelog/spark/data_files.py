"""New data files of a table: the engine writes them, their footers tell the statistics, the log gets an `AddFile` for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.core.actions import AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from lakelog.core.change_data import CHANGE_DATA_FOLDER, CHANGE_TYPE
from lakelog.core.column_mapping import MappingMode, mapping_mode, physical_columns, physical_paths, physical_schema
from lakelog.core.errors import WriteFailedError
from lakelog.core.footer_bounds import FooterBounds
from lakelog.core.paths import decode_path, encode_path, parse_partition_path
from lakelog.core.schema import DataType, PrimitiveType, StructField, StructType, parse_schema
from lakelog.core.statistics import IndexedColumns, file_statistics, parse_column_names
from lakelog.core.table_properties import TableProperties
from lakelog.spark import arrow_write, jvm
from lakelog.spark.aligning import column
from lakelog.spark.context import Context
from lakelog.spark.engine import Engine
from lakelog.spark.executor_access import lacking
from lakelog.spark.footers import read_footers
from lakelog.spark.transaction import discard, written_files
from lakelog.spark.violations import explained

_LONGEST_CAUSE = 1000
_REMEDIES = {
    "File name too long": ". A partition value may be longer than the 255 bytes of a folder's name: partition by another column.",
    "Mkdirs failed": ". A partition value may be longer than the 255 bytes of a folder's name: partition by another column.",
    "hadoop.io.compress.": ". Spark comes without this codec of Parquet: choose snappy, zstd, gzip or lz4_raw by the option compression or "
    "delta.parquet.compression.codec.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiles:
    """What a write left on the medium.

    Attributes:
        adds: one action per file that holds rows.
        uris: the same files as absolute URIs.
        footers: of the same files.
        rows: in all of them.
    """

    adds: tuple[AddFile, ...]
    uris: tuple[str, ...]
    footers: tuple[pq.FileMetaData, ...]
    rows: int

    @property
    def bytes(self) -> int:
        return sum(add.size for add in self.adds)


@dataclass(frozen=True, slots=True)
class _Written:
    uri: str
    size: int
    modification_time_ms: int
    footer: pq.FileMetaData
    nan_leaves: Mapping[int, FooterBounds] | None


def write(
    context: Context,
    spark: SparkSession,
    root: str,
    frame: DataFrame,
    metadata: Metadata,
    options: Mapping[str, str],
    description: str,
    *,
    protocol: Protocol,
    data_change: bool = True,
) -> NewFiles:
    """Write a frame that already has the table's columns, in the table's order.

    Args:
        metadata: of the table as it will be; gives schema, partition columns and properties.
        options: for Spark's Parquet writer.
        description: what Spark's UI calls the jobs.
        protocol: of the table as it will be.
        data_change: whether the rows are new to the table; False where they were only rearranged.

    Raises:
        ConstraintViolationError: a row that the table refuses, where the frame checks its rows (`checks.enforced`).
        WriteFailedError: a task failed, or the job was cancelled; says why.
        PySparkException: Spark's own error about the frame.
    """
    layout = _Layout.of(metadata, protocol)
    files = _run(context, spark, root, root, layout, frame, options, description)
    with written_files(context, [file.uri for file in files]):
        indexed = layout.indexed(TableProperties(metadata.configuration))
        adds, kept = [], []
        for file in files:
            if file.footer.num_rows == 0:
                continue
            relative = _relative(root, file.uri)
            adds.append(
                AddFile(
                    path=encode_path(relative),
                    partition_values=layout.partition_values(relative),
                    size=file.size,
                    modification_time=file.modification_time_ms,
                    data_change=data_change,
                    stats=file_statistics(file.footer, layout.in_files, indexed=indexed, nan_leaves=file.nan_leaves),
                )
            )
            kept.append(file)
    discard(context, [file.uri for file in files if file.footer.num_rows == 0])
    return NewFiles(
        adds=tuple(adds),
        uris=tuple(file.uri for file in kept),
        footers=tuple(file.footer for file in kept),
        rows=sum(file.footer.num_rows for file in kept),
    )


def write_change_files(
    context: Context,
    spark: SparkSession,
    root: str,
    frame: DataFrame,
    metadata: Metadata,
    options: Mapping[str, str],
    description: str,
    *,
    protocol: Protocol,
) -> tuple[tuple[AddCDCFile, ...], tuple[str, ...]]:
    """Write rows that changed below ``_change_data`` (PROTOCOL.md, "Change Data Files").

    Args:
        frame: the table's columns in the table's order, then ``_change_type``; else as for `write`.

    Returns:
        One action per file that holds rows, and the same files as absolute URIs.

    Raises:
        WriteFailedError: a task failed, or the job was cancelled; says why.
    """
    layout = _Layout.of(metadata, protocol, StructField(CHANGE_TYPE, PrimitiveType("string")))
    folder = f"{root.rstrip('/')}/{CHANGE_DATA_FOLDER}"
    files = _run(context, spark, root, folder, layout, frame, options, description)
    with written_files(context, [file.uri for file in files]):
        kept = [file for file in files if file.footer.num_rows]
        changes = [
            AddCDCFile(
                path=encode_path(_relative(root, file.uri)),
                partition_values=layout.partition_values(_relative(folder, file.uri)),
                size=file.size,
                data_change=False,
            )
            for file in kept
        ]
    discard(context, [file.uri for file in files if file.footer.num_rows == 0])
    return tuple(changes), tuple(file.uri for file in kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where the columns of a table go, by their logical and their physical names.

    Attributes:
        schema: of the table.
        columns: its partition columns.
        folders: what names the folders of each.
        data: what goes into files: the other columns, and what else there is.
        in_files: the same as files have it.
        mode: whether names differ.
    """

    schema: StructType
    columns: tuple[str, ...]
    folders: tuple[str, ...]
    data: tuple[str, ...]
    in_files: StructType
    mode: MappingMode

    @classmethod
    def of(cls, metadata: Metadata, protocol: Protocol, *more: StructField) -> _Layout:
        schema, columns = parse_schema(metadata.schema_json), metadata.partition_columns
        mode = mapping_mode(protocol, metadata.configuration)
        data = StructType((*(f for f in schema.fields if f.name not in columns), *more))
        return cls(
            schema=schema,
            columns=columns,
            folders=physical_columns(schema, columns, mode),
            data=data.names,
            in_files=physical_schema(data, mode),
            mode=mode,
        )

    def indexed(self, properties: TableProperties) -> IndexedColumns:
        """Which columns get statistics, by their physical names. The property names logical ones."""
        told = properties.data_skipping_stats_columns
        return IndexedColumns(
            count=properties.data_skipping_num_indexed_cols,
            names=None if told is None else physical_paths(self.schema, parse_column_names(told), self.mode),
            string_prefix_length=properties.string_prefix_length,
        )

    def partition_values(self, relative: str) -> dict[str, str | None]:
        """Those of a file, by its path below the folder that was written to."""
        folder, _, _ = relative.rpartition("/")
        return parse_partition_path(folder, self.folders) if self.columns else {}

    def laid_out(self, frame: DataFrame) -> DataFrame:
        """Data columns, then the partition columns as the texts that name their folders."""
        if not self.columns:
            return frame
        ordered = [column(name) for name in self.data]
        texts = [
            _partition_text(column(name), self.schema.find((name,)).type).alias(folder)
            for name, folder in zip(self.columns, self.folders, strict=True)
        ]
        return frame.select(*ordered, *texts)


def _run(
    context: Context,
    spark: SparkSession,
    root: str,
    folder: str,
    layout: _Layout,
    frame: DataFrame,
    options: Mapping[str, str],
    description: str,
) -> list[_Written]:
    rows = layout.laid_out(frame)
    by_arrow = context.engine(spark, root).engine is Engine.ARROW
    try:
        if by_arrow:
            told = arrow_write.write_files(context, spark, root, folder, rows, layout.in_files, layout.folders, options, description)
            return [_Written(file.uri, file.size, file.modification_time_ms, file.footer, file.nan_leaves) for file in told]
        physical = None if layout.mode is MappingMode.NONE else layout.in_files.to_json()
        lines = jvm.write_files(rows, context.hadoop_root(folder), len(layout.columns), physical, options, description)
    except (PySparkException, Py4JJavaError) as error:
        absent = lacking(jvm.messages(error)) if by_arrow else None
        raise explained(error, root, description, frame) or absent or _failed(error, root, description) from None
    files = [line.split("\t") for line in lines.splitlines()]
    uris = [uri for uri, _, _ in files]
    with written_files(context, uris):
        footers = read_footers(spark, context.access(root), uris)
    return [_Written(uri, int(size), int(time), footer, None) for (uri, size, time), footer in zip(files, footers, strict=True)]


def _failed(error: PySparkException | Py4JJavaError, root: str, description: str) -> Exception:
    """Ours, where a task failed; else the class that PySpark has for it."""
    said = arrow_write.fault(error)
    if said is None:
        if isinstance(error, PySparkException):
            return error
        said = jvm.root_cause(error)
    if len(said) > _LONGEST_CAUSE:
        said = f"{said[:_LONGEST_CAUSE]}..."
    known = next((remedy for words, remedy in _REMEDIES.items() if words in said), "")
    return WriteFailedError(f"Delta table {root}: the job failed ({description}); nothing was committed. It said: {said}{known}")


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
