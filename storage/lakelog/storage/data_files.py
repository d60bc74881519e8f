"""Data files by their URIs: Parquet footers read many at once, files deleted, files looked up.

A URI here is absolute and percent-encoded, ``file:///tmp/x%20y/part-0.parquet`` or ``file:/tmp/x%20y/part-0.parquet``, as the core makes
them of an add path and the table's root. Its bytes are taken as they decode: a name that is no UTF-8 is found too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.core.errors import DataFileMissingError, StorageError, UnknownSchemeError
from lakelog.storage.local import remove_with_checksum

__all__ = ["delete_files", "exists", "open_footers"]


def open_footers(uris: Sequence[str], *, threads: int) -> list[pq.FileMetaData]:
    """The Parquet footers of the files, in the order of the URIs.

    Args:
        uris: one per file.
        threads: how many files may be read at once, at least 1.

    Raises:
        UnknownSchemeError: a URI is of another scheme than ``file``; no file was opened.
        DataFileMissingError: a file is not there.
        StorageError: a file is not Parquet.
        OSError: a file cannot be read.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    paths = [_local_path(uri) for uri in uris]
    workers = min(threads, len(paths))
    if workers <= 1:
        return [_footer(path, uri) for path, uri in zip(paths, uris, strict=True)]
    with ThreadPoolExecutor(workers, thread_name_prefix="lakelog-footer") as pool:
        try:
            return list(pool.map(_footer, paths, uris))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def delete_files(uris: Iterable[str]) -> None:
    """Delete the files and the checksums that Hadoop keeps beside them; a file that is not there is no error.

    Every file is tried, whatever happens to the others.

    Raises:
        UnknownSchemeError: a URI is of another scheme than ``file``; nothing was deleted.
        OSError: the first refusal of the medium, after all were tried.
    """
    refusal: OSError | None = None
    for path in [_local_path(uri) for uri in uris]:
        try:
            remove_with_checksum(path)
        except OSError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal


def exists(uri: str) -> bool:
    """Whether there is such a file; a folder is none.

    Raises:
        UnknownSchemeError: the URI is of another scheme than ``file``.
    """
    return os.path.isfile(_local_path(uri))


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FILE_URI = re.compile(r"file:(?://)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)


def _local_path(uri: str) -> str:
    match = _FILE_URI.fullmatch(uri)
    if match is None:
        scheme = _SCHEME.match(uri)
        problem = f"scheme {scheme[1]!r}" if scheme and scheme[1].lower() != "file" else "what is no absolute file: URI"
        raise UnknownSchemeError(
            f"Cannot open the data file {uri!r}: lakelog's own Parquet access does not cover {problem} yet. "
            "It reads file:///folder/name; keep the table on a local or mounted filesystem."
        )
    return os.fsdecode(unquote_to_bytes(match[1]))


def _footer(path: str, uri: str) -> pq.FileMetaData:
    try:
        # Arrow's own file rather than Python's: its reads leave the interpreter to the other threads. Its stubs know no path of bytes,
        # which alone can name a file whose name is no UTF-8.
        with pa.OSFile(os.fsencode(path), "rb") as file:  # type: ignore[arg-type]
            return pq.read_metadata(file)
    except FileNotFoundError as error:
        raise DataFileMissingError(
            f"The data file {uri} is gone. VACUUM removes what no version younger than delta.deletedFileRetentionDuration needs; "
            "restore the file, or read another version of the table."
        ) from error
    except pa.ArrowInvalid as error:
        raise StorageError(f"The data file {uri} has no readable Parquet footer: {error}. Restore it, or read another version.") from error
