"""How data files of one filesystem are opened through Arrow, by the driver and by executors; what travels between them has no secret in it.

A URI here is absolute and percent-encoded, as the core makes them of an add path and the table's root: ``file:///tmp/x%20y/part-0.parquet``,
``file:/tmp/x%20y/part-0.parquet``, ``s3a://bucket/some%20key/part-0.parquet``. Its bytes are taken as they decode: a local name that is no
UTF-8 is found too.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import unquote, unquote_to_bytes

import pyarrow.fs as pafs

from lakelog.core.errors import StoreConfigurationError, UnknownSchemeError
from lakelog.storage.registry import SHORT_NAMES, family_of, hadoop_options, options_for, scheme_of, store_name_for
from lakelog.storage.s3_redaction import redacted

__all__ = ["FileAccess", "file_access_for", "hadoop_entries_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """Opens the files of one filesystem. Prints and pickles without its secrets: who unpickles it finds credentials in its own environment,
    or is handed them by `with_secrets`.

    Attributes:
        kind: which of Arrow's filesystems serves.
        bucket: of an object store.
        options: what that filesystem is made with, but for credentials.
        secrets: the credentials that it is made with; empty where it looks for them itself.
    """

    kind: Literal["file", "s3"]
    bucket: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    secrets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return _without_secrets, (self.kind, self.bucket, self.options)

    def __hash__(self) -> int:
        return hash((self.kind, self.bucket, self.options))

    def with_secrets(self, secrets: Mapping[str, str]) -> FileAccess:
        """The same files, opened with these credentials."""
        return replace(self, secrets=MappingProxyType(dict(secrets)))

    def filesystem(self) -> pafs.FileSystem:
        """Arrow's filesystem, made once per process."""
        if self.kind == "file":
            return _local()
        return _s3(self.bucket, self.options, tuple(sorted(self.secrets.items())))

    def path(self, uri: str) -> str:
        """What `filesystem` calls the file of a URI: ``/tmp/x y/part-0.parquet`` or ``bucket/some key/part-0.parquet``.

        Raises:
            UnknownSchemeError: the URI is on another filesystem.
        """
        if self.kind == "file":
            return _local_path(uri)
        match = _URI.fullmatch(uri)
        if match is None or family_of(match[1]) != "s3" or match[2] != self.bucket:
            raise UnknownSchemeError(
                f"Cannot open the data file {redacted(uri)!r}: it is not in the bucket {self.bucket!r} that holds the table. "
                "Copy it to where the table is, or read the table's own files."
            )
        return f"{self.bucket}/{unquote(match[3].lstrip('/'))}"

    def log_store_path(self, uri: str) -> str:
        """What a LogStore calls the file of a URI. Raises as `path`."""
        path = self.path(uri)
        return path if self.kind == "file" else f"s3a://{path}"


def file_access_for(path: str, settings: Mapping[str, str] = MappingProxyType({})) -> FileAccess:
    """How the data files of a table are opened, by the settings that choose its LogStore too.

    Args:
        path: any path or URI of the table.
        settings: as for `lakelog.storage.registry.log_store_for`.

    Raises:
        UnknownSchemeError: lakelog's own Parquet access does not cover the scheme.
        StoreConfigurationError: settings disagree, or name what makes no sense.
    """
    family = family_of(scheme_of(path))
    if family == "file":
        return FileAccess(kind="file")
    match = _URI.fullmatch(path)
    if family != "s3" or match is None:
        raise UnknownSchemeError(_NOT_COVERED.format(path=redacted(path), problem=f"scheme {scheme_of(path)!r}"))
    found = _s3_settings(path, settings, match[2])
    return FileAccess(kind="s3", bucket=match[2], options=tuple(sorted(found.arrow_arguments().items()))).with_secrets(
        found.arrow_secrets()
    )


def hadoop_entries_for(path: str, settings: Mapping[str, str] = MappingProxyType({})) -> Mapping[str, str]:
    """Hadoop's entries that say of the path's filesystem what the settings say, secrets included; none for what is not on S3.

    Arguments and errors are those of `file_access_for`.
    """
    match = _URI.fullmatch(path)
    if family_of(scheme_of(path)) != "s3" or match is None:
        return {}
    entries: Mapping[str, str] = _s3_settings(path, settings, match[2]).hadoop()
    return entries


def _s3_settings(path: str, settings: Mapping[str, str], bucket: str) -> Any:
    try:
        module: Any = importlib.import_module("lakelog.storage.s3_settings")
    except ImportError as error:
        raise StoreConfigurationError(f'Cannot open {path!r}: {error}. Run: pip install "lakelog[s3]"') from error
    ours = store_name_for(path, settings) in SHORT_NAMES
    # Options of somebody else's LogStore are its own: data files are then reached as Hadoop's names and the machine say.
    return module.S3Settings.of(options_for(path, settings) if ours else hadoop_options(settings), bucket=bucket)


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]+)(.*)", re.DOTALL)
_FILE_URI = re.compile(r"file:(?://)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)
_NOT_COVERED = (
    "Cannot open the data file {path!r}: lakelog's own Parquet access does not cover {problem}. "
    "It reads file:///folder/name and s3a://bucket/key; keep the table on one of these."
)


def _without_secrets(kind: Literal["file", "s3"], bucket: str, options: tuple[tuple[str, Any], ...]) -> FileAccess:
    return FileAccess(kind=kind, bucket=bucket, options=options)


def _local_path(uri: str) -> str:
    match = _FILE_URI.fullmatch(uri)
    if match is None:
        scheme = _SCHEME.match(uri)
        problem = f"scheme {scheme[1]!r} here" if scheme and scheme[1].lower() != "file" else "what is no absolute file: URI"
        raise UnknownSchemeError(_NOT_COVERED.format(path=redacted(uri), problem=problem))
    return os.fsdecode(unquote_to_bytes(match[1]))


@lru_cache(maxsize=1)
def _local() -> pafs.FileSystem:
    return pafs.LocalFileSystem()


@lru_cache(maxsize=64)
def _s3(bucket: str, options: tuple[tuple[str, Any], ...], secrets: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    # A small file is then one request instead of the three of an upload in parts.
    given: dict[str, Any] = {**dict(options), **dict(secrets), "allow_delayed_open": True}
    if given.get("region") is None and given.get("endpoint_override") is None:
        # Arrow follows no redirect to the region that a bucket is in.
        try:
            given["region"] = pafs.resolve_s3_region(bucket)
        except OSError:
            given.pop("region", None)
    return pafs.S3FileSystem(**given)
