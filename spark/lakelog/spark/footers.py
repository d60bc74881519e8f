"""Parquet footers of freshly written files: by threads on the driver for few files, by a Spark job for many."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakelog.core.errors import LakelogError
from lakelog.storage.data_files import open_footers
from lakelog.storage.file_access import FileAccess

_log = logging.getLogger(__name__)

# Half a millisecond to two a footer: below this the start of a job and its Python workers costs more than it saves.
JOB_FROM_FILES = 2000
_FILES_PER_TASK = 250


def read_footers(spark: SparkSession, access: FileAccess, uris: Sequence[str]) -> list[pq.FileMetaData]:
    """The footers of the files, in the order of the URIs.

    Args:
        access: opens them.

    Raises:
        DataFileMissingError: a file is gone.
        StorageError: a file is not Parquet.
    """
    # Executors would need credentials for what is not local.
    if len(uris) >= JOB_FROM_FILES and access.kind == "file":
        found = _by_job(spark, access, uris)
        if found is not None:
            return found
    return open_footers(access, uris, threads=min(32, 4 * (os.cpu_count() or 1)))


def _by_job(spark: SparkSession, access: FileAccess, uris: Sequence[str]) -> list[pq.FileMetaData] | None:
    """Footers read by executors; None, said once in the log, when their Python lacks what it takes."""
    numbered = list(enumerate(uris))
    slices = max(1, len(uris) // _FILES_PER_TASK)
    try:
        told = spark.sparkContext.parallelize(numbered, slices).mapPartitions(partial(_serialised, access)).collect()
    except LakelogError:
        raise
    except Exception as error:
        _log.info("footers are read on the driver, since executors could not: %s", error)
        return None
    by_number = dict(told)
    return [pq.read_metadata(io.BytesIO(by_number[i])) for i in range(len(uris))]


def _serialised(access: FileAccess, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, bytes]]:
    """Each file's footer as a Parquet file without rows."""
    for number, uri in numbered:
        sink = io.BytesIO()
        open_footers(access, [uri], threads=1)[0].write_metadata_file(sink)
        yield number, sink.getvalue()
