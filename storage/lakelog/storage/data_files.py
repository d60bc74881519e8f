"""Data files by their URIs: Parquet footers read many at once, files deleted, a folder looked into."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakelog.core.errors import DataFileMissingError, StorageError
from lakelog.storage.file_access import FileAccess
from lakelog.storage.log_store import LogStore

__all__ = ["delete_files", "first_beside", "open_footers"]


def open_footers(access: FileAccess, uris: Sequence[str], *, threads: int) -> list[pq.FileMetaData]:
    """The Parquet footers of the files, in the order of the URIs.

    Args:
        access: opens the files of the URIs' filesystem.
        uris: one per file.
        threads: how many files may be read at once, at least 1.

    Raises:
        UnknownSchemeError: a URI is on another filesystem; no file was opened.
        DataFileMissingError: a file is not there.
        StorageError: a file is not Parquet.
        OSError: a file cannot be read.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    paths = [access.path(uri) for uri in uris]
    workers = min(threads, len(paths))
    if workers <= 1:
        return [_footer(access, path, uri) for path, uri in zip(paths, uris, strict=True)]
    with ThreadPoolExecutor(workers, thread_name_prefix="lakelog-footer") as pool:
        try:
            return list(pool.map(_footer, [access] * len(paths), paths, uris))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def delete_files(access: FileAccess, store: LogStore, uris: Iterable[str]) -> None:
    """Delete the files, and the checksums that Hadoop keeps beside local ones; a file that is not there is no error.

    Every file is tried, whatever happens to the others.

    Args:
        access: of the URIs' filesystem.
        store: any LogStore of the same filesystem.

    Raises:
        UnknownSchemeError: a URI is on another filesystem; nothing was deleted.
        OSError: the first refusal of the medium, after all were tried.
    """
    paths = [access.log_store_path(uri) for uri in uris]
    refusal: OSError | None = None
    # One request deletes many where the store is far.
    for batch in [[path] for path in paths] if store.near else [paths]:
        try:
            store.delete(batch)
        except OSError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal


def first_beside(access: FileAccess, root: str, known: str) -> str | None:
    """The name of something in a folder, other than one that is expected there; None where there is nothing else, or no folder.

    Args:
        root: of a table in an object store, un-encoded.
        known: the name that does not count.

    Raises:
        OSError: the folder cannot be listed.
    """
    selector = pafs.FileSelector(root.partition("://")[2], allow_not_found=True)
    return next((info.base_name for info in access.filesystem().get_file_info(selector) if info.base_name != known), None)


def _footer(access: FileAccess, path: str, uri: str) -> pq.FileMetaData:
    try:
        with _opened(access, path) as file:
            return pq.read_metadata(file)
    except FileNotFoundError as error:
        raise DataFileMissingError(
            f"The data file {uri} is gone. VACUUM removes what no version younger than delta.deletedFileRetentionDuration needs; "
            "restore the file, or read another version of the table."
        ) from error
    except pa.ArrowInvalid as error:
        raise StorageError(f"The data file {uri} has no readable Parquet footer: {error}. Restore it, or read another version.") from error


def _opened(access: FileAccess, path: str) -> pa.NativeFile:
    if access.kind == "file":
        # Arrow's own file rather than Python's: its reads leave the interpreter to the other threads. Its stubs know no path of bytes,
        # which alone can name a file whose name is no UTF-8.
        return pa.OSFile(os.fsencode(path), "rb")  # type: ignore[arg-type]
    return access.filesystem().open_input_file(path)
