"""The Arrow engine's write: Spark computes the rows, pyarrow writes them in the executors' Python, under the names that Spark would give.

A task that fails removes its own files. Of a job that fails the driver removes those that finished tasks wrote. What stays behind is what
a killed worker had begun, and what an attempt wrote that Spark no longer waits for: garbage that no version names, for VACUUM. An upload
to an object store that was not finished shows nowhere; a lifecycle rule of the bucket ends it.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lakelog.core.field_metadata import PARQUET_FIELD_ID
from lakelog.core.footer_bounds import FooterBounds
from lakelog.core.paths import absolute_uri
from lakelog.core.schema import ArrayType, DataType, MapType, StructField, StructType, to_arrow_type
from lakelog.spark import jvm
from lakelog.spark.arrow_options import ParquetSettings
from lakelog.spark.arrow_writer import MARK, FilesByJob, WriteTask, write_rows
from lakelog.spark.context import Context
from lakelog.spark.executor_access import executor_access
from lakelog.spark.transaction import discard

_ANSWER = (
    "uri string, size bigint, modification_time_ms bigint, footer binary, "
    "nan_leaves array<int>, nan_lows array<double>, nan_nulls array<bigint>"
)
_FAILED = re.compile(re.escape(MARK) + r"(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFile:
    """A file that the job wrote.

    Attributes:
        uri: absolute, percent-encoded.
        size: in bytes.
        modification_time_ms: since the epoch.
        footer: of the file.
        nan_leaves: the column chunks with a NaN in them, by number, and their bounds.
    """

    uri: str
    size: int
    modification_time_ms: int
    footer: pq.FileMetaData
    nan_leaves: Mapping[int, FooterBounds]


def write_files(
    context: Context,
    spark: SparkSession,
    root: str,
    folder: str,
    frame: DataFrame,
    in_files: StructType,
    partition_columns: Sequence[str],
    options: Mapping[str, str],
    description: str,
) -> list[ArrowFile]:
    """Write a frame's rows below a folder of a table, in one job.

    Args:
        root: the table's.
        folder: the root or a folder in it, unencoded.
        frame: the columns of files, then the partition columns as the texts that name their folders.
        in_files: the columns of files as these have them.
        partition_columns: what names the folders of each.
        options: for the Parquet writer, under the names that Spark's writer knows them by.
        description: what Spark's UI calls the job.

    Raises:
        UnsupportedOperationError: an option that must not be left aside, which pyarrow cannot follow.
        InvalidOptionError: an option whose value makes no sense.
        PySparkException, Py4JJavaError: the job failed; its files were removed as the module says.
    """
    settings = ParquetSettings.of(spark, root, options)
    # A folder's physical name may be a data column's logical one: what goes where is told by position.
    names = [f"c{position}" for position in range(len(frame.columns))]
    frame = frame.toDF(*names)
    texts = names[len(in_files.fields) :]
    for name in texts:
        # An empty text has the folder of null.
        frame = frame.withColumn(name, F.when(F.col(name) != "", F.col(name)))
    if texts:
        frame = frame.sortWithinPartitions(*texts)
    with _told_files(context, spark) as (job, done):
        task = WriteTask(
            access=executor_access(spark, context.access(root)),
            folder=absolute_uri(folder, "x").removesuffix("/x"),
            schema=pa.schema([_arrow_field(field) for field in in_files.fields]),
            # As Spark's own files: it takes dates and times for what they say where it sees its release.
            key_values={
                "org.apache.spark.version": spark.version,
                "org.apache.spark.sql.parquet.row.metadata": _bare(in_files).to_json(),
            },
            partition_columns=tuple(partition_columns),
            extension=settings.extension,
            parquet=settings.parquet,
            group_bytes=settings.group_bytes,
            group_rows=settings.group_rows,
            max_rows=settings.max_rows,
            job=job,
            done=done,
        )
        answer = jvm.map_in_arrow(frame, spark, partial(write_rows, task), _ANSWER, "lakelog_write")
        with jvm.described(spark, description):
            return [_file(row) for row in answer.collect()]


def fault(error: Exception) -> str | None:
    """What an error of a job's says about a file that could not be written; None where it is about something else, as the rows."""
    for message in jvm.messages(error):
        found = _FAILED.search(message)
        if found is not None:
            return found[1]
    return None


def _file(row: Row) -> ArrowFile:
    return ArrowFile(
        uri=str(row[0]),
        size=int(row[1]),
        modification_time_ms=int(row[2]),
        footer=pq.read_metadata(io.BytesIO(row[3])),
        # Either zero may stand for the other, as in footers.
        nan_leaves={
            leaf: FooterBounds(-0.0 if low == 0 else low, None, nulls) for leaf, low, nulls in zip(row[4], row[5], row[6], strict=True)
        },
    )


# --- What finished tasks wrote ------------------------------------------------------------------------------------------------------


_lock = threading.Lock()
_done: dict[str, Accumulator[dict[str, list[str]]]] = {}


@contextmanager
def _told_files(context: Context, spark: SparkSession) -> Iterator[tuple[str, Accumulator[dict[str, list[str]]]]]:
    """A job's name, and where its tasks tell what they wrote, one for all jobs of an application: PySpark keeps each forever."""
    application = spark.sparkContext.applicationId
    with _lock:
        if application not in _done:
            _done.clear()
            _done[application] = spark.sparkContext.accumulator({}, FilesByJob())
        done = _done[application]
    job = str(uuid4())
    try:
        yield job, done
    except BaseException:
        discard(context, done.value.get(job, []))
        raise
    finally:
        done.value.pop(job, None)


# --- Schema -------------------------------------------------------------------------------------------------------------------------


def _arrow_field(field: StructField) -> pa.Field[Any]:
    """With its id, wherever it is nested."""
    number = field.metadata.get(PARQUET_FIELD_ID)
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(field.name, _arrow_type(field.type), field.nullable, metadata=metadata)


def _arrow_type(data_type: DataType) -> pa.DataType:
    if isinstance(data_type, StructType):
        return pa.struct([_arrow_field(field) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(data_type.element), data_type.contains_null))
    if isinstance(data_type, MapType):
        value = pa.field("value", _arrow_type(data_type.value), data_type.value_contains_null)
        # pa.map_ takes a field for its items, which its stubs do not know.
        return pa.map_(_arrow_type(data_type.key), cast(pa.DataType, value))
    return to_arrow_type(data_type)


def _bare(schema: StructType) -> StructType:
    """Without what only the table's log should say, such as defaults and lengths."""
    found = _bare_type(schema)
    assert isinstance(found, StructType)
    return found


def _bare_type(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(
            tuple(
                StructField(f.name, _bare_type(f.type), f.nullable, {k: v for k, v in f.metadata.items() if k == PARQUET_FIELD_ID})
                for f in data_type.fields
            )
        )
    if isinstance(data_type, ArrayType):
        return replace(data_type, element=_bare_type(data_type.element))
    if isinstance(data_type, MapType):
        return replace(data_type, key=_bare_type(data_type.key), value=_bare_type(data_type.value))
    return data_type
